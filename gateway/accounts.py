"""What was used and what it cost, and the keys that may use it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import msgspec

from dgsf.errors import Conflict, NotFound, RequestError
from dgsf.store.rows import Role
from gateway import jsoncheck
from gateway.handling import Asked
from gateway.reply import Reply, empty_reply, json_reply
from gateway.views import KeyInfo, KeyList, KeyRequest, NewKey, UsageInfo, UsageList

MAX_KEY_REQUEST = 4096
_YES = ("1", "true", "yes")
_AGO = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


async def usage(asked: Asked) -> Reply:
    since, until = (_moment(asked.query.get(name), name) for name in ("since", "until"))
    rows = await asked.context.ledger.usage(asked.tenant_id, since, until)
    return json_reply(UsageList([UsageInfo.of(row) for row in rows]))


async def list_keys(asked: Asked) -> Reply:
    rows = await asked.context.registry.list_keys(asked.tenant_id)
    return json_reply(KeyList([KeyInfo.of(row) for row in rows]))


async def create_key(asked: Asked) -> Reply:
    wanted = _key_request(await asked.bodies.whole(asked.request, MAX_KEY_REQUEST))
    registry = asked.context.registry
    tenant_id, tenant = asked.tenant_id, wanted.tenant or asked.caller.tenant_name
    if wanted.tenant is not None:
        tenant_id = await registry.create_tenant(wanted.tenant)
    key = await registry.create_key(tenant_id, wanted.role, wanted.name)
    asked.context.catalogue.flush()
    return json_reply(NewKey(key.key_id, key.text, wanted.role, wanted.name, tenant), 201)


async def revoke_key(asked: Asked) -> Reply:
    key_id = asked.parameters["key_id"]
    if key_id == asked.caller.key_id and asked.query.get("force", "").lower() not in _YES:
        raise Conflict(await _why_not_ones_own(asked))
    if not await asked.context.registry.revoke_key(asked.tenant_id, key_id):
        raise NotFound("there is no such key, or it is revoked already")
    asked.context.catalogue.flush()
    return empty_reply()


async def _why_not_ones_own(asked: Asked) -> str:
    """Whoever asks has an operator's key, so only by revoking that very one can they lock themselves out."""
    own, rows = asked.caller.key_id, await asked.context.registry.list_keys(asked.tenant_id)
    others = [row for row in rows if row.key_id != own and row.role is Role.operator and row.revoked_at is None]
    if others:
        left = (
            f"{len(others)} other operator keys stay" if len(others) > 1 else f"operator key {others[0].key_id} stays"
        )
    else:
        left = "no operator key is left then, until 'dgsf up' is started again and makes one"
    return (
        f"key {own} is the one in use here: once it is revoked, nothing can be asked with it any more; {left}; "
        "use another operator key for this, or give --force (over HTTP: ?force=1)"
    )


def _key_request(body: bytes) -> KeyRequest:
    try:
        wanted = msgspec.convert(jsoncheck.parse(body), KeyRequest)
    except msgspec.ValidationError as error:
        raise RequestError(f"the key cannot be made: {error}") from None
    if "\0" in wanted.name or "\0" in (wanted.tenant or ""):
        raise RequestError("the key cannot be made: a name holds a zero character")
    return wanted


def _moment(text: str | None, name: str) -> datetime | None:
    """ISO 8601 (UTC if it names no zone), or a time ago such as 90s, 15m, 24h or 7d."""
    if not text:
        return None
    if ago := _AGO.fullmatch(text):
        return datetime.now(UTC) - timedelta(seconds=int(ago[1]) * _UNITS[ago[2]])
    try:
        # A '+' of the zone that was not quoted arrives as a space.
        moment = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
    except ValueError:
        raise RequestError(
            f"{name}={text[:40]!r}: expected a time such as 2030-01-31T12:00:00Z, or a time ago such as 24h"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
