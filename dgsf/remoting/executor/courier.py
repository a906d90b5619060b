"""Sends a snapshot's bytes while the session goes on.

The state is copied at once, which is all that the commands behind it wait for; a thread sends the copy between
the answers.  One snapshot is under way at a time.  A copy that would not fit into the lease beside the session's
own tensors is not made: then the bytes are sent before the next command, as they are.
"""

from __future__ import annotations

import contextlib
import threading

import torch

from dgsf.errors import ConnectionLost
from dgsf.remoting.executor import uploads
from dgsf.remoting.executor.answers import Answers


class Courier:
    """Keeps its memory for the next time, when that is as large, unless the session's tensors need it."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._memory = torch.empty(0, dtype=torch.uint8)

    def wait(self) -> None:
        """Until nothing is under way."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def copy(self, pieces: list[torch.Tensor], size: int) -> list[memoryview]:
        """The pieces as they are now, one behind the other."""
        self.wait()
        if not size <= self._memory.numel() <= 2 * size:
            self.let_go()
            self._memory = torch.empty(size, dtype=torch.uint8)
        start = 0
        for piece in pieces:
            end = start + piece.numel()
            self._memory[start:end].copy_(piece)
            start = end
        return [uploads.bytes_of(self._memory[:size])] if size else []

    @property
    def kept_bytes(self) -> int:
        return int(self._memory.numel())

    def let_go(self) -> None:
        """Keep nothing; what is still being sent is given back when it is."""
        self._memory = torch.empty(0, dtype=torch.uint8)

    def send(self, answers: Answers, request: int, pieces: list[memoryview]) -> None:
        """Goes on in the background."""
        args = (answers, request, pieces, answers.frame)
        self._thread = threading.Thread(target=self._send, args=args, daemon=True)
        self._thread.start()

    def _send(self, answers: Answers, request: int, pieces: list[memoryview], frame: int) -> None:
        with contextlib.suppress(ConnectionLost):  # the session's own thread will find out
            answers.bulks(request, pieces, frame)
