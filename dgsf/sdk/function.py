"""A function with a remote side: calling it runs it here, `.remote` runs it on the platform.

A Function pickles small: by reference where its module can be imported, else by its name, its options and
the user's function.  It never carries a client, a connection or a key.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import json
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypedDict, TypeVar, Unpack

from dgsf.core.names import check_name
from dgsf.core.options import FunctionOptions, parse_options, refuse_without_fabric
from dgsf.errors import DgsfError, NotFound, UsageError
from dgsf.sdk.failures import user_frames
from dgsf.sdk.place import in_worker
from dgsf.sdk.plan import Driver, Plan, run, run_aio, twin
from dgsf.sdk.profiles import with_profile

if TYPE_CHECKING:
    from dgsf.sdk.bundle import Bundle
    from dgsf.sdk.client import Client

P = ParamSpec("P")
L = TypeVar("L", covariant=True)  # what a local call gives: for an async function, a coroutine
R = TypeVar("R", covariant=True)  # what a remote call gives
ANSWER_SECONDS = 90.0  # beyond the run itself: waiting for a device, and the way


class Options(TypedDict, total=False):
    """The options of a function, for type checkers; `dgsf.core.options` says what they mean."""

    gpu: str | Sequence[str]
    memory: str | int
    cpu: float
    timeout: float
    retries: int
    attach: Literal["near", "fabric", "auto"]
    network: bool
    max_workers: int
    idle_seconds: float | None
    gpu_memory: str | int | None
    device_alias: Literal["", "cuda"]
    profile: Sequence[Sequence[float]]


class Remote(Generic[P, R]):
    """The remote side of a function: call it and wait, or await `.aio`."""

    __slots__ = ("_function",)

    def __init__(self, function: Function[P, Any, R]) -> None:
        self._function = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs the function on the platform and returns its result."""
        try:
            result: R = run(self._function.remote_plan(args, kwargs), self._function.driver)
        except Exception as error:
            raise _without_our_frames(error)  # noqa: B904 - it is the same exception
        return result

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """As a call, awaited."""
        try:
            result: R = await run_aio(self._function.remote_plan(args, kwargs), self._function.driver)
        except Exception as error:
            raise _without_our_frames(error)  # noqa: B904 - it is the same exception
        return result


