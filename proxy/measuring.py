"""Measures the way again on links that live: their first echo was taken at their start, often the busiest moment.

Whatever else goes on can only make a round trip longer, so a later echo is a bound: the way is no farther than that.
It brings a figure down and never up, whoever may be busy.  It costs a device a few PINGs every `AGAIN_SECONDS`, a proxy
at most `MOST_AT_ONCE` of them per look, and a call nothing: only workers without calls are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Protocol

from dgsf.clock import Clock
from dgsf.store.rows import DeviceRow
from proxy.post import Post

AGAIN_SECONDS = 10.0
MOST_AT_ONCE = 8


class Measurable(Protocol):
    """A worker's or an executor's connection."""

    post: Post

    @property
    def may_echo(self) -> bool:
        """Whether it can be asked now without standing in the way of anything."""

    def measure(self, clock: Clock, done: Callable[[int], None]) -> None:
        """`done` hears the least round trip of a few, in µs, unless the link is lost before."""


class Measuring:
    """`look` now and then."""

    def __init__(self, clock: Clock, no_farther: Callable[[DeviceRow, int], None]) -> None:
        self._clock = clock
        self._no_farther = no_farther
        self._asked_us: dict[int, int] = {}  # by device

    def look(self, links: Iterable[Measurable]) -> None:
        """One link of each device that was not asked for long, those first that wait longest."""
        now = self._clock.now_us()
        by_device = {link.post.device.id: link for link in links}
        self._asked_us = {device: asked for device, asked in self._asked_us.items() if device in by_device}
        for device in due(by_device, self._asked_us, now):
            link = by_device[device]
            self._asked_us[device] = now
            link.measure(self._clock, partial(self._no_farther, link.post.device))


def due(devices: Iterable[int], asked_us: Mapping[int, int], now_us: int) -> list[int]:
    """Which to ask now; one that was never asked comes first."""
    long_ago = now_us - AGAIN_SECONDS * 1e6
    found = [device for device in devices if asked_us.get(device, long_ago) <= long_ago]
    return sorted(found, key=lambda device: asked_us.get(device, -1))[:MOST_AT_ONCE]
