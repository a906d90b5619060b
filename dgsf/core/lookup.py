"""Names as people write them at a terminal: the whole, the last part, or a beginning that fits only one."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from heapq import nlargest
from itertools import pairwise

from dgsf.errors import NotFound

MOST_SHOWN = 50
_LIKELY = 10


def find_named(wanted: str, names: Sequence[str], what: str, where: str) -> str:
    """The one of these names that is meant; NotFound suggests the nearest, or tells which ones it could be."""
    if wanted in names:
        return wanted
    fitting = [name for name in names if wanted and name.rpartition("/")[2] == wanted]
    fitting = fitting or [name for name in names if wanted and _begins(name, wanted)]
    if len(fitting) == 1:
        return fitting[0]
    shown = repr(wanted[:200])
    if fitting:
        raise NotFound(f"{shown} fits more than one {what}: {_listed(sorted(fitting))}; write more of it")
    close = nearest(wanted, names)
    raise NotFound(f"there is no {what} {shown}; " + (f"did you mean {close!r}?" if close else f"see '{where}'"))


def nearest(wanted: str, names: Sequence[str]) -> str | None:
    """The name that was probably meant; only those that share most with it are compared at length, which is slow."""
    wanted = wanted[:200]
    pairs = set(pairwise(wanted))
    likely = nlargest(_LIKELY, names, key=lambda name: len(pairs.intersection(pairwise(name))))
    return next(iter(difflib.get_close_matches(wanted, likely, n=1)), None)


def _begins(name: str, wanted: str) -> bool:
    """The whole name, or its last part."""
    return name.startswith(wanted) or name.rpartition("/")[2].startswith(wanted)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_SHOWN
    return ", ".join(names[:MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")
