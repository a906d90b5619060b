"""DEFINE: from an operator's name and argument pattern to a call that is ready to be made.

A `Prepared` kind holds the resolved kernel, its arguments with the holes' places, and from the schema: which
returns get handles, which arguments are written.  Making a call of it is a few list operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Protocol

import torch

from dgsf.errors import DgsfError, OpNotAllowed, ProtocolError, RemoteOpError
from dgsf.remoting.executor.allow import full_name, resolve
from dgsf.remoting.executor.arguments import FloatHole, ListHole, Reader, TensorHole
from dgsf.remoting.executor.default_dtype import under
from dgsf.remoting.executor.growing import may_grow
from dgsf.remoting.executor.narrow import widen
from dgsf.remoting.protocol import FLOAT32

_MANY = 4096
# Operators whose results may stand in more memory than they show: strides with gaps, parts of what was computed.  Found
# by looking at the storages that torch's own operator cases make; composite ones are taken to be such without a look.
_SHOW_LESS = frozenset((
    "aten::empty_strided", "aten::new_empty_strided", "aten::linalg_lstsq", "aten::_embedding_bag",
    "aten::_embedding_bag_forward_only", "aten::binary_cross_entropy", "aten::mse_loss", "aten::smooth_l1_loss",
    "aten::soft_margin_loss",
))  # fmt: skip
_SHOW_ALL = frozenset(("aten::linear", "aten::matmul", "aten::batch_norm"))  # composite, and called all the time
# Arguments that some operators write without their schema saying so.
_SECRETLY_WRITTEN = frozenset(("running_mean", "running_var"))


class Returns(IntEnum):
    """What comes out of an operator, most frequent first."""

    TENSOR = 0  # one new tensor
    NOTHING = 1  # nothing new: results are arguments written in place, or there are none
    MIXED = 2  # walk through the plan


class Place(IntEnum):
    """One return of an operator."""

    WRITTEN = 0  # an argument, written in place
    NEW = 1
    VALUE = 2


class Binder(Protocol):
    """How a device makes calls: gives the callable for an overload."""

    def bind(self, overload: Any, name: str) -> Callable[..., Any]: ...

    @property
    def torch_device(self) -> torch.device: ...

    @property
    def prepared(self) -> type[Prepared]: ...


class Prepared:
    """One kind of call, ready; `refusal` if it is one that this device does not do, or that lacks a tensor."""

    __slots__ = (
        "args", "definition", "fills", "grows", "invoke", "kwargs", "kwfills", "leading", "makes_memory", "name",
        "outs", "plan", "refusal", "rest", "returns", "tensors", "whole", "writes",
    )  # fmt: skip

    def __init__(self, name: str, definition: list[Any]) -> None:
        self.name = name
        self.definition = definition
        self.refusal: DgsfError | None = None
        self.invoke: Callable[..., Any] = _refused
        self.args: list[Any] = []
        self.kwargs: dict[str, Any] = {}
        self.tensors: tuple[tuple[int, int], ...] = ()  # position, which handle
        self.fills: tuple[tuple[int, Any], ...] = ()  # position, float or list hole
        self.kwfills: tuple[tuple[str, Any], ...] = ()
        self.leading = -1  # the short way: so many tensors, then `rest`; -1: there are other holes
        self.rest: list[Any] = []
        self.plan: tuple[Place, ...] = ()
        self.outs = _MANY  # handles that a call uses up, at most
        self.returns = Returns.NOTHING
        self.writes: tuple[int, ...] = ()  # which handles
        self.makes_memory = True
        self.whole = False  # results count by their storages; never together with Returns.TENSOR
        self.grows = False  # memory that it writes to

    def bound(self, device: Any) -> None:
        """For kinds of a device that wants to know itself in each call."""

    def call(self, tensors: Sequence[Any], floats: Sequence[float]) -> Any:
        """Make the call; IndexError if it has fewer tensors or floats than holes."""
        if len(tensors) == self.leading:
            return self.invoke(*tensors, *self.rest, **self.kwargs)
        args = self.args.copy()
        for position, index in self.tensors:
            args[position] = tensors[index]
        if self.fills:
            for position, hole in self.fills:
                args[position] = floats[hole.index] if type(hole) is FloatHole else hole.fill(tensors, floats)
        if not self.kwargs:
            return self.invoke(*args)
        kwargs = self.kwargs
        if self.kwfills:
            kwargs = kwargs.copy()
            for key, hole in self.kwfills:
                kwargs[key] = _value_of(hole, tensors, floats)
        return self.invoke(*args, **kwargs)


def _value_of(hole: Any, tensors: Sequence[Any], floats: Sequence[float]) -> Any:
    if type(hole) is TensorHole:
        return tensors[hole.index]
    return floats[hole.index] if type(hole) is FloatHole else hole.fill(tensors, floats)


def _refused(*_args: Any, **_kwargs: Any) -> Any:
    raise OpNotAllowed


def prepare(binder: Binder, name: Any, args: Any, kwargs: Any, default: Any = FLOAT32) -> Prepared:
    """The prepared kind; one that must not be called says so when it is called."""
    if not isinstance(name, str) or not isinstance(args, list) or not isinstance(kwargs, dict):
        raise ProtocolError("a kind is an operator's name, a list of arguments and a map of keyword arguments")
    prepared = binder.prepared(name, [name, args, kwargs, default])
    prepared.bound(binder)
    try:
        overload = resolve(name)
        _read_arguments(prepared, overload._schema, Reader(binder.torch_device), args, kwargs)
        _read_schema(prepared, overload._schema, composite=_is_composite(overload._schema))
        prepared.invoke = under(default, widen(name, binder.bind(overload, name)))
    except (OpNotAllowed, RemoteOpError) as refusal:  # well formed, but no call to make
        prepared.refusal = refusal
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ProtocolError(f"{name[:100]}: its arguments cannot be read: {error}") from error
    return prepared


def _read_arguments(prepared: Prepared, schema: Any, reader: Reader, args: list[Any], kwargs: dict[str, Any]) -> None:
    by_name = {argument.name: argument for argument in schema.arguments}
    positional = [argument for argument in schema.arguments if not argument.kwarg_only]
    if len(args) > len(positional) or not all(isinstance(key, str) and key in by_name for key in kwargs):
        raise ProtocolError(f"{prepared.name[:100]} does not take these arguments")
    prepared.args = [reader.read(value, argument) for value, argument in zip(args, positional, strict=False)]
    prepared.kwargs = {key: reader.read(value, by_name[key]) for key, value in kwargs.items()}
    for argument in schema.arguments[len(args) :]:
        if argument.name not in kwargs and reader.missing(argument):
            prepared.kwargs[argument.name] = reader.read(None, argument)
    prepared.tensors = tuple((at, hole.index) for at, hole in enumerate(prepared.args) if type(hole) is TensorHole)
    prepared.fills = tuple((at, hole) for at, hole in enumerate(prepared.args) if type(hole) in (FloatHole, ListHole))
    prepared.kwfills = tuple(
        (key, hole) for key, hole in prepared.kwargs.items() if type(hole) in (TensorHole, FloatHole, ListHole)
    )
    count = len(prepared.tensors)
    if not prepared.fills and not prepared.kwfills and prepared.tensors == tuple((at, at) for at in range(count)):
        prepared.leading, prepared.rest = count, prepared.args[count:]


def _is_composite(schema: Any) -> bool:
    """Whether it is made of other operators: then what its schema says of memory need not be so."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(full_name(schema), "CompositeImplicitAutograd"))


