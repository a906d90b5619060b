"""What `dgsf sim` compares: sharing with exclusive devices, and runs with plans; like with like, and in words."""

from __future__ import annotations

import json

import pytest

from dgsf import cli

TENANTS = "name,tenant,arrival_s,duration_s,gpu_percent\n"


@pytest.fixture
def sim(capfd, tmp_path):
    """Runs the command on tasks, or without: (exit code, stdout, stderr)."""

    def run(*words: str, tasks: str = "") -> tuple[int, str, str]:
        file = tmp_path / "mine.csv"
        file.write_text(TENANTS + tasks)
        given = ["--trace-file", str(file)] if tasks else ["--calls", "60"]
        return cli.execute(["sim", *given, *words]), *capfd.readouterr()

    return run


def test_one_call_on_one_device_is_no_plural(sim):
    assert sim("--pool", "T4:1", tasks="a,x,0,10,50\n")[1].startswith("tenants on T4:1: 1 call, 1 device\n")


def test_a_trace_on_which_nobody_waits_is_told_what_it_can_do(sim):
    _, out, _ = sim("--against-exclusive", tasks="a,x,0,10,50\n")
    assert "nothing to gain; raise --speedup, or take a smaller --pool" in out
    _, out, _ = sim("--against-exclusive", "--rate", "0.001")
    assert "nothing to gain; raise --rate, or take a smaller --pool" in out


def test_the_comparison_with_exclusive_devices_has_a_title_of_its_own_and_names_the_paper(sim):
    _, out, _ = sim("--against-exclusive", "--pool", "T4:4")
    assert out.startswith("sharing against exclusive devices, bursts on T4:4: 60 calls")
    assert "(the DGSF paper, on other calls: 0.47)" in out
    assert sim("--pool", "T4:4")[1].startswith("bursts on T4:4: 60 calls")


@pytest.mark.parametrize(
    "other", ["--exclusive", "--against-exclusive", "--duty 0.5", "--interference 0.1", "--mtbf-h 1"]
)
def test_a_plan_is_not_compared_with_what_it_does_not_know(sim, other):
    code, out, err = sim("--planned", *other.split(), tasks="a,x,0,10,50\n")
    assert (code, out) == (2, "")
    assert f"--planned cannot be compared with {other.split()[0]}: a plan knows only tasks that share devices" in err


def test_tasks_that_take_no_time_cost_a_plan_nothing(sim):
    pytest.importorskip("numba")
    code, out, _ = sim("--planned", "--json", tasks="a,x,0,36,50\nb,x,1,0,50\n")
    assert code == 0 and json.loads(out)["planned_gpu_hours"] == pytest.approx(0.01)
    code, out, _ = sim("--planned", tasks="b,x,1,0,50\n")
    assert code == 0 and "planned beforehand, never moving: 0 GPU hours; dgsf used " in out


BUSY = "a,x,0,100,60\nb,x,10,50,60\nc,y,20,90,60\n"


def test_a_plan_is_compared_with_every_policy(sim):
    pytest.importorskip("numba")
    words = ("--planned", "--pool", "T4:8", "--policy", "dgsf,best_fit")
    _, out, _ = sim(*words, tasks=BUSY)
    assert out.splitlines()[-2:] == [
        "planned beforehand, never moving: 0.06667 GPU hours; dgsf used 1.000 times that",
        "best_fit used 1.000 times that",
    ]
    found = json.loads(sim(*words, "--json", tasks=BUSY)[1])
    assert found["planned_gpu_hours"] * 3600 == pytest.approx(240) and found["planned_gpus_at_once"] == 3
    assert found["over_planned"] == pytest.approx({"dgsf": 1.0, "best_fit": 1.0}, abs=1e-3)  # a start takes 10 ms


@pytest.mark.parametrize("more", [(), ("--memory-mib", "20000")], ids=["waited", "refused"])
def test_where_calls_waited_or_found_no_place_a_plan_gives_no_ratio_but_says_why(sim, more):
    pytest.importorskip("numba")
    words = ("--planned", "--pool", "T4:2", "--policy", "dgsf,fgd", *more)
    code, out, _ = sim(*words, tasks=BUSY)
    assert code == 0 and "times that" not in out
    assert "planned beforehand, never moving: 0.06667 GPU hours\ndgsf, fgd: calls waited or found no place" in out
    assert (
        "lets nobody wait and takes no account of the pool's size; it needs up to 3 GPUs at once, the pool has 2" in out
    )
    assert json.loads(sim(*words, "--json", tasks=BUSY)[1])["over_planned"] == {"dgsf": None, "fgd": None}


@pytest.mark.parametrize(
    ("row", "hint"),
    [
        ("a,x,1e12,10,50", "line 2, column 3 'arrival_s': '1e12' is not a number from 0 to 1e+11"),
        ("a,x,0,1e18,50", "line 2, column 4 'duration_s': '1e18' is not a number from 0 to 1e+11"),
    ],
)
def test_times_at_which_seconds_no_longer_count_are_refused(sim, row, hint):
    code, _, err = sim(tasks=row + "\n")
    assert code == 2 and "mine.csv" in err and hint in err


def test_calls_are_not_slowed_down_beyond_what_times_can_tell(sim):
    code, _, err = sim("--speedup", "1e-6", tasks="a,x,0,10,50\nb,x,1e8,10,50\n")
    assert code == 2 and "--speedup 1e-06: the last call would come after more than 1e+11 s; raise it" in err
