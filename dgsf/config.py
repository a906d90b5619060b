"""Settings: one frozen object per process, built once from flags and `DGSF_*` variables.

The fields below are the manual: name, type, default, range and meaning.  Flags win over the
environment, the environment over the defaults.  An unknown `DGSF_*` variable stops the start,
because a misspelt setting that is silently ignored is worse than an error.  Nothing else in the
code base reads the environment.  Secrets print as ***.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dgsf.core.policies import DEFAULT_PLACEMENT, PLACEMENT_POLICIES
from dgsf.errors import ConfigError

KIB, MIB, GIB = 1024, 1024**2, 1024**3
PREFIX = "DGSF_"


def _setting(
    default: Any,
    help_text: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    secret: bool = False,
) -> Any:  # dataclasses.field has no useful static type
    return field(
        default=default,
        repr=not secret,
        metadata={"help": help_text, "low": low, "high": high, "choices": choices, "secret": secret},
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting of every process; each process reads the ones it needs."""

    # where things are
    host: str = _setting("127.0.0.1", "address the gateway listens on")
    port: int = _setting(8700, "port the gateway listens on (0: any free one)", low=0, high=65535)
    data_dir: Path = _setting(Path(".dgsf"), "folder for the embedded database, keys and logs")
    database_url: str = _setting("", "PostgreSQL URL; empty: an embedded server in the data dir", secret=True)
    ray_address: str = _setting("", "address of a Ray cluster; empty: start a local one")
    ray_host: str = _setting("127.0.0.1", "address of this machine at which its own Ray listens, for others to join")
    ray_port: int = _setting(0, "port of its own Ray (0: any free one)", low=0, high=65535)
    devices: str = _setting("auto", "devices of this node: 'auto', or e.g. 'cpu:2' or 'cpu:1,sim:A100:4'")
    hosts: str = _setting(
        "auto", "slots for bodies of attach='fabric' functions on this node: 'auto' or a number, 0: none"
    )
    remoting: str = _setting(
        "full", "how sessions of fabric functions hide latency: 'full', 'naive', 'full,-traces', ..."
    )
    fabric_round_trip_us: float = _setting(
        50.0,
        "round trip between function hosts and devices, by which attach='auto' is decided until one was measured",
        low=0,
        high=10_000_000,
    )
    node: str = _setting("", "this node's name; empty: the host name")
    cluster_secret: str = _setting("", "shared secret of all parts; empty: made in the data dir", secret=True)
    gateways: int = _setting(1, "gateway processes that share the port", low=1, high=64)
    proxy: str = _setting(
        "auto", "where the proxy lives; auto: inside a single gateway", choices=("auto", "inside", "apart")
    )
    transport: str = _setting("auto", "auto: Unix sockets on one node, TCP between nodes", choices=("auto", "tcp"))
    session_host: str = _setting("", "address where proxies take sessions; empty: as host")
    session_port: int = _setting(0, "port where a proxy takes sessions (0: any free one)", low=0, high=65535)
    log_level: str = _setting("info", "least severe log line", choices=("debug", "info", "warning", "error"))
    mark: str = _setting("", "set by 'dgsf up' in all its processes, to find leftovers of a killed run")
    # the client side
    url: str = _setting("", "address of the platform, for clients")
    api_key: str = _setting("", "API key, for clients", secret=True)
    traces: Path = _setting(Path("../shared/data"), "folder with public traces, for simulations and load tests")
    # limits
    max_body_bytes: int = _setting(64 * MIB, "largest request body", low=KIB, high=4 * GIB)
    max_result_bytes: int = _setting(64 * MIB, "largest result", low=KIB, high=4 * GIB)
    max_code_bytes: int = _setting(32 * MIB, "largest packed function", low=KIB, high=GIB)
    inline_bytes: int = _setting(128 * KIB, "payloads above this travel by shared memory or in chunks", low=0, high=MIB)
    queue_limit: int = _setting(2000, "calls that may wait for one function on one proxy", low=1, high=1_000_000)
    pipeline_depth: int = _setting(64, "short calls sent ahead to one worker", low=1, high=1024)
    placement: str = _setting(
        DEFAULT_PLACEMENT, "policy that picks the device for a new worker", choices=PLACEMENT_POLICIES
    )
    speeds: str = _setting(
        "",
        "JSON file of how fast functions run on each device type (function -> type -> speed, or Gavel's table), for "
        "placement; empty: learned from runs, and until then as devices declare",
    )
    consolidate: float = _setting(
        0.0,
        "sessions that may be moved per hour while they run, so that a device becomes free; 0: none. Each stands still "
        "for a moment: worth it where a free device is, rented by the hour or wanted whole",
        low=0,
        high=3600,
    )
    # times
    keep_warm: str = _setting(
        "learned",
        "which idle workers stay; learned: those whose next call is expected soon, also started ahead of it, for no "
        "more device time than idle_seconds would cost; fixed: each for idle_seconds; fixed:60: each for 60 s",
    )
    idle_seconds: float = _setting(
        60.0, "an idle warm worker is given back after this (fixed), or the budget (learned)", low=0.05, high=86_400
    )
    lease_seconds: float = _setting(5.0, "time to live of a lease without renewal", low=0.5, high=600)
    grace_seconds: float = _setting(1.0, "time between asking a function to stop and killing it", low=0.0, high=60)
    start_seconds: float = _setting(30.0, "default time a call may wait before it starts", low=0.1, high=3600)
    # money
    price_nano_per_us: int = _setting(1, "price of one device-microsecond in nano-units", low=0, high=1_000_000)

    def with_changes(self, **changes: Any) -> Settings:
        return dataclasses.replace(self, **changes)

    @property
    def node_name(self) -> str:
        return self.node or socket.gethostname()

    @property
    def proxy_inside(self) -> bool:
        return self.proxy == "inside" or (self.proxy == "auto" and self.gateways == 1)

    @property
    def fixed_idle_seconds(self) -> float | None:
        """The fixed time for which idle workers stay; None: it is learned."""
        rule, given, seconds = self.keep_warm.partition(":")
        if rule not in ("learned", "fixed") or (given and rule == "learned"):
            raise ConfigError(f"{PREFIX}KEEP_WARM={self.keep_warm!r}: expected 'learned', 'fixed' or e.g. 'fixed:60'")
        if rule == "learned":
            return None
        try:
            return _checked_idle(float(seconds)) if given else self.idle_seconds
        except ValueError:
            raise ConfigError(
                f"{PREFIX}KEEP_WARM={self.keep_warm!r}: expected a number of seconds from 0.05 to 86400 behind 'fixed:'"
            ) from None

    def environment(self) -> dict[str, str]:
        """These settings as `DGSF_*` variables, for a child process; defaults are left out."""
        found = {}
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if value != item.default:
                found[PREFIX + item.name.upper()] = str(value)
        return found


