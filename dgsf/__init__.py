"""DGSF: write a Python function, put one decorator on it, and run it on a shared pool of GPUs.

These are the SDK's public names.  They are loaded when first used, so that `import dgsf` stays light: it
must not pull in ray, torch, asyncpg, httpx or numpy, neither in a user's program nor in a worker.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dgsf.core.options import FunctionOptions as FunctionOptions
    from dgsf.errors import DgsfError as DgsfError
    from dgsf.errors import Forbidden as Forbidden
    from dgsf.errors import FunctionCancelled as FunctionCancelled
    from dgsf.errors import FunctionError as FunctionError
    from dgsf.errors import FunctionFailure as FunctionFailure
    from dgsf.errors import FunctionLoadError as FunctionLoadError
    from dgsf.errors import FunctionTimeout as FunctionTimeout
    from dgsf.errors import InvalidArguments as InvalidArguments
    from dgsf.errors import InvalidOption as InvalidOption
    from dgsf.errors import NotAttached as NotAttached
    from dgsf.errors import NotFound as NotFound
    from dgsf.errors import OutcomeUnknown as OutcomeUnknown
    from dgsf.errors import OutOfMemory as OutOfMemory
    from dgsf.errors import OverloadError as OverloadError
    from dgsf.errors import PlatformError as PlatformError
    from dgsf.errors import RemoteError as RemoteError
    from dgsf.errors import RemoteOpError as RemoteOpError
    from dgsf.errors import RequestError as RequestError
    from dgsf.errors import SessionLost as SessionLost
    from dgsf.errors import Unauthenticated as Unauthenticated
    from dgsf.errors import UnknownOption as UnknownOption
    from dgsf.errors import UsageError as UsageError
    from dgsf.errors import WorkerCrashed as WorkerCrashed
    from dgsf.remoting.guest.failures import DeviceOutOfMemory as DeviceOutOfMemory
    from dgsf.remoting.guest.failures import RemoteIndexError as RemoteIndexError
    from dgsf.remoting.guest.failures import RemoteLinAlgError as RemoteLinAlgError
    from dgsf.remoting.guest.failures import RemoteNotImplementedError as RemoteNotImplementedError
    from dgsf.remoting.guest.failures import RemoteTypeError as RemoteTypeError
    from dgsf.remoting.guest.failures import RemoteValueError as RemoteValueError
    from dgsf.sdk.app import App as App
    from dgsf.sdk.attach import attach as attach
    from dgsf.sdk.client import Client as Client
    from dgsf.sdk.device import device as device
    from dgsf.sdk.function import Function as Function
    from dgsf.sdk.outcome import Outcome as Outcome

__version__ = "0.1.0"

_HOMES = {
    "App": "dgsf.sdk.app",
    "Client": "dgsf.sdk.client",
    "Function": "dgsf.sdk.function",
    "FunctionOptions": "dgsf.core.options",
    "Outcome": "dgsf.sdk.outcome",
    "attach": "dgsf.sdk.attach",
    "device": "dgsf.sdk.device",
}
_ERRORS = (
    "DgsfError",
    "Forbidden",
    "FunctionCancelled",
    "FunctionError",
    "FunctionFailure",
    "FunctionLoadError",
    "FunctionTimeout",
    "InvalidArguments",
    "InvalidOption",
    "NotAttached",
    "NotFound",
    "OutOfMemory",
    "OutcomeUnknown",
    "OverloadError",
    "PlatformError",
    "RemoteError",
    "RemoteOpError",
    "RequestError",
    "SessionLost",
    "Unauthenticated",
    "UnknownOption",
    "UsageError",
    "WorkerCrashed",
)
_HOMES.update(dict.fromkeys(_ERRORS, "dgsf.errors"))
# Errors of a remote device that are torch's, too. They need torch, so they are no part of `import *`.
_TORCHS = (
    "DeviceOutOfMemory",
    "RemoteIndexError",
    "RemoteLinAlgError",
    "RemoteNotImplementedError",
    "RemoteTypeError",
    "RemoteValueError",
)

__all__ = [
    "__version__",
    *_HOMES,
]


if not TYPE_CHECKING:  # so that type checkers refuse names that do not exist

    def __getattr__(name: str) -> Any:
        home = "dgsf.remoting.guest.failures" if name in _TORCHS else _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'dgsf' has no attribute {name!r}")
        value = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
