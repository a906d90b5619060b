"""A CUDA GPU under a session: calls are launches, device time is what events on the stream say.

`CudaRuntime` is the narrow edge to torch.cuda; everything above it is tested with another one in its place.
The memory bound of the process is set when the worker is made (dgsf.fabric.devices.cuda).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import torch

from dgsf.remoting.executor.devices import Host, restore
from dgsf.remoting.executor.stand_ins import off_cpu
from dgsf.remoting.executor.zeroed import zeroing

MAX_PENDING = 1024  # spans whose events are not done yet


class Runtime(Protocol):
    """What is needed of a GPU's driver."""

    device: torch.device

    def mark(self) -> Any:
        """An event on the stream, here and now."""
        ...

    def done(self, event: Any) -> bool: ...

    def span_us(self, begin: Any, end: Any) -> float:
        """Between two events that are done."""
        ...

    def synchronize(self) -> None: ...

    def upload(self, tensor: torch.Tensor) -> torch.Tensor: ...

    def download(self, tensor: torch.Tensor) -> torch.Tensor: ...

    def generator(self) -> Any: ...


class CudaRuntime:
    """The first visible GPU."""

    def __init__(self) -> None:
        self.device = torch.device("cuda", 0)

    def mark(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def done(self, event: Any) -> bool:
        return bool(event.query())

    def span_us(self, begin: Any, end: Any) -> float:
        return float(begin.elapsed_time(end) * 1000)

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def upload(self, tensor: torch.Tensor) -> torch.Tensor:
        """Through pinned memory, so that the copy overlaps; the allocator keeps it until the copy is done."""
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def download(self, tensor: torch.Tensor) -> torch.Tensor:
        pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        pinned.copy_(tensor)
        return pinned

    def generator(self) -> Any:
        return torch.cuda.default_generators[0]


class CudaDevice(Host):
    """Asynchronous: a call that returned is launched, not done."""

    def __init__(self, runtime: Runtime | None = None) -> None:
        super().__init__()
        self._runtime: Runtime = runtime if runtime is not None else CudaRuntime()
        self.torch_device = self._runtime.device
        self._began: Any = None
        self._spans: deque[tuple[Any, Any]] = deque()
        self._device_us = 0.0

    def bind(self, overload: Any, name: str) -> Callable[..., Any]:
        return zeroing(name, off_cpu(name, overload._op))

    # --- time
    def begin(self) -> None:
        self._began = self._runtime.mark()

    def end(self) -> None:
        self._spans.append((self._began, self._runtime.mark()))
        if len(self._spans) > MAX_PENDING:
            self._runtime.synchronize()
            self._count()

    def used_us(self) -> int:
        self._count()
        return int(self._device_us)

    def _count(self) -> None:
        while self._spans and self._runtime.done(self._spans[0][1]):
            self._device_us += self._runtime.span_us(*self._spans.popleft())

    def finish(self) -> None:
        self._runtime.synchronize()

    # --- bytes
    def put(self, tensor: torch.Tensor) -> Any:
        return self._runtime.upload(tensor)

    def get(self, tensor: Any) -> torch.Tensor:
        found = self._runtime.download(super().get(tensor))
        self._runtime.synchronize()
        return found

    def get_storage(self, tensor: Any) -> torch.Tensor:
        return self._runtime.download(super().get_storage(tensor))

    def adopt(self, raw: torch.Tensor) -> torch.Tensor:
        return self._runtime.upload(raw)

    # --- random numbers
    def seed(self, seed: int) -> None:
        super().seed(seed)
        self._runtime.generator().manual_seed(seed)

    def rng_state(self) -> bytes:
        return bytes(self._runtime.generator().get_state().numpy())

    def set_rng_state(self, state: bytes) -> None:
        restore(self._runtime.generator(), state)
