"""The functions of `torch.cuda` that programs ask before they use a device, answered for the remote one."""

from __future__ import annotations

import time
from contextlib import ExitStack, nullcontext
from types import SimpleNamespace
from typing import Any

import torch

from dgsf.remoting.guest import memory
from dgsf.remoting.guest.backend import MODULE
from dgsf.remoting.guest.replacing import replace

NAME = "DGSF remote device"


class Event:
    """A moment in the device's work; recording one with timing waits for the device."""

    def __init__(self, enable_timing: bool = False, **_: Any) -> None:
        self._timing = enable_timing
        self._moment = 0.0

    def record(self, stream: Any = None) -> None:
        if self._timing:
            MODULE.synchronize()
            self._moment = time.perf_counter()

    def synchronize(self) -> None:
        MODULE.synchronize()

    def wait(self, stream: Any = None) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Event) -> float:
        return (end._moment - self._moment) * 1000


class Stream:
    """There is one order of work; a stream is a name for it."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def synchronize(self) -> None:
        MODULE.synchronize()

    def wait_stream(self, stream: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def record_event(self, event: Any = None) -> Any:
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        return True


class Device:
    """`with torch.cuda.device(0):`; a class, because torch asks whether something is one."""

    def __init__(self, device: Any = None) -> None:
        only(device)
        self.idx = 0

    def __enter__(self) -> None: ...

    def __exit__(self, *_: Any) -> None: ...


class DeviceOf(Device):
    """`with torch.cuda.device_of(tensor):`"""

    def __init__(self, tensor: Any) -> None:
        super().__init__()


class Graph:
    """Recording and replaying by hand has no meaning here."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(
            "CUDA graphs are not available on a remote device; run the code without one: its calls are batched already"
        )


def only(device: Any) -> None:
    """Refuse any device but the first of CUDA, which is the remote one."""
    kind, _, number = str(device).partition(":") if isinstance(device, str | torch.device) else ("cuda", "", device)
    if kind != "cuda":
        raise ValueError(f"expected a cuda device, but got {device}")
    if str(number or 0) != "0" and number != -1:  # -1: torch's word for "as it is"
        raise RuntimeError(f"there is only one remote device, cuda:0; cuda:{number} does not exist")


def _of_device(answer: Any) -> Any:
    """A function of torch.cuda whose only argument of weight is the device."""

    def answered(device: Any = None, **_: Any) -> Any:
        only(device)
        return answer()

    return answered


def _properties() -> SimpleNamespace:
    return SimpleNamespace(name=NAME, major=8, minor=0, total_memory=memory.lease(), multi_processor_count=1)


def _zero(*_: Any, **__: Any) -> int:
    return 0


def _nothing(*_: Any, **__: Any) -> None:
    return None


ANSWERS: dict[str, Any] = {
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "init": _nothing,
    "_lazy_init": _nothing,
    "device_count": lambda: 1,
    "current_device": _zero,
    "set_device": _of_device(_nothing),
    "get_device_name": _of_device(lambda: NAME),
    "get_device_capability": _of_device(lambda: (8, 0)),
    "get_device_properties": _of_device(_properties),
    "synchronize": _of_device(MODULE.synchronize),
    "empty_cache": _nothing,
    "ipc_collect": _nothing,
    "manual_seed": MODULE.manual_seed,
    "manual_seed_all": MODULE.manual_seed_all,
    "seed": MODULE.seed,
    "seed_all": MODULE.seed_all,
    "initial_seed": MODULE.initial_seed,
    "get_rng_state": lambda device=None: MODULE.get_rng_state(),
    "set_rng_state": lambda state, device=None: MODULE.set_rng_state(state),
    "get_rng_state_all": MODULE.get_rng_state_all,
    "set_rng_state_all": MODULE.set_rng_state_all,
    "is_bf16_supported": lambda *_, **__: True,
    "is_current_stream_capturing": lambda: False,
    "device": Device,
    "device_of": DeviceOf,
    "set_per_process_memory_fraction": _nothing,
    "can_device_access_peer": lambda *_, **__: False,
    "stream": lambda stream=None: nullcontext(),
    "current_stream": lambda device=None: Stream(),
    "default_stream": lambda device=None: Stream(),
    "Event": Event,
    "Stream": Stream,
    "set_sync_debug_mode": _nothing,
    "get_sync_debug_mode": _zero,
    "memory_snapshot": lambda *_, **__: [],
    "get_allocator_backend": lambda: "native",
    "get_per_process_memory_fraction": lambda device=None: 1.0,
    "CUDAGraph": Graph,
    "graph": Graph,
    "make_graphed_callables": Graph,
    **{name: _of_device(answer) for name, answer in memory.ANSWERS.items()},
}
_MARKS = ("range_push", "range_pop", "range_start", "range_end", "mark")  # for a profiler that is not here


def install(stack: ExitStack) -> None:
    for name, answer in ANSWERS.items():
        replace(stack, torch.cuda, name, answer if isinstance(answer, type) else _own(answer))
    replace(stack, torch.cuda, "_initialized", True)  # gradient checkpointing reads it, see `backend`
    for name in memory.ANSWERS:
        replace(stack, torch.cuda.memory, name, getattr(torch.cuda, name))
    for name in _MARKS:
        replace(stack, torch.cuda.nvtx, name, _own(_zero))


def _own(answer: Any) -> Any:
    """A function of its own for each name: torch keeps tables of its functions by identity."""
    return lambda *args, **kwargs: answer(*args, **kwargs)
