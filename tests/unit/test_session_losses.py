"""What the end of an executor means for its session."""

from __future__ import annotations

import signal

import pytest

from dgsf.wire.messages import WorkerExit
from proxy.sessions.losses import EXIT_REFUSED, loss_of


@pytest.mark.parametrize(
    ("notice", "code", "resumable"),
    [
        (None, "session_lost", True),
        ({"cause": "killed", "reason": "reaped"}, "session_lost", True),
        ({"cause": "killed", "reason": "memory"}, "out_of_memory", False),
        ({"cause": "exited", "exit_code": EXIT_REFUSED}, "session_refused", False),
        ({"cause": "exited", "signal": int(signal.SIGKILL)}, "session_lost", True),
        ({"cause": "exited", "signal": int(signal.SIGSEGV)}, "executor_crashed", True),
        ({"cause": "exited", "exit_code": 0}, "session_lost", True),
        ({"cause": "exited", "exit_code": 1}, "executor_crashed", True),
    ],
)
def test_only_an_end_of_its_own_is_a_crash(notice, code, resumable):
    error, again, by_guest = loss_of(None if notice is None else WorkerExit(1, 0, 1, **notice), "box/cpu0")
    assert (error.code, again) == (code, resumable)
    assert by_guest == (code == "executor_crashed"), "only what the guest did itself is paid twice"
