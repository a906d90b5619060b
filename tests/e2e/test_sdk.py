"""The SDK against a running platform: fixture `platform` gives its `url` and `api_key`."""

from __future__ import annotations

import asyncio
import io
import random
import traceback
import uuid

import pytest

import dgsf
from functions import demo
from functions.train_shapes import draw_shape


class OwnError(Exception):
    """An error of the user's own."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


@pytest.fixture
def client(platform):
    with dgsf.Client(platform.url, platform.api_key) as made:
        yield made


@pytest.fixture
def app(client):
    return dgsf.App(f"e2e-{uuid.uuid4().hex[:8]}", client=client)


def _square(x: float) -> float:
    return x * x


def _raise(code: int) -> None:
    raise OwnError(code, "remote")


def test_a_function_runs_remotely_and_here_with_the_same_result(app):
    square = app.function(name="square")(_square)
    assert square.remote(3) == square.local(3) == 9


async def test_many_calls_at_once_are_awaited(app, client):
    square = app.function(name="square")(_square)
    assert await asyncio.gather(*(square.remote.aio(n) for n in range(20))) == [n * n for n in range(20)]
    await client.aclose()


async def test_async_functions_run_remotely(app, client):
    @app.function
    async def later(x: int) -> int:
        await asyncio.sleep(0)
        return x + 1

    assert await later.remote.aio(1) == 2
    await client.aclose()


def test_python_values_of_any_kind_go_in_and_out(app):
    import numpy as np

    @app.function
    def both(a: object, b: object = None) -> object:
        return {"a": a, "b": b}

    found = both.remote({1, 2}, b=np.arange(3))
    assert found["a"] == {1, 2}
    assert found["b"].tolist() == [0, 1, 2]


def test_the_users_own_exception_arrives_with_remote_frames(app):
    with pytest.raises(OwnError) as raised:
        app.function(name="broken")(_raise).remote(7)
    assert raised.value.code == 7
    assert traceback.extract_tb(raised.value.__traceback__)[-1].name == "_raise"


def test_a_call_is_charged_and_its_outcome_tells(app, client):
    square = app.function(name="square")(_square)
    square.remote(2)
    outcome = client.outcome(square.name, (4,))
    assert outcome.value == 16
    assert outcome.call_id
    assert outcome.device
    assert outcome.device_us > 0
    assert outcome.cost_nano >= 0


def test_a_function_over_its_timeout_is_stopped(app):
    slow = app.function(name="slow", timeout=0.5)(demo.slow.raw)
    with pytest.raises(dgsf.FunctionTimeout) as raised:
        slow.remote(30)
    assert raised.value.call_id


def test_variants_run_under_their_own_options(app):
    square = app.function(name="square")(_square)
    assert square.with_options(timeout=60).remote(5) == 25


def test_a_changed_function_is_deployed_anew(app, client):
    square = app.function(name="square")(_square)
    square.remote(2)
    first = client.describe(square.name)["version"]
    again = dgsf.App(app.name, client=client).function(name="square", timeout=77)(_square)
    again.remote(2)
    assert client.describe(square.name)["version"] > first


def test_unknown_functions_and_wrong_keys_are_told(client, platform):
    with pytest.raises(dgsf.NotFound):
        client.invoke("nothing.of.that.name")
    with dgsf.Client(platform.url, "dgsf_wrong_key") as wrong, pytest.raises(dgsf.Unauthenticated):
        wrong.list()


def test_arguments_that_do_not_bind_are_told_by_the_gateway(app, client):
    square = app.function(name="square")(_square)
    square.deploy()
    with pytest.raises(dgsf.InvalidArguments, match="x"):
        client.post(square.name, b'{"y": 1}')


def test_the_sample_functions_run(client):
    def deployed(function: dgsf.Function) -> str:
        client.deploy(function.raw, name=function.name, options=function.given)
        return function.name

    assert client.post(deployed(demo.echo), b'{"x": 1}').value == b'{"x":1}'
    assert client.invoke(deployed(demo.statistics), [1.0, 2.0, 3.0])["mean"] == 2.0
    assert client.post(deployed(demo.blob), b"\x00raw", "application/octet-stream", "*/*").value == b"\x00raw"
    picture = io.BytesIO()
    draw_shape("triangle", random.Random(3)).save(picture, "PNG")
    assert client.invoke(deployed(demo.classify), picture.getvalue())["label"] == "triangle"
    with pytest.raises(demo.DemoError, match="boo"):
        client.invoke(deployed(demo.fail), "boo")


def test_listings_answer(client):
    for listing in (client.devices, client.leases, client.usage, client.keys):
        assert isinstance(listing(), dict)
