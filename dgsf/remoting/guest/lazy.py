"""A stream that asks for its device when that is first used.

A function may never touch its device, and then should neither wait for one nor keep it from others.  Once
opened, this one's methods are those of the real stream, so that calls go straight to it.  What needs no
device is answered without one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dgsf.remoting.guest.bound import bound
from dgsf.remoting.guest.generators import seed_alone, state_of
from dgsf.remoting.guest.kinds import Kind, Meta, Stream
from dgsf.remoting.guest.modes import FULL, Modes

# All but `free`, by which tensors know their session again.
_METHODS = tuple(name for name in vars(Stream) if not name.startswith("_") and name != "free")


class LazyStream:
    """See `dgsf.remoting.guest.kinds.Stream`; `opener` makes the real one, and may be tried again if it fails.

    The real one gets the place where handles are freed: tensors that wait for their memory know it already.
    """

    def __init__(self, opener: Callable[[deque[int]], Stream], modes: Modes = FULL) -> None:
        self.modes = modes
        self._freed: deque[int] = deque()
        self.free = self._freed.append
        self.real: Stream | None = None
        self._opener = opener
        self._lock = threading.RLock()
        self._seed = 0

    def _open(self) -> Stream:
        with self._lock:
            if self.real is None:
                self.real = self._opener(self._freed)
                self.real.seed(self._seed)
                self._step_aside(self.real)
            return self.real

    def _step_aside(self, real: Stream) -> None:
        """Still the stream that tensors know, but its methods are the real one's own."""
        for name in _METHODS:
            setattr(self, name, getattr(real, name))
        if bound.stream is self:
            bound.call = real.call

    # --- what needs a device
    def call(self, kind: Kind, handles: list[int], floats: Sequence[float] = ()) -> int:
        return self._open().call(kind, handles, floats)

    def ask(self, kind: Kind, handles: list[int], floats: Sequence[float] = ()) -> tuple[int, list[Any]]:
        return self._open().ask(kind, handles, floats)

    def meta(self, handle: int) -> Meta:
        return self._open().meta(handle)

    def upload(self, tensor: torch.Tensor) -> int:
        return self._open().upload(tensor)

    def fetch(self, handle: int) -> torch.Tensor:
        return self._open().fetch(handle)

    def memory(self, forget_peak: bool = False) -> tuple[int, int, int]:
        return self._open().memory(forget_peak)

    def lease(self) -> int:
        return self._open().lease()

    # --- what does not
    def seed(self, seed: int) -> None:
        with self._lock:
            if self.real is None:
                self._seed = seed
            else:
                self.real.seed(seed)

    def rng_state(self) -> torch.Tensor:
        """Of a device that is not there yet its seed; torch asks this of every device, also for CPU code."""
        real = self.real  # without the lock: CPU code does not wait for a device that another thread opens
        return state_of(self._seed) if real is None else real.rng_state()

    def set_rng_state(self, state: torch.Tensor) -> None:
        seed = seed_alone(state)
        if seed is None:
            self._open().set_rng_state(state)
        else:
            self.seed(seed)

    def sync(self) -> None:
        if self.real is not None:
            self.real.sync()

    def flush(self) -> None:
        if self.real is not None:
            self.real.flush()

    def forked(self) -> None:
        if self.real is not None:
            self.real.forked()

    def close(self) -> None:
        if self.real is not None:
            self.real.close()
