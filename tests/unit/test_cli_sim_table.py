"""The table of `dgsf sim` on a terminal: every figure whole, however narrow it is."""

from __future__ import annotations

import re
import sys

import click
import pytest

from dgsf.cli.output import show_side_by_side

NAMES = [f"policy_{number}" for number in range(7)]
LABEL = "a figure with quite a long label, of which no word is lost"
ROWS = [{"figure": LABEL, **{name: f"{place}.123456 s" for place, name in enumerate(NAMES)}}]


@pytest.fixture
def shown(monkeypatch, capsys):
    """What a terminal of this width shows."""

    def show(width: int) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        show_side_by_side("figure", NAMES, ROWS)
        return click.unstyle(capsys.readouterr().out)

    return show


@pytest.mark.parametrize(("width", "tables"), [(80, 4), (100, 2), (200, 1)])
def test_policies_that_do_not_fit_beside_the_others_stand_in_another_table(shown, width, tables):
    out = shown(width)
    assert "…" not in out and max(map(len, out.splitlines())) <= width
    assert re.findall(r"policy_\d", out) == NAMES and re.findall(r"\d\.\d+ s", out) == [ROWS[0][name] for name in NAMES]
    assert out.count("a figure with quite a long label, of") == out.count("which no word is lost") == tables


def test_on_a_very_narrow_terminal_only_labels_are_broken_into_lines(shown):
    out = shown(40)
    assert "…" not in out and re.findall(r"\d\.\d+ s", out) == [ROWS[0][name] for name in NAMES]


def test_a_pipe_gets_one_table_with_names_as_they_are_written(capsys):
    show_side_by_side("figure", NAMES, ROWS)
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == ["figure", *NAMES] and line.startswith(LABEL)
