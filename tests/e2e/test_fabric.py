"""Functions over the fabric on a whole running platform: by HTTP and by the SDK, in good and in bad times."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import uuid

import httpx
import pytest

import dgsf
from dgsf.errors import DoesNotFit
from functions.workloads import face_identification, kmeans

pytestmark = pytest.mark.timeout(300)
DEADLINE = 120.0


@pytest.fixture(scope="module")
def http(platform):
    headers = {"Authorization": f"Bearer {platform.api_key}"}
    with httpx.Client(base_url=platform.url, headers=headers, timeout=DEADLINE) as client:
        yield client


@pytest.fixture(scope="module")
def client(platform):
    with dgsf.Client(platform.url, platform.api_key) as made:
        yield made


@pytest.fixture(scope="module")
def app(client):
    return dgsf.App(f"fabric-{uuid.uuid4().hex[:8]}", client=client, attach="fabric", timeout=60)


def wait_until(true):
    """Wait for a state, not for a time."""
    deadline = time.monotonic() + DEADLINE
    while not (found := true()):
        assert time.monotonic() < deadline, "the state waited for did not come"
        time.sleep(0.02)
    return found


def deployed(function):
    function.deploy()
    return function.name


def test_function_hosts_are_shown_apart_from_devices(http):
    told = wait_until(lambda: found if (found := http.get("/v1/devices").json())["hosts"] else None)
    assert [row["kind"] for row in told["devices"]] == ["cpu"]
    assert [row["kind"] for row in told["hosts"]] == ["host"] and told["hosts"][0]["price_nano_per_us"] == 0


def _warm(x: float) -> dict[str, object]:
    import torch

    kept = globals().setdefault("_kept", [])
    if not kept:
        kept.append(torch.eye(64).to("dgsf"))
    kept.append(None)
    return {"value": (kept[0] * x).sum().item(), "calls": len(kept) - 1, "cpus": torch.cuda.is_available()}


def test_by_http_a_call_tells_its_remote_device_and_is_billed_by_what_that_did(app, http):
    name = deployed(app.function(name="warm", max_workers=1)(_warm))
    first = http.post(f"/v1/functions/{name}/invoke", json={"x": 2.0})
    assert first.status_code == 200, first.text
    assert first.json() == {"value": 128.0, "calls": 1, "cpus": False}
    assert first.headers["X-Device"] == http.get("/v1/devices").json()["devices"][0]["name"]
    device_us = int(first.headers["X-Device-Us"])
    assert device_us > 0 and int(first.headers["X-Cost-Nano"]) == device_us
    second = http.post(f"/v1/functions/{name}/invoke", json={"x": 3.0})
    assert second.json()["calls"] == 2, "what is on the device stays there between calls"
    used = [row for row in http.get("/v1/usage").json()["usage"] if row["function_name"] == name]
    assert used[0]["device_us"] == device_us + int(second.headers["X-Device-Us"])


def test_a_workload_gives_the_same_near_and_over_the_fabric(app, client):
    near = dgsf.App(f"near-{uuid.uuid4().hex[:8]}", client=client)
    for module, arguments in ((kmeans, (500, 4, 4, 5, 1)), (face_identification, (2, 8, 0.2, 0))):
        fabric = app.function(name=module.__name__.rpartition(".")[2])(module.fabric.raw)
        beside = near.function(name=module.__name__.rpartition(".")[2])(module.near.raw)
        assert json.dumps(fabric.remote(*arguments)) == json.dumps(beside.remote(*arguments))


def _untouched(x: int) -> int:
    return x + 1


def test_a_call_that_never_touches_the_device_is_free(app, client):
    outcome = client.outcome(deployed(app.function(name="untouched")(_untouched)), (1,))
    assert (outcome.value, outcome.device_us, outcome.cost_nano) == (2, 0, 0)


def _for_cuda(values: list[float]) -> dict[str, object]:
    import torch

    x = torch.tensor(values).cuda()
    assert torch.cuda.is_available()
    y = torch.ones(len(values), device="cuda") + x.to("cuda")
    return {"sum": y.sum().item(), "where": str(y.device.type)}


def test_code_written_for_cuda_runs_unchanged(app):
    written = app.function(name="for_cuda", device_alias="cuda")(_for_cuda)
    assert written.remote([1.0, 2.0])["sum"] == 5.0


def _steps(count: int) -> float:
    import time

    import torch

    torch.manual_seed(7)
    x = torch.zeros(4, device="dgsf")
    for _ in range(count):
        x = x + torch.rand(4, device="dgsf")
        x.sum().item()
        time.sleep(0.02)
    return x.sum().item()


def executors(platform) -> list[int]:
    """The processes that execute device commands, by the device server's own log; the latest comes last."""
    (log,) = platform.layout.logs.glob("device-*-cpu0.log")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    ended = {line["worker_id"] for line in lines if line.get("event") == "worker_ended"}
    started = [line for line in lines if line.get("event") == "worker_started"]
    return [line["pid"] for line in started if line["worker_id"] not in ended]


def test_a_call_outlives_its_executor(app, platform):
    steps = app.function(name="steps")(_steps)
    undisturbed = steps.remote(100)
    found: list[float] = []
    calling = threading.Thread(target=lambda: found.append(steps.remote(100)))
    calling.start()
    time.sleep(0.5)  # some of it is done by then, wherever the call is
    os.kill(executors(platform)[-1], signal.SIGKILL)
    calling.join(DEADLINE)
    assert found == [undisturbed]


def test_a_timeout_stops_a_body_that_waits_for_its_device(app):
    endless = app.function(name="endless", timeout=1.0)(_steps)
    with pytest.raises(dgsf.FunctionTimeout):
        endless.remote(100_000)
    assert endless.with_options(timeout=60).remote(1) > 0, "the next call has a fresh session"


def _fails_on_the_device() -> str:
    import torch

    torch.zeros(3, device="dgsf")[torch.tensor([7], device="dgsf")] * 2
    return "the function itself did not notice"


def test_an_error_that_surfaces_at_the_end_is_the_calls_own(app):
    with pytest.raises(Exception, match=r"out of (bounds|range)"):
        app.function(name="late")(_fails_on_the_device).remote()


def test_wrong_input_is_refused_before_anything_runs(app, http):
    name = deployed(app.function(name="strict")(_untouched))
    reply = http.post(f"/v1/functions/{name}/invoke", json={"y": 1})
    assert reply.status_code == 400 and reply.json()["code"] == "invalid_arguments"
    with pytest.raises(dgsf.InvalidOption, match="'near', 'fabric' or 'auto'"):
        app.function(attach="far")
    with pytest.raises(DoesNotFit, match="of memory; the largest matching device has"):
        app.function(name="huge", gpu_memory="900GiB")(_untouched).remote(1)
    with pytest.raises(DoesNotFit, match="asks for 1000 processors; the largest node with a function host has"):
        app.function(name="wide", cpu=1000)(_untouched).remote(1)
