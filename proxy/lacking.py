"""Says what a call or a session waits for when the pool cannot give it now, and what can be done.

One wording for workers and sessions, so that whoever waited in vain learns the same thing.  Pure: it looks at one
`Outlook`; how long to wait, and which error it becomes, is for others to decide.
"""

from __future__ import annotations

from collections.abc import Iterator

from dgsf.core.devices import HOST
from dgsf.core.genuine import in_words
from dgsf.core.placement import DeviceView, Request, has_slot, preference
from dgsf.core.shortage import none_takes_work
from dgsf.core.sizes import describe_bytes
from proxy.placing import Outlook

BY_WISH = frozenset({"draining", "quarantined", "spare"})  # it does not come back by itself


def takes_work(request: Request, outlook: Outlook) -> bool:
    """Whether a device of an acceptable type is healthy, be it full."""
    return any(view.healthy for view in _of_type(request, outlook))


def withheld(request: Request, outlook: Outlook) -> bool:
    """Whether every device that would do was taken out of use: to wait for them is of no use."""
    states = {outlook.rows[view.id].state for view in _of_type(request, outlook)}
    return bool(states) and states <= BY_WISH


def what_lacks(request: Request, outlook: Outlook, only: str = "") -> str:
    """Why there is nothing for it now; `only`: the one device that would do."""
    wanted = only or ("function host" if request.types == (HOST,) else f"device ({in_words(request.types)})")
    fitting = list(_of_type(request, outlook))
    if not fitting:
        return f"the pool has no {wanted}; see 'dgsf devices'"
    healthy = [view for view in fitting if view.healthy]
    if not healthy:
        return none_takes_work(wanted, (outlook.rows[view.id].state for view in fitting))
    return _what_is_full(request, healthy, wanted)


def _what_is_full(request: Request, healthy: list[DeviceView], wanted: str) -> str:
    free = sum(max(0, view.free_slots) for view in healthy)
    if not free:
        taken = sum(view.slots for view in healthy)
        return f"all {taken} slots of {wanted} are taken; see 'dgsf leases', or try again later"
    if request.cpu_milli and any(has_slot(request, view) for view in healthy):
        processors = f"{request.cpu_milli / 1000:g} processors"
        return f"{free} slots of {wanted} are free, but not {processors} beside them; lower cpu=, or try again later"
    most, asked = describe_bytes(max(view.free_memory for view in healthy)), describe_bytes(request.memory_bytes)
    beside = f"at most {most} beside them, and {asked} are asked for"
    return f"{free} slots of {wanted} are free, but {beside}; see 'dgsf leases', lower memory=, or try again later"


def _of_type(request: Request, outlook: Outlook) -> Iterator[DeviceView]:
    return (view for view in outlook.candidates if preference(request, view) is not None)
