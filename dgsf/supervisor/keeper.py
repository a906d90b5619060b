"""Keeps one part running: starts it again when it ends, later and later if it keeps ending.

A part that ends again and again before the platform is ready is a failed start, and so is one that says by its
exit status that its settings cannot work; its last words are in the error.  Once the platform is ready the keeper
never gives up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dgsf.errors import StartError
from dgsf.supervisor.processes import Child, Command, describe_exit, last_error, last_lines

_log = logging.getLogger(__name__)
STEADY_SECONDS = 10.0  # a part that ran for so long starts with a clean slate
FIRST_DELAY = 0.1  # before the second try in a row; the first is made at once
LONGEST_DELAY = 5.0
TRIES_AT_START = 4
CANNOT_WORK = 2  # the exit status of a part whose settings are wrong: to try again is of no use


class Running(Protocol):
    """A part that runs."""

    @property
    def pid(self) -> int: ...

    async def wait(self) -> int: ...

    async def stop(self, grace: float) -> None: ...

    def kill(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Part:
    """How to start a part, and what to do once it runs."""

    name: str
    start: Callable[[], Awaitable[Running]]
    log: Path
    stop_seconds: float = 10.0
    on_end: Callable[[], None] | None = None


def child_part(name: str, command: Callable[[], Command], log: Path, **more: object) -> Part:
    """A part that is a child process; its command is made anew for each start."""

    async def start() -> Running:
        return await Child.start(command())

    return Part(name, start, log, **more)  # type: ignore[arg-type]  # the fields above


def delay_after(failures: int) -> float:
    """How long a part rests that ended so many times in a row; one that was killed once is waited for: not at all."""
    return min(FIRST_DELAY * 2 ** (failures - 2), LONGEST_DELAY) if failures > 1 else 0.0


class Keeper:
    """One part, from the first start to the last stop."""

    def __init__(self, part: Part, say: Callable[[str], None], changed: Callable[[], None] = lambda: None) -> None:
        self.part = part
        self._changed = changed  # another process runs it now
        self.settled = False  # the platform has been ready
        self.hopeless = False  # its settings cannot work: it never did anything
        self._say = say
        self._running: Running | None = None
        self._stopping = False
        self._up = asyncio.Event()

    @property
    def pid(self) -> int | None:
        return None if self._running is None else self._running.pid

    async def up(self) -> None:
        """Until it runs (which does not mean that it is ready)."""
        await self._up.wait()

    async def run(self) -> None:
        """Keep it running until `stop`; raises StartError for a crash loop at the start."""
        failures = 0
        while True:
            began = time.monotonic()
            status = await self._once()
            if self._stopping:
                return
            steady = self.settled and time.monotonic() - began > STEADY_SECONDS
            failures = 1 if steady else failures + 1
            reason = last_error(self.part.log)
            self.hopeless = not self.settled and status == CANNOT_WORK and bool(reason)
            if self.hopeless or (not self.settled and failures >= TRIES_AT_START):
                raise self._gave_up(status)
            told = f"{describe_exit(status)}: {reason}" if reason else describe_exit(status)
            self._say(f"{self.part.name} ended ({told}); starting it again")
            _log.warning("part_ended", extra={"part": self.part.name, "status": status, "failures": failures})
            await asyncio.sleep(delay_after(failures))

    async def stop(self) -> None:
        self._stopping = True
        if self._running is not None:
            await self._running.stop(self.part.stop_seconds)

    def kill(self) -> None:
        """End it at once; it is started again unless `stop` was called."""
        if self._running is not None:
            self._running.kill()

    def give_up(self) -> None:
        self._stopping = True
        self.kill()

    async def _once(self) -> int:
        running = self._running = await self.part.start()
        self._up.set()
        self._changed()
        _log.info("part_started", extra={"part": self.part.name, "child": running.pid})
        if self._stopping:  # told while it was being started
            running.kill()
        status = await running.wait()
        self._running = None
        if self.part.on_end is not None and not self._stopping:
            self.part.on_end()
        return status

    def _gave_up(self, status: int) -> StartError:
        reason = last_error(self.part.log)
        if reason:
            return StartError(f"the {self.part.name} does not start: {reason}; log: {self.part.log}")
        words = "".join(f"\n    {line[:300]}" for line in last_lines(self.part.log))
        told = f"; its last words:{words}" if words else ""
        return StartError(f"the {self.part.name} does not start ({describe_exit(status)}); log: {self.part.log}{told}")
