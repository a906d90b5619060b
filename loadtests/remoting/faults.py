"""Bad guests: how long until their session is closed and its memory on the device is free.

Each guest has a quarter of a gigabyte on its device when it goes wrong: it vanishes, stops reading or breaks the
protocol.  The clock runs from the wrong deed to the end of the executor's process, which is when its memory is
free, and on to the release of its lease.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch

from dgsf.errors import DgsfError
from dgsf.remoting.guest.bodies import encode_records
from dgsf.remoting.guest.kinds import Kind
from dgsf.remoting.guest.modes import parse_modes
from dgsf.remoting.guest.session_stream import SessionStream
from dgsf.remoting.protocol import TENSOR, Record
from dgsf.sdk.client import Client
from dgsf.sdk.doorway import Doorway, connect
from dgsf.wire.frames import FLAG_BULK, HEADER
from dgsf.wire.frames import Kind as FrameKind
from loadtests.ours import Ours, platform
from loadtests.plan import Plan
from loadtests.remoting.failover import executor_of
from loadtests.report import Section, at_most, single

DEVICES = "cpu:1:threads=1:memory=4GiB:slots=2"
FLOATS = 64 * 1024**2
PATIENCE_SECONDS = 30.0
MATMUL = Kind("aten::mm", [{TENSOR: 0}, {TENSOR: 0}])


@dataclass(slots=True)
class Guest:
    """A session by whose socket anything can be said."""

    sock: socket.socket
    stream: SessionStream
    large: int  # a handle
    square: int

    def command(self, record: list[object]) -> None:
        self.stream._link.channel.command(encode_records([record]))

    def keep_busy(self) -> None:
        """Ten seconds of work for the device, about."""
        for _ in range(100):
            self.stream.free(self.stream.call(MATMUL, [self.square]))
        self.stream.flush()


def measure(plan: Plan) -> Section:
    section = Section("Bad guests: from the deed to free memory (256 MiB in use, CPU device)")
    with platform("dgsf-faults", plan.folder, devices=DEVICES) as ours, Client(ours.url, ours.api_key) as client:
        for what, deed in DEEDS.items():
            times = [_time(ours, client, deed) for _ in range(plan.rounds)]
            freed = [found[0] for found in times]
            section.rows.append(single(f"{what}: memory free, worst", max(freed), at_most(1.0), "s"))
            section.raw[what] = {"freed": freed, "released": [found[1] for found in times]}
            plan.say(f"{what}: {median(freed):.3f} s, worst {max(freed):.3f} s, lease {max(t[1] for t in times):.3f} s")
    return section


def _time(ours: Ours, client: Client, deed: Callable[[Guest], None]) -> tuple[float, float]:
    """Seconds until the executor is gone, and until its lease is."""
    sock = connect(Doorway(client, memory="1GiB").ticket())
    stream = SessionStream(sock, parse_modes("full,-survival,-known"))
    guest = Guest(sock, stream, stream.upload(torch.zeros(FLOATS)), stream.upload(torch.zeros(1500, 1500)))
    stream.sync()
    pid = executor_of(ours)
    deed(guest)
    began = time.perf_counter()
    _wait(lambda: not os.path.exists(f"/proc/{pid}"))
    freed = time.perf_counter() - began
    _wait(lambda: not client.leases()["leases"])
    released = time.perf_counter() - began
    sock.close()
    return freed, released


def _wait(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise DgsfError("a bad guest's session was not closed")
        time.sleep(0.001)


def _vanishes(guest: Guest) -> None:
    guest.sock.close()


def _vanishes_while_busy(guest: Guest) -> None:
    guest.keep_busy()
    guest.sock.close()


def _vanishes_behind_a_full_pipe(guest: Guest) -> None:
    guest.keep_busy()
    number = guest.stream._link.channel.sent + 1
    frame = HEADER.pack(1024**2 + 4, FrameKind.COMMAND, FLAG_BULK, 0, number) + bytes(1024**2 + 4)
    guest.sock.settimeout(0.3)
    try:
        for _ in range(64):
            guest.sock.sendall(frame)
    except OSError:  # full
        pass
    guest.sock.close()


def _stops_reading(guest: Guest) -> None:
    guest.command([int(Record.FETCH), 1_000_000, guest.large])


def _breaks_frames(guest: Guest) -> None:
    guest.sock.send(HEADER.pack(0, 99, 0, 0, 1))


def _leaves_a_gap(guest: Guest) -> None:
    guest.stream._link.channel.sent += 5
    guest.command([int(Record.SYNC), 1_000_001])


def _breaks_records(guest: Guest) -> None:
    guest.command(["no", "record"])


DEEDS: dict[str, Callable[[Guest], None]] = {
    "vanishes": _vanishes,
    "vanishes while its device is busy": _vanishes_while_busy,
    "vanishes behind a full pipe": _vanishes_behind_a_full_pipe,
    "stops reading": _stops_reading,
    "breaks the frames": _breaks_frames,
    "leaves a gap in its numbers": _leaves_a_gap,
    "breaks the records": _breaks_records,
}
