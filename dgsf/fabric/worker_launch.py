"""Making a worker: its folder, its user, its sockets, its fork, up to the moment when it may go.

A worker that cannot be prepared leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

from dgsf.core.devices import DeviceSpec
from dgsf.errors import ConnectionLost, StartError
from dgsf.fabric.contents_keeper import ContentsKeeper
from dgsf.fabric.spec import Prepared, WorkerSpec
from dgsf.fabric.worker_table import WorkerRecord
from dgsf.fabric.zygote_client import Child, ZygoteClient
from dgsf.wire.messages import Attach, reader
from dgsf.wire.shared import SharedArea

PREPARE_SECONDS = 30.0
SESSION = "session"
_UID_BASE, _UID_COUNT = 0x70000000, 1 << 24  # far from any user; drawn at random, so no two workers share one
_MAX_PREPARED_BYTES = 64 * 1024
_read_prepared = reader(Prepared)


@dataclass(frozen=True, slots=True)
class Launcher:
    """Makes the workers of one device."""

    device: DeviceSpec
    name: str
    area: SharedArea
    max_file_bytes: int
    contents: ContentsKeeper

    async def launch(
        self, zygote: ZygoteClient, worker_id: int, attach: Attach, connection: socket.socket
    ) -> tuple[WorkerRecord, Prepared]:
        """A confined worker that waits for the word to go."""
        folder, uid = self._make_folder(worker_id)
        spec = self._spec(worker_id, attach, folder, uid)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        child: Child | None = None
        try:
            async with asyncio.timeout(PREPARE_SECONDS):
                with theirs:
                    child = await zygote.spawn(spec, theirs, connection)
                prepared = await _prepared(ours)
        except BaseException as error:
            ours.close()
            if child is not None:
                zygote.signal(child, signal.SIGKILL)
                child.ended.add_done_callback(lambda _: remove_folder(folder))
            else:
                remove_folder(folder)
            if isinstance(error, TimeoutError):
                raise StartError(f"the worker was not ready after {PREPARE_SECONDS:g} s") from None
            raise
        return WorkerRecord(spec, attach.holder, child, ours, folder), prepared

    def clear_leftovers(self) -> None:
        """Folders of workers whose server was killed."""
        for folder in self.area.folder.glob(f"{self._folder_name}-*"):
            remove_folder(folder)
        self.contents.clear()

    @property
    def _folder_name(self) -> str:
        return self.name.replace("/", "-")

    def _make_folder(self, worker_id: int) -> tuple[Path, int]:
        """The worker's shared folder, owned by the user that the worker will be; 0: by us."""
        folder = self.area.worker_folder(worker_id, self._folder_name)
        folder.mkdir(mode=0o700)
        if os.geteuid() != 0:
            return folder, 0
        uid = _UID_BASE + secrets.randbelow(_UID_COUNT)
        try:
            os.chown(folder, uid, uid)
        except OSError:  # root of a container that has no such users
            return folder, 0
        return folder, uid

    def _spec(self, worker_id: int, attach: Attach, folder: Path, uid: int) -> WorkerSpec:
        return WorkerSpec(
            worker_id=worker_id,
            slot=attach.slot,
            epoch=attach.epoch,
            tenant_id=attach.tenant_id,
            version_id=attach.version_id,
            memory_bytes=attach.memory_bytes,
            network=attach.network,
            shared_dir=str(folder),
            device_kind=self.device.kind,
            device_index=self.device.index,
            device_options=self.device.options,
            max_file_bytes=self.max_file_bytes,
            uid=uid,
            role=attach.role,
            session_bytes=attach.session_bytes,
            contents_dir=str(self.contents.folder(attach.tenant_id)) if attach.role == SESSION else "",
        )


async def _prepared(control: socket.socket) -> Prepared:
    try:
        data = await asyncio.get_running_loop().sock_recv(control, _MAX_PREPARED_BYTES)
    except TimeoutError:  # which is an OSError too
        raise
    except OSError as error:
        raise ConnectionLost(f"the worker was lost while it started: {error}") from error
    if not data:
        raise StartError("the worker ended while it was being confined")
    prepared: Prepared = _read_prepared(data)
    if prepared.failure is not None:
        raise prepared.failure.error()
    return prepared


def remove_folder(folder: Path) -> None:
    """Whatever a worker left in it."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
