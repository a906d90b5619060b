"""Simulated devices: any type name, memory and speed, with GPU-like timing and no hardware.

The work itself runs on the CPU.  What a real device would take is declared: a launch time for every
command and a time per kernel, by name or one for all.  A worker on such a device finds these in `timing()`;
the executor of device commands waits accordingly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dgsf.fabric.devices.base import use_threads
from dgsf.fabric.devices.cpu import CpuDevice
from dgsf.fabric.spec import WorkerSpec


@dataclass(frozen=True, slots=True)
class SimTiming:
    """How long a simulated device takes, in microseconds."""

    launch_us: float = 0.0
    kernel_us: float = 0.0
    kernels: dict[str, float] = field(default_factory=dict)

    def of(self, kernel: str) -> float:
        """One launch of this kernel."""
        return self.launch_us + self.kernels.get(kernel, self.kernel_us)


_timing: SimTiming | None = None


def timing() -> SimTiming | None:
    """The timing of the simulated device that this worker runs on; None on a real one."""
    return _timing


def timing_of(options: dict[str, Any]) -> SimTiming:
    return SimTiming(
        float(options.get("launch_us", 0.0)), float(options.get("kernel_us", 0.0)), dict(options.get("kernels", {}))
    )


class SimDevice(CpuDevice):
    """Held like a CPU device: only what it says of itself differs."""


def setup_worker(spec: WorkerSpec) -> None:
    global _timing
    use_threads(spec.device_options)
    _timing = timing_of(spec.device_options)
