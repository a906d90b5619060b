"""From what a worker is told about its device to the device itself."""

from __future__ import annotations

from typing import Any

from dgsf.core.devices import KERNELS_OPTION, TORCHS_CHOICE
from dgsf.errors import StartError
from dgsf.fabric.devices.sim import timing_of
from dgsf.remoting.executor.cudadevice import CudaDevice
from dgsf.remoting.executor.devices import Device, Host
from dgsf.remoting.executor.dummies import DummyDevice
from dgsf.remoting.executor.simdevice import SimDevice


def open_device(kind: str, options: dict[str, Any]) -> Device:
    """The device of this worker."""
    if kind == "cpu":
        return Host(torchs_choice=options.get(KERNELS_OPTION) == TORCHS_CHOICE)
    if kind == "cuda":
        return CudaDevice()
    if kind == "sim":
        timing = timing_of(options)
        return SimDevice(timing) if timing.values else DummyDevice(timing)
    raise StartError(f"device commands cannot be executed on a device of kind {kind!r}")
