"""How long a program takes when its device is remote, predicted from one recording of its device commands.

The guest issues commands in order and waits only where it needs a value; the link delays and throttles; the device
runs one command after another.  Three clocks (guest, link, device) walk over the recording, and the last one to stop is
the answer.  The same walk over a link without delay is the native time.  After DxPU, with its limit of outstanding
reads.  Nothing is measured here: a recording and a link come in, microseconds come out.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from dgsf.core.counting import counted

NEAR_ABOVE = 1.10  # a slow-down that the fabric may cost at most, if nothing else is said
SHOWN_LATENCIES_US = (5.0, 50.0, 1_000.0)
LEAST_FASTER, MOST_FASTER = 0.01, 10_000.0  # how much faster another device's kernels can be said to be
CURVE_US = (0.0, 5.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 5_000.0)
Attach = Literal["near", "fabric"]
Curve = tuple[tuple[float, float], ...]  # round trips in µs, rising, and the slow-down at each


@dataclass(frozen=True, slots=True)
class Command:
    """One device command: what the device, the link and the guest had to do for it.

    One that asks nothing of device and link is time of the guest alone, such as its work after the last answer.
    """

    kernel_us: float
    up_bytes: int = 0
    down_bytes: int = 0
    sync: bool = False  # the guest waits for the answer
    guest_us: float = 0.0  # the guest's own work before it issued this one

    def __post_init__(self) -> None:
        for name in ("kernel_us", "up_bytes", "down_bytes", "guest_us"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise ValueError(f"{name} is {value}; it must be a finite number of at least 0")
        if self.down_bytes and not self.sync:
            raise ValueError("a command that brings bytes back is a sync point: set sync")


@dataclass(frozen=True, slots=True)
class Link:
    """The way between guest and device; the defaults are a link that costs nothing."""

    round_trip_us: float = 0.0
    bytes_per_us: float = math.inf
    window: int = 0  # commands under way before the guest must wait for an acknowledgement; 0: no limit
    outstanding_reads: int = 0  # read requests under way; 0: no limit
    read_bytes: int = 4096  # per read request
    command_us: float = 0.0  # the guest's cost to encode and send one command
    sync_us: float = 0.0  # the cost of one reply beside the round trip: waking up, decoding
    serve_us: float = 0.0  # the device side's cost to receive and start one command
    hold_us: float = 0.0  # the guest may keep commands back for so long, to send many at once; not with a window

    def __post_init__(self) -> None:
        for name in ("round_trip_us", "command_us", "sync_us", "serve_us", "hold_us"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise ValueError(f"{name} is {value}; it must be a finite number of at least 0")
        if not self.bytes_per_us > 0 or min(self.window, self.outstanding_reads) < 0 or self.read_bytes <= 0:
            raise ValueError("a link needs bytes_per_us and read_bytes above 0, and no limit below 0")

    @property
    def down_bytes_per_us(self) -> float:
        """Reads are limited by the wire, and by how many requests may be under way during a round trip."""
        if not self.outstanding_reads or not self.round_trip_us:
            return self.bytes_per_us
        return min(self.bytes_per_us, self.outstanding_reads * self.read_bytes / self.round_trip_us)


@dataclass(frozen=True, slots=True)
class Recording:
    """The commands of one run, in order, and what commands and answers cost where it was made, if that is known."""

    commands: Sequence[Command]
    link: Link | None = None


NATIVE = Link()


@dataclass(frozen=True, slots=True)
class Prediction:
    """Where the time of one run goes, in microseconds."""

    total_us: float
    device_us: float  # kernels
    guest_us: float  # the guest's own work
    waiting_us: float  # the guest waited for answers or for room in the window
    sync_points: int
    up_bytes: int
    down_bytes: int


def predict(recording: Recording, link: Link = NATIVE) -> Prediction:
    """The run over this link."""
    guest = sent = device = replied = waiting = 0.0
    half, up, down = link.round_trip_us / 2, link.bytes_per_us, link.down_bytes_per_us
    hold = 0.0 if link.window else link.hold_us
    acknowledged: deque[float] = deque()
    held: list[Command] = []
    due = hold  # what is issued from then on is sent, with all that was kept back
    for item in recording.commands:
        guest += item.guest_us
        if not (item.kernel_us or item.up_bytes or item.sync):  # of the guest alone: no command is sent
            continue
        guest += link.command_us
        if link.window and len(acknowledged) >= link.window:
            free_at = acknowledged.popleft()
            waiting += max(0.0, free_at - guest)
            guest = max(guest, free_at)
        held.append(item)
        if guest < due and not item.sync:
            continue
        due = guest + hold
        for each in held:
            sent = max(sent, guest) + each.up_bytes / up
            device = max(device, sent + half) + link.serve_us + each.kernel_us
        held.clear()
        if link.window:
            acknowledged.append(device + half)
        if item.sync:
            replied = max(replied, device) + item.down_bytes / down
            back = replied + half + link.sync_us
            waiting += back - guest
            guest = back
            due = guest + hold
    for each in held:
        sent = max(sent, guest) + each.up_bytes / up
        device = max(device, sent + half) + link.serve_us + each.kernel_us
    kernels = math.fsum(item.kernel_us for item in recording.commands)
    return Prediction(
        total_us=max(guest, device),
        device_us=kernels,
        guest_us=math.fsum(item.guest_us for item in recording.commands),
        waiting_us=waiting,
        sync_points=sum(item.sync for item in recording.commands),
        up_bytes=sum(item.up_bytes for item in recording.commands),
        down_bytes=sum(item.down_bytes for item in recording.commands),
    )


def on_faster_device(recording: Recording, times: float) -> Recording:
    """As if every kernel were so many times shorter, and all else took as long as it did."""
    if not LEAST_FASTER <= times <= MOST_FASTER:
        raise ValueError(f"a device {times:g} times faster: from {LEAST_FASTER:g} to {MOST_FASTER:g} makes sense")
    if times == 1:
        return recording
    return replace(
        recording, commands=tuple(replace(item, kernel_us=item.kernel_us / times) for item in recording.commands)
    )


def fitted(recording: Recording, link: Link, measured_us: float) -> Link:
    """The link with what an answer really costs: so much that the prediction is what this recording's run took.

    Waking up and the neighbours of a busy machine are in no single part of a recording, but in its whole.
    """
    predicted = predict(recording, link)
    if not predicted.sync_points:
        return link
    return replace(link, sync_us=max(0.0, link.sync_us + (measured_us - predicted.total_us) / predicted.sync_points))


def slowdown(recording: Recording, link: Link) -> float:
    """Remoted over native; 1.0 for a run without any work."""
    native = predict(recording).total_us
    return predict(recording, link).total_us / native if native > 0 else 1.0


def slowdowns(recording: Recording, link: Link, latencies_us: Sequence[float] = SHOWN_LATENCIES_US) -> list[float]:
    """The slow-down over this link at several round trips."""
    return [slowdown(recording, replace(link, round_trip_us=latency)) for latency in latencies_us]


def shown(ratio: float, most: float = NEAR_ABOVE) -> str:
    """A slow-down in two decimals, and in more where two would put it on the other side of `most`."""
    texts = (f"{ratio:.{decimals}f}" for decimals in range(2, 17))
    return next((text for text in texts if (float(text) <= most) == (ratio <= most)), repr(ratio))


@dataclass(frozen=True, slots=True)
class AttachChoice:
    """Beside the device or over the fabric, and why."""

    attach: Attach
    slowdown: float
    reason: str


def choose_attach(recording: Recording, link: Link, most: float = NEAR_ABOVE) -> AttachChoice:
    """Over the fabric if it slows the run by no more than `most`, otherwise beside the device."""
    ratio = slowdown(recording, link)
    told = f"{shown(ratio, most)} x native"
    if ratio <= most:
        return AttachChoice("fabric", ratio, f"over the fabric it takes {told}, within {most:.2f} x")
    run = predict(recording, link)
    waits = f"{counted(run.sync_points, 'sync point')} at a round trip of {link.round_trip_us:g} µs"
    data = f"{(run.up_bytes + run.down_bytes) / 1e6:.1f} MB of data"
    return AttachChoice("near", ratio, f"over the fabric it would take {told}: {waits}, {data}")


def curve_of(recording: Recording, link: Link) -> Curve:
    """The slow-down over the round trip: all that a platform must know of a function to choose for it."""
    return tuple(zip(CURVE_US, slowdowns(recording, link, CURVE_US), strict=True))


def read_off(curve: Curve, round_trip_us: float) -> float:
    """The slow-down at this round trip; between two points a line, beyond the last one the last line goes on."""
    if len(curve) == 1:
        return curve[0][1]
    pairs = list(pairwise(curve))
    (x, y), (next_x, next_y) = next((pair for pair in pairs if round_trip_us <= pair[1][0]), pairs[-1])
    return max(0.0, y + (next_y - y) * (max(round_trip_us, curve[0][0]) - x) / (next_x - x))


def choose_by_curve(curve: Curve, round_trip_us: float, most: float = NEAR_ABOVE) -> AttachChoice:
    """As `choose_attach`, from a stored curve; near if there is none."""
    if not curve:
        return AttachChoice("near", 1.0, "there is no profile of it; 'dgsf profile --save' makes one")
    ratio = read_off(curve, round_trip_us)
    told = f"{shown(ratio, most)} x native at a round trip of {round_trip_us:g} µs"
    if ratio <= most:
        return AttachChoice("fabric", ratio, f"over the fabric it takes {told}, within {most:.2f} x")
    return AttachChoice("near", ratio, f"over the fabric it would take {told}, over {most:.2f} x")
