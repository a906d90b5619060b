"""Whole modules on their way to or from the device.

A module's parameters keep their identity when they move, as they do on CUDA: weights stay tied, hooks go along,
and an optimizer that was built before goes on with the same parameters.  Results of before, with their graphs, keep the
values that they were made of; a backward pass through them that comes to a parameter is refused, because its gradient
would be lost (`outdated`).
"""

from __future__ import annotations

import copyreg
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from dgsf.remoting.guest import scripts
from dgsf.remoting.guest.lending import lending
from dgsf.remoting.guest.outdated import refuse_gradients
from dgsf.remoting.guest.subclasses import class_after_move
from dgsf.remoting.guest.tensor import RemoteTensor, own_attributes

_here = threading.local()  # `moving`: a move is under way in this thread, its submodules need no second look
_plain_data: Any = torch.Tensor.data
_ASK_THE_MODULE = (
    "only a tensor that is no result and no view of others can be given remote data; move the module: module.to(device)"
)
_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def applying(original: Any) -> Any:
    """`Module._apply` that swaps a parameter's content instead of making a new parameter, if remote ones take part."""

    def _apply(self: Any, fn: Any, recurse: bool = True) -> Any:
        if isinstance(self, torch.jit.ScriptModule):
            return _renewed(original, self, fn, recurse)
        if _is_moving() or not _crosses(self, fn):
            return original(self, fn, recurse)
        with _as_move(True), lending(_tensors_of(self)):
            return original(self, fn, recurse)

    return _apply


def _renewed(original: Any, module: Any, fn: Any, recurse: bool) -> Any:
    """A scripted module holds what its parameters were made of, so they are replaced: swapping would not reach it."""
    if scripts.is_loaded(module) and _crosses(module, fn):
        scripts.exchange(module, fn)
        return module
    with _as_move(False):
        return original(module, fn, recurse)


def wishing_to_swap(original: Any) -> Any:
    """What `Module._apply` asks torch: whether to swap. Other threads' modules are none of our business."""
    return lambda: _is_moving() or original()


def swapping(original: Any) -> Any:
    """`torch.utils.swap_tensors`, which refuses a tensor that a graph or a weak reference holds, for our moves.

    A weak reference is to the object, which stays what it was.  A graph goes on with the content that it had, whose
    gradients would be nobody's: that is refused where it happens, as torch does it for the simplest graphs.
    """

    def swap_tensors(t1: Any, t2: Any) -> None:
        if not _is_moving() or any(copyreg._slotnames(type(each)) for each in (t1, t2)):  # type: ignore[attr-defined]
            original(t1, t2)
            return
        refuse_gradients(t1)
        attributes = own_attributes(t1)
        t1.__class__, t2.__class__ = class_after_move(type(t1), type(t2)), type(t1)
        t1.__dict__, t2.__dict__ = t2.__dict__, t1.__dict__
        t1.__dict__.update(attributes)
        torch._C._swap_tensor_impl(t1, t2)
        _take_hooks_along(t1, t2)

    return swap_tensors


def _set_data(tensor: Any, new: Any) -> None:
    """`p.data = p.data.to(device)`: to torch the two are of kinds that do not fit, so their contents are swapped.

    A gradient goes along, because whoever moves by hand looks for it next.
    """
    if not isinstance(new, RemoteTensor) or isinstance(tensor, RemoteTensor):
        _plain_data.__set__(tensor, new)
        return
    if not tensor.is_leaf or tensor._is_view():
        raise RuntimeError(_ASK_THE_MODULE)
    wants, gradient = tensor.requires_grad, tensor.grad
    content = new.detach()
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    content = torch.nn.Parameter(content, wants) if is_parameter else content.requires_grad_(wants)
    with _as_move(True):
        torch.utils.swap_tensors(tensor, content)
    if gradient is not None and gradient.shape == tensor.shape:
        tensor.grad = gradient.detach().to(tensor.device, tensor.dtype)


exchangeable_data = property(lambda self: _plain_data.__get__(self), _set_data)


def _take_hooks_along(moved: Any, old: Any) -> None:
    """The dictionaries of hooks stayed with the object, but what runs them went with the content: set them again."""
    for name in _HOOKS:
        hooks = getattr(moved, name)
        if hooks is not None:
            setattr(moved, name, hooks)
            setattr(old, name, None)


@contextmanager
def _as_move(moving: bool) -> Iterator[None]:
    """What this thread does inside is a move, or none."""
    before, _here.moving = _is_moving(), moving
    try:
        yield
    finally:
        _here.moving = before


def _is_moving() -> bool:
    return getattr(_here, "moving", False)


def _tensors_of(module: Any) -> list[torch.Tensor]:
    return [tensor.detach() for tensor in (*module.parameters(), *module.buffers())]


def _crosses(module: Any, fn: Any) -> bool:
    """Whether this conversion begins or ends on the device."""
    parameter = next(iter(module.parameters()), None)
    if parameter is None:
        return False
    if isinstance(parameter, RemoteTensor):
        return True
    with torch.no_grad():
        probe = fn(torch.empty(0, dtype=parameter.dtype))
    if isinstance(probe, RemoteTensor) and any(torch.nn.parameter.is_lazy(each) for each in module.parameters()):
        raise NotImplementedError("lazy parameters cannot be moved to a remote device: run the module once before")
    if not isinstance(probe, RemoteTensor):
        return False
    for kind in {type(each) for each in module.parameters()}:
        class_after_move(kind, RemoteTensor)  # refused before anything has moved
    return True
