"""The zygote: a process with the heavy imports done, of which every worker is a fork.

Run as `python -m dgsf.fabric.zygote FD` with a control socket.  It stays single-threaded, runs no tensor
operation, opens no device and holds no secret, because its children inherit all of that.  It lives in its
own pid namespace under a small keeper process: when either ends, or the control socket closes, the kernel
ends every worker below.  It never runs user code itself.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from dgsf.errors import DgsfError, StartError
from dgsf.fabric.sandbox import libc
from dgsf.fabric.sandbox.confine import Sandbox
from dgsf.fabric.sandbox.features import Features, SandboxError
from dgsf.fabric.sandbox.namespaces import PidNamespaces, enter_zygote_namespaces
from dgsf.fabric.sandbox.seccomp import SELF_KILL_SIGNAL
from dgsf.fabric.spec import WorkerSpec
from dgsf.fabric.zygote_child import Entry, Origin, run_worker
from dgsf.fabric.zygote_messages import (
    MAX_MESSAGE_BYTES,
    Exited,
    Ready,
    Refused,
    Setup,
    Signal,
    Spawn,
    Spawned,
    read_order,
    read_setup,
)
from dgsf.wire.messages import Failure, encode

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Zygote:
    """Forks workers on request and tells of their ends."""

    def __init__(self, control: socket.socket, entry: Entry, sandbox: Sandbox) -> None:
        self._control = control
        self._entry = entry
        self._sandbox = sandbox
        self._children: set[int] = set()
        self._pids = PidNamespaces()
        self._woken, self._wake = socket.socketpair()
        self._stopping = False

    def run(self) -> None:
        """Until the control socket closes."""
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        handlers: dict[int, Callable[[], None]] = {
            self._control.fileno(): self._take_order,
            self._woken.fileno(): self._reap,
        }
        with selectors.DefaultSelector() as selector:
            for descriptor in handlers:
                selector.register(descriptor, selectors.EVENT_READ)
            while not self._stopping:
                for key, _ in selector.select():
                    handlers[key.fd]()

    def _take_order(self) -> None:
        data, descriptors, _flags, _address = socket.recv_fds(self._control, MAX_MESSAGE_BYTES, 2)
        if not data:
            self._stopping = True
            return
        order = read_order(data)
        if isinstance(order, Spawn):
            self._spawn(order, descriptors)
        elif isinstance(order, Signal) and order.pid in self._children:
            os.kill(order.pid, order.number)

    def _spawn(self, order: Spawn, descriptors: list[int]) -> None:
        try:
            pid = self._fork(order.spec, descriptors)
        except OSError as error:
            failure = Failure.of(StartError(f"a worker cannot be forked: {error}"))
            self._tell(Spawned(order.request, 0, failure))
            return
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._children.add(pid)
        handle = os.pidfd_open(pid)
        try:
            socket.send_fds(self._control, [encode(Spawned(order.request, pid))], [handle])
        finally:
            os.close(handle)

    def _fork(self, spec: WorkerSpec, descriptors: list[int]) -> int:
        origin = Origin(os.getpid(), time.perf_counter_ns())
        with self._pids.fresh():
            pid = os.fork()
            if pid == 0:
                run_worker(self._entry, self._sandbox, spec, descriptors, origin)
            return pid

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid in self._children:  # else an orphan that was left to us
                    self._children.discard(pid)
                    self._tell(_exit_of(pid, status))

    def _tell(self, message: Spawned | Exited) -> None:
        self._control.send(encode(message))


def _exit_of(pid: int, status: int) -> Exited:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return Exited(pid, code, 0)
    # The filter ends a function that sends itself SIGKILL with SIGSYS: tell what the function did.
    return Exited(pid, 0, signal.SIGKILL if -code == SELF_KILL_SIGNAL else -code)


# --- start ------------------------------------------------------------------------------------
def main() -> None:
    """Keeper and zygote: the keeper only waits, and dies with the device server."""
    control = socket.socket(fileno=int(sys.argv[1]))
    libc.die_with_parent(signal.SIGKILL)
    features = Features()
    try:
        enter_zygote_namespaces(features)
        pid = os.fork()
    except (OSError, SandboxError) as error:
        _refuse(control, error)
    if pid == 0:
        _begin(control, features)
    control.close()
    _, status = os.waitpid(pid, 0)
    os._exit(0 if status == 0 else 1)


def _begin(control: socket.socket, features: Features) -> NoReturn:
    libc.die_with_parent(signal.SIGKILL)
    data = control.recv(MAX_MESSAGE_BYTES)
    if not data:
        os._exit(0)
    setup: Setup = read_setup(data)
    began = time.perf_counter()
    absent = _preload(setup.preload)
    try:
        entry = _find(setup.entry)
        sandbox = Sandbox.prepare(tuple(setup.device_nodes), tuple(setup.hidden), features)
        zygote = Zygote(control, entry, sandbox)
    except (ImportError, AttributeError, OSError, SandboxError) as error:
        _refuse(control, error)
    gc.collect()
    gc.freeze()  # what is here now is never walked by a child's collector, so its pages stay shared
    took = round((time.perf_counter() - began) * 1000)
    _tell_ready(control, Ready(_threads(), _resident(), took, absent, features.found))
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        zygote.run()
    os._exit(0)


def _tell_ready(control: socket.socket, ready: Ready) -> None:
    """With a handle of this process, by which the server knows for certain when it has ended."""
    handle = os.pidfd_open(os.getpid())
    socket.send_fds(control, [encode(ready)], [handle])
    os.close(handle)


def _refuse(control: socket.socket, error: Exception) -> NoReturn:
    told = error if isinstance(error, DgsfError) else StartError(f"the zygote cannot start: {error}")
    with contextlib.suppress(OSError):
        control.send(encode(Refused(Failure.of(told))))
    os._exit(1)


def _preload(names: list[str]) -> list[str]:
    """Import what workers will want; returns the names that are not installed here."""
    absent = []
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            absent.append(name)
    return absent


def _find(entry: str) -> Entry:
    module, _, name = entry.partition(":")
    found: Entry = getattr(importlib.import_module(module), name)
    return found


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * _PAGE


if __name__ == "__main__":
    main()
