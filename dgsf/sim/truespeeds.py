"""How fast functions truly run on simulated devices: as a table of speeds says, at the level of one type.

The run times of calls are those on a T4.  A table says only how types compare for a function, so one of its types sets
the level: the one whose known speed is closest to a T4's, which is the T4 if it is in the table.  What else is in the
pool changes nothing.  Placement compares the types of its pool instead (`core.placement.speeds`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from dgsf.sim.devicetypes import STAND_IN, known
from dgsf.sim.pools import PoolSpec


def level_of(table: Collection[str], spec: PoolSpec) -> str | None:
    """The type that sets the level of these; None if nothing is known of any."""
    pool = {node.type.lower() for node in spec.nodes if node.devices}
    able = [type_ for type_ in table if known(type_) or type_.upper() in spec.own or type_.lower() in pool]

    def preference(type_: str) -> tuple[bool, float, bool, str]:
        away = abs(math.log(spec.figures(type_).speed))
        return not known(type_), away, type_.upper() != STAND_IN, type_  # figures of one pool only come last

    return min(able, key=preference, default=None)


def true_speeds(table: Mapping[str, float], spec: PoolSpec) -> dict[str, float]:
    """Types that the table has, in lower case, and how many times as fast as on a T4 the function runs there."""
    level = level_of(table, spec)
    if level is None:
        return {}
    scale = spec.figures(level).speed / table[level]
    return {type_.lower(): scale * speed for type_, speed in table.items()}
