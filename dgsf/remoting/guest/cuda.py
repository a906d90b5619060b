"""The functions of `torch.cuda` that programs ask before they use a device, answered for the remote one."""

from __future__ import annotations

import time
from contextlib import ExitStack, nullcontext
from types import SimpleNamespace
from typing import Any

import torch

from dgsf.remoting.guest.backend import MODULE
from dgsf.remoting.guest.bound import bound
from dgsf.remoting.guest.patches import replace

NAME = "DGSF remote device"
_UNKNOWN_MEMORY = 1 << 34


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
        self.idx = 0

    def __enter__(self) -> None: ...

    def __exit__(self, *_: Any) -> None: ...


def _properties() -> SimpleNamespace:
    began = getattr(bound.need(), "device", None)
    memory = _UNKNOWN_MEMORY if began is None else began.memory_bytes
    return SimpleNamespace(name=NAME, major=8, minor=0, total_memory=memory, multi_processor_count=1)


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
    "set_device": _nothing,
    "get_device_name": lambda device=None: NAME,
    "get_device_capability": lambda device=None: (8, 0),
    "get_device_properties": lambda device=None: _properties(),
    "synchronize": lambda device=None: MODULE.synchronize(),
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
    "memory_allocated": _zero,
    "max_memory_allocated": _zero,
    "memory_reserved": _zero,
    "max_memory_reserved": _zero,
    "reset_peak_memory_stats": _nothing,
    "is_bf16_supported": lambda *_, **__: True,
    "is_current_stream_capturing": lambda: False,
    "device": Device,
    "device_of": Device,
    "set_per_process_memory_fraction": _nothing,
    "reset_max_memory_allocated": _nothing,
    "can_device_access_peer": lambda *_, **__: False,
    "stream": lambda stream=None: nullcontext(),
    "current_stream": lambda device=None: Stream(),
    "default_stream": lambda device=None: Stream(),
    "Event": Event,
    "Stream": Stream,
}


def install(stack: ExitStack) -> None:
    for name, answer in ANSWERS.items():
        replace(stack, torch.cuda, name, answer if isinstance(answer, type) else _own(answer))


def _own(answer: Any) -> Any:
    """A function of its own for each name: torch keeps tables of its functions by identity."""
    return lambda *args, **kwargs: answer(*args, **kwargs)
