"""Profiles: the curve that is stored, the choice it makes, the file beside the source, `dgsf.device()`."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

import dgsf
from dgsf.cli.profile import find_function
from dgsf.core.options import parse_options
from dgsf.core.perfmodel import Command, Link, Recording, choose_by_curve, curve_of, read_off, shown, slowdown
from dgsf.errors import InvalidOption, UsageError
from dgsf.sdk.loadfile import load_file
from dgsf.sdk.profiles import profiles_file, save_profile, stored_unread, with_profile
from gateway.deploy import near_if_it_must, settled

QUIET = ((0.0, 1.0), (100.0, 1.05), (1000.0, 1.5))


def body() -> None:
    """Stands for a user's function."""


def test_a_curve_is_read_between_and_beyond_its_points():
    assert read_off(QUIET, 0) == 1.0
    assert read_off(QUIET, 50) == pytest.approx(1.025)
    assert read_off(QUIET, 1900) == pytest.approx(1.95)
    assert read_off(((5.0, 1.2),), 700) == 1.2
    assert read_off(((5.0, 1.2), (10.0, 1.4)), 1) == 1.2


def test_a_curve_tells_what_the_recording_would():
    recording = Recording([Command(50, guest_us=10)] * 20 + [Command(5, 100, 100, True)] * 3)
    link = Link(bytes_per_us=1000, sync_us=40, command_us=5)
    for trip in (0.0, 30.0, 700.0):
        expected = slowdown(recording, Link(trip, bytes_per_us=1000, sync_us=40, command_us=5))
        assert read_off(curve_of(recording, link), trip) == pytest.approx(expected, rel=0.02)


def test_the_choice_is_near_without_a_profile_and_by_distance_with_one():
    assert choose_by_curve((), 5).attach == "near"
    assert "dgsf profile --save" in choose_by_curve((), 5).reason
    assert choose_by_curve(QUIET, 50).attach == "fabric"
    assert choose_by_curve(QUIET, 1000).attach == "near"


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (1.0, "1.00"),
        (1.0996, "1.10"),
        (1.1, "1.10"),
        (1.104, "1.104"),
        (1.1001, "1.1001"),
        (math.nextafter(1.1, 2), "1.1000000000000003"),
        (1.106, "1.11"),
        (12.345, "12.35"),
        (math.inf, "inf"),
    ],
)
def test_a_slow_down_is_shown_on_the_side_of_the_limit_on_which_it_is(ratio, text):
    assert shown(ratio) == text
    choice = choose_by_curve(((0.0, ratio),), 5)
    assert f" {text} x native" in choice.reason and choice.attach == ("near" if float(text) > 1.1 else "fabric")


def test_auto_is_settled_by_the_profile_and_stays_the_same_option():
    auto = parse_options({"attach": "auto", "profile": [list(pair) for pair in QUIET], "gpu": "A100"})
    assert not auto.over_fabric and auto.worker_types == ("A100",)
    (close, _), (far, _) = settled(auto, 50), settled(auto, 1000)
    assert close.over_fabric and close.worker_types == ("host",)
    assert not far.over_fabric
    assert close == auto, "what was chosen is no part of what was asked for"
    assert close.given() == auto.given() and parse_options(auto.given()) == auto
    assert not settled(parse_options({"attach": "auto"}), 5)[0].over_fabric
    assert settled(parse_options({"attach": "fabric"}), 1e6)[0].over_fabric


def test_a_deploy_knows_why_auto_chose_as_it_did():
    auto = parse_options({"attach": "auto", "profile": [list(pair) for pair in QUIET]})
    assert "no profile" in settled(parse_options({"attach": "auto"}), 5)[1]
    options, reason = settled(auto, 50)
    assert "x native at a round trip of 50 µs, within 1.10 x" in reason
    without_host, told = near_if_it_must(options, reason, [])
    assert not without_host.over_fabric
    assert told.startswith(reason) and "no function host" in told


