"""The handles of a session: its live tensors, and which handles are missing because a call failed.

A failed call leaves its handles empty.  Whoever asks for a missing handle learns whether it was lost to a
failure (then the asker is skipped) or never existed (then the asker is wrong).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass
from typing import Any

from dgsf.errors import DgsfError, SessionRefused

MAX_FAILURES = 100_000


@dataclass(frozen=True, slots=True)
class CallFailure:
    """A call that failed: its number in the generation, and why."""

    call: int
    code: str
    message: str

    @classmethod
    def of(cls, call: int, error: DgsfError) -> CallFailure:
        return cls(call, error.code, error.message)

    def content(self) -> list[Any]:
        return [self.call, self.code, self.message]


class Handles:
    """Live tensors by handle. `tensors` is read directly on the hot path."""

    __slots__ = ("_failed", "_why", "tensors", "untold")

    def __init__(self) -> None:
        self.tensors: dict[int, Any] = {}
        self.untold: CallFailure | None = None  # the first failure that the guest does not know of
        self._failed: list[int] = []  # first handles of failed calls, sorted
        self._why: dict[int, tuple[int, CallFailure]] = {}  # by first handle: the one after the last, and why

    def fail(self, out: int, failure: CallFailure, count: int = 1, tell: bool = True) -> None:
        """The results of a call, so many from this handle on, will never be there."""
        if len(self._failed) >= MAX_FAILURES:
            raise SessionRefused(f"more than {MAX_FAILURES} calls failed")
        if out not in self._why:
            insort(self._failed, out)
        self._why[out] = (out + count, failure)
        if tell:
            self.tell(failure)

    def tell(self, failure: CallFailure) -> None:
        """With the next answer, if it is the first."""
        if self.untold is None:
            self.untold = failure

    def lost_to(self, handle: int) -> CallFailure | None:
        """Why this missing handle is missing; None if it never was or was freed."""
        place = bisect_right(self._failed, handle)
        if not place:
            return None
        end, failure = self._why[self._failed[place - 1]]
        return failure if handle < end else None

    def take_untold(self) -> CallFailure | None:
        failure, self.untold = self.untold, None
        return failure

    def failures(self) -> list[list[Any]]:
        """All of it, to be told to another executor."""
        return [[out, self._why[out][0] - out, *self._why[out][1].content()] for out in self._failed]

    def restore_failures(self, rows: list[list[Any]]) -> None:
        self._failed = []
        self._why = {}
        for out, count, call, code, message in rows:
            self.fail(out, CallFailure(call, code, message), count, tell=False)
