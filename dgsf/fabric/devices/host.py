"""Function hosts: no device, only a share of the machine for the bodies of functions whose device is remote."""

from __future__ import annotations

import dataclasses

from dgsf.config import MIB
from dgsf.core.devices import DeviceSpec
from dgsf.fabric.devices.base import THREADS_OPTION, machine_cpus, machine_memory, use_threads
from dgsf.fabric.devices.cpu import NO_GPU, CpuDevice
from dgsf.fabric.spec import WorkerSpec


def fill_in(spec: DeviceSpec) -> DeviceSpec:
    """A quarter of the machine's memory; its workers may use every core, since most of the time they wait."""
    share = machine_memory() // 4 // MIB * MIB
    options = {THREADS_OPTION: machine_cpus()} | spec.options
    return dataclasses.replace(spec, memory_bytes=spec.memory_bytes or share, options=options)


class HostDevice(CpuDevice):
    """Held like a CPU device, and never offered as one."""

    def worker_environment(self) -> dict[str, str]:
        """Small pages: a body makes its weights once and sends them away, and huge ones come slowly the first time."""
        return dict(NO_GPU)


def setup_worker(spec: WorkerSpec) -> None:
    use_threads(spec.device_options)
