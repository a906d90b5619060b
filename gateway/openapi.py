"""The OpenAPI document, made from the route table, the error table and the option table.

Nothing in it is written by hand twice: schemas come from the msgspec classes that handlers answer with,
statuses and codes from dgsf.errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dgsf.core.options import options_table
from dgsf.errors import DgsfError, Forbidden, Unauthenticated, UsageError, all_errors
from gateway.handling import Route
from gateway.problems import title_of
from gateway.views import Problem

_REF = "#/components/schemas/{name}"
_CALL_HEADERS = {
    "X-Call-Id": "string",
    "X-Device": "string",
    "X-Queue-Us": "integer",
    "X-Device-Us": "integer",
    "X-Cost-Nano": "integer",
}


def document(routes: Sequence[Route], version: str) -> dict[str, Any]:
    """The whole description, as JSON-able data."""
    types = [kind for route in routes for kind in (route.answer, *route.body.values()) if kind is not None]
    refs, schemas = msgspec.json.schema_components([*types, Problem], ref_template=_REF)
    by_type = dict(zip([*types, Problem], refs, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.pattern, {})[route.method.lower()] = _operation(route, by_type)
    return {
        "openapi": "3.1.0",
        "info": {"title": "DGSF", "version": version, "description": "Serverless functions on a shared pool of GPUs"},
        "paths": paths,
        "components": {
            "schemas": dict(schemas),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "an API key: dgsf_..."}},
        },
        "x-errors": [_error(kind) for _, kind in sorted(http_errors().items())],
        "x-options": [
            dict(zip(("name", "expected", "default", "meaning"), row, strict=True)) for row in options_table()
        ],
    }


def http_errors() -> dict[str, type[DgsfError]]:
    """Every error that an answer can carry, by code; local mistakes never travel."""
    return {code: kind for code, kind in all_errors().items() if not issubclass(kind, UsageError)}


def errors_of(route: Route) -> tuple[type[DgsfError], ...]:
    """What a route may answer beside its own result."""
    always: tuple[type[DgsfError], ...] = (DgsfError,)
    if route.role is not None:
        always += (Unauthenticated,) if route.role == "invoke" else (Unauthenticated, Forbidden)
    return tuple(dict.fromkeys((*route.errors, *always)))


def _operation(route: Route, by_type: Mapping[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": _operation_id(route),
        "parameters": _parameters(route),
        "responses": {str(route.status): _answer(route, by_type), **_problems(route, by_type)},
        "security": [{"key": []}] if route.role is not None else [],
    }
    if route.role is not None:
        operation["x-role"] = route.role.value
    if route.body:
        content = {kind: {"schema": by_type.get(model, {})} for kind, model in route.body.items()}
        operation["requestBody"] = {"content": content}
    return operation


def _operation_id(route: Route) -> str:
    words = [word.strip("{}").replace(".", "_") for word in route.pattern.split("/") if word and word != "v1"]
    return "_".join([route.method.lower(), *words])


def _parameters(route: Route) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in route.pattern.split("/") if part.startswith("{")]
    text = {"type": "string"}
    found: list[dict[str, Any]] = [{"name": name, "in": "path", "required": True, "schema": text} for name in names]
    for place, given in (("query", route.query), ("header", route.headers)):
        found += [
            {"name": name, "in": place, "required": False, "description": meaning, "schema": text}
            for name, meaning in given.items()
        ]
    return found


def _answer(route: Route, by_type: Mapping[Any, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": "as asked"}
    if route.status != 204:
        answer["content"] = {kind: {"schema": by_type.get(route.answer, {})} for kind in route.content}
    if route.headers:
        answer["headers"] = {name: {"schema": {"type": kind}} for name, kind in _CALL_HEADERS.items()}
    return answer


def _problems(route: Route, by_type: Mapping[Any, Any]) -> dict[str, Any]:
    by_status: dict[int, list[type[DgsfError]]] = {}
    for kind in errors_of(route):
        by_status.setdefault(kind.status, []).append(kind)
    return {
        str(status): {
            "description": "; ".join(f"{kind.code}: {title_of(kind)}" for kind in kinds),
            "content": {"application/problem+json": {"schema": by_type[Problem]}},
            "x-codes": [kind.code for kind in kinds],
        }
        for status, kinds in sorted(by_status.items())
    }


def _error(kind: type[DgsfError]) -> dict[str, Any]:
    return {
        "code": kind.code,
        "status": kind.status,
        "retryable": kind.retryable,
        "billable": kind.billable,
        "title": title_of(kind),
    }
