"""From bytes to a call and back: how a worker reads arguments, runs the function and writes its result.

This runs inside the sandbox, beside user code.  Nothing here touches a socket.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Coroutine
from typing import Any

import cloudpickle
import msgspec

from dgsf.core.sizes import describe_bytes
from dgsf.errors import DgsfError, FunctionError, OutOfMemory, ResultNotJson, ResultNotSendable, ResultTooLarge
from dgsf.fabric.hints import network_hint
from dgsf.sdk.failures import describe
from dgsf.sdk.pickles import dumps
from dgsf.wire.messages import Codec, Failure, clip_failure

_decode_json = msgspec.json.Decoder().decode
_encode_json = msgspec.json.Encoder().encode


class UserRaised(Exception):
    """Holds a platform error that the user's own code raised, apart from those raised around the call."""

    def __init__(self, error: DgsfError) -> None:
        self.error = error
        super().__init__(error)


Arguments = tuple[tuple[Any, ...], dict[str, Any]]
ToItsEnd = Callable[[Coroutine[Any, Any, Any]], Any]  # runs a coroutine


def read_arguments(codec: int, data: bytes) -> Arguments:
    """Positional and keyword arguments out of a payload."""
    if codec == Codec.json:
        value = _decode_json(data) if data else {}
        return ((), value) if isinstance(value, dict) else (tuple(value), {})
    if codec == Codec.pickle:
        args, kwargs = cloudpickle.loads(data)
        return args, kwargs
    return ((data,), {}) if codec == Codec.raw else ((), {})


def caller_of(function: Callable[..., Any], run: ToItsEnd | None = None) -> Callable[..., Any]:
    """A plain callable: coroutines are run to their end (`run`; else in a loop that stays), generators become lists."""
    if inspect.iscoroutinefunction(function):
        finish = run or asyncio.new_event_loop().run_until_complete
        return lambda *args, **kwargs: finish(function(*args, **kwargs))
    if inspect.isasyncgenfunction(function):
        finish = run or asyncio.new_event_loop().run_until_complete

        async def collect(*args: Any, **kwargs: Any) -> list[Any]:
            return [item async for item in function(*args, **kwargs)]

        return lambda *args, **kwargs: finish(collect(*args, **kwargs))
    if inspect.isgeneratorfunction(function):
        return lambda *args, **kwargs: list(function(*args, **kwargs))
    return function


def run_function(function: Callable[..., Any], codec: int, data: bytes) -> Any:
    """Call the function with the arguments of this payload; both steps run the user's code."""
    try:
        args, kwargs = read_arguments(codec, data)
        return function(*args, **kwargs)
    except DgsfError as error:
        raise UserRaised(error) from None


def write_result(value: Any, reply: int, limit: int) -> tuple[int, bytes]:
    """The codec and bytes of a result: bytes as they are, else JSON or pickle as the caller asked."""
    if reply == Codec.pickle:
        codec, data = Codec.pickle, _to_pickle(value)
    elif isinstance(value, bytes | bytearray | memoryview):
        codec, data = Codec.raw, bytes(value)
    else:
        codec, data = Codec.json, _to_json(value)
    if len(data) > limit:
        raise ResultTooLarge(
            f"the result of {describe_bytes(len(data))} is over the limit of {describe_bytes(limit)}; the platform's "
            "setting DGSF_MAX_RESULT_BYTES says so",
            size=len(data),
            limit=limit,
        )
    return codec, data


def _to_pickle(value: Any) -> bytes:
    try:
        data = dumps(value)
    except DgsfError as error:  # out of the user's own __reduce__
        raise UserRaised(error) from None
    except MemoryError:
        raise
    except Exception as error:
        what = f"the function's result, {a_type(value)}, cannot be sent"
        raise ResultNotSendable(f"{what}: {type(error).__name__}: {error}; return what pickle can carry") from error
    return data


def _to_json(value: Any) -> bytes:
    try:
        data = _encode_json(value)
        if b"null" in data:  # msgspec writes NaN and infinities as null: look again before believing it
            json.dumps(msgspec.to_builtins(value), allow_nan=False)
    except DgsfError as error:
        raise UserRaised(error) from None
    except (TypeError, ValueError, RecursionError, OverflowError, UnicodeError) as error:
        raise ResultNotJson(
            f"the function's result, {a_type(value)}, cannot be written as JSON: {error}; {_JSON_HINT}"
        ) from error
    return data


def a_type(value: Any) -> str:
    """A value's type, in words: "a Tensor", "an array"."""
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


_JSON_HINT = "return plain dicts, lists, strings, finite numbers, booleans or None (arrays: .tolist()), or bytes"


def failure_of(error: BaseException, output: str = "", *, network: bool = True) -> Failure:
    """What a call's failure looks like on the wire; only the platform's own errors keep their code."""
    if isinstance(error, UserRaised):
        return _described(error.error, output, network)
    if isinstance(error, DgsfError):
        return clip_failure(Failure.of(error))
    if isinstance(error, MemoryError):
        message = "the function asked for more memory than it has; raise memory= in its options"
        return clip_failure(Failure(OutOfMemory.code, message, _printed(output)))
    return _described(error, output, network)


def _described(error: BaseException, output: str, network: bool) -> Failure:
    hint = "" if network else network_hint(error)
    if hint:
        error.add_note(hint)
    info = describe(error)
    details: dict[str, Any] = {"error": info, **_printed(output)}
    message = f"{info['type']}: {info['message']}"[:2000] + (f"; {hint}" if hint else "")
    return clip_failure(Failure(FunctionError.code, message, details))


def _printed(output: str) -> dict[str, Any]:
    return {"output": output} if output else {}
