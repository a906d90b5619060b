"""`dgsf sim`: tables, JSON, pictures, the ready comparison with exclusive devices, and clear errors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from dgsf import cli
from dgsf.cli.simshow import progress_bar, reading
from dgsf.core.perfmodel import Command, Link, Recording, slowdowns
from dgsf.sim.experiment import Experiment, run_experiment
from dgsf.sim.pools import parse_pool
from dgsf.sim.recordings import save_recording
from dgsf.sim.rules import Rules
from dgsf.sim.synthetic import Synthetic, draw
from dgsf.sim.traces import COLUMNS, PUBLISHED, READERS


@pytest.fixture
def sim(capfd):
    """Runs the command on a small case: (exit code, stdout, stderr)."""

    def run(*words: str) -> tuple[int, str, str]:
        small = () if "--calls" in words else ("--calls", "200")
        code = cli.execute(
            ["sim", *small, "--pool", "T4:8", *words] if "--pool" not in words else ["sim", *small, *words]
        )
        out, err = capfd.readouterr()
        return code, out, err

    return run


def results(run: tuple[int, str, str]) -> list[dict[str, object]]:
    """Of a run with --json."""
    return json.loads(run[1])["results"]


def test_policies_are_compared_in_one_table(sim):
    code, out, _ = sim("--policy", "best_fit,random", "--policy", "fgd", "--seeds", "2")
    assert code == 0
    assert "200 calls, 8 devices" in out
    assert re.search("\nfigure +best_fit +random +fgd\n", out), "names that can be given to --policy"
    assert "queueing delay, p99" in out


def test_json_is_exact_and_repeats(sim):
    words = ("--json", "--mtbf-h", "0.5", "--share", "100,500", "--arrivals", "poisson")
    code, out, _ = sim(*words)
    assert code == 0
    (found,) = json.loads(out)["results"]
    assert found["calls"] == 200 and len(found["wait_curve_s"]) == 101
    assert sim(*words)[1] == out


def test_what_stays_warm_is_learned_as_in_production_or_fixed(sim):
    words = ("--json", "--rate", "0.2", "--functions", "5", "--keep-warm")
    found = {rule: results(sim(*words, rule)) for rule in ("learned", "fixed", "fixed:60", "fixed:600")}
    assert found["fixed"] == found["fixed:60"] == results(sim(*words[:-1], "--idle-s", "60"))
    assert found["learned"] != found["fixed"] != found["fixed:600"] != found["learned"]
    assert results(sim(*words, "learned")) == found["learned"]


def test_whoever_simulates_types_of_a_file_reads_what_they_count_as(sim, tmp_path):
    file = tmp_path / "nodes.csv"
    file.write_text("sn,cpu_milli,memory_mib,gpu,model\na,64000,100000,2,G3\nb,64000,100000,2,G2\n")
    code, _, err = sim("--pool", str(file))
    assert code == 0
    assert "G2, G3: no figures are known of these types, each counts as a T4 (16 GiB, speed 1, 0.35 per hour)" in err
    assert sim("--pool", "G3:4")[0] == 2 and sim("--pool", "G3=24/2/1:4")[2] == ""


def test_sharing_is_compared_with_exclusive_devices(sim):
    code, out, _ = sim("--against-exclusive", "--rate", "10")
    assert code == 0
    assert "queueing delay with sharing ÷ exclusive devices: 0." in out
    assert "each needs it for itself for 0.5 of its run (--duty), and is slowed by 0.05 by each call beside it" in out
    assert "nothing to gain" in sim("--against-exclusive", "--rate", "0.1", "--arrivals", "poisson")[1]
    assert sim("--against-exclusive", "--exclusive")[0] == 2
    told = json.loads(sim("--against-exclusive", "--rate", "10", "--json")[1])["assumed"]
    assert (told["duty"], told["interference"], told["against_exclusive"]) == ("0.5", "0.05", "yes")


NODES = "sn,cpu_milli,memory_mib,gpu,model\na,64000,100000,2,T4\n"
TYPED = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time
a,1000,1,1,500,T4,x,0,10
b,1000,1,1,500,H100,x,0,10
c,1000,1,1,500,H100,x,1,10
d,1000,1,4,1000,T4,x,2,10
"""


