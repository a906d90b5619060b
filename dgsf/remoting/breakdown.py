"""Where the time of a profiled run went, and what the model says about other distances. Pure but for its input."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from dgsf.core.perfmodel import SHOWN_LATENCIES_US, Curve, Link, curve_of, on_faster_device, predict, slowdowns
from dgsf.remoting.profiling import Run


@dataclass(frozen=True, slots=True)
class Operation:
    """All commands of one name."""

    operation: str
    count: int
    device_us: int
    waiting_us: int


@dataclass(frozen=True, slots=True)
class Breakdown:
    """One run; guest and waiting together are the whole, the device works beside the guest."""

    total_us: int
    guest_us: int  # the program's own work, issuing commands among it
    issuing_us: int  # of that, what the commands would not have cost beside the device
    waiting_us: int  # some thread for an answer
    behind_us: int  # threads for each other's answers; more than the whole if many did
    device_us: int
    transfer_us: int  # of all bytes, at the speed of this machine
    commands: int
    sync_points: int
    up_bytes: int
    down_bytes: int
    operations: list[Operation]  # the longest first
    slowdowns: list[tuple[float, float]]  # round trip in µs, remoted over native
    curve: Curve
    faster: float  # slow-downs and curve are for kernels so many times shorter than those of this run


def breakdown(run: Run, measured: Link, faster: float = 1.0) -> Breakdown:
    """Of this run over a link that was measured like this; predicted for a device so many times faster."""
    link, recording = run.fitted(measured), run.recording(measured)
    there = on_faster_device(recording, faster)
    native = predict(recording)
    waiting_us = run.waited_us
    return Breakdown(
        total_us=round(run.total_us),
        guest_us=round(run.total_us - waiting_us),
        issuing_us=round(min(run.total_us - waiting_us, link.command_us * len(run.events))),
        waiting_us=round(waiting_us),
        behind_us=round(run.behind_us),
        device_us=round(native.device_us),
        transfer_us=round((native.up_bytes + native.down_bytes) / link.bytes_per_us),
        commands=len(run.events),
        sync_points=native.sync_points,
        up_bytes=native.up_bytes,
        down_bytes=native.down_bytes,
        operations=_operations(run),
        slowdowns=list(zip(SHOWN_LATENCIES_US, slowdowns(there, link), strict=True)),
        curve=curve_of(there, link),
        faster=faster,
    )


def _operations(run: Run) -> list[Operation]:
    counts: dict[str, int] = defaultdict(int)
    device: dict[str, float] = defaultdict(float)
    waiting: dict[str, float] = defaultdict(float)
    for event in run.events:
        counts[event.name] += 1
        if event.call in run.took:
            device[event.name] += run.took[event.call].device_us
        if event.waited:
            waiting[event.name] += (event.ended - event.began) / 1e3
    found = [Operation(name, counts[name], round(device[name]), round(waiting[name])) for name in counts]
    return sorted(found, key=lambda each: (each.device_us, each.waiting_us, each.count), reverse=True)
