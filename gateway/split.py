"""One CallPort of two: near functions go to the proxy in this process, those over the fabric to the proxies apart.

The commands of a session never pass through a gateway's process, so neither do the calls whose workers have
one.  Which way a version goes never changes; it is found out once, by its options.
"""

from __future__ import annotations

from dgsf.store.catalogue import Catalogue
from dgsf.wire.ports import CallPort, CallRequest, CallStream


class SplitPort:
    """Routes by the options of the function's version."""

    __slots__ = ("_apart", "_catalogue", "_inside", "_ways")

    def __init__(self, inside: CallPort, apart: CallPort, catalogue: Catalogue) -> None:
        self._inside = inside
        self._apart = apart
        self._catalogue = catalogue
        self._ways: dict[int, CallPort] = {}  # by version

    def number_for(self, version_id: int) -> int:
        return self._way(version_id).number_for(version_id)

    def open(self, request: CallRequest) -> CallStream:
        return self._way(request.version_id).open(request)

    def _way(self, version_id: int) -> CallPort:
        return self._ways.get(version_id) or self._find_way(version_id)

    def _find_way(self, version_id: int) -> CallPort:
        """Whoever calls has just looked the version up; one forgotten meanwhile is refused by the proxy inside."""
        function = self._catalogue.known_version(version_id)
        if function is None:
            return self._inside
        way = self._ways[version_id] = self._apart if function.options.over_fabric else self._inside
        return way
