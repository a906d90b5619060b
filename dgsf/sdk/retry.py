"""Trying again: when a call may be sent once more, and after how long.

Only calls that the user marked as repeatable (`retries` above 0) are sent again, each under one
Idempotency-Key, so that the platform sees them as one call.  The wait is the answer's Retry-After, else it
doubles from 0.1 s to 2 s with some jitter; all of it fits in the call's own timeout.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dgsf.errors import ConnectionLost, DgsfError, OutcomeUnknown
from dgsf.sdk.plan import Pause, Plan, Reply, Request
from dgsf.sdk.problems import error_of, problem_of, retry_after

FIRST_WAIT, LONGEST_WAIT = 0.1, 2.0
BUSY = (429, 502, 503)


@dataclass(slots=True)
class Patience:
    """How long to go on trying; 0 seconds: once."""

    seconds: float = 0.0
    now: Callable[[], float] = time.monotonic
    rng: random.Random = field(default_factory=random.Random)

    def next_wait(self, started: float, attempt: int, asked: float | None) -> float | None:
        """The wait before the next try, or None if there is no time for one."""
        backoff = min(FIRST_WAIT * 2**attempt, LONGEST_WAIT) * self.rng.uniform(0.5, 1.0)
        wait = backoff if asked is None else max(asked, 0.01)
        return wait if self.now() - started + wait <= self.seconds else None


def send(request: Request, patience: Patience) -> Plan[Reply]:
    """Sends until there is an answer that stays; a good one is returned, another returned or raised as is."""
    started, attempt = patience.now(), 0
    while True:
        asked: float | None = None
        lost: ConnectionLost | None = None
        reply: Reply | None = None
        try:
            reply = yield request
        except ConnectionLost as error:
            lost = error
        if reply is not None:
            if not _worth_another(reply):
                return reply
            asked = retry_after(reply)
        wait = patience.next_wait(started, attempt, asked)
        if wait is None and reply is not None:
            return reply
        if wait is None:
            assert lost is not None
            raise lost
        attempt += 1
        yield Pause(wait)


def _worth_another(reply: Reply) -> bool:
    return reply.status in BUSY and error_of(problem_of(reply)).retryable


def as_call_error(error: ConnectionLost, *, keyed: bool) -> DgsfError:
    """What a lost connection means to a caller: nothing happened, or nobody knows."""
    if error.details.get("sent") is False:
        return error
    return OutcomeUnknown(f"{error.message}; the call may or may not have run", retryable=keyed)
