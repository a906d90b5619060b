"""How a Ray node is started: its command line and its environment.

A Ray node is a process of its own, `ray start --block`, never a child of the controller: a controller's
death must not end the calls.  Everything of Ray that we do not use is switched off, because it shares the
machine with the calls: with these settings an idle head node takes about 1 % of a core instead of 2.
This module imports no ray; it only writes its settings down.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dgsf.config import Settings
from dgsf.errors import ConfigError

OBJECT_STORE_BYTES = 80_000_000  # Ray's least; we put nothing in it
LOOPBACK = "127.0.0.1"

_WHERE_IT_IS = "'dgsf up' keeps that of its own Ray in ray.token of its data dir: export RAY_AUTH_TOKEN=\"$(cat FILE)\""

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",  # there is no task of ours to wait for
    "RAY_enable_metrics_collection": "0",
    "RAY_emit_main_service_metrics": "0",
    "RAY_event_stats": "0",
    "RAY_enable_timeline": "0",
    "RAY_enable_ray_event": "0",
    "RAY_event_log_reporter_enabled": "0",
    "RAY_task_events_report_interval_ms": "0",
    "RAY_debug_dump_period_milliseconds": "0",
    "RAY_io_context_event_loop_lag_collection_interval_ms": "0",
    "RAY_raylet_report_resources_period_milliseconds": "500",
    "RAY_gcs_pull_resource_loads_period_milliseconds": "2000",
    "RAY_report_worker_backlog_interval_ms": "5000",
    "RAY_kill_idle_workers_interval_ms": "2000",
    "RAY_raylet_check_gc_period_milliseconds": "5000",
    "RAY_local_fs_monitor_interval_ms": "10000",
    # no worker is started before there is a use for it
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
}
_TRUSTED = {
    # Ray nices its workers by 15 and offers them to the OOM killer first; ours carry the calls.
    "RAY_worker_niceness": "0",
    "RAY_worker_oom_score_adjustment": "0",
    # Ray would kill a device server for the memory of its workers, which have limits of their own.
    "RAY_memory_monitor_refresh_ms": "0",
    # A device server ends soon after its raylet, so that its replacement finds the device free.
    "RAY_raylet_death_check_interval_milliseconds": "500",
}
# Ray takes 127.0.0.1 for a mistake and looks for an outer address, unless clusters are switched off,
# by a variable that is named for the systems on which that is the default.  A node must not have it:
# it would refuse to be one of several; ray_start does the same for it.
_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


@dataclass(frozen=True, slots=True)
class RayNode:
    """One Ray node on this machine."""

    node_name: str
    temp_dir: Path
    port: int = 0  # of the head
    head_address: str = ""  # empty: this is the head
    host: str = LOOPBACK  # of the head: the address at which others find it

    @property
    def address(self) -> str:
        return self.head_address or f"{self.host}:{self.port}"

    def command(self) -> list[str]:
        join = [f"--address={self.head_address}"]
        return [
            *(sys.executable, "-m", "dgsf.fabric.ray_start", "start", "--block"),
            *(join if self.head_address else self._head_options()),
            f"--temp-dir={self.temp_dir}",
            f"--node-name={self.node_name}",
            "--num-cpus=0",  # nothing of ours asks Ray for a core, and so it starts no idle workers
            "--num-gpus=0",
            f"--object-store-memory={OBJECT_STORE_BYTES}",
            "--include-log-monitor=false",
            "--disable-usage-stats",
            "--log-style=record",
            # free ports instead of fixed ones: several platforms live on one machine
            *("--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"),
        ]

    def _head_options(self) -> list[str]:
        own = ["--head", f"--port={self.port}", f"--node-ip-address={self.host}"]
        return [*own, "--include-dashboard=false", "--no-monitor"]

    def environment(self, settings: Settings, token: str) -> dict[str, str]:
        """Also the environment of every device server on this node, through the raylet."""
        ours = settings.environment()
        # Handed over by the controller where needed; a node need not hold the platform's keys.
        for secret in ("DGSF_DATABASE_URL", "DGSF_CLUSTER_SECRET", "DGSF_API_KEY"):
            ours.pop(secret, None)
        return {**ours, **_QUIET, **_TRUSTED, **access(token, self.address), _CLUSTERS: "1"}


def check_token(address: str, environ: Mapping[str, str], home: Path) -> None:
    """ConfigError if there is no token for that cluster where Ray looks for one."""
    named = environ.get("RAY_AUTH_TOKEN_PATH")
    places = [Path(named)] if named else [home / ".ray" / "auth_token"]
    if not environ.get("RAY_AUTH_TOKEN", "").strip() and not any(place.is_file() for place in places):
        raise ConfigError(
            f"RAY_AUTH_TOKEN is not set, and the Ray cluster at {address} asks for its token; {_WHERE_IT_IS}"
        )


def token_refused(address: str) -> str:
    return f"the Ray cluster at {address} refuses the token in RAY_AUTH_TOKEN, or ~/.ray/auth_token; {_WHERE_IT_IS}"


def is_refusal(error: BaseException) -> bool:
    """Whether Ray means that the token is wrong; it tells so only somewhere in what led to the error."""
    return any("AuthenticationError" in line for line in traceback.format_exception(error))


def access(token: str, address: str) -> dict[str, str]:
    """What a client of that Ray needs; without a token, the one that Ray finds by itself."""
    found = {"RAY_AUTH_MODE": "token"}
    if token:
        found["RAY_AUTH_TOKEN"] = token
    if address.startswith(f"{LOOPBACK}:"):
        found[_CLUSTERS] = "0"
    return found