def test_why_calls_found_no_place_stands_below_the_table_and_in_the_json_and_on_the_page(sim, tmp_path):
    (tmp_path / "t.csv").write_text(TYPED)
    (tmp_path / "n.csv").write_text(NODES)
    words = ("--trace-file", str(tmp_path / "t.csv"), "--pool", str(tmp_path / "n.csv"), "--policy", "dgsf,fgd")
    code, out, _ = sim(*words)
    below = out.split("calls that found no place")[1].splitlines()[1:]
    assert code == 0
    assert below == [
        "2 found no place: no device of type H100; the pool has: T4",
        "1 found no place: asks for 4 devices of one node; the largest matching node has 2",
    ]
    assert [list(found["why_refused"].values()) for found in results(sim(*words, "--json"))] == [[2, 1]] * 2
    pytest.importorskip("matplotlib")
    sim(*words, "--html", str(tmp_path / "a.html"))
    assert "2 found no place: no device of type H100" in (tmp_path / "a.html").read_text()


def test_the_pools_memory_counts_and_so_do_the_options_that_take_it(sim):
    refused = {}
    for words in ((), ("--memory-mib", "600"), ("--weights-mib", "600"), ("--memory-mib", "0", "--weights-mib", "0")):
        (found,) = results(sim("--pool", "B200=1/10/6.50:8", "--json", *words))
        refused[words] = found["refused"]
    assert list(refused.values()) == [0, 200, 200, 0]  # 500 + 500 MiB are less than a GiB
    found, less = (results(sim("--pool", f"B200={gib}/1/1:2", "--json"))[0] for gib in (40, 2))
    assert less["wait_mean_s"] > found["wait_mean_s"] and less["refused"] == 0
    (tiny,) = results(sim("--pool", "B200=0.001/10/6.50:8", "--json"))
    assert tiny["refused"] == 200


