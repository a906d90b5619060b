"""What a call would cost on a simulated GPU: its kernels and their time, from the shapes.

The call is made under a mode that sees every operator it falls apart into.  Views and allocations are free;
every other operator is one kernel with its arithmetic (torch's own formulas) and its memory traffic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from dgsf.fabric.devices.sim import SimTiming

_FREE = frozenset(("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_local_scalar_dense"))


@dataclass(slots=True)
class Cost:
    """Of one call: launches, and the time of their kernels."""

    launches: int = 0
    kernel_us: float = 0.0


class Meter(TorchDispatchMode):
    """Adds up what happens inside."""

    def __init__(self, timing: SimTiming) -> None:
        super().__init__()
        self._timing = timing
        self.cost = Cost()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would load its compiler, seconds of device time, to keep it from compiling what nobody compiles."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            with self:
                made = func.decompose(*args, **kwargs)
            if made is not NotImplemented:
                return made
        result = func(*args, **kwargs)
        self._add(func, args, kwargs, result)
        return result

    def _add(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        name = func._schema.name.removeprefix("aten::")
        if name in _FREE or _is_view(func._schema):
            return
        self.cost.launches += 1
        table = self._timing.kernels
        if name in table or self._timing.model is None:
            self.cost.kernel_us += table.get(name, self._timing.kernel_us)
            return
        tensors = [*_tensors(args), *_tensors(kwargs.values()), *_tensors([result])]
        dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else "float32"
        traffic = sum({id(tensor): tensor.nbytes for tensor in tensors}.values())
        self.cost.kernel_us += self._timing.model.kernel_us(name, dtype, _flops(func, args, kwargs, result), traffic)


def _is_view(schema: Any) -> bool:
    """Whether it makes nothing and writes nothing."""
    written = any(argument.alias_info is not None and argument.alias_info.is_write for argument in schema.arguments)
    return not written and bool(schema.returns) and all(result.alias_info is not None for result in schema.returns)


def _flops(func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> float:
    formula = flop_registry.get(func._overloadpacket)
    if formula is None:
        return float(sum(tensor.numel() for tensor in _tensors([result])))
    return float(formula(*args, **kwargs, out_val=result))


def _tensors(values: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found.extend(_tensors(value))
    return found
