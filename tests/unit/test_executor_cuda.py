"""The CUDA device over another runtime: time comes from events, bytes go through the runtime, syncs are waited for."""

from __future__ import annotations

from itertools import count

import torch

from dgsf.remoting.executor.cudadevice import MAX_PENDING, CudaDevice


class HostRuntime:
    """A GPU that takes a millisecond between any two marks and is done only after a synchronisation."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self._marks = count()
        self._reached = -1
        self._last = -1
        self.own = torch.Generator()
        self.uploads = 0

    def mark(self) -> int:
        self._last = next(self._marks)
        return self._last

    def done(self, event: int) -> bool:
        return event <= self._reached

    def span_us(self, begin: int, end: int) -> float:
        return (end - begin) * 1000.0

    def synchronize(self) -> None:
        self._reached = self._last

    def upload(self, tensor: torch.Tensor) -> torch.Tensor:
        self.uploads += 1
        return tensor.clone()

    def download(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone()

    def generator(self) -> torch.Generator:
        return self.own


def test_time_counts_when_the_events_are_done() -> None:
    device = CudaDevice(HostRuntime())
    for _ in range(3):
        device.begin()
        device.end()
    assert device.used_us() == 0
    device.finish()
    assert device.used_us() == 3000


def test_events_do_not_pile_up() -> None:
    device = CudaDevice(HostRuntime())
    for _ in range(MAX_PENDING + 1):
        device.begin()
        device.end()
    assert device.used_us() == (MAX_PENDING + 1) * 1000


def test_bytes_and_random_numbers_are_the_runtimes() -> None:
    runtime = HostRuntime()
    device = CudaDevice(runtime)
    x = torch.randn(3, 2)
    on_device = device.put(x)
    assert runtime.uploads == 1 and torch.equal(device.get(on_device.t()), x.t())
    device.seed(4)
    state = device.rng_state()
    first = torch.rand(3, generator=runtime.own)
    device.set_rng_state(state)
    assert torch.equal(first, torch.rand(3, generator=runtime.own))
    whole = device.adopt(device.get_storage(on_device))
    view = device.put_view(whole, torch.float32, [2, 3], [1, 2], 0, 0)
    assert torch.equal(view, x.t())


def dirty(overload: object) -> object:
    """A kernel whose new memory is full of ones, as if somebody had been there."""

    class Dirty:
        @staticmethod
        def _op(*args: object, **kwargs: object) -> torch.Tensor:
            target = overload(*args, **kwargs)  # type: ignore[operator]
            target.view(-1)[-4:].fill_(1.0)
            return target

    return Dirty


def test_memory_of_others_does_not_show() -> None:
    device, aten = CudaDevice(HostRuntime()), torch.ops.aten
    given = torch.full((2,), 7.0)
    for overload, args in (
        (aten.empty.memory_format, ([4],)), (aten.empty_like.default, (torch.ones(4),)),
        (aten.empty_strided.default, ([2, 2], [2, 1])), (aten.new_empty.default, (given, [4])),
    ):  # fmt: skip
        made = device.bind(dirty(overload), overload.name())(*args)
        assert not made.any(), overload
    grown = device.bind(dirty(aten.resize_.default), "aten::resize_")(given, [6])
    assert grown.tolist() == [7.0, 7.0, 0.0, 0.0, 0.0, 0.0]