def test_a_trace_is_replayed_faster(sim, tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-01-01 00:00:00,100,10\n2024-01-01 00:01:00,100,10\n")
    ends = []
    for speedup in ("1", "10"):
        code, out, _ = sim("--arrivals", "azure", "--trace-file", str(file), "--speedup", speedup, "--json")
        assert code == 0
        ends.append(json.loads(out)["results"][0]["at_s"][-1])
    assert ends[0] > 60 > ends[1] > 6


def test_image_models_are_eight_on_a_device_of_80_gb_unless_it_is_said_otherwise(sim, tmp_path):
    """Eight shares of 125 and eight times 10,000 MiB: neither leaves room for a ninth, both for eight."""
    rows = [f"2024-01-01 00:00:00,100,g,m{number}\n" for number in range(9)]
    file = tmp_path / "genai.csv"
    file.write_text("gmt_create,exec_time_seconds,groupId,checkpoint_model_version_id\n" + "".join(rows))
    words = ("--trace-file", str(file), "--pool", "A100:1", "--duty", "0", "--json")
    waits = []
    for more in ((), ("--share", "100"), ("--share", "100", "--memory-mib", "0"), ("--share", "250,500")):
        code, out, err = sim(*words, *more)
        assert code == 0, err
        waits.append(sum(wait > 0 for wait in json.loads(out)["results"][0]["wait_curve_s"]) > 0)
        assert json.loads(out)["assumed"]["share"] == ("250, 500" if "250,500" in more else "100" if more else "125")
    assert waits == [True, True, False, True]


def test_a_table_of_speeds_is_true_of_the_runs_and_known_to_placement(sim, tmp_path):
    file = tmp_path / "speeds.json"
    words = ("--pool", "T4:16,A100:16", "--functions", "2", "--policy", "gavel,best_fit", "--json")
    file.write_text(json.dumps({f"fn-{number}": {"t4": 1, "A100": 9} for number in range(2)}))
    _, out, _ = sim(*words, "--speeds", str(file))
    known, blind = (result["done_mean_s"] for result in json.loads(out)["results"])
    _, out, _ = sim(*words)
    assert known <= blind < json.loads(out)["results"][1]["done_mean_s"], "A100 runs at 9 instead of 4"
    file.write_text('{"fn-0": {"T4": "x"}}')
    code, _, err = sim(*words, "--speeds", str(file))
    assert code == 2 and "speeds.json: function 'fn-0', device type 'T4': 'x' is no speed" in err


def test_a_recording_slows_the_calls_down(sim, tmp_path):
    file = tmp_path / "r.jsonl"
    file.write_text('{"kernel_us": 50, "down_bytes": 4, "sync": true}\n' * 10)
    words = ("--arrivals", "poisson", "--rate", "0.1", "--calls", "20", "--json")
    near = json.loads(sim(*words)[1])["results"][0]
    remoted = (*words, "--recording", str(file), "--round-trip-us", "50")
    far = json.loads(sim(*remoted, "--attach", "fabric")[1])["results"][0]
    assert far["busy_gpu_hours"] > 1.5 * near["busy_gpu_hours"]
    _, out, err = sim(*remoted)
    assert json.loads(out)["results"][0] == near
    assert "attach near: over the fabric it would take 2.00 x native: 10 sync points" in err


def test_few_outstanding_reads_slow_down_what_brings_much_back(sim, tmp_path):
    file = tmp_path / "run.jsonl"
    save_recording(file, Recording((Command(1000.0, down_bytes=2**20, sync=True),)))
    words = ("--recording", str(file), "--attach", "fabric", "--round-trip-us", "50", "--json")

    def done_s(*more):
        return json.loads(sim(*words, *more)[1])["results"][0]["done_mean_s"]

    free, few = done_s(), done_s("--outstanding-reads", "4")
    assert done_s("--outstanding-reads", "0") == done_s("--outstanding-reads", "100000") == free
    assert few > 1.5 * free, "4 x 4 KiB per 50 µs instead of 1200 MiB/s"


def test_a_recording_with_its_link_says_what_its_profile_said(sim, tmp_path):
    link = Link(bytes_per_us=900.0, command_us=1.0, sync_us=400.0)
    recording = Recording((Command(500.0), Command(100.0, down_bytes=4, sync=True)), link)
    save_recording(tmp_path / "r.jsonl", recording)
    _, _, err = sim("--recording", str(tmp_path / "r.jsonl"), "--round-trip-us", "50")
    (ratio,) = slowdowns(recording, link, [50.0])
    assert f"attach near: over the fabric it would take {ratio:.2f} x native" in err
    assert "as measured with the recording, 400 µs per answer" in err
    save_recording(tmp_path / "r.jsonl", Recording(recording.commands))
    assert "not counted, the recording does not say" in sim("--recording", str(tmp_path / "r.jsonl"))[2]


def test_files_are_written_also_if_nobody_reads_the_table(tmp_path):
    pytest.importorskip("matplotlib")
    page = tmp_path / "a.html"
    words = [sys.executable, "-m", "dgsf.cli", "sim", "--calls", "50", "--html", str(page)]
    ours, theirs = os.pipe()
    os.close(ours)  # nobody reads
    done = subprocess.run(words, stdout=theirs, stderr=subprocess.PIPE, timeout=100, check=False)
    os.close(theirs)
    assert "</html>" in page.read_text() and b"Traceback" not in done.stderr


def test_what_does_not_fit_in_memory_is_one_clear_line(sim, monkeypatch):
    def full(*_):
        raise MemoryError

    monkeypatch.setattr("dgsf.sim.experiment.Simulator", full)
    code, _, err = sim()
    assert code == 2 and "does not fit in this machine's memory; take fewer --calls or a smaller --pool" in err


def test_the_bar_shows_how_far_it_is_also_on_short_runs(monkeypatch):
    shown = []
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr("rich.progress.Progress.update", lambda self, task, **news: shown.append(news))
    with progress_bar(runs=2) as tell:
        run_experiment(Experiment(lambda _: draw(Synthetic(calls=40)), parse_pool("T4:4"), ["random"], Rules()), tell)
    assert [news["completed"] for news in shown] == list(range(41))
    assert shown[0] == {"description": "random, seed 0 (1/2)", "completed": 0, "total": 40}


def test_a_terminal_shows_how_much_of_a_trace_is_read(tmp_path, monkeypatch):
    shown: list[str] = []
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr("rich.status.Status.update", lambda self, text: shown.append(text))
    with reading(tmp_path / "mine.csv") as tell:
        tell(20_000)
    assert shown == ["reading mine.csv, 20,000 rows"]


def test_pictures_and_a_page_are_written(sim, tmp_path):
    pytest.importorskip("matplotlib")
    code, _, _ = sim("--plot", str(tmp_path / "a.png"), "--html", str(tmp_path / "a.html"), "--policy", "fgd")
    assert code == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "a.html").read_text()
    assert "<table>" in page and "data:image/png;base64," in page and 'src="http' not in page


