"""How arguments and results travel between the SDK and a worker: cloudpickle, opaque to everyone between.

The gateway never opens these bytes.  A client opens only results of functions of its own tenant.
"""

from __future__ import annotations

import json
from typing import Any

from dgsf.errors import DgsfError, UsageError
from dgsf.sdk.pickles import dumps
from dgsf.sdk.plan import Reply

PICKLE = "application/vnd.dgsf.pickle"
FUNCTION = "application/vnd.dgsf.function"
JSON = "application/json"
BYTES = "application/octet-stream"


def dump_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """The bytes of a call's arguments."""
    try:
        data = dumps((args, kwargs))
    except Exception as error:
        raise UsageError(f"an argument cannot be sent: {_culprit(args, kwargs) or error}") from error
    return data


def _culprit(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Which argument it is that cannot be pickled, for the message."""
    named = [*((f"number {index + 1}", value) for index, value in enumerate(args)), *kwargs.items()]
    for name, value in named:
        try:
            dumps(value)
        except Exception as error:
            return f"argument {name} of type {type(value).__qualname__}: {error}"
    return ""


def load_result(reply: Reply) -> Any:
    """The value of a successful answer, by its content type."""
    kind = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == PICKLE:
        return _unpickle(reply.body)
    if kind == JSON:
        return json.loads(reply.body) if reply.body else None
    return reply.body


def _unpickle(data: bytes) -> Any:
    import cloudpickle

    try:
        return cloudpickle.loads(data)
    except Exception as error:
        raise DgsfError(
            f"the function's result cannot be opened in this program: {type(error).__name__}: {error}; "
            "is a package that it needs missing here?"
        ) from error
