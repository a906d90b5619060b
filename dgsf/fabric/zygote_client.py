"""The device server's side of the zygote: starts it, asks it for workers, hears of their ends.

It runs on the server's event loop, in one thread, because a child that dies with its parent dies with the
thread that started it.  It never forks this process.  One client is one zygote: when that is lost, all its
workers are, and the server makes a new client.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from dgsf.errors import ConnectionLost, DgsfError, StartError
from dgsf.fabric.spec import WorkerSpec
from dgsf.fabric.zygote_messages import (
    MAX_MESSAGE_BYTES,
    Exited,
    Ready,
    Refused,
    Setup,
    Signal,
    Spawn,
    Spawned,
    read_report,
)
from dgsf.wire.messages import encode

WORKER_ENTRY = "dgsf.fabric.worker:serve"
PRELOAD = (
    "numpy", "numpy.random", "torch", "cloudpickle", "msgspec", "dgsf.sdk.unbundle", "dgsf.sdk.failures",
    "dgsf.remoting.executor.loop",
)  # fmt: skip
START_SECONDS = 120.0
STOP_SECONDS = 10.0
T = TypeVar("T", "Ready", "Child")
_KEPT_VARIABLES = ("LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "PYTHONDONTWRITEBYTECODE", "DGSF_MARK")


@dataclass(frozen=True, slots=True)
class ZygoteOptions:
    """What a zygote is made for."""

    entry: str = WORKER_ENTRY
    preload: tuple[str, ...] = PRELOAD
    device_nodes: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    import_paths: tuple[str, ...] = ()  # beside the folder that holds this package


@dataclass(frozen=True, slots=True)
class Child:
    """A worker's process: its number for the zygote, the one that we see, and its end.

    `ended` gives None when the zygote was lost, which ends its workers too.
    """

    pid: int
    host_pid: int
    ended: asyncio.Future[Exited | None]


def zygote_environment(options: ZygoteOptions) -> dict[str, str]:
    """All that the zygote, and so every worker, finds in its environment."""
    paths = (str(Path(__file__).resolve().parents[2]), *options.import_paths)
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    fixed = {
        "PATH": f"{sys.prefix}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/tmp",  # noqa: S108 - the worker's own
        "PYTHONPATH": os.pathsep.join(paths),
        "OPENBLAS_NUM_THREADS": "1",  # it would start its threads when numpy is imported
        "KMP_BLOCKTIME": "0",
    }
    return {"LANG": "C.UTF-8"} | kept | fixed | dict(options.environment)


class ZygoteClient:
    """One running zygote; when `lost` is set, `stop` has still to be called."""

    def __init__(self, options: ZygoteOptions) -> None:
        self._options = options
        self.lost = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._handle_fd = -1  # a pidfd of the zygote itself
        self._ready: asyncio.Future[Ready] = self._loop.create_future()
        self._spawning: dict[int, asyncio.Future[Child]] = {}
        self._children: dict[int, Child] = {}
        self._requests = 0

    @property
    def pid(self) -> int:
        """The keeper's process; ending it ends the zygote and all workers."""
        assert self._process is not None
        return self._process.pid

    async def start(self, timeout: float = START_SECONDS) -> Ready:
        """Until it can fork."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._socket = ours
        with theirs:
            self._process = self._launch(theirs)
        self._loop.add_reader(ours.fileno(), self._on_readable)
        wanted = self._options
        setup = Setup(wanted.entry, list(wanted.preload), list(wanted.device_nodes), list(wanted.hidden))
        ours.send(encode(setup))
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(self._ready)
        except TimeoutError:
            raise StartError(f"the zygote was not ready after {timeout:g} s") from None

    def _launch(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # vfork and exec: fine in a process with threads
            [sys.executable, "-P", "-m", "dgsf.fabric.zygote", str(theirs.fileno())],
            env=zygote_environment(self._options),
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    async def spawn(self, spec: WorkerSpec, control: socket.socket, connection: socket.socket) -> Child:
        """Fork a worker; both sockets stay open here and belong to the caller."""
        if self._socket is None:
            raise ConnectionLost("the zygote is gone")
        self._requests += 1
        request = self._requests
        future: asyncio.Future[Child] = self._loop.create_future()
        self._spawning[request] = future
        try:
            message = encode(Spawn(request, spec))
            socket.send_fds(self._socket, [message], [control.fileno(), connection.fileno()])
            return await future
        except OSError as error:
            raise ConnectionLost(f"the zygote does not take orders: {error}") from error
        finally:
            self._spawning.pop(request, None)

    def signal(self, child: Child, number: int) -> None:
        """Signal a worker; one that is reaped already is not."""
        if self._socket is not None:
            with contextlib.suppress(OSError):  # a lost zygote has taken its workers along
                self._socket.send(encode(Signal(child.pid, number)))

    async def stop(self) -> None:
        """End it and every worker; returns when they are gone."""
        self._detach("stopped")
        if self._process is None:
            return
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._gone(self._process)
        except TimeoutError:
            self._process.kill()
            await self._gone(self._process)
        self._bury()

    async def _gone(self, process: subprocess.Popen[bytes]) -> None:
        """Keeper and zygote have ended; the zygote's end is the end of its pid namespace."""
        if process.poll() is None:
            descriptor = os.pidfd_open(process.pid)
            try:
                await _readable(descriptor)
            finally:
                os.close(descriptor)
            process.wait()
        if self._handle_fd >= 0:
            await _readable(self._handle_fd)

    # --- reports
    def _on_readable(self) -> None:
        try:
            while self._socket is not None:
                data, descriptors, _flags, _address = socket.recv_fds(self._socket, MAX_MESSAGE_BYTES, 1)
                if not data:
                    self._detach("it ended")
                    return
                self._handle(read_report(data), descriptors)
        except BlockingIOError:
            return
        except (OSError, DgsfError) as error:
            self._detach(str(error))

    def _handle(self, report: Ready | Refused | Spawned | Exited, descriptors: list[int]) -> None:
        try:
            if isinstance(report, Ready):
                self._handle_fd = os.dup(descriptors[0])
                _settle(self._ready, report)
            elif isinstance(report, Refused):
                _settle(self._ready, report.failure.error())
            elif isinstance(report, Exited):
                self._children.pop(report.pid).ended.set_result(report)
            else:
                self._spawned(report, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _spawned(self, report: Spawned, descriptors: list[int]) -> None:
        future = self._spawning.pop(report.request, None)
        if report.failure is not None:
            if future is not None:
                _settle(future, report.failure.error())
            return
        child = Child(report.pid, _host_pid(descriptors[0]), self._loop.create_future())
        self._children[child.pid] = child
        if future is None or future.done():  # whoever wanted it has gone
            self.signal(child, 9)
            return
        _settle(future, child)

    def _detach(self, reason: str) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        error = ConnectionLost(f"the zygote is gone: {reason}")
        _settle(self._ready, error)
        if self._ready.done():
            self._ready.exception()  # told to start() if that still waits
        for future in list(self._spawning.values()):
            _settle(future, error)
        self.lost.set()

    def _bury(self) -> None:
        """Only when the process is gone are its workers: the kernel closes a dying zygote's socket first."""
        if self._handle_fd >= 0:
            os.close(self._handle_fd)
            self._handle_fd = -1
        children, self._children = self._children, {}
        for child in children.values():
            child.ended.set_result(None)


def _settle(future: asyncio.Future[T], outcome: T | DgsfError) -> None:
    if future.done():
        return
    if isinstance(outcome, DgsfError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def _host_pid(pidfd: int) -> int:
    """The number that a process has in our own pid namespace; 0 if it is gone."""
    with open(f"/proc/self/fdinfo/{pidfd}") as file:
        for line in file:
            if line.startswith("Pid:"):
                return max(0, int(line.split()[1]))
    return 0


async def _readable(descriptor: int) -> None:
    """Wait for a descriptor, here the end of a process, without a thread."""
    loop = asyncio.get_running_loop()
    watched = os.dup(descriptor)  # two may wait for the same end
    ready = asyncio.Event()
    loop.add_reader(watched, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(watched)
        os.close(watched)
