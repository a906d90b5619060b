"""The benchmark's report: ratios, goals, and what is written."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from dgsf.errors import UsageError
from loadtests.plan import rotated
from loadtests.report import Report, Section, at_least, at_most, compare, show, single


def test_ratio_is_of_the_medians_and_range_of_neighbouring_rounds():
    row = compare("x", [10, 30, 20], [20, 20, 40], at_least(0.5))
    assert (row.ours, row.peer, row.figure) == (20, 20, 1.0)
    assert (row.low, row.high) == (0.5, 1.5)


def test_one_wild_round_does_not_move_the_ratio():
    row = compare("x", [10, 10, 10, 10, 10_000], [20, 20, 20, 20, 20], at_least(0.5))
    assert row.figure == 0.5


def test_goals_include_their_bound():
    assert compare("x", [5], [10], at_least(0.5)).met
    assert not compare("x", [4.9], [10], at_least(0.5)).met
    assert single("x", 6, at_most(6)).met
    assert not single("x", 6.1, at_most(6)).met


def test_unequal_rounds_are_refused():
    with pytest.raises(UsageError, match="2 rounds of ours and 1 of the peer"):
        compare("x", [1, 2], [1], at_least(1))
    with pytest.raises(UsageError):
        compare("x", [], [], at_least(1))


def test_each_round_begins_with_another_contender():
    order = [rotated("abc", number) for number in range(4)]
    assert [round_[0] for round_ in order] == ["a", "b", "c", "a"]
    assert all(sorted(round_) == ["a", "b", "c"] for round_ in order)


@pytest.fixture
def report():
    section = Section("Echo", [compare("a ÷ b", [2], [1], at_least(3), "/s")], {"ledger": {"clean": True}}, {"a": [2]})
    return Report({"cpu": "2 x something"}, [section], {"bulk": "no room [here]"})


def test_json_has_rows_settings_raw_figures_and_failures(report, tmp_path):
    path = tmp_path / "new folder" / "result.json"
    report.write(path)
    found = json.loads(path.read_text())
    row = found["sections"][0]["rows"][0]
    assert (row["figure"], row["goal"], row["met"]) == (2.0, "≥ 3", False)
    assert found["sections"][0]["raw"] == {"a": [2]}
    assert found["settings"] == {"cpu": "2 x something"}
    assert found["failures"] == {"bulk": "no room [here]"}


def test_table_says_what_was_met_and_what_could_not_be_measured(report):
    out = io.StringIO()
    show(report, Console(file=out, width=120))
    text = out.getvalue()
    assert "a ÷ b" in text
    assert "≥ 3" in text
    assert "no" in text
    assert "bulk could not be measured: no room [here]" in text