def assumed(page: str) -> dict[str, str]:
    return dict(re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", page))


def test_the_page_says_what_was_really_used(sim, tmp_path):
    pytest.importorskip("matplotlib")
    page = tmp_path / "a.html"
    sim("--html", str(page), "--policy", "dgsf,fgd", "--arrivals", "poisson")
    told = assumed(page.read_text())
    assert (told["policies"], told["calls"], told["duty"], told["moves"]) == ("dgsf, fgd", "200", "0", "no")
    assert told["mtbf_h"] == "no device fails"
    assert told["idle_s"] == "60" and told["fair"] == "yes" and told["rate"] == "20"
    assert not {"trace_file", "speedup", "burst", "attach", "move_copy_s", "mttr_s"} & set(told)
    assert "None" not in told.values()


def test_the_page_of_a_trace_names_its_file_and_what_moves(sim, tmp_path):
    pytest.importorskip("matplotlib")
    file, page = tmp_path / "fractional_tenants.csv", tmp_path / "a.html"
    file.write_text("name,tenant,arrival_s,duration_s,gpu_percent\na,t0,0,10,50\nb,t1,1,10,50\n")
    sim("--html", str(page), "--arrivals", "tenants", "--traces", str(tmp_path), "--moves", "30")
    told = assumed(page.read_text())
    assert (told["trace_file"], told["calls"], told["idle_s"]) == (str(file), "2", "0")
    assert (told["moves"], told["moves: per_hour"]) == ("yes", "30")
    assert "rate" not in told and "share" not in told


def test_pictures_have_the_format_of_their_name(sim, tmp_path):
    pytest.importorskip("matplotlib")
    for name, start in (("a.svg", b"<?xml"), ("a.PDF", b"%PDF")):
        assert sim("--plot", str(tmp_path / name))[0] == 0
        assert (tmp_path / name).read_bytes().startswith(start)
    code, _, err = sim("--plot", str(tmp_path / "x.txt"))
    assert code == 2 and "x.txt: a picture's name ends with .png, .svg, .pdf" in err


def test_a_picture_that_cannot_be_written_is_told(sim):
    pytest.importorskip("matplotlib")
    code, _, err = sim("--plot", "/nowhere/a.png")
    assert code == 2 and "cannot be written" in err


def test_without_matplotlib_the_way_out_is_told(sim, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, _, err = sim("--html", str(tmp_path / "a.html"))
    assert code == 2 and "needs matplotlib, which is in the extra 'sim'; in a clone: .venv/bin/pip install -e" in err


@pytest.mark.parametrize("option", ["--plot", "--html"])
def test_a_folder_that_does_not_exist_is_told_before_matplotlib_is_asked_for(sim, monkeypatch, option):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, _, err = sim(option, "/nowhere/a.png")
    assert code == 2 and "/nowhere/a.png: cannot be written" in err and "matplotlib" not in err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--pool", "many"], "--pool"),
        (["--pool", "/nowhere/nodes.csv"], "cannot be read"),
        (["--pool", ",,"], "--pool ',,': '' is no group of devices"),
        (["--policy", "magic"], "no placement policy 'magic'"),
        (["--policy", "ALL"], "or 'all' alone"),
        (["--policy", "dgsf,fgd", "--policy", "dgsf"], "--policy: dgsf is named 2 times; name it once"),
        (["--duty", "nan"], "--duty nan: is not a number"),
        (["--arrivals", "azure", "--speedup", "nan"], "--speedup nan: is not a number"),
        (["--arrivals", "weekly"], "--arrivals"),
        (["--arrivals", "genai", "--traces", "/nowhere"], "the trace 'genai' does not come with DGSF"),
        (["--share", "half"], "--share"),
        (["--keep-warm", "never"], "--keep-warm 'never': expected 'learned', 'fixed' or e.g. 'fixed:60'"),
        (["--keep-warm", "fixed:0"], "a number of seconds from 0.05 to 86400"),
        (["--keep-warm", "learned", "--idle-s", "5"], "--idle-s would be ignored: --keep-warm"),
        (["--share", "2000"], "1 to 1000"),
        (["--share", "100,"], "1 to 1000"),
        (["--share", "٣"], "1 to 1000"),
        (["--arrivals", "tenants", "--share", "100"], "--share would be ignored: it belongs to functions"),
        (["--share", "1_0"], "1 to 1000"),
        (["--rate", "-1"], "'--rate': -1.0 is not in the range"),
        (["--rate", "1e-308"], "'--rate': 1e-308 is not in the range"),
        (["--run-s", "inf"], "'--run-s': inf is not in the range"),
        (["--run-s", "1e300"], "'--run-s': 1e+300 is not in the range"),
        (["--moves", "inf"], "'--moves': inf is not in the range"),
        (["--functions", "100000000"], "'--functions': 100000000 is not in the range"),
        (["--tenants", "100000000"], "'--tenants': 100000000 is not in the range"),
        (["--mtbf-h", "inf"], "'--mtbf-h': inf is not in the range"),
        (["--mtbf-h", "1e-9"], "must be at least 0.001, or 0: no device fails"),
        (["--mtbf-h", "1", "--mttr-s", "1e-300"], "'--mttr-s': 1e-300 is not in the range"),
        (["--idle-s", "inf"], "'--idle-s': inf is not in the range"),
        (["--recording", "k.jsonl", "--round-trip-us", "inf"], "'--round-trip-us': inf is not in the range"),
        (["--recording", "k.jsonl", "--link-mib-per-s", "1e-308"], "'--link-mib-per-s': 1e-308 is not in the range"),
        (["--rate", "1e-6", "--burst-s", "0.001"], "more than 10,000,000 bursts"),
        (["--seeds", "0"], "--seeds"),
        (["--recording", "/nowhere.jsonl"], "cannot be read"),
        (["--arrivals", "azure", "--speedup", "0"], "--speedup"),
        (["--arrivals", "azure", "--trace-file", __file__], "no column 'TIMESTAMP'"),
        (["--calls", "0"], "--calls"),
    ],
)
def test_bad_values_are_one_clear_line(sim, words, hint):
    code, _, err = sim(*words)
    assert code == 2
    assert hint in err
    assert "Traceback" not in err


