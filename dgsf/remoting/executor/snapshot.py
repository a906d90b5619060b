"""SNAPSHOT and RESTORE: the tensors of a session as storages and views on them, told incrementally.

Views of one storage stay views of one storage.  A storage that was not written since the snapshot that the guest
has is only named; one that still is a known content is named by its digest.  What comes back in a RESTORE is
the guest's word: every view is checked against its storage before it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from dgsf.errors import ProtocolError
from dgsf.remoting.executor import uploads
from dgsf.remoting.executor.codes import DTYPE_CODES, dtype_of, sizes_of, span_bytes
from dgsf.remoting.executor.contents import check_digest
from dgsf.remoting.executor.courier import Courier
from dgsf.remoting.executor.handles import CallFailure
from dgsf.remoting.protocol import BULK_HEADER, FROM_NOTHING, Record, Status

if TYPE_CHECKING:
    from dgsf.remoting.executor.machine import Machine

_encode = msgspec.msgpack.Encoder().encode


@dataclass
class Picture:
    """The storages and views of a session at one moment."""

    storages: list[list[Any]] = field(default_factory=list)  # [number, size, source]
    views: list[list[Any]] = field(default_factory=list)  # [handle, number, dtype, sizes, strides, offset, bits]
    pieces: list[torch.Tensor] = field(default_factory=list)  # bytes of those whose source is True
    of_handle: dict[int, int] = field(default_factory=dict)

    def bytes(self) -> int:
        return sum(piece.numel() for piece in self.pieces)


class Snapshots:
    """Takes them, and becomes them."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.courier = Courier()
        self.number = 0  # of the last snapshot
        self.next_storage = 1
        self.covered_us = 0  # device time at the last snapshot that the guest has
        self._taken_us = 0  # and at the last that was taken: the guest may have no memory for it
        self._of_handle: dict[int, int] = {}  # handle to storage number, at the last snapshot
        self.records: dict[int, Callable[..., Any]] = {
            Record.SNAPSHOT: self._snapshot,
            Record.RESTORE: self._restore,
            Record.KEPT: self._kept,
        }

    # --- taking
    def _snapshot(self, request: int, since: int) -> None:
        BULK_HEADER.pack(request)  # one that fits, before a thread needs it
        self.courier.wait()
        self._machine.device.finish()
        if since == FROM_NOTHING:
            self._machine.changes.contents.clear()
        picture = self.picture(since == self.number and since > 0)
        self.number += 1
        head = _encode([self.number, picture.storages, self.rest(picture)])
        self._send(request, memoryview(head), picture)
        machine = self._machine
        machine.changes.clear()
        self._of_handle = picture.of_handle

    def _kept(self, number: int) -> None:
        if type(number) is not int:
            raise ProtocolError(f"{number!r} is not the number of a snapshot")
        if number == self.number:  # else it is one of before a move: nothing is covered yet by this clock
            self.covered_us = self._taken_us

    def _send(self, request: int, head: memoryview, picture: Picture) -> None:
        """Beside the next commands if there is memory for a copy, before them if not."""
        machine, answers, size = self._machine, self._machine.answers, picture.bytes()
        self._taken_us = machine.device.used_us()
        beside = machine.memory.walk() + size <= machine.memory.lease
        pieces = self.courier.copy(picture.pieces, size) if beside else [uploads.bytes_of(p) for p in picture.pieces]
        machine.say(answers.answer, request, Status.OK, [len(head), len(head) + size])
        if beside:
            machine.memory.keep_beside(self.courier.kept_bytes, self.courier.let_go)
            self.courier.send(answers, request, [head, *pieces])
        else:
            machine.say(answers.bulks, request, [head, *pieces])

    def picture(self, incremental: bool) -> Picture:
        """All live tensors; bytes only of storages that changed since the last snapshot if `incremental`."""
        picture = Picture()
        groups: dict[int, list[int]] = {}
        tensors, device = self._machine.handles.tensors, self._machine.device
        for handle, tensor in tensors.items():
            groups.setdefault(tensor.untyped_storage()._cdata, []).append(handle)
        for address, handles in groups.items():
            number, source = self._source(address, handles, incremental)
            first = tensors[handles[0]]
            picture.storages.append([number, first.untyped_storage().nbytes(), source])
            if source is True:
                picture.pieces.append(device.get_storage(first))
            for handle in handles:
                picture.of_handle[handle] = number
                picture.views.append([handle, number, *_view_of(tensors[handle])])
        return picture

    def _source(self, address: int, handles: list[int], incremental: bool) -> tuple[int, Any]:
        """The number of a storage, and where its bytes are to be found."""
        changes = self._machine.changes
        known = next((self._of_handle[handle] for handle in handles if handle in self._of_handle), None)
        if address in changes.storages or not changes.handles.isdisjoint(handles):
            for handle in handles:
                changes.contents.pop(handle, None)
        elif known is not None and incremental:
            return known, None
        digest = next((changes.contents[handle] for handle in handles if handle in changes.contents), None)
        number = known if known is not None else self.next_storage
        self.next_storage += known is None
        return number, digest if digest is not None else True

    def rest(self, picture: Picture) -> dict[str, Any]:
        """What is ours in the head."""
        machine = self._machine
        live = machine.handles.tensors
        untold = machine.handles.untold
        return {
            "views": picture.views,
            "failures": machine.handles.failures(),
            "untold": untold.content() if untold is not None else None,
            "contents": {handle: name for handle, name in machine.changes.contents.items() if handle in live},
            "rng": machine.device.rng_state(),
            "next": self.next_storage,
        }

    # --- becoming
    def _restore(self, head_bytes: int, all_bytes: int, number: int) -> bool | None:
        arrivals = self._machine.arrivals
        transfer = arrivals.open_state(head_bytes, all_bytes, number)
        if not transfer.complete:
            arrivals.ready = lambda: transfer.complete
            return False
        head = transfer.head
        arrivals.need_all()
        missing = self.missing(head[1])
        if missing:
            arrivals.wait_for(missing)
            return False
        arrivals.transfers.close(number)
        self.number = head[0]
        self._become(head, transfer.pieces)
        self._machine.calls = 0
        return None

    def missing(self, storages: list[list[Any]]) -> list[tuple[bytes, int]]:
        """Contents that are not here, with their sizes."""
        contents = self._machine.contents
        named = [(check_digest(source), size) for _, size, source in storages if source is not True]
        return [(digest, size) for digest, size in named if not contents.has(digest, size)]

    def _become(self, head: list[Any], pieces: list[torch.Tensor]) -> None:
        """Storages, then views; the state is then that of the snapshot of this number."""
        self.load(head[1], head[2], pieces)
        self._of_handle = {view[0]: view[1] for view in head[2]["views"]}

    def load(
        self, storages: list[list[Any]], rest: dict[str, Any], pieces: Iterable[torch.Tensor], untold_call: int = 0
    ) -> None:
        """`pieces`: the bytes of those storages that come with theirs, each in memory of its own."""
        machine = self._machine
        made = self._make_storages(storages, pieces)
        machine.handles.tensors.clear()
        for handle, number, *view in rest["views"]:
            machine.handles.tensors[int(handle)] = machine.device.put_view(
                made[number], *_checked_view(made[number], view)
            )
        machine.handles.restore_failures(rest["failures"])
        machine.handles.untold = CallFailure(untold_call, *rest["untold"][1:]) if rest["untold"] is not None else None
        machine.changes.clear()
        machine.changes.contents = {int(handle): check_digest(name) for handle, name in rest["contents"].items()}
        machine.device.set_rng_state(rest["rng"])
        self.next_storage = int(rest["next"])
        machine.memory.check(0)

    def _make_storages(self, storages: list[list[Any]], pieces: Iterable[torch.Tensor]) -> dict[int, torch.Tensor]:
        made: dict[int, torch.Tensor] = {}
        brought = iter(pieces)
        for number, size, source in storages:
            if source is True:
                piece = next(brought)  # one without bytes has no memory; but it may grow, each on its own
                made[number] = self._machine.device.adopt(piece if size else torch.empty(0, dtype=torch.uint8))
            else:
                found = self._machine.contents.find(check_digest(source), size)
                if found is None:
                    raise ProtocolError("a content was removed while a state was being restored")
                made[number] = self._machine.device.adopt(found)
        return made


