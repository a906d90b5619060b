"""Simulated devices: any type name, memory and speed, with GPU-like timing and no hardware.

The work itself runs on the CPU, or not at all.  What a real device would take is declared: a launch time for
every command and a time per kernel, by name, one for all, or by a model that knows the shapes.  A worker on such a
device finds these in `timing()`; the executor of device commands waits accordingly.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from dgsf.core.devices import DeviceSpec
from dgsf.fabric.devices.a100 import MODELS, Roofline
from dgsf.fabric.devices.base import THREADS_OPTION, machine_cpus, use_threads
from dgsf.fabric.devices.cpu import CpuDevice
from dgsf.fabric.spec import WorkerSpec


@dataclass(frozen=True, slots=True)
class SimTiming:
    """How long a simulated device takes, in microseconds."""

    launch_us: float = 0.0
    kernel_us: float = 0.0
    kernels: dict[str, float] = field(default_factory=dict)
    model: Roofline | None = None  # by shapes, where the table says nothing
    values: bool = True  # False: nothing is computed, all values are zero

    @property
    def times_kernels(self) -> bool:
        """Whether it says what kernels take; else only the clock of the host can."""
        return self.model is not None or self.kernel_us > 0 or bool(self.kernels)

    def of(self, kernel: str) -> float:
        """One launch of this kernel."""
        return self.launch_us + self.kernels.get(kernel, self.kernel_us)


_timing: SimTiming | None = None


def timing() -> SimTiming | None:
    """The timing of the simulated device that this worker runs on; None on a real one."""
    return _timing


def timing_of(options: dict[str, Any]) -> SimTiming:
    model = MODELS[options["timing"]] if "timing" in options else None
    return SimTiming(
        launch_us=float(options.get("launch_us", model.launch_us if model is not None else 0.0)),
        kernel_us=float(options.get("kernel_us", 0.0)),
        kernels=dict(options.get("kernels", {})),
        model=model,
        values=options.get("values", "real") == "real",
    )


def fill_in(spec: DeviceSpec, count: int) -> DeviceSpec:
    """Its work is done by the machine's cores, of which each of `count` devices has its share."""
    return dataclasses.replace(spec, options={THREADS_OPTION: max(1, machine_cpus() // count)} | spec.options)


class SimDevice(CpuDevice):
    """Held like a CPU device: only what it says of itself differs."""


def setup_worker(spec: WorkerSpec) -> None:
    global _timing
    use_threads(spec.device_options)
    _timing = timing_of(spec.device_options)
