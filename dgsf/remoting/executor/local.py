"""Executors without a platform: for tests, benchmarks and torch's own operator cases.

`LocalExecutors` starts one process that imports torch and then forks an executor per session, as a device
server's zygote does, but without sandbox.  The executor itself answers the SESSION words of the guest, so the
socket that `connect` gives behaves like a proxy's.  When the executor dies, the socket just closes.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import msgspec

from dgsf.config import GIB
from dgsf.errors import StartError
from dgsf.fabric.sandbox.libc import die_with_parent
from dgsf.fabric.sandbox.limits import data_bytes
from dgsf.fabric.spec import executor_bytes

_MAX_REQUEST = 64 * 1024
CLOSE_SECONDS = 0.5


class LocalSpec(msgspec.Struct, frozen=True):
    """One session to be started."""

    device_kind: str = "cpu"
    memory_bytes: int = 4 * GIB
    device_options: dict[str, Any] = {}
    contents: str = ""  # folder of contents, shared by sessions
    usage: bool = False  # whether USAGE frames are sent, which only a proxy understands
    record: str = ""  # file that gets everything the guest sends, for dgsf.remoting.executor.native
    clock: str = ""  # file that gets the time of each call, for dgsf.remoting.executor.callclock


@dataclass
class LocalExecutors:
    """Starts executors; `pids` are those of the sessions so far."""

    pids: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._keeper = subprocess.Popen(
                [sys.executable, "-m", "dgsf.remoting.executor.local", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # a Ctrl-C is for the program alone; this one ends when nobody asks any more
            )

    def connect(self, spec: LocalSpec | None = None) -> socket.socket:
        """The guest's end of a connection to a new executor."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [msgspec.msgpack.encode(spec or LocalSpec())], [theirs.fileno()])
        answer = self._control.recv(_MAX_REQUEST)
        if not answer:
            ours.close()
            raise StartError("the process that starts local executors ended")
        self.pids.append(int(answer))
        return ours

    def exit_code(self, pid: int | None = None) -> int:
        """How an executor ended, the last one by default; waits for it. Negative: by that signal."""
        self._control.send(msgspec.msgpack.encode(self.pids[-1] if pid is None else pid))
        return int(self._control.recv(_MAX_REQUEST))

    def kill(self, pid: int | None = None) -> None:
        """End an executor the hard way, the last one by default."""
        os.kill(self.pids[-1] if pid is None else pid, signal.SIGKILL)

    def close(self) -> None:
        self._control.close()
        try:
            self._keeper.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:  # it may still be loading torch: nobody waits for that
            self._keeper.kill()
            self._keeper.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


def _keep(control: socket.socket) -> None:
    """The keeper's life: fork an executor per request until nobody asks any more; its children die with it."""
    from dgsf.remoting.executor import loop  # the imports that forks shall share

    assert loop
    ended: dict[int, int] = {}
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, _MAX_REQUEST, 1)
        if not data:
            return
        _reap(ended)
        if not descriptors:
            control.send(str(_exit_code(ended, msgspec.msgpack.decode(data, type=int))).encode())
            continue
        pid = os.fork()
        if pid == 0:
            control.close()
            _execute(socket.socket(fileno=descriptors[0]), msgspec.msgpack.decode(data, type=LocalSpec))
        os.close(descriptors[0])
        control.send(str(pid).encode())


def _reap(ended: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            ended[pid] = os.waitstatus_to_exitcode(status)


def _exit_code(ended: dict[int, int], pid: int) -> int:
    if pid not in ended:
        ended[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return ended[pid]


def limit_memory(lease: int) -> None:
    """What a worker's sandbox does: an allocation far beyond the lease fails instead of filling the machine."""
    allowed = data_bytes() + executor_bytes(lease)
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def _execute(connection: socket.socket, spec: LocalSpec) -> None:
    from dgsf.remoting.executor.local_words import LocalSession
    from dgsf.remoting.executor.loop import new_machine, prepare_process, run

    code = 1
    try:
        die_with_parent(signal.SIGKILL)
        limit_memory(spec.memory_bytes)
        prepare_process(spec.device_options)
        machine = new_machine(spec, spec.contents)
        code = run(LocalSession(connection, machine, spec, uuid.uuid4().bytes))
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    with (
        socket.socket(fileno=int(sys.argv[1])) as channel,
        contextlib.suppress(ConnectionError),
    ):  # nobody asks any more
        _keep(channel)
