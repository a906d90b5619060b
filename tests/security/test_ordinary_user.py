"""The sandbox and the device server once more, as an ordinary user."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOME_USER = 54321


@pytest.mark.skipif(os.geteuid() != 0, reason="this run is by an ordinary user already")
@pytest.mark.timeout(400)
def test_all_of_it_holds_for_an_ordinary_user_too():
    root = HERE.parents[1]
    tests = [HERE / "test_sandbox.py", HERE.parent / "integration" / "test_device_server.py"]
    done = subprocess.run(
        [
            *(sys.executable, str(HERE / "as_ordinary_user.py"), str(SOME_USER)),
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *map(str, tests)),
        ],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/tmp"},
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
