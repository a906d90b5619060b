"""The hot path: from one operation on remote tensors to one call on the stream.

A call's key is made of its tensors' layouts and its plain values; floats are left out and travel with each call.
A known key needs no thinking: send the handles, wrap what comes out.  Everything unusual (an unknown key, memory
not asked for yet, a CPU tensor among the arguments) leaves for `learn`, which ends here again or does the call.
"""

from __future__ import annotations

from typing import Any

import torch

from dgsf.remoting.guest import tensor as tensors
from dgsf.remoting.guest.bound import bound
from dgsf.remoting.guest.plans import ARGUMENT, NOTHING, ONE, VIEW, Entry, Plan, plan_of
from dgsf.remoting.guest.tensor import Handle, RemoteTensor

_make = torch.Tensor._make_wrapper_subclass
_strided = torch.strided
_in_inference = torch.is_inference_mode_enabled
_raise_versions = torch._C._increment_version
_NoneType = type(None)


class _Mark:
    """Stands in a key for a value that must not equal a number."""

    __slots__ = ()


FLOAT, TRUE, FALSE, STRANGE = _Mark(), _Mark(), _Mark(), _Mark()


def dispatch(func: Any, args: Any, kwargs: Any) -> Any:
    """Do one operation; what torch calls for every operator on a remote tensor."""
    try:
        plan = func._dgsf_plan
    except AttributeError:
        plan = plan_of(func)
    if plan.view and _in_inference() and not args[0].is_inference():
        # A view of an ordinary tensor is one, too: torch ties their versions, which inference tensors have not.
        with torch.inference_mode(False), torch.no_grad():
            return _do(plan, args, kwargs)
    return _do(plan, args, kwargs)


def _do(plan: Plan, args: Any, kwargs: Any) -> Any:
    if plan.special is not None:
        return plan.special(plan, args, kwargs)
    return send(plan, args, kwargs)


def send(plan: Plan, args: Any, kwargs: Any) -> Any:
    """Do one operation by its plan, without looking for special ones."""
    key: list[Any] = []
    handles: list[int] = []
    floats: list[float] = []
    values = args
    if kwargs:
        key.append(tuple(kwargs))
        values = (*args, *kwargs.values())
    for value in values:
        kind = type(value)
        if kind is RemoteTensor:
            key.append(value._m)
            handles.append(value._h.id)
        elif kind is int or kind is _NoneType:
            key.append(value)
        elif kind is float:
            key.append(FLOAT)
            floats.append(value)
        elif kind is list:
            _list(value, key, handles, floats, plan)
        else:
            _other(value, key)
    if plan.keyed_floats:
        key.extend(floats)
        floats = []
    entry = plan.cache.get(tuple(key))
    if entry is None:
        return _learn(plan, args, kwargs, tuple(key), handles, floats)
    return finish(entry, args, kwargs, handles, floats)


def finish(entry: Entry, args: Any, kwargs: Any, handles: list[int], floats: list[float]) -> Any:
    """Send a call whose results are known, and wrap them."""
    how = entry.how
    if how == ONE:
        layout = entry.layout
        new = _make(
            RemoteTensor, layout.size, layout.stride, entry.offset, None, layout.dtype, _strided, tensors.DEVICE
        )
        new._h = Handle(bound.call(entry.kind, handles, floats), bound.stream.free)  # type: ignore[union-attr]
        new._m = layout
        return new
    if how == ARGUMENT:
        bound.call(entry.kind, handles, floats)
        return entry.place.get(args, kwargs)
    if how == VIEW:
        return _view(entry, args, handles, floats)
    if how == NOTHING:
        if not _in_inference():  # for lists, torch leaves that to their kernel
            for place in entry.place:
                _raise_versions(place.get(args, kwargs))
        bound.call(entry.kind, handles, floats)
        return None
    return _many(entry, args, kwargs, handles, floats)


def _view(entry: Entry, args: Any, handles: list[int], floats: list[float]) -> Any:
    base, layout = args[0], entry.layout
    offset = base.storage_offset()
    if base.dtype is not layout.dtype:
        offset = offset * base.dtype.itemsize // layout.dtype.itemsize
    new = _make(
        RemoteTensor, layout.size, layout.stride, offset + entry.offset, None, layout.dtype, _strided, tensors.DEVICE
    )
    root = base._h.root or base._h.origin(base._m)
    new._h = Handle(bound.call(entry.kind, handles, floats), bound.stream.free, root)  # type: ignore[union-attr]
    new._m = layout
    return new


def _list(value: list[Any], key: list[Any], handles: list[int], floats: list[float], plan: Plan) -> None:
    """The part of a key that a list of tensors, numbers or optional tensors makes."""
    if not value:
        key.append(())
        return
    kind = type(value[0])
    if kind is RemoteTensor:
        try:
            key.append(tuple([item._m for item in value]))
            handles.extend([item._h.id for item in value])
            return
        except AttributeError:
            pass  # not all of them are
    elif kind is int and not plan.float_lists:
        key.append(tuple(value))
        return
    key.append(len(value))
    for item in value:
        _item(item, key, handles, floats, plan)


def _item(item: Any, key: list[Any], handles: list[int], floats: list[float], plan: Plan) -> None:
    kind = type(item)
    if kind is RemoteTensor:
        key.append(item._m)
        handles.append(item._h.id)
    elif kind is float and plan.float_lists:
        key.append(FLOAT)
        floats.append(item)
    elif kind is float:
        key.append(FLOAT)
        key.append(item)
    elif kind is int or item is None:
        key.append(item)
    else:
        _other(item, key)


def _other(value: Any, key: list[Any]) -> None:
    kind = type(value)
    if kind is bool:
        key.append(TRUE if value else FALSE)
    elif kind in _PLAIN:
        key.append(value)
    elif kind is complex:
        key.append((STRANGE, str(value)))
    else:
        key.append(STRANGE)  # in no key that is kept


_PLAIN = frozenset((str, torch.dtype, torch.device, torch.layout, torch.memory_format))


def _many(entry: Entry, args: Any, kwargs: Any, handles: list[int], floats: list[float]) -> Any:
    from dgsf.remoting.guest import results

    return results.many(entry, args, kwargs, handles, floats)


def _learn(plan: Plan, args: Any, kwargs: Any, key: Any, handles: list[int], floats: list[float]) -> Any:
    from dgsf.remoting.guest import learn

    return learn.learn(plan, args, kwargs, key, handles, floats)


tensors.set_dispatch(dispatch)
