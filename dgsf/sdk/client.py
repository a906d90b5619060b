"""The client: the platform's HTTP interface as Python methods, each blocking and with an `.aio` twin.

Listings come back as the documents that the gateway sends.  The client keeps no state but its connections
and the memory of what this process has deployed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from dgsf.core.names import check_name
from dgsf.core.options import FunctionOptions, parse_options, refuse_without_fabric
from dgsf.errors import ConfigError, ConnectionLost, DgsfError, NotFound, UsageError
from dgsf.sdk import codec
from dgsf.sdk.bundle import Bundle, pack
from dgsf.sdk.connect import find_connection
from dgsf.sdk.failures import rebuild
from dgsf.sdk.manifest import encode_deploy, manifest_of
from dgsf.sdk.outcome import Outcome, outcome_of
from dgsf.sdk.plan import Driver, Pause, Plan, Reply, Request, twin
from dgsf.sdk.problems import error_of, problem_of, with_output
from dgsf.sdk.retry import Patience, as_call_error, send
from dgsf.sdk.transport import HttpDriver

LONGEST_CALL = 86_460.0  # a platform that is gone is noticed by TCP keep-alive long before
DEPLOY_SECONDS = 120.0
_TURN_SECONDS = 0.01
Documents = list[dict[str, Any]]


class Client:
    """One platform, as one tenant."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        data_dir: str | Path | None = None,
        driver: Driver | None = None,
    ) -> None:
        self._driver = driver or HttpDriver(find_connection(url, api_key, data_dir))
        self._ready: set[tuple[str, str, FunctionOptions]] = set()
        self._deploying: set[tuple[int, str]] = set()

    @property
    def driver(self) -> Driver:
        return self._driver

    # --- calls --------------------------------------------------------------------------------
    @twin
    def invoke(self, name: str, /, *args: Any, **kwargs: Any) -> Plan[Any]:
        """Runs a deployed function and returns its result; its own exceptions are raised here."""
        outcome = yield from self.call_plan(name, args, kwargs)
        return outcome.value

    @twin
    def outcome(
        self,
        name: str,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        own_exceptions: bool = True,
    ) -> Plan[Outcome[Any]]:
        """As `invoke`, with device, times and cost; `own_exceptions=False` raises FunctionError instead."""
        headers = {} if timeout is None else {"X-Dgsf-Timeout": f"{timeout:f}"}
        plan = self.call_plan(name, args, dict(kwargs or {}), headers=headers, own_exceptions=own_exceptions)
        return (yield from plan)

    @twin
    def post(
        self, name: str, body: bytes, content_type: str = codec.JSON, accept: str = codec.JSON
    ) -> Plan[Outcome[bytes]]:
        """Runs a function with a body as it is, as any HTTP program would; the result's bytes as they are."""
        headers = {"Content-Type": content_type, "Accept": accept}
        request = Request("POST", _path(name, "/invoke"), headers, body=body, timeout=LONGEST_CALL)
        reply = yield from _send_call(request, Patience())
        _raise_for(reply, own_exceptions=False)
        return outcome_of(reply.body, reply.headers)

    def call_plan(
        self,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        headers: Mapping[str, str] | None = None,
        patience: Patience | None = None,
        wait: float = LONGEST_CALL,
        own_exceptions: bool = True,
    ) -> Plan[Outcome[Any]]:
        """One call with pickled arguments."""
        kinds = {"Content-Type": codec.PICKLE, "Accept": codec.PICKLE}
        body = codec.dump_arguments(args, kwargs)
        request = Request("POST", _path(name, "/invoke"), {**kinds, **(headers or {})}, body=body, timeout=wait)
        reply = yield from _send_call(request, patience or Patience())
        _raise_for(reply, own_exceptions=own_exceptions)
        return outcome_of(codec.load_result(reply), reply.headers)

    # --- functions ----------------------------------------------------------------------------
    @twin
    def deploy(
        self, function: Callable[..., Any], *, name: str | None = None, options: Mapping[str, Any] | None = None
    ) -> Plan[dict[str, Any]]:
        """Deploys a plain Python function as a new version under this name."""
        parsed = parse_options(options or {})
        refuse_without_fabric(options or {}, parsed)
        bundle = pack(function)
        chosen = check_name(name or getattr(function, "__name__", None))
        return (yield from self.deploy_plan(chosen, function, parsed, bundle))

    def deploy_plan(
        self, name: str, raw: Callable[..., Any], options: FunctionOptions, bundle: Bundle
    ) -> Plan[dict[str, Any]]:
        body = encode_deploy(manifest_of(raw, options, bundle.digest), bundle.code)
        headers = {"Content-Type": codec.FUNCTION}
        found = yield from _document(Request("PUT", _path(name), headers, body=body, timeout=DEPLOY_SECONDS))
        self._ready.add((name, bundle.digest, options))
        return found

    def ensure_plan(
        self, name: str, raw: Callable[..., Any], options: FunctionOptions, bundle: Bundle, *, afresh: bool = False
    ) -> Plan[None]:
        """Deploys unless just this code with just these options is there; once per process, however many ask."""
        known, turn = (name, bundle.digest, options), (os.getpid(), name)
        if afresh:
            self._ready.discard(known)
        while known not in self._ready:
            if turn in self._deploying:  # another thread or task is at it
                yield Pause(_TURN_SECONDS)
                continue
            self._deploying.add(turn)
            try:
                yield from self._deploy_if_other(name, raw, options, bundle)
            finally:
                self._deploying.discard(turn)

    def _deploy_if_other(
        self, name: str, raw: Callable[..., Any], options: FunctionOptions, bundle: Bundle
    ) -> Plan[None]:
        try:
            there = yield from _document(Request("GET", _path(name)))
        except NotFound:
            there = {}
        if there.get("digest") == bundle.digest and _same_options(there.get("options"), options):
            self._ready.add((name, bundle.digest, options))
        else:
            yield from self.deploy_plan(name, raw, options, bundle)

    @twin
    def describe(self, name: str) -> Plan[dict[str, Any]]:
        """What is deployed under this name."""
        return (yield from _document(Request("GET", _path(name))))

    @twin
    def delete(self, name: str) -> Plan[None]:
        """Retires a function; calls to it are refused from now on."""
        _raise_for((yield Request("DELETE", _path(name))))
        self._ready = {known for known in self._ready if known[0] != name}

    @twin
    def list(self) -> Plan[Documents]:
        """All functions of this tenant."""
        found: Documents = []
        query: dict[str, str] = {}
        while True:
            page = yield from _document(Request("GET", "/v1/functions", query=query))
            found.extend(page.get("functions") or [])
            if not page.get("next"):
                return found
            query = {"after": str(page["next"])}

    # --- the pool and the bill ------------------------------------------------------------------
    @twin
    def devices(self) -> Plan[dict[str, Any]]:
        """The devices of the pool."""
        return (yield from _document(Request("GET", "/v1/devices")))

    @twin
    def leases(self) -> Plan[dict[str, Any]]:
        """Who holds which slot of which device."""
        return (yield from _document(Request("GET", "/v1/leases")))

    @twin
    def drain_device(self, name: str) -> Plan[dict[str, Any]]:
        """Takes a device out of use: no new work, sessions move away."""
        return (yield from _document(Request("POST", f"/v1/devices/{_quoted(name)}/drain")))

    @twin
    def restore_device(self, name: str) -> Plan[dict[str, Any]]:
        """Puts a device that drains back to use."""
        return (yield from _document(Request("POST", f"/v1/devices/{_quoted(name)}/restore")))

    @twin
    def forget_device(self, name: str) -> Plan[dict[str, Any]]:
        """Takes a lost device out of the listing; it is back in it if it starts again."""
        return (yield from _document(Request("POST", f"/v1/devices/{_quoted(name)}/forget")))

    # --- sessions -------------------------------------------------------------------------------
    @twin
    def open_session(
        self,
        gpu: str | Sequence[str] = "any",
        memory: str | int = "1GiB",
        wait: float | None = None,
        resumes: str = "",
    ) -> Plan[dict[str, Any]]:
        """A ticket for a session with a remote device, and where to go with it; `dgsf.attach` does the rest.

        `resumes`: the session that was lost with its proxy and is repeated by this one.
        """
        wanted = {"gpu": gpu if isinstance(gpu, str) else [*gpu], "memory": memory, "start_seconds": wait}
        if resumes:
            wanted["resumes"] = resumes
        return (yield from _document(_post_json("/v1/sessions", wanted)))

    @twin
    def sessions(self, *, ended: bool = False) -> Plan[dict[str, Any]]:
        """Open sessions, newest first."""
        return (yield from _document(Request("GET", "/v1/sessions", query={"ended": "1"} if ended else {})))

    @twin
    def session(self, session_id: str) -> Plan[dict[str, Any]]:
        """One session, open or ended."""
        return (yield from _document(Request("GET", f"/v1/sessions/{_quoted(session_id)}")))

    @twin
    def move_session(self, session_id: str, to: str = "") -> Plan[dict[str, Any]]:
        """Asks that a session moves to another device; the listing tells when it has."""
        return (yield from _document(_post_json(f"/v1/sessions/{_quoted(session_id)}/move", {"to": to})))

    @twin
    def usage(self, since: str | None = None, until: str | None = None) -> Plan[dict[str, Any]]:
        """What was used and what it cost; times as ISO 8601 text."""
        query = {name: value for name, value in (("since", since), ("until", until)) if value}
        return (yield from _document(Request("GET", "/v1/usage", query=query)))

    @twin
    def keys(self) -> Plan[dict[str, Any]]:
        """The API keys of this tenant, without their secrets."""
        return (yield from _document(Request("GET", "/v1/keys")))

    @twin
    def create_key(self, role: str, name: str = "") -> Plan[dict[str, Any]]:
        """A new API key; its text is shown this once."""
        body = msgspec.json.encode({"role": role, "name": name})
        return (yield from _document(Request("POST", "/v1/keys", {"Content-Type": codec.JSON}, body=body)))

    @twin
    def revoke_key(self, key_id: str, *, force: bool = False) -> Plan[None]:
        """Ends an API key; the one in use here only by `force`."""
        query = {"force": "1"} if force else {}
        _raise_for((yield Request("DELETE", f"/v1/keys/{_quoted(key_id)}", query=query)))

    # --- the end --------------------------------------------------------------------------------
    def close(self) -> None:
        """Ends the connections of blocking calls; async ones end with their loop, or by `aclose`."""
        if isinstance(self._driver, HttpDriver):
            self._driver.close()

    async def aclose(self) -> None:
        if isinstance(self._driver, HttpDriver):
            await self._driver.aclose()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def __reduce__(self) -> tuple[Any, ...]:
        raise ConfigError("a Client holds connections and a key and cannot be sent; make one where it is needed")


