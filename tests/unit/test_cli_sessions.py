"""`dgsf sessions`: a table that fits a terminal, and moves that are waited for."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from dgsf import cli
from dgsf.cli.output import show_rows
from dgsf.cli.sessions import COLUMNS, for_people, remarks, wait_for_move
from dgsf.errors import Conflict, PlatformError
from dgsf.ids import CallIds
from dgsf.sdk.client import Client

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)


_ids = CallIds()


def row(ms: int = 0, **more: object) -> dict[str, object]:
    """A session as the API tells of it, begun so many milliseconds after some moment."""
    return {
        "id": str(_ids.mint(1, now_ms=1_900_000_000_000 + ms)),
        "state": "attached",
        "device_name": "gpu-17/A100-3",
        "tenant_name": "default",
        "function_name": None,
        "proxy_name": "proxy-gpu-node-17.example-1",
        "generation": 2,
        "memory_bytes": 17_179_869_184,
        "memory_used": 1_234_567,
        "bytes_up": 123_456_789,
        "bytes_down": 123_456,
        "device_us": 123_456_789,
        "cost_nano": 123_456_789,
        "error_code": None,
        "move_to": None,
        "move_error": None,
        "started_at": (NOW - timedelta(hours=2.5)).isoformat(),
        "updated_at": NOW.isoformat(),
        "ended_at": None,
        **more,
    }


def listed(rows: list[dict[str, object]], capsys: pytest.CaptureFixture[str]) -> list[str]:
    show_rows(for_people(rows, NOW), COLUMNS, empty="")
    return capsys.readouterr().out.splitlines()


# --- the table --------------------------------------------------------------------------------
def test_a_usual_listing_fits_eighty_columns(capsys):
    lines = listed([row(), row(300_000, function_name="train.fit")], capsys)
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["ID", "STATE", "DEVICE", "FUNCTION", "AGE", "USED", "COST"]
    assert "gpu-17/A100-3" in lines[1], "the name that it has in every listing"
    assert "(attached)" in lines[1] and "2.5 h" in lines[1]


def test_one_with_several_tenants_and_nodes_and_ids_of_one_moment_fits_a_hundred(capsys):
    rows = [row(device_name=f"node{number}/A100-3", tenant_name=f"team-{number}") for number in range(3)]
    lines = listed(rows, capsys)
    assert max(map(len, lines)) <= 100
    shown = [line.split()[0] for line in lines[1:]]
    assert len(set(shown)) == 3  # what is shown is enough to say which one moves
    assert all(str(each["id"]).startswith(short) for each, short in zip(rows, shown, strict=True))
    assert "node1/A100-3" in lines[2] and "team-1" in lines[2]


def test_a_warm_function_that_has_not_used_its_device_says_so_and_fits_too(capsys):
    unused = row(600_000, state="fresh", device_name=None, function_name="kmeans.fabric")
    lines = listed([unused, row(900_000, state="begun", device_name=None), row(1_200_000)], capsys)
    assert "(none yet)" in lines[1] and "(waits)" in lines[2] and "gpu-17/A100-3" in lines[3]
    assert max(map(len, lines)) <= 80


def test_what_is_asked_and_what_went_wrong_stands_below_in_sentences():
    rows = [
        row(move_to=""),
        row(move_to="vm/cpu1"),
        row(move_error="no other device has room"),
        row(error_code="session_lost"),
        row(),
        row(move_error="no other device has room", ended_at=NOW.isoformat()),
    ]
    assert [" ".join(line.split()[1:]) for line in remarks(rows)] == [
        "is asked to move to any other device",
        "is asked to move to vm/cpu1",
        "did not move: no other device has room",
        "ended with session_lost",
    ]


def test_json_keeps_everything(monkeypatch, capsys):
    document = {"sessions": [row()]}
    monkeypatch.setattr(Client, "sessions", lambda self, ended=False: document)
    assert cli.execute(["sessions", "--json", "--url", "http://127.0.0.1:1", "--api-key", "k"]) == 0
    assert json.loads(capsys.readouterr().out) == document


# --- moves ------------------------------------------------------------------------------------
def test_a_move_that_is_waited_for_asks_for_its_session_and_for_no_listing(monkeypatch, capsys):
    before, asked = row(device_name="vm/cpu0"), []
    after = {**before, "device_name": "vm/cpu1"}

    def move(self, session_id, to=""):
        asked.append(session_id)
        return {"id": session_id, "to": to}

    monkeypatch.setattr(Client, "sessions", None)  # an old session is not in it
    monkeypatch.setattr(Client, "session", lambda self, session_id: after if asked else before)
    monkeypatch.setattr(Client, "move_session", move)
    command = ["sessions", "move", str(before["id"])[:8], "--wait", "--url", "http://127.0.0.1:1", "--api-key", "k"]
    assert cli.execute(command) == 0
    assert asked == [before["id"]]
    assert capsys.readouterr().err == "moved from vm/cpu0 to vm/cpu1\n"


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def waited(rows: list[dict[str, object]], seconds: float = 10.0) -> tuple[str, float]:
    """What became of a move whose listing reads like these, one look after the other; the last stays."""
    time, looks = Time(), iter(rows)
    last = rows[-1]
    there = wait_for_move(lambda: next(looks, last), "vm/cpu0", seconds, lambda: time.now, time.sleep)
    return there, time.now


def test_a_move_is_waited_for_until_the_listing_shows_the_new_device():
    asked, answered = row(device_name="vm/cpu0", move_to=""), row(device_name="vm/cpu0")
    assert waited([asked, asked, answered, row(device_name="vm/cpu1")]) == ("vm/cpu1", pytest.approx(0.6))


def test_a_session_that_stays_says_why():
    with pytest.raises(Conflict, match="it stays on vm/cpu0: no other device has room"):
        waited(
            [row(device_name="vm/cpu0", move_to=""), row(device_name="vm/cpu0", move_error="no other device has room")]
        )
    with pytest.raises(Conflict, match="has ended"):
        waited([row(ended_at=NOW.isoformat())])


def test_the_wait_for_a_move_ends_at_its_deadline():
    with pytest.raises(PlatformError, match=r"not moved after 3 s: .* is moving on vm/cpu0; the wish stands"):
        waited([row(device_name="vm/cpu0", state="moving", move_to="")], 3.0)
