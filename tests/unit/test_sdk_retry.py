"""Plans are decisions without I/O: driven here by hand."""

from __future__ import annotations

import json
import random

import pytest

from dgsf.errors import ConnectionLost
from dgsf.sdk.plan import Pause, Reply, Request
from dgsf.sdk.problems import error_of, problem_of, retry_after
from dgsf.sdk.retry import Patience, send

REQUEST = Request("POST", "/x")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def busy(**headers: str) -> Reply:
    return Reply(503, headers, json.dumps({"code": "no_device", "detail": "none", "retryable": True}).encode())


def drive(answers: list, seconds: float) -> tuple[object, list[float]]:
    """The plan's result and the pauses that it made."""
    clock, pauses = Clock(), []
    plan = send(REQUEST, Patience(seconds, clock, random.Random(1)))
    effect = next(plan)
    try:
        while True:
            if isinstance(effect, Pause):
                pauses.append(effect.seconds)
                clock.now += effect.seconds
                effect = plan.send(None)
                continue
            answer = answers.pop(0)
            effect = plan.throw(answer) if isinstance(answer, Exception) else plan.send(answer)
    except StopIteration as end:
        return end.value, pauses


OK = Reply(200, {}, b"")


def test_a_good_answer_is_returned_at_once():
    assert drive([OK], 60) == (OK, [])


def test_retry_after_is_honoured():
    assert drive([busy(**{"retry-after": "3"}), OK], 60) == (OK, [3.0])


def test_waits_grow_up_to_a_bound():
    result, pauses = drive([busy() for _ in range(10)] + [OK], 60)
    assert result is OK
    assert 0.05 <= pauses[0] <= 0.1
    assert max(pauses) <= 2.0


def test_the_last_answer_is_returned_when_patience_ends():
    last = busy()
    result, pauses = drive([busy() for _ in range(3)] + [last] * 100, 5)
    assert result.status == 503
    assert sum(pauses) <= 5


def test_without_patience_nothing_is_repeated():
    assert drive([busy(), OK], 0)[0].status == 503
    with pytest.raises(ConnectionLost):
        drive([ConnectionLost("gone"), OK], 0)


def test_a_lost_connection_is_repeated_within_patience():
    assert drive([ConnectionLost("gone"), OK], 10)[0] is OK


def test_answers_that_are_not_retryable_are_returned():
    final = Reply(503, {}, json.dumps({"code": "outcome_unknown", "retryable": False}).encode())
    assert drive([final, OK], 60) == (final, [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3", 3.0), ("", None), ("soon", None), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0), ("-1", None)],
)
def test_retry_after_is_read_as_seconds_or_date(text, expected):
    assert retry_after(Reply(429, {"retry-after": text}, b"")) == expected


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (404, b"<html>", "bad_request"),
        (429, b"", "overloaded"),
        (503, b"[1]", "unavailable"),
        (500, b"\xff\xfe", "internal"),
        (418, b'{"code": "from_the_future"}', "bad_request"),
        (404, b'{"code": "not_found", "detail": "gone", "call_id": "c"}', "not_found"),
    ],
)
def test_every_answer_becomes_an_error(status, body, code):
    assert error_of(problem_of(Reply(status, {}, body))).code == code
