"""What happens on a key that was not seen before: settle the arguments, find out what comes out, remember it.

Metadata comes from torch's own meta kernels where they can be trusted, else from the executor, which is asked
once per key (and always for operators whose results depend on values).  If inference fails, the executor has the
last word; if it fails there too, the user sees torch's own error at once.
"""

from __future__ import annotations

from typing import Any

import torch

from dgsf.errors import RemoteOpError
from dgsf.remoting.guest import dispatch, infer
from dgsf.remoting.guest.bound import bound
from dgsf.remoting.guest.encode import Encoder
from dgsf.remoting.guest.memory import check_fits
from dgsf.remoting.guest.plans import ARGUMENT, ASK, MANY, NOTHING, ONE, VIEW, Entry, Place, Plan, Spec
from dgsf.remoting.guest.results import alias, build, new_handles
from dgsf.remoting.guest.settle import run_elsewhere, settled
from dgsf.remoting.guest.subclasses import follow
from dgsf.remoting.guest.tensor import RemoteTensor, refit

_HALVES = (torch.float16, torch.bfloat16)
_PLAIN_ERRORS = (RuntimeError, IndexError, ValueError, TypeError)


def learn(plan: Plan, args: Any, kwargs: Any, key: Any, handles: list[int], floats: list[float]) -> Any:
    bound.need()
    known = plan.recall(key)
    if known is not None:
        return dispatch.finish(known, args, kwargs, handles, floats)
    elsewhere = run_elsewhere(plan, args, kwargs)
    if elsewhere is not None:
        return elsewhere()
    changed = settled(plan, args, kwargs)
    if changed is not None:
        result = dispatch.send(plan, *changed)
        follow(plan.written, args, kwargs, changed)
        return result
    if plan.dynamic or not plan.trusted or _unusual(plan, args) or _overlaps(plan, args, kwargs):
        return _ask(plan, args, kwargs, key, handles, floats)
    try:
        outcome = infer.infer(plan, args, kwargs)
    except Exception as error:
        return _second_opinion(plan, args, kwargs, key, handles, floats, error)
    _check_fit(plan, outcome)
    if outcome.refits and kwargs and _turned(args):
        return _ask(plan, args, kwargs, key, handles, floats)
    entry = _entry(plan, args, kwargs, outcome)
    _remember(plan, key, entry)
    return dispatch.finish(entry, args, kwargs, handles, floats)


def _check_fit(plan: Plan, outcome: infer.Outcome) -> None:
    """Whether the device could ever hold each new tensor: told at its line, not where its values are asked for."""
    new = [] if plan.view else [*outcome.results, *(change.spec for change in outcome.refits)]
    for result in new:
        for spec in result if isinstance(result, list) else [result]:
            if isinstance(spec, Spec):
                check_fits(spec.layout.dtype, spec.layout.size, spec.layout.stride)


def _unusual(plan: Plan, args: Any) -> bool:
    """Images in another memory order: what order comes out is the kernel's choice. So is much of half precision."""
    if plan.view:
        return False
    halves = [value for value in args if isinstance(value, RemoteTensor) and value.dtype in _HALVES]
    if halves and _by_device(plan, halves):
        return True
    return not plan.pointwise and any(
        isinstance(value, RemoteTensor) and value.dim() > 3 and not value.is_contiguous() for value in args
    )


def _by_device(plan: Plan, halves: list[RemoteTensor]) -> bool:
    """Whether devices differ in what comes out of half precision.

    The CPU keeps a layer's mean in it, others in float32; where a value is spread over a dimension, it chooses another
    memory order than they do.
    """
    if plan.name == "aten::native_layer_norm":
        return True
    makes_new = not all(isinstance(result, Place) for result in plan.returned)
    return makes_new and any(_is_spread(tensor) for tensor in halves)


def _is_spread(tensor: RemoteTensor) -> bool:
    """Whether several elements are one in memory."""
    steps = tensor.stride()
    return 0 in steps and any(size > 1 and not step for size, step in zip(tensor.shape, steps, strict=True))


