"""`dgsf profile`: what it shows, what it saves, what it tells when it cannot."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE
from typing import TypeVar

import pytest

from dgsf import cli
from dgsf.cli.profile import STARTING
from dgsf.core.perfmodel import on_faster_device, predict, shown, slowdowns
from dgsf.sim.recordings import load_recording

pytestmark = pytest.mark.timeout(300)
SOURCE = """
import asyncio
import dgsf

app = dgsf.App("profiled", attach="auto")

def plain(size=16):
    import torch
    x = torch.ones(size, size, device=dgsf.device())
    return (x @ x).sum().item()

@app.function
def asks(times: int = 3):
    return [plain() for _ in range(times)]

def by_threads():
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda _: plain(), range(40)))

@app.function(attach="near")
async def by_cuda():
    import torch
    assert torch.cuda.is_available()
    await asyncio.sleep(0)
    return torch.ones(4, device="cuda").tolist()

@app.function
def raises():
    raise ValueError("not today")

@app.function
def leaves(code=None):
    import sys
    sys.exit(code)

def gives(size=256):
    import torch
    return torch.ones(size, size, device=dgsf.device()) + 1

def gives_one_by_one(size=256):
    for _ in range(3):
        yield gives(size)

async def gives_later(size=256):
    await asyncio.sleep(0)
    return {"it": gives(size)}

def gives_what_cannot_travel():
    import threading
    return gives(), threading.Lock()

async def item_by_item():
    for _ in range(2):
        await asyncio.sleep(0)
        yield plain()

@app.function
def idle(x=1):
    return x
"""

ENDLESS = """
import dgsf

def endless(path: str):
    import torch
    from pathlib import Path
    x = torch.ones(64, 64, device=dgsf.device())
    while True:
        (x @ x).sum().item()
        Path(path).touch()
