"""How far devices and function hosts are: round trips that proxies measured, and the way that a session's questions go.

Others on a machine can only make a round trip longer, so a shorter one is believed at once and a longer one little by
little; what was asked of a link that may be busy is a bound.  A profile's curve begins at a question between two
neighbours on one machine; what a session pays beyond that is the way from the proxy to the device, and what the
function host is farther away than a neighbour.  Microseconds.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from statistics import median

RISE = 1 / 8  # of the difference, each time that a longer one is measured
CLEARLY = 0.1  # a change by less than this part is not worth telling


@dataclass(frozen=True, slots=True)
class Measured:
    """A smoothed round trip between one proxy and one device or function host."""

    proxy: int
    is_host: bool
    round_trip_us: float
    near: bool  # both on one machine
    sessions: bool  # the proxy has sessions


class Distances:
    """The smoothed round trips of one proxy, for each device in its present life."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[int, float]] = {}
        self._told: dict[int, tuple[int, float]] = {}

    def saw(self, device_id: int, incarnation: int, round_trip_us: float) -> None:
        life, before = self._found.get(device_id, (0, round_trip_us))
        if life != incarnation:
            before = round_trip_us
        now = min(round_trip_us, before + RISE * (round_trip_us - before))
        self._found[device_id] = (incarnation, now)

    def at_most(self, device_id: int, incarnation: int, round_trip_us: float) -> None:
        """It is no farther than that; whether it is as far is unknown, so nothing becomes longer by this."""
        life, before = self._found.get(device_id, (incarnation, round_trip_us))
        if life == incarnation:
            self._found[device_id] = (incarnation, min(before, round_trip_us))

    def known(self) -> dict[int, tuple[int, float]]:
        """Device: its incarnation and how far it is."""
        return dict(self._found)

    def news(self) -> dict[int, tuple[int, float]]:
        """Incarnations and round trips of devices that are new or clearly different since `told`."""
        return {device: found for device, found in self._found.items() if _differ(found, self._told.get(device))}

    def told(self, news: dict[int, tuple[int, float]]) -> None:
        self._told.update(news)


def way_us(measured: Collection[Measured]) -> float | None:
    """What a session's question costs beyond one between neighbours; None: no device was measured.

    Proxies that have sessions count; only if there is none of them, the others stand in.
    """
    with_sessions = [each for each in measured if each.sessions]
    counted = with_sessions if any(not each.is_host for each in with_sessions) else list(measured)
    ways = [_way_of([each for each in counted if each.proxy == proxy]) for proxy in {each.proxy for each in counted}]
    known = [way for way in ways if way is not None]
    return median(known) if known else None


def _way_of(mine: list[Measured]) -> float | None:
    """Of one proxy."""
    devices = [each.round_trip_us for each in mine if not each.is_host]
    if not devices:
        return None
    hosts = [each.round_trip_us for each in mine if each.is_host]
    neighbour = min((each.round_trip_us for each in mine if each.near), default=0.0)
    return median(devices) + (max(0.0, median(hosts) - neighbour) if hosts else 0.0)


def _differ(found: tuple[int, float], told: tuple[int, float] | None) -> bool:
    return told is None or told[0] != found[0] or abs(found[1] - told[1]) > CLEARLY * told[1]
