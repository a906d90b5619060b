"""The remote device's random numbers, and all that a program may say to them.

The device draws; what is known here is the seed that it goes by.  A state is that of a generator of the CPU or of CUDA,
as the device is.  CUDA's is a seed and how far its numbers went, so a seed that nothing was drawn from is a state as
well: the one of a device that is not there yet.
"""

from __future__ import annotations

import secrets
import struct
from typing import Any, NoReturn

import torch

from dgsf.remoting.guest.bound import bound

_CUDA_STATE = struct.Struct("<QQ")  # seed and offset
_STEP = 4  # numbers that CUDA draws at a time: offsets are multiples of it
_SEED_BYTES = 8  # with which states of either kind begin


def state_of(seed: int) -> torch.Tensor:
    """The state of a generator that was seeded just now."""
    return torch.frombuffer(bytearray(_CUDA_STATE.pack(seed, 0)), dtype=torch.uint8)


def seed_alone(state: torch.Tensor) -> int | None:
    """The seed of a state that is nothing else; None for one from which numbers were drawn, or of another kind."""
    if state.numel() != _CUDA_STATE.size:
        return None
    seed, offset = _CUDA_STATE.unpack(bytes(state.numpy()))
    return None if offset else int(seed)


def _check(state: Any) -> None:
    """Whether a device would take this state; TypeError or RuntimeError, as torch says it."""
    if isinstance(state, torch.Tensor) and state.device.type != "cpu":
        raise TypeError(f"RNG state must be a torch.ByteTensor on the CPU, not on {state.device}")
    of_cuda = isinstance(state, torch.Tensor) and state.dtype is torch.uint8 and state.numel() == _CUDA_STATE.size
    if not of_cuda:
        torch._C.Generator().set_state(state)
    elif _CUDA_STATE.unpack(bytes(state.numpy()))[1] % _STEP:
        raise RuntimeError("offset must be a multiple of 4")


def _refuse(generator: Any) -> NoReturn:
    raise AttributeError("a remote device's generator has get_state and set_state only")


class DefaultGenerator(torch._C.Generator):
    """`torch.cuda.default_generators[0]`; torch hands it on to operators, where `drawn_from` knows it again."""

    _seed = 0

    @property
    def device(self) -> Any:
        return torch.device(bound.name)

    def manual_seed(self, seed: int) -> DefaultGenerator:
        self._seed = torch._C.Generator().manual_seed(int(seed)).initial_seed()  # checked, and never negative
        if bound.stream is not None:
            bound.stream.seed(self._seed)
        return self

    def seed(self) -> int:
        return self.manual_seed(secrets.randbits(63)).initial_seed()

    def initial_seed(self) -> int:
        return self._seed

    def get_state(self) -> torch.Tensor:
        if bound.stream is None:
            return state_of(self._seed)
        return bound.stream.rng_state()

    def set_state(self, state: torch.Tensor) -> DefaultGenerator:
        if bound.stream is not None:
            _check(state)
            bound.stream.set_rng_state(state)
            self._seed = int.from_bytes(bytes(state[:_SEED_BYTES].numpy()), "little")
        return self

    # Of the generator that torch keeps beneath, which nothing is drawn from.
    clone_state = graphsafe_get_state = graphsafe_set_state = get_offset = set_offset = property(_refuse)


GENERATOR = DefaultGenerator()


def drawn_from(value: Any) -> bool:
    """Whether a generator is the device's own, also as torch hands it on: another object of the same generator."""
    return isinstance(value, torch._C.Generator) and value._cdata == GENERATOR._cdata
