"""Describe, list and retire functions."""

from __future__ import annotations

from dgsf.core.names import MAX_NAME
from dgsf.errors import RequestError
from gateway.handling import Asked
from gateway.reply import Reply, empty_reply, json_reply
from gateway.views import FunctionList, FunctionView

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000


async def describe(asked: Asked) -> Reply:
    function = await asked.context.catalogue.function(asked.tenant_id, asked.parameters["name"])
    return json_reply(FunctionView.of(function.version))


async def list_all(asked: Asked) -> Reply:
    limit = _limit(asked.query.get("limit", str(DEFAULT_LIMIT)))
    after = asked.query.get("after", "")[: 2 * MAX_NAME].replace("\0", "")
    rows = await asked.context.registry.list_functions(asked.tenant_id, limit + 1, after)
    page = rows[:limit]
    following = page[-1].name if len(rows) > limit else None
    return json_reply(FunctionList([FunctionView.of(row) for row in page], following))


async def retire(asked: Asked) -> Reply:
    name = asked.parameters["name"]
    if not await asked.context.registry.retire(asked.tenant_id, name):
        raise await asked.context.catalogue.no_function(asked.tenant_id, name)
    asked.context.catalogue.flush()
    return empty_reply()


def _limit(text: str) -> int:
    if text.isdecimal() and len(text) <= 4 and 1 <= int(text) <= MAX_LIMIT:
        return int(text)
    raise RequestError(f"limit={text[:20]!r}: expected a whole number from 1 to {MAX_LIMIT}")
