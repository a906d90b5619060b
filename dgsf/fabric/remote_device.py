"""The remote device of a worker on a function host: its session, bound to torch as "dgsf".

It is there before the function is loaded and lives as long as the worker, so weights stay on the device
between calls.  The session itself begins with the first device operation.  Runs inside the sandbox; the
socket that it is given is all that it has.
"""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from typing import TYPE_CHECKING, Any

from dgsf.core.devices import HOST
from dgsf.fabric import handover
from dgsf.fabric.sandbox.limits import Allowance
from dgsf.fabric.spec import WorkerSpec

if TYPE_CHECKING:
    from dgsf.remoting.guest.kinds import Stream

MODES_OPTION = "remoting"


class RemoteDevice:
    """What a worker does for its session around the calls."""

    def __init__(self, sock: socket.socket, alias: str, modes: str, allowance: Allowance) -> None:
        from dgsf.core.checkpointing import OVERHEAD_BYTES, CheckpointPolicy
        from dgsf.remoting.guest.attach import bind  # torch is loaded only where it is used
        from dgsf.remoting.guest.bound import bound
        from dgsf.remoting.guest.lazy import LazyStream
        from dgsf.remoting.guest.modes import parse_modes
        from dgsf.remoting.guest.room import CountedRoom, room_of_process
        from dgsf.remoting.guest.session_stream import SessionStream

        chosen = parse_modes(modes)
        room = CountedRoom(allowance.most, allowance.change) if allowance.most else room_of_process()
        held: list[bool] = []

        def begin(freed: deque[int]) -> Stream:
            if not held:  # once, however often opening is tried
                held.append(room.hold(OVERHEAD_BYTES))
            return SessionStream(sock, chosen, CheckpointPolicy(), freed=freed, room=room)

        self._stream = LazyStream(begin, chosen)
        self._binding: contextlib.AbstractContextManager[Any] = bind(self._stream, alias)
        self._binding.__enter__()  # for good: it ends with the process
        bound.standing = True

    def finish_call(self) -> None:
        """Everything that the call has asked for is done, and billed to it; raises what went wrong there."""
        self._stream.sync()


def remote_device(control: socket.socket, spec: WorkerSpec, alias: str) -> RemoteDevice | None:
    """The session's device of a worker on a function host; None for one beside its device."""
    if spec.device_kind != HOST:
        return None
    modes = str(spec.device_options.get(MODES_OPTION, "full"))
    return RemoteDevice(handover.receive(control), alias, modes, Allowance())
