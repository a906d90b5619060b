"""The way back to a proxy: asked again while that may help, given up with one clear error."""

from __future__ import annotations

from typing import Any

import pytest

from dgsf.errors import ConnectionLost, DgsfError, Forbidden, NoDevice, PlatformError, SessionLost
from dgsf.sdk.doorway import OPEN_SECONDS, PAUSE_SHARE, PAUSES, RETURN_SECONDS, Doorway, pause_after


class Time:
    """Passes only by sleeping."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class Gateway:
    """A client whose gateway says no."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked: list[str] = []

    def open_session(self, _gpu: str, _memory: str, _wait: float | None, resumes: str) -> dict[str, Any]:
        self.asked.append(resumes)
        raise self.error


def doorway(gateway: Any, time: Time) -> Doorway:
    return Doorway(gateway, now=time.now, sleep=time.sleep)


def test_a_proxy_that_does_not_come_back_is_waited_for_so_long_and_no_longer() -> None:
    time, gateway = Time(), Gateway(PlatformError("no proxy takes sessions now"))
    with pytest.raises(
        SessionLost, match=r"after (59|60) s: no proxy takes sessions now; 'dgsf devices' .* attach again"
    ):
        doorway(gateway, time).again("one")
    assert RETURN_SECONDS - 2 < time.seconds <= RETURN_SECONDS
    assert len(gateway.asked) > 10 and set(gateway.asked) == {"one"}


def test_what_will_not_change_is_not_asked_for_again() -> None:
    time, gateway = Time(), Gateway(Forbidden("this key may not"))
    with pytest.raises(SessionLost, match="this key may not"):
        doorway(gateway, time).again("one")
    assert gateway.asked == ["one"] and time.seconds == 0


def test_a_door_that_opens_is_found_a_tenth_of_the_wait_later_at_most() -> None:
    waited = 0.0
    while waited < RETURN_SECONDS:
        pause = pause_after(waited)
        assert PAUSES[0] <= pause <= max(PAUSES[0], PAUSE_SHARE * waited) and pause <= PAUSES[1]
        waited += pause


class Doors:
    """A client whose first tickets lead to a door that nobody opens."""

    def __init__(self, opened_after: int) -> None:
        self.left = opened_after
        self.driver = None

    def open_session(self, *_: object) -> dict[str, Any]:
        self.left -= 1
        if self.left % 2:
            raise PlatformError("no proxy takes sessions now")
        return {"id": "one", "ticket": "", "key": "", "tcp_host": "127.0.0.1", "tcp_port": 1}


def test_a_new_session_waits_for_a_proxy_that_is_being_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    time, opened, doors = Time(), object(), Doors(20)

    def connect(_ticket: object) -> object:
        if doors.left > 0:
            raise ConnectionLost("the door did not open")
        return opened

    monkeypatch.setattr("dgsf.sdk.doorway.connect", connect)
    assert doorway(doors, time).first() is opened
    assert 0 < time.seconds < OPEN_SECONDS


@pytest.mark.parametrize("error", [PlatformError("no proxy takes sessions now"), Forbidden("no"), NoDevice("none yet")])
def test_the_first_way_to_a_proxy_is_given_up_soon_and_at_once_if_nothing_will_change(error: DgsfError) -> None:
    time, gateway = Time(), Gateway(error)
    with pytest.raises(type(error), match=error.message):
        doorway(gateway, time).first()
    waits = type(error) is PlatformError
    assert (len(gateway.asked) > 5 and OPEN_SECONDS - 2 < time.seconds <= OPEN_SECONDS) == waits
    assert waits or time.seconds == 0
