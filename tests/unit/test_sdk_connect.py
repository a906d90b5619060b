"""Where the client finds its platform."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dgsf import cli
from dgsf.errors import ConfigError
from dgsf.sdk.connect import find_connection


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    """A working folder and a home without any platform."""
    for name in ("DGSF_URL", "DGSF_API_KEY", "DGSF_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def write(folder: Path, url: str, key: str) -> None:
    folder.mkdir(parents=True)
    (folder / "client.json").write_text(json.dumps({"url": url, "api_key": key}))


def test_nothing_known_says_what_to_do(nowhere):
    with pytest.raises(ConfigError, match="dgsf up") as raised:
        find_connection()
    for words in (str(nowhere / "here" / ".dgsf"), str(nowhere / "home" / ".dgsf"), "DGSF_DATA_DIR", "DGSF_URL"):
        assert words in raised.value.message
    assert "--" not in raised.value.message, "a program has no command line"


def test_the_command_line_names_its_flags(capsys):
    assert cli.execute(["devices"]) == 2
    assert "(or pass --data-dir, or --url and --api-key)" in capsys.readouterr().err


def test_the_file_of_the_working_folder_wins_over_the_homes(nowhere):
    write(nowhere / "home" / ".dgsf", "http://home", "k-home")
    assert find_connection().api_key == "k-home"
    write(nowhere / "here" / ".dgsf", "http://here", "k-here")
    assert find_connection().url == "http://here"


def test_variables_win_over_files_and_flags_over_variables(nowhere, monkeypatch):
    write(nowhere / "here" / ".dgsf", "http://here", "k-here")
    monkeypatch.setenv("DGSF_URL", "http://env/")
    monkeypatch.setenv("DGSF_API_KEY", "k-env")
    assert find_connection().url == "http://env"
    assert find_connection("http://flag", "k-flag").api_key == "k-flag"


def test_a_files_key_is_not_shown_to_another_address(nowhere):
    write(nowhere / "here" / ".dgsf", "http://here:1", "k-here")
    with pytest.raises(ConfigError, match="no API key for http://elsewhere"):
        find_connection("http://elsewhere")
    assert find_connection("http://here:1/").api_key == "k-here"


def test_a_named_data_dir_is_the_only_one_looked_at(nowhere):
    write(nowhere / "home" / ".dgsf", "http://home", "k-home")
    write(nowhere / "data", "http://data", "k-data")
    assert find_connection(data_dir=nowhere / "data").url == "http://data"
    with pytest.raises(ConfigError, match="dgsf up"):
        find_connection(data_dir=nowhere / "empty")


@pytest.mark.parametrize("text", ["{", "[]", '{"url": 3}', "\xff"])
def test_a_damaged_file_is_told(nowhere, text):
    folder = nowhere / "here" / ".dgsf"
    folder.mkdir()
    (folder / "client.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"client\.json is damaged"):
        find_connection()


@pytest.mark.parametrize("url", ["127.0.0.1:8700", "ftp://x", "http://"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(ConfigError, match="not the address"):
        find_connection(url, "k")


def test_the_key_is_not_printed():
    assert "k-secret" not in repr(find_connection("http://x", "k-secret"))
