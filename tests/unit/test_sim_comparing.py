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


@pytest.mark.parametrize("other", ["--exclusive", "--against-exclusive", "--duty 0.5", "--interference 0.1"])
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
