"""Failures of functions name the option that they ran into."""

from __future__ import annotations

import errno
import socket
import urllib.error

import pytest

from dgsf.fabric.calling import failure_of
from dgsf.wire.messages import Failure
from proxy.losses import with_its_time


# --- no network
def refused() -> OSError:
    return PermissionError(errno.EACCES, "Permission denied")


def behind(cause: BaseException) -> RuntimeError:
    error = RuntimeError("no answer")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        refused(),
        OSError(errno.ENETUNREACH, "Network is unreachable"),
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
        urllib.error.URLError(refused()),
        behind(refused()),
        RuntimeError("max retries", refused()),
    ],
)
def test_a_connection_that_was_denied_names_the_option(error):
    failure = failure_of(error, network=False)
    assert failure.code == "function_error"
    assert "network=True" in failure.message
    assert "network=True" in failure.details["error"]["traceback"]
    assert "network=True" not in failure.details["error"]["message"], "the exception's own text stays its own"


@pytest.mark.parametrize(
    ("error", "network"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/etc/shadow"), False),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), False),
        (ValueError("x"), False),
        (refused(), True),
    ],
)
def test_other_errors_get_no_such_hint(error, network):
    failure = failure_of(error, network=network)
    assert "network" not in failure.message + failure.details["error"]["traceback"]


# --- too long
def test_a_timeout_says_how_long_it_was_and_how_to_get_more():
    stopped = Failure("timed_out", "stopped", {"a": 1})
    own = with_its_time(stopped, 1_500_000, 1_500_000)
    assert own.code == "timed_out" and own.details == {"a": 1}
    assert "its timeout of 1.5 s" in own.message and "timeout=" in own.message
    assert "the 0.2 s that this call gave it (X-Dgsf-Timeout)" in with_its_time(stopped, 200_000, 1_500_000).message
    assert with_its_time(Failure("cancelled", "x"), 1, 1).message == "x"
