"""Questions to the executor and the answers that come back.

A question is a record with a request number; its answer may be followed by bulk bytes, for which the question
gives the place; if it has none its bytes are thrown away, and whoever asked is told.  Answers to questions that nobody
waits for (those of a replay) are dropped.  What arrives unasked goes to the stream's own ears: contents that the
executor needs, and errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import torch

from dgsf.errors import ProtocolError
from dgsf.remoting.guest.intake import Sink
from dgsf.remoting.protocol import Status

_decode = msgspec.msgpack.Decoder().decode


class Question:
    """One request: `size_of` tells from an answer's content how many bulk bytes follow it, `place_of` where they go."""

    __slots__ = ("again", "bulk", "content", "done", "failure", "number", "on_done", "place_of", "size_of", "trouble")

    def __init__(self, number: int, size_of: Callable[[Any], int] | None = None) -> None:
        self.number = number
        self.size_of = size_of
        self.again: list[Any] | None = None  # its record, if it only reads: asked again on another device
        self.on_done: Callable[[Question], None] | None = None
        self.place_of: Callable[[int], memoryview] = _fresh
        self.done = False
        self.content: Any = None
        self.failure: tuple[int, str, str] | None = None
        self.bulk: memoryview | None = None
        self.trouble: Exception | None = None  # why there was no place for its bytes

    def finish(self) -> None:
        if self.on_done is not None:
            self.on_done(self)
        self.done = True  # last: a thread that sees this finds the rest done, too


class Answers:
    """The open questions, and where their bulk bytes go."""

    def __init__(
        self, on_need: Callable[[list[bytes]], None], on_failure: Callable[[tuple[int, str, str]], None]
    ) -> None:
        self.open: dict[int, Question] = {}
        self._next = 1
        self._on_need = on_need
        self._on_failure = on_failure

    def question(self, size_of: Callable[[Any], int] | None = None) -> Question:
        question = Question(self._next, size_of)
        self._next = self._next % 0xFFFFFFFF + 1
        self.open[question.number] = question
        return question

    def close(self, question: Question) -> None:
        self.open.pop(question.number, None)

    def take(self, body: bytes) -> tuple[int, Sink] | None:
        """One answer; returns the place for its bulk bytes, if some follow."""
        request, status, content = _parts(body)
        if status == Status.NEED:
            self._on_need([bytes(digest) for digest in content])
            return None
        question = self.open.get(request)
        if question is None:
            if request == 0 and status == Status.FAILED:
                self._on_failure(_failure(content))
            return None
        if status == Status.FAILED:
            question.failure = _failure(content)
            question.finish()
            return None
        question.content = content
        size = question.size_of(content) if question.size_of is not None else 0
        if not size:
            question.finish()
            return None
        try:
            question.bulk = question.place_of(size)
        except Exception as error:  # whoever reads these frames may be another thread than the one that asked
            question.trouble = error.with_traceback(None)
        return request, Sink(question.bulk, question.finish, size)

    def start_over(self) -> None:
        """The device is gone: open questions will be answered by another, from the start."""
        for question in self.open.values():
            if question.done:
                continue
            question.bulk = None
            question.content = None
            question.trouble = None


def _fresh(size: int) -> memoryview:
    return memoryview(torch.empty(size, dtype=torch.uint8).numpy())  # numpy's own has slow huge pages


def _parts(body: bytes) -> tuple[int, int, Any]:
    try:
        request, status, content = _decode(body)
    except (msgspec.DecodeError, TypeError, ValueError) as error:
        raise ProtocolError(f"not a valid answer: {error}") from error
    return request, status, content


def _failure(content: Any) -> tuple[int, str, str]:
    try:
        call, code, message = content
        return int(call), str(code), str(message)
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"not a valid failure: {error}") from error
