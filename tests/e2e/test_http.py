"""The HTTP contract of a whole running platform: what works, and every kind of bad input and trouble."""

import asyncio
import contextlib
import json
import os
import socket
import sys
import time
import uuid

import httpx
import pytest

import dgsf
from dgsf.sdk.client import Client

PATIENCE = 60  # of a client, on a machine that has other things to do
LIMIT = 64 * 1024 * 1024
# Folders of the host that a function must not find, unless Python itself lives there.
PYTHON = (sys.prefix, sys.base_prefix, dgsf.__file__)
ELSEWHERE = [
    folder
    for folder in ("/home", "/var", "/boot", "/srv", "/opt", "/mnt")
    if not any(path.startswith(folder + "/") for path in PYTHON)
]


@pytest.fixture(scope="module")
def http(platform):
    headers = {"Authorization": f"Bearer {platform.api_key}"}
    with httpx.Client(base_url=platform.url, headers=headers, timeout=PATIENCE) as client:
        yield client


@pytest.fixture(scope="module")
def deploy(platform):
    """Deploys a function by value under a name of its own."""

    def put(function, **options):
        function.__module__ = "__main__"
        name = f"f-{uuid.uuid4().hex[:10]}"
        with Client(platform.url, platform.api_key) as client:
            client.deploy(function, name=name, options=options)
        return name

    return put


def invoke(http, name, **request):
    return http.post(f"/v1/functions/{name}/invoke", **request)


def add(x, y=2):
    return x + y


@pytest.fixture(scope="module")
def adder(deploy):
    return deploy(add)


def test_an_object_is_keywords_an_array_positions_and_the_bill_comes_along(http, adder):
    answer = invoke(http, adder, json={"x": 1})
    assert (answer.status_code, answer.json()) == (200, 3)
    assert invoke(http, adder, json=[1, 5]).json() == 6
    for name in ("X-Call-Id", "X-Device", "X-Queue-Us", "X-Device-Us", "X-Cost-Nano"):
        assert answer.headers[name]
    assert int(answer.headers["X-Cost-Nano"]) == int(answer.headers["X-Device-Us"]) > 0


def test_other_types_are_raw_bytes_and_bytes_come_back_as_bytes(http, deploy):
    name = deploy(lambda data: data[::-1])
    answer = invoke(http, name, content=b"\x00abc", headers={"Content-Type": "image/png"})
    assert (answer.content, answer.headers["Content-Type"]) == (b"cba\x00", "application/octet-stream")


def test_curls_own_content_type_is_told_what_to_say_instead(http, adder):
    answer = invoke(http, adder, content=b'{"x": 1}', headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert "-H 'Content-Type: application/json'" in problem(answer, 400, "invalid_header")["detail"]


@pytest.mark.parametrize("size", [1_000_000, 16_000_000])
def test_large_bodies_go_in_and_out(http, deploy, size):
    name = deploy(lambda data: data, memory="1GiB")
    data = os.urandom(size)
    answer = invoke(http, name, content=data, headers={"Content-Type": "application/octet-stream"})
    assert answer.status_code == 200 and answer.content == data


def problem(answer, status, code):
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    found = answer.json()
    assert (found["status"], found["code"]) == (status, code)
    return found


def test_an_unknown_function_is_404(http):
    assert "no-such" in problem(invoke(http, "no-such", json={}), 404, "not_found")["detail"]


@pytest.mark.parametrize("key", [None, "", "Bearer dgsf_abc_def", "Basic Zm9vOmJhcg==", "Bearer x" * 500])
def test_no_key_or_a_wrong_one_is_401(platform, adder, key):
    headers = {} if key is None else {"Authorization": key}
    answer = httpx.post(f"{platform.url}/v1/functions/{adder}/invoke", json=[1], headers=headers, timeout=PATIENCE)
    problem(answer, 401, "unauthenticated")
    assert answer.headers["WWW-Authenticate"]


def test_a_role_that_may_not_is_403_and_a_revoked_key_is_dead_within_two_seconds(http, platform, adder):
    made = http.post("/v1/keys", json={"role": "invoke", "name": "guest"}).json()
    headers = {"Authorization": f"Bearer {made['key']}"}
    with httpx.Client(base_url=platform.url, headers=headers, timeout=PATIENCE) as guest:
        assert invoke(guest, adder, json=[1]).status_code == 200
        problem(guest.get("/v1/keys"), 403, "forbidden")
        problem(guest.delete(f"/v1/functions/{adder}"), 403, "forbidden")
        assert http.delete(f"/v1/keys/{made['key_id']}").status_code in (200, 204)
        revoked = time.monotonic()
        while invoke(guest, adder, json=[1]).status_code != 401:
            assert time.monotonic() - revoked < PATIENCE
    print(f"revoked after {time.monotonic() - revoked:.2f} s")


NO_JSON = (b"{", b"nonsense", b"\xff\xfe", b'{"x": NaN}', b"[1,]", b'"text"', b"7", b"[" * 100_000)


@pytest.mark.parametrize("body", NO_JSON)
def test_json_that_is_none_is_400(http, adder, body):
    answer = invoke(http, adder, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["code"] in ("invalid_json", "invalid_arguments")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [({}, "'x'"), ({"x": 1, "z": 2}, "'z'"), ([1, 2, 3], "2 positional"), ([], "'x'"), ({"x": 1, "yy": 2}, "'yy'")],
)
def test_arguments_that_do_not_bind_are_named(http, adder, arguments, named):
    assert named in problem(invoke(http, adder, json=arguments), 400, "invalid_arguments")["detail"]


def test_a_body_over_the_limit_is_413_before_it_is_read(platform, adder):
    host, port = platform.url.removeprefix("http://").split(":")
    head = (
        f"POST /v1/functions/{adder}/invoke HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {platform.api_key}\r\n"
        f"Content-Type: application/octet-stream\r\nContent-Length: {LIMIT + 1}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), PATIENCE) as connection:
        connection.sendall(head.encode())  # and not a byte of the body
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 413 ") and str(LIMIT).encode() in answer


def test_a_chunked_body_over_the_limit_is_cut_off(http, adder):
    pieces = (b"x" * 1_000_000 for _ in range(LIMIT // 1_000_000 + 2))
    with contextlib.suppress(httpx.WriteError, httpx.ReadError):
        answer = invoke(http, adder, content=pieces, headers={"Content-Type": "application/octet-stream"})
        problem(answer, 413, "body_too_large")


def test_a_result_that_json_cannot_say_has_its_own_code(http, deploy):
    found = problem(invoke(http, deploy(lambda: 1j), json={}), 500, "result_not_json")
    assert "complex" in found["detail"]


def test_a_users_exception_tells_type_message_and_traceback_and_is_billed(http, deploy):
    def divide(x):
        return 1 / x

    answer = invoke(http, deploy(divide), json=[0])
    found = problem(answer, 500, "function_error")
    assert found["error"]["type"].endswith("ZeroDivisionError")
    assert found["error"]["message"] == "division by zero"
    assert "return 1 / x" in found["error"]["traceback"] and "dgsf/fabric" not in found["error"]["traceback"]
    assert "pickle" not in found["error"]
    assert int(answer.headers["X-Cost-Nano"]) > 0


@pytest.mark.parametrize(
    ("options", "told"), [({"gpu": "H100"}, "no device of type H100"), ({"memory": "900GiB"}, "900")]
)
def test_a_function_that_fits_no_device_is_422_at_deploy(platform, options, told):
    add.__module__ = "__main__"
    with Client(platform.url, platform.api_key) as client, pytest.raises(Exception, match=r".*") as caught:
        client.deploy(add, name="unfit", options=options)
    assert caught.value.code == "does_not_fit"
    assert told in str(caught.value) or "memory" in str(caught.value)


def test_a_function_over_its_time_is_504_and_the_callers_timeout_counts(http, deploy):
    name = deploy(lambda s: __import__("time").sleep(s), timeout=30)
    answer = invoke(http, name, json=[20], headers={"X-Dgsf-Timeout": "0.2"})
    problem(answer, 504, "timed_out")
    assert int(answer.headers["X-Device-Us"]) >= 150_000


@pytest.mark.parametrize("value", ["x", "-1", "0", "1e400", "99999999"])
def test_header_values_out_of_range_are_named(http, adder, value):
    answer = invoke(http, adder, json=[1], headers={"X-Dgsf-Timeout": value})
    assert "X-Dgsf-Timeout" in problem(answer, 400, "invalid_header")["detail"]


def test_a_crash_fails_its_call_alone(http, deploy):
    name = deploy(lambda how: __import__("os")._exit(3) if how else "fine")
    assert invoke(http, name, json=[0]).json() == "fine"
    assert "exit code 3" in problem(invoke(http, name, json=[1]), 500, "worker_crashed")["detail"]
    assert invoke(http, name, json=[0]).json() == "fine"


def test_the_same_key_gives_the_first_answer_again_and_another_body_is_422(http, deploy):
    name = deploy(lambda x: __import__("os").urandom(8).hex())
    key = {"Idempotency-Key": uuid.uuid4().hex}
    first = invoke(http, name, json=[1], headers=key)
    again = invoke(http, name, json=[1], headers=key)
    assert (first.status_code, first.content, first.headers["X-Call-Id"]) == (
        again.status_code,
        again.content,
        again.headers["X-Call-Id"],
    )
    problem(invoke(http, name, json=[2], headers=key), 422, "idempotency_mismatch")


@pytest.fixture(scope="module")
def small(start_for_module):
    """A platform with a short queue, which may also be hurt."""
    return start_for_module("small", environment={"DGSF_QUEUE_LIMIT": "2"}).wait_ready()


async def test_a_full_queue_is_429_with_a_time_to_wait(small):
    def nap(x):
        __import__("time").sleep(x)

    nap.__module__ = "__main__"
    with Client(small.url, small.api_key) as client:
        client.deploy(nap, name="nap", options={"max_workers": 1})
    headers = {"Authorization": f"Bearer {small.api_key}"}
    async with httpx.AsyncClient(base_url=small.url, headers=headers, timeout=PATIENCE) as client:
        answers = await asyncio.gather(*(client.post("/v1/functions/nap/invoke", json=[1]) for _ in range(8)))
    codes = sorted(answer.status_code for answer in answers)
    assert codes.count(200) >= 2 and codes.count(429) >= 3
    refused = next(answer for answer in answers if answer.status_code == 429)
    problem(refused, 429, "queue_full")
    assert int(refused.headers["Retry-After"]) >= 1


def test_from_inside_nothing_of_the_platform_can_be_reached(http, deploy, platform):
    def look(targets):
        import os
        import socket

        reached = []
        for kind, where in targets:
            try:
                if kind == "tcp":
                    socket.create_connection(("127.0.0.1", where), 2).close()
                elif kind == "unix":
                    with socket.socket(socket.AF_UNIX) as sock:
                        sock.connect(where)
                else:
                    os.listdir(where)
                reached.append(where)
            except OSError:
                continue
        return reached, sorted(os.listdir("/")), [name for name in os.environ if "DGSF" in name or "RAY" in name]

    targets = [("tcp", int(platform.url.rpartition(":")[2]))]
    targets += [("unix", str(path)) for path in platform.layout.run_dir.rglob("*") if path.is_socket()]
    folders = (platform.data_dir, platform.layout.run_dir, *ELSEWHERE)
    targets += [("folder", str(path)) for path in folders]
    assert sum(kind == "unix" for kind, _ in targets) >= 3
    answer = invoke(http, deploy(look), json={"targets": targets}).json()
    assert answer[0] == []
    assert not {f"/{name}" for name in answer[1]} & set(ELSEWHERE)
    assert [name for name in answer[2] if name != "DGSF_MARK"] == []


def test_postgres_away_is_503_at_once_and_comes_back_by_itself(small):
    headers = {"Authorization": f"Bearer {small.api_key}"}
    add.__module__ = "__main__"
    with Client(small.url, small.api_key) as client:
        client.deploy(add, name="add")

    def call():
        return httpx.post(f"{small.url}/v1/functions/add/invoke", json=[1], headers=headers, timeout=PATIENCE)

    assert call().status_code == 200
    os.kill(small.postgres_pid(), 19)  # SIGSTOP: it is there and does not answer
    os.kill(small.postgres_pid(), 9)
    seen = set()
    deadline = time.monotonic() + 2 * PATIENCE
    while (answer := call()).status_code != 200 or not seen:
        if answer.status_code != 200:
            seen.add(answer.json()["code"])
            assert answer.status_code == 503 and int(answer.headers["Retry-After"]) >= 1
        assert time.monotonic() < deadline
        if answer.status_code == 200:
            break
    assert call().json() == 3


def test_openapi_is_there_and_lists_what_is_served(http):
    document = http.get("/openapi.json").json()
    assert document["openapi"].startswith("3.")
    served = {f"/v1/{name}" for name in ("functions", "devices", "leases", "usage", "keys")}
    assert served | {"/v1/functions/{name}", "/v1/functions/{name}/invoke"} <= set(document["paths"])


def test_listings_and_metrics(http, adder):
    assert invoke(http, adder, json=[1]).status_code == 200
    assert http.get("/v1/devices").json()["devices"][0]["state"] == "healthy"
    assert any(row["slot"] >= 0 for row in http.get("/v1/leases").json()["leases"])
    assert http.get("/v1/usage").json()["usage"]
    text = http.get("/metrics").text
    assert "dgsf_" in text and "# TYPE" in text
    assert http.get("/healthz").status_code == 200 and http.get("/readyz").status_code == 200


def test_what_is_not_there_and_methods_that_are_not(http):
    problem(http.get("/v1/nothing"), 404, "not_found")
    problem(http.get("/v1/functions/x/invoke"), 405, "method_not_allowed")
    assert json.loads(http.get("/v1/nothing").text)["retryable"] is False
