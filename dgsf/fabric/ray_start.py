"""`ray start` without the parts of Ray that nobody here uses, whatever else needs them on this machine.

Where Ray's optional packages are installed a node would also run a client server, an HTTP server and
metrics exporters; Ray looks for two modules to find out.  And a head without a dashboard still starts the
dashboard's server and waits for it, a quarter of the whole start.  If a later Ray does these things in
another way, all of it runs again and does no harm.
"""

from __future__ import annotations

import sys

_OPTIONAL = ("grpc", "ray.dashboard.optional_deps")


def main() -> None:
    for name in _OPTIONAL:
        sys.modules[name] = None  # type: ignore[assignment]  # the language's own way to make an import fail
    from ray._private.node import Node
    from ray.scripts.scripts import main as ray_main

    Node.start_api_server = _no_api_server
    ray_main()


def _no_api_server(*_args: object, **_options: object) -> None:
    """In place of the dashboard's server."""


if __name__ == "__main__":
    main()
