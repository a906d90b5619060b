"""What tests of several folders share is in tests/support."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support"))
