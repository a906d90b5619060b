"""What the machine needs of a device: calls, transfers, random numbers, time.

On the CPU a call is done when it returns, and device time is the time between `begin` and `end`.  Other devices
give their own answers behind the same few methods.
"""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

from dgsf.remoting.executor.codes import meta_of
from dgsf.remoting.executor.convolutions import by_onednn
from dgsf.remoting.executor.kinds import Prepared
from dgsf.remoting.executor.memory import storage_bytes
from dgsf.remoting.executor.pooling import by_channels
from dgsf.remoting.executor.stand_ins import on_cpu
from dgsf.remoting.executor.zeroed import zeroing

_OVER_LISTS = ("_foreach_", "_fused_adam", "_fused_sgd")
_CUDA_STATE = struct.Struct("<QQ")  # of a generator: seed and offset
_STATE_BYTES = (_CUDA_STATE.size, 5056)  # of generators on CUDA and on the CPU


class Device(Protocol):
    """One device under one session."""

    @property
    def torch_device(self) -> torch.device: ...

    @property
    def prepared(self) -> type[Prepared]: ...

    @property
    def values(self) -> bool:
        """Whether its tensors are torch tensors with values."""
        ...

    def bind(self, overload: Any, name: str) -> Callable[..., Any]:
        """What is called for this overload."""
        ...

    def begin(self) -> None:
        """Commands are being done from now on."""
        ...

    def end(self) -> None:
        """Nothing is being done any more: what follows is waiting."""
        ...

    def used_us(self) -> int:
        """Device time so far."""
        ...

    def finish(self) -> None:
        """Wait until everything is done."""
        ...

    def put(self, tensor: torch.Tensor) -> Any:
        """A CPU tensor, brought to the device."""
        ...

    def get(self, tensor: Any) -> torch.Tensor:
        """A contiguous CPU tensor of the same values; waits for them."""
        ...

    def get_storage(self, tensor: Any) -> torch.Tensor:
        """The bytes of a tensor's whole storage as a CPU tensor."""
        ...

    def adopt(self, raw: torch.Tensor) -> torch.Tensor:
        """Bytes of a whole storage, brought to the device."""
        ...

    def put_view(
        self, raw: torch.Tensor, dtype: torch.dtype, sizes: list[int], strides: list[int], offset: int, bits: int
    ) -> Any:
        """A view of such bytes as a tensor of the device; checked by the caller to be inside."""
        ...

    def meta(self, tensor: Any) -> list[Any]: ...

    def memory_of(self, tensors: dict[int, Any]) -> int: ...

    def seed(self, seed: int) -> None: ...

    def rng_state(self) -> bytes: ...

    def set_rng_state(self, state: bytes) -> None: ...


class Host:
    """The CPU."""

    torch_device = torch.device("cpu")
    prepared: type[Prepared] = Prepared
    values = True

    def __init__(self, torchs_choice: bool = True) -> None:
        self._torchs_choice = torchs_choice  # of kernels, also where another one is quicker
        self._since = 0
        self._used_ns = 0

    def bind(self, overload: Any, name: str) -> Callable[..., Any]:
        kernel = quickest(overload, name)
        if not self._torchs_choice:
            kernel = by_channels(name, by_onednn(name, kernel))
        return zeroing(name, on_cpu(name, kernel))

    def begin(self) -> None:
        self._since = time.perf_counter_ns()

    def end(self) -> None:
        now = time.perf_counter_ns()
        self._used_ns += now - self._since
        self._since = now

    def used_us(self) -> int:
        return self._used_ns // 1000

    def finish(self) -> None:
        """A call that returned is done."""

    def put(self, tensor: torch.Tensor) -> Any:
        return tensor

    def get(self, tensor: Any) -> torch.Tensor:
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        if tensor._is_zerotensor():  # zeros that torch knows of and has no memory for
            tensor = torch.zeros(tensor.shape, dtype=tensor.dtype)
        return tensor.contiguous()

    def get_storage(self, tensor: Any) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if tensor._is_zerotensor():  # its storage says a size and has no memory: whoever reads there, crashes
            return torch.zeros(storage.nbytes(), dtype=torch.uint8)
        return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (storage.nbytes(),), (1,))

    def adopt(self, raw: torch.Tensor) -> torch.Tensor:
        return raw

    def put_view(
        self, raw: torch.Tensor, dtype: torch.dtype, sizes: list[int], strides: list[int], offset: int, bits: int
    ) -> Any:
        tensor = torch.empty(0, dtype=dtype, device=raw.device).set_(raw.untyped_storage(), offset, sizes, strides)
        if bits & 1:
            tensor = torch._conj(tensor)
        return torch._neg_view(tensor) if bits & 2 else tensor

    def meta(self, tensor: Any) -> list[Any]:
        return meta_of(tensor)

    def memory_of(self, tensors: dict[int, Any]) -> int:
        return storage_bytes(tensors.values())

    def seed(self, seed: int) -> None:
        torch.default_generator.manual_seed(seed)

    def rng_state(self) -> bytes:
        return bytes(torch.default_generator.get_state().numpy())

    def set_rng_state(self, state: bytes) -> None:
        restore(torch.default_generator, state)


def quickest(overload: Any, name: str) -> Callable[..., Any]:
    """torch's own Python function reads long lists of tensors faster than the operator does."""
    bare = name.removeprefix("aten::").partition(".")[0]
    found: Callable[..., Any] = overload._op
    return getattr(torch, bare, found) if bare.startswith(_OVER_LISTS) else found


def restore(generator: Any, state: bytes) -> None:
    """Go on with this state; one of another kind of device gives a seed that is always the same for it.

    CUDA's is a seed and how far its numbers went: if they did not, it is that seed on every device.
    """
    if len(state) not in _STATE_BYTES or len(state) == generator.get_state().numel():
        generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    elif len(state) == _CUDA_STATE.size and not _CUDA_STATE.unpack(state)[1]:
        generator.manual_seed(_CUDA_STATE.unpack(state)[0])
    else:
        generator.manual_seed(int.from_bytes(hashlib.sha256(state).digest()[:7]))
