"""What the long-running commands share: the store, the catalogue and the cluster's secret."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from dgsf.errors import ConfigError

if TYPE_CHECKING:
    from dgsf.config import Settings
    from dgsf.store.catalogue import Catalogue
    from dgsf.store.database import Database


def settle_memory() -> None:
    """What has been loaded by now stays: the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@asynccontextmanager
async def open_store(settings: Settings, name: str) -> AsyncIterator[tuple[Database, Catalogue, bytes]]:
    """A database, a running catalogue and the secret, closed again at the end."""
    from dgsf.store.catalogue import Catalogue
    from dgsf.store.database import Database
    from dgsf.store.registry import Registry

    if not settings.database_url:
        raise ConfigError("DGSF_DATABASE_URL is not set; 'dgsf up' runs all parts with a database of its own")
    if not settings.cluster_secret:
        raise ConfigError("DGSF_CLUSTER_SECRET is not set; all parts of a platform share one secret")
    database = await Database.connect(settings.database_url, name=name, min_size=2, max_size=8)
    catalogue = Catalogue(Registry(database))
    try:
        await catalogue.start()
        yield database, catalogue, settings.cluster_secret.encode()
    finally:
        await catalogue.stop()
        await database.close()
