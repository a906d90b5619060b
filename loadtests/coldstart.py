"""Cold start: the first call of a torch function that no worker has, beside a Ray actor that imports torch.

Each sample of ours is a function deployed anew under a name of its own, called when no lease is held by any
function; its time is that of the HTTP request on an open connection.  The peer's cluster runs all the time.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from dgsf.errors import DgsfError, StartError
from loadtests import machine
from loadtests.ours import BENCH, Ours, deploy, function_of, platform
from loadtests.plan import Plan
from loadtests.report import Section, at_most, compare
from loadtests.service import Service, python_module, running

_FREE_SECONDS = 60.0
Start = Callable[[], float]


def measure(plan: Plan) -> Section:
    ours_seconds: list[float] = []
    ray_seconds: list[float] = []
    section = Section("Cold start of a torch function")
    with platform("dgsf-cold", plan.folder) as ours, _ray(plan) as (ray, start_actor):
        for number in range(plan.rounds):
            ours_seconds.append(_first_call(ours, f"cold.torch{number}"))
            ray.thaw()
            machine.settle()
            ray_seconds.append(start_actor())
            ray.freeze()  # at rest it would take time from our next sample
            told = f"ours {ours_seconds[-1] * 1e3:.1f} ms  Ray {ray_seconds[-1] * 1e3:,.0f} ms"
            plan.say(f"round {number + 1}/{plan.rounds}  {told}")
    mine, theirs = _ms(ours_seconds), _ms(ray_seconds)
    section.rows = [compare("first call ÷ Ray actor with import torch", mine, theirs, at_most(1 / 30), "ms")]
    section.raw = {"ours_ms": mine, "ray_ms": theirs}
    return section


def _ms(seconds: list[float]) -> list[float]:
    return [value * 1e3 for value in seconds]


# --- ours -------------------------------------------------------------------------------------
def _first_call(ours: Ours, name: str) -> float:
    """Seconds from sending the request to having its answer; the function exists, nothing of it is warm."""
    deploy(ours, function_of(BENCH, "bench.torch_sum"), name)
    with ours.client() as client:
        until_no_leases(client.leases)
    machine.settle()
    parts = urlsplit(ours.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
    try:
        connection.request("GET", "/healthz")  # the connection is open before the clock runs
        connection.getresponse().read()
        began = time.perf_counter()
        headers = {"Content-Type": "application/json", **ours.headers}
        connection.request("POST", f"/v1/functions/{name}/invoke", b"{}", headers)
        answer = connection.getresponse()
        body = answer.read()
        took = time.perf_counter() - began
    finally:
        connection.close()
    if answer.status != 200 or float(body) != 4.0:
        raise DgsfError(f"the first call of {name} failed: {answer.status} {body[:300]!r}")
    return took


def until_no_leases(leases: Callable[[], dict[str, list[object]]]) -> None:
    """Until the worker of the sample before is given back."""
    deadline = time.monotonic() + _FREE_SECONDS
    while leases()["leases"]:
        if time.monotonic() > deadline:
            raise DgsfError(f"an idle worker was not given back within {_FREE_SECONDS:g} s")
        time.sleep(0.05)


# --- the peer ---------------------------------------------------------------------------------
@contextmanager
def _ray(plan: Plan) -> Iterator[tuple[Service, Start]]:
    """A Ray cluster of its own, asleep between samples, and the function that starts an actor in it."""
    command = python_module("loadtests.peers.ray_actor", str(plan.folder / "actor"))
    with running("ray-actor", command, plan.folder, piped=True) as service:
        _expect(service)
        service.freeze()

        def start() -> float:
            assert service.process.stdin is not None
            service.process.stdin.write("start\n")
            service.process.stdin.flush()
            return float(_expect(service))

        yield service, start


def _expect(service: Service) -> str:
    assert service.process.stdout is not None
    line = service.process.stdout.readline()
    if not line:
        raise StartError(f"the Ray peer ended; its log is {service.log}")
    return line.strip()
