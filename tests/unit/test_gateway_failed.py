"""The log of failed calls: one line each, and no more than a disk can bear."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from dgsf.wire.messages import Failure
from dgsf.wire.ports import CallResult
from gateway.failed import LINES_PER_SECOND, FailedCalls

CALL: Any = SimpleNamespace(id=UUID(int=7), tenant_id=3)
FUNCTION: Any = SimpleNamespace(version=SimpleNamespace(name="hello.square"))
CRASHED = CallResult("failed", None, Failure("worker_crashed", "a secret of the function"), 1, 2, 3, "box/cpu0")


def test_a_line_names_the_call_and_how_it_ended_and_nothing_that_the_function_said(caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    FailedCalls().tell(CALL, FUNCTION, CRASHED)
    (line,) = caplog.records
    assert line.message == "call_failed"
    told = {name: vars(line)[name] for name in ("call_id", "function", "tenant_id", "state", "code", "device")}
    assert told == {
        "call_id": str(UUID(int=7)),
        "function": "hello.square",
        "tenant_id": 3,
        "state": "failed",
        "code": "worker_crashed",
        "device": "box/cpu0",
    }
    assert "secret" not in str(vars(line))


def test_a_function_that_always_fails_does_not_fill_the_disk(caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    clock = [100.0]
    failed = FailedCalls(lambda: clock[0])
    for _ in range(LINES_PER_SECOND + 5):
        failed.tell(CALL, FUNCTION, CRASHED)
    assert len(caplog.records) == LINES_PER_SECOND
    clock[0] += 1.0
    failed.tell(CALL, FUNCTION, CRASHED)
    failed.tell(CALL, FUNCTION, CRASHED)
    assert [vars(line).get("left_out") for line in caplog.records[-3:]] == [None, 5, None]


def test_an_end_that_was_found_after_all_is_no_failure(caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    FailedCalls().tell(CALL, FUNCTION, CallResult("succeeded"))
    assert not caplog.records
