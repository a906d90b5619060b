"""CPU devices: the stand-in where there is no GPU, and a share of the machine's memory each."""

from __future__ import annotations

import dataclasses

from dgsf.config import MIB
from dgsf.core.devices import DeviceSpec
from dgsf.fabric.devices.base import THREADS_OPTION, machine_cpus, machine_memory, use_threads
from dgsf.fabric.spec import WorkerSpec
from dgsf.heap import HUGE_PAGES

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def fill_in(spec: DeviceSpec, count: int) -> DeviceSpec:
    """Half of the machine's memory is shared out among the CPU devices, and so are its cores."""
    share = machine_memory() // 2 // count // MIB * MIB
    threads = max(1, machine_cpus() // count)
    options = {THREADS_OPTION: threads} | spec.options
    return dataclasses.replace(spec, memory_bytes=spec.memory_bytes or share, options=options)


class CpuDevice:
    """Memory is what the workers hold; there is nothing to open and nothing left behind."""

    def __init__(self, spec: DeviceSpec) -> None:
        self.spec = spec

    def memory_used(self, workers_bytes: int) -> int:
        return workers_bytes

    def worker_environment(self) -> dict[str, str]:
        return {**NO_GPU, **HUGE_PAGES}  # its kernels run over that memory again and again

    def device_nodes(self) -> tuple[str, ...]:
        return ()

    def check_health(self) -> str:
        return ""

    def scrub(self) -> None:
        """The kernel zeroes a process's memory when it ends."""


def setup_worker(spec: WorkerSpec) -> None:
    use_threads(spec.device_options)
