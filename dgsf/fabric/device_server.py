"""The server of one device: takes connections, gives each a worker, and knows how every worker ends.

It checks a lease's epoch and the device's incarnation before a worker starts, hands the very socket over
and never sees the calls on it.  It never runs user code, never forks itself and never imports ray.  What
may run in a slot is decided in worker_table; this module does the effects.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import logging
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

from dgsf.config import GIB
from dgsf.core.devices import HOST, DeviceSpec
from dgsf.errors import DgsfError, LeaseLost, ProtocolError
from dgsf.fabric.contents_keeper import ContentsKeeper
from dgsf.fabric.control_session import ControlSession
from dgsf.fabric.devices import open_device
from dgsf.fabric.doors import Doors
from dgsf.fabric.handover import claim, hand_over
from dgsf.fabric.memory_watch import over_limit
from dgsf.fabric.spec import GO, Prepared, Stop
from dgsf.fabric.worker_launch import Launcher, remove_folder
from dgsf.fabric.worker_table import WorkerRecord, WorkerTable
from dgsf.fabric.zygote_client import PRELOAD, WORKER_ENTRY, ZygoteOptions
from dgsf.fabric.zygote_keeper import ZygoteKeeper, log_missing
from dgsf.wire.frames import Frame, Kind, encode_frame
from dgsf.wire.link import Address, adopt, host_id
from dgsf.wire.messages import (
    Attach,
    Attached,
    ControlReply,
    ControlRequest,
    Done,
    Failure,
    Health,
    Interrupt,
    Join,
    Kill,
    Reap,
    encode,
    reader,
)
from dgsf.wire.shared import SharedArea

log = logging.getLogger(__name__)
REAP_SECONDS = 10.0
GUEST_MODULE = "dgsf.remoting.guest.ready"  # what workers of a function host have loaded beside the others
SIM_MODULE = "torch.fx.experimental.symbolic_shapes"  # what torch loads, in half a second, to take a call apart
_read_attach, _read_join = reader(Attach), reader(Join)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What tests and special installations change."""

    entry: str = WORKER_ENTRY
    preload: tuple[str, ...] = PRELOAD
    import_paths: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()  # more folders that no worker may see, e.g. the data dir
    max_file_bytes: int = GIB
    memory_watch_seconds: float = 0.25
    contents_bytes: int = 2 * GIB  # of shared memory, for what sessions have uploaded
    contents_watch_seconds: float = 2.0


