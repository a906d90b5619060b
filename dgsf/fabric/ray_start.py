"""`ray start` without the parts of Ray that nobody here uses, whatever else needs them on this machine.

Where Ray's optional packages are installed a node would also run a client server, an HTTP server and
metrics exporters; Ray looks for two modules to find out.  And a head without a dashboard still starts the
dashboard's server and waits for it, a quarter of the whole start.  If a later Ray does these things in
another way, all of it runs again and does no harm.  A node that is told to be on the loopback address stays
there, where nobody from outside can reach it.
"""

from __future__ import annotations

import sys

from dgsf.fabric.ray_node import LOOPBACK, is_refusal, token_refused

_ON_LOOPBACK = (f"--node-ip-address={LOOPBACK}", f"--address={LOOPBACK}:")
_OPTIONAL = ("grpc", "ray.dashboard.optional_deps")


def main() -> None:
    for name in _OPTIONAL:
        sys.modules[name] = None  # type: ignore[assignment]  # the language's own way to make an import fail
    from ray._private import services
    from ray._private.node import Node
    from ray.scripts.scripts import main as ray_main

    Node.start_api_server = _no_api_server
    if any(word.startswith(_ON_LOOPBACK) for word in sys.argv):
        services.resolve_ip_for_localhost = _as_given
        services.get_node_ip_address = _loopback
    try:
        ray_main()
    except Exception as error:
        if not is_refusal(error):
            raise
        address = next((word.partition("=")[2] for word in sys.argv if word.startswith("--address=")), "")
        sys.stderr.write(f"error: {token_refused(address)}\n")
        sys.exit(2)


def _as_given(host: str) -> str:
    """Ray would look for an outer address of this machine."""
    return host


def _loopback(*_args: object) -> str:
    return LOOPBACK


def _no_api_server(*_args: object, **_options: object) -> None:
    """In place of the dashboard's server."""


if __name__ == "__main__":
    main()
