"""Sessions as callers see them: a ticket for a new one, who has which, and the wish that one moves.

The gateway signs the ticket and tells where the door is; not a byte of a session passes through it.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

import msgspec

from dgsf.core.lookup import find_named
from dgsf.core.options import parse_options
from dgsf.core.rendezvous import ranked
from dgsf.errors import Conflict, NotFound, PlatformError, RequestError
from dgsf.ids import CallIds
from dgsf.store.rows import DeviceRow, ProxyRow, Role
from dgsf.wire.tickets import LIFE_SECONDS, Claims, issue, session_key
from gateway import jsoncheck
from gateway.deploy import check_device
from gateway.handling import Asked
from gateway.reply import Reply, json_reply
from gateway.views import MoveRequest, MoveWish, NewSession, SessionList, SessionRequest

MAX_REQUEST = 16 * 1024
PROXY_AGE_SECONDS = 5.0
_ids = CallIds()
Body = TypeVar("Body", SessionRequest, MoveRequest)


async def create(asked: Asked) -> Reply:
    wanted = await _body(asked, SessionRequest)
    options = parse_options({"gpu": wanted.gpu, "memory": wanted.memory})
    check_device(options.gpu, options.memory_bytes, await asked.context.devices.list_devices(), "session")
    proxy = await _proxy(asked)
    settings = asked.context.settings
    session, secret = _ids.mint(proxy.number), settings.cluster_secret.encode()
    waits = settings.start_seconds if wanted.start_seconds is None else wanted.start_seconds
    expires = datetime.now(UTC).timestamp() + LIFE_SECONDS
    resumes = _resumed(wanted.resumes)
    claims = Claims(session.bytes, asked.tenant_id, options.gpu, options.memory_bytes, waits, expires, resumes)
    return json_reply(
        NewSession(
            str(session),
            _text(issue(claims, secret)),
            _text(session_key(session.bytes, secret)),
            datetime.fromtimestamp(expires, UTC),
            proxy.host_id,
            proxy.session_unix_path or "",
            proxy.session_tcp_host or "",
            proxy.session_tcp_port or 0,
        ),
        201,
    )


async def list_all(asked: Asked) -> Reply:
    ended = asked.query.get("ended", "").lower() in ("1", "true", "yes")
    return json_reply(SessionList(await asked.context.sessions.list_sessions(_whose(asked), ended=ended)))


async def describe(asked: Asked) -> Reply:
    whose = _whose(asked)
    found = await asked.context.sessions.get_session(await _find(asked, asked.parameters["id"], whose), whose)
    if found is None:
        raise NotFound("there is no such session")
    return json_reply(found)


def _whose(asked: Asked) -> int | None:
    """The tenant whose sessions the caller may see; an operator sees all."""
    return None if asked.caller.role is Role.operator else asked.tenant_id


async def move(asked: Asked) -> Reply:
    """Only the wish is noted; the session's proxy does it and says in the listing if it could not."""
    wanted = await _body(asked, MoveRequest)
    session = await _find(asked, asked.parameters["id"])
    to = wanted.to
    if to:
        to = _target(to, await asked.context.devices.list_devices())
        found = await asked.context.sessions.get_session(session, None)
        if found is not None and found.device_name == to:
            raise Conflict(f"the session is on {to} already")
    if not await asked.context.sessions.ask_move(session, to):
        raise NotFound("there is no such session, or it has ended")
    return json_reply(MoveWish(str(session), to), 202)


def _target(wanted: str, rows: list[DeviceRow]) -> str:
    """The device that is meant. A function host is in the same listing and has none to move to."""
    for row in rows:
        if row.is_host and wanted in (row.name, row.name.rpartition("/")[2]):
            raise NotFound(
                f"{row.name} is a function host and no device: a session moves to a device, see 'dgsf devices'"
            )
    return find_named(wanted, [row.name for row in rows if not row.is_host], "device", "dgsf devices")


async def _find(asked: Asked, wanted: str, tenant_id: int | None = None) -> UUID:
    """A session by its id, or by a beginning of it that no other open one (of this tenant) has."""
    try:
        return UUID(wanted)
    except ValueError:
        rows = await asked.context.sessions.list_sessions(tenant_id, ended=False)
    return UUID(find_named(wanted, [str(row.id) for row in rows], "open session", "dgsf sessions"))


def _resumed(session: str) -> bytes:
    """Whether it can be resumed is for the proxy to find out; here it is only read."""
    try:
        return UUID(session).bytes if session else b""
    except ValueError:
        raise RequestError(f"resumes={session[:64]!r} is not the id of a session") from None


async def _proxy(asked: Asked) -> ProxyRow:
    """One of the proxies that take sessions and were heard of just now; sessions spread over them."""
    rows = await asked.context.proxies.list_proxies(PROXY_AGE_SECONDS)
    doors = {str(row.number): row for row in rows if row.session_tcp_port or row.session_unix_path}
    if not doors:
        raise PlatformError(
            "no proxy takes sessions now: it starts, or is down ('dgsf up', or a 'dgsf proxy' of its own); try again",
            retry_after=1,
        )
    return doors[ranked(str(_ids.mint()), list(doors))[0]]


async def _body(asked: Asked, kind: type[Body]) -> Body:
    body = await asked.bodies.whole(asked.request, MAX_REQUEST)
    try:
        return msgspec.convert(jsoncheck.parse(body) if body.strip() else {}, kind)
    except msgspec.ValidationError as error:
        raise RequestError(f"the request cannot be read: {error}") from None


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()
