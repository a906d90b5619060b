"""Any options of `dgsf sim`, alone and together: it runs to the end, or refuses in words."""

from __future__ import annotations

import json
from itertools import combinations

import pytest

from dgsf import cli
from dgsf.core.perfmodel import Command, Recording
from dgsf.sim.recordings import save_recording

TASKS = "name,tenant,arrival_s,duration_s,gpu_percent\na,x,0,100,50\nb,y,10,20,60\nc,x,20,100,40\n"
SPEEDS = {"function-0": {"T4": 1, "A100": 3}}
ENDLESS = "1" + 400 * "0"

ALONE = [
    "--calls 1", "--calls 0", "--speedup 2", "--rate 1e9", "--rate nan", "--functions 1", "--tenants 30",
    "--run-s 1e-6", "--share 1000", "--share 0", f"--share {ENDLESS}", "--weights-mib 1e9", "--memory-mib 1e9",
    "--duty 1", "--burst 1", "--burst-s 0.001", "--recording {recording}",
    "--recording {recording} --attach near", "--recording {recording} --round-trip-us 0",
    "--recording {recording} --link-mib-per-s 0.001", "--recording {recording} --outstanding-reads 1",
    f"--recording {{recording}} --outstanding-reads {ENDLESS}", "--outstanding-reads 1", "--speeds {speeds}",
    "--speeds {speeds} --pool T4:1,A100:1", "--policy all", "--policy fgd,fgd", "--policy none", f"--seed {ENDLESS}",
    f"--seed {2**63 - 1}", "--seeds 2", "--keep-warm fixed:5", "--idle-s 0", "--interference 10", "--slo-s 1e-3",
    "--move-copy-s 1", "--mttr-s 1",
    "--tenant-per-group", "--traces {folder}", "--arrivals poisson", "--arrivals azure",
]  # fmt: skip
TOGETHER = [
    "--exclusive", "--against-exclusive", "--fifo", "--durations", "--moves 60", "--mtbf-h 0.001", "--json",
    "--keep-warm learned", "--policy conspirator", "--trace-file {tasks}",
]  # fmt: skip


@pytest.fixture
def files(tmp_path):
    """Files that options name."""
    made = {name: tmp_path / name for name in ("tasks", "recording", "speeds")}
    made["tasks"].write_text(TASKS)
    made["speeds"].write_text(json.dumps(SPEEDS))
    save_recording(made["recording"], Recording((Command(kernel_us=50.0, sync=True, down_bytes=4096),)))
    return {"folder": tmp_path, **made}


@pytest.fixture
def sim(capfd, files):
    """Runs the command on a tiny case: (exit code, stdout, stderr)."""

    def run(*options: str) -> tuple[int, str, str]:
        words = [word.format(**files) for option in options for word in option.split()]
        pool = [] if "--pool" in words else ["--pool", "T4:4"]
        calls = [] if "--calls" in words else ["--calls", "12"]
        code = cli.execute(["sim", *pool, *calls, *words])
        return code, *capfd.readouterr()

    return run


def test_every_option_alone_runs_to_the_end_or_is_refused_in_words(sim):
    for option in ALONE:
        _runs_or_refuses(option, *sim(option))


def test_options_together_run_to_the_end_or_are_refused_in_words(sim):
    for pair in combinations(TOGETHER, 2):
        _runs_or_refuses(" ".join(pair), *sim(*pair))


def _runs_or_refuses(said, code, out, err):
    assert (code, bool(out)) == (0, True) or (code in (1, 2) and "rror: " in err), f"{said}: {code}, {out}, {err}"


def test_exclusive_devices_run_to_the_end_and_nothing_is_told_of_sharing(sim, files):
    pytest.importorskip("matplotlib")
    assert sim("--exclusive")[0] == 0
    code, out, _ = sim("--exclusive --json --plot {folder}/a.png")
    told = json.loads(out)["assumed"]
    assert code == 0 and (told["exclusive"], told["moves"]) == ("yes", "no")
    assert not {"share", "duty", "interference"} & set(told)
    assert (files["folder"] / "a.png").read_bytes().startswith(b"\x89PNG")
    code, _, err = sim("--exclusive --moves 5")
    assert code == 2 and "--moves would be ignored" in err


def test_more_reads_than_any_link_has_under_way_are_refused(sim):
    code, _, err = sim(f"--recording {{recording}} --outstanding-reads {ENDLESS}")
    assert code == 2 and "is not in the range 0<=x<=1000000" in err


def test_a_page_never_overwrites_the_picture(sim, files):
    code, out, err = sim("--plot {folder}/a.png --html {folder}/./a.png")
    assert (code, out) == (2, "") and "--plot and --html both name" in err
    assert not (files["folder"] / "a.png").exists()
