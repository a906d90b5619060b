"""Operators that are not simply sent: copies across the border, single values, aliases, lazy bits, storages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from dgsf.errors import OpNotAllowed
from dgsf.remoting.guest import encoders, nested
from dgsf.remoting.guest.dispatch import dispatch, send
from dgsf.remoting.guest.layout import CONJUGATED, NEGATED, PENDING
from dgsf.remoting.guest.plans import SPECIALS, Plan, plan_of
from dgsf.remoting.guest.tensor import RemoteTensor, memory_of, refit
from dgsf.remoting.guest.transfer import again, download, fetch, fill_pending, materialise, to_copy, upload

aten = torch.ops.aten


Kernel = Callable[[Plan, Any, Any], Any]


def _special(*names: str) -> Callable[[Kernel], Kernel]:
    def register(function: Kernel) -> Kernel:
        for name in names:
            SPECIALS[f"aten::{name}"] = function
        return function

    return register


@_special("detach", "alias", "lift", "lift_fresh", "detach_")
def _again(plan: Plan, args: Any, kwargs: Any) -> Any:
    if plan.name == "aten::detach_":
        return args[0]
    return again(args[0])


@_special("_nested_tensor_from_mask_left_aligned")
def _packs(plan: Plan, args: Any, kwargs: Any) -> bool:
    """Asked by encoders that are not `encoders`' own, scripted ones; True ends in the refusal below."""
    keep: Any = args[1]
    return bool(encoders.is_left_aligned(keep).item())


@_special("_nested_tensor_from_mask")
def _no_nesting(plan: Plan, args: Any, kwargs: Any) -> NoReturn:
    nested.refuse()


@_special("_new_zeros_with_same_feature_meta")
def _zero_tangent(plan: Plan, args: Any, kwargs: Any) -> Any:
    """A tangent of zeros: like the second tensor in memory, once for each batch of the first."""
    batches, feature = args[0].shape[: kwargs.get("self_num_batch_dims", 0)], args[1]
    steps = zip(feature.shape, feature.stride(), strict=True)
    reach = 1 + sum((size - 1) * stride for size, stride in steps) if feature.numel() else 0
    whole = dispatch(aten.new_zeros.default, (args[0], [*batches, reach]), {})
    strides = [*whole.stride()[: len(batches)], *feature.stride()]
    return dispatch(aten.as_strided.default, (whole, [*batches, *feature.shape], strides), {})


@_special("_to_copy")
def _to_copy(plan: Plan, args: Any, kwargs: Any) -> Any:
    return to_copy(send, plan, args, kwargs)


@_special("copy_")
def _copy_(plan: Plan, args: Any, kwargs: Any) -> Any:
    target, source = args[0], args[1]
    if not isinstance(target, RemoteTensor):
        return target.copy_(download(source))
    if isinstance(source, RemoteTensor):
        return send(plan, (target, source), {})
    if target._m is PENDING and fill_pending(target, source):
        return target
    return send(plan, (target, upload(source)), {})


@_special("fill_.Tensor")
def _fill_(plan: Plan, args: Any, kwargs: Any) -> Any:
    target, value = args
    if not isinstance(target, RemoteTensor):
        return target.fill_(value.item())
    return send(plan, args, kwargs)


@_special("_local_scalar_dense")
def _value(plan: Plan, args: Any, kwargs: Any) -> Any:
    return fetch(args[0]).item()


@_special("_linalg_check_errors")
def _check_errors(plan: Plan, args: Any, kwargs: Any) -> None:
    """Whether a factorisation succeeded: programs wait for the error at its line, for which CUDA waits as well."""
    plan.func(fetch(args[0]), *args[1:], **kwargs)


@_special("is_set_to")
def _is_set_to(plan: Plan, args: Any, kwargs: Any) -> bool:
    here, there = args
    if not (isinstance(here, RemoteTensor) and isinstance(there, RemoteTensor)):
        return False
    begins = here.storage_offset() == there.storage_offset() and memory_of(here) == memory_of(there)
    return begins and here.shape == there.shape and here.stride() == there.stride()


@_special("_conj_physical")
def _conj(plan: Plan, args: Any, kwargs: Any) -> Any:
    return send(plan_of(aten.conj_physical.default), args, {})  # whole: taken apart, it would come back here


@_special("_reshape_alias")
def _reshape_alias(plan: Plan, args: Any, kwargs: Any) -> Any:
    return dispatch(aten.as_strided.default, args, {})


@_special("set_.source_Tensor")
def _set(plan: Plan, args: Any, kwargs: Any) -> Any:
    target, source = args
    if not isinstance(source, RemoteTensor):
        raise RuntimeError("set_: the source must be on the remote device too")
    if source._m is PENDING:
        materialise(source)
    other = source._m.bits ^ target._m.bits  # as for torch, the target takes the memory and keeps its bits
    if other & CONJUGATED:
        source = dispatch(aten._conj.default, (source,), {})
    if other & NEGATED:
        source = dispatch(aten._neg_view.default, (source,), {})
    refit(target, source._m, source.storage_offset(), source._h)
    return target


@_special("set_.source_Storage", "set_.source_Storage_storage_offset", "set_")
def _no_storage(plan: Plan, args: Any, kwargs: Any) -> NoReturn:
    raise OpNotAllowed("a remote tensor has no storage in this process: set_ takes another remote tensor only")


@_special("record_stream")
def _no_op(plan: Plan, args: Any, kwargs: Any) -> None:
    return None


@_special("is_pinned")
def _never(plan: Plan, args: Any, kwargs: Any) -> bool:
    return False


@_special("_pin_memory", "pin_memory")
def _same(plan: Plan, args: Any, kwargs: Any) -> Any:
    return args[0]


@_special("is_same_size")
def _is_same_size(plan: Plan, args: Any, kwargs: Any) -> bool:
    return bool(args[0].shape == args[1].shape)


@_special("_has_same_storage_numel")
def _same_numel(plan: Plan, args: Any, kwargs: Any) -> bool:
    return bool(args[0].numel() == args[1].numel())


@_special("_pack_padded_sequence")
def take_apart(plan: Plan, args: Any, kwargs: Any) -> Any:
    """Let torch do it by smaller operators: what mixes CPU tensors in, and operators that are not torch's own."""
    func = plan.func
    for key in ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional"):
        if torch._C._dispatch_has_kernel_for_dispatch_key(plan.name, key):
            return func._op_dk(getattr(torch._C.DispatchKey, key), *args, **kwargs)
    raise OpNotAllowed(
        f"{plan.name} has no kernel for a remote device and cannot be taken apart; move its tensors to the CPU for it"
    )


@_special("_to_sparse", "to_sparse", "_to_sparse_csr", "_to_sparse_csc", "_to_sparse_bsr", "_to_sparse_bsc",
          "to_mkldnn", "_sparse_mm_reduce_impl", "sparse_sampled_addmm", "sparse_resize_", "_nested_view_from_buffer",
          "quantize_per_tensor", "quantize_per_channel")  # fmt: skip
def _dense_only(plan: Plan, args: Any, kwargs: Any) -> NoReturn:
    raise OpNotAllowed(f"{plan.name} is not available: a remote device holds dense tensors only")
