"""The health of devices: what was heard of each, and what follows from it.

Pure: events come in with the time, effects come out; the controller does them.  A device is offered by
its node, started, and believed in as long as it answers heartbeats with the incarnation it was given.
Silence makes it suspect, more silence makes it lost: its incarnation rises, so that nobody listens to the
old server any more, the old server is killed and a new one started, later and later if it keeps failing.
A server on the controller's own host whose process has ended is refused at once, so its mere silence is
given longer.  Time in which the controller itself stood still is not held against the devices, and when
it runs late the machine is starved: then all silence is given longer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from dgsf.errors import DgsfError

SECOND = 1_000_000


class State(StrEnum):
    """Where a device is; the values are also those in the database, but for the first three."""

    waiting = "waiting"  # not running; to be started when its time has come
    starting = "starting"  # a start is under way
    gone = "gone"  # its node does not offer it any more
    healthy = "healthy"  # answers and takes leases
    suspect = "suspect"  # silent or not ready: no new leases until it is well again
    draining = "draining"  # set by an operator: finishes what runs
    quarantined = "quarantined"  # set by an operator or a failed check
    spare = "spare"  # waits to replace another


ALIVE = frozenset({State.healthy, State.suspect, State.draining, State.quarantined, State.spare})
_FROM_ALIVE = frozenset({State.waiting, State.gone, *ALIVE})
_TRANSITIONS: dict[State, frozenset[State]] = {
    State.waiting: frozenset({State.starting, State.gone}),
    State.starting: frozenset({State.healthy, State.waiting, State.gone}),
    State.gone: frozenset(),
    **dict.fromkeys(ALIVE, _FROM_ALIVE),
}


@dataclass(frozen=True, slots=True)
class Policy:
    """The times of the heartbeat."""

    beat_us: int = SECOND // 4
    suspect_us: int = SECOND
    lost_us: int = SECOND * 3 // 2  # silence of a server on another host, which may be gone without a word
    hung_us: int = 4 * SECOND  # silence of a server on this host: were its process gone, we would be refused
    unready_us: int = 60 * SECOND
    steady_us: int = 30 * SECOND
    backoff_us: int = SECOND // 2
    backoff_limit_us: int = 30 * SECOND
    stall_us: int = SECOND // 2  # ticks further apart than this: it was us who slept
    tick_us: int = SECOND // 10
    late_us: int = SECOND // 20  # a tick that is later than this: there is more to do than processors to do it
    grace_times: int = 4  # a server has more to do than a tick, and is late by a multiple
    most_grace_us: int = 8 * SECOND


# --- events -----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Offer:
    """A node has this device."""

    name: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Its node is gone, or does not have it any more."""

    name: str


@dataclass(frozen=True, slots=True)
class Adopt:
    """A server that an earlier controller started answered with the incarnation in the database."""

    name: str
    incarnation: int
    state: State
    near: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """`near`: on the controller's own host."""

    name: str
    incarnation: int
    near: bool = False


@dataclass(frozen=True, slots=True)
class StartFailed:
    name: str


@dataclass(frozen=True, slots=True)
class Beat:
    name: str
    incarnation: int
    ready: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """Nobody listens at its address: certain at once, no need to wait."""

    name: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = Offer | Withdraw | Adopt | Started | StartFailed | Beat | Refused | Tick


# --- effects ----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Start:
    name: str


@dataclass(frozen=True, slots=True)
class Kill:
    """End the server, if it still is there."""

    name: str


@dataclass(frozen=True, slots=True)
class MarkLost:
    name: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class SetState:
    name: str
    incarnation: int
    state: State


Effect = Start | Kill | MarkLost | SetState


class PoolError(DgsfError):
    """A device was asked for a step that cannot follow from where it is."""


@dataclass(slots=True)
class Device:
    """What is known of one device."""

    name: str
    state: State = State.waiting
    offered: bool = False
    incarnation: int = 0
    near: bool = False
    heard_us: int = 0
    grace_us: int = 0  # added to our patience since then
    since_us: int = 0  # in this state
    unready_since_us: int | None = None
    failures: int = 0
    retry_us: int = 0
    story: deque[tuple[int, str, str]] = field(default_factory=lambda: deque(maxlen=20))

    def go(self, state: State, now_us: int, why: str) -> None:
        self.story.append((now_us, f"{self.state} → {state}", why))
        if state not in _TRANSITIONS[self.state]:
            raise PoolError(f"device {self.name} cannot go from {self.state} to {state}; its story: {list(self.story)}")
        self.state = state
        self.since_us = now_us


