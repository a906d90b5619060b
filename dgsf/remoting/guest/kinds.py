"""What the tensor side of the guest and its stream of commands know of each other.

The tensor side (`tensor`, `dispatch`) knows torch and decides what a call is; the stream knows the wire and
decides when it is sent.  A `Kind` is an operator with everything but its tensors and floats; calls of the
same kind are made of nothing but handles and floats, so they are cheap to compare, to send and to replay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from dgsf.remoting.protocol import FLOAT32, Record

_DEFINE = int(Record.DEFINE)
Meta = tuple[torch.dtype, tuple[int, ...], tuple[int, ...], int]  # dtype, sizes, strides, storage offset


@dataclass(slots=True, eq=False)
class Kind:
    """One kind of call, in the words of dgsf.remoting.protocol; compared by identity."""

    op: str  # "aten::add.Tensor"
    args: list[Any]
    kwargs: dict[str, Any] = field(default_factory=dict)
    outs: int = 1  # handles that a call uses up
    default: int = FLOAT32  # the code of the default dtype that a call is done under
    number: int = -1  # the stream's own: its number on the wire
    generation: int = 0  # the stream's own: where that number is known

    def definition(self, number: int) -> list[Any]:
        """The record that gives it a number."""
        record = [_DEFINE, number, self.op, self.args, self.kwargs]
        return record if self.default == FLOAT32 else [*record, self.default]


class Stream(Protocol):
    """An ordered stream of commands to one remote device; every method may be called from any thread."""

    @property
    def free(self) -> Callable[[int], None]:
        """Notes that nobody needs a handle any more; by it tensors know their session.

        Finalizers call it: it is a built-in function, in which no signal is handled.
        """
        ...

    def call(self, kind: Kind, handles: list[int], floats: Sequence[float] = ()) -> int:
        """Do it some time, in order; returns the first of the new handles. Never waits for the device."""
        ...

    def ask(
        self, kind: Kind, handles: list[int], floats: Sequence[float] = ()
    ) -> tuple[int, list[Meta | float | int | bool | complex | None]]:
        """Do it and wait: the first new handle, and what came out (metadata of tensors, or values)."""
        ...

    def meta(self, handle: int) -> Meta: ...

    def upload(self, tensor: torch.Tensor) -> int:
        """The handle of a copy of this CPU tensor, taken now; contiguous on the device."""
        ...

    def fetch(self, handle: int) -> torch.Tensor:
        """A contiguous CPU copy of the remote tensor, of the same dtype and sizes."""
        ...

    def seed(self, seed: int) -> None: ...

    def rng_state(self) -> torch.Tensor: ...

    def set_rng_state(self, state: torch.Tensor) -> None: ...

    def memory(self, forget_peak: bool = False) -> tuple[int, int, int]:
        """Bytes that are live, the most that were, and the lease."""
        ...

    def lease(self) -> int:
        """Bytes of device memory that the session has in all; told when it was opened."""
        ...

    def sync(self) -> None:
        """Wait until everything so far is done; raises the first error of it."""
        ...

    def flush(self) -> None:
        """Send what waits, without waiting for it."""
        ...

    def close(self) -> None: ...

    def forked(self) -> None:
        """This is a child of the process that has the session: let go of it here, without a word to the device."""
        ...
