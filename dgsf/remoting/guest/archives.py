"""Remote tensors that are pickled: as copies on the CPU, and within one `torch.save` each memory only once.

So what is tied stays tied in the file, in whatever order it comes.  Of a memory only that is fetched and written which
the save holds: a large tensor does not have to come here for a row of it.  What else a save holds of the memory of
a view is found by a rehearsal, which pickles everything once and keeps none of it; most saves hold no such view.
"""

from __future__ import annotations

import pickle
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from dgsf.remoting.guest.cutting import is_dense
from dgsf.remoting.guest.layout import Layout, reach_bytes

_here = threading.local()  # `save`: the one that is under way in this thread


def saving(original: Any) -> Any:
    """`torch.save` that fetches what is shared once."""
    usual = torch.serialization.DEFAULT_PROTOCOL

    def save(
        obj: Any, f: Any, pickle_module: Any = pickle, pickle_protocol: int = usual, *args: Any, **more: Any
    ) -> Any:
        if _current() is not None:
            return original(obj, f, pickle_module, pickle_protocol, *args, **more)
        with _under_way(_Save(obj, pickle_module, pickle_protocol)):
            return original(obj, f, pickle_module, pickle_protocol, *args, **more)

    return save


def local_copy(tensor: Any) -> torch.Tensor:
    """A CPU copy of a remote tensor; its memory is shared with that of others of the same save."""
    plain, save = tensor.detach(), _current()
    return plain.cpu() if save is None else save.copy(plain).detach()


def _current() -> _Save | _Rehearsal | None:
    return getattr(_here, "save", None)


@contextmanager
def _under_way(save: _Save | _Rehearsal) -> Iterator[None]:
    before, _here.save = _current(), save
    try:
        yield
    finally:
        _here.save = before


Memory = tuple[int, torch.dtype]  # by number, and apart for each type: a file has one type for each memory


class _Place(NamedTuple):
    """Elements of a memory, from the first to behind the last."""

    memory: Memory
    first: int
    end: int

    def holds(self, other: _Place) -> bool:
        return self.memory == other.memory and self.first <= other.first and other.end <= self.end


class _Seen(NamedTuple):
    place: _Place
    layout: Layout


class _Part(NamedTuple):
    """A copy of all that is in a place."""

    place: _Place
    copy: torch.Tensor


class _Rehearsal:
    """Notes which tensors a save holds, and lets them live: the numbers of others stay others'."""

    def __init__(self) -> None:
        self.seen: defaultdict[Memory, set[_Seen]] = defaultdict(set)
        self._held: list[Any] = []

    def copy(self, tensor: Any) -> torch.Tensor:
        """Nothing of it."""
        self._held.append(tensor)
        tensor = _unturned(tensor)
        if tensor.numel():
            place = _place(tensor)
            self.seen[place.memory].add(_Seen(place, tensor._m))
        return torch.empty(0, dtype=tensor.dtype, device="cpu")


class _Joint(NamedTuple):
    """A place whose tensors overlap, so that they are fetched as one."""

    place: _Place
    is_single: bool  # there is but one of them


class _Save:
    """What one save has fetched."""

    def __init__(self, *what: Any) -> None:
        self._what = what
        self._joints: dict[Memory, list[_Joint]] | None = None  # as rehearsed
        self._alone: dict[_Seen, torch.Tensor] = {}
        self._parts: defaultdict[Memory, list[_Part]] = defaultdict(list)
        self._held: list[Any] = []

    def copy(self, tensor: Any) -> torch.Tensor:
        """A tensor's copy: cut out of a part of its memory that is here, or the first of a new one."""
        if tensor.is_conj():
            return torch._conj(self.copy(torch._conj(tensor)))
        if tensor.is_neg():
            return torch._neg_view(self.copy(torch._neg_view(tensor)))
        if not tensor.numel():
            return tensor.cpu()
        place = _place(tensor)
        part = next((each for each in self._parts[place.memory] if each.place.holds(place)), None)
        if part is None:
            self._held.append(tensor)
            joint = self._joint(tensor, place)
            if joint.is_single and not is_dense(tensor):
                return self._packed(_Seen(place, tensor._m), tensor)
            part = _fetched(tensor, joint.place)
            self._parts[place.memory].append(part)
        return part.copy.as_strided(tensor.shape, tensor.stride(), place.first - part.place.first)

    def _packed(self, seen: _Seen, tensor: Any) -> torch.Tensor:
        """A view with gaps, of which the save holds nothing."""
        if seen not in self._alone:
            self._alone[seen] = tensor.cpu()
        return self._alone[seen]

    def _joint(self, tensor: Any, place: _Place) -> _Joint:
        """A tensor and all that overlaps with it; what the rehearsal has not seen may be tied with anything."""
        whole = _all(tensor)
        if is_dense(tensor) and place.holds(whole):
            return _Joint(place, is_single=True)
        if self._joints is None:
            self._joints = self._rehearse()
        found = (each for each in self._joints.get(place.memory, ()) if each.place.holds(place))
        return next(found, _Joint(whole, is_single=False))

    def _rehearse(self) -> dict[Memory, list[_Joint]]:
        rehearsal = _Rehearsal()
        self._held.append(rehearsal)
        try:
            with _under_way(rehearsal):
                _pickle_away(*self._what)
        except Exception:  # the save itself will tell; until then each memory is fetched whole
            return {}
        return {memory: _joined(seen) for memory, seen in rehearsal.seen.items()}


def _joined(seen: set[_Seen]) -> list[_Joint]:
    joints: list[_Joint] = []
    for place, _ in sorted(seen, key=lambda each: each.place.first):
        last = joints[-1].place if joints else None
        if last is not None and place.first < last.end:
            joints[-1] = _Joint(last._replace(end=max(last.end, place.end)), is_single=False)
        else:
            joints.append(_Joint(place, is_single=True))
    return joints


def _pickle_away(obj: Any, pickle_module: Any, protocol: int) -> None:
    class Pickler(pickle_module.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            return "storage" if isinstance(obj, torch.storage.TypedStorage) or torch.is_storage(obj) else None

    Pickler(_Nowhere(), protocol=protocol).dump(obj)


class _Nowhere:
    """A file that keeps nothing."""

    def write(self, data: Any) -> int:
        return len(data)


def _fetched(tensor: Any, place: _Place) -> _Part:
    if is_dense(tensor) and place == _place(tensor):
        return _Part(place, tensor.cpu())
    return _Part(place, tensor.as_strided((place.end - place.first,), (1,), place.first).cpu())


def _unturned(tensor: Any) -> Any:
    """What a conjugated or negated view reads."""
    if tensor.is_conj():
        return _unturned(torch._conj(tensor))
    return torch._neg_view(tensor) if tensor.is_neg() else tensor


def _place(tensor: Any) -> _Place:
    first, reach = int(tensor.storage_offset()), reach_bytes(tensor.dtype, tensor.shape, tensor.stride())
    return _Place((tensor._h.origin(tensor._m)[0], tensor.dtype), first, first + reach // tensor.element_size())


def _all(tensor: Any) -> _Place:
    """A tensor's whole memory, as far as it is known: as it was made, or as far as the tensor reaches."""
    place, made_for = _place(tensor), tensor._h.origin(tensor._m)[1]
    size = reach_bytes(made_for.dtype, made_for.size, made_for.stride) // tensor.element_size()
    return _Place(place.memory, 0, max(size, place.end))
