"""How fast a function runs on each device type: as a table says, else as its runs have shown, else as devices declare.

A table and run times tell only how types compare for one function; the level stays that of the declared speeds.  Of
types on which a function was not tried, what its tenant's other functions gained there is believed, and where none was,
the declared speed; either counts like a few runs, so that a handful of odd ones changes little.  A table is for
functions of that name, whoever has them; runs are of one tenant's functions and say nothing of another's.  Nothing here
does I/O.
"""

from __future__ import annotations

import ast
import json
import math
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from dgsf.core.placement.model import Whose
from dgsf.core.placement.pool import Floats

PRIOR = 8.0  # runs that the declared speed counts as, and what a type usually is
REMEMBERED = 64  # about so many runs of a function on a type count; for what the type usually is, the first ones
COMPARED = 512  # about so many runs say what a type usually is
FUNCTIONS = 10_000  # at most, of which runs are remembered, and tenants
SHORTEST_S = 1e-6
Table = Mapping[tuple[str, str], float]  # (function, device type): work per second


@dataclass(slots=True)
class _Mean:
    """The mean of the logarithms of speeds that were seen: of all of them, later of about the last ones."""

    count: int = 0
    log: float = 0.0

    def add(self, log: float, remembered: int) -> None:
        self.count = min(self.count + 1, remembered)
        self.log += (log - self.log) / self.count


Means = dict[str, _Mean]  # by type in lower case
Key = TypeVar("Key", Whose, str)


class Speeds:
    """What is known of speeds, and what is learned of them."""

    def __init__(self, table: Table | None = None) -> None:
        self._stated: dict[str, dict[str, float]] = {}
        for (function, type_), speed in (table or {}).items():
            self._stated.setdefault(function, {})[type_.lower()] = speed
        self._runs: OrderedDict[Whose, Means] = OrderedDict()
        self._usual: OrderedDict[str, Means] = OrderedDict()  # tenant: what types are beside one another
        self._declared: dict[str, float] = {}  # type: the logarithm of the speed that devices declare, where runs begin

    def saw(self, whose: Whose, type_: str, seconds: float) -> None:
        """A run has ended; without what it took to load and start."""
        if whose[1] in self._stated:
            return
        name, log = type_.lower(), -math.log(max(seconds, SHORTEST_S))
        runs, usual = _lately(self._runs, whose), _lately(self._usual, whose[0])
        for known in (name, *runs):
            mean = usual.setdefault(known, _Mean())
            if not mean.count:  # not compared yet
                mean.log = self._declared.get(known, 0.0)
        own = runs.setdefault(name, _Mean())
        if len(runs) > 1 and own.count < REMEMBERED:
            usual[name].add(log - _level(runs, usual), COMPARED)
        own.add(log, REMEMBERED)

    def tells(self, whose: Whose) -> bool:
        """Whether more may be known of the function than devices declare: one type alone compares with nothing."""
        if len(self._stated.get(whose[1]) or self._runs.get(whose) or ()) > 1:
            return True
        return any(mean.count for mean in self._usual.get(whose[0], {}).values())

    def stated(self, function: str) -> Mapping[str, float]:
        """What the table says of it, by type in lower case."""
        return self._stated.get(function, {})

    def of(self, whose: Whose, types: Sequence[str], declared: Floats) -> Floats:
        """Its speed on devices of these types, at the level of the speeds that they declare."""
        names = [type_.lower() for type_ in types]
        stated = self._stated.get(whose[1])
        if stated is not None:
            found = {place: (math.log(stated[name]), 1.0) for place, name in enumerate(names) if name in stated}
            return _levelled(found, declared, 0.0)
        self._declared.update((name, math.log(speed)) for name, speed in zip(names, declared, strict=True) if speed > 0)
        usual = _levelled(_found(self._usual.get(whose[0], {}), names), declared, PRIOR)
        return _levelled(_found(self._runs.get(whose, {}), names), usual, PRIOR)


def _lately(kept: OrderedDict[Key, Means], key: Key) -> Means:
    """Its means, which are now the last to be forgotten."""
    means = kept.setdefault(key, {})
    kept.move_to_end(key)
    if len(kept) > FUNCTIONS:
        kept.popitem(last=False)
    return means