class Pool:
    """All devices of the platform."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.devices: dict[str, Device] = {}
        self._ticked_us: int | None = None

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        """What follows from this event."""
        match event:
            case Tick():
                return self._tick(now_us)
            case Offer(name):
                return self._offer(name, now_us)
            case Adopt():
                return self._adopt(event, now_us)
        device = self.devices.get(event.name)
        if device is None:
            return _stray(event)
        match event:
            case Withdraw():
                return self._withdraw(device, now_us)
            case Started():
                return self._started(device, event, now_us)
            case StartFailed():
                return self._fail(device, now_us, "start failed") if device.state is State.starting else []
            case Beat():
                return self._beat(device, event, now_us)
            case Refused(_, incarnation):
                current = device.state in ALIVE and incarnation == device.incarnation
                return self._lose(device, now_us, "nobody listens") if current else []

    def alive(self) -> list[Device]:
        return [device for device in self.devices.values() if device.state in ALIVE]

    # --- one event each
    def _offer(self, name: str, now_us: int) -> list[Effect]:
        device = self.devices.setdefault(name, Device(name, since_us=now_us))
        device.offered = True
        return self._start_if_due(device, now_us)

    def _adopt(self, event: Adopt, now_us: int) -> list[Effect]:
        device = self.devices[event.name] = Device(event.name, event.state, since_us=now_us)
        device.incarnation, device.near, device.heard_us = event.incarnation, event.near, now_us
        device.story.append((now_us, f"→ {event.state}", "adopted"))
        return []

    def _withdraw(self, device: Device, now_us: int) -> list[Effect]:
        effects: list[Effect] = []
        if device.state in ALIVE:
            effects.append(MarkLost(device.name, device.incarnation))
        if device.state is not State.waiting:
            effects.append(Kill(device.name))
        device.go(State.gone, now_us, "withdrawn")
        del self.devices[device.name]
        return effects

    def _started(self, device: Device, event: Started, now_us: int) -> list[Effect]:
        if device.state is not State.starting:
            return _stray(event)
        device.go(State.healthy, now_us, f"started as incarnation {event.incarnation}")
        device.incarnation, device.near, device.unready_since_us = event.incarnation, event.near, None
        device.heard_us, device.grace_us = now_us, 0
        return []

    def _beat(self, device: Device, beat: Beat, now_us: int) -> list[Effect]:
        if device.state not in ALIVE:
            return []
        if beat.incarnation != device.incarnation:
            return self._lose(device, now_us, f"answers as incarnation {beat.incarnation}")
        device.heard_us, device.grace_us = now_us, 0
        if beat.ready:
            device.unready_since_us = None
            return self._set(device, State.healthy, now_us, "well again") if device.state is State.suspect else []
        if device.unready_since_us is None:
            device.unready_since_us = now_us
        if now_us - device.unready_since_us >= self.policy.unready_us:
            return self._lose(device, now_us, "not ready for too long")
        return self._set(device, State.suspect, now_us, "not ready") if device.state is State.healthy else []

    def _tick(self, now_us: int) -> list[Effect]:
        self._allow_for_lateness(now_us)
        effects: list[Effect] = []
        for device in list(self.devices.values()):
            effects += self._look_at(device, now_us)
        return effects

    def _look_at(self, device: Device, now_us: int) -> list[Effect]:
        if device.state not in ALIVE:
            return self._start_if_due(device, now_us)
        if device.state is State.healthy and now_us - device.since_us >= self.policy.steady_us:
            device.failures = 0
        silence = now_us - device.heard_us
        if silence - device.grace_us >= (self.policy.hung_us if device.near else self.policy.lost_us):
            return self._lose(device, now_us, f"silent for {silence // 1000} ms")
        if silence - device.grace_us >= self.policy.suspect_us and device.state is State.healthy:
            return self._set(device, State.suspect, now_us, f"silent for {silence // 1000} ms")
        return []

    def _allow_for_lateness(self, now_us: int) -> None:
        """What came while we stood still is not read yet; when we run late, so does everybody here."""
        last, self._ticked_us = self._ticked_us, now_us
        gap = self.policy.tick_us if last is None else now_us - last
        late = gap - self.policy.tick_us
        for device in self.devices.values():
            if gap > self.policy.stall_us:
                device.heard_us = min(now_us, device.heard_us + gap)
            elif late > self.policy.late_us:
                device.grace_us = min(device.grace_us + self.policy.grace_times * late, self.policy.most_grace_us)

    # --- what they share
    def _start_if_due(self, device: Device, now_us: int) -> list[Effect]:
        if device.state is not State.waiting or not device.offered or now_us < device.retry_us:
            return []
        device.go(State.starting, now_us, f"start number {device.failures + 1}")
        return [Start(device.name)]

    def _set(self, device: Device, state: State, now_us: int, why: str) -> list[Effect]:
        device.go(state, now_us, why)
        return [SetState(device.name, device.incarnation, state)]

    def _lose(self, device: Device, now_us: int, why: str) -> list[Effect]:
        lost = MarkLost(device.name, device.incarnation)
        return [lost, *self._fail(device, now_us, why)]

    def _fail(self, device: Device, now_us: int, why: str) -> list[Effect]:
        device.go(State.waiting, now_us, why)
        device.retry_us = now_us + self._backoff_us(device.failures)
        device.failures += 1
        return [Kill(device.name), *self._start_if_due(device, now_us)]

    def _backoff_us(self, failures: int) -> int:
        """At once the first time, then later and later."""
        if failures == 0:
            return 0
        return min(self.policy.backoff_us << min(failures - 1, 16), self.policy.backoff_limit_us)


def _stray(event: Event) -> list[Effect]:
    """A server came up that nobody waits for any more."""
    if isinstance(event, Started):
        return [MarkLost(event.name, event.incarnation), Kill(event.name)]
    return []
