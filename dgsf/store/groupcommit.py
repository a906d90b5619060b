"""Group commit: many calls' outcomes in one statement, and each caller told what became of its own.

Rows wait while a flush is under way and leave together in the next one.  A flush that the database refuses is
halved and repeated, so one bad row does not fail its neighbours.  A flush whose outcome is unknown (the
connection broke) fails its callers with OutcomeUnknown, because their calls have run, and is settled as soon
as the database answers again: each of its calls gets a terminal row without a charge, or a refund if the
flush had landed.  The same is done for rows that came too late to be sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from dgsf.errors import DgsfError, OutcomeUnknown, StoreUnavailable

log = logging.getLogger(__name__)
Row = TypeVar("Row")
Answer = TypeVar("Answer")
Done = Callable[["Answer | DgsfError"], None]
PROBE_SECONDS = 0.1
FLUSH_SECONDS = 10.0
LAST_SETTLE_SECONDS = 3.0
SETTLE_TRIES = 3
_LOST = "the database was lost when the end of this call was to be recorded; nothing is charged"


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
        self._unknown: deque[tuple[Row, int]] = deque()  # with how often settling it has failed
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
        await self._settle_last()

    def submit(self, row: Row, done: Done[Answer]) -> None:
        """Commit this row with the next flush; `done` gets its answer, or why there is none."""
        if not self.available or self._closing:
            self._unknown.append((row, 0))
            self._tell(done, OutcomeUnknown(_LOST))
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
        if not self.available:  # lost between the halves of a batch
            self._lost(batch)
            return
        try:
            answers = await self._flush(rows)  # it has a deadline of its own
        except (StoreUnavailable, TimeoutError):
            self._lost(batch)
        except asyncio.CancelledError:
            self._lost(batch)
            raise
        except Exception as error:
            await self._halve(batch, error)
        else:
            self.flushes += 1
            self.rows += len(rows)
            for (_, done), answer in zip(batch, answers, strict=True):
                self._tell(done, answer)

    async def _halve(self, batch: list[tuple[Row, Done[Answer]]], error: Exception) -> None:
        if len(batch) == 1:
            log.error("row_refused", extra={"error": str(error)})
            self._tell(batch[0][1], DgsfError("the outcome of this call could not be recorded; it is not charged"))
            return
        middle = len(batch) // 2
        await self._commit(batch[:middle])
        await self._commit(batch[middle:])

    def _lost(self, batch: list[tuple[Row, Done[Answer]]]) -> None:
        """The database is away: this batch may have landed, those behind it were never sent; all have run."""
        self.available = False
        behind, self._waiting = self._waiting, []
        self._unknown.extend((row, 0) for row, _ in (*batch, *behind))
        log.warning("store_away", extra={"in_doubt": len(batch), "unsent": len(behind)})
        for _, done in (*batch, *behind):
            self._tell(done, OutcomeUnknown(_LOST))

    def _tell(self, done: Done[Answer], answer: Answer | DgsfError) -> None:
        try:
            done(answer)
        except Exception:  # one caller's trouble is not its neighbours'
            log.exception("answer_not_taken")

    async def _recover(self) -> None:
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            try:
                if not self.available:
                    await self._look()
                await self._settle_unknown()
            except (StoreUnavailable, TimeoutError):
                continue
            except Exception:
                log.exception("recovery_failed")

    async def _look(self) -> None:
        async with asyncio.timeout(FLUSH_SECONDS):
            await self._probe()
        self.available = True
        log.info("store_back")

    async def _settle_unknown(self) -> None:
        """Each of them once; one that fails goes behind the others."""
        for _ in range(len(self._unknown)):
            row, failed = self._unknown[0]
            try:
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self._settle(row)
            except (StoreUnavailable, TimeoutError):
                self._unknown.rotate(-1)
                raise
            except Exception:
                log.exception("settle_failed", extra={"row": _name(row), "tries": failed + 1})
                self._unknown.popleft()
                self._again(row, failed + 1)
            else:
                self._unknown.popleft()

    def _again(self, row: Row, failed: int) -> None:
        if failed < SETTLE_TRIES:
            self._unknown.append((row, failed))
        else:
            log.error("row_unsettled", extra={"row": _name(row)})

    async def _settle_last(self) -> None:
        """Before the end: settle what can be settled, for a moment, and say what is left."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_SETTLE_SECONDS):
                while self._unknown:
                    with contextlib.suppress(StoreUnavailable):
                        await self._settle_unknown()
                    if self._unknown:
                        await asyncio.sleep(PROBE_SECONDS)
        if self._unknown:
            log.warning("rows_left_unsettled", extra={"rows": [_name(row) for row, _ in self._unknown]})


def _name(row: object) -> str:
    return str(getattr(row, "id", row))
