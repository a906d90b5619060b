"""Plain aiohttp on uvloop: the least that any Python gateway could do.  `/echo` for JSON, `/blob` for bytes."""

from __future__ import annotations

import sys

import uvloop
from aiohttp import web

_LARGEST_BODY = 64 * 1024 * 1024


async def echo(request: web.Request) -> web.Response:
    return web.json_response(await request.json())


async def blob(request: web.Request) -> web.Response:
    return web.Response(body=await request.read(), content_type="application/octet-stream")


def main(port: int) -> None:
    app = web.Application(client_max_size=_LARGEST_BODY)
    app.add_routes([web.post("/echo", echo), web.post("/blob", blob)])
    web.run_app(app, host="127.0.0.1", port=port, access_log=None, print=None, loop=uvloop.new_event_loop())


if __name__ == "__main__":
    main(int(sys.argv[1]))