def load_settings(environ: Mapping[str, str] | None = None, **flags: Any) -> Settings:
    """Settings from flags (None: not given) over `DGSF_*` variables over defaults."""
    environ = os.environ if environ is None else environ
    known = {PREFIX + item.name.upper(): item for item in dataclasses.fields(Settings)}
    values: dict[str, Any] = {}
    for name, text in environ.items():
        if not name.startswith(PREFIX):
            continue
        if name not in known:
            raise ConfigError(f"unknown setting {name}{_did_you_mean(name, known)}")
        values[known[name].name] = _parse(name, known[name], text)
    for name, value in flags.items():
        if value is not None:
            item = known[PREFIX + name.upper()]
            values[name] = _parse("--" + name.replace("_", "-"), item, str(value))
    settings = Settings(**values)
    if settings.proxy == "inside" and settings.gateways > 1:
        raise ConfigError("several gateways need the proxy apart: leave out --proxy inside, or use one gateway")
    _ = settings.fixed_idle_seconds  # told now rather than by the first proxy
    return settings


def _checked_idle(seconds: float) -> float:
    if not 0.05 <= seconds <= 86_400:
        raise ValueError
    return seconds


def _did_you_mean(name: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _parse(name: str, item: dataclasses.Field[Any], text: str) -> object:
    kind = type(item.default)
    meta = item.metadata
    try:
        value: Any = _READERS[kind](text)
    except ValueError as error:
        raise ConfigError(f"{name}={text!r}: expected {_KIND_NAMES.get(kind, kind.__name__)}") from error
    if meta["choices"] and value not in meta["choices"]:
        raise ConfigError(f"{name}={text!r}: expected one of {', '.join(meta['choices'])}")
    if meta["low"] is not None and not meta["low"] <= value <= meta["high"]:
        raise ConfigError(f"{name}={text!r}: expected a value from {meta['low']:g} to {meta['high']:g}")
    return value


_BINARY = {"": 1, "b": 1, "kib": KIB, "mib": MIB, "gib": GIB, "tib": 1024 * GIB}
_UNITS = {**_BINARY, "kb": 1000, "mb": 10**6, "gb": 10**9, "tb": 10**12}


def parse_bytes(text: str | int) -> int:
    """'512MiB', '2 GB' or a plain number of bytes."""
    if isinstance(text, int):
        return text
    stripped = text.strip().lower()
    digits = stripped.rstrip("bkmgti ")
    unit = stripped[len(digits) :].strip()
    if unit not in _UNITS or not digits:
        raise ValueError(f"{text!r} is not a size; write e.g. '512MiB' or '2GiB'")
    return int(float(digits) * _UNITS[unit])


_READERS: dict[type, Callable[[str], Any]] = {int: parse_bytes, float: float, str: str, type(Path()): Path}
_KIND_NAMES = {int: "a whole number", float: "a number"}


def settings_table() -> list[tuple[str, str, str, str]]:
    """(variable, type, default, meaning) of every setting: the manual that `dgsf doctor` prints."""
    rows = []
    for item in dataclasses.fields(Settings):
        default = "" if item.metadata["secret"] else str(item.default)
        rows.append((PREFIX + item.name.upper(), type(item.default).__name__, default, item.metadata["help"]))
    return rows
