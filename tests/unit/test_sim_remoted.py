"""Remoted calls in simulations: the link is as slow beside a fast device, and who waits for it needs no device."""

from __future__ import annotations

import json

import pytest
from simulated import simulate, workload

from dgsf import cli
from dgsf.core.perfmodel import Command, Link, Recording
from dgsf.errors import UsageError
from dgsf.sim.recordings import save_recording
from dgsf.sim.remoted import Remoted
from dgsf.sim.workload import FunctionSpec

ONE_ANSWER = Recording((Command(100.0), Command(100.0, sync=True)))


def far(recording: Recording = ONE_ANSWER, round_trip_us: float = 5000.0, attach: str = "fabric") -> Remoted:
    return Remoted(recording, Link(round_trip_us=round_trip_us), attach)


def test_a_faster_device_makes_no_link_faster():
    calls = workload((0, 0, 2.0)).changed(remoted=far())
    slow, fast = (simulate(calls, pool).done_mean_s for pool in ("T4:1", "H100:1"))
    assert slow == pytest.approx(2.0 * 5200 / 200)
    assert fast == pytest.approx(2.0 / 8 + 2.0 * 5000 / 200), "only the run itself is 8 times shorter"


@pytest.mark.parametrize("guest_us", [0.0, 1000.0])
def test_what_the_link_adds_to_a_run_is_the_same_at_every_speed(guest_us):
    link = far(Recording((Command(100.0, sync=True, guest_us=guest_us),)))
    added = [(link.slowdown(speed) - 1) / speed for speed in (0.35, 1.0, 8.0, 1000.0)]
    assert added == pytest.approx([added[0]] * 4)


def test_tasks_take_as_long_on_every_type_and_so_does_their_link():
    calls = workload((0, 0, 2.0)).changed(remoted=far(), scales=False)
    assert simulate(calls, "H100:1").done_mean_s == pytest.approx(simulate(calls, "T4:1").done_mean_s)


def test_bodies_run_beside_devices_that_are_too_fast_for_the_link_alone():
    link = far(round_trip_us=10.0, attach="auto")
    assert [link.attach(speed) for speed in (1.0, 8.0)] == ["fabric", "near"]
    assert [link.slowdown(speed) for speed in (1.0, 8.0)] == [pytest.approx(1.05), 1.0]


def test_a_remoted_call_that_waits_for_the_link_leaves_the_device_to_others():
    two = [FunctionSpec(name, share=500, duty=1.0) for name in "ab"]
    calls = workload((0, 0, 8.0), (0, 1, 8.0), functions=two)
    assert simulate(calls).done_mean_s == pytest.approx(16), "each needs the device all the time"
    remoted = calls.changed(remoted=far(round_trip_us=200.0))  # half of a run is the link's
    assert simulate(remoted).done_mean_s == pytest.approx(16), "as long as one alone over this link"


def test_a_device_on_which_commands_take_for_ever_is_refused():
    with pytest.raises(UsageError, match="on a device of speed 1e-308 its commands would take for ever"):
        far().slowdown(1e-308)


@pytest.fixture
def sim(capfd, tmp_path):
    """Runs the command with a recording: (what it assumed, stderr)."""
    save_recording(tmp_path / "r.jsonl", ONE_ANSWER)

    def run(*words: str) -> tuple[dict[str, str], str]:
        code = cli.execute(["sim", "--json", "--calls", "20", "--recording", str(tmp_path / "r.jsonl"), *words])
        out, err = capfd.readouterr()
        assert code == 0, err
        return json.loads(out)["assumed"], err

    return run


def test_where_bodies_run_is_told_for_each_type_of_the_pool(sim):
    told, err = sim("--pool", "T4:4,H100:4", "--round-trip-us", "10")
    assert "attach fabric on T4: over the fabric it takes 1.05 x native" in err
    assert "attach near on H100: over the fabric it would take 1.40 x native" in err
    assert (told["attach"], told["slowdown"]) == ("fabric on T4, near on H100", "1.05 on T4, 1 on H100")


def test_of_one_type_the_name_is_left_out(sim):
    told, err = sim("--pool", "H100:4", "--round-trip-us", "10")
    assert "attach near: over the fabric" in err and told["attach"] == "near"