def test_a_file_of_ones_own_is_used_and_its_kind_is_known_by_its_columns(sim, tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("name,tenant,arrival_s,duration_s,gpu_percent\na,t0,0,10,50\nb,t1,1,10,50\n")
    code, out, _ = sim("--trace-file", str(file))
    assert code == 0 and "tenants on T4:8: 2 calls" in out


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--trace-file", "/nowhere/mine.csv"], "--trace-file /nowhere/mine.csv: there is no such file"),
        (["--trace-file", "/nowhere/mine.csv", "--arrivals", "openb"], "/nowhere/mine.csv: there is no such file"),
        (["--trace-file", __file__], "gpu_percent"),
        (["--trace-file", __file__, "--arrivals", "poisson"], "--trace-file would be ignored"),
        (["--trace-file", __file__, "--arrivals", "openb", "--traces", "/nowhere"], "--traces would be ignored"),
        (["--speedup", "2"], "--speedup would be ignored"),
        (["--durations"], "--arrivals openb or tenants"),
        (["--arrivals", "azure", "--rate", "3"], "--rate would be ignored"),
        (["--arrivals", "poisson", "--burst", "3"], "--burst would be ignored"),
        (["--round-trip-us", "3"], "--recording FILE"),
        (["--outstanding-reads", "3"], "--recording FILE"),
        (["--move-pause-s", "3"], "--moves above 0"),
        (["--mttr-s", "3"], "--mtbf-h above 0"),
        (["--against-exclusive", "--policy", "fgd,best_fit"], "just one"),
        (["--exclusive", "--interference", "5"], "--interference would be ignored: it belongs to calls that share"),
        (["--exclusive", "--duty", "1"], "--duty would be ignored: it belongs to calls that share devices"),
        (["--exclusive", "--share", "100"], "--share would be ignored"),
        (["--exclusive", "--moves", "20"], "--moves would be ignored"),
        (["--arrivals", "openb", "--keep-warm", "learned"], "--keep-warm would be ignored: it belongs to functions"),
        (["--moves", "20", "--policy", "conspirator"], "--moves would be ignored: conspirator cuts slices"),
        (["--moves", "20", "--share", "1000"], "--moves would be ignored: only calls that take a part of a device"),
        (["--tenant-per-group"], "--tenant-per-group would be ignored: it belongs to --arrivals genai"),
        (["--arrivals", "tenants", "--weights-mib", "5"], "--weights-mib would be ignored"),
        (["--arrivals", "tenants", "--speeds", "x.json"], "--speeds would be ignored"),
    ],
)
def test_what_would_be_ignored_is_refused_by_name(sim, words, hint):
    code, _, err = sim(*words)
    assert code == 2
    assert hint in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("table", "hint"),
    [
        ({"fn_0": {"T4": 1, "A100": 9}}, "it has none of the functions of this run (fn-0, fn-1, fn-2, ...)"),
        ({"fn-0": {"V100": 1, "T4": 2}}, "it compares no type of this pool (a100, t4) with another"),
    ],
)
def test_speeds_of_nothing_that_runs_are_refused(sim, tmp_path, table, hint):
    (tmp_path / "s.json").write_text(json.dumps(table))
    code, _, err = sim("--pool", "T4:4,A100:4", "--speeds", str(tmp_path / "s.json"))
    assert code == 2 and "s.json would be ignored: " in err and hint in err


