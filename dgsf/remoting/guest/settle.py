"""Arguments that cannot be sent as they are: memory not asked for, CPU tensors, generators, other sessions.

Also where a call does not go to the device at all: a factory that is asked for a CPU tensor, and random numbers
from a CPU generator that the user holds, are made here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from dgsf.errors import OpNotAllowed, UsageError
from dgsf.remoting.guest import local
from dgsf.remoting.guest.bound import OTHER_SESSION, bound
from dgsf.remoting.guest.dispatch import send
from dgsf.remoting.guest.generators import drawn_from
from dgsf.remoting.guest.layout import PENDING
from dgsf.remoting.guest.plans import Plan
from dgsf.remoting.guest.special import take_apart
from dgsf.remoting.guest.tensor import DEVICE_NAME, RemoteTensor
from dgsf.remoting.guest.transfer import materialise, upload

# Operators that take index or helper tensors from the CPU, as on CUDA; what they work on must be on the device.
# Plain indexing is one of them, index_select, index_add and the like are not.
_INDEXING = ("index.", "index_put", "_index_put", "_unsafe_index")
_TAKES_CPU = (
    *_INDEXING,
    "tensor_split",
    "_foreach",
    "repeat_interleave",
    "lstm",
    "gru",
    "rnn",
    "_ctc",
    "_use_cudnn_ctc",
    "ctc",
)
_WRONG_INDEX = "indices should be either on cpu or on the same device as the indexed tensor ({})"
_TWO_DEVICES = "Expected all tensors to be on the same device, but found at least two devices"
_WRAPPED = "{} is not available for a remote tensor inside {}: call it outside, or move its tensors to the CPU for it"


def settled(plan: Plan, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
    """The arguments as they can be sent, or None if they already are."""
    for place in plan.written:
        _refuse_local(plan, place.get(args, kwargs))
    _refuse_undefined(plan, args, kwargs)
    _refuse_indexed(plan, args)
    settler = _Settler(plan)
    new_args = tuple([settler.value(value) for value in args])
    new_kwargs = {name: settler.value(value) for name, value in kwargs.items()}
    return (new_args, new_kwargs) if settler.changed else None


def _refuse_local(plan: Plan, target: Any) -> None:
    """What a call writes must be on the device: the write to a copy there would be lost."""
    for each in target if isinstance(target, list | tuple) else (target,):
        if _is_local(each):
            _refuse(plan, each)


def _refuse(plan: Plan, value: torch.Tensor) -> NoReturn:
    if value.device.type == DEVICE_NAME:  # not on another device, but in a wrapper that hides the handle
        transformed = torch._C._functorch.is_functorch_wrapped_tensor(value)
        wrapper = "a transform of functions (torch.func, vmap)" if transformed else f"a {type(value).__name__}"
        raise OpNotAllowed(_WRAPPED.format(plan.name, wrapper))
    raise RuntimeError(f"{_TWO_DEVICES}, {bound.name} and {value.device}!")


def _refuse_undefined(plan: Plan, args: Any, kwargs: Any) -> None:
    """None where the operator needs a tensor: a gradient that is not there, for an operator that cannot do without."""
    for index, argument in enumerate(plan.func._schema.arguments):
        given = args[index] if index < len(args) else kwargs.get(argument.name, argument)
        if given is None and str(argument.type) == "Tensor":
            raise RuntimeError(
                "Expected a proper Tensor but got None (or an undefined Tensor in C++) "
                f"for argument #{index} '{argument.name}' of {plan.name}"
            )


def _refuse_indexed(plan: Plan, args: Any) -> None:
    """A CPU tensor stays here, so the device cannot pick of it, as on CUDA."""
    bare = plan.name.removeprefix("aten::")
    if not args or not _is_local(args[0]) or not bare.startswith(_TAKES_CPU):
        return
    if bare.startswith(_INDEXING):
        raise RuntimeError(_WRONG_INDEX.format(args[0].device))
    _refuse(plan, args[0])


def _is_local(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not isinstance(value, RemoteTensor)


class _Settler:
    def __init__(self, plan: Plan) -> None:
        self.changed = False
        self._plan = plan
        bare = plan.name.removeprefix("aten::")
        self._takes_cpu = bare.startswith(_TAKES_CPU)
        self._lists_take_cpu = self._takes_cpu and (not plan.float_lists or bare.startswith("_foreach_copy"))

    def value(self, value: Any) -> Any:
        if type(value) is RemoteTensor:
            return self._remote(value)
        if isinstance(value, torch.Tensor):
            return self._local(value, self._takes_cpu)
        if isinstance(value, list | tuple):
            return [self._item(item) for item in value]
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            self.changed = True
            return value.node.maybe_as_int() if isinstance(value, torch.SymInt) else value.node.maybe_as_float()
        return value

    def _remote(self, value: RemoteTensor) -> RemoteTensor:
        if value._h.free != bound.need().free:
            raise UsageError(OTHER_SESSION)
        if value._m is PENDING:
            materialise(value)
            self.changed = True
        return value

    def _item(self, value: Any) -> Any:
        return self._local(value, self._lists_take_cpu) if _is_local(value) else self.value(value)

    def _local(self, value: torch.Tensor, takes_cpu: bool) -> Any:
        if isinstance(value, RemoteTensor):  # a user's subclass of ours: the same tensor, plainly
            self.changed = True
            return self._remote(value.as_subclass(RemoteTensor))
        if (value.dim() and not takes_cpu) or value.device.type == DEVICE_NAME:
            _refuse(self._plan, value)
        self.changed = True
        return upload(value)


def run_elsewhere(plan: Plan, args: Any, kwargs: Any) -> Callable[[], Any] | None:
    """How to do a call that is not for the device, or None."""
    if plan.takes_device and (device := kwargs.get("device")) is not None and device.type != "dgsf":
        return lambda: local.make_elsewhere(plan, args, kwargs)
    generators = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Generator)]
    if generators and all(drawn_from(each) for each in generators):
        return lambda: send(plan, [_undrawn(value) for value in args], {n: _undrawn(v) for n, v in kwargs.items()})
    if generators:
        return lambda: local.run(plan, args, kwargs)
    if plan.float_lists and _is_mixed(plan, args, kwargs):
        return lambda: take_apart(plan, args, kwargs)
    return None


def _undrawn(value: Any) -> Any:
    """The device draws from its own generator where none is named."""
    return None if drawn_from(value) else value


def _is_mixed(plan: Plan, args: Any, kwargs: Any) -> bool:
    """Whether a call over lists is on or into tensors of the CPU, too: each of them is done where it is."""
    lists = [args[0] if args else (), *(place.get(args, kwargs) for place in plan.written)]
    return any(_is_local(each) for one in lists if isinstance(one, list | tuple) for each in one)
