"""The replay after a crash: which call ends the executor, if it is a call.

An executor that ended by itself was doing something of what it had not answered.  On the next device that part is
sent call by call with a SYNC behind each; nobody waits for them.  If the executor ends again, the first SYNC without
an answer tells the call.  One whose SYNCs are all answered got past it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dgsf.errors import ExecutorCrashed, SessionLost
from dgsf.remoting.guest.answers import Answers, Question
from dgsf.remoting.guest.stepping import Stepper
from dgsf.remoting.protocol import Record
from dgsf.wire.messages import Failure

_SYNC = int(Record.SYNC)
_GROUP = 64  # records that are sent together
MAX_CRASHES = 3  # of executors by themselves, without an answer in between


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


class Doubts:
    """What is known of an executor's crash, from its first to the end of it."""

    def __init__(self) -> None:
        self.any = False  # whether what the last executor had not answered may crash the next one
        self.trial: Trial | None = None  # the replay that is to find out
        self._crashes = 0  # since the last answer

    def answered(self) -> None:
        self._crashes = 0

    def crashed_at(self, failure: Failure) -> tuple[int, str] | None:
        """A device is lost by this: the call that crashed two, with the words for it; None: try another one."""
        trial, self.trial = self.trial, None
        culprit = trial.end() if trial is not None else None
        if trial is not None and trial.over:
            self.any = False
        if failure.code != ExecutorCrashed.code:
            return None
        self._crashes += 1
        if culprit is not None:
            call, op = culprit
            return call, f"{op} crashed the process that executed it, on two devices ({failure.message})"
        if self._crashes >= MAX_CRASHES:
            raise SessionLost(f"the session crashed {self._crashes} devices one after the other: {failure.message}")
        self.any = True
        return None