def test_moves_beside_a_policy_whose_slices_stay_are_told(sim):
    code, _, err = sim("--moves", "20", "--policy", "dgsf,conspirator")
    assert code == 0 and "--moves: nothing moves under conspirator" in err


def test_the_help_names_every_column_of_every_kind(sim):
    _, out, _ = sim("--help")
    for kind, columns in COLUMNS.items():
        assert all(word in out for word in (kind, *columns))


def test_an_empty_recording_is_refused(sim, tmp_path):
    file = tmp_path / "empty.jsonl"
    file.touch()
    code, _, err = sim("--recording", str(file))
    assert code == 2
    assert f"{file}: has no device commands" in err


def test_a_recording_of_endless_commands_names_the_line(sim, tmp_path):
    file = tmp_path / "k.jsonl"
    file.write_text('{"kernel_us":1.0}\n{"kernel_us":1e308}\n{"kernel_us":1e308}\n')
    code, _, err = sim("--recording", str(file))
    assert code == 2
    assert "k.jsonl: line 2: not a device command: kernel_us is 1e+308; it can be at most 1e+15" in err


def test_calls_that_do_not_disturb_each_other_can_be_compared_with_exclusive_devices(sim):
    words = ("--against-exclusive", "--rate", "10", "--json")
    free, stated, default = (
        sim(*words, *more)[1] for more in (("--interference", "0"), ("--interference", "0.05"), ())
    )
    assert stated == default != free


