"""The SDK's types help: good programs pass the type checker, bad ones do not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "typing"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """What mypy knows after the first program need not be found out again for the second."""
    return tmp_path_factory.mktemp("mypy")


def check(program: str, cache: Path) -> list[str]:
    """mypy's complaints about one program."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", f"--cache-dir={cache}", program],
        cwd=PROGRAMS,
        env={"PATH": os.environ["PATH"], "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    return [line for line in done.stdout.splitlines() if ": error:" in line] + done.stderr.splitlines()


def test_good_programs_pass(cache):
    assert check("good.py", cache) == []


def test_bad_programs_are_refused_line_by_line(cache):
    lines = (PROGRAMS / "bad.py").read_text().splitlines()
    expected = {number for number, line in enumerate(lines, 1) if line.endswith("# bad")}
    complaints = check("bad.py", cache)
    assert {int(line.split(":")[1]) for line in complaints} == expected, complaints
