"""The life of one call as a table of transitions.

queued → running → succeeded | failed | cancelled | timed_out; queued → aborted | cancelled | failed; a retry
goes running → queued with the next attempt.  Terminal is terminal.  Anything else is a bug of ours and
raises with the call's whole story.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a call is."""

    queued = "queued"  # accepted, waits for a worker
    running = "running"  # given to a worker
    succeeded = "succeeded"
    failed = "failed"  # by the function's own doing, or lost by the platform
    cancelled = "cancelled"  # the caller did not want it any more
    timed_out = "timed_out"  # ran longer than allowed
    aborted = "aborted"  # never started


TRANSITIONS: dict[State, frozenset[State]] = {
    State.queued: frozenset({State.running, State.aborted, State.cancelled, State.failed}),
    State.running: frozenset({State.succeeded, State.failed, State.cancelled, State.timed_out, State.queued}),
    State.succeeded: frozenset(),
    State.failed: frozenset(),
    State.cancelled: frozenset(),
    State.timed_out: frozenset(),
    State.aborted: frozenset(),
}
TERMINAL = frozenset(state for state, onward in TRANSITIONS.items() if not onward)


class InvalidTransition(Exception):
    """A call was asked to go where it cannot; carries its story."""


class Invocation:
    """State, attempt and story of one call."""

    __slots__ = ("attempt", "state", "story")

    def __init__(self, attempt: int = 1) -> None:
        self.state = State.queued
        self.attempt = attempt
        self.story: list[tuple[int, State, str]] = []

    def to(self, state: State, why: str = "") -> None:
        """Move on, or raise."""
        if state not in TRANSITIONS[self.state]:
            told = " → ".join(f"{old}#{attempt}({why})" for attempt, old, why in self.story)
            raise InvalidTransition(f"{self.state} → {state} ({why}); before: {told or 'nothing'}")
        self.story.append((self.attempt, self.state, why))
        if state is State.queued:
            self.attempt += 1
        self.state = state

    def requeue_unstarted(self) -> None:
        """Back to the queue in the same attempt: the worker died before it looked at this call."""
        if self.state is not State.running:
            raise InvalidTransition(f"{self.state} was not given to a worker")
        self.story.append((self.attempt, self.state, "never started"))
        self.state = State.queued

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL
