"""A stand-in for the platform's edge: speaks its HTTP contract and runs each call in a fresh process.

It lives in a thread of the test's process.  It keeps what it was sent, so that tests can look at it, and
`faults` are answered, one each, before calls are served.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from dgsf.errors import DgsfError, NotFound, Unauthenticated
from dgsf.sdk.codec import PICKLE
from dgsf.sdk.manifest import decode_deploy

ROOT = Path(__file__).resolve().parents[2]
KEY = "dgsf_test_secret"
WORKER = """
import sys, json, pickle, base64, asyncio, inspect, cloudpickle
from dgsf.errors import DgsfError
from dgsf.sdk.failures import describe
from dgsf.sdk.unbundle import load_function
code, kind, body = pickle.load(sys.stdin.buffer)
def answer(**parts): sys.stdout.buffer.write(pickle.dumps(parts)); sys.stdout.flush(); sys.exit(0)
try:
    function = load_function(code)
    if kind == "application/vnd.dgsf.pickle": args, kwargs = cloudpickle.loads(body)
    elif kind == "application/json":
        given = json.loads(body)
        args, kwargs = (given, {}) if isinstance(given, list) else ((), given)
    else: args, kwargs = (body,), {}
except DgsfError as error: answer(problem={"code": error.code, "detail": error.message, **error.details}, status=500)
try:
    result = function(*args, **kwargs)
    if inspect.iscoroutine(result): result = asyncio.run(result)
except BaseException as error:
    text = f"{type(error).__name__}: {error}"
    answer(problem={"code": "function_error", "detail": text, "error": describe(error)}, status=500)
if kind == "application/vnd.dgsf.pickle": answer(kind=kind, body=cloudpickle.dumps(result))
elif isinstance(result, bytes): answer(kind="application/octet-stream", body=result)
else: answer(kind="application/json", body=json.dumps(result).encode())
"""


@dataclass
class Fault:
    status: int
    problem: dict
    headers: dict = field(default_factory=dict)
    drop: bool = False  # close the connection without an answer


class FakePlatform:
    def __init__(self) -> None:
        self.api_key = KEY
        self.url = ""
        self.functions: dict[str, dict] = {}
        self.codes: dict[str, bytes] = {}
        self.requests: list[tuple[str, str, dict]] = []
        self.faults: list[Fault] = []
        self.deploys = 0
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self) -> FakePlatform:
        self._thread.start()
        assert self._started.wait(60)
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        assert not self._thread.is_alive()

    def count(self, method: str, part: str = "") -> int:
        return sum(1 for m, path, _ in self.requests if m == method and part in path)

    def _serve(self) -> None:
        runner = self._loop.run_until_complete(self._open())
        self._started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _open(self) -> web.AppRunner:
        app = web.Application(middlewares=[self._edge], client_max_size=64 * 1024 * 1024)
        app.router.add_put("/v1/functions/{name}", self._deploy)
        app.router.add_get("/v1/functions/{name}", self._describe)
        app.router.add_delete("/v1/functions/{name}", self._delete)
        app.router.add_get("/v1/functions", self._list)
        app.router.add_post("/v1/functions/{name}/invoke", self._invoke)
        app.router.add_get("/v1/{listing:devices|leases|usage|keys}", self._listing)
        app.router.add_post("/v1/keys", self._create_key)
        app.router.add_delete("/v1/keys/{id}", self._revoke)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    @web.middleware
    async def _edge(self, request: web.Request, handler):
        self.requests.append((request.method, request.path_qs, dict(request.headers)))
        try:
            if request.headers.get("Authorization") != f"Bearer {KEY}":
                raise Unauthenticated()
            return await handler(request)
        except DgsfError as error:
            return self._problem(error.status, {"code": error.code, "detail": error.message})

    @staticmethod
    def _problem(status: int, problem: dict, headers: dict | None = None) -> web.Response:
        document = {"status": status, "title": "t", "retryable": False, "call_id": "call-1", **problem}
        return web.Response(
            status=status, text=json.dumps(document), headers=headers, content_type="application/problem+json"
        )

    async def _deploy(self, request: web.Request) -> web.Response:
        manifest, code = decode_deploy(await request.read())
        assert manifest.digest == hashlib.sha256(code).hexdigest()
        name = request.match_info["name"]
        self.deploys += 1
        version = self.functions.get(name, {}).get("version", 0) + 1
        self.codes[name] = code
        self.functions[name] = {
            "name": name,
            "version": version,
            "digest": manifest.digest,
            "options": manifest.options,
            "created_at": "2030-01-31T12:00:00+00:00",
            "signature": [{f: getattr(p, f) for f in p.__struct_fields__} for p in manifest.signature],
        }
        return web.json_response(self.functions[name], status=201)

    async def _describe(self, request: web.Request) -> web.Response:
        if request.match_info["name"] not in self.functions:
            raise NotFound(f"there is no function {request.match_info['name']!r}")
        return web.json_response(self.functions[request.match_info["name"]])

    async def _delete(self, request: web.Request) -> web.Response:
        if self.functions.pop(request.match_info["name"], None) is None:
            raise NotFound()
        return web.Response(status=204)

    async def _list(self, request: web.Request) -> web.Response:
        names = sorted(self.functions)
        rest = [name for name in names if name > request.query.get("after", "")]
        page = [self.functions[name] for name in rest[:2]]
        return web.json_response({"functions": page, "next": rest[1] if len(rest) > 2 else None})

    async def _listing(self, request: web.Request) -> web.Response:
        name = request.match_info["listing"]
        row = {"name": f"{name}-1", "device_us": 1500, "amount_nano": 2_500_000, "state": "healthy", "key_id": "k1"}
        return web.json_response({name: [row]})

    async def _create_key(self, request: web.Request) -> web.Response:
        asked = await request.json()
        return web.json_response({"key_id": "k2", "key": f"dgsf_k2_{asked['role']}"}, status=201)

    async def _revoke(self, request: web.Request) -> web.Response:
        return web.Response(status=204)

    async def _invoke(self, request: web.Request) -> web.Response:
        body = await request.read()
        if self.faults:
            fault = self.faults.pop(0)
            if fault.drop:
                request.transport.abort()
            return self._problem(fault.status, fault.problem, fault.headers)
        name = request.match_info["name"]
        if name not in self.functions:
            raise NotFound(f"there is no function {name!r}")
        answer = await asyncio.to_thread(run_in_worker, self.codes[name], request.content_type, body)
        if "problem" in answer:
            if request.headers.get("Accept") != PICKLE:
                answer["problem"].get("error", {}).pop("pickle", None)
            return self._problem(answer["status"], answer["problem"])
        numbers = {"X-Call-Id": "call-1", "X-Device": "cpu-0", "X-Queue-Us": "12", "X-Device-Us": "345"}
        return web.Response(body=answer["body"], content_type=answer["kind"], headers={**numbers, "X-Cost-Nano": "345"})


def run_in_worker(code: bytes, kind: str, body: bytes) -> dict:
    """One call in a process of its own that knows nothing of the caller's files."""
    import pickle

    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", WORKER],
            input=pickle.dumps((code, kind, body)),
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
            cwd=folder,
            timeout=100,
            check=True,
        )
    return pickle.loads(done.stdout)
