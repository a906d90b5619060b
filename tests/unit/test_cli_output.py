"""What commands print: human units, tables, one line for an error."""

from __future__ import annotations

import inspect
import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sdk_platform import FakePlatform

from dgsf import cli
from dgsf.cli.devices import drain_words
from dgsf.cli.output import ATTACHED, human, human_bytes, human_nano, human_us, show_listing, show_rows
from dgsf.cli.run import bound_arguments, parse_arguments
from dgsf.cli.usage import parse_since
from dgsf.errors import DgsfError, DoesNotFit, OutOfMemory, UsageError
from dgsf.sdk.client import Client
from gateway.pool import why_unchanged


@pytest.fixture(scope="module")
def platform():
    fake = FakePlatform().start()
    yield fake
    fake.stop()


@pytest.fixture
def dgsf(platform, capfd):
    """Runs a command against the stand-in platform: (exit code, stdout, stderr)."""

    def run(*words: str) -> tuple[int, str, str]:
        code = cli.execute([*words, "--url", platform.url, "--api-key", platform.api_key])
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.fixture
def sample(tmp_path, monkeypatch):
    import sys

    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "cli_sample.py"
    file.write_text(
        "import dgsf\napp = dgsf.App('s')\n"
        "@app.function\ndef add(a: int, b: int = 1) -> int:\n    '''Adds.'''\n    return a + b\n"
        "@app.function\ndef fail():\n    raise ValueError('on purpose')\n"
        "@app.function\ndef same(data: bytes) -> bytes:\n    return data\n"
    )
    yield str(file)
    sys.modules.pop("cli_sample", None)


# --- units ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 µs"), (999, "999 µs"), (1500, "1.5 ms"), (999_999, "1000 ms"), (2_000_000, "2 s"), (90_000_000, "1.5 min"),
     (106_020_000, "1.8 min"), (7_300_000_000, "2 h"),
     (3_600_000_000 * 5000, "5,000 h")],
)  # fmt: skip
def test_times_are_written_for_people(value, text):
    assert human_us(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (12, "12 nano"), (1500, "1.5 micro"), (2_500_000, "2.5 milli"), (-3_000_000_000, "-3"),
     (10**13, "10,000")],
)  # fmt: skip
def test_costs_are_written_for_people(value, text):
    assert human_nano(value) == text


def test_other_fields_are_written_by_their_names():
    assert human_bytes(1536 * 1024) == "1.5 MiB"
    assert human("round_trip_us", 213.5) == "214 µs"
    assert human("memory_bytes", 512 * 1024**2) == "512 MiB"
    assert human("cpu_milli", 1500) == "1.5"
    assert human("price_nano_per_us", 1) == "1"
    assert human("expired", False) == "no"
    assert human("options", {"a": 1}) == '{"a": 1}'
    assert human("created_at", "not a date") == "not a date"
    assert human("created_at", datetime(2030, 1, 2, 3, 4, 5).astimezone().isoformat()) == "2030-01-02 03:04:05"
    assert human("holder", None) == "-"


def test_piped_tables_are_aligned_text(capsys):
    rows = [{"name": "a", "device_us": 5}, {"name": "longer", "device_us": 12_000}]
    show_rows(rows, ("name", "gone", "device_us"), empty="")
    assert capsys.readouterr().out == "NAME    DEVICE TIME\na              5 µs\nlonger        12 ms\n"
    show_rows([], ("name",), empty="nothing here")
    assert capsys.readouterr().out == "nothing here\n"


# --- arguments --------------------------------------------------------------------------------
def test_arguments_are_json_or_text():
    words = ["5", "--x", "3", "--name=bob", "--list", "[1, 2]", "--flag", "--under-score", "-4"]
    assert parse_arguments(words) == ([5], {"x": 3, "name": "bob", "list": [1, 2], "flag": True, "under_score": -4})
    for wrong in (["--x", "1", "--x", "2"], ["--not an identifier", "1"]):
        with pytest.raises(UsageError):
            parse_arguments(wrong)


def test_a_forgotten_value_is_not_taken_for_true():
    def function(n: int = 1, verbose: bool = False, maybe: bool | None = None, loud=True, anything=None): ...

    signature = inspect.signature(function)
    for name in ("verbose", "maybe", "loud"):
        assert parse_arguments([f"--{name}"], signature) == ([], {name: True})
    for name in ("n", "anything"):
        with pytest.raises(UsageError, match=f"--{name} has no value and is not a bool"):
            parse_arguments([f"--{name}", "--verbose"], signature)
    assert parse_arguments(["--anything", "true"], signature) == ([], {"anything": True})


