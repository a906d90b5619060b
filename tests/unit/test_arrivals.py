"""What a start waits for before it says that it is ready."""

import pytest
from test_placing import row

from dgsf.cli import execute
from dgsf.supervisor.arrivals import PATIENCE_SECONDS, Arrivals

MINE = ("box/cpu0", "box/host0")


def pool(**states):
    return [row(number, kind=name[:-1], name=f"box/{name}", state=state) for number, (name, state) in
            enumerate(states.items())]  # fmt: skip


def arrivals(names=MINE, host=True):
    return Arrivals(names, host=host, now_s=0.0, log="logs/controller.log")


def test_a_restart_on_used_data_waits_for_the_function_host_too():
    waiting = arrivals()
    assert waiting.look(pool(cpu0="lost", host0="lost"), 0.0) == (False, "")
    assert waiting.look(pool(cpu0="healthy", host0="lost"), 9.0) == (False, "")
    assert waiting.look(pool(cpu0="healthy", host0="healthy"), 12.0) == (True, "")


def test_one_that_does_not_come_is_named_and_gone_on_without():
    waiting = arrivals()
    assert waiting.look(pool(cpu0="healthy"), 5.0) == (False, "")
    assert waiting.look(pool(cpu0="healthy"), 4.9 + PATIENCE_SECONDS) == (False, ""), "counted from the last that came"
    done, said = waiting.look(pool(cpu0="healthy"), 5.0 + PATIENCE_SECONDS)
    assert done and "box/host0 (not started)" in said and "logs/controller.log" in said


def test_without_any_device_it_waits_on_and_says_so_once():
    waiting = arrivals()
    assert waiting.look(pool(host0="healthy"), 0.0) == (False, "")
    done, said = waiting.look(pool(host0="healthy"), PATIENCE_SECONDS)
    assert not done and "box/cpu0 (not started)" in said
    assert waiting.look(pool(host0="healthy"), PATIENCE_SECONDS + 1) == (False, "")
    assert waiting.look(pool(host0="healthy", cpu0="healthy"), PATIENCE_SECONDS + 2) == (True, "")


def test_of_a_cluster_the_first_device_and_the_first_function_host_will_do():
    assert arrivals(names=()).look(pool(cpu0="healthy", host0="lost"), 0.0) == (False, "")
    assert arrivals(names=(), host=False).look(pool(cpu0="healthy", host0="lost"), 0.0) == (True, "")
    assert arrivals(names=()).look(pool(cpu0="healthy", cpu1="lost", host0="healthy"), 0.0) == (True, "")


@pytest.mark.parametrize("more", [(), ("--ray-address", "127.0.0.1:1")], ids=["own Ray", "a cluster"])
def test_devices_that_this_machine_does_not_have_are_told_before_anything_starts(more, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a token")
    assert execute(["up", "--devices", "cuda:999", "--data-dir", str(tmp_path / "data"), *more]) == 2
    assert "999 CUDA GPUs are asked for" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