def _turned(args: Any) -> bool:
    """Whether a resized `out=` may take over the memory order of an argument, which meta kernels do not tell."""
    return any(isinstance(value, RemoteTensor) and not value.is_contiguous() for value in args)


def _overlaps(plan: Plan, args: Any, kwargs: Any) -> bool:
    """Something is written to a tensor whose elements share memory: most operators refuse that, the device knows."""
    for place in plan.written:
        tensor = place.get(args, kwargs)
        if isinstance(tensor, RemoteTensor) and _is_spread(tensor):
            return True
    return False


def _second_opinion(
    plan: Plan, args: Any, kwargs: Any, key: Any, handles: list[int], floats: list[float], error: Exception
) -> Any:
    """Inference failed: perhaps it is only the meta kernel that is missing or narrower than the real one."""
    try:
        return _ask(plan, args, kwargs, key, handles, floats)
    except RemoteOpError as remote:
        if type(error) in _PLAIN_ERRORS:  # its type is right, and the device's words are the ones users know
            raise type(error)(remote.message) from None
        raise


def _entry(plan: Plan, args: Any, kwargs: dict[str, Any], outcome: infer.Outcome) -> Entry:
    results = outcome.results
    encoder = Encoder(plan.name, plan.float_lists, plan.keyed_floats)
    kind = encoder.kind(args, kwargs, new_handles(results))
    if outcome.refits:
        return Entry(kind, MANY, results=results, refits=outcome.refits)
    if not results:
        return Entry(kind, NOTHING, place=tuple(p for p in plan.written if isinstance(p.get(args, kwargs), list)))
    if len(results) == 1:
        only = results[0]
        if isinstance(only, Place):
            return Entry(kind, ARGUMENT, place=only)
        if isinstance(only, Spec) and only.view == only.shares and not only.layout.bits:  # those take the longer way
            return Entry(kind, VIEW if only.view else ONE, layout=only.layout, offset=only.offset)
    return Entry(kind, MANY, results=results)


def _remember(plan: Plan, key: Any, entry: Entry) -> None:
    if dispatch.STRANGE not in key and bound.remembers:
        plan.remember(key, entry)


def _ask(plan: Plan, args: Any, kwargs: Any, key: Any, handles: list[int], floats: list[float]) -> Any:
    """Let the executor say what comes out; remember it unless it depends on values."""
    encoder = Encoder(plan.name, plan.float_lists, plan.keyed_floats)
    kind = encoder.kind(args, kwargs, infer.tensors_returned(plan, args, kwargs))
    entry = Entry(kind, ASK, place=plan)
    if plan.dynamic:
        _remember(plan, key, entry)
        return ask_again(entry, args, kwargs, handles, floats)
    return ask_again(entry, args, kwargs, handles, floats, key)


def ask_again(entry: Entry, args: Any, kwargs: Any, handles: list[int], floats: list[float], key: Any = None) -> Any:
    """Do the call, wait for what came out, and wrap it."""
    plan, stream = entry.place, bound.need()
    written = [place.get(args, kwargs) for place in plan.written]
    written = [tensor for tensor in written if tensor is not None and not isinstance(tensor, list)]
    fresh = [alias(tensor) for tensor in written]
    for tensor, handle in zip(written, fresh, strict=True):
        handles[handles.index(tensor._h.id)] = handle.id
    first, told = stream.ask(entry.kind, handles, floats)
    results = infer.from_answer(plan, args, told)
    changed = False
    for tensor, handle in zip(written, fresh, strict=True):
        dtype, sizes, strides, offset = stream.meta(handle.id)
        layout = bound.layouts.of(dtype, sizes, strides, tensor._m.bits)
        if layout is not tensor._m or offset != tensor.storage_offset():
            refit(tensor, layout, offset, handle)
            changed = True
    if key is not None and not changed:
        learned = _entry(plan, args, kwargs, infer.Outcome(results))
        learned.kind.outs = entry.kind.outs = max(new_handles(results), 0)
        _remember(plan, key, learned)
    return build(results, args, kwargs, first)