def _typed(
    steps: int, rate: float = 1.0, *, name: str = "", often: int | None = None, fast: bool = True, **more: float
): ...


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--steps", "abc"], "--steps takes an int, not 'abc'"),
        (["--steps=1.5"], "--steps takes an int, not '1.5'"),
        (["--steps", "true"], "--steps takes an int, not 'true'"),
        (["seven"], "steps takes an int, not 'seven'"),
        (["1", "fast"], "rate takes a float, not 'fast'"),
        (["1", "--fast", "1"], "--fast takes a bool (true or false), not '1'"),
        (["1", "--often", "x"], "--often takes an int or null, not 'x'"),
        (["1", "--other", "x"], "--other takes a float, not 'x'"),
    ],
)
def test_a_value_of_another_type_than_the_annotation_is_refused_here(words, told):
    with pytest.raises(UsageError) as refused:
        parse_arguments(words, inspect.signature(_typed))
    assert str(refused.value) == told


def test_values_become_what_the_annotation_says():
    words = ["7", ".5", "--name", "12", "--often", "null", "--fast", "False", "--other", "3"]
    wanted = {"name": "12", "often": None, "fast": False, "other": 3}
    assert parse_arguments(words, inspect.signature(_typed)) == ([7, 0.5], wanted)
    assert parse_arguments(["--rate", "7", "--name", '"a b"'], inspect.signature(_typed))[1] == {
        "rate": 7,
        "name": "a b",
    }


@pytest.mark.parametrize("note", ["Optional[int]", "typing.Union[int, None]", "None | int", int | None])
def test_an_annotation_may_be_text_or_a_type(note):
    parameter = inspect.Parameter("often", inspect.Parameter.KEYWORD_ONLY, annotation=note)
    signature = inspect.Signature([parameter])
    assert parse_arguments(["--often", "null"], signature) == ([], {"often": None})
    with pytest.raises(UsageError, match=r"--often takes .*an int"):
        parse_arguments(["--often", "x"], signature)


def test_annotations_that_are_no_plain_types_are_the_functions_own_business():
    def function(a: list[int], b: int | Path, c: Any, d): ...

    words = ["--a", "x", "--b", "x", "--c", "x", "--d", "7"]
    assert parse_arguments(words, inspect.signature(function))[1] == {"a": "x", "b": "x", "c": "x", "d": 7}


def test_run_tells_a_wrong_type_before_anything_is_deployed(dgsf, platform, sample):
    code, _, err = dgsf("run", f"{sample}::add", "--a", "abc")
    assert (code, err) == (2, "error: --a takes an int, not 'abc'\n")


def test_run_tells_arguments_that_do_not_fit_before_anything_is_deployed(dgsf, platform, sample):
    platform.functions.clear()
    code, _, err = dgsf("run", f"{sample}::add", "--b", "7")
    assert code == 2 and "add(a: int, b: int = 1) -> int cannot be called like this: missing a required" in err
    assert not platform.functions


@pytest.mark.parametrize(
    ("word", "hint"),
    [("--hlep", "; did you mean --help?"), ("--dta-dir=x", "; did you mean --data-dir?"), ("--yes", "")],
)
def test_run_names_an_unknown_argument_before_a_missing_one(dgsf, sample, word, hint):
    name = word[2:].partition("=")[0].replace("-", "_")
    code, _, err = dgsf("run", f"{sample}::add", word)
    assert (code, err) == (2, f"error: add(a: int, b: int = 1) -> int has no argument {name!r}{hint}\n")


def test_a_misspelt_parameter_is_told_and_what_takes_any_name_takes_it():
    def plain(number: int, /, size: int, **_more: int) -> None: ...

    def strict(size: int) -> None: ...

    assert bound_arguments("plain", plain, ["3", "--size", "1", "--sise", "2"])[1] == {"size": 1, "sise": 2}
    with pytest.raises(UsageError, match="did you mean --size"):
        bound_arguments("strict", strict, ["--sise", "2"])


def test_since_is_a_span_or_a_date():
    now = datetime(2030, 1, 31, tzinfo=UTC)
    assert parse_since("1h", now) == now - timedelta(hours=1)
    assert parse_since("1.5d", now) == now - timedelta(days=1.5)
    assert parse_since("2030-01-01T00:00:00+00:00", now) == datetime(2030, 1, 1, tzinfo=UTC)
    for wrong in ("soon", "1 fortnight", "99999999999999d"):
        with pytest.raises(UsageError, match=r"write e\.g"):
            parse_since(wrong, now)