def _level(runs: Means, usual: Means) -> float:
    """How fast the function is on a usual type, by its runs so far."""
    total = sum(mean.count * (mean.log - usual[name].log) for name, mean in runs.items())
    return total / sum(mean.count for mean in runs.values())


def _found(means: Means, names: Sequence[str]) -> dict[int, tuple[float, float]]:
    """Logarithms of speeds and their weights, by the place of their type among these."""
    return {place: (means[name].log, float(means[name].count)) for place, name in enumerate(names) if name in means}


def _levelled(found: Mapping[int, tuple[float, float]], declared: Floats, prior: float) -> Floats:
    """Declared speeds, changed by what was found: logarithms of speeds and their weights, by place."""
    speeds = declared.astype(np.float64)
    compared = {place: each for place, each in found.items() if declared[place] > 0}
    weight = sum(count for _, count in compared.values())
    if not weight:
        return speeds
    level = sum(count * (log - math.log(declared[place])) for place, (log, count) in compared.items()) / weight
    for place, (log, count) in compared.items():
        speeds[place] = math.exp((count * (log - level) + prior * math.log(declared[place])) / (count + prior))
    return speeds


def parse_speeds(text: str) -> dict[tuple[str, str], float]:
    """A table as JSON: function -> type -> speed, or Gavel's type -> "('model', devices)" -> {"null": speed alone}.

    Of Gavel's, the rows for one device count, and a speed of 0 means that it does not run there.  What is wrong is a
    ValueError that says where.
    """
    try:
        table = json.loads(text, object_pairs_hook=_Object)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}, column {error.colno}: {error.msg}") from error
    if not isinstance(table, _Object):
        raise ValueError("expected an object: function -> device type -> speed")
    _refuse_twice("the table", table)
    speeds: dict[tuple[str, str], float] = {}
    for outer, rows in table.items():
        if not isinstance(rows, _Object):
            raise ValueError(f"'{outer}': expected an object: device type -> speed")
        _refuse_twice(f"'{outer}'", rows)
        for inner, value in rows.items():
            if isinstance(value, dict) or inner.startswith("("):
                _enter_gavel(outer, inner, value, speeds)
            else:
                speeds[outer, inner] = _speed(value, f"function '{outer}', device type '{inner}'", 1e-12)
    _refuse_types_alike(speeds)
    return speeds


class _Object(dict[str, object]):
    """An object of JSON that knows if a name is in it twice: the last one would count without a word."""

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        super().__init__(pairs)
        counts = Counter(name for name, _ in pairs)
        self.twice = next((name for name, count in counts.items() if count > 1), None)


def _refuse_twice(where: str, found: _Object) -> None:
    if found.twice is not None:
        raise ValueError(f"{where}: has '{found.twice}' twice; say once what it is")


def _refuse_types_alike(speeds: Table) -> None:
    """Names of device types are the same in any case of letters."""
    seen: dict[tuple[str, str], str] = {}
    for function, type_ in speeds:
        before = seen.setdefault((function, type_.lower()), type_)
        if before != type_:
            raise ValueError(f"function '{function}': device types '{before}' and '{type_}' are the same; say it once")


def _enter_gavel(type_: str, key: str, row: object, speeds: dict[tuple[str, str], float]) -> None:
    where = f"table '{type_}', row {key!r}"
    try:
        model, devices = ast.literal_eval(key)
        alone = row["null"] if isinstance(row, dict) else None
    except (ValueError, SyntaxError, TypeError, KeyError) as error:
        raise ValueError(f"{where}: expected a model and its speed alone") from error
    if isinstance(row, _Object):
        _refuse_twice(where, row)
    speed = _speed(alone, f"{where}: expected a model and its speed alone", 0.0)
    if devices == 1 and speed:
        speeds[str(model), type_] = speed


def _speed(value: object, where: str, least: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < math.inf:
        raise ValueError(f"{where}: {value!r} is no speed; write a number above 0")
    return float(value)
