"""From the fork to user code: what happens in a new worker before its entry function is called.

The worker confines itself, tells the device server that it is ready, and waits for the word to go: only
then is the connection its own, so nothing it sends can come before the server's own answer on it.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from dgsf.errors import DgsfError, StartError
from dgsf.fabric.devices import setup_worker
from dgsf.fabric.sandbox import libc
from dgsf.fabric.sandbox.confine import Sandbox, Stopwatch, confine, keep_only
from dgsf.fabric.sandbox.features import Features
from dgsf.fabric.spec import GO, Prepared, WorkerSpec
from dgsf.wire.messages import Failure, encode

Entry = Callable[[socket.socket, socket.socket, WorkerSpec], NoReturn]
_EXIT_UNPREPARED = 71


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a fork came from, and when it was asked for."""

    parent: int
    began_ns: int


def run_worker(entry: Entry, sandbox: Sandbox, spec: WorkerSpec, descriptors: list[int], origin: Origin) -> NoReturn:
    """Never returns: the zygote's own code above must not go on in a child."""
    try:
        control, connection = (socket.socket(fileno=descriptor) for descriptor in descriptors)
        prepared = _prepare(sandbox, spec, descriptors, origin)
        control.send(encode(prepared))
        if prepared.failure is None and control.recv(len(GO)) == GO:
            entry(control, connection, spec)
    finally:
        os._exit(_EXIT_UNPREPARED)


def _prepare(sandbox: Sandbox, spec: WorkerSpec, descriptors: list[int], origin: Origin) -> Prepared:
    features, watch = Features(), Stopwatch()
    watch.steps["fork"] = (time.perf_counter_ns() - origin.began_ns) // 1000
    try:
        _be_a_process_of_its_own(descriptors, origin)
        features.note("own pid namespace", os.getpid() == 1, "" if os.getpid() == 1 else "other processes can be seen")
        watch.lap("descriptors")
        confine(sandbox, spec, features, watch)
        reseed()
        setup_worker(spec)
        watch.lap("setup")
    except Exception as error:
        told = error if isinstance(error, DgsfError) else StartError(f"the worker cannot start: {error!r}")
        return Prepared(Failure.of(told), tuple(features.found))
    return Prepared(None, tuple(features.found), tuple(watch.steps.items()))


def _be_a_process_of_its_own(descriptors: list[int], origin: Origin) -> None:
    libc.die_with_parent(signal.SIGKILL)
    if os.getppid() not in (0, origin.parent):  # it died before it could take us along; 0: it is in another namespace
        os._exit(_EXIT_UNPREPARED)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    keep_only(descriptors)
    os.setsid()


def reseed() -> None:
    """Every child has its own random numbers; a fork would otherwise repeat its siblings'."""
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(int.from_bytes(os.urandom(4), "little"))
    if "torch" in sys.modules:  # the CPU's; a GPU's is seeded when the device is set up
        sys.modules["torch"].default_generator.manual_seed(int.from_bytes(os.urandom(7), "little"))
