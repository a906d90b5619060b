"""A plan per operator overload: what its schema says, looked up once.

Plans hang on torch's own overload objects, so that the hot path finds one by an attribute.  Each has its own
cache from a call's key (layouts and plain values) to the entry that says what to send and what comes out; another
one for each default dtype, under which equal calls make other tensors.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import torch

from dgsf.remoting.guest.encode import default_code
from dgsf.remoting.guest.kinds import Kind
from dgsf.remoting.guest.layout import Layout

# How an entry's results are made.
ONE, VIEW, ARGUMENT, NOTHING, MANY, ASK = range(6)

CACHE_LIMIT = 20_000  # entries of one operator, in two generations


@dataclass(slots=True, frozen=True)
class Spec:
    """A new tensor among the results: its layout, and its offset (for a view: from where its base begins)."""

    layout: Layout
    offset: int = 0
    view: bool = False
    shares: bool = False  # the memory of the first argument; all views do, also one that names its place itself


@dataclass(slots=True, frozen=True)
class Value:
    """A result that is no tensor."""

    value: Any


@dataclass(slots=True, frozen=True)
class Place:
    """An argument's place: positional, or by name if it was given so."""

    index: int
    name: str

    def get(self, args: Any, kwargs: Any) -> Any:
        return args[self.index] if self.index < len(args) else kwargs.get(self.name)


@dataclass(slots=True, frozen=True)
class Refit:
    """A written argument whose metadata the call changes: which, and to what."""

    place: Place
    spec: Spec


@dataclass(slots=True)
class Entry:
    """What is known about all calls of one key."""

    kind: Kind
    how: int
    layout: Any = None  # ONE, VIEW: of the result
    offset: int = 0
    place: Any = None  # ARGUMENT: which one is returned; NOTHING: the lists that are written
    results: Any = None  # MANY: Spec, Value, Place, None and lists of them
    refits: tuple[Refit, ...] = ()


Cache = dict[Any, Entry]


@dataclass(slots=True)
class Plan:
    """One operator overload."""

    func: Any
    name: str
    view: bool
    dynamic: bool  # what comes out, or whether, depends on values: always ask
    written: tuple[Place, ...]
    returned: tuple[Any, ...]  # per result: the Place of the written argument, or the type of a new one
    takes_device: bool
    pointwise: bool
    keyed_floats: bool
    float_lists: bool
    special: Any = None
    trusted: bool = True  # false: the executor is asked for the metadata of every new key
    caches: defaultdict[int, Cache] = field(default_factory=lambda: defaultdict(dict))  # by default dtype
    cache: Cache = field(default_factory=dict)  # that of the present one
    older: dict[int, Cache] = field(default_factory=dict)  # by default dtype: what was known when a cache was full

    def remember(self, key: Any, entry: Entry) -> None:
        """From now on; when half of the room is used, whatever was not asked for since the last time is forgotten."""
        default = entry.kind.default
        cache = self.caches[default]
        if len(cache) >= CACHE_LIMIT // 2:
            self.older[default] = cache.copy()
            cache.clear()
        cache[key] = entry

    def recall(self, key: Any) -> Entry | None:
        """What is not in the present cache but was known before; it is in the present one from now on."""
        entry = self.older[default].pop(key, None) if self.older and (default := default_code()) in self.older else None
        if entry is not None:
            self.remember(key, entry)
        return entry


def _arguments_written(schema: Any) -> dict[str, Place]:
    found = {}
    for index, argument in enumerate(schema.arguments):
        alias = argument.alias_info
        if alias is not None and alias.is_write:
            place = Place(1000 if argument.kwarg_only else index, argument.name)
            for name in alias.before_set or (argument.name,):  # of a list none is told
                found[name] = place
    return found


def _returned(result: Any, written: dict[str, Place]) -> Any:
    alias = result.alias_info
    if alias is not None and alias.is_write:
        return next((written[name] for name in alias.before_set if name in written), str(result.type))
    return str(result.type)


def make_plan(func: Any) -> Plan:
    schema = func._schema
    written = _arguments_written(schema)
    bare = schema.name.removeprefix("aten::")
    tags = func.tags
    special = _special(func, schema)
    return Plan(
        func=func,
        name=func.name(),
        view=(bool(func.is_view) or bare in EXTRA_VIEWS) and special is not _take_apart,
        dynamic=bare in FALLIBLE or (bool(_BY_VALUES.intersection(tags)) and bare not in FORETOLD),
        written=tuple(dict.fromkeys(written.values())),
        returned=tuple(_returned(result, written) for result in schema.returns),
        takes_device=any(argument.name == "device" for argument in schema.arguments),
        pointwise=torch.Tag.pointwise in tags,
        keyed_floats=bare in ("arange", "range"),
        float_lists=bare.startswith("_foreach"),
        special=special,
        trusted=not _distrusted(func.name(), bare),
    )


_BY_VALUES = frozenset({torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output})
FORETOLD = frozenset({"one_hot"})  # sent only when the number of classes is known, and with it the result's sizes
EXTRA_VIEWS = frozenset({"_unsafe_view", "_reshape_alias"})
# What fails on matrices of some values and says so at once on CUDA, too: programs catch that where they call.
FALLIBLE = frozenset({
    "cholesky", "cholesky_inverse", "linalg_cholesky", "linalg_eig", "linalg_eigvals", "_linalg_eigvals",
    "_linalg_eigh", "_linalg_svd", "linalg_inv", "inverse", "linalg_pinv", "linalg_solve", "linalg_lu_factor",
    "linalg_ldl_factor",
})  # fmt: skip
SPECIALS: dict[str, Any] = {}  # operators that are not simply sent, by name with or without overload
DISTRUSTED: set[str] = set()  # operators whose metadata cannot be inferred here, by bare name or with overload


def _special(func: Any, schema: Any) -> Any:
    if func.namespace != "aten":
        return SPECIALS["aten::_pack_padded_sequence"]  # it is not torch's own: taken apart
    found = SPECIALS.get(func.name()) or SPECIALS.get(schema.name)
    return found or (_take_apart if _is_composite(func.name()) else None)


def _is_composite(name: str) -> bool:
    """Whether torch takes it apart before it gets here, which it does not do in inference mode."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    whole = has_kernel(name, "PrivateUse1") or has_kernel(name, "AutogradPrivateUse1")  # one of our own
    return bool(has_kernel(name, "CompositeImplicitAutograd") and not whole)


def _take_apart(plan: Plan, args: Any, kwargs: Any) -> Any:
    return plan.func.decompose(*args, **kwargs)


def _distrusted(name: str, bare: str) -> bool:
    return name in DISTRUSTED or bare in DISTRUSTED


def plan_of(func: Any) -> Plan:
    try:
        return func._dgsf_plan  # type: ignore[no-any-return]
    except AttributeError:
        plan = make_plan(func)
        plan.cache = plan.caches[default_code()]
        _plans.append(plan)
        func._dgsf_plan = plan
        return plan


_plans: list[Plan] = []


def forget() -> None:
    """Empty the caches: their layouts and kinds belong to a session that has ended."""
    for plan in _plans:
        plan.caches.clear()
        plan.older.clear()
    follow_default()


def follow_default() -> None:
    """The default dtype may be another one now."""
    default = default_code()
    for plan in _plans:
        plan.cache = plan.caches[default]
