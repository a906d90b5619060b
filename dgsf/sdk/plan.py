"""Plans: what the client does, written once for blocking and for async programs.

A plan is a generator that yields effects (send this request, wait so long) and gets their results back; it
decides, and does no I/O itself.  `twin` turns a method that makes a plan into `method(...)`, which blocks,
and `method.aio(...)`, which is awaited.  Both run the same decisions, and tests run them without a network.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Request:
    """Effect: send this; the result is a Reply, or ConnectionLost is thrown into the plan."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    timeout: float = 30.0


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    """Effect: wait so many seconds."""

    seconds: float


Effect = Request | Pause
Plan = Generator[Effect, Any, R]


class Driver(Protocol):
    """Does the effects of plans, in a blocking and in an async way."""

    def perform(self, effect: Effect) -> Reply | None: ...

    async def perform_aio(self, effect: Effect) -> Reply | None: ...


class HasDriver(Protocol):
    @property
    def driver(self) -> Driver: ...


def run(plan: Plan[R], driver: Driver) -> R:
    """The plan's result; what an effect raises is thrown into the plan first."""
    try:
        effect = next(plan)
        while True:
            try:
                result = driver.perform(effect)
            except Exception as error:
                effect = plan.throw(error)
            else:
                effect = plan.send(result)
    except StopIteration as end:
        value: R = end.value
        return value


async def run_aio(plan: Plan[R], driver: Driver) -> R:
    """As `run`, awaited; cancellation closes the plan."""
    try:
        effect = next(plan)
        while True:
            try:
                result = await driver.perform_aio(effect)
            except Exception as error:
                effect = plan.throw(error)
            else:
                effect = plan.send(result)
    except StopIteration as end:
        value: R = end.value
        return value
    finally:
        plan.close()


class BoundTwin(Generic[P, R]):
    """A method with an `.aio` twin, bound to its object."""

    __slots__ = ("_make", "_owner")

    def __init__(self, owner: HasDriver, make: Callable[..., Plan[R]]) -> None:
        self._owner = owner
        self._make = make

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return run(self._make(self._owner, *args, **kwargs), self._owner.driver)

    def aio(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        return run_aio(self._make(self._owner, *args, **kwargs), self._owner.driver)


class twin(Generic[P, R]):
    """Makes of a method that returns a plan a pair: blocking, and `.aio`."""

    def __init__(self, make: Callable[Concatenate[Any, P], Plan[R]]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __get__(self, owner: Any, kind: type | None = None) -> BoundTwin[P, R]:
        return BoundTwin(owner, self._make)
