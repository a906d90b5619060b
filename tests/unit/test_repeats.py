"""Repeats of a profiled program: the typical one is chosen, and how far they lie apart is told."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import pytest

from dgsf.cli.profile import (
    SHOWN_OPERATIONS,
    STARTING,
    _progress,
    _show_slowdowns,
    _starting,
    apart_words,
    saved_words,
    shown_operations,
    threads_words,
    timeout_words,
)
from dgsf.core.options import parse_options
from dgsf.core.perfmodel import Link
from dgsf.remoting.breakdown import Operation, breakdown
from dgsf.remoting.guest.recording import Event, Took
from dgsf.remoting.profiling import Run
from dgsf.remoting.repeats import typical, why_noisy, without_noting

LINK = Link(command_us=2, bytes_per_us=1000, sync_us=20)
US = 1000  # nanoseconds


def run(total_us: int, device_us: float = 900) -> Run:
    """One call that the device works on, then one download."""
    events = [
        Event("aten::mm", 0, 10 * US, 1, 40, 0, False),
        Event("download", 10 * US, total_us * US, 0, 10, 4, True),
    ]
    return Run(events, 0, total_us * US, {1: Took(device_us, 1.0)}, None)


def test_one_disturbed_run_does_not_decide():
    quiet = [run(1000), run(1010), run(990), run(1005)]
    runs = without_noting([*quiet, run(3000)], [995, 1000, 985, 1000, 990])
    chosen, spread = typical(runs, LINK)
    assert chosen.total_us in (1000, 1005, 1010)
    assert (spread.repeats, spread.shortest_us, spread.longest_us) == (5, 990, 3000)
    assert spread.slowdowns[1][1] < 1.2 and spread.slowdowns[1][2] > 3


def test_unnoted_runs_that_were_disturbed_do_not_slow_the_typical_one():
    runs = without_noting([run(1000), run(1000), run(1000)], [1900, 1800, 1950])
    assert [each.bare_us for each in runs] == [1000, 1000, 1000]
    assert breakdown(typical(runs, LINK)[0], LINK).slowdowns[1][1] < 1.2


def test_no_slow_down_is_shown_beside_a_choice_that_contradicts_it(capsys):
    chosen, spread = typical([run(1000)], LINK)
    at_limit = replace(breakdown(chosen, LINK), curve=((0.0, 1.0999), (5.0, 1.1), (50.0, 1.1004), (1000.0, 1.5)))
    ratios = [(5.0, 1.1, 1.1), (50.0, 1.0996, 1.1004), (1000.0, 1.5, 1.5)]
    _show_slowdowns(at_limit, replace(spread, slowdowns=ratios))
    near, far = capsys.readouterr().out.splitlines()[-4:-2]
    assert "1.10 x (1.10 to 1.10) " in near and near.endswith("fabric")
    assert "1.1004 x (1.10 to 1.1004) " in far and far.endswith("near")
    assert "is 1.10 to 1.1004, on both sides of the limit of 1.10" in why_noisy([1.0], [[1.0996, 1.1004]] * 3)


def test_what_noting_costs_is_taken_off_every_run():
    runs = without_noting([run(1000), run(1100), run(1200)], [950, 1060, 1100])
    assert [each.bare_us for each in runs] == [950, 1050, 1150]
    assert runs[0].noting_us == pytest.approx(25)


@pytest.mark.parametrize(
    ("ratios", "noisy"),
    [
        ([1.3], False),
        ([1.01, 1.94], True),
        ([1.0, 1.01, 1.02, 1.02, 1.94], False),  # one of five
        ([1.0, 1.01, 1.05, 1.15, 1.2], True),  # on both sides of what may be chosen
        ([2.0, 2.1, 2.3, 2.4, 2.4], False),
        ([2.0, 2.1, 2.3, 2.9, 3.4], True),
    ],
)
def test_a_verdict_is_noisy_if_the_middle_half_of_the_slow_downs_disagrees(ratios, noisy):
    assert bool(why_noisy([1000.0] * len(ratios), [ratios] * 3)) is noisy


@pytest.mark.parametrize(
    ("times", "noisy"),
    [
        ([53, 58, 70, 85, 136], True),
        ([51, 60, 65, 87, 91], True),
        ([51, 64, 65, 66, 91], False),  # the ends alone
        ([60, 61, 62, 63, 136], False),  # one of five
        ([60], False),
    ],
)
def test_a_verdict_is_noisy_if_the_middle_half_of_the_times_is_wide(times, noisy):
    assert bool(why_noisy(times, [[1.0] * len(times)] * 3)) is noisy


def test_the_reason_says_how_wide_and_how_wide_it_may_be():
    same = [1.0, 1.0, 1.0, 1.0, 1.0]
    assert why_noisy([50, 60, 80, 100, 120], [same] * 3) == (
        "the middle half of the times is 50% of the median wide, over 25%"
    )
    assert why_noisy(same, [same, [1.0, 1.05, 1.1, 1.12, 1.2], same]) == (
        "the middle half of the slow-downs at a round trip of 50 µs is 1.05 to 1.12, on both sides of the limit of 1.10"
    )


def test_the_words_show_the_middle_half_and_a_noisy_profile_is_not_saved_silently():
    _, spread = typical([run(900), run(1000), run(1500), run(1600), run(4000)], LINK)
    assert spread.noisy
    assert apart_words(spread) == "5 calls took 900 µs to 4 ms, the middle half 1 ms to 1.6 ms, the median 1.5 ms"
    assert "noisy" not in saved_words("x.json", noisy=False, repeat=5)
    told = saved_words("x.json", noisy=True, repeat=5)
    assert "a noisy profile was saved in x.json" in told and told.endswith("--save --repeat 20")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_which_call_of_how_many_runs(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with _progress(3) as tell:
        for _ in range(3):
            tell()
    written = sys.stderr.getvalue()
    assert [f"call {number} of 3" in written for number in (1, 2, 3, 4)] == [True, True, True, False]
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with _progress(3) as tell:
        tell()
    assert not sys.stderr.getvalue()


def test_the_notice_of_a_slow_start_stands_on_a_line_of_its_own(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with _progress(3):
        assert _starting() == STARTING
        assert sys.stderr.getvalue().endswith("call 1 of 3\x1b[K\r\x1b[K")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert _starting() == STARTING and not sys.stderr.getvalue()


def test_what_was_waited_for_is_shown_however_short_it_is_on_the_device():
    busy = [Operation(f"aten::busy{place}", 1, 1000 - place, 0) for place in range(12)]
    read = Operation("aten::item", 3, 1, 700)
    assert shown_operations([*busy, read]) == [*busy[:SHOWN_OPERATIONS], read]


def test_what_is_assumed_of_threads_is_told_if_they_waited_for_each_other():
    assert threads_words(0) == ""
    assert "waited 1.2 ms for each other's answers" in threads_words(1200)
    assert "adds their waits up" in threads_words(1200)


def test_calls_longer_than_the_functions_timeout_are_told():
    options = parse_options({"timeout": 2})
    assert timeout_words(options, 2_000_000) == ""
    assert "took 3 s here, longer than timeout=2" in timeout_words(options, 3_000_000)
