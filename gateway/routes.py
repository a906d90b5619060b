"""The route table: every address of the gateway, who may use it, who answers, and what OpenAPI says.

The server matches requests against this table and the OpenAPI document is made from it, so neither can
know a route that the other does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from dgsf import errors
from dgsf.store.rows import Role
from dgsf.store.sessions import SessionInfo
from gateway import accounts, deploy, functions, health, openapi, pool, sessions
from gateway.handling import Asked, Route
from gateway.headers import FUNCTION_TYPE, JSON_TYPE, PICKLE_TYPE
from gateway.reply import Reply, json_reply
from gateway.views import (
    DeployedView,
    DeviceInfo,
    DeviceList,
    FunctionList,
    FunctionView,
    Health,
    KeyList,
    KeyRequest,
    LeaseList,
    Manifest,
    MoveRequest,
    MoveWish,
    NewKey,
    NewSession,
    SessionList,
    SessionRequest,
    UsageList,
)

PROBLEM_TYPE = "application/problem+json"
BYTES_TYPE = "application/octet-stream"
_STORE = (errors.StoreUnavailable,)
_BODY: tuple[type[errors.DgsfError], ...] = (errors.RequestError, errors.InvalidJson, errors.BodyTooLarge)
_TIME = "ISO 8601, or a time ago such as 90s, 15m, 24h or 7d"
_CALL_ERRORS: tuple[type[errors.DgsfError], ...] = (
    errors.InvalidJson,
    errors.InvalidArguments,
    errors.InvalidHeader,
    errors.NotFound,
    errors.Conflict,
    errors.BodyTooLarge,
    errors.IdempotencyMismatch,
    errors.QueueFull,
    errors.PlatformError,
    errors.StoreUnavailable,
    errors.NoDevice,
    errors.StartDeadlineMissed,
    errors.ShuttingDown,
    errors.OutcomeUnknown,
    errors.FunctionError,
    errors.ResultNotJson,
    errors.ResultNotSendable,
    errors.ResultTooLarge,
    errors.FunctionTimeout,
    errors.WorkerCrashed,
    errors.OutOfMemory,
    errors.FunctionLoadError,
)
_CALL_HEADERS = {
    "Idempotency-Key": "1 to 255 visible characters; repeats get the first answer again for 24 hours",
    "X-Request-ID": "echoed in the answer if it is printable and at most 128 characters",
    "X-Dgsf-Start-Deadline": "seconds within which the call must have started, or it is aborted and costs nothing",
    "X-Dgsf-Timeout": "seconds that one attempt may run; without it the function's own timeout",
    "X-Dgsf-Priority": "whole number from -10 (last) to 10 (first)",
}


async def _invoke(asked: Asked) -> Reply:
    return await asked.invoker.invoke_as(asked.request, asked.caller, asked.parameters["name"])


async def _openapi(asked: Asked) -> Reply:
    return json_reply(openapi.document(ROUTES, health.platform_version()))


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/functions/{name}/invoke",
        Role.invoke,
        _invoke,
        "Run a function and answer with its result: a JSON object holds keyword arguments, a JSON array positional "
        "ones, any other type is the one argument as bytes",
        content=(JSON_TYPE, BYTES_TYPE, PICKLE_TYPE),
        body={JSON_TYPE: None, PICKLE_TYPE: None, BYTES_TYPE: None},
        headers=_CALL_HEADERS,
        errors=_CALL_ERRORS,
    ),
    Route(
        "PUT",
        "/v1/functions/{name}",
        Role.deploy,
        deploy.deploy,
        "Deploy a new version: length of the metadata (4 bytes, big endian), metadata as JSON, packed code",
        status=201,
        answer=DeployedView,
        body={FUNCTION_TYPE: Manifest},
        errors=(
            errors.BodyTooLarge,
            errors.Unprocessable,
            errors.InvalidName,
            errors.UnknownOption,
            errors.InvalidOption,
            errors.PythonMismatch,
            errors.DoesNotFit,
            errors.NoDevice,
            *_STORE,
        ),
    ),
    Route(
        "GET",
        "/v1/functions/{name}",
        Role.invoke,
        functions.describe,
        "Describe a function",
        answer=FunctionView,
        errors=(errors.NotFound, *_STORE),
    ),
    Route(
        "DELETE",
        "/v1/functions/{name}",
        Role.deploy,
        functions.retire,
        "Retire a function; its name answers 404 until it is deployed again",
        status=204,
        errors=(errors.NotFound, *_STORE),
    ),
    Route(
        "GET",
        "/v1/functions",
        Role.invoke,
        functions.list_all,
        "List functions in order of their names",
        answer=FunctionList,
        query={"limit": "1 to 1000, default 100", "after": "the last name of the page before"},
        errors=(errors.RequestError, *_STORE),
    ),
    Route(
        "GET",
        "/v1/devices",
        Role.invoke,
        pool.devices,
        "List the devices of the pool, and the function hosts apart",
        answer=DeviceList,
        errors=_STORE,
    ),
    Route(
        "POST",
        "/v1/devices/{name}/drain",
        Role.operator,
        pool.drain,
        "Take a device (by name or number) out of use: no new leases, sessions move away, workers finish",
        answer=DeviceInfo,
        errors=(errors.NotFound, errors.Conflict, *_STORE),
    ),
    Route(
        "POST",
        "/v1/devices/{name}/restore",
        Role.operator,
        pool.restore,
        "Put a device that drains back to use",
        answer=DeviceInfo,
        errors=(errors.NotFound, errors.Conflict, *_STORE),
    ),
    Route(
        "POST",
        "/v1/devices/{name}/forget",
        Role.operator,
        pool.forget,
        "Take a lost device out of the listing until it starts again; one that is alive is refused",
        answer=DeviceInfo,
        errors=(errors.NotFound, errors.Conflict, *_STORE),
    ),
    Route(
        "POST",
        "/v1/sessions",
        Role.invoke,
        sessions.create,
        "Ask for a session with a remote device: a ticket, a key, and the door of the proxy that will take it",
        status=201,
        answer=NewSession,
        body={JSON_TYPE: SessionRequest},
        errors=(
            *_BODY,
            errors.InvalidOption,
            errors.DoesNotFit,
            errors.PlatformError,
            errors.NoDevice,
            *_STORE,
        ),
    ),
    Route(
        "GET",
        "/v1/sessions",
        Role.invoke,
        sessions.list_all,
        "List open sessions, newest first; operators see all, others their own tenant's",
        answer=SessionList,
        query={"ended": "1: also those that have ended"},
        errors=_STORE,
    ),
    Route(
        "GET",
        "/v1/sessions/{id}",
        Role.invoke,
        sessions.describe,
        "Show one session, open or ended; an id may be cut to a beginning that no other open one has",
        answer=SessionInfo,
        errors=(errors.NotFound, *_STORE),
    ),
    Route(
        "POST",
        "/v1/sessions/{id}/move",
        Role.operator,
        sessions.move,
        "Ask that a session moves to another device while it runs; the listing tells when it has",
        status=202,
        answer=MoveWish,
        body={JSON_TYPE: MoveRequest},
        errors=(*_BODY, errors.NotFound, *_STORE),
    ),
    Route(
        "GET",
        "/v1/leases",
        Role.invoke,
        pool.leases,
        "List who holds which slot; operators see all, others their own tenant's",
        answer=LeaseList,
        errors=_STORE,
    ),
    Route(
        "GET",
        "/v1/usage",
        Role.invoke,
        accounts.usage,
        "What this tenant's functions used and cost",
        answer=UsageList,
        query={"since": _TIME, "until": _TIME},
        errors=(errors.RequestError, *_STORE),
    ),
    Route(
        "GET",
        "/v1/keys",
        Role.operator,
        accounts.list_keys,
        "List this tenant's API keys",
        answer=KeyList,
        errors=_STORE,
    ),
    Route(
        "POST",
        "/v1/keys",
        Role.operator,
        accounts.create_key,
        "Make an API key; its text is shown this once",
        status=201,
        answer=NewKey,
        body={JSON_TYPE: KeyRequest},
        errors=(errors.RequestError, errors.InvalidJson, errors.BodyTooLarge, *_STORE),
    ),
    Route(
        "DELETE",
        "/v1/keys/{key_id}",
        Role.operator,
        accounts.revoke_key,
        "Revoke an API key; it is dead within 2 seconds everywhere",
        status=204,
        query={"force": "1: also the key of this very request"},
        errors=(errors.NotFound, errors.Conflict, *_STORE),
    ),
    Route("GET", "/healthz", None, health.healthz, "Whether this process answers", answer=Health),
    Route(
        "GET",
        "/readyz",
        None,
        health.readyz,
        "Whether calls can be answered now",
        answer=Health,
        errors=(errors.PlatformError, errors.NoDevice, *_STORE),
    ),
    Route("GET", "/metrics", None, health.metrics, "Metrics in Prometheus' text format", content=("text/plain",)),
    Route("GET", "/openapi.json", None, _openapi, "This description", content=(JSON_TYPE,)),
    Route("GET", "/", None, health.front_page, "A small page with links", content=("text/html",)),
)


@dataclass(frozen=True, slots=True)
class Match:
    route: Route
    parameters: dict[str, str]


def match(method: str, raw_path: str) -> Match:
    """The route of a request; NotFound or MethodNotAllowed if the table has none."""
    segments = raw_path.partition("?")[0].split("/")[1:]
    allowed = []
    for route in ROUTES:
        parameters = _fit(_SEGMENTS[route.pattern], segments)
        if parameters is None:
            continue
        if route.method == method or (method == "HEAD" and route.method == "GET"):
            return Match(route, parameters)
        allowed.append(route.method)
    if allowed:
        allow = ", ".join(allowed)
        raise errors.MethodNotAllowed(f"this address takes {allow}, not {method[:20]}", allow=allow)
    raise errors.NotFound("there is nothing at this address; /openapi.json lists what there is")


def _fit(pattern: list[str], segments: list[str]) -> dict[str, str] | None:
    if len(pattern) != len(segments):
        return None
    parameters = {}
    for wanted, given in zip(pattern, segments, strict=True):
        if wanted.startswith("{"):
            if not given:
                return None
            parameters[wanted[1:-1]] = unquote(given)
        elif wanted != given:
            return None
    return parameters


_SEGMENTS = {route.pattern: route.pattern.split("/")[1:] for route in ROUTES}
