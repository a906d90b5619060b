"""The contenders of the echo: servers that run and take the same request.

A peer sleeps (all its processes stopped) while another is measured: Ray Serve at rest takes a seventh of a
core, and any process that wakes up costs a commit its place on the processor.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dgsf.errors import StartError
from loadtests import machine
from loadtests.ours import Ours
from loadtests.service import Service, free_port, post, python_module, running
from loadtests.wrk import Target

BODY = b'{"x": 1}'
_JSON = {"Content-Type": "application/json"}
_START_SECONDS = 90.0
_WAKE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Contender:
    """Who is measured; `service` is what sleeps in between (None: it stays awake)."""

    target: Target
    service: Service | None = None

    @property
    def name(self) -> str:
        return self.target.name

    @contextmanager
    def awake(self) -> Iterator[float]:
        """Up and at rest; yields the share of the machine that was busy just before."""
        if self.service is not None:
            self.service.thaw()
            self.service.wait_until(lambda: _same(self.target, 10.0), _WAKE_SECONDS)
        try:
            yield machine.settle()
        finally:
            if self.service is not None:
                self.service.freeze()


def our_echo(ours: Ours) -> Contender:
    return Contender(Target(ours.name, ours.invoke_url("demo.echo"), {**_JSON, **ours.headers}, BODY))


@contextmanager
def aiohttp_server(folder: Path) -> Iterator[tuple[str, Service]]:
    """Plain aiohttp; yields its address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with running("aiohttp", python_module("loadtests.peers.aiohttp_echo", str(port)), folder) as service:
        service.wait_until(lambda: _same(Target("aiohttp", f"{url}/echo", _JSON, BODY)), _START_SECONDS)
        yield url, service


@contextmanager
def aiohttp_echo(folder: Path) -> Iterator[Contender]:
    with aiohttp_server(folder) as (url, service):
        yield Contender(Target("aiohttp", f"{url}/echo", _JSON, BODY), service)


@contextmanager
def mosec_echo(folder: Path) -> Iterator[Contender]:
    port = free_port()
    flags = ["--address", "127.0.0.1", "--port", str(port), "--path", str(folder / "mosec"), "--log-level", "error"]
    target = Target("mosec", f"http://127.0.0.1:{port}/inference", _JSON, BODY)
    with running("mosec", python_module("loadtests.peers.mosec_echo", *flags), folder) as service:
        service.wait_until(lambda: _same(target), _START_SECONDS)
        yield Contender(target, service)


@contextmanager
def rayserve_echo(folder: Path) -> Iterator[Contender]:
    port = free_port()
    target = Target("rayserve", f"http://127.0.0.1:{port}/echo", _JSON, BODY)
    command = python_module("loadtests.peers.rayserve_echo", str(port), str(folder / "serve"))
    with running("rayserve", command, folder) as service:
        service.wait_until(lambda: _same(target), _START_SECONDS)
        yield Contender(target, service)


def _same(target: Target, timeout: float = 60.0) -> bool:
    """Whether it answers the request with its body."""
    status, body = post(target.url, target.whole_body, target.headers, timeout)
    if status != 200:
        return False
    if target.headers["Content-Type"] == _JSON["Content-Type"]:
        return bool(json.loads(body) == json.loads(target.whole_body))
    return body == target.whole_body


def check_answer(target: Target, patience: float = 30.0) -> None:
    """One request by hand: a contender that answers something else is not measured."""
    deadline = time.monotonic() + patience
    while not _same(target):
        if time.monotonic() > deadline:
            status, body = post(target.url, target.whole_body, target.headers)
            raise StartError(f"{target.name} does not echo: status {status}, {body[:300]!r}")
        time.sleep(0.2)
