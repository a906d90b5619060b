"""A line in the log for each call that failed: the id that its caller got, what it was, how it ended.

Nothing of what the function said or was given is written.  The log of a process has no bound while it runs, so a
function that fails all day writes at most so many lines per second; how many were left out stands in the next one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from dgsf.store.catalogue import Function
from dgsf.wire.ports import CallRequest, CallResult

log = logging.getLogger(__name__)
LINES_PER_SECOND = 10


class FailedCalls:
    """Writes them down; successful calls never come here."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._until = float("-inf")
        self._lines = 0
        self._left_out = 0

    def tell(self, call: CallRequest, function: Function, result: CallResult) -> None:
        failure = result.failure
        if failure is None:  # a kept answer was found after all
            return
        if not self._may():
            self._left_out += 1
            return
        fields: dict[str, object] = {
            "call_id": str(call.id),
            "function": function.version.name,
            "tenant_id": call.tenant_id,
            "state": str(result.state),
            "code": failure.code,
            "device": result.device,
            "queue_us": result.queue_us,
            "device_us": result.device_us,
        }
        if self._left_out:
            fields["left_out"], self._left_out = self._left_out, 0
        log.info("call_failed", extra=fields)

    def _may(self) -> bool:
        now = self._now()
        if now >= self._until:
            self._until, self._lines = now + 1.0, 0
        self._lines += 1
        return self._lines <= LINES_PER_SECOND
