"""What a function's own error does not say: which of its options it ran into."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

_UNREACHED = (errno.EACCES, errno.ENETUNREACH)
_MOST = 50  # errors that are looked at behind one
NETWORK = "a function has no network unless its options say network=True"


def network_hint(error: BaseException) -> str:
    """What to say if this is, or came from, a connection that a worker without the network could not make."""
    return NETWORK if any(_is_unreached(each) for each in _behind(error)) else ""


def _is_unreached(error: BaseException) -> bool:
    """A refused file names itself, a refused connection does not."""
    if isinstance(error, socket.gaierror):
        return True
    return isinstance(error, OSError) and error.errno in _UNREACHED and error.filename is None


def _behind(error: BaseException) -> Iterator[BaseException]:
    """The error, its causes, and those that libraries keep as a reason or an argument."""
    waiting: list[object] = [error]
    seen: set[int] = set()
    while waiting and len(seen) < _MOST:
        each = waiting.pop()
        if not isinstance(each, BaseException) or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [each.__cause__, each.__context__, getattr(each, "reason", None), *each.args]
