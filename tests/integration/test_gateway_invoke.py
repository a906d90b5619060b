"""Sync calls over HTTP: what goes in, what comes out, what is refused."""

from __future__ import annotations

import asyncio
import os
from uuid import UUID

import pytest
import pytest_asyncio
from gateway_world import MIB, World, eventually, failing, fresh_database, running

from dgsf.ids import proxy_number
from dgsf.wire.messages import Codec
from dgsf.wire.ports import CallResult, Payload

PICKLE = "application/vnd.dgsf.pickle"


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def only_world(database_url: str):
    async with fresh_database(database_url) as database, running(database, max_body_bytes=32 * MIB) as found:
        yield found


@pytest.fixture
def world(only_world: World):
    only_world.workers.reset()
    return only_world


async def test_a_json_call_answers_with_its_result_and_its_cost(world: World):
    answer = await world.call(body=b'{"x": 1}')
    assert (answer.status, answer.body) == (200, b'{"x": 1}')
    assert answer.headers["Content-Type"] == "application/json"
    told = {name: answer.headers[name] for name in ("X-Device", "X-Queue-Us", "X-Device-Us", "X-Cost-Nano")}
    assert told == {"X-Device": "cpu-0", "X-Queue-Us": "11", "X-Device-Us": "22", "X-Cost-Nano": "33"}
    call_id = UUID(answer.headers["X-Call-Id"])
    assert (call_id.version, proxy_number(call_id)) == (7, 7)
    assert world.workers.seen[0].id == call_id


@pytest.mark.parametrize(
    ("kind", "body", "codec"),
    [
        ("application/json", b"[1, 2]", Codec.json),
        ("application/json; charset=utf-8", b'{"a": [1]}', Codec.json),
        (PICKLE, b"\x80\x04whatever", Codec.pickle),
        ("image/png", b"\x89PNG", Codec.raw),
        ("application/json", b"", Codec.json),
    ],
)
async def test_the_body_travels_on_untouched_with_its_codec(world: World, kind, body, codec):
    assert (await world.call(body=body, kind=kind)).status == 200
    seen = world.workers.seen[0]
    assert (seen.payload.codec, seen.payload.data, seen.reply) == (codec, body, Codec.json)


async def test_a_body_without_a_type_is_json(world: World):
    head = f"POST /v1/functions/echo/invoke HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {world.keys['invoke']}\r\n"
    reply = await exchange(world, head.encode() + b"Content-Length: 8\r\n\r\n" + b'{"x": 1}', until=b'{"x": 1}')
    assert reply.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_bytes_come_back_as_bytes_and_pickle_as_pickle(world: World):
    answer = await world.call(body=b"\x00\x01", kind="application/octet-stream")
    assert (answer.headers["Content-Type"], answer.body) == ("application/octet-stream", b"\x00\x01")
    answer = await world.call(body=b"p", kind=PICKLE, Accept=PICKLE)
    assert (answer.headers["Content-Type"], answer.body) == (PICKLE, b"p")
    assert world.workers.seen[-1].reply == Codec.pickle


async def test_deadline_timeout_and_priority_reach_the_proxy(world: World):
    await world.call(X_Dgsf_Start_Deadline="0.5", X_Dgsf_Timeout="2.25", X_Dgsf_Priority="-3")
    seen = world.workers.seen[0]
    assert (seen.start_us, seen.timeout_us, seen.priority) == (500_000, 2_250_000, -3)


async def test_a_request_id_is_echoed_on_answers_and_errors(world: World):
    assert (await world.call(X_Request_ID="abc-1")).headers["X-Request-ID"] == "abc-1"
    assert (await world.call("nothing", X_Request_ID="abc-2")).headers["X-Request-ID"] == "abc-2"
    assert "X-Request-ID" not in (await world.call(X_Request_ID="x" * 200)).headers


@pytest.mark.parametrize(
    ("body", "code", "told"),
    [
        (b"{nonsense", "invalid_json", "byte"),
        (b'{"x": 1, "x": 2}', "invalid_json", "twice"),
        (b"{}", "invalid_arguments", "missing argument 'x'"),
        (b'{"y": 1}', "invalid_arguments", "unexpected argument 'y'"),
        (b"[1, 2]", "invalid_arguments", "takes 1 positional argument but 2 were given"),
        (b"17", "invalid_arguments", "JSON object"),
    ],
)
async def test_bad_arguments_are_refused_before_a_call_exists(world: World, body, code, told):
    answer = await world.call("one", body)
    assert (answer.status, answer.code) == (400, code)
    assert told in answer.json["detail"]
    assert not world.workers.seen


async def test_raw_bytes_must_be_the_one_argument(world: World):
    await world.deploy("two", signature=[{"name": n, "kind": "POSITIONAL_OR_KEYWORD", "required": True} for n in "ab"])
    answer = await world.call("two", b"raw", kind="image/png")
    assert (answer.status, answer.code, answer.json["argument"]) == (400, "invalid_arguments", "b")


