"""The life of one session: what a proxy does when its guest speaks, its device comes or goes, or it has to move.

    fresh → begun → attached ⇄ moving;  attached, moving → lost → begun;  everything → ended

A session has a device exactly while it is attached or moving.  Each step takes an event and returns effects in
the order in which they are to be done; nothing here does I/O, waits, or looks at the time.  What a guest does out
of turn ends its session; what the platform does too late (a device that comes when nobody waits any more) is
answered by giving it back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from dgsf.errors import DgsfError, SessionLost, SessionRefused

MAX_LOSSES = 5  # devices lost in a row, nothing new done between, before the session is given up


class State(StrEnum):
    """Where a session is."""

    fresh = "fresh"  # connected, has not asked for a device
    begun = "begun"  # waits for a device
    attached = "attached"  # has one
    moving = "moving"  # goes from one device to another; the guest does not know
    lost = "lost"  # its device is gone; the guest may begin again
    ended = "ended"


class Way(StrEnum):
    """What becomes of a command frame now."""

    relay = "relay"  # to the device
    hold = "hold"  # until there is one
    drop = "drop"  # it was meant for a device that is gone
    refuse = "refuse"  # there never was a device to send it to


_ONWARD: dict[State, frozenset[State]] = {
    State.fresh: frozenset({State.begun, State.ended}),
    State.begun: frozenset({State.attached, State.ended}),
    State.attached: frozenset({State.moving, State.lost, State.ended}),
    State.moving: frozenset({State.attached, State.lost, State.ended}),
    State.lost: frozenset({State.begun, State.ended}),
    State.ended: frozenset(),
}
_WAYS = {
    State.fresh: Way.refuse,
    State.begun: Way.hold,
    State.attached: Way.relay,
    State.moving: Way.hold,
    State.lost: Way.drop,
    State.ended: Way.drop,
}
HAS_DEVICE = frozenset({State.attached, State.moving})


# --- events -----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Begin:
    """The guest asks for a device."""

    generation: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """The guest says that its replay is over."""

    generation: int


@dataclass(frozen=True, slots=True)
class Worked:
    """The device has done something new, by its own clock: the losses before are overcome."""


@dataclass(frozen=True, slots=True)
class Leave:
    """It is to end: the guest is done or gone (no error), or it did wrong, or we cannot go on."""

    error: DgsfError | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """A device is here for this generation."""

    generation: int


@dataclass(frozen=True, slots=True)
class NotOpened:
    """There is none to be had."""

    generation: int
    error: DgsfError


@dataclass(frozen=True, slots=True)
class DeviceLost:
    """The device of this generation is gone."""

    generation: int
    error: DgsfError
    resumable: bool = True
    by_guest: bool = False  # its own doing: it did not read, or what it sent crashed the executor


@dataclass(frozen=True, slots=True)
class Move:
    """It should go to another device, if it can."""


@dataclass(frozen=True, slots=True)
class Moved:
    """It is on the other device now."""


@dataclass(frozen=True, slots=True)
class NotMoved:
    """It stays where it is."""


Event = Begin | Replayed | Worked | Leave | Opened | NotOpened | DeviceLost | Move | Moved | NotMoved


# --- effects ----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Open:
    """Find a device for this generation."""

    generation: int


@dataclass(frozen=True, slots=True)
class StopOpening:
    """Nobody waits for it any more."""


@dataclass(frozen=True, slots=True)
class TellBegan:
    generation: int


@dataclass(frozen=True, slots=True)
class TellLost:
    generation: int
    error: DgsfError


@dataclass(frozen=True, slots=True)
class TellEnded:
    """The last word to the guest; its connection is closed behind it."""

    error: DgsfError | None


@dataclass(frozen=True, slots=True)
class Release:
    """End the executor and give its slot back; what it did is paid for once, unless the guest itself lost it."""

    by_guest: bool = False


@dataclass(frozen=True, slots=True)
class EndReplay:
    """Device time counts again from here."""


@dataclass(frozen=True, slots=True)
class StartMove:
    pass


@dataclass(frozen=True, slots=True)
class StopMove:
    """It is of no use any more."""


@dataclass(frozen=True, slots=True)
class Flush:
    """Commands that were held may go to the device."""


Effect = Open | StopOpening | TellBegan | TellLost | TellEnded | Release | EndReplay | StartMove | StopMove | Flush


class SessionError(DgsfError):
    """A session was asked for a step that cannot follow from where it is."""


@dataclass(slots=True)
class SessionLife:
    """State, generation and story of one session."""

    state: State = State.fresh
    generation: int = 0
    losses: int = 0  # since anything new was done
    story: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=20))

    @property
    def way(self) -> Way:
        return _WAYS[self.state]

    def handle(self, event: Event) -> list[Effect]:
        """What follows from this event."""
        if self.state is State.ended:
            return [Release()] if isinstance(event, Opened) else []
        match event:
            case Begin(generation):
                return self._begin(generation)
            case Replayed(generation):
                return self._replayed(generation)
            case Worked():
                self.losses = 0
                return []
            case Leave(error):
                return self._end(error, "left" if error is None else error.code)
            case Opened(generation):
                return self._opened(generation)
            case NotOpened(generation, error):
                waited = self.state is State.begun and generation == self.generation
                return self._end(error, "no device") if waited else []
            case DeviceLost():
                return self._device_lost(event)
            case Move():
                return self._go(State.moving, "asked to move", StartMove()) if self.state is State.attached else []
            case Moved() | NotMoved():
                return self._arrived(type(event).__name__)

    # --- one event each
    def _begin(self, generation: int) -> list[Effect]:
        if self.state not in (State.fresh, State.lost):
            return self._refuse(f"'begin' while the session is {self.state}")
        if generation != self.generation + 1:
            return self._refuse(f"'begin' of generation {generation}; the next one is {self.generation + 1}")
        self.generation = generation
        return self._go(State.begun, f"generation {generation}", Open(generation))

    def _replayed(self, generation: int) -> list[Effect]:
        if generation > self.generation or self.state is State.fresh:
            return self._refuse(f"the end of a replay in generation {generation}, which has not begun")
        if generation < self.generation or self.state not in HAS_DEVICE:
            return []  # of a generation that is lost already
        return [EndReplay()]  # the guest's word alone does not make it so: see Worked

    def _opened(self, generation: int) -> list[Effect]:
        if self.state is not State.begun or generation != self.generation:
            return [Release()]
        return self._go(State.attached, "device", TellBegan(generation), Flush())

    def _device_lost(self, event: DeviceLost) -> list[Effect]:
        if self.state not in HAS_DEVICE or event.generation != self.generation:
            return []
        if not event.resumable:
            return self._end(event.error, event.error.code)
        self.losses += 1
        if self.losses > MAX_LOSSES:
            return self._end(_given_up(self.losses, event.error), "too many losses")
        stop: list[Effect] = [StopMove()] if self.state is State.moving else []
        release, told = Release(event.by_guest), TellLost(event.generation, event.error)
        lost = self._go(State.lost, event.error.code, release, told)
        return stop + lost

    def _arrived(self, why: str) -> list[Effect]:
        return self._go(State.attached, why, Flush()) if self.state is State.moving else []

    # --- what they share
    def _refuse(self, what: str) -> list[Effect]:
        return self._end(SessionRefused(f"the session was closed: {what}"), "refused")

    def _end(self, error: DgsfError | None, why: str) -> list[Effect]:
        before: list[Effect] = []
        if self.state is State.begun:
            before = [StopOpening()]
        elif self.state is State.moving:
            before = [StopMove(), Release()]
        elif self.state is State.attached:
            before = [Release()]
        return before + self._go(State.ended, why, TellEnded(error))

    def _go(self, state: State, why: str, *effects: Effect) -> list[Effect]:
        self.story.append((f"{self.state} → {state}", why))
        if state not in _ONWARD[self.state]:
            raise SessionError(f"a session cannot go from {self.state} to {state}; its story: {list(self.story)}")
        self.state = state
        return list(effects)


def _given_up(losses: int, last: DgsfError) -> SessionLost:
    return SessionLost(f"{losses} devices were lost one after the other, the last by: {last.message}; attach again")