def _post_json(path: str, body: object) -> Request:
    return Request("POST", path, {"Content-Type": codec.JSON}, body=msgspec.json.encode(body))


def _quoted(name: str) -> str:
    """A name as one part of an address."""
    if not name:
        raise UsageError("the name is empty; see e.g. 'dgsf devices', 'dgsf sessions' or 'dgsf functions'")
    return quote(name, safe="")


def _path(name: str, tail: str = "") -> str:
    return f"/v1/functions/{_quoted(name)}{tail}"


def _document(request: Request) -> Plan[dict[str, Any]]:
    """The JSON object that answers this request."""
    reply = yield request
    _raise_for(reply)
    try:
        found = msgspec.json.decode(reply.body) if reply.body else {}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DgsfError(f"{request.method} {request.path} was not answered with JSON: {error}") from error
    return found if isinstance(found, dict) else {"items": found}


def _send_call(request: Request, patience: Patience) -> Plan[Reply]:
    try:
        return (yield from send(request, patience))
    except ConnectionLost as error:
        raise as_call_error(error, keyed="Idempotency-Key" in request.headers) from None


def _raise_for(reply: Reply, *, own_exceptions: bool = False) -> None:
    if reply.status < 300:
        return
    problem = problem_of(reply)
    own = own_exceptions and problem["code"] == "function_error"
    raise with_output(rebuild(problem) if own else error_of(problem), problem)


def _same_options(there: object, options: FunctionOptions) -> bool:
    try:
        return isinstance(there, dict) and parse_options(there) == options
    except DgsfError:  # deployed by another version of the platform
        return False
