"""What tests of several folders share is in tests/support; and what holds for every property test."""

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent / "support"))

# A busy machine is slow now and then: that is no failed example.
settings.register_profile("dgsf", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dgsf")