# --- commands ---------------------------------------------------------------------------------
def test_deploy_then_invoke_show_and_delete(dgsf, sample):
    code, _, err = dgsf("deploy", sample)
    assert code == 0
    assert "deployed s.add version 1" in err
    assert dgsf("invoke", "s.add", '{"a": 2}')[:2] == (0, "3\n")
    code, out, err = dgsf("invoke", "s.add", "[2, 5]", "--json")
    assert json.loads(out)["result"] == 7
    code, out, _ = dgsf("functions", "show", "s.add")
    assert "signature" in out and "(a: int, b: int = ...)" in out
    code, out, _ = dgsf("functions", "--json")
    assert [item["name"] for item in json.loads(out)["functions"]] == ["s.add", "s.fail", "s.same"]
    assert dgsf("functions", "delete", "s.same")[0] == 0
    assert "s.same" not in dgsf("functions")[1]


def test_run_deploys_calls_and_tells_time_and_cost(dgsf, sample):
    code, out, err = dgsf("run", f"{sample}::add", "--a", "40", "--b", "2")
    assert (code, out) == (0, "42\n")
    assert "device time 345 µs" in err
    assert "cost 345 nano" in err


def test_raw_bytes_go_in_and_out_by_file(dgsf, sample, tmp_path):
    (tmp_path / "body").write_bytes(b"\x00raw")
    dgsf("deploy", sample, "--only", "same")
    assert dgsf("invoke", "s.same", "--raw", "--file", str(tmp_path / "body"))[:2] == (0, "\x00raw")


def test_a_failing_function_shows_its_traceback_and_one_line(dgsf, sample):
    code, out, err = dgsf("run", f"{sample}::fail")
    assert (code, out) == (1, "")
    assert "raise ValueError('on purpose')" in err
    assert err.splitlines()[-2:] == [
        "ValueError: on purpose",
        "error: the function raised this exception (call call-1)",
    ]


@pytest.mark.parametrize("listing", ["devices", "leases", "usage", "keys"])
def test_listings_are_tables_or_exact_json(dgsf, listing):
    code, out, _ = dgsf(listing)
    assert code == 0
    assert out
    assert json.loads(dgsf(listing, "--json")[1])[listing][0]["device_us"] == 1500


@pytest.mark.parametrize("words", [["invoke", "s.add", "{}"], ["run", "FILE::add", "--a", "1"]])
def test_whoever_interrupts_a_call_hears_what_becomes_of_it(dgsf, sample, monkeypatch, words):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "post", interrupted)
    monkeypatch.setattr(Client, "outcome", interrupted)
    code, _, err = dgsf(*(word.replace("FILE", sample) for word in words))
    assert code == 130
    assert "the call is stopped" in err and "charged" in err
    assert err.count("interrupted") == 1


def test_whoever_interrupts_another_command_reads_one_word(dgsf, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "devices", interrupted)
    code, out, err = dgsf("devices")
    assert (code, out, err.strip()) == (130, "", "interrupted")


def test_a_drain_says_if_it_was_so_already_and_if_nothing_is_left_that_takes_work():
    def row(name: str, state: str) -> dict[str, str]:
        return {"name": name, "state": state}

    left = "'dgsf leases' and 'dgsf sessions' show what is left on it"
    host = [row("vm/host0", "healthy")]
    two = [row("vm/cpu0", "healthy"), row("vm/cpu1", "healthy")]
    assert drain_words("vm/cpu0", two, host) == f"vm/cpu0 drains; {left}"
    again = [row("vm/cpu0", "draining"), row("vm/cpu1", "healthy")]
    assert drain_words("vm/cpu0", again, host) == f"vm/cpu0 drains already; {left}"
    last = [row("vm/cpu0", "healthy"), row("vm/cpu1", "lost")]
    assert "\nno device takes work now" in drain_words("vm/cpu0", last, host)
    assert "\nno function host takes work now" in drain_words("vm/host0", two, host)


