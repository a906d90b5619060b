"""Streams and events of `torch.cuda` for the remote device, which does everything in one order."""

from __future__ import annotations

import time
from typing import Any

import torch

from dgsf.remoting.guest.bound import bound
from dgsf.remoting.guest.failures import guarded

_ALIAS = "cuda"


@guarded
def synchronize(device: Any = None) -> None:
    """Wait for all work of the device."""
    if bound.stream is not None:
        bound.stream.sync()


class _OfTheDevice:
    @property
    def device(self) -> torch.device:
        return torch.device(bound.name)


class Event(_OfTheDevice):
    """A moment in the device's work; recording one with timing waits for the device."""

    cuda_event = 0

    def __init__(self, enable_timing: bool = False, **_: Any) -> None:
        self._timing = enable_timing
        self._moment = 0.0

    def record(self, stream: Any = None) -> None:
        if self._timing:
            synchronize()
            self._moment = time.perf_counter()

    def synchronize(self) -> None:
        synchronize()

    def wait(self, stream: Any = None) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Event) -> float:
        return (end._moment - self._moment) * 1000

    def ipc_handle(self) -> bytes:
        raise NotImplementedError("an event of a remote device cannot be given to another process")


class Stream(_OfTheDevice):
    """There is one order of work; a stream is a name for it, and they are all the same."""

    device_index = cuda_stream = stream_id = priority = 0

    def __init__(self, *_: Any, **__: Any) -> None: ...

    @property
    def device_type(self) -> int:
        kinds = torch._C._autograd.DeviceType
        return int(kinds.CUDA if self.device.type == _ALIAS else kinds.PrivateUse1)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None: ...

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return hash(Stream)

    @classmethod
    def priority_range(cls) -> tuple[int, int]:
        return 0, 0

    def synchronize(self) -> None:
        synchronize()

    def wait_stream(self, stream: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def record_event(self, event: Any = None) -> Any:
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        return True


class StreamContext:
    """`with torch.cuda.stream(stream):`"""

    def __init__(self, stream: Any = None) -> None:
        self.stream = stream

    def __enter__(self) -> None: ...

    def __exit__(self, *_: Any) -> None: ...


class _OfAnyDevice(type):
    """The class of `torch.Stream` and `torch.Event`: those of the remote device are ours, all others torch's."""

    torchs: Any
    ours: Any

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.torchs | cls.ours)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, cls.torchs | cls.ours)

    def __call__(cls, device: Any = None, *args: Any, **kwargs: Any) -> Any:
        if device is not None and not isinstance(device, int) and torch.device(device).type == _ALIAS:
            return cls.ours(**kwargs)
        return cls.torchs(*(() if device is None else (device,)), *args, **kwargs)


def of_any_device(torchs: Any, ours: Any, name: str) -> Any:
    """A stand-in for torch's class of this name."""
    return _OfAnyDevice(name, (), {"torchs": torchs, "ours": ours, "__module__": "torch"})
