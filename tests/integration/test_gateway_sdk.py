"""The SDK's client and the gateway mean the same by the same words."""

from __future__ import annotations

import pytest
from gateway_world import running

from dgsf.errors import NotFound
from dgsf.sdk.client import Client
from dgsf.store.database import Database


def triple(x: float, times: int = 3) -> float:
    """Multiplies."""
    return x * times


async def test_the_client_deploys_describes_lists_and_deletes(database: Database):
    async with running(database) as world, Client(url=world.url, api_key=world.keys["operator"]) as client:
        made = await client.deploy.aio(triple, name="triple", options={"timeout": 5})
        assert (made["version"], made["doc"], made["options"]) == (1, "Multiplies.", {"timeout": 5.0})
        assert made == {**await client.describe.aio("triple"), "attach_reason": None}
        assert "triple" in [item["name"] for item in await client.list.aio()]
        await client.delete.aio("triple")
        with pytest.raises(NotFound):
            await client.describe.aio("triple")


async def test_the_client_reads_the_pool_the_bill_and_keys(database: Database):
    async with running(database) as world, Client(url=world.url, api_key=world.keys["operator"]) as client:
        await world.call()
        assert (await client.devices.aio())["devices"][0]["name"] == "cpu-0"
        assert (await client.leases.aio())["leases"] == []
        assert (await client.usage.aio(since="2020-01-01T00:00:00+00:00"))["usage"][0]["calls"] == 1
        key = await client.create_key.aio("invoke", "ci")
        assert key["key_id"] in [item["key_id"] for item in (await client.keys.aio())["keys"]]
        await client.revoke_key.aio(key["key_id"])
        assert (await world.ask("GET", "/v1/functions", key=key["key"])).status == 401
