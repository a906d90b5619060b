"""The devices of a node: from the setting to specs, and from a spec to the object that holds the device."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from dgsf.core.devices import HOST, SETTING, DeviceSpec, parse_devices, parse_hosts
from dgsf.errors import ConfigError, StartError
from dgsf.fabric.devices import cpu, cuda, host, sim
from dgsf.fabric.devices.base import Device, machine_cpus
from dgsf.fabric.spec import WorkerSpec

__all__ = ["Device", "detect", "offers", "open_device", "resolve_devices", "setup_worker"]

_SETUPS = {"cpu": cpu.setup_worker, "sim": sim.setup_worker, "cuda": cuda.setup_worker, HOST: host.setup_worker}


def resolve_devices(text: str, price_nano_per_us: int = 1) -> list[DeviceSpec]:
    """The devices that this machine offers under this setting, complete with memory and types."""
    parsed = parse_devices(text, lambda path: Path(path).expanduser().read_text(), price_nano_per_us)
    return detect(price_nano_per_us) if isinstance(parsed, str) else _fill_in(parsed)


def offers(devices: str, hosts: str, price_nano_per_us: int = 1) -> list[DeviceSpec]:
    """All that a node gives to the pool: its devices, and a function host unless it has none."""
    specs = resolve_devices(devices, price_nano_per_us)
    found = parse_hosts(hosts)
    given = specs if found is None else [*specs, host.fill_in(found)]
    return [dataclasses.replace(spec, node_cpus=machine_cpus()) for spec in given]


def detect(price_nano_per_us: int = 1) -> list[DeviceSpec]:
    """What 'auto' means here: every CUDA GPU, else one CPU device."""
    return cuda.detect(cuda.find_driver(), price_nano_per_us) or resolve_devices("cpu:1", price_nano_per_us)


def _fill_in(specs: list[DeviceSpec]) -> list[DeviceSpec]:
    cpus = sum(spec.kind == "cpu" for spec in specs)
    sims = sum(spec.kind == "sim" for spec in specs)
    wanted = sum(spec.kind == "cuda" for spec in specs)
    found = cuda.detect(cuda.find_driver()) if wanted else []
    if wanted > len(found):
        asked = "1 CUDA GPU is" if wanted == 1 else f"{wanted} CUDA GPUs are"
        raise ConfigError(f"{SETTING}: {asked} asked for, {len(found)} found; 'auto' takes what is there")
    filled = []
    for spec in specs:
        if spec.kind == "cpu":
            filled.append(cpu.fill_in(spec, cpus))
        elif spec.kind == "sim":
            filled.append(sim.fill_in(spec, cpus + sims))
        else:
            filled.append(cuda.fill_in(spec, found))
    return filled


def open_device(spec: DeviceSpec) -> Device:
    """What a device server holds of its device."""
    if spec.kind == "cpu":
        return cpu.CpuDevice(spec)
    if spec.kind == "sim":
        return sim.SimDevice(spec)
    if spec.kind == HOST:
        return host.HostDevice(spec)
    driver = cuda.find_driver()
    if spec.kind != "cuda" or driver is None:
        raise StartError(f"device {spec.short_name}: there is no such device on this machine")
    return cuda.CudaDevice(spec, driver)


def setup_worker(spec: WorkerSpec) -> None:
    """In a new worker, after it was confined: threads, device and timing."""
    _SETUPS[spec.device_kind](spec)
