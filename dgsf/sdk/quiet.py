"""A context manager whose errors on entering show the program's own frames, and none of ours.

Python adds a line to a traceback for each of its functions that an error leaves.  So the last step is left to functions
written in C: `map` asks a generator, which does the work and yields what came of it as something to call, and calls
that.  What raises then is `throw` of a generator that has ended.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial, wraps
from itertools import chain
from types import TracebackType
from typing import Any, ParamSpec, Protocol, TypeVar

from dgsf.errors import DgsfError, UsageError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Quiet(Protocol[T_co]):
    """A context manager for one `with`, and a decorator whose function enters a new one at each call."""

    def __enter__(self) -> T_co: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None: ...

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]: ...


def _nothing() -> Iterator[None]:
    yield from ()


_OVER: Any = _nothing()
list(_OVER)


def _entering(inner: AbstractContextManager[T]) -> Iterator[Callable[[], T]]:
    try:
        value = inner.__enter__()
    except (DgsfError, KeyboardInterrupt) as error:  # its text, or Ctrl-C itself, says it all
        error.__cause__ = error.__context__ = None
        yield partial(_OVER.throw, error.with_traceback(None))
        return
    yield lambda: value


def _refusing() -> Iterator[Callable[[], Any]]:
    """Whatever comes after the first time."""
    while True:
        yield partial(_OVER.throw, UsageError("this context was entered before: make a new one for each 'with'"))


class _Quiet(map):  # type: ignore[type-arg]  # not generic when it runs
    """Enters another context manager, once; as a decorator, one of its own for each call."""

    _inner: AbstractContextManager[Any]
    _make: Callable[[], AbstractContextManager[Any]]

    __enter__ = map.__next__

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._inner.__exit__(kind, error, trace)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def within(*args: P.args, **kwargs: P.kwargs) -> R:
            with quiet(self._make):
                return function(*args, **kwargs)

        return within


def quiet(make: Callable[[], AbstractContextManager[T]]) -> Quiet[T]:
    """What `make` gives, but that errors of ours, and Ctrl-C, on entering leave no frames of ours."""
    inner = make()
    made = _Quiet(operator.call, chain(_entering(inner), _refusing()))
    made._inner, made._make = inner, make
    return made
