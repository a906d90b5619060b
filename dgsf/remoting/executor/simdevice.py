"""A simulated GPU under a session, with real values: the CPU computes, the launch queue keeps the GPU's time.

Where no time of kernels was declared, the time that the CPU took is the device's, as on a CPU device.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from dgsf.fabric.devices.sim import SimTiming
from dgsf.remoting.executor.costs import Cost, Meter
from dgsf.remoting.executor.devices import Host
from dgsf.remoting.executor.kinds import Prepared
from dgsf.remoting.executor.simqueue import LaunchQueue


class SimPrepared(Prepared):
    """Does the call and charges what it would cost; the cost of known shapes is remembered."""

    __slots__ = ("costs", "device")

    def bound(self, device: Any) -> None:
        self.device: SimDevice = device
        self.costs: dict[Any, tuple[int, int]] = {}

    def call(self, tensors: Sequence[Any], floats: Sequence[float]) -> Any:
        since = time.perf_counter_ns()
        key = tuple([(tensor.shape, tensor.dtype) for tensor in tensors])
        known = self.costs.get(key)
        if known is None:
            known, result = self._learn(tensors, floats)
            self.costs[key] = known
        else:
            result = super().call(tensors, floats)
        self.device.queue.launch(since, *known)
        return result

    def _learn(self, tensors: Sequence[Any], floats: Sequence[float]) -> tuple[tuple[int, int], Any]:
        with Meter(self.device.timing) as meter:
            result = super().call(tensors, floats)
        return in_ns(meter.cost), result


def in_ns(cost: Cost) -> tuple[int, int]:
    return cost.launches, int(cost.kernel_us * 1000)


class SimDevice(Host):
    """The CPU with a GPU's clock."""

    prepared: type[Prepared] = SimPrepared

    def __init__(self, timing: SimTiming) -> None:
        super().__init__()
        self.timing = timing
        self.queue = LaunchQueue(timing.launch_us)

    def used_us(self) -> int:
        return self.queue.used_ns // 1000 if self.timing.times_kernels else super().used_us()

    def finish(self) -> None:
        self.queue.finish()

    def put(self, tensor: torch.Tensor) -> Any:
        self._copied(tensor.nbytes)
        return super().put(tensor)

    def get(self, tensor: Any) -> torch.Tensor:
        self._copied(tensor.nbytes)
        self.queue.finish()
        return super().get(tensor)

    def _copied(self, size: int) -> None:
        if self.timing.model is not None:
            self.queue.launch(time.perf_counter_ns(), 1, int(self.timing.model.copy_us(size) * 1000))
