"""The JSON echo on Ray Serve with one replica, on a Ray of its own that listens on this machine only."""

from __future__ import annotations

import signal
import sys
from typing import Any

import ray
from ray import serve
from starlette.requests import Request

_ONGOING = 128  # more than the connections that measure, so that the limit is the software and not a setting


@serve.deployment(num_replicas=1, max_ongoing_requests=_ONGOING)
class Echo:
    async def __call__(self, request: Request) -> Any:
        return await request.json()


def main(port: int, folder: str) -> None:
    ray.init(_node_ip_address="127.0.0.1", include_dashboard=False, _temp_dir=folder, log_to_driver=False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port, "access_log": False})
        serve.run(Echo.bind(), route_prefix="/echo")  # type: ignore[attr-defined]  # the decorator adds it
        signal.pause()
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
