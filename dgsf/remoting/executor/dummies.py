"""A simulated GPU without values: tensors are nothing but their metadata, kernels nothing but their time.

What comes out of a call is found once per kind and metadata, by torch's meta kernels, and remembered; after that a
call costs a look-up, less than the launch that it stands for.  Whatever is read from such a device is zero.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from dgsf.remoting.executor.codes import DTYPE_CODES, span_bytes
from dgsf.remoting.executor.costs import Meter
from dgsf.remoting.executor.kinds import Prepared, Returns
from dgsf.remoting.executor.simdevice import SimDevice, in_ns

Meta = tuple[torch.dtype, tuple[int, ...], tuple[int, ...], int]
_metas: list[Meta] = []
_numbers: dict[Meta, int] = {}


def number_of(meta: Meta) -> int:
    """Equal metadata have one number, so that keys are cheap."""
    number = _numbers.setdefault(meta, len(_metas))
    if number == len(_metas):
        _metas.append(meta)
    return number


class Dummy:
    """A tensor without values. It looks enough like one for accounts and snapshots."""

    __slots__ = ("nbytes", "number")

    def __init__(self, number: int, nbytes: int) -> None:
        self.number = number  # of its metadata
        self.nbytes = nbytes  # of its storage; 0: a view

    @property
    def meta(self) -> Meta:
        return _metas[self.number]

    @property
    def dtype(self) -> torch.dtype:
        return self.meta[0]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.meta[1]

    def stride(self) -> tuple[int, ...]:
        return self.meta[2]

    def storage_offset(self) -> int:
        return self.meta[3]

    def is_conj(self) -> bool:
        return False

    is_neg = is_conj

    def untyped_storage(self) -> DummyStorage:
        return DummyStorage(id(self), span_bytes(*self.meta))


class DummyStorage:
    """Of one dummy: views do not share theirs, which nobody can see."""

    def __init__(self, address: int, size: int) -> None:
        self._cdata = address
        self._size = size

    def nbytes(self) -> int:
        return self._size


def meta_of(tensor: torch.Tensor) -> Meta:
    return tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()


class _Outcome(NamedTuple):
    """What a call of known metadata does: launches, kernel time, results, new metadata of written tensors."""

    launches: int
    kernel_ns: int
    results: Any
    changed: tuple[tuple[int, int], ...]


class DummyPrepared(Prepared):
    """A kind whose outcome is remembered by the metadata of its tensors."""

    __slots__ = ("device", "outcomes")

    def bound(self, device: Any) -> None:
        self.device: DummyDevice = device
        self.outcomes: dict[Any, _Outcome] = {}

    def call(self, tensors: Sequence[Any], floats: Sequence[float]) -> Any:
        since = time.perf_counter_ns()
        key = tuple([tensor.number for tensor in tensors])
        known = self.outcomes.get(key)
        if known is None:
            known = self.outcomes[key] = self._learn(tensors, floats)
        launches, kernel_ns, results, changed = known
        self.device.queue.launch(since, launches, kernel_ns)
        for place, number in changed:
            tensors[place].number = number
        if self.returns is Returns.TENSOR:
            return Dummy(*results)
        return _fresh(results)

    def _learn(self, tensors: Sequence[Any], floats: Sequence[float]) -> _Outcome:
        try:
            return self._try(tensors, floats, "meta")
        except (NotImplementedError, RuntimeError) as error:
            if not _needs_values(error):
                raise
            return self._try(tensors, floats, "cpu")

    def _try(self, tensors: Sequence[Any], floats: Sequence[float], where: str) -> _Outcome:
        twins = [_twin(tensor.meta, where) for tensor in tensors]
        before = [meta_of(twin) for twin in twins]
        with Meter(self.device.timing) as meter:
            result = super().call(twins, floats)
        changed = tuple(
            (place, number_of(meta_of(twin))) for place, twin in enumerate(twins) if meta_of(twin) != before[place]
        )
        given = {twin.untyped_storage()._cdata for twin in twins}
        return _Outcome(*in_ns(meter.cost), _template(result, given), changed)


def _needs_values(error: Exception) -> bool:
    text = str(error)
    return isinstance(error, NotImplementedError) or "meta" in text.lower() or "data-dependent" in text


def _twin(meta: Meta, where: str) -> torch.Tensor:
    dtype, sizes, strides, offset = meta
    storage = torch.zeros(span_bytes(*meta) // dtype.itemsize, dtype=dtype, device=where)
    return storage.as_strided(sizes, strides, offset) if all(sizes) else torch.zeros(sizes, dtype=dtype, device=where)


def _template(result: Any, given: set[int]) -> Any:
    """How to make the same result again: (number, bytes) for a tensor, lists of such, or the value.

    `given`: storages that were there before, whose views have no bytes of their own.
    """
    if isinstance(result, torch.Tensor):
        storage = result.untyped_storage()
        return (number_of(meta_of(result)), 0 if storage._cdata in given else storage.nbytes())
    if isinstance(result, list | tuple):
        return [_template(each, given) for each in result]
    return result


def _fresh(template: Any) -> Any:
    if type(template) is tuple:
        return Dummy(*template)
    if type(template) is list:
        return [_fresh(each) for each in template]
    return template


class DummyDevice(SimDevice):
    """Keeps time and metadata only."""

    torch_device = torch.device("meta")
    prepared: type[Prepared] = DummyPrepared
    values = False

    def put(self, tensor: torch.Tensor) -> Any:
        self._copied(tensor.nbytes)
        return Dummy(number_of(meta_of(tensor)), tensor.nbytes)

    def get(self, tensor: Any) -> torch.Tensor:
        dtype, sizes, _, _ = tensor.meta
        zeros = torch.zeros(sizes, dtype=dtype)
        self._copied(zeros.nbytes)
        self.queue.finish()
        return zeros

    def get_storage(self, tensor: Any) -> torch.Tensor:
        return torch.zeros(tensor.untyped_storage().nbytes(), dtype=torch.uint8)

    def put_view(
        self, raw: torch.Tensor, dtype: torch.dtype, sizes: list[int], strides: list[int], offset: int, bits: int
    ) -> Any:
        return Dummy(number_of((dtype, tuple(sizes), tuple(strides), offset)), raw.numel())

    def meta(self, tensor: Any) -> list[Any]:
        dtype, sizes, strides, offset = tensor.meta
        return [DTYPE_CODES[dtype], list(sizes), list(strides), offset]

    def memory_of(self, tensors: dict[int, Any]) -> int:
        return sum(tensor.nbytes for tensor in tensors.values())