class DeviceServer:
    """One device and its workers."""

    def __init__(
        self,
        spec: DeviceSpec,
        *,
        name: str,
        incarnation: int,
        secret: bytes,
        run_dir: Path,
        shared_name: str,
        tcp_host: str = "127.0.0.1",
        options: ServerOptions | None = None,
    ) -> None:
        self._options = options or ServerOptions()
        self._name = name
        self._incarnation = incarnation
        self._run_dir = run_dir
        self._tcp_host = tcp_host
        self._device = open_device(spec)
        self._area = SharedArea(shared_name)
        self._table = WorkerTable(spec.slots, spec.memory_bytes)
        self._contents = ContentsKeeper(self._area.folder, name, self._options.contents_bytes)
        self._launcher = Launcher(spec, name, self._area, self._options.max_file_bytes, self._contents)
        self._doors = Doors(secret, self._visit)
        self._keeper = ZygoteKeeper(self._zygote_options(), name)
        self._slot_locks = [asyncio.Lock() for _ in range(spec.slots)]
        self._sessions: set[ControlSession] = set()
        self._watches: list[asyncio.Task[None]] = []
        self._removing: set[asyncio.Future[None]] = set()
        self._told_missing = False
        self._stopping = False

    # --- life
    async def start(self) -> Address:
        """Zygote ready, both sockets listening."""
        self._area.make()
        self._launcher.clear_leftovers()
        try:
            await self._keeper.start()
            self._watches = [
                asyncio.create_task(self._watch_memory(), name=f"memory watch of {self._name}"),
                asyncio.create_task(self._watch_contents(), name=f"contents watch of {self._name}"),
            ]
            path = str(self._run_dir / f"{hashlib.sha256(self._name.encode()).hexdigest()[:12]}.sock")
            port = self._doors.open(path, self._tcp_host)
        except BaseException:
            await self.stop()
            raise
        log.info("device_server_ready", extra={"device": self._name, "unix_path": path, "tcp_port": port})
        return Address(host_id(), path, self._tcp_host, port)

    async def set_incarnation(self, incarnation: int) -> None:
        """From now on only leases of this incarnation count; workers of another one end."""
        if incarnation == self._incarnation:
            return
        self._incarnation = incarnation
        for worker in list(self._table.workers.values()):
            await self._end(worker, "reaped")
        self._table.forget_epochs()

    async def stop(self) -> None:
        """No new connections; end and reap everything; leave no file behind."""
        self._stopping = True
        await self._doors.close()
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        for worker in self._table.workers.values():
            worker.kill_reason = worker.kill_reason or "shutdown"
        await self._keeper.stop()
        await asyncio.sleep(0)  # the ends of the workers are told by callbacks of this turn
        await asyncio.gather(*self._removing)
        self._contents.clear()
        for session in list(self._sessions):
            session.close()

    async def health(self) -> Health:
        trouble = self._device.check_health()
        ready = self._keeper.ready and not trouble
        used = self._device.memory_used(self._table.memory_used)
        return Health(self._incarnation, ready, len(self._table.workers), used, trouble or self._keeper.detail)

    def _zygote_options(self) -> ZygoteOptions:
        return ZygoteOptions(
            entry=self._options.entry,
            preload=self._preload(),
            device_nodes=self._device.device_nodes(),
            hidden=(str(self._run_dir.resolve()), *self._options.hidden),
            environment=tuple(self._device.worker_environment().items()),
            import_paths=self._options.import_paths,
        )

    def _preload(self) -> tuple[str, ...]:
        preload, spec = self._options.preload, self._device.spec
        if "torch" not in preload:
            return preload
        if spec.kind == HOST:
            return (*preload, GUEST_MODULE)
        return (*preload, SIM_MODULE) if spec.kind == "sim" else preload

    # --- visitors
    async def _visit(self, sock: socket.socket, frame: Frame) -> None:
        """The first frame says what a connection is for."""
        if frame.kind == Kind.ATTACH:
            with sock:
                await self._attach(sock, frame)
        elif frame.kind == Kind.JOIN:
            with sock:
                await self._join(sock, frame)
        elif frame.kind == Kind.REQUEST:
            session = await adopt(sock, ControlSession(self._answer, self._sessions.discard))
            self._sessions.add(session)
            try:
                session.frame_received(*frame)
            except ProtocolError as error:
                session.close(error)
        else:
            sock.close()

    async def _attach(self, sock: socket.socket, frame: Frame) -> None:
        try:
            attach: Attach = _read_attach(frame.body)
            async with self._slot_lock(attach.slot):
                await self._give_worker(sock, attach)
        except DgsfError as error:
            log.info("attach_refused", extra={"device": self._name, "code": error.code, "error": error.message})
            with contextlib.suppress(OSError):
                await _send(sock, Attached(failure=Failure.of(error)))

    async def _join(self, sock: socket.socket, frame: Frame) -> None:
        """A second connection to a worker that runs already."""
        try:
            worker = claim(self._table, _read_join(frame.body), self._incarnation)
        except DgsfError as error:
            answer = Attached(failure=Failure.of(error))
        else:
            answer = Attached(worker.worker_id, worker.child.host_pid)
        with contextlib.suppress(OSError):  # whoever asked, or the worker, has gone
            await _send(sock, answer)
            if answer.failure is None:
                hand_over(worker.control, sock)

    def _slot_lock(self, slot: int) -> contextlib.AbstractAsyncContextManager[object]:
        return self._slot_locks[slot] if 0 <= slot < len(self._slot_locks) else contextlib.nullcontext()

    async def _give_worker(self, sock: socket.socket, attach: Attach) -> None:
        if attach.incarnation != self._incarnation:
            raise LeaseLost(f"this is incarnation {self._incarnation} of {self._name}, not {attach.incarnation}")
        old = self._table.admit(attach)
        if old is not None:
            await self._end(old, "reaped")
        zygote = self._keeper.client
        worker, prepared = await self._launcher.launch(zygote, self._table.next_id(), attach, sock)
        self._register(worker, prepared)
        if self._overtaken(attach):
            await self._end(worker, "reaped")
            raise LeaseLost(f"slot {attach.slot}: epoch {attach.epoch} ended while the worker started")
        await self._let_go(sock, worker)

    def _overtaken(self, attach: Attach) -> bool:
        good = self._table.still_good(attach.slot, attach.epoch) and attach.incarnation == self._incarnation
        return not good or self._stopping

    def _register(self, worker: WorkerRecord, prepared: Prepared) -> None:
        self._table.add(worker)
        worker.child.ended.add_done_callback(functools.partial(self._ended, worker))
        facts: dict[str, object] = {"device": self._name, "worker_id": worker.worker_id, "slot": worker.spec.slot}
        facts |= {"pid": worker.child.host_pid, "timings_us": dict(prepared.timings_us)}
        log.info("worker_started", extra=facts)
        if not self._told_missing:  # once: it is the same for all of them
            self._told_missing = True
            log_missing(prepared.features)

    async def _let_go(self, sock: socket.socket, worker: WorkerRecord) -> None:
        """Our answer goes out first; then the connection belongs to the worker."""
        spec = worker.spec
        try:
            await _send(sock, Attached(worker.worker_id, worker.child.host_pid, spec.shared_dir))
            worker.control.send(GO)
        except OSError:  # whoever asked, or the worker, has gone
            await self._end(worker, "abandoned")

    # --- the ends of workers
    async def _end(self, worker: WorkerRecord, reason: str) -> None:
        """Kill it and wait until it is reaped."""
        if not worker.child.ended.done():
            worker.kill_reason = worker.kill_reason or reason
            self._signal(worker, signal.SIGKILL)
            await self._reaped(worker)
        await asyncio.sleep(0)  # let the callback that forgets it go first

    async def _reaped(self, worker: WorkerRecord) -> None:
        try:
            async with asyncio.timeout(REAP_SECONDS):
                await asyncio.shield(worker.child.ended)
        except TimeoutError:  # a zygote that does not do its work takes all its workers along
            log.error("worker_not_reaped", extra={"device": self._name, "worker_id": worker.worker_id})
            await self._keeper.replace()

    def _tidy_after(self, worker: WorkerRecord) -> None:
        remove_folder(worker.folder)
        self._contents.sweep()

    def _signal(self, worker: WorkerRecord, number: int) -> None:
        if self._keeper.ready:  # else all workers went with the zygote
            self._keeper.client.signal(worker.child, number)

    def _ended(self, worker: WorkerRecord, _future: object) -> None:
        notice = worker.exit_notice()
        self._table.remove(worker)
        worker.control.close()
        self._device.scrub()
        removal = asyncio.get_running_loop().run_in_executor(None, self._tidy_after, worker)
        self._removing.add(removal)
        removal.add_done_callback(self._removing.discard)
        log.info(
            "worker_ended",
            extra={
                "device": self._name,
                "worker_id": notice.worker_id,
                "cause": notice.cause,
                "reason": notice.reason,
                "exit_code": notice.exit_code,
                "signal": notice.signal,
            },
        )
        for session in list(self._sessions):
            session.notify(worker.holder, notice)

    async def _watch_memory(self) -> None:
        while True:
            await asyncio.sleep(self._options.memory_watch_seconds)
            for worker in list(self._table.workers.values()):
                if await asyncio.to_thread(over_limit, worker, self._keeper.baseline):
                    facts = {"device": self._name, "worker_id": worker.worker_id, "memory_bytes": worker.memory_used}
                    log.warning("worker_over_memory", extra=facts)
                    await self._end(worker, "memory")

    async def _watch_contents(self) -> None:
        while True:
            await asyncio.sleep(self._options.contents_watch_seconds)
            if removed := await asyncio.to_thread(self._contents.prune):
                log.info("contents_pruned", extra={"device": self._name, "bytes": removed})

    # --- control
    async def _answer(self, request: ControlRequest) -> ControlReply:
        if isinstance(request, Interrupt):
            return await self._interrupt(request)
        if isinstance(request, Kill):
            return await self._kill(request.worker_id, request.reason)
        if isinstance(request, Reap):
            return await self._reap(request)
        return await self.health()

    async def _interrupt(self, request: Interrupt) -> Done:
        """Ask the worker to stop the call; who asks keeps the time and sends Kill when it is up."""
        if request.grace_ms <= 0:
            return await self._kill(request.worker_id, request.reason)
        worker = self._table.workers.get(request.worker_id)
        if worker is None:
            return Done(False)
        try:
            worker.control.send(encode(Stop(request.call, request.reason)))
        except OSError:  # it does not read, or is ending
            return Done(False)
        self._signal(worker, signal.SIGUSR1)
        return Done()

    async def _kill(self, worker_id: int, reason: str) -> Done:
        worker = self._table.workers.get(worker_id)
        if worker is not None:
            await self._end(worker, reason)
        return Done()

    async def _reap(self, request: Reap) -> Done:
        worker = self._table.reap(request.slot, request.epoch)
        async with self._slot_lock(request.slot):  # a worker that is just starting there sees that it is too late
            worker = worker or self._table.reap(request.slot, request.epoch)
            if worker is not None:
                await self._end(worker, "reaped")
        return Done()


async def _send(sock: socket.socket, message: Attached) -> None:
    """On a raw socket, all of it: nothing of ours may come after the worker's own bytes."""
    frame = encode_frame(Kind.ATTACHED, 0, encode(message))
    await asyncio.get_running_loop().sock_sendall(sock, frame)