def test_drain_asks_for_the_pool_before_it_changes_it(dgsf, monkeypatch):
    pool = [{"name": "vm/cpu0", "state": "healthy"}]
    monkeypatch.setattr(Client, "devices", lambda self: {"devices": [dict(row) for row in pool], "hosts": []})

    def drained(self: Client, name: str) -> dict[str, str]:
        pool[0]["state"] = "draining"
        return pool[0]

    monkeypatch.setattr(Client, "drain_device", drained)
    assert "vm/cpu0 drains;" in dgsf("devices", "drain", "cpu0")[2]
    assert "vm/cpu0 drains already;" in dgsf("devices", "drain", "cpu0")[2]


@pytest.mark.parametrize(
    ("state", "wanted", "told"),
    [
        ("healthy", "healthy", "vm/cpu0 is healthy and takes work already; only a draining device can be restored"),
        ("lost", "healthy", "vm/cpu0 is lost; only a draining device can be restored"),
        ("lost", "draining", "vm/cpu0 is lost; only a running device can drain"),
    ],
)
def test_a_device_that_stays_as_it_is_says_why(state, wanted, told):
    assert why_unchanged("vm/cpu0", state, wanted) == told


def test_a_function_host_that_runs_is_not_to_be_drained_for_being_forgotten():
    told = why_unchanged("vm/host0", "healthy", "forgotten", is_host=True)
    assert "only a lost function host can be forgotten" in told and "drain" not in told


def test_deploy_says_what_auto_chose_and_why(dgsf, sample, monkeypatch):
    def answer(self, *_: object):
        yield from ()
        return {"version": 1, "attach": "near", "attach_reason": "there is no profile of it"}

    monkeypatch.setattr(Client, "deploy_plan", answer)
    code, _, err = dgsf("deploy", sample, "--only", "add")
    assert code == 0
    assert "attach=auto: near, there is no profile of it\n" in err


def test_a_function_that_cannot_be_deployed_is_left_out_and_told_at_the_end(dgsf, platform, sample, monkeypatch):
    said, plan = [], Client.deploy_plan

    def refusing(self, name: str, *more: object):
        said.append(name)
        if name == "s.second":
            raise DoesNotFit("no device is that large")
        return (yield from plan(self, name, *more))

    monkeypatch.setattr(Client, "deploy_plan", refusing)
    Path(sample).write_text(
        "import dgsf\napp, other = dgsf.App('s'), dgsf.App('o')\n"
        "@app.function\ndef zero(): ...\n@app.function\ndef second(): ...\n"
        "@other.function\ndef between(): ...\n@app.function\ndef alpha(): ...\n"
    )
    code, _, err = dgsf("deploy", sample)
    assert said == ["s.zero", "s.second", "o.between", "s.alpha"], "the order of the file"
    assert code == 1 and "deployed s.alpha" in err
    assert err.endswith("error: s.second is not deployed: no device is that large\n3 of 4 functions are deployed\n")
    for name in said:
        platform.functions.pop(name, None)


def test_a_deploy_without_a_choice_has_no_word_about_one(dgsf, sample):
    assert "attach=auto" not in dgsf("deploy", sample, "--only", "add")[2]


def test_people_see_whether_a_function_has_a_profile_and_programs_see_it_whole(dgsf, monkeypatch):
    curve = [[0.0, 1.01], [5.0, 1.0234]]
    rows = [
        {"name": "s.a", "version": 1, "options": {"attach": "auto", "profile": curve}},
        {"name": "s.b", "version": 1, "options": {"attach": "near"}},
    ]
    monkeypatch.setattr(Client, "list", lambda self: rows)
    head, first, second = dgsf("functions")[1].splitlines()
    assert head.split()[-1] == "PROFILE" and first.split()[-1] == "yes" and second.split()[-1] == "-"
    assert "1.0234" not in first and "attach auto" in first
    assert json.loads(dgsf("functions", "--json")[1]) == {"functions": rows}


def test_the_listing_shows_the_options_that_matter_in_words(dgsf, monkeypatch):
    options = {"gpu": ["A100", "T4"], "memory": 2 * 1024**3, "timeout": 120.0, "retries": 3}
    aliased = {"attach": "fabric", "device_alias": "cuda"}
    named = {"s.a": options, "s.b": {}, "s.c": aliased, "s.d": {"attach": "fabric", "device_alias": ""}}
    rows = [{"name": name, "version": 1, "options": given} for name, given in named.items()]
    monkeypatch.setattr(Client, "list", lambda self: rows)
    out = dgsf("functions")[1]
    assert "gpu A100 or T4, memory 2 GiB, timeout 120 s\n" in out and "{" not in out
    assert "attach fabric, device_alias cuda\n" in out and "attach fabric\n" in out
    monkeypatch.setattr(Client, "describe", lambda self, name: rows[0])
    assert "timeout 120 s, retries 3\n" in dgsf("functions", "show", "s.a")[1]


