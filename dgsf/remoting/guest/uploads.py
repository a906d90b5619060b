"""How a CPU tensor gets to the device: small ones inline, large ones by their content's hash or in bulk.

A tensor of 64 KiB or more is first only named by the hash of its bytes; the executor says if it needs the bytes.  That
costs a round trip when it does, which is worth it for weights but not for a fresh batch in every step:
a size that turned out to be needed before an earlier answer is sent straight away, unhashed, unless it comes with a
module that moves: weights are always named.
Bytes are copied once, or borrowed from an owner that gives them up, and kept until a checkpoint makes them
superfluous.  When there is no memory for another copy, first a checkpoint is taken, then survival gives way.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Set
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from dgsf.errors import UsageError
from dgsf.remoting.digest import digest_of
from dgsf.remoting.guest import lending
from dgsf.remoting.guest.copies import Copies
from dgsf.remoting.guest.fetches import DTYPE_CODES
from dgsf.remoting.guest.room import NoRoom, Room
from dgsf.remoting.protocol import INLINE_BYTES, Record

_UPLOAD, _UPLOAD_BULK, _KNOWN = int(Record.UPLOAD), int(Record.UPLOAD_BULK), int(Record.KNOWN)
_SUPPLY = int(Record.SUPPLY)
Shape = tuple[int, tuple[int, ...]]
_compare = ctypes.CDLL(None).memcmp


class Uploads:
    """Decides how each tensor is sent and keeps the contents that are known by hash."""

    def __init__(self, by_hash: bool, room: Room | None = None) -> None:
        self.contents: dict[bytes, memoryview] = {}
        self.needed: list[bytes] = []  # asked for and not yet supplied
        self.unconfirmed = False  # something was named that may be asked for
        self.loose_bytes = 0  # of contents that no checkpoint has, copied or given up by their owners
        self._by_hash = by_hash
        self._room = room or Room()
        self._copies = Copies(room=self._room)
        self._loose: dict[bytes, int] = {}
        self._given: dict[bytes, int] = {}  # bytes of contents whose owner has given them up, where they count as ours
        self._shapes: dict[bytes, Shape] = {}
        self.lock: AbstractContextManager[Any] = nullcontext()  # held by whoever calls, but for `settle`
        self.send_all: Callable[[], None] = lambda: None  # returns when nothing of ours waits to be sent
        self.make_room: Callable[[int], None] = lambda size: None  # returns when so many more bytes may be kept
        self.save: Callable[[], None] = lambda: None  # a checkpoint, if one may be taken
        self.give_way: Callable[[], None] = lambda: None  # returns when nothing has to be kept
        self._borrowed: dict[bytes, torch.Tensor] = {}  # whose owner has not yet given it up
        self._under_way: set[bytes] = set()  # of those: on their way from where their owner has them
        self._unsure: set[bytes] = set()  # were borrowed: another thread may have changed them after they were named
        self._latest: dict[Shape, bytes] = {}  # what was named last of each size
        self._missed: dict[Shape, int] = {}  # size -> answers seen when it was first needed
        self._answers = 0
        self._transfers = 0

    def plan(self, tensor: torch.Tensor, handle: int) -> tuple[list[Any], int, memoryview | None]:
        """The record, its transfer's number and the bytes to send behind it, if any."""
        tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
        code, sizes = _code(tensor), tuple(tensor.shape)
        size = tensor.numel() * tensor.element_size()
        if size < INLINE_BYTES:
            inline = ctypes.string_at(tensor.data_ptr(), size) if size else b""
            return [_UPLOAD, handle, code, sizes, inline], 0, None
        lent = self._borrow(tensor) if self._by_hash else None
        if lent is not None or (self._by_hash and not self._is_fresh((code, sizes))):
            kept = self._kept(tensor, size, (code, sizes), lent)
            if kept is not None:
                return self._named(*kept, handle, (code, sizes)), 0, None
        data = self._copy(tensor, size) or lending.memory_of(tensor)  # sent before its owner goes on
        transfer = self.new_transfer()
        return [_UPLOAD_BULK, handle, code, sizes, size, transfer], transfer, data

    def supply(self, digest: bytes) -> tuple[list[Any], int, memoryview]:
        """The record and bytes of a content that the executor needs."""
        if digest in self._borrowed:
            self._under_way.add(digest)
        data = self.contents.get(digest)
        if data is None:
            raise UsageError(f"the device asks for content {digest.hex()[:16]} that this session never named")
        shape = self._shapes.get(digest)
        if shape is not None:
            self._missed.setdefault(shape, self._answers)
        transfer = self.new_transfer()
        return [_SUPPLY, digest, len(data), transfer], transfer, data

    def new_transfer(self) -> int:
        self._transfers = self._transfers % 0xFFFFFFFF + 1
        return self._transfers

    def answered(self) -> None:
        """Everything named so far has been found or asked for."""
        self._answers += 1
        self.unconfirmed = False

    def keep_only(self, digests: set[bytes], saved: Set[bytes] = frozenset()) -> None:
        """Forgets other contents; a checkpoint has those that are `saved`."""
        for digest in [digest for digest in self.contents if digest not in digests]:
            del self.contents[digest]
            self._unsure.discard(digest)
            self._shapes.pop(digest, None)
            self._room.let_go(self._given.pop(digest, 0))
        self._loose = {each: size for each, size in self._loose.items() if each in self.contents and each not in saved}
        self.loose_bytes = sum(self._loose.values())

    def _is_fresh(self, shape: Shape) -> bool:
        """Of a size that is new every time."""
        missed = self._missed.get(shape)
        return missed is not None and missed < self._answers

    def _kept(
        self, tensor: torch.Tensor, size: int, shape: Shape, lent: bytes | None
    ) -> tuple[bytes, memoryview] | None:
        """The hash and the bytes that are kept: those we have, or a copy, which no other thread can change any more."""
        digest = lent or self._same_again(tensor, size, shape) or digest_of(_bytes_at(tensor, size))
        data = self._sure(digest)
        if data is None:
            data = self._copy(tensor, size)
            if data is None:
                return None
            digest = digest_of(data)
            self._count(digest, size)
        return digest, data

    def _copy(self, tensor: torch.Tensor, size: int) -> memoryview | None:
        """Its bytes as they are now; None: they cannot be kept, and nothing has to be."""
        self.make_room(size)
        for relieve in (self.save, self.give_way, lambda: None):
            try:
                return self._copies.of(tensor, size)
            except NoRoom:
                relieve()
        return None

    def _count(self, digest: bytes, size: int) -> None:
        self.loose_bytes += size - self._loose.get(digest, 0)
        self._loose[digest] = size

    def _same_again(self, tensor: torch.Tensor, size: int, shape: Shape) -> bytes | None:
        """The hash of what was named last of this size, if it is the same: to compare is quicker than to hash."""
        digest = self._latest.get(shape, b"")
        data = None if digest in self._unsure else self.contents.get(digest)
        return digest if data is not None and _equal(tensor.data_ptr(), data, size) else None

    def _sure(self, digest: bytes) -> memoryview | None:
        """The bytes of a content that we have, and that still are what they were."""
        data = self.contents.get(digest)
        if data is None or digest not in self._unsure or digest in self._borrowed:
            return data
        self._unsure.discard(digest)
        return data if digest_of(data) == digest else None

    def _named(self, digest: bytes, data: memoryview, handle: int, shape: Shape) -> list[Any]:
        self.contents[digest] = data
        self._shapes[digest] = shape
        self._latest[shape] = digest
        self.unconfirmed = True
        return [_KNOWN, handle, shape[0], shape[1], data.nbytes, digest]

    def settle(self) -> None:
        """The owners have given up what they would: what somebody still holds is copied, and sent if under way."""
        with self.lock:
            self._settle()

    def _settle(self) -> None:
        under_way, self._under_way = self._under_way, set()
        kept = []
        for digest, tensor in list(self._borrowed.items()):  # another thread may be borrowing more
            if lending.is_held(tensor):
                kept.append(digest)
                self._own(digest)
            else:
                self._borrowed.pop(digest, None)
                self._take_over(digest)
        if not under_way.isdisjoint(kept):
            self.send_all()  # from now on their owner may write to them

    def _borrow(self, tensor: torch.Tensor) -> bytes | None:
        """Takes the bytes where they are, if their owner lends them: their hash."""
        loans = lending.current()
        digest = None if loans is None else loans.digest_of(tensor)
        if loans is None or digest is None:
            return None
        if digest not in self.contents:
            self.contents[digest] = lending.memory_of(tensor)
            self._borrowed[digest] = tensor
            self._unsure.add(digest)
            loans.borrowers.add(self)
        return digest

    def _take_over(self, digest: bytes) -> None:
        """Nobody else has these bytes any more."""
        data = self.contents.get(digest)
        if data is None:
            return
        self._count(digest, data.nbytes)
        if digest not in self._given and self._room.hold(data.nbytes):
            self._given[digest] = data.nbytes

    def _own(self, digest: bytes) -> None:
        tensor = self._borrowed.pop(digest, None)
        if tensor is None or digest not in self.contents:
            return
        size = tensor.numel() * tensor.element_size()
        data = self._copy(tensor, size)
        if data is None:  # all that was named has been sent by now
            self.contents.pop(digest, None)
        elif digest in self.contents:
            self.contents[digest] = data
            self._count(digest, size)


def digests_in(records: Iterable[list[Any]]) -> set[bytes]:
    """The contents that these records name."""
    return {record[5] for record in records if record[0] == _KNOWN}


def _bytes_at(tensor: torch.Tensor, size: int) -> memoryview:
    """A contiguous tensor's bytes where they are, for as long as it lives; read by no operation of torch."""
    return memoryview((ctypes.c_ubyte * size).from_address(tensor.data_ptr())).cast("B")


def _equal(address: int, data: memoryview, size: int) -> bool:
    kept = ctypes.addressof(ctypes.c_ubyte.from_buffer(data))
    return data.nbytes == size and not _compare(ctypes.c_void_p(address), ctypes.c_void_p(kept), ctypes.c_size_t(size))


def _code(tensor: torch.Tensor) -> int:
    code = DTYPE_CODES.get(tensor.dtype)
    if code is None or tensor.layout is not torch.strided:
        raise UsageError(f"a {tensor.layout} tensor of {tensor.dtype} cannot be sent to a remote device")
    return code
