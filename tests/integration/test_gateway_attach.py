"""attach="auto" at the gateway: decided at deploy by the profile and the distance, and told."""

from __future__ import annotations

import pytest
from gateway_world import MIB, fresh_database, running

from dgsf.core.devices import HOST
from dgsf.store.database import Database
from dgsf.store.devices import DeviceStore
from dgsf.store.rows import RoundTrip
from gateway import deploy

pytestmark = pytest.mark.asyncio
PATIENT = {"attach": "auto", "profile": [[0, 1.0], [50, 1.02], [1000, 1.3]]}
TALKATIVE = {"attach": "auto", "profile": [[0, 1.1], [50, 2.0], [1000, 9.0]]}


async def add_host(database: Database, memory: int = 4096 * MIB) -> None:
    await DeviceStore(database).register(
        name="host-0", node="here", kind=HOST, type=HOST, memory_bytes=memory, slots=4, speed=1.0,
        price_nano_per_us=0, host_id="h", unix_path="/nowhere", tcp_host=None, tcp_port=None,
    )  # fmt: skip


async def test_the_choice_follows_profile_distance_and_hosts(database_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(deploy, "HOST_SECONDS", 0.0)
    async with fresh_database(database_url) as database, running(database, fabric_round_trip_us=60.0) as world:
        lonely = await world.deploy("patient", options=PATIENT)
        assert (lonely.status, lonely.json["attach"]) == (201, "near"), "there is no host to run it"
        await add_host(database)
        found = {}
        for name, options in {
            "patient": PATIENT,
            "talkative": TALKATIVE,
            "unknown": {"attach": "auto"},
            "fabric": {"attach": "fabric"},
            "near": {},
        }.items():
            made = await world.deploy(name, options=options)
            assert made.status == 201 and made.json["options"] == options
            found[name] = (await world.ask("GET", f"/v1/functions/{name}")).json["attach"]
        assert found == {
            "patient": "fabric", "talkative": "near", "unknown": "near", "fabric": "fabric", "near": "near"
        }  # fmt: skip


async def test_too_big_for_every_host_is_near_without_a_word(database_url: str):
    async with fresh_database(database_url) as database, running(database) as world:
        await add_host(database, 1024 * MIB)
        made = await world.deploy("big", options={**PATIENT, "memory": "2GiB"})
        assert (made.status, made.json["attach"]) == (201, "near")


async def test_a_measured_way_counts_instead_of_the_setting_and_is_shown(database_url: str):
    async with fresh_database(database_url) as database, running(database, fabric_round_trip_us=60.0) as world:
        await add_host(database)
        store = DeviceStore(database)
        device, host = await store.list_devices()
        assert (await world.deploy("f", options=PATIENT)).json["attach"] == "fabric"
        await store.write_round_trips(3, [(device.id, device.incarnation, RoundTrip(700.0, False, True))])
        assert (await world.deploy("f", options=PATIENT)).json["attach"] == "near"
        await store.write_round_trips(3, [(device.id, device.incarnation, RoundTrip(70.0, True, True))])
        assert (await world.deploy("f", options=PATIENT)).json["attach"] == "fabric"
        far = RoundTrip(2000.0, False, True)
        await store.write_round_trips(
            3, [(host.id, host.incarnation, far), (device.id, device.incarnation + 1, RoundTrip(1.0, True, True))]
        )
        assert (await world.deploy("f", options=PATIENT)).json["attach"] == "near", "hosts may be far too"
        shown = (await world.ask("GET", "/v1/devices")).json
        assert shown["devices"][0]["round_trip_us"] == 70.0, "an earlier or later life's figure is not taken"
        assert shown["hosts"][0]["round_trip_us"] == 2000.0