def test_lost_devices_are_listed_apart(dgsf, monkeypatch):
    rows = [{"name": f"box/{state}", "state": state, "slots": 4} for state in ("lost", "healthy")]
    hosts = [{"name": "box/host0", "state": "lost"}]
    monkeypatch.setattr(Client, "devices", lambda self: {"devices": rows, "hosts": hosts})
    there, _, lost = dgsf("devices")[1].partition("\nlost (")
    assert "box/healthy" in there and "box/lost" not in there and "box/host0" not in there
    assert "box/lost" in lost and "box/host0" in lost and "box/healthy" not in lost
    assert json.loads(dgsf("devices", "--json")[1]) == {"devices": rows, "hosts": hosts}


def test_usage_is_in_human_units(dgsf, platform):
    out = dgsf("usage", "--since", "1h")[1]
    assert "1.5 ms" in out
    assert "2.5 milli" in out
    assert "since=" in platform.requests[-1][1]


def test_keys_are_created_and_revoked(dgsf, platform):
    code, out, err = dgsf("keys", "create", "--role", "invoke", "--name", "ci")
    assert (code, out) == (0, "dgsf_k2_invoke\n")
    assert "not shown again" in err
    assert dgsf("keys", "revoke", "k2")[0] == 0
    assert "force" not in platform.requests[-1][1]
    assert dgsf("keys", "revoke", "k2", "--force")[0] == 0
    assert "force=1" in platform.requests[-1][1]


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (["invoke", "s.none", "{}"], 1, "there is no function"),
        (["invoke", "s.none", "not json"], 2, "not JSON"),
        (["invoke", "s.none", "3"], 2, "object"),
        (["run", "nofunction"], 2, "does not name a function"),
        (["run", "/nowhere.py::f"], 2, "there is no file"),
        (["deploy", "/nowhere.py"], 2, "there is no file"),
        (["keys", "create", "--role", "king"], 2, "operator"),
        (["frobnicate"], 2, "No such command 'frobnicate'.\n"),
        (["deplyo", "x"], 2, "No such command 'deplyo'. Did you mean 'deploy'?"),
        (["devices", "drain", ""], 2, "the name is empty"),
        (["usage", "--since", "soon"], 2, "write e.g."),
    ],
)
def test_mistakes_are_one_clear_line_and_no_traceback(dgsf, words, code, hint):
    found, _, err = dgsf(*words)
    assert found == code
    assert hint in err
    assert "Traceback" not in err


def test_any_platform_error_is_one_line(monkeypatch, capsys):
    def broken(**_: object) -> None:
        raise DgsfError("it broke")

    monkeypatch.setattr(cli.cli, "main", broken)
    assert cli.execute([]) == 1
    assert capsys.readouterr().err == "error: it broke\n"


def test_what_a_function_printed_is_shown_whatever_it_ended_by(monkeypatch, capsys):
    def broken(**_kwargs: object) -> None:
        raise OutOfMemory("too much", output="one\ntwo\n")

    monkeypatch.setattr(cli.cli, "main", broken)
    assert cli.execute([]) == 1
    assert capsys.readouterr().err == "it printed:\none\ntwo\nerror: too much\n"


def test_every_command_that_a_message_names_exists():
    root = Path(cli.__file__).parents[2]
    sources = [path for part in ("dgsf", "gateway", "proxy") for path in (root / part).rglob("*.py")]
    named = {word for path in sources for word in re.findall(r"'dgsf ([a-z]+)", path.read_text())}
    assert {"up", "devices", "sessions"} <= named <= set(cli.COMMANDS)


def test_every_command_of_the_table_has_a_help_text(capsys):
    assert cli.execute(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in cli.COMMANDS)
    assert os.linesep in shown


def test_programs_that_attached_are_named(capsys):
    rows = {"sessions": [{"id": "1", "function_name": None}, {"id": "2", "function_name": "app.f"}]}
    show_listing(rows, "sessions", ("id", "function_name"), as_json=False, empty="", absent=ATTACHED)
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()[1:]] == ["(attached)", "app.f"]
    show_listing(rows, "sessions", ("id",), as_json=True, empty="", absent=ATTACHED)
    assert json.loads(capsys.readouterr().out) == rows
