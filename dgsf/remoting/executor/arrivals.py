"""Tensors that come from the guest: small ones at once, large ones in bulk, known ones by their content's name.

A record whose bytes are not there yet stops the machine.  Records behind it are looked at as they arrive, so
that their transfers are open when the bytes come, and all missing contents are asked for at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from dgsf.errors import DgsfError, OutOfMemory, ProtocolError, RemoteOpError
from dgsf.remoting.executor import uploads
from dgsf.remoting.executor.contents import check_digest
from dgsf.remoting.executor.drafts import ContentTransfer, Draft
from dgsf.remoting.executor.incoming_state import StateTransfer
from dgsf.remoting.executor.memory import too_much
from dgsf.remoting.protocol import Record, Status

if TYPE_CHECKING:
    from dgsf.remoting.executor.machine import Machine

_DONE = [int(Record.FREE), []]  # put in the place of a record that was done ahead of its turn


_CHANGED = (
    "a tensor changed on its way to the device: its bytes are not those that were announced. Did another thread write "
    "to it (to a module, say) while it moved? Move it again"
)


class Arrivals:
    """The records UPLOAD, UPLOAD_BULK, KNOWN and SUPPLY."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.transfers = uploads.Transfers(machine.limits.transfers)
        self.ready: Callable[[], bool] = lambda: True  # whether the record that waits can be done now
        self._needed: dict[bytes, int] = {}  # asked for and not supplied yet, with the size that was announced
        self._coming: set[bytes] = set()  # of those: their bytes are on the way
        self._refused: dict[bytes, DgsfError] = {}  # supplied, but there was no memory for them, or they were others
        self.records: dict[int, Callable[..., Any]] = {
            Record.UPLOAD: self._upload,
            Record.UPLOAD_BULK: self._upload_bulk,
            Record.KNOWN: self._known,
            Record.SUPPLY: self._supply,
        }

    def look_ahead(self, records: list[Any], start: int) -> None:
        """Open the transfers and ask for the contents of records that cannot be done yet."""
        missing: list[tuple[bytes, int]] = []
        for position in range(start, len(records)):
            code = records[position][0]
            if code == Record.UPLOAD_BULK:
                self.open(records[position][5], records[position][4])
            elif code == Record.RESTORE:
                self.open_state(*records[position][1:4])
            elif code == Record.SUPPLY:
                self._supply(*records[position][1:])
                records[position] = _DONE
            elif code == Record.KNOWN:
                size, digest = records[position][4:6]
                if not self._machine.contents.has(check_digest(digest), size):
                    missing.append((digest, size))
        self.need(missing)

    # --- bytes in the record, or behind it
    def _upload(self, handle: int, dtype: int, sizes: list[int], data: bytes) -> None:
        tensor = uploads.small(dtype, sizes, data)
        if self._room(handle, len(data)):
            self._put(handle, tensor)

    def _upload_bulk(self, handle: int, dtype: int, sizes: list[int], size: int, number: int) -> bool | None:
        kind, sizes = uploads.checked(dtype, sizes, size)
        transfer = self.open(number, size)
        if not transfer.complete:
            self.ready = lambda: transfer.complete
            return False
        self.transfers.close(number)
        if transfer.unwanted:
            self._room(handle, size)
        else:
            self._put(handle, uploads.shaped(transfer.raw, kind, sizes))
        return None

    def open(self, number: int, size: int) -> uploads.Transfer:
        """Memory for a transfer, or a way for its bytes to nowhere; the same one if it is open."""
        if number in self.transfers:
            return self.transfers.get(number)
        try:
            self._machine.memory.reserve(size)
        except OutOfMemory:
            return self.transfers.open(number, size, unwanted=True)
        return self.transfers.open(number, size)

    def _open_draft(self, number: int, size: int) -> Draft | None:
        """Where a content goes as it comes; None, and a way for its bytes to nowhere, if there is no memory for it."""
        try:
            self._machine.memory.reserve(size)
        except OutOfMemory:
            self.transfers.open(number, size, unwanted=True)
            return None
        draft = self._machine.contents.draft(size)
        self.transfers.open(number, size, make=lambda size: ContentTransfer(draft, size, self.transfers.passage))
        return draft

    def open_state(self, head_bytes: int, size: int, number: int) -> StateTransfer:
        """The way for a whole state; the same one if it is open."""
        if number in self.transfers:
            found = self.transfers.get(number)
            if not isinstance(found, StateTransfer):
                raise ProtocolError(f"transfer {number} is none of a state")
            return found
        try:
            self._machine.memory.reserve(size)
        except OutOfMemory:
            raise ProtocolError(f"a state of {size} bytes does not fit into the leased memory") from None
        through, limits = self.transfers.passage, self._machine.limits
        made = self.transfers.open(number, size, make=lambda size: StateTransfer(head_bytes, size, through, limits))
        assert isinstance(made, StateTransfer)
        return made

    # --- by content
    def _known(self, handle: int, dtype: int, sizes: list[int], size: int, digest: bytes) -> bool | None:
        kind, sizes = uploads.checked(dtype, sizes, size)
        contents = self._machine.contents
        raw = contents.find(check_digest(digest), size)
        if raw is None and digest in self._refused:
            self._machine.lose(handle, self._refused.pop(digest))
            return None
        if raw is None:
            self.wait_for([(digest, size)])
            return False
        if self._room(handle, size):
            self._put(handle, uploads.shaped(raw, kind, sizes))
            self._machine.changes.contents[handle] = digest
        return None

    def wait_for(self, contents: list[tuple[bytes, int]]) -> None:
        """The record that is being done needs these contents, of these sizes."""
        self.need(contents)
        self.ready = lambda: self._needed.keys().isdisjoint(digest for digest, _ in contents)

    def need(self, contents: list[tuple[bytes, int]]) -> None:
        asked: list[bytes] = []
        for digest, size in contents:
            if digest not in self._needed:
                self._needed[digest] = size
                asked.append(digest)
            elif self._needed[digest] != size:
                raise ProtocolError(f"content {digest.hex()[:16]} has {self._needed[digest]} bytes and {size!r}")
        if asked:
            self._machine.say(self._machine.answers.answer, 0, Status.NEED, asked)

    def need_all(self) -> None:
        """Nothing can be done without the contents that were waited for."""
        for error in self._refused.values():
            raise ProtocolError(f"a state cannot be had without its contents: {error.message}")

    def _supply(self, digest: bytes, size: int, number: int) -> None:
        """Only what was asked for, of the size that was announced, and into memory that there is."""
        announced = self._needed.get(check_digest(digest))
        if announced is None or digest in self._coming:
            raise ProtocolError(f"content {digest.hex()[:16]} was not asked for")
        if type(size) is not int or size != announced or size <= 0:
            raise ProtocolError(f"content {digest.hex()[:16]} comes in {size!r} bytes; {announced!r} were announced")
        draft = self._open_draft(number, size)
        self._coming.add(digest)

        def finished() -> None:
            if draft is None:
                self._refused[digest] = too_much(size, self._machine.memory.live, self._machine.memory.lease)
            elif not self._machine.contents.publish(digest, draft):
                self._refused[digest] = RemoteOpError(_CHANGED)
            del self._needed[digest]
            self._coming.discard(digest)

        self.transfers.get(number).finished = finished

    # --- helpers
    def _room(self, handle: int, size: int) -> bool:
        """Whether there is memory for it; if not, the handle is lost."""
        try:
            self._machine.memory.reserve(size)
        except OutOfMemory as error:
            self._machine.lose(handle, error)
            return False
        return True

    def _put(self, handle: int, tensor: torch.Tensor) -> None:
        if type(handle) is not int:
            raise ProtocolError(f"{handle!r} is not a handle")
        self._machine.handles.tensors[handle] = self._machine.device.put(tensor)
