"""A stream that does every call at once, in this process, on CPU tensors: the reference for the guest's tests."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from dgsf.errors import RemoteOpError
from dgsf.remoting.executor.stand_ins import on_cpu
from dgsf.remoting.guest.kinds import Kind, Meta
from dgsf.remoting.protocol import COMPLEX, DTYPES, FLOAT, LAYOUTS, MEMORY_FORMATS, TENSOR

LEASE = 1 << 30
_TABLES = {"ScalarType": DTYPES, "Layout": LAYOUTS, "MemoryFormat": MEMORY_FORMATS}


class InProcessStream:
    """Handles in a dictionary; `calls` and `waits` count what a wire would carry."""

    def __init__(self) -> None:
        self.tensors: dict[int, torch.Tensor | None] = {}
        self.calls: list[str] = []
        self.waits = 0
        self.closed = False
        self._next = 1
        self._elsewhere = ThreadPoolExecutor(1, "executor")

    def call(self, kind: Kind, handles: list[int], floats: Sequence[float] = ()) -> int:
        first, made = self._run(kind, handles, floats)
        count = sum(1 for value in made if value is None or isinstance(value, torch.Tensor))
        if count != kind.outs:
            raise AssertionError(f"{kind.op}: {count} results, not {kind.outs} as its kind says")
        return first

    def ask(self, kind: Kind, handles: list[int], floats: Sequence[float] = ()) -> tuple[int, list[Any]]:
        self.waits += 1
        first, made = self._run(kind, handles, floats)
        return first, [_meta(value) if isinstance(value, torch.Tensor) else value for value in made]

    def _run(self, kind: Kind, handles: list[int], floats: Sequence[float]) -> tuple[int, list[Any]]:
        self.calls.append(kind.op)
        func = _overload(kind.op)
        given = [self.tensors[handle] for handle in handles]
        arguments = func._schema.arguments
        args = [_decode(word, arguments[i].real_type, given, floats) for i, word in enumerate(kind.args)]
        by_name = {argument.name: argument.real_type for argument in arguments}
        kwargs = {name: _decode(word, by_name[name], given, floats) for name, word in kind.kwargs.items()}
        try:
            # In a thread of its own, as if elsewhere: what autograd and functorch hold for the guest's is not there.
            made = self._elsewhere.submit(_do, func, args, kwargs).result()
        except Exception as error:
            raise RemoteOpError(str(error)) from error
        return self._keep(func, made, given)

    def _keep(self, func: Any, made: Any, given: list[Any]) -> tuple[int, list[Any]]:
        first, told = self._next, []
        returns = func._schema.returns
        values = () if not returns else (made,) if len(returns) == 1 else made
        for result, value in zip(returns, values, strict=True):
            if result.alias_info is not None and result.alias_info.is_write:
                continue
            for item in value if isinstance(value, list | tuple) else [value]:
                told.append(item)
                if item is None or isinstance(item, torch.Tensor):
                    self.tensors[self._next] = item
                    self._next += 1
        return first, told

    def meta(self, handle: int) -> Meta:
        self.waits += 1
        return _meta(self._held(handle))

    def upload(self, tensor: torch.Tensor) -> int:
        self.calls.append("upload")
        self.tensors[self._next] = tensor.detach().clone().contiguous()
        self._next += 1
        return self._next - 1

    def fetch(self, handle: int) -> torch.Tensor:
        self.waits += 1
        return self._held(handle).detach().clone(memory_format=torch.contiguous_format)

    def _held(self, handle: int) -> torch.Tensor:
        tensor = self.tensors[handle]
        assert tensor is not None
        return tensor

    def free(self, handle: int) -> None:
        del self.tensors[handle]

    def seed(self, seed: int) -> None:
        torch.default_generator.manual_seed(seed)

    def rng_state(self) -> torch.Tensor:
        return torch.default_generator.get_state()

    def set_rng_state(self, state: torch.Tensor) -> None:
        torch.default_generator.set_state(state)

    def sync(self) -> None:
        self.waits += 1

    def flush(self) -> None: ...

    def forked(self) -> None: ...

    def memory(self, forget_peak: bool = False) -> tuple[int, int, int]:
        live = sum(tensor.nbytes for tensor in self.tensors.values() if tensor is not None)
        return live, live, self.lease()

    def lease(self) -> int:
        return LEASE

    def close(self) -> None:
        self.closed = True
        self._elsewhere.shutdown()


def _do(func: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    kernel = on_cpu(func.name(), func)
    return kernel(*args, **kwargs)  # no tensor wants a gradient; but torch's fused LSTM asks whether one could


def _overload(name: str) -> Any:
    bare, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, bare), overload or "default")


def _meta(tensor: torch.Tensor) -> Meta:
    return tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()


def _decode(word: Any, kind: Any, given: list[Any], floats: Sequence[float]) -> Any:
    if isinstance(word, dict):
        if TENSOR in word:
            return given[word[TENSOR]]
        if FLOAT in word:
            return floats[word[FLOAT]]
        return complex(*word[COMPLEX])
    if isinstance(word, list):
        return [_decode(item, kind, given, floats) for item in word]
    table = next((table for name, table in _TABLES.items() if name in str(kind)), None)
    return getattr(torch, table[word]) if table is not None and word is not None else word