def cut_up(storages: list[list[Any]], raw: torch.Tensor) -> Iterator[torch.Tensor]:
    """The storages whose bytes lie there one behind the other, each in memory of its own."""
    start = 0
    for _, size, source in storages:
        if source is True:
            if not 0 <= size <= raw.numel() - start:
                raise ProtocolError("a state has fewer bytes than its storages")
            yield raw[start : start + size].clone()
            start += size


def _view_of(tensor: torch.Tensor) -> list[Any]:
    bits = tensor.is_conj() + 2 * tensor.is_neg()
    return [DTYPE_CODES[tensor.dtype], list(tensor.shape), list(tensor.stride()), tensor.storage_offset(), bits]


def _checked_view(raw: torch.Tensor, view: list[Any]) -> list[Any]:
    """A view that stays inside its storage, or ProtocolError."""
    code, sizes, strides, offset, bits = view
    dtype, sizes, strides = dtype_of(code), sizes_of(sizes), sizes_of(strides)
    if len(sizes) != len(strides) or type(offset) is not int or offset < 0:
        raise ProtocolError("a view needs as many strides as sizes, and an offset")
    if span_bytes(dtype, sizes, strides, offset) > raw.numel():
        raise ProtocolError("a view reaches beyond its storage")
    return [dtype, sizes, strides, offset, bits]
