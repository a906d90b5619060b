"""What the handlers share: the settings, the stores, and the port that takes calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prometheus_client.registry import Collector

from dgsf.config import Settings
from dgsf.store.calls import CallStore
from dgsf.store.catalogue import Catalogue
from dgsf.store.database import Database
from dgsf.store.devices import DeviceStore
from dgsf.store.leases import LeaseStore
from dgsf.store.ledger import Ledger
from dgsf.store.proxies import ProxyStore
from dgsf.store.registry import Registry
from dgsf.store.sessions import SessionStore
from dgsf.wire.ports import CallPort
from dgsf.wire.shared import SharedArea


@dataclass(frozen=True, slots=True)
class Context:
    """One gateway's surroundings; everything in it outlives the gateway."""

    settings: Settings
    port: CallPort
    area: SharedArea
    catalogue: Catalogue
    registry: Registry
    calls: CallStore
    ledger: Ledger
    devices: DeviceStore
    leases: LeaseStore
    sessions: SessionStore
    proxies: ProxyStore
    collectors: Sequence[Collector] = ()
    ready: Callable[[], bool] = lambda: True  # whether the port can take calls now

    @classmethod
    def over(
        cls,
        database: Database,
        settings: Settings,
        port: CallPort,
        area: SharedArea,
        catalogue: Catalogue,
        collectors: Sequence[Collector] = (),
        ready: Callable[[], bool] = lambda: True,
    ) -> Context:
        """All stores over one database."""
        return cls(
            settings,
            port,
            area,
            catalogue,
            Registry(database),
            CallStore(database),
            Ledger(database),
            DeviceStore(database),
            LeaseStore(database),
            SessionStore(database),
            ProxyStore(database),
            collectors,
            ready,
        )
