"""Files that `dgsf sim` writes: what cannot be written is told before the run, and never takes the table with it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dgsf import cli
from dgsf.errors import UsageError
from dgsf.sim.writable import check_writable

WORDS = ["sim", "--calls", "20", "--pool", "T4:4"]


@pytest.mark.parametrize(("option", "name"), [("--plot", "a.png"), ("--html", "a.html")])
def test_a_file_that_cannot_be_written_is_told_before_the_run(tmp_path, monkeypatch, capfd, option, name):
    monkeypatch.setattr("dgsf.cli.sim._simulated", lambda _: pytest.fail("it ran"))
    (tmp_path / name).mkdir()
    assert cli.execute([*WORDS, option, str(tmp_path / name)]) == 2
    assert f"{name}: cannot be written: Is a directory" in capfd.readouterr().err


def test_the_table_is_there_even_if_the_file_fails_at_the_end(capfd):
    pytest.importorskip("matplotlib")
    if not Path("/dev/full").exists():
        pytest.skip("no device that is always full")
    assert cli.execute([*WORDS, "--html", "/dev/full"]) == 2
    out, err = capfd.readouterr()
    assert "queueing delay, p99" in out and "/dev/full: cannot be written: No space left" in err


def test_trying_a_file_leaves_all_as_it_was(tmp_path):
    (tmp_path / "there").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for name in ("there", "link", "new"):
        check_writable(tmp_path / name)
    assert (tmp_path / "there").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["link", "there"]
    with pytest.raises(UsageError, match=r"new/a: cannot be written: No such file"):
        check_writable(tmp_path / "new" / "a")
    with pytest.raises(UsageError, match="cannot be written: File name too long"):
        check_writable(tmp_path / ("a" * 300))
