"""Remote calls against a stand-in for the platform that runs each call in a fresh process."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
import traceback

import pytest
from sdk_platform import FakePlatform, Fault

import dgsf
from dgsf.errors import ConnectionLost, QueueFull
from dgsf.sdk.connect import Connection
from dgsf.sdk.failures import describe
from dgsf.sdk.plan import Request
from dgsf.sdk.transport import HttpDriver

BUSY = {"code": "queue_full", "detail": "full", "retryable": True}


class OwnError(Exception):
    """An error of the user's own."""


@pytest.fixture
def platform():
    fake = FakePlatform().start()
    yield fake
    fake.stop()


@pytest.fixture
def client(platform):
    with dgsf.Client(platform.url, platform.api_key) as made:
        yield made


@pytest.fixture
def app(client):
    return dgsf.App("t", client=client)


def test_remote_deploys_once_and_answers(app, platform):
    @app.function
    def add(a: int, b: int = 1) -> int:
        return a + b

    assert add.remote(1) == 2
    assert add.remote(1, b=5) == 6
    assert (platform.deploys, platform.count("GET")) == (1, 1)


async def test_remote_is_awaited_by_aio(app, client):
    @app.function
    async def add(a: int, b: int) -> int:
        return a + b

    assert await add.remote.aio(2, 3) == 5
    assert (await client.describe.aio("t.add"))["version"] == 1
    await client.aclose()


def test_what_is_there_already_is_not_deployed_again(app, platform):
    def make(options: dict) -> dgsf.Function:
        with dgsf.Client(platform.url, platform.api_key) as fresh:
            function = dgsf.App("t", client=fresh).function(name="same", **options)(_constant)
            assert function.remote() == 42
        return function

    make({})
    make({})
    assert platform.deploys == 1
    make({"timeout": 77})
    assert platform.deploys == 2


def _constant() -> int:
    return 42


def test_a_function_deleted_meanwhile_is_deployed_again(app, client, platform):
    function = app.function(_constant)
    assert function.remote() == 42
    platform.functions.clear()
    assert function.remote() == 42
    assert platform.deploys == 2


async def test_many_first_calls_at_once_deploy_once(app, client, platform):
    function = app.function(_constant)
    assert await asyncio.gather(*(function.remote.aio() for _ in range(5))) == [42] * 5
    assert platform.deploys == 1
    await client.aclose()


def test_many_threads_deploy_once(app, platform):
    function = app.function(_constant)
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(function.remote())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert (results, platform.deploys) == ([42] * 4, 1)


def test_the_users_own_exception_is_raised_with_remote_frames(app):
    @app.function
    def broken(text: str) -> None:
        raise OwnError(text)

    with pytest.raises(OwnError, match="oh no") as raised:
        broken.remote("oh no")
    entries = traceback.extract_tb(raised.value.__traceback__)
    assert entries[-1].name == "broken"
    assert entries[-1].line == "raise OwnError(text)"
    ours = [entry.filename for entry in entries if f"{os.sep}dgsf{os.sep}sdk" in entry.filename]
    assert len(ours) == 1


_PRINTED = {
    "code": "function_error",
    "detail": "OwnError: no",
    "output": "one\ntwo\n\n",
    "error": describe(OwnError("no")),
}


@pytest.mark.parametrize(
    ("problem", "kind"),
    [(_PRINTED, OwnError), ({"code": "out_of_memory", "detail": "too much", "output": "one\ntwo\n"}, dgsf.OutOfMemory)],
)
async def test_what_a_function_printed_is_a_note_on_whatever_is_raised(app, platform, problem, kind):
    @app.function
    def loud() -> None: ...

    loud.remote()
    platform.faults += [Fault(500, problem), Fault(500, problem)]
    with pytest.raises(kind) as raised:
        loud.remote()
    with pytest.raises(kind) as awaited:
        await loud.remote.aio()
    for error in (raised.value, awaited.value, pickle.loads(pickle.dumps(raised.value))):
        assert error.__notes__[-1] == "it printed:\none\ntwo"


def test_what_a_silent_function_printed_is_not_told(app, platform):
    @app.function
    def silent() -> None:
        raise OwnError

    with pytest.raises(OwnError) as raised:
        silent.remote()
    assert not any("printed" in note for note in raised.value.__notes__)


def test_builtin_exceptions_are_caught_as_such(app):
    @app.function
    def pick(values: dict) -> int:
        return values["missing"]

    with pytest.raises(KeyError):
        pick.remote({})


def test_an_outcome_tells_device_time_and_cost(app, client):
    app.function(_constant).remote()
    outcome = client.outcome("t._constant")
    assert (outcome.value, outcome.device, outcome.device_us, outcome.cost_nano) == (42, "cpu-0", 345, 345)


def test_plain_functions_are_deployed_by_the_client(client):
    client.deploy(_constant, name="plain", options={"memory": "1GiB"})
    assert client.invoke("plain") == 42
    assert client.post("plain", b"{}").value == b"42"
    assert client.describe("plain")["options"] == {"memory": 1024**3}


