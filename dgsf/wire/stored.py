"""The answer of a keyed call as bytes, kept in the store with the call's outcome.

The proxy encodes a result when it commits it; a gateway renders its reply from the decoded result, so the
first answer and every later one are the same bytes.  A result over `MAX_KEPT_BYTES` is not kept: what is
kept instead is a failure that says so, since the call has run and is charged and must not run again.
"""

from __future__ import annotations

import msgspec

from dgsf.errors import Conflict, ProtocolError
from dgsf.wire.messages import Failure
from dgsf.wire.ports import CallResult, Payload

MAX_KEPT_BYTES = 1024 * 1024
_FORMAT = 1


class _Stored(msgspec.Struct, array_like=True, frozen=True):
    format: int
    state: str
    codec: int
    data: bytes | None
    failure: Failure | None
    queue_us: int
    device_us: int
    cost_nano: int
    device: str


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Stored)


def encode(result: CallResult) -> bytes:
    """What to keep of this result."""
    payload, failure = result.payload, result.failure
    if payload is not None and payload.size > MAX_KEPT_BYTES:
        failure = _too_large(payload.size)
        payload = None
    return _ENCODER.encode(
        _Stored(
            _FORMAT,
            result.state,
            0 if payload is None else payload.codec,
            None if payload is None else payload.read(),
            failure,
            result.queue_us,
            result.device_us,
            result.cost_nano,
            result.device,
        )
    )


def decode(kept: bytes) -> CallResult:
    """The result as it was; ProtocolError if these bytes are none."""
    try:
        found = _DECODER.decode(kept)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"a kept answer that cannot be read: {error}") from error
    if found.format != _FORMAT:
        raise ProtocolError(f"a kept answer of format {found.format}; this version reads format {_FORMAT}")
    payload = None if found.data is None else Payload(found.codec, found.data, "", len(found.data))
    return CallResult(
        found.state, payload, found.failure, found.queue_us, found.device_us, found.cost_nano, found.device
    )


def _too_large(size: int) -> Failure:
    return Failure(
        Conflict.code,
        f"this call has run and is charged, but its answer of {size} bytes was too large to keep: "
        f"answers of keyed calls are kept up to {MAX_KEPT_BYTES} bytes",
        {"size": size, "limit": MAX_KEPT_BYTES},
    )