async def test_an_unknown_function_is_not_found(world: World):
    answer = await world.call("nothing")
    assert (answer.status, answer.code) == (404, "not_found")
    assert (await world.call("no%2Fthing")).status == 404


async def test_a_quoted_name_finds_its_function(world: World):
    assert (await world.call("%65cho")).status == 200


async def test_another_tenants_function_looks_unknown(world: World):
    other = await world.registry.create_tenant("other")
    key = await world.registry.create_key(other, "operator", "k")
    own = await world.ask("POST", "/v1/functions/nothing/invoke", key=key.text, data=b"{}")
    foreign = await world.ask("POST", "/v1/functions/echo/invoke", key=key.text, data=b"{}")
    assert (own.status, foreign.status) == (404, 404)
    assert own.json["detail"].replace("nothing", "echo") == foreign.json["detail"]


async def test_a_body_over_the_limit_is_refused_by_its_declared_length(world: World):
    head = f"POST /v1/functions/echo/invoke HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {world.keys['invoke']}\r\n"
    lines = f"Content-Type: image/png\r\nContent-Length: {33 * MIB}\r\n\r\n"
    reply = await exchange(world, (head + lines).encode())  # not one byte of the body is sent
    assert reply.startswith(b"HTTP/1.1 413 ")
    assert b"body_too_large" in reply and b"Connection: close" in reply
    told = "the body of 33.0 MiB (34603008 bytes) is over the limit of 32.0 MiB (33554432 bytes)"
    assert told.encode() in reply and b"DGSF_MAX_BODY_BYTES" in reply


async def test_a_body_of_unknown_length_is_counted_while_it_comes(world: World):
    async def endless():
        while True:
            yield b"x" * MIB

    try:
        answer = await world.call(body=endless(), kind="image/png")
    except OSError:
        pass  # the server closed while the body was still being sent
    else:
        assert answer.status == 413
    await eventually(lambda: not world.shared_files())
    assert not world.workers.seen


async def test_large_json_has_a_lower_limit_that_is_told(world: World):
    answer = await world.call(body=b'["' + b"x" * (17 * MIB) + b'"]')
    assert (answer.status, answer.code) == (413, "body_too_large")
    assert "over the limit of 16.0 MiB (16777216 bytes) for JSON" in answer.json["detail"]


async def test_a_large_body_travels_by_shared_memory_both_ways(world: World):
    body = os.urandom(16 * MIB)
    answer = await world.call(body=body, kind="application/octet-stream")
    assert answer.status == 200
    assert answer.body == body
    assert answer.headers["Content-Length"] == str(len(body))
    assert not world.workers.seen[0].payload.data
    assert not world.shared_files()


async def test_large_json_is_checked_and_travels_by_shared_memory(world: World):
    body = b'{"x": [' + b"1," * MIB + b"1]}"
    assert (await world.call("one", body)).body == body
    assert (await world.call("one", body + b"}")).code == "invalid_json"
    assert (await world.call("one", body.replace(b'"x"', b'"y"'))).code == "invalid_arguments"
    assert not world.shared_files()


async def test_a_compressed_body_is_unpacked_within_the_limit(world: World):
    import gzip

    kind = "application/octet-stream"
    answer = await world.call(body=gzip.compress(b"hello"), kind=kind, Content_Encoding="gzip")
    assert answer.body == b"hello"
    bomb = gzip.compress(b"\0" * (64 * MIB))
    assert (await world.call(body=bomb, kind=kind, Content_Encoding="gzip")).status == 413
    assert (await world.call(body=b"no gzip", kind=kind, Content_Encoding="gzip")).status == 400


async def test_a_client_that_asks_before_sending_is_told_to_go_on(world: World):
    head = f"POST /v1/functions/echo/invoke HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {world.keys['invoke']}\r\n"
    lines = "Content-Type: image/png\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write((head + lines).encode())
    async with asyncio.timeout(60):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"hello")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
        assert await reader.readexactly(5) == b"hello"
    writer.close()


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("function_error", 500),
        ("timed_out", 504),
        ("worker_crashed", 500),
        ("result_not_json", 500),
        ("result_not_sendable", 500),
        ("queue_full", 429),
        ("no_device", 503),
        ("start_deadline_missed", 503),
        ("store_unavailable", 503),
    ],
)
async def test_a_failed_call_is_a_problem_with_the_calls_headers(world: World, code, status):
    world.workers.behaviour = failing(code, "so it went", message="a detail of this name does no harm")
    answer = await world.call()
    assert (answer.status, answer.code, answer.json["detail"]) == (status, code, "so it went")
    assert answer.json["call_id"] == answer.headers["X-Call-Id"]
    assert answer.headers["X-Device"] == "cpu-0"
    assert ("Retry-After" in answer.headers) == (status in (429, 503))


async def test_a_failed_call_stands_in_the_log_by_its_id_and_without_what_it_said(world: World, caplog):
    caplog.set_level("INFO", "gateway.failed")
    assert (await world.call()).status == 200
    world.workers.behaviour = failing("timed_out", "so it went", output="printed")
    answer = await world.call()
    (line,) = [record for record in caplog.records if record.message == "call_failed"]
    assert (line.call_id, line.function, line.code) == (answer.headers["X-Call-Id"], "echo", "timed_out")
    assert "so it went" not in str(vars(line)) and "printed" not in str(vars(line))


