"""`ray start` as if Ray's optional parts were not installed, whatever else needs them on this machine.

With them a node would also run a client server, an HTTP server and metrics exporters: more processes, more
ports and more work beside the calls, and nothing of it is used.  Ray looks for two modules to find out.
"""

from __future__ import annotations

import sys

_OPTIONAL = ("grpc", "ray.dashboard.optional_deps")


def main() -> None:
    for name in _OPTIONAL:
        sys.modules[name] = None  # type: ignore[assignment]  # the language's own way to make an import fail
    from ray.scripts.scripts import main as ray_main

    ray_main()


if __name__ == "__main__":
    main()
