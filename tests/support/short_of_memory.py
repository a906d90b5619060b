"""Programs that may have only so much memory: each is run in a process of its own, because a limit is for good.

    python -m tests.support.short_of_memory NAME

prints what it found as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from dgsf.core.checkpointing import OVERHEAD_BYTES, survival_bytes
from dgsf.fabric.sandbox.limits import Allowance, apply_limits, data_bytes, raised_by
from dgsf.remoting.executor.local import LocalExecutors, LocalSpec
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.room import CountedRoom
from dgsf.remoting.guest.session_stream import SessionStream
from tests.support.lossy_proxy import LossyProxy, lossy_session

MIB = 1024**2
MEMORY, LEASE = 96 * MIB, 512 * MIB
SPEC = LocalSpec(device_options={"threads": 1}, memory_bytes=1024 * MIB)


def as_a_function() -> CountedRoom:
    """The limits of a fabric function's worker."""
    torch.ones(MIB).sum()  # threads and whatever else torch has for good
    apply_limits(data_bytes() + MEMORY, resource.RLIM_INFINITY >> 1, survival_bytes(LEASE))
    allowance = Allowance()
    room = CountedRoom(allowance.most, allowance.change)
    room.hold(OVERHEAD_BYTES)
    return room


def refused(size: int) -> str:
    try:
        torch.empty(size, dtype=torch.uint8)
    except RuntimeError as error:
        return str(error)
    return ""


def large_state(proxy: LossyProxy) -> dict[str, Any]:
    """On the device there is twice as much as the function may have here."""
    room = as_a_function()
    stream = SessionStream(proxy.guest, room=room)
    with bind(stream) as device:
        states = [torch.full((MIB,), float(number), device=device) for number in range(48)]
        for _ in range(3):
            for state in states:
                state += 1
            stream.checkpoint()
        proxy.kill_now()
        found = [state[0].item() for state in states]
        mine = torch.empty(MEMORY // 2, dtype=torch.uint8)
        told = {
            "right": found == [number + 3.0 for number in range(48)],
            "checkpoints": stream.traffic["checkpoints"],
            "losses": stream.traffic["losses"],
            "held": room.held,
            "raised": raised_by(os.getpid(), survival_bytes(LEASE)),
            "mine": mine.numel(),
            "too much": refused(2 * MEMORY),
        }
    stream.close()
    return told


def weights(proxy: LossyProxy) -> dict[str, Any]:
    """One model after the other is made here and moves to the device: each leaves its memory to the next."""
    stream = SessionStream(proxy.guest, room=as_a_function())
    with bind(stream) as device:
        models = []
        for number in range(5):
            model = torch.nn.Linear(MEMORY // 2 // 4096, 1024, bias=False)
            torch.nn.init.constant_(model.weight, float(number))
            models.append(model.to(device))
        proxy.kill_now()
        told = {"found": [model.weight[0, 0].item() for model in models], "losses": stream.traffic["losses"]}
    stream.close()
    return told


def batches(proxy: LossyProxy) -> dict[str, Any]:
    """Five times as much as it may have passes through, none of it for long."""
    room = as_a_function()
    stream = SessionStream(proxy.guest, room=room)
    with bind(stream) as device:
        total = torch.zeros(1, device=device)
        for number in range(120):
            total += torch.full((MIB,), float(number)).to(device).mean()
        proxy.kill_now()
        told = {"total": total.item(), "losses": stream.traffic["losses"], "checkpoints": stream.traffic["checkpoints"]}
    stream.close()
    return told


def limited(proxy: LossyProxy) -> dict[str, Any]:
    """A program whose address space ends: neither a checkpoint nor what it asks for itself fits in."""
    stream = SessionStream(proxy.guest)
    threads = threading.active_count()
    with bind(stream) as device:
        states = torch.ones(128 * MIB, device=device)
        stream.sync()
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + 300 * MIB, resource.RLIM_INFINITY))
        for _ in range(3):
            states += 1
            stream.checkpoint()
        before = [stream.traffic["checkpoints"], stream._link.saver._saving is None]
        try:
            states.cpu()
            own = ""
        except RuntimeError as error:
            own = str(error)
        value = states[5].item()
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        stream.checkpoint()
        proxy.kill_now()
        told = {"before": before, "own": own, "value": value, "after": stream.traffic["checkpoints"]}
        told |= {"again": states[5].item(), "losses": stream.traffic["losses"]}
        told["threads"] = threading.active_count() - threads
    stream.close()
    return told


PROGRAMS: dict[str, Callable[[LossyProxy], dict[str, Any]]] = {
    "large state": large_state,
    "weights": weights,
    "batches": batches,
    "limited": limited,
}


if __name__ == "__main__":
    torch.set_num_threads(1)
    with LocalExecutors() as executors, lossy_session(executors, SPEC, []) as way:
        print(json.dumps(PROGRAMS[sys.argv[1]](way)))
