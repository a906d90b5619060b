"""Operators over lists of tensors (`_foreach_*`, the fused optimizers), straight from Python to `dispatch`.

torch would turn a thousand tensors into C++ values and back before it asked us; for an optimizer's step that takes
longer than everything else in the guest.  Which overload a call means is learnt by watching torch do the first of
its form.  A call that needs more of torch than the device (gradients, modes, other tensors) takes torch's own way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dgsf.remoting.guest import derivatives
from dgsf.remoting.guest.dispatch import dispatch
from dgsf.remoting.guest.layout import PENDING
from dgsf.remoting.guest.tensor import RemoteTensor

PREFIX = "_foreach_"
OPTIMIZERS = ("_fused_adagrad_", "_fused_adam_", "_fused_adamw_", "_fused_sgd_")
# What `dispatch` knows as it is; torch turns everything else (numpy's numbers, tuples by name) into these first.
_PLAIN = (RemoteTensor, torch.Tensor, list, float, int, bool, type(None), str, torch.dtype)

_SILENT = (RemoteTensor, torch.Tensor, torch.nn.Parameter)  # classes that torch need not ask


@dataclass(slots=True, frozen=True)
class Direct:
    """A form of a call that needs no torch: its overload, and what it gives back."""

    func: Any
    gives: Callable[[Any, Any], Any]  # from its first argument and the device's results


class _Watch(TorchDispatchMode):
    """Notes what torch makes of a call."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def direct(name: str) -> Callable[..., Any]:
    """A stand-in for torch's function of this name."""
    original = getattr(torch, name)
    known: dict[Any, Direct | None] = {}

    def call(*args: Any, **kwargs: Any) -> Any:
        if not args or not _is_ours(args[0]):
            return original(*args, **kwargs)
        args = tuple([list(value) if type(value) is tuple else value for value in args])
        form = _form(args, kwargs)
        way = known.get(form)
        if way is None:
            if form in known:
                return original(*args, **kwargs)
            result, way = _watched(name, original, args, kwargs)
            known[form] = way if _is_plain(form) else None
            return result
        return way.gives(args[0], dispatch(way.func, args, kwargs))

    call.__name__ = call.__qualname__ = name
    return call


def gathering(original: Callable[..., Any]) -> Callable[..., Any]:
    """A stand-in for an optimizer's `_init_group`, which looks at every tensor of a group many times.

    At each look torch asks a tensor of another class than its own whether that class wants to have a say.  Remote
    tensors never do, so it need not ask, unless the optimizer keeps tensors of somebody else's class beside them.
    """

    def gather(self: Any, group: Any, *lists: Any, **more: Any) -> Any:
        if set(map(type, group["params"])) != {RemoteTensor} or _has_others(self.state, group):
            return original(self, group, *lists, **more)
        with torch._C.DisableTorchFunctionSubclass():
            return original(self, group, *lists, **more)

    return gather


def _has_others(state: Any, group: Any) -> bool:
    """Whether a tensor of a class with a say of its own is in the group's options or in what is kept of its tensors."""
    kinds = set(map(type, group.values()))
    for tensor in group["params"]:
        kept = state.get(tensor)  # `[]` would make one
        if kept:
            kinds.update(map(type, kept.values()))
    return any(issubclass(kind, torch.Tensor) and kind not in _SILENT for kind in kinds)


def optimizers() -> list[type]:
    """torch's own optimizers that gather their tensors so."""
    found = [each for each in vars(torch.optim).values() if isinstance(each, type)]
    return [each for each in dict.fromkeys(found) if "_init_group" in vars(each)]


def grouping(original: Callable[..., Any]) -> Callable[..., Any]:
    """A stand-in for what optimizers sort their tensors with: remote ones of one type are one group at a glance."""

    def group(tensorlists: Any, with_indices: bool) -> Any:
        if not _is_one_group(tensorlists):
            return original(tensorlists, with_indices)
        first = tensorlists[0]
        (key,) = original([first[:1]], False)
        return {key: ([list(each) for each in tensorlists], list(range(len(first))) if with_indices else [])}

    return group


def _is_one_group(tensorlists: Any) -> bool:
    """Whether all are remote tensors of one type, as many in each list that has any."""
    if not tensorlists or not tensorlists[0]:
        return False
    layouts: set[Any] = set()
    for each in tensorlists:
        if each and (len(each) != len(tensorlists[0]) or set(map(type, each)) != {RemoteTensor}):
            return False
        layouts.update([tensor._m for tensor in each])
    return PENDING not in layouts and len({layout.dtype for layout in layouts}) == 1


def names() -> list[str]:
    """The functions of torch that have a stand-in."""
    return [name for name in dir(torch) if name.startswith(PREFIX)] + [n for n in OPTIMIZERS if hasattr(torch, n)]


def _is_ours(first: Any) -> bool:
    """Whether nothing but the device has a say: remote tensors, no gradients, nobody who watches or changes calls."""
    return (
        type(first) is list
        and bool(first)
        and type(first[0]) is RemoteTensor
        and not torch.is_grad_enabled()
        and not torch.is_inference_mode_enabled()
        and not derivatives.watched()
        and not torch._C._is_torch_function_mode_enabled()
    )


def _form(args: Any, kwargs: Any) -> Any:
    """What decides on the overload: the types of the arguments, of lists that of the first item."""
    shown: list[Any] = [(list, type(value[0])) if type(value) is list and value else type(value) for value in args]
    for name, value in kwargs.items():
        shown += (name, type(value))
    return tuple(shown)


def _is_plain(form: Any) -> bool:
    return all(type(each) is str or (each[1] if type(each) is tuple else each) in _PLAIN for each in form)


def _watched(name: str, original: Any, args: Any, kwargs: Any) -> tuple[Any, Direct | None]:
    with _Watch() as watch:
        result = original(*args, **kwargs)
    first = watch.seen[0] if watch.seen else None
    if len(watch.seen) != 1 or first is None or first._schema.name != f"aten::{name}":
        return result, None
    return result, Direct(first, _GIVES[type(result)])


def _nothing(given: Any, results: Any) -> Any:
    return None


def _itself(given: Any, results: Any) -> Any:
    return given


def _results(given: Any, results: Any) -> Any:
    return tuple(results)


_GIVES = {type(None): _nothing, list: _itself, tuple: _results}