@pytest.mark.parametrize("name", list(READERS))
def test_whoever_lacks_a_trace_reads_what_it_is_its_columns_and_what_to_do(sim, tmp_path, name):
    code, _, err = sim("--arrivals", name, "--traces", str(tmp_path))
    assert code == 2
    assert PUBLISHED[name] in err and ", ".join(COLUMNS[name]) in err
    assert READERS[name][0] in err and "DGSF_TRACES" in err and "--trace-file" in err
    assert f"there is none in {tmp_path}" in err


TENANTS = """name,tenant,arrival_s,duration_s,gpu_percent
a,x,0,100,60
b,x,10,50,60
c,y,20,90,40
d,y,30,30,40
"""


def test_tasks_that_are_known_beforehand_are_planned(sim, tmp_path):
    (tmp_path / "mine.csv").write_text(TENANTS)
    words = ("--trace-file", str(tmp_path / "mine.csv"), "--planned")
    code, out, _ = sim(*words)
    assert code == 0
    assert re.search(r"planned beforehand, never moving: 0\.04444 GPU hours; dgsf used 1\.\d+ times that", out)
    found = json.loads(sim(*words, "--json")[1])
    assert found["planned_gpu_hours"] * 3600 == pytest.approx(110 + 50)
    pytest.importorskip("matplotlib")
    sim(*words, "--html", str(tmp_path / "a.html"))
    assert "planned beforehand, never moving: 0.04444 GPU hours" in (tmp_path / "a.html").read_text()
    code, _, err = sim("--planned")
    assert code == 2 and "--planned" in err and "tenants" in err


def test_what_cannot_be_planned_is_told_before_anything_runs(sim, tmp_path):
    (tmp_path / "mine.csv").write_text(TENANTS + "".join(f"t{n},z,40,10,60\n" for n in range(70)))
    code, out, err = sim("--trace-file", str(tmp_path / "mine.csv"), "--planned")
    assert code == 2 and not out and "--planned: more than 64 GPUs would be needed at once" in err


def test_without_numba_the_way_out_is_told_before_the_trace_is_read(sim, tmp_path, monkeypatch):
    (tmp_path / "mine.csv").write_text(TENANTS + "e,y,never,30,40\n")
    monkeypatch.setitem(sys.modules, "numba", None)
    code, _, err = sim("--trace-file", str(tmp_path / "mine.csv"), "--planned")
    assert code == 2 and "--planned needs numba, which is in the extra 'sim'; in a clone: .venv/bin/pip install" in err


@pytest.mark.parametrize("calls", ["1", "200"])
def test_learned_keep_warm_refuses_runs_that_it_would_look_at_for_years(sim, calls):
    """It is asked twice a simulated second, and would not have come to an end."""
    code, _, err = sim("--run-s", "1e9", "--keep-warm", "learned", "--calls", calls)
    assert code != 0 and "2,000,000 s is the most" in err and "--run-s" in err
    assert sim("--run-s", "1e9", "--keep-warm", "fixed:60", "--calls", calls)[0] == 0