"""
T = TypeVar("T")


@pytest.fixture
def run(tmp_path, capfd):
    """Runs `dgsf profile` on a function of the file above: exit code, stdout, stderr, folder."""
    file = tmp_path / f"profiled_{tmp_path.name.replace('-', '_')}.py"
    file.write_text(SOURCE)

    def one(name: str, *words: str) -> tuple[int, str, str]:
        code = cli.execute(["profile", f"{file}::{name}", "--repeat", "2", *words])
        out, err = capfd.readouterr()
        return code, out, err

    one.file = file
    return one


def test_the_command_shows_and_saves(run) -> None:
    commands = run.file.with_suffix(".jsonl")
    code, out, _ = run("asks", "--times", "2", "--save", "--recording", str(commands))
    assert code == 0
    for words in ("waiting for the device", "2 sync points", "aten::sum", "round trip   1 ms", "saved in"):
        assert words in out
    stored = json.loads(run.file.with_suffix(".profiles.json").read_text())
    assert stored["asks"][0][0] == 0
    recording = load_recording(commands)
    assert predict(recording).sync_points == 2
    assert recording.link is not None
    assert f"{shown(slowdowns(recording, recording.link)[1])} x (" in out


def test_a_profile_that_could_not_be_saved_is_not_even_begun(tmp_path, capfd) -> None:
    file, profiles = tmp_path / "unsaved.py", tmp_path / "unsaved.profiles.json"
    file.write_text("def raises():\n    raise ValueError('not today')\n")
    profiles.write_text("[]")
    assert cli.execute(["profile", f"{file}::raises", "--save"]) == 2
    assert "is not a file of profiles" in capfd.readouterr().err
    profiles.unlink()
    profiles.mkdir()
    assert cli.execute(["profile", f"{file}::raises", "--save"]) == 2
    assert "cannot be written: Is a directory" in capfd.readouterr().err


def test_a_bad_profile_is_replaced_and_keeps_nobody_from_it(run) -> None:
    profiles = run.file.with_suffix(".profiles.json")
    profiles.write_text('{"asks": 3, "idle": 4}')
    assert run("asks", "--save")[0] == 0
    stored = json.loads(profiles.read_text())
    assert stored["asks"][0][0] == 0 and stored["idle"] == 4


def test_looking_whether_a_recording_can_be_written_leaves_no_file(run) -> None:
    commands = run.file.with_suffix(".jsonl")
    assert run("raises", "--recording", str(commands))[0] == 1
    assert not commands.exists()


def test_a_profile_for_a_faster_device_says_so_and_is_saved_with_it(run) -> None:
    commands = run.file.with_suffix(".jsonl")
    code, out, _ = run("asks", "--faster", "10", "--save", "--recording", str(commands))
    assert code == 0 and "with kernels 10 x shorter than on this CPU" in out
    stored = json.loads(run.file.with_suffix(".profiles.json").read_text())
    assert stored["asks"]["faster"] == 10
    recording = load_recording(commands)
    there = slowdowns(on_faster_device(recording, 10), recording.link)
    assert f"{shown(there[1])} x (" in out, "the recording is as it was, the prediction is for the other device"


@pytest.mark.parametrize("wait_for", ["the call", "its device"])
def test_ctrl_c_ends_it_with_one_word_and_leaves_nothing(tmp_path, wait_for: str) -> None:
    file, begun = tmp_path / "endless.py", tmp_path / "begun"
    file.write_text(ENDLESS)
    command = [sys.executable, "-m", "dgsf.cli", "profile", f"{file}::endless", "--path", str(begun)]
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True, start_new_session=True) as running:
        helpers = _until(lambda: _children(running.pid))
        if wait_for == "the call":
            _until(begun.exists)
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does it
        out, err = running.communicate(timeout=120)
    said = err.replace(f"dgsf: {STARTING}\n", "")  # on a slow machine
    assert (running.returncode, out, said.strip()) == (130, "", "interrupted")
    # One that was interrupted in the very moment of its start ends by itself, when it looks for its first order.
    _until(lambda: not [pid for pid in helpers if Path(f"/proc/{pid}").exists()])


def _until(state: Callable[[], T]) -> T:
    deadline = time.monotonic() + 120
    while not (found := state()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


@pytest.mark.parametrize("name", ["plain", "by_cuda"])
def test_plain_functions_and_those_that_say_cuda_are_profiled_too(run, name: str) -> None:
    code, out, _ = run(name, "--json")
    assert code == 0
    document = json.loads(out)
    assert document["function"] == name and document["sync_points"] == 1
    assert [trip for trip, _ in document["slowdowns"]] == [5, 50, 1000]
    assert document["spread"]["repeats"] == 2
    for (_, ratio), (_, least, most) in zip(document["slowdowns"], document["spread"]["slowdowns"], strict=True):
        assert least <= ratio <= most


def test_waits_of_several_threads_are_counted_once(run) -> None:
    code, out, _ = run("by_threads", "--json")
    found = json.loads(out)
    assert code == 0 and found["sync_points"] == 40
    assert found["guest_us"] >= 0 and found["guest_us"] + found["waiting_us"] == pytest.approx(found["total_us"], abs=2)


def test_what_comes_item_by_item_is_profiled_to_its_end(run) -> None:
    code, out, _ = run("item_by_item", "--json")
    assert code == 0 and json.loads(out)["sync_points"] == 2


@pytest.mark.parametrize(("name", "results"), [("gives", 1), ("gives_one_by_one", 3), ("gives_later", 1)])
def test_what_a_function_returns_leaves_the_device_in_the_call(run, name: str, results: int) -> None:
    code, out, _ = run(name, "--json")
    found = json.loads(out)
    assert code == 0 and found["sync_points"] == results
    assert results * 4 * 256**2 <= found["down_bytes"] < results * 4 * 256**2 + 1000


@pytest.mark.parametrize(
    ("name", "words", "code", "told"),
    [
        ("leaves", (), 1, "leaves raised SystemExit"),
        ("leaves", ("--code", "3"), 1, "leaves raised SystemExit: 3"),
        ("gives_what_cannot_travel", (), 1, "the function's result, a tuple, cannot be sent: TypeError"),
        ("idle", (), 2, "idle did not touch a device"),
        ("asks", ("--tims", "3"), 2, "has no argument 'tims'; did you mean --times?"),
        ("asks", ("--times",), 2, "--times has no value and is not a bool"),
        ("nothing", (), 2, "has no function 'nothing'"),
        ("raises", (), 1, "raises raised ValueError: not today"),
        ("raises", ("--recording", "/nowhere/x"), 2, "/nowhere/x: cannot be written: No such file or directory"),
        ("raises", ("--recording", "/proc/x"), 2, "/proc/x: cannot be written"),
        ("asks", ("--faster", "0"), 2, "--faster 0: a number from 0.01 to 10,000 makes sense"),
        ("asks", ("--faster", "nan"), 2, "--faster nan: a number from 0.01 to 10,000 makes sense"),
        ("asks", ("--faster", "1e9"), 2, "--faster 1e+09: a number from 0.01 to 10,000 makes sense"),
    ],
)
def test_what_cannot_be_profiled_is_told(run, name: str, words: tuple[str, ...], code: int, told: str) -> None:
    found, out, err = run(name, *words)
    assert found == code and told in err and not out
