"""What a handler of the slow routes is given, and the table's row type."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from dgsf.errors import DgsfError
from dgsf.store.catalogue import Principal
from dgsf.store.rows import Role
from gateway.body import BodyReader
from gateway.context import Context
from gateway.invoke import Invoker
from gateway.metrics import Counters
from gateway.reply import Reply


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, routed and authorised; `principal` is None on public routes."""

    request: web.BaseRequest
    context: Context
    bodies: BodyReader
    invoker: Invoker
    counters: Counters
    principal: Principal | None
    parameters: Mapping[str, str]

    @property
    def caller(self) -> Principal:
        assert self.principal is not None, "a route without a role has no caller"
        return self.principal

    @property
    def tenant_id(self) -> int:
        return self.caller.tenant_id

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query


Handler = Callable[[Asked], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Route:
    """One row of the route table: what it is, who may, who does it, and what OpenAPI says of it."""

    method: str
    pattern: str
    role: Role | None
    handler: Handler
    summary: str
    status: int = 200
    answer: Any = None  # a msgspec type, or None for something that is no JSON
    content: tuple[str, ...] = ("application/json",)
    body: Mapping[str, Any] = field(default_factory=dict)  # content type: msgspec type or None
    query: Mapping[str, str] = field(default_factory=dict)  # name: meaning
    headers: Mapping[str, str] = field(default_factory=dict)
    errors: tuple[type[DgsfError], ...] = ()

    @property
    def name(self) -> str:
        return f"{self.method} {self.pattern}"
