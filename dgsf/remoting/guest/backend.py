"""The device "dgsf" as torch knows it: registered once per process, on the first attach, never at import.

Torch wants a device module, hooks and a guard.  The module has the whole random-number interface, because torch
asks it even for CPU code; with no session it answers for a device that is not there.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

from dgsf.remoting.guest import autocast, factories, fused, nested, quantised, special, storages, tensor  # noqa: F401 - `special` registers its operators
from dgsf.remoting.guest.bound import FORKED, bound
from dgsf.remoting.guest.failures import install
from dgsf.remoting.guest.generators import GENERATOR
from dgsf.remoting.guest.guard import Guard
from dgsf.remoting.guest.one_device import answers
from dgsf.remoting.guest.streams import Event, Stream, StreamContext, synchronize

_done: list[Any] = []


class DeviceModule:
    """What `torch.dgsf` is; what it says of its only device is in `one_device`."""

    default_generators = (GENERATOR,)
    synchronize = staticmethod(synchronize)

    def __init__(self) -> None:
        vars(self).update(answers(tensor.DEVICE_NAME), Stream=Stream, Event=Event, stream=StreamContext)

    @property
    def _initialized(self) -> bool:
        """Gradient checkpointing asks this before it keeps the device's random numbers for the second forward."""
        return bound.stream is not None

    def is_available(self) -> bool:
        return bound.stream is not None

    def is_initialized(self) -> bool:
        return bound.stream is not None

    def init(self) -> None:
        pass

    def device_count(self) -> int:
        return 1 if bound.stream is not None else 0

    def current_device(self) -> int:
        return 0

    def current_stream(self, device: Any = None) -> Stream:
        return Stream()

    default_stream = current_stream

    def empty_cache(self) -> None:
        pass

    def _is_in_bad_fork(self) -> bool:
        return bound.why is FORKED

    def manual_seed(self, seed: int) -> None:
        GENERATOR.manual_seed(seed)

    manual_seed_all = manual_seed

    def seed(self) -> None:
        GENERATOR.seed()

    seed_all = seed

    def initial_seed(self) -> int:
        return GENERATOR.initial_seed()

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return GENERATOR.get_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        GENERATOR.set_state(state)

    def get_rng_state_all(self) -> list[torch.Tensor]:
        return [self.get_rng_state()] if bound.stream is not None else []

    def set_rng_state_all(self, states: list[torch.Tensor]) -> None:
        for state in states:
            self.set_rng_state(state)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    def is_bf16_supported(self) -> bool:
        return True


MODULE = DeviceModule()


class _Hook(torch.utils.backend_registration._DummyPrivateUse1Hook):
    def is_available(self) -> bool:
        return bound.stream is not None


def _quick_rules() -> None:
    """Torch looks for a registered rule before each operation on a tensor class; for ours there is never one."""
    registry = import_module("torch._library.simple_registry")
    original = registry.find_torch_dispatch_rule

    def find_torch_dispatch_rule(op: Any, torch_dispatch_class: type) -> Any:
        return None if torch_dispatch_class is tensor.RemoteTensor else original(op, torch_dispatch_class)

    setattr(registry, "find_torch_dispatch_rule", find_torch_dispatch_rule)  # noqa: B010 - the module has no such type


def register() -> torch.device:
    """Make the device known to torch; the second time only says it again."""
    if not _done:
        setup = torch.utils.backend_registration._setup_privateuseone_for_python_backend
        setup("dgsf", backend_module=MODULE, hook=_Hook(), device_guard=Guard())
        install()
        _quick_rules()
        storages.refuse_remote()
        tensor.DEVICE = torch.device("dgsf", 0)
        library = torch.library.Library("aten", "IMPL")
        factories.register(library)
        fused.register(library)
        autocast.register(library)
        nested.register(library)
        quantised.register(library)
        _done.append(library)
    return tensor.DEVICE
