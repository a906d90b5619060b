"""Who may have a device whose values are dummies: to a program it is as fast as a real one, and every result is zero.

Nobody gets such a device who did not ask for it.  To placement it is of a kind of its own, so only the name of its
type finds it: "any" stands for the kinds of devices that compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from dgsf.core.devices import DUMMY, HOST, KINDS

if TYPE_CHECKING:  # the SDK reads options without placement
    from dgsf.core.placement import DeviceView

ANY: Final = "any"
EVERY = "|".join(KINDS)  # what computes


def spelled_out(types: Sequence[str]) -> tuple[str, ...]:
    """Acceptable types, with every kind of device that computes instead of 'any'."""
    return tuple("|".join(EVERY if name.lower() == ANY else name for name in each.split("|")) for each in types)


def in_words(types: Sequence[str]) -> str:
    """Acceptable types as they were asked for."""
    return " or ".join(each.replace(EVERY, ANY) for each in types)


def said_of_dummies(reason: str, types: Sequence[str], pool: Sequence[DeviceView]) -> str:
    """Why no device of this pool can ever hold a request; clearer if that is because none of them computes."""
    dummies = sorted({device.type for device in pool if device.kind == DUMMY})
    others = any(device.kind not in (DUMMY, HOST) for device in pool)
    if not dummies or others or not any(EVERY in each for each in types):
        return reason
    return f"no device computes (values=dummy: all results are zero); ask for one by its type: gpu={dummies[0]!r}"