class Function(Generic[P, L, R]):
    """A user's function under a name on the platform, with its options."""

    __wrapped__: Callable[..., Any]

    def __init__(
        self,
        raw: Callable[P, L],
        name: str,
        options: Mapping[str, Any],
        *,
        client: Callable[[], Client] | None = None,
        origin: Function[P, L, R] | None = None,
    ) -> None:
        self._fill(raw, check_name(name), dict(options), client, origin)

    def _fill(
        self,
        raw: Callable[P, L],
        name: str,
        given: dict[str, Any],
        client: Callable[[], Client] | None = None,
        origin: Function[P, L, R] | None = None,
    ) -> None:
        self.raw = raw
        self.name = name
        self.given = given
        self.options: FunctionOptions = parse_options(with_profile(given, raw))
        self._find_client = client
        self._origin = origin
        self._bundle: Bundle | None = None
        functools.update_wrapper(self, raw)

    # --- running it -----------------------------------------------------------------------------
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> L:
        return self.raw(*args, **kwargs)

    def local(self, *args: P.args, **kwargs: P.kwargs) -> L:
        """Runs the function here, as a plain call does."""
        return self.raw(*args, **kwargs)

    @property
    def remote(self) -> Remote[P, R]:
        """The remote side: `f.remote(x)`, `await f.remote.aio(x)`."""
        return Remote(self)

    def with_options(self, **options: Unpack[Options]) -> Function[P, L, R]:
        """The same function with other options; on the platform it has a name of its own."""
        given = {**self.given, **options}
        changed = parse_options(with_profile(given, self.raw))
        refuse_without_fabric(options, changed)
        base = self._origin or self
        if changed == base.options:
            return base
        mark = hashlib.sha256(json.dumps(changed.given(), sort_keys=True).encode()).hexdigest()[:8]
        return Function(self.raw, f"{base.name}--{mark}", given, client=self._find_client, origin=base)

    @twin
    def deploy(self) -> Plan[dict[str, Any]]:
        """Deploys the function as it now is, as a new version."""
        return (yield from self.client.deploy_plan(self.name, self.raw, self.options, self.bundle()))

    # --- parts ----------------------------------------------------------------------------------
    @property
    def client(self) -> Client:
        """The client that remote calls go through."""
        if in_worker():
            raise UsageError(f"{self.name}: a function that runs on the platform cannot call .remote yet")
        return self._find_client() if self._find_client is not None else default_client()

    @property
    def driver(self) -> Driver:
        return self.client.driver

    def bundle(self) -> Bundle:
        """The packed function; packed once, since its code does not change in a process."""
        if self._bundle is None:
            from dgsf.sdk.bundle import pack

            self._bundle = pack(self._origin or self, self.raw)
        return self._bundle

    def remote_plan(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Plan[Any]:
        """The plan of a remote call; a call that cannot be is refused before anything else is looked at."""
        self._check_call(args, kwargs)
        return self._deploy_and_call(args, kwargs)

    def _deploy_and_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Plan[Any]:
        """Deploys if needed, calls, and does both once more if the function was deleted meanwhile."""
        client, headers, wait = self.client, self._call_headers(), self._longest_wait()
        yield from client.ensure_plan(self.name, self.raw, self.options, self.bundle())
        for last in (False, True):
            try:
                plan = client.call_plan(self.name, args, kwargs, headers=headers, patience=self._patience(), wait=wait)
                return (yield from plan).value
            except NotFound:
                if last:
                    raise
                yield from client.ensure_plan(self.name, self.raw, self.options, self.bundle(), afresh=True)
        raise AssertionError("unreachable")

    def _check_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        inspect.signature(self.raw).bind(*args, **kwargs)  # the TypeError that a plain call would raise

    def _call_headers(self) -> dict[str, str]:
        return {"Idempotency-Key": str(uuid.uuid4())} if self.options.retries else {}

    def _patience(self) -> Any:
        from dgsf.sdk.retry import Patience

        return Patience(self.options.timeout if self.options.retries else 0.0)

    def _longest_wait(self) -> float:
        return self.options.timeout * (self.options.retries + 1) + ANSWER_SECONDS

    def __repr__(self) -> str:
        return f"<dgsf.Function {self.name}>"

    def __get__(self, owner: object, kind: type | None = None) -> Function[P, L, R]:
        if owner is not None:
            raise UsageError(f"{self.name} is a method; only plain functions can be deployed, not methods")
        return self

    # --- pickling -------------------------------------------------------------------------------
    def __reduce__(self) -> tuple[Any, ...]:
        if self._origin is not None:
            return (_variant_of, (self._origin, self.given))
        place = _place_of(self)
        if place is not None:
            return (_at_place, place)
        # Made empty first and filled after, because the user's function may well refer to this object.
        return (_empty, (), {"raw": self.raw, "name": self.name, "given": self.given})

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._fill(state["raw"], state["name"], state["given"])


def _place_of(function: Function[..., Any, Any]) -> tuple[str, str] | None:
    """Module and name under which an import elsewhere would find this very object."""
    module, qualname = function.raw.__module__, function.raw.__qualname__
    if module in ("__main__", "__mp_main__") or "<" in qualname:
        return None
    from dgsf.sdk.bundle import can_be_imported

    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return (module, qualname) if found is function and can_be_imported(module) else None


def _at_place(module: str, qualname: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def _variant_of(origin: Function[P, L, R], given: dict[str, Any]) -> Function[P, L, R]:
    return origin.with_options(**given)


def _empty() -> Function[..., Any, Any]:
    return Function.__new__(Function)


def _without_our_frames(error: Exception) -> Exception:
    """The same exception, without the SDK's inner frames between the user's line and the remote frames."""
    rest = user_frames(error.__traceback__)
    if rest is None and not isinstance(error, DgsfError):
        return error  # a fault of the SDK itself: every frame counts
    return error.with_traceback(rest)


@functools.cache
def default_client() -> Client:
    """The client of this program, from its settings; made when first needed."""
    from dgsf.sdk.client import Client

    return Client()
