"""What guest, proxy and executor say to each other about a session, beside its commands.

A session is a program's attachment to a remote device.  SESSION frames are between the guest and its
proxy; COMMAND and ANSWER frames pass through the proxy unread; USAGE frames end at the proxy.  A session
has generations: each `Began` starts one, on a device, with command numbers from 1.  When a device is lost
the proxy says `Lost`, drops what still comes for that generation, and waits for the next `Begin`.

The header's `stream` of a USAGE frame is the number of the last command frame that is done, so that the proxy
knows which of the time belongs to a replay.

A live move is between the proxy and two executors; the guest's commands wait meanwhile.  The proxy sends the old
executor an empty STATE frame.  In its turn, behind all commands before it, that answers with a last USAGE and its
whole state in STATE frames, all but the last with FLAG_MORE, and does nothing more.  If it is in the middle of a
transfer, or waits for content, it answers one empty STATE frame instead, "not now", and goes on as before.  The new
executor gets the state as its first frames, answers one empty STATE frame when it has become that state, and takes
the next command number after it.  Its USAGE counts from its own start.  STATE frames have the stream number 0.
"""

from __future__ import annotations

import struct

from dgsf.wire.messages import Failure, Message, reader


class Begin(Message, tag="begin", tag_field="word"):
    """Guest: give me a device. The first of a session, and again after `Lost`."""

    dialect: str  # what the commands are in: "torch"
    generation: int = 1  # the one that is asked for


class Began(Message, tag="began", tag_field="word"):
    """Proxy: here it is."""

    session: bytes  # the session's id, a uuid
    generation: int
    device: str  # its name, as in `dgsf devices`
    kind: str
    type: str
    memory_bytes: int


class Lost(Message, tag="lost", tag_field="word"):
    """Proxy: this generation's device is gone. Resumable: `Begin` again and replay."""

    generation: int
    failure: Failure
    resumable: bool = True


class Replayed(Message, tag="replayed", tag_field="word"):
    """Guest: what I sent so far in this generation was a replay of what a lost device had done already."""

    generation: int


class End(Message, tag="end", tag_field="word"):
    """Guest: I am done with the session."""


class Ended(Message, tag="ended", tag_field="word"):
    """Proxy: the session is closed, for this reason; nothing more will come."""

    failure: Failure | None = None


GuestMessage = Begin | Replayed | End
ProxyMessage = Began | Lost | Ended
read_from_guest = reader(GuestMessage)
read_from_proxy = reader(ProxyMessage)

_USAGE = struct.Struct("<QQIQ")
USAGE_BYTES = _USAGE.size


class Usage(tuple[int, int, int, int]):
    """Of one executor since its start: device time in µs, memory in bytes, live handles, and its device time when
    the last checkpoint was taken that it has sent in whole (0: none).
    """

    __slots__ = ()

    @property
    def device_us(self) -> int:
        return self[0]

    @property
    def memory_bytes(self) -> int:
        return self[1]

    @property
    def handles(self) -> int:
        return self[2]

    @property
    def covered_us(self) -> int:
        return self[3]


def encode_usage(device_us: int, memory_bytes: int, handles: int, covered_us: int = 0) -> bytes:
    return _USAGE.pack(device_us, memory_bytes, handles, covered_us)


def decode_usage(body: bytes) -> Usage:
    return Usage(_USAGE.unpack(body))
