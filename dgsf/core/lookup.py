"""Names as people write them at a terminal: the whole, the last part, or a beginning that fits only one."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from dgsf.errors import NotFound


def find_named(wanted: str, names: Sequence[str], what: str, where: str) -> str:
    """The one of these names that is meant; NotFound suggests the nearest, or tells which ones it could be."""
    if wanted in names:
        return wanted
    fitting = [name for name in names if wanted and name.rpartition("/")[2] == wanted]
    fitting = fitting or [name for name in names if wanted and name.startswith(wanted)]
    if len(fitting) == 1:
        return fitting[0]
    shown = repr(wanted[:200])
    if fitting:
        some = ", ".join(sorted(fitting)[:5]) + (", ..." if len(fitting) > 5 else "")
        raise NotFound(f"{shown} fits more than one {what}: {some}; write more of it")
    close = difflib.get_close_matches(wanted[:200], names, n=1)
    raise NotFound(f"there is no {what} {shown}; " + (f"did you mean {close[0]!r}?" if close else f"see '{where}'"))
