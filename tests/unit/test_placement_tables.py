"""What the placement load tests say before and while they run."""

from __future__ import annotations

import pytest

from loadtests import placement
from loadtests.progress import doing


def test_a_table_that_does_not_exist_is_refused_with_the_names_of_those_that_do(capsys):
    with pytest.raises(SystemExit):
        placement.main(["--only", "openb,hors"])
    assert "no table is called 'hors'; there are openb, default" in capsys.readouterr().err


def test_windows_that_do_not_exist_are_refused_with_the_names_of_those_that_do(capsys):
    with pytest.raises(SystemExit):
        placement.main(["--sets", "first,last"])
    assert "no set of windows is called 'last'; there are first, halfway, fresh" in capsys.readouterr().err


def test_no_seeds_are_refused(capsys):
    with pytest.raises(SystemExit):
        placement.main(["--seeds", "0"])
    assert "must be at least 1" in capsys.readouterr().err


def test_without_traces_the_error_names_the_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DGSF_TRACES", str(tmp_path))
    assert placement.main(["--only", "rate"]) == 1
    assert str(tmp_path) in capsys.readouterr().err


def test_whoever_interrupts_it_reads_one_word(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(placement.placement_slots, "show", interrupted)
    assert placement.main(["--only", "slots"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_what_is_being_done_is_said_on_stderr(capsys):
    with doing("window 3 of 10 [free]"):
        pass
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("window 3 of 10 [free] ... ") and said.err.endswith(" s\n")
