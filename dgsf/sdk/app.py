"""An app: a named set of functions, and the decorator that makes them.

app = dgsf.App("demo")

@app.function(memory="1GiB", timeout=60)
def square(x: float) -> float: ...
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, Unpack, overload

from dgsf.core.names import check_name
from dgsf.core.options import parse_options, refuse_without_fabric
from dgsf.errors import UsageError
from dgsf.sdk.function import Function, Options, default_client

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dgsf.sdk.client import Client

P = ParamSpec("P")
R = TypeVar("R")


class Decorator(Protocol):
    """What `app.function(...)` returns."""

    @overload
    def __call__(self, raw: Callable[P, Coroutine[Any, Any, R]], /) -> Function[P, Coroutine[Any, Any, R], R]: ...

    @overload
    def __call__(self, raw: Callable[P, R], /) -> Function[P, R, R]: ...


class App:
    """Functions that belong together; a function's name on the platform is `<app>.<function>`."""

    def __init__(self, name: str, *, client: Client | None = None, **options: Unpack[Options]) -> None:
        """`options` are defaults for all functions of the app; `client` is where they run."""
        parse_options(options)
        self.name = check_name(name, "app")
        self._options = options
        self._client = client
        self._functions: dict[str, Function[..., Any, Any]] = {}

    @property
    def functions(self) -> Mapping[str, Function[..., Any, Any]]:
        """The functions of this app by their names on the platform."""
        return MappingProxyType(self._functions)

    @overload
    def function(self, raw: Callable[P, Coroutine[Any, Any, R]], /) -> Function[P, Coroutine[Any, Any, R], R]: ...

    @overload
    def function(self, raw: Callable[P, R], /) -> Function[P, R, R]: ...

    @overload
    def function(self, *, name: str | None = None, **options: Unpack[Options]) -> Decorator: ...

    def function(self, raw: Callable[..., Any] | None = None, *, name: str | None = None, **options: Any) -> Any:
        """Makes a function of this app; works bare and with options, which are checked at once."""
        if raw is not None:
            return self._add(raw, name, options)
        merged = parse_options({**self._options, **options})  # complain on the decorator's line, not on the function's
        refuse_without_fabric(options, merged)
        return lambda raw: self._add(raw, name, options)

    def _add(self, raw: Callable[..., Any], name: str | None, options: dict[str, Any]) -> Function[..., Any, Any]:
        _check_function(raw)
        full = f"{self.name}.{self._short_name(raw, name)}"
        function: Function[..., Any, Any] = Function(raw, full, {**self._options, **options}, client=self._find_client)
        there = self._functions.get(full)
        if there is not None and not _same_place(there.raw, raw):
            raise UsageError(f"app {self.name!r} has a function {full!r} already; give this one another name=")
        self._functions[full] = function
        return function

    @staticmethod
    def _short_name(raw: Callable[..., Any], name: str | None) -> str:
        if name is None and raw.__name__ == "<lambda>":
            raise UsageError("a lambda has no name of its own; give it one with name=")
        return check_name(name if name is not None else raw.__name__)

    def _find_client(self) -> Client:
        return self._client or default_client()

    def __repr__(self) -> str:
        return f"<dgsf.App {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restore, (self.name, self._options))


def _restore(name: str, options: Options) -> App:
    return App(name, **options)


def _check_function(raw: object) -> None:
    if isinstance(raw, Function):
        raise UsageError(f"{raw.name} is a dgsf function already; decorate the plain function once")
    if isinstance(raw, type):
        raise UsageError(f"{raw.__qualname__} is a class; only functions can be deployed")
    if not callable(raw) or not hasattr(raw, "__qualname__"):
        raise UsageError(f"@app.function goes on a function, not on a {type(raw).__qualname__}")


def _same_place(left: Callable[..., Any], right: Callable[..., Any]) -> bool:
    """Whether one is the other defined again, as on a reload or in a notebook."""
    return (left.__module__, left.__qualname__) == (right.__module__, right.__qualname__)