def test_lists_follow_all_pages(client):
    for index in range(5):
        client.deploy(_constant, name=f"f{index}")
    assert [item["name"] for item in client.list()] == [f"f{index}" for index in range(5)]
    client.delete("f3")
    assert len(client.list()) == 4
    with pytest.raises(dgsf.NotFound):
        client.delete("f3")


def test_a_wrong_key_is_refused_clearly(platform):
    with dgsf.Client(platform.url, "dgsf_wrong_key") as wrong, pytest.raises(dgsf.Unauthenticated) as raised:
        wrong.list()
    assert raised.value.call_id == "call-1"
    assert raised.value.retryable is False
    for way in ("DGSF_API_KEY", "Client(api_key=...)", "client.json", "revoked", "'dgsf up'"):
        assert way in raised.value.message


def test_a_busy_platform_is_tried_again_under_one_key_if_the_function_allows(app, platform):
    function = app.function(retries=1, timeout=60)(_constant)
    assert function.remote() == 42
    platform.requests.clear()
    platform.faults = [Fault(429, BUSY, {"Retry-After": "0"}), Fault(503, {**BUSY, "code": "no_device"})]
    assert function.remote() == 42
    keys = {headers["Idempotency-Key"] for method, _, headers in platform.requests if method == "POST"}
    assert (platform.count("POST"), len(keys)) == (3, 1)


def test_a_lost_connection_is_tried_again_if_the_function_allows(app, platform):
    function = app.function(retries=1, timeout=60)(_constant)
    assert function.remote() == 42
    platform.faults = [Fault(500, {}, drop=True)]
    assert function.remote() == 42


def test_without_retries_the_busy_answer_is_raised(app, platform):
    function = app.function(_constant)
    function.remote()
    platform.requests.clear()
    platform.faults = [Fault(429, BUSY, {"Retry-After": "1"})]
    with pytest.raises(QueueFull) as raised:
        function.remote()
    assert raised.value.retryable
    assert all("Idempotency-Key" not in headers for _, _, headers in platform.requests)


def test_without_retries_a_lost_connection_is_an_unknown_outcome(app, platform):
    function = app.function(_constant)
    function.remote()
    platform.faults = [Fault(500, {}, drop=True)]
    with pytest.raises(dgsf.OutcomeUnknown, match="may or may not have run") as raised:
        function.remote()
    assert raised.value.retryable is False


def test_retry_after_beyond_the_calls_timeout_is_not_waited_for(app, platform):
    function = app.function(retries=3, timeout=5)(_constant)
    function.remote()
    platform.faults = [Fault(429, BUSY, {"Retry-After": "3600"})]
    with pytest.raises(QueueFull):
        function.remote()


def test_no_platform_at_the_address_says_so():
    with dgsf.Client("http://127.0.0.1:9", "k") as nobody, pytest.raises(ConnectionLost, match="dgsf up"):
        nobody.invoke("x")


def test_an_answer_that_is_no_problem_document_is_still_a_clear_error(app, platform):
    function = app.function(_constant)
    function.remote()
    platform.faults = [Fault(502, {"code": None})]
    with pytest.raises(dgsf.PlatformError, match="HTTP 502"):
        function.remote()


def test_arguments_that_cannot_travel_are_named(app):
    with pytest.raises(dgsf.UsageError, match="argument value of type lock"):
        app.function(name="any")(_anything).remote(value=threading.Lock())


def _anything(value: object) -> None:
    return None


def test_code_that_cannot_be_loaded_is_told(app):
    @app.function
    def needs() -> int:
        return 1

    needs.bundle()
    import msgspec

    from dgsf.sdk.bundle import Bundle

    packed = msgspec.msgpack.decode(needs._bundle.code)
    packed["function"] = b"nonsense"
    code = msgspec.msgpack.encode(packed)
    import hashlib

    needs._bundle = Bundle(code, hashlib.sha256(code).hexdigest())
    with pytest.raises(dgsf.FunctionLoadError, match="could not be loaded"):
        needs.remote()


def test_a_forked_child_uses_connections_of_its_own(client):
    client.deploy(_constant, name="plain")
    assert client.invoke("plain") == 42
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(client.invoke("plain")).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answers:
        assert answers.read() == b"42"
    os.waitpid(child, 0)
    assert client.invoke("plain") == 42


def test_async_connections_end_with_their_loop(platform):
    made = dgsf.Client(platform.url, platform.api_key)

    async def use() -> list:
        return await made.list.aio()

    for _ in range(2):
        assert asyncio.run(use()) == []


def test_ctrl_c_while_an_answer_is_awaited_shows_no_frames_of_the_http_library(monkeypatch):
    class Interrupted:
        def request(self, **_: object) -> None:
            deep_inside()

    def deep_inside() -> None:
        raise KeyboardInterrupt

    driver = HttpDriver(Connection("http://127.0.0.1:1", "key"))
    monkeypatch.setattr(driver, "_blocking", Interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        driver.perform(Request("GET", "/"))
    assert "deep_inside" not in "".join(traceback.format_exception(caught.value))
