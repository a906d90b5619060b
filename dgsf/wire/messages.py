"""Messages: the typed heads inside frames, encoded as MessagePack arrays.

A body that carries a payload is the head's length (u32), the head, then the payload's bytes.  Heads
are decoded strictly: a wrong type or a missing field is a ProtocolError, never a surprise later.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, TypeVar

import msgspec

from dgsf.errors import DgsfError, ProtocolError, by_code

_LENGTH = struct.Struct("<I")
_ENCODER = msgspec.msgpack.Encoder()
T = TypeVar("T")
MAX_MESSAGE_BYTES = 4 * 1024
MAX_DETAILS_BYTES = 256 * 1024
_SHORT_BYTES = 8 * 1024


class Codec(IntEnum):
    """How to read a payload."""

    none = 0
    json = 1
    pickle = 2
    raw = 3


class Carrier(IntEnum):
    """Where a payload's bytes are."""

    inline = 0
    shared = 1  # a file in shared memory, by name
    chunks = 2  # in ITEM frames that follow


class Message(msgspec.Struct, array_like=True, gc=False):
    """Base of all heads."""


class Ref(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A payload: its codec, its carrier, its size and, in shared memory, its name."""

    codec: int = 0
    carrier: int = 0
    size: int = 0
    name: str = ""


NO_PAYLOAD = Ref()


class Failure(msgspec.Struct, array_like=True, frozen=True):
    """Why a call did not succeed, as data: the code of dgsf.errors, a message, and JSON-able details."""

    code: str
    message: str
    details: dict[str, Any] = {}

    @classmethod
    def of(cls, error: DgsfError) -> Failure:
        return cls(error.code, error.message, error.details)

    def error(self) -> DgsfError:
        return by_code(self.code)(self.message, **self.details)


# --- proxy and worker -------------------------------------------------------------------------
class Load(Message):
    """The function that this worker will run, and the limits of its results."""

    version_id: int
    code: Ref
    inline_bytes: int
    max_result_bytes: int
    device_alias: str = ""  # on a function host: what else the remote device is called


class Loaded(Message):
    failure: Failure | None = None


class Run(Message):
    """One call for a worker; `epoch` is the lease's, a worker refuses a lower one than it has seen."""

    call: bytes
    attempt: int
    epoch: int
    reply: int
    payload: Ref


class RunEnd(Message):
    """How it ended; `run_us` is the worker's own clock, a hint for splitting, never the bill."""

    run_us: int
    payload: Ref = NO_PAYLOAD
    failure: Failure | None = None


# --- gateway and proxy ------------------------------------------------------------------------
class Invoke(Message):
    call: bytes
    tenant_id: int
    version_id: int
    attempt: int
    reply: int
    payload: Ref
    start_us: int
    timeout_us: int
    priority: int
    keep: bool


class InvokeEnd(Message):
    state: str
    queue_us: int
    device_us: int
    cost_nano: int
    device: str
    payload: Ref = NO_PAYLOAD
    failure: Failure | None = None


class Credit(Message):
    """So many more bytes may be sent on this stream."""

    size: int


# --- anyone and a device server ---------------------------------------------------------------
class Attach(Message):
    """Give this connection a worker: under this lease, for this function."""

    holder: str
    slot: int
    epoch: int
    incarnation: int
    tenant_id: int
    version_id: int
    memory_bytes: int
    network: bool = False
    role: str = "function"  # or "session": execute a guest's device commands
    session_bytes: int = 0  # of a function on a host: memory on the device that its session will have


class Join(Message):
    """Give this connection to a worker that runs already, as the guest's end of its session; answered by ATTACHED."""

    worker_id: int
    epoch: int
    incarnation: int


class Attached(Message):
    worker_id: int = 0
    pid: int = 0
    shared_dir: str = ""
    failure: Failure | None = None


class Watch(Message, tag="watch"):
    """Request: send this connection the exit notices of this holder's workers."""

    holder: str


class Interrupt(Message, tag="interrupt"):
    """Request: stop this call in that worker; kill the worker if it has not stopped after the grace."""

    worker_id: int
    call: bytes
    reason: str
    grace_ms: int


class Kill(Message, tag="kill"):
    """Request: kill the worker; the reply comes when it is reaped."""

    worker_id: int
    reason: str


class Reap(Message, tag="reap"):
    """Request: kill whatever runs in this slot under this epoch or a lower one; refuse those from now on."""

    slot: int
    epoch: int


class Status(Message, tag="status"):
    """Request: how are you? The heartbeat."""


class Done(Message, tag="done"):
    ok: bool = True
    failure: Failure | None = None


class Health(Message, tag="health"):
    incarnation: int
    ready: bool
    workers: int
    memory_used: int
    detail: str = ""


class WorkerExit(Message, tag="exit"):
    """Notice: a worker is gone and reaped. `cause`: exited (by itself) or killed (by us, for `reason`)."""

    worker_id: int
    slot: int
    epoch: int
    cause: str
    reason: str = ""
    exit_code: int = 0
    signal: int = 0


ControlRequest = Watch | Interrupt | Kill | Reap | Status
ControlReply = Done | Health


# --- failures within bounds -------------------------------------------------------------------
def clip_failure(failure: Failure) -> Failure:
    """The same failure, small enough for any frame; what it carries was written by a user's function."""
    code, message = _clip(failure.code, 64), _clip(failure.message, MAX_MESSAGE_BYTES)
    return Failure(code, message, _clip_details(failure.details))


def _clip_details(details: dict[str, Any]) -> dict[str, Any]:
    """All of them if they fit; else without the pickled exception, with short texts, or none."""
    if _fits(details):
        return details
    bare = _without_pickle(details)
    if _fits(bare):
        return bare
    short = _shortened(bare)
    return short if _fits(short) else {}


def _fits(details: dict[str, Any]) -> bool:
    try:
        return len(_ENCODER.encode(details)) <= MAX_DETAILS_BYTES
    except (TypeError, ValueError, OverflowError, RecursionError):  # such as text that UTF-8 cannot say
        return False


def _without_pickle(details: dict[str, Any]) -> dict[str, Any]:
    error = details.get("error")
    return {**details, "error": {**error, "pickle": None}} if isinstance(error, dict) else details


def _shortened(value: Any, depth: int = 4) -> Any:
    if isinstance(value, str):
        return _clip(value, _SHORT_BYTES)
    if depth and isinstance(value, dict):
        return {key: _shortened(item, depth - 1) for key, item in value.items()}
    if depth and isinstance(value, list):
        return [_shortened(item, depth - 1) for item in value[:10]]
    return value


def _clip(text: str, limit: int) -> str:
    """Both ends of a text; what UTF-8 cannot say is written as an escape."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) > limit:
        half = (limit - 5) // 2
        data = data[:half] + b" ... " + data[-half:]
    return data.decode("utf-8", "ignore")


def encode(message: msgspec.Struct) -> bytes:
    return _ENCODER.encode(message)


class Reader(msgspec.Struct, frozen=True):
    """Decodes one type of message, strictly."""

    decoder: Any

    def __call__(self, body: bytes) -> Any:
        try:
            return self.decoder.decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ProtocolError(f"not a valid message: {error}") from error


def reader(kind: Any) -> Reader:
    """A strict decoder for this message type or union of types."""
    return Reader(msgspec.msgpack.Decoder(kind))


def join(head: msgspec.Struct, payload: bytes = b"") -> bytes:
    """A body of head and payload."""
    encoded = _ENCODER.encode(head)
    return b"".join((_LENGTH.pack(len(encoded)), encoded, payload))


def split(body: bytes, read: Reader) -> tuple[Any, bytes]:
    """The head and the payload of a body."""
    if len(body) < 4:
        raise ProtocolError("a body without a head")
    (length,) = _LENGTH.unpack_from(body)
    if 4 + length > len(body):
        raise ProtocolError("a head that is longer than its body")
    return read(body[4 : 4 + length]), body[4 + length :]