async def test_a_functions_exception_is_told_and_its_pickle_only_to_who_can_read_it(world: World):
    error = {"type": "ValueError", "message": "no", "traceback": "Traceback ...", "pickle": "AAAA"}
    world.workers.behaviour = failing("function_error", "ValueError: no", error=error)
    answer = await world.call()
    assert answer.json["error"] == {name: value for name, value in error.items() if name != "pickle"}
    assert (await world.call(Accept=PICKLE)).json["error"] == error


async def test_retry_after_is_told_in_whole_seconds(world: World):
    world.workers.behaviour = failing("queue_full", retry_after=2.2)
    assert (await world.call()).headers["Retry-After"] == "3"


async def test_a_caller_that_goes_away_cancels_its_call(world: World):
    world.workers.hold()
    task = asyncio.create_task(world.call())
    await eventually(lambda: world.workers.seen)
    task.cancel()
    await eventually(lambda: world.workers.cancelled)
    assert world.workers.cancelled[0] is world.workers.seen[0]


async def test_an_unknown_outcome_is_settled_in_the_store_before_it_is_told(world: World):
    world.workers.behaviour = failing("outcome_unknown")
    once, again = await world.call("echo"), await world.call("again")
    assert (once.status, once.json["retryable"]) == (503, False)
    assert (again.status, again.json["retryable"]) == (503, True)  # its function allows retries
    for answer in (once, again):
        row = await world.calls.get(UUID(answer.headers["X-Call-Id"]))
        assert row is not None
        assert (row.state, row.error_code, row.charged) == ("failed", "outcome_unknown", False)


async def test_a_result_without_a_payload_is_null(world: World):
    world.workers.behaviour = lambda request: CallResult("succeeded", None, None)
    assert (await world.call()).body == b"null"


async def test_a_mistake_of_ours_shows_an_incident_and_no_traceback(world: World, caplog, monkeypatch):
    def broken(request):
        raise RuntimeError("secret inside")

    monkeypatch.setattr(world.workers, "open", broken)
    answer = await world.call()
    assert (answer.status, answer.code) == (500, "internal")
    assert b"secret inside" not in answer.body
    assert any(getattr(record, "incident", "") == answer.json["incident"] for record in caplog.records)
    assert (await world.ask("GET", "/healthz")).status == 200


async def test_what_is_no_http_is_refused_as_a_problem(world: World):
    reply = await exchange(world, b"this is no http\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 400 ")
    assert b"bad_request" in reply


async def test_requests_in_one_packet_are_answered_in_order(world: World):
    one = b"POST /v1/functions/echo/invoke HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\nContent-Length: 7\r\n\r\n"
    head = one % world.keys["invoke"].encode()
    reply = await exchange(world, head + b'{"x":1}' + head + b'{"x":2}', until=b'{"x":2}')
    assert reply.index(b'{"x":1}') < reply.index(b'{"x":2}')


async def test_an_old_client_may_keep_its_connection(world: World):
    head = f"POST /v1/functions/echo/invoke HTTP/1.0\r\nAuthorization: Bearer {world.keys['invoke']}\r\n"
    tail = "Connection: keep-alive\r\nContent-Length: 2\r\n\r\n{}"
    assert b"Connection: keep-alive" in await exchange(world, (head + tail).encode(), until=b"{}")


async def test_a_file_result_of_a_caller_that_went_away_is_discarded(world: World):
    release = world.workers.hold()

    def large(request):
        descriptor, path = world.area.new_file()
        os.write(descriptor, b"x" * MIB)
        os.close(descriptor)
        return CallResult("succeeded", Payload(Codec.raw, b"", path, MIB), None)

    world.workers.behaviour = large
    task = asyncio.create_task(world.call(Idempotency_Key="k"))
    await eventually(lambda: world.workers.seen)
    task.cancel()
    await eventually(lambda: not world.gateway.counters.in_flight)
    release.set()
    await eventually(lambda: not world.gateway._invoker._keyed._running)
    assert not world.shared_files()


async def exchange(world: World, data: bytes, until: bytes = b"") -> bytes:
    """Raw bytes to the gateway; what comes back until the given end, or until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(data)
    async with asyncio.timeout(60):
        reply = await (reader.readuntil(until) if until else reader.read())
    writer.close()
    return reply


async def test_a_body_in_small_chunks_arrives_whole(world: World):
    async def pieces():
        for _ in range(300):
            yield b"x" * 1000

    answer = await world.call(body=pieces(), kind="application/octet-stream")
    assert answer.body == b"x" * 300_000
    assert (await world.call(body=pieces(), kind="application/octet-stream", Idempotency_Key="pieces")).status == 200


async def test_a_keyed_call_may_have_no_body(world: World):
    assert (await world.call(body=None, Idempotency_Key="empty")).status == 200
