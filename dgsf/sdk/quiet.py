"""A context manager whose errors on entering show the program's own frames, and none of ours.

Python adds a line to a traceback for each of its functions that an error leaves.  So the last step is left to functions
written in C: `map` asks a generator, which does the work and yields what came of it as something to call, and calls
that.  What raises then is `throw` of a generator that has ended.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from dgsf.errors import DgsfError

T = TypeVar("T")


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


class _Quiet(map):  # type: ignore[type-arg]  # not generic when it runs
    """Enters another context manager, once."""

    _inner: AbstractContextManager[Any]

    __enter__ = map.__next__

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._inner.__exit__(kind, error, trace)


def quiet(inner: AbstractContextManager[T]) -> AbstractContextManager[T]:
    """The same, but that errors of ours, and Ctrl-C, on entering leave no frames of ours."""
    made = _Quiet(operator.call, _entering(inner))
    made._inner = inner
    return made
