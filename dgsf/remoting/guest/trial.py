"""The replay after a crash: which call ends the executor, if it is a call.

An executor that ended by itself was doing something of what it had not answered.  On the next device that part is
sent call by call with a SYNC behind each; nobody waits for them.  If the executor ends again, the first SYNC without
an answer tells the call.  One whose SYNCs are all answered got past it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dgsf.remoting.guest.answers import Answers, Question
from dgsf.remoting.guest.stepping import Stepper
from dgsf.remoting.protocol import Record

_SYNC = int(Record.SYNC)
_GROUP = 64  # records that are sent together


class Trial:
    """One replay."""

    def __init__(self, stepper: Stepper, answers: Answers, owe: Callable[[tuple[int, str, str]], None]) -> None:
        self._stepper = stepper
        self._answers = answers
        self._owe = owe
        self._spots: list[tuple[int, str]] = []  # per SYNC: the number of the call before it, its operator
        self._waiting: dict[int, Question] = {}
        self._passed = 0

    def begin(self) -> list[Any]:
        """The SYNC behind what went well the first time."""
        return self._mark(0, "")

    def groups(self, records: list[list[Any]]) -> Iterator[list[Any]]:
        """The same records, to be sent a few at a time."""
        group: list[Any] = []
        for step in self._stepper.steps(records):
            group.append(step.record)
            if step.op:
                group.append(self._mark(self._stepper.calls, step.op))
            if len(group) >= _GROUP:
                yield group
                group = []
        if group:
            yield group

    @property
    def over(self) -> bool:
        """Whether it got past all of it."""
        return self._passed == len(self._spots)

    def end(self) -> tuple[int, str] | None:
        """The executor is gone: the number and operator of the call that it was doing, if it can be told."""
        for question in self._waiting.values():
            self._answers.close(question)
        spot = None if self.over else self._spots[self._passed]
        return spot if spot is not None and spot[1] else None

    def _mark(self, call: int, op: str) -> list[Any]:
        question = self._answers.question()
        question.on_done = self._told
        self._spots.append((call, op))
        self._waiting[question.number] = question
        return [_SYNC, question.number]

    def _told(self, question: Question) -> None:
        self._passed += 1
        del self._waiting[question.number]
        self._answers.close(question)
        if question.failure is not None:  # of the call before it: the program has not heard of it yet
            self._owe(question.failure)
