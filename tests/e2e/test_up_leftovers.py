"""Leftovers of a killed run: found by what they carry, told apart from everything else, and ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from dgsf.errors import StartError
from dgsf.paths import private_folder, run_dir_of
from dgsf.supervisor import leftovers


@pytest.fixture
def run_a():
    """Starts processes that sleep; all end with the test."""
    started: list[subprocess.Popen] = []

    def begin(environment: dict[str, str], title: str = "sleep", **more) -> subprocess.Popen:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("DGSF_")}
        process = subprocess.Popen([title, "600"], executable="/bin/sleep", env=clean | environment, **more)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def mark():
    found = os.urandom(6).hex()
    yield found
    folder = run_dir_of(found)
    if folder.exists():
        (folder / "log").unlink()
        folder.rmdir()


def test_what_carries_the_mark_is_ended_and_nothing_else(run_a, mark):
    ours, other, plain = run_a({"DGSF_MARK": mark}), run_a({"DGSF_MARK": mark + "0"}), run_a({})
    assert [item.pid for item in leftovers.marked(mark)] == [ours.pid]
    assert leftovers.end_marked(mark) == 1
    assert ours.wait(60) < 0
    assert other.poll() is None and plain.poll() is None


def test_a_ray_process_that_wrote_over_its_environment_is_known_by_its_files(run_a, mark):
    with open(private_folder(run_dir_of(mark)) / "log", "w") as log:
        ours = run_a({}, title="ray::DashboardAgent", stdout=log)
        reader = run_a({}, title="tail", stdout=log)
        elsewhere = run_a({}, title="ray::DashboardAgent")
        assert leftovers.end_marked(mark) == 1
    assert ours.wait(60) < 0
    assert reader.poll() is None and elsewhere.poll() is None


def test_a_recorded_pid_that_another_process_has_now_is_left_alone(run_a, tmp_path):
    ours, later = run_a({}), run_a({})
    file = tmp_path / "processes.json"
    leftovers.record(file, {"ours": ours.pid, "later": later.pid})
    rows = json.loads(file.read_text())
    rows[1]["started"] -= 1  # as if the pid had belonged to an older process
    file.write_text(json.dumps(rows))
    assert [item.pid for item in leftovers.recorded(file)] == [ours.pid]
    assert leftovers.end(leftovers.recorded(file)) == []
    assert later.poll() is None


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"pid": "x"}]', "null"])
def test_a_broken_record_is_no_record(tmp_path, text):
    file = tmp_path / "processes.json"
    file.write_text(text)
    assert leftovers.recorded(file) == []


def test_a_locked_data_dir_names_its_holder(tmp_path):
    file = str(tmp_path / "lock")
    script = f"from pathlib import Path; from dgsf.supervisor.leftovers import lock; lock(Path({file!r}))"
    with leftovers.lock(tmp_path / "lock"):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
        assert f"process {os.getpid()}" in done.stderr
        with pytest.raises(StartError, match=f"process {os.getpid()}"):
            leftovers.lock(tmp_path / "lock")
    leftovers.lock(tmp_path / "lock").close()
