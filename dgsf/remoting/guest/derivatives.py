"""Derivatives of what is sent whole, and when it must be taken apart for one.

Whole, `linear` and `matmul` have one derivative, by reverse mode.  Where that is to be derived again, their gradients
are made of ordinary operations; inside a level of forward mode, torch takes the two apart itself.  That is decided call
by call and thread by thread: by a dispatch key that is on in a thread only while it has such a level open.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from math import prod
from typing import Any

import torch
from torch.autograd import forward_ad

from dgsf.remoting.guest import autocast
from dgsf.remoting.guest.dispatch import dispatch
from dgsf.remoting.guest.failures import guarded
from dgsf.remoting.guest.plans import SPECIALS
from dgsf.remoting.guest.replacing import replace
from dgsf.remoting.guest.tensor import DEVICE_NAME

aten = torch.ops.aten
_grads = torch.is_grad_enabled
_modes = torch._C._len_torch_dispatch_stack
_transforms = torch._C._are_functorch_transforms_active
_excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_AUTOCAST = torch._C.DispatchKey.AutocastPrivateUse1
_APART_NAME = "TESTING_ONLY_GenericMode"  # the one that torch leaves to others: above all, and of no tensor's own
_APART = torch._C._dispatch_key_parse(_APART_NAME)
_APART_KEYS = torch._C.DispatchKeySet(_APART)


def forward_mode() -> bool:
    """Whether tensors may carry tangents, which end where a call is sent from an autograd kernel."""
    return bool(forward_ad._current_level >= 0)


def watched() -> bool:
    """Whether calls mean more than what the device does: tangents, transforms of functions, modes that look on."""
    return bool(forward_ad._current_level >= 0 or _transforms() or _modes())


def linear_backward(run: Any, source: Any, grad: Any, weight: Any, mask: Any) -> Any:
    """The three gradients of `linear`, by matrix products that every device has."""
    if grad is None:
        return None, None, None
    if grad.is_complex():
        weight, source = weight.conj(), source.conj()
    to_source = run(aten.matmul.default, (grad, weight), {}) if mask[0] else None
    to_weight = to_bias = None
    if mask[1] or mask[2]:
        rows = _matrix(grad)
        if mask[1]:
            columns = _matrix(source)
            to_weight = run(aten.mm.default, (run(aten.t.default, (rows,), {}), columns), {})
        if mask[2]:
            to_bias = run(aten.sum.dim_IntList, (rows, [0]), {})
    return to_source, to_weight, to_bias


def matmul_backward(run: Any, grad: Any, left: Any, right: Any, mask: Any) -> Any:
    """The two gradients of `matmul`, for vectors, matrices and batches of them."""
    if grad is None:
        return None, None
    if left.dim() == 1 and right.dim() == 1:
        return tuple(grad * other if wanted else None for other, wanted in ((right, mask[0]), (left, mask[1])))
    tall = left.unsqueeze(0) if left.dim() == 1 else left
    wide = right.unsqueeze(1) if right.dim() == 1 else right
    if left.dim() == 1:
        grad = grad.unsqueeze(-2)
    if right.dim() == 1:
        grad = grad.unsqueeze(-1)
    to_left = to_right = None
    if mask[0]:
        to_left = _shaped(run(aten.matmul.default, (grad, _adjoint(run, wide)), {}), tall.shape, left.shape)
    if mask[1]:
        to_right = _shaped(_to_right(run, grad, tall, wide), wide.shape, right.shape)
    return to_left, to_right


def _matrix(tensor: torch.Tensor) -> Any:
    """All dimensions but the last as one."""
    if tensor.dim() == 2:
        return tensor
    return aten.reshape.default(tensor, [prod(tensor.shape[:-1]), tensor.shape[-1]])


def _to_right(run: Any, grad: torch.Tensor, tall: torch.Tensor, wide: torch.Tensor) -> Any:
    if wide.dim() == 2 and tall.dim() > 2:  # one product instead of a batch of them that is then summed up
        tall, grad = _matrix(tall.expand(*grad.shape[:-1], tall.shape[-1])), _matrix(grad)
    return run(aten.matmul.default, (_adjoint(run, tall), grad), {})


def _adjoint(run: Any, tensor: torch.Tensor) -> Any:
    turned = run(aten.transpose.int, (tensor, -2, -1), {})
    return turned.conj() if tensor.is_complex() else turned


def _shaped(tensor: Any, sizes: torch.Size, shape: torch.Size) -> Any:
    """Summed up to sizes that were broadcast, and without a dimension that was put in."""
    summed = tensor if tensor.shape == sizes else tensor.sum_to_size(sizes)
    return summed if sizes == shape else summed.reshape(shape)


def _by_torch(func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs)


def _backward(derive: Any) -> Any:
    """An autograd kernel: by what torch can derive again where somebody may want that, else straight to the device."""

    def kernel(*args: Any) -> Any:
        return derive(_by_torch if _grads() or watched() else dispatch, *args)

    return guarded(kernel)


def _special(derive: Any) -> Any:
    return lambda plan, args, kwargs: derive(dispatch, *args, **kwargs)


def _taken_apart(func: Any) -> Any:
    """What is done instead of a call that may carry tangents; calls on other devices go their way."""
    cast = autocast.lowering(func)

    def kernel(*args: Any) -> Any:
        if not any(isinstance(value, torch.Tensor) and value.device.type == DEVICE_NAME for value in args):
            with torch._C._ExcludeDispatchKeyGuard(_APART_KEYS):
                return func(*args)
        if not _excluded(_AUTOCAST):  # its casts come first, and then this again
            return cast(*args)
        return func._op_dk(_COMPOSITE, *args)

    return kernel


def register(library: Any) -> None:
    for name, derive in (("linear_backward", linear_backward), ("matmul_backward", matmul_backward)):
        SPECIALS[f"aten::{name}"] = _special(derive)
        library.impl(name, _backward(derive), "AutogradPrivateUse1")
        library.impl(name, partial(derive, _by_torch), "FuncTorchBatchedDecomposition")  # else one by one, by vmap
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(torch.library.fallthrough_kernel, _APART_NAME)
    _kept.append(everything)
    for func in (aten.linear.default, aten.matmul.default):
        library.impl(func.name().removeprefix("aten::"), _taken_apart(func), _APART_NAME)


_kept: list[Any] = []


def install(stack: ExitStack) -> None:
    """Levels of forward mode switch the key on in their thread."""
    enter, leave = forward_ad.enter_dual_level, forward_ad.exit_dual_level

    def enter_dual_level() -> Any:
        level = enter()
        _switch()
        return level

    def exit_dual_level(*, level: Any = None) -> None:
        leave(level=level)
        _switch()

    replace(stack, forward_ad, "enter_dual_level", enter_dual_level)
    replace(stack, forward_ad, "exit_dual_level", exit_dual_level)
    _switch()
    stack.callback(torch._C._dispatch_tls_set_dispatch_key_included, _APART, False)


def _switch() -> None:
    torch._C._dispatch_tls_set_dispatch_key_included(_APART, forward_mode())
