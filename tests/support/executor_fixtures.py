"""Executors for tests: one process that forks them, and guests on their sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from executor_guest import TestGuest

from dgsf.remoting.executor.local import LocalExecutors, LocalSpec

Connect = Callable[..., TestGuest]


@pytest.fixture(scope="module")
def executors() -> Iterator[LocalExecutors]:
    with LocalExecutors() as running:
        yield running


@pytest.fixture
def connect(executors: LocalExecutors) -> Iterator[Connect]:
    guests: list[TestGuest] = []

    def one(**spec: object) -> TestGuest:
        options = {"threads": 1, **spec.pop("device_options", {})}
        guests.append(TestGuest(executors.connect(LocalSpec(device_options=options, **spec))))
        return guests[-1]

    yield one
    for guest in guests:
        guest.sock.close()


@pytest.fixture
def guest(connect: Connect) -> TestGuest:
    return connect()