def _read_schema(prepared: Prepared, schema: Any, composite: bool) -> None:
    prepared.plan = tuple(_place(result) for result in schema.returns)
    lists = any("List" in str(result.type) for result in schema.returns)
    prepared.outs = _MANY if lists else sum(place is Place.NEW for place in prepared.plan)
    prepared.writes = tuple(_written(prepared, schema))
    prepared.grows = may_grow(schema)
    prepared.makes_memory = prepared.grows or _makes_memory(schema, composite)
    prepared.whole = schema.name in _SHOW_LESS or (composite and schema.name not in _SHOW_ALL)
    if prepared.plan == (Place.NEW,) and str(schema.returns[0].type) == "Tensor" and not prepared.whole:
        prepared.returns = Returns.TENSOR
    elif all(place is Place.WRITTEN for place in prepared.plan):
        prepared.returns = Returns.NOTHING
    else:
        prepared.returns = Returns.MIXED


def _place(result: Any) -> Place:
    if "Tensor" not in str(result.type):
        return Place.VALUE
    return Place.WRITTEN if result.alias_info is not None and result.alias_info.is_write else Place.NEW


def _makes_memory(schema: Any, composite: bool) -> bool:
    """Whether a call may need memory for new results; 'contiguous' says a view and may copy."""
    if not schema.returns:
        return not schema.name.startswith(("aten::_foreach_", "aten::_fused_"))  # those write where they are
    return any(_place(result) is Place.NEW and (composite or result.alias_info is None) for result in schema.returns)


def _written(prepared: Prepared, schema: Any) -> list[int]:
    """The handles that a call writes."""
    found: list[int] = []
    for position, argument in enumerate(schema.arguments):
        info = argument.alias_info
        if not (info is not None and info.is_write) and argument.name not in _SECRETLY_WRITTEN:
            continue
        given = prepared.args[position] if position < len(prepared.args) else prepared.kwargs.get(argument.name)
        found.extend(_handles_in(given))
    return found


def _handles_in(given: Any) -> list[int]:
    if type(given) is TensorHole:
        return [given.index]
    if type(given) is ListHole:
        return [index for item in given.items for index in _handles_in(item)]
    return []
