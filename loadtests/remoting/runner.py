"""A process that runs one program on one device, round by round, as its parent asks.

Run as `python -m loadtests.remoting.runner PROGRAM WHERE`, with WHERE `native` (the CPU of this process) or
`attached` (a remote device of the platform that the environment names), or `direct` (a simulated A100 in this
very process).  It keeps freed memory as executors do, so that native programs have the same settings: by itself torch
maps large blocks anew in every step, which costs a CT scan a quarter of its time.  Each line on standard input is a
number of steps; each line on standard output tells, as JSON, how long they took and what crossed the wire.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import click
import torch

from dgsf.config import GIB, load_settings
from dgsf.core.checkpointing import CheckpointPolicy
from dgsf.heap import keep_freed_memory
from dgsf.remoting.executor.local import LocalSpec
from dgsf.remoting.executor.loop import KEPT_BYTES
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.modes import parse_modes
from dgsf.remoting.guest.session_stream import SessionStream
from dgsf.sdk.client import Client
from dgsf.sdk.doorway import Doorway, connect
from loadtests.latency_relay import LatencyRelay
from loadtests.remoting.direct import DirectStream
from loadtests.remoting.programs import PROGRAMS, Step

Counts = Callable[[], dict[str, int]]


@click.command()
@click.argument("program", type=click.Choice(sorted(PROGRAMS)))
@click.argument("where", type=click.Choice(["native", "attached", "direct"]))
@click.option("--threads", default=1, help="Threads of torch in this process.")
@click.option("--gpu", default="any")
@click.option("--memory", default="3GiB")
@click.option("--delay-ms", default=0.0, help="Added on the way, in each direction.")
@click.option("--warm", default=4, help="Steps before the first answer.")
def main(program: str, where: str, threads: int, gpu: str, memory: str, delay_ms: float, warm: int) -> None:
    """Serve rounds until standard input ends."""
    torch.set_num_threads(threads)
    keep_freed_memory(KEPT_BYTES)
    torch.manual_seed(0)
    with _device(where, gpu, memory, delay_ms) as (device, counts):
        step = PROGRAMS[program].on(device)
        for _ in range(warm):
            step()
        _tell({"ready": True, "device": str(device)})
        for line in sys.stdin:
            _tell(_round(step, int(line), counts))


def _round(step: Step, steps: int, counts: Counts) -> dict[str, Any]:
    before = counts()
    seconds, value = [], None
    for _ in range(steps):
        began = time.perf_counter()
        value = step()
        seconds.append(time.perf_counter() - began)
    after = counts()
    told = {"value": value} if isinstance(value, float) else {}
    return {"seconds": seconds, **told, **{name: after[name] - before[name] for name in after}}


@contextlib.contextmanager
def _device(where: str, gpu: str, memory: str, delay_ms: float) -> Iterator[tuple[torch.device, Counts]]:
    if where == "native":
        yield torch.device("cpu"), dict
        return
    if where == "direct":
        spec = LocalSpec(device_kind="sim", memory_bytes=16 * GIB, device_options={"timing": "a100", "values": "dummy"})
        with bind(DirectStream(spec)) as device:
            yield device, dict
        return
    client = Client()
    with contextlib.ExitStack() as stack:
        doorway = Doorway(client, gpu, memory)
        sock = connect(doorway.ticket())
        if delay_ms:
            sock = stack.enter_context(LatencyRelay(sock, delay_ms / 1e3, spin_seconds=0.0)).guest
        again = None if delay_ms else doorway.again
        stream = SessionStream(sock, parse_modes(load_settings().remoting), CheckpointPolicy(), reopen=again)
        stack.callback(stream.close)
        yield stack.enter_context(bind(stream)), lambda: stream.traffic


def _tell(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
