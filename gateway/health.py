"""Liveness, readiness, metrics and the front page: the routes without a key."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from dgsf.errors import NoDevice, PlatformError, StoreUnavailable
from gateway.handling import Asked
from gateway.metrics import exposition
from gateway.reply import Reply, json_reply, text_reply
from gateway.views import Health

METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>DGSF</title></head>
<body><h1>DGSF {version}</h1>
<p>Serverless functions on a shared pool of GPUs.</p>
<ul><li><a href="/openapi.json">API description</a></li><li><a href="/healthz">Liveness</a></li>
<li><a href="/readyz">Readiness</a></li><li><a href="/metrics">Metrics</a></li></ul></body></html>
"""


def platform_version() -> str:
    try:
        return version("dgsf")
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "0.1.0"


async def healthz(asked: Asked) -> Reply:
    """The process answers; says nothing of what is behind it."""
    return json_reply(Health("ok"))


async def readyz(asked: Asked) -> Reply:
    """Whether calls can be answered now."""
    away = asked.context.catalogue.away
    if away is not None:
        raise StoreUnavailable(away.message)
    if not asked.context.ready():
        raise PlatformError("no proxy can take calls now")
    if not any(device.usable for device in await asked.context.devices.list_devices()):
        raise NoDevice("no device is healthy now; see 'dgsf devices'")
    return json_reply(Health("ready"))


async def metrics(asked: Asked) -> Reply:
    return Reply(200, METRICS_TYPE, exposition(asked.counters, asked.context.collectors))


async def front_page(asked: Asked) -> Reply:
    return text_reply(_PAGE.format(version=platform_version()), b"text/html; charset=utf-8")
