"""Where a simulation looks for a function's weights."""

from __future__ import annotations

from random import Random

from dgsf.sim.instance import Instance
from dgsf.sim.machine import Machine, request_of
from dgsf.sim.pools import parse_pool
from dgsf.sim.resident import FEW_PLACES, MOST_PLACES
from dgsf.sim.workload import FunctionSpec


def test_places_with_weights_and_room_are_the_same_from_a_table_as_one_by_one():
    random = Random(1)
    machine = Machine(parse_pool("T4:40x8"), "dgsf", 0)
    request = request_of(FunctionSpec("f", share=300, weights_mib=1.0), "t", exclusive=False)
    residency, pool, kept, most = machine._residency, machine.pool, [], 0
    for step in range(900):
        now = 5.0 * step
        if kept and random.random() < 0.4:
            machine.free(kept.pop(random.randrange(len(kept))), now)
        elif random.random() < 0.05:
            device = random.randrange(320)
            kept = [item for item in kept if device not in item.devices or machine.free(item, now)]
            machine.set_health(device, False)
            machine.set_health(device, True)
        else:
            item = machine.place_on(random.randrange(320), 0, request, now)
            kept += [item] if isinstance(item, Instance) else []
        residency.refresh("f", now)
        there = pool.resident.get("f", ())
        found = sorted(place for place in there if pool.room[place] >= 300)
        assert residency.with_room("f", 300) == found[:MOST_PLACES]
        most = max(most, len(there))
    assert most > FEW_PLACES