@pytest.mark.parametrize("value", [5, "x", [[1]], [[1, True]], [[1, -1]], [[1, 2], [1, 3]], [[0, 1]] * 65])
def test_a_profile_that_is_none_is_refused(value):
    with pytest.raises(InvalidOption, match="profile"):
        parse_options({"profile": value})


def test_a_saved_profile_is_found_by_functions_that_say_auto(tmp_path, monkeypatch):
    source = tmp_path / "shapes.py"
    monkeypatch.setattr("inspect.getfile", lambda _: str(source))
    assert with_profile({"attach": "auto"}, body) == {"attach": "auto"}
    save_profile(source, "other", ((0.0, 1.5),))
    save_profile(source, "body", QUIET)
    assert set(json.loads(profiles_file(source).read_text())) == {"other", "body"}
    assert parse_options(with_profile({"attach": "auto"}, body)).profile == QUIET
    assert with_profile({"attach": "near"}, body) == {"attach": "near"}
    assert with_profile({"attach": "auto", "profile": []}, body)["profile"] == []
    assert dgsf.App("a").function(attach="auto")(body).options.profile == QUIET


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_broken_file_of_profiles_is_named(tmp_path, monkeypatch, text):
    monkeypatch.setattr("inspect.getfile", lambda _: str(tmp_path / "shapes.py"))
    Path(tmp_path, "shapes.profiles.json").write_text(text)
    with pytest.raises(UsageError, match=r"shapes\.profiles\.json"):
        with_profile({"attach": "auto"}, body)
    monkeypatch.setattr("dgsf.sdk.profiles.in_worker", lambda: True)
    assert with_profile({"attach": "auto"}, body) == {"attach": "auto"}, "nobody looks for it there"


@pytest.mark.parametrize("stored", ["3", '{"curve": [[2, 1], [1, 1]]}', '"x"'])
def test_a_stored_profile_that_is_none_is_refused_with_its_file_and_can_be_left_unread(tmp_path, monkeypatch, stored):
    monkeypatch.setattr("inspect.getfile", lambda _: str(tmp_path / "shapes.py"))
    Path(tmp_path, "shapes.profiles.json").write_text(f'{{"body": {stored}}}')
    with pytest.raises(UsageError, match=r"shapes\.profiles\.json: the profile of body: .*'dgsf profile --save'"):
        with_profile({"attach": "auto"}, body)
    with stored_unread():
        assert with_profile({"attach": "auto"}, body) == {"attach": "auto"}
    with pytest.raises(UsageError):
        with_profile({"attach": "auto"}, body)


def test_the_device_beside_this_process_is_a_gpu_or_its_cpu():
    assert dgsf.device() == torch.device("cuda" if torch.cuda.is_available() else "cpu")


def test_a_profile_for_a_faster_device_is_read_like_any_other(tmp_path, monkeypatch):
    source = tmp_path / "shapes.py"
    save_profile(source, "body", QUIET, faster=10.0)
    save_profile(source, "other", QUIET)
    stored = json.loads(profiles_file(source).read_text())
    assert stored["body"]["faster"] == 10 and isinstance(stored["other"], list)
    monkeypatch.setattr("dgsf.sdk.profiles._source_of", lambda raw: source)
    found = with_profile({"attach": "auto"}, body)
    assert parse_options(found).profile == QUIET
    profiles_file(source).write_text('{"body": {"faster": 10}}')
    with pytest.raises(UsageError, match="the profile of body has no curve"):
        with_profile({"attach": "auto"}, body)


def test_whoever_names_no_function_reads_which_could_be_profiled(tmp_path):
    file = tmp_path / "could_be_profiled.py"
    file.write_text(
        "from math import sqrt\nfrom textwrap import dedent\nimport dgsf\n_own = dgsf.App('a')\n"
        "@_own.function\ndef deployed(): ...\ndef plain(): ...\ndef _inner(): ...\n"
    )
    module = load_file(file)
    assert [find_function(module, name, "it")[0].__name__ for name in ("deployed", "plain")] == ["deployed", "plain"]
    with pytest.raises(UsageError, match=r"^it has no function 'nope'; it has: deployed, plain$"):
        find_function(module, "nope", "it")
