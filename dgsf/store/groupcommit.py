"""Group commit: many calls' outcomes in one statement, and each caller told what became of its own.

Rows wait while a flush is under way and leave together in the next one.  A flush that the database refuses is
halved and repeated, so one bad row does not fail its neighbours.  A flush whose outcome is unknown (the
connection broke) fails its callers with StoreUnavailable and is settled as soon as the database answers
again: each of its calls gets a terminal row without a charge, or a refund if the flush had landed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from dgsf.errors import DgsfError, StoreUnavailable

log = logging.getLogger(__name__)
Row = TypeVar("Row")
Answer = TypeVar("Answer")
Done = Callable[["Answer | DgsfError"], None]
PROBE_SECONDS = 0.1
FLUSH_SECONDS = 10.0


class GroupCommit(Generic[Row, Answer]):
    """Collects rows and flushes them; one flush at a time."""

    def __init__(
        self,
        flush: Callable[[Sequence[Row]], Awaitable[Sequence[Answer]]],
        settle: Callable[[Row], Awaitable[object]],
        probe: Callable[[], Awaitable[object]],
        *,
        max_batch: int = 512,
    ) -> None:
        self._flush = flush
        self._settle = settle
        self._probe = probe
        self._max_batch = max_batch
        self._waiting: list[tuple[Row, Done[Answer]]] = []
        self._wake = asyncio.Event()
        self._unknown: list[Row] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False
        self.available = True
        self.flushes = 0
        self.rows = 0

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._recover())]

    async def stop(self) -> None:
        """Flush what waits, settle what can be settled, end."""
        self._closing = True
        self._wake.set()
        flusher, recoverer = self._tasks
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(flusher, FLUSH_SECONDS)
        recoverer.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await recoverer

    def submit(self, row: Row, done: Done[Answer]) -> None:
        """Commit this row with the next flush; `done` gets its answer, or why there is none."""
        if not self.available or self._closing:
            done(StoreUnavailable())
            return
        self._waiting.append((row, done))
        self._wake.set()

    async def _run(self) -> None:
        while not (self._closing and not self._waiting):
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                batch, self._waiting = self._waiting[: self._max_batch], self._waiting[self._max_batch :]
                await self._commit(batch)

    async def _commit(self, batch: list[tuple[Row, Done[Answer]]]) -> None:
        rows = [row for row, _ in batch]
        try:
            answers = await self._flush(rows)  # it has a deadline of its own
        except (StoreUnavailable, TimeoutError):
            self._lost(batch)
        except Exception as error:
            await self._halve(batch, error)
        else:
            self.flushes += 1
            self.rows += len(rows)
            for (_, done), answer in zip(batch, answers, strict=True):
                done(answer)

    async def _halve(self, batch: list[tuple[Row, Done[Answer]]], error: Exception) -> None:
        if len(batch) == 1:
            log.error("row_refused", extra={"error": str(error)})
            batch[0][1](DgsfError("the outcome of this call could not be recorded; it is not charged"))
            return
        middle = len(batch) // 2
        await self._commit(batch[:middle])
        await self._commit(batch[middle:])

    def _lost(self, batch: list[tuple[Row, Done[Answer]]]) -> None:
        """The database is away: this batch may have landed, those behind it were never sent."""
        self.available = False
        self._unknown.extend(row for row, _ in batch)
        behind, self._waiting = self._waiting, []
        log.warning("store_away", extra={"in_doubt": len(batch), "unsent": len(behind)})
        for _, done in (*batch, *behind):
            done(StoreUnavailable())

    async def _recover(self) -> None:
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            if self.available:
                continue
            with contextlib.suppress(StoreUnavailable, TimeoutError):
                await self._settle_unknown()
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self._probe()
                self.available = True
                log.info("store_back")

    async def _settle_unknown(self) -> None:
        while self._unknown:
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._settle(self._unknown[0])
            self._unknown.pop(0)
