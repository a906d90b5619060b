"""NVIDIA GPUs: found and watched through NVML where it is installed, through torch otherwise.

The server's process asks NVML, which opens no context on the GPU.  Each worker sees exactly one GPU, as
cuda:0, because CUDA_VISIBLE_DEVICES names it before anything of CUDA is loaded.
"""

from __future__ import annotations

import dataclasses
import glob
import importlib
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, Protocol

from dgsf.core.devices import DeviceSpec
from dgsf.fabric.devices.base import use_threads
from dgsf.fabric.spec import WorkerSpec

_SHARED_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_PROBE_SECONDS = 60.0
_TORCH_PROBE = """
import sys, torch
for i in range(torch.cuda.device_count()):
    p = torch.cuda.get_device_properties(i)
    print(f"{p.total_memory}\\t{p.multi_processor_count}\\t{p.name}")
"""


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a driver tells of one GPU."""

    name: str
    memory_bytes: int


class Driver(Protocol):
    """The narrow edge to the hardware."""

    def gpus(self) -> list[Gpu]: ...

    def memory_used(self, index: int) -> int: ...

    def trouble(self, index: int) -> str: ...


class NvmlDriver:
    """By pynvml, if it can be imported and a driver is there."""

    def __init__(self) -> None:
        self._nvml: Any = importlib.import_module("pynvml")
        self._nvml.nvmlInit()

    def gpus(self) -> list[Gpu]:
        return [self._gpu(index) for index in range(self._nvml.nvmlDeviceGetCount())]

    def _gpu(self, index: int) -> Gpu:
        handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
        name = self._nvml.nvmlDeviceGetName(handle)
        text = name.decode() if isinstance(name, bytes) else str(name)
        return Gpu(text, int(self._nvml.nvmlDeviceGetMemoryInfo(handle).total))

    def memory_used(self, index: int) -> int:
        return int(self._nvml.nvmlDeviceGetMemoryInfo(self._nvml.nvmlDeviceGetHandleByIndex(index)).used)

    def trouble(self, index: int) -> str:
        try:
            self._nvml.nvmlDeviceGetMemoryInfo(self._nvml.nvmlDeviceGetHandleByIndex(index))
        except self._nvml.NVMLError as error:
            return f"NVML: {error}"
        return ""


class TorchDriver:
    """By a short-lived process that imports torch, so that this one never opens the GPU."""

    def gpus(self) -> list[Gpu]:
        done = subprocess.run(
            [sys.executable, "-c", _TORCH_PROBE], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
        )
        found = []
        for line in done.stdout.splitlines():
            memory, _processors, name = line.split("\t", 2)
            found.append(Gpu(name, int(memory)))
        return found

    def memory_used(self, index: int) -> int:
        return 0  # only NVML tells without a context

    def trouble(self, index: int) -> str:
        return "" if glob.glob("/dev/nvidia[0-9]*") else "the NVIDIA device files are gone"


def find_driver() -> Driver | None:
    """The best way to ask; None without a GPU's device files."""
    if not glob.glob("/dev/nvidia[0-9]*"):
        return None
    try:
        return NvmlDriver()
    except Exception:  # pynvml raises its own kinds; without it torch answers
        return TorchDriver()


def detect(driver: Driver | None, price_nano_per_us: int = 1) -> list[DeviceSpec]:
    """Every GPU of this machine."""
    gpus = driver.gpus() if driver is not None else []
    return [
        DeviceSpec("cuda", type_name(gpu.name), index, gpu.memory_bytes, price_nano_per_us=price_nano_per_us)
        for index, gpu in enumerate(gpus)
    ]


def type_name(product: str) -> str:
    """'NVIDIA A100-SXM4-40GB' is an A100 to people who ask for one; other names only lose what is unlawful."""
    words = [word for word in re.split(r"[\s\-]+", product) if word.lower() not in ("nvidia", "tesla", "geforce", "")]
    model = words[0] if words else "gpu"
    if model.lower() in ("rtx", "gtx", "quadro") and len(words) > 1:
        model = "-".join(words[:2])
    return re.sub(r"[^A-Za-z0-9_.\-]", "", model)[:64] or "gpu"


def fill_in(spec: DeviceSpec, found: list[DeviceSpec]) -> DeviceSpec:
    """What the driver knows of the GPU that was asked for by number."""
    real = found[spec.index]
    return dataclasses.replace(spec, type=real.type, memory_bytes=spec.memory_bytes or real.memory_bytes)


class CudaDevice:
    """One GPU as its server holds it."""

    def __init__(self, spec: DeviceSpec, driver: Driver) -> None:
        self.spec = spec
        self._driver = driver

    def memory_used(self, workers_bytes: int) -> int:
        return self._driver.memory_used(self.spec.index)

    def worker_environment(self) -> dict[str, str]:
        return {"CUDA_VISIBLE_DEVICES": str(self.spec.index), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

    def device_nodes(self) -> tuple[str, ...]:
        return (f"/dev/nvidia{self.spec.index}", *_SHARED_NODES)

    def check_health(self) -> str:
        return self._driver.trouble(self.spec.index)

    def scrub(self) -> None:
        """The driver clears a context's memory before another process gets it."""


def setup_worker(spec: WorkerSpec) -> None:
    """Bound the GPU memory of this worker; the context itself is opened by the first operation."""
    use_threads(spec.device_options)
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.manual_seed_all(int.from_bytes(os.urandom(7), "little"))
        torch.cuda.set_per_process_memory_fraction(min(1.0, spec.memory_bytes / total), 0)
