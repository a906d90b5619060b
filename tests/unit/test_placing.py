"""What a proxy tells placement: learned durations, the ends of what runs, and where a function was lately."""

from dataclasses import replace
from datetime import UTC, datetime
from random import Random

import pytest

from dgsf.clock import ManualClock
from dgsf.core.durations import Durations, remaining
from dgsf.core.placement import DeviceView, KeptPoolChooser, Placer, Pool, Request
from dgsf.core.placement.gavel import Gavel
from dgsf.core.placement.model import NO_SLICE
from dgsf.core.placement.registry import FreshPoolChooser
from dgsf.core.residency import Residency
from dgsf.store.rows import DeviceRow, LeaseGrant, LeaseRow
from dgsf.store.views import node_views, pool_views
from proxy.directory import Directory
from proxy.placing import Placing
from proxy.post import Want

GIB = 1024**3
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def row(number, slots=4, incarnation=1, kind="cpu", **changes):
    return replace(_row(number, slots, incarnation, kind), **changes)


def _row(number, slots, incarnation, kind):
    return DeviceRow(
        id=number, name=f"box/{kind}{number}", node="box", kind=kind, type=kind, memory_bytes=8 * GIB, slots=slots,
        speed=1.0, price_nano_per_us=1, state="healthy", incarnation=incarnation, host_id="h", unix_path="/x",
        tcp_host=None, tcp_port=None, info={}, heartbeat_at=NOW,
    )  # fmt: skip


def lease(device, slot, function, held_s=0.0, tenant=1, cpu_milli=0):
    return LeaseRow(
        device_id=device, slot=slot, epoch=1, device_incarnation=1, device_name="", holder="p", holder_incarnation=1,
        version_id=1, function_name=function, tenant_id=tenant, tenant_name="t", memory_bytes=GIB, granted_at=NOW,
        expires_at=NOW, expired=False, held_s=held_s, cpu_milli=cpu_milli,
    )  # fmt: skip


def want(function, **changes):
    return Want(**{"role": "function", "tenant_id": 1, "version_id": 1, "function": function, "types": ("any",),
                   "memory_bytes": GIB} | changes)  # fmt: skip


class Held:
    """A proxy's placing, and workers that hold slots for so long."""

    def __init__(self):
        self.clock = ManualClock()
        self.placing = Placing(None, KeptPoolChooser(), self.clock)

    def worker(self, function, device, seconds, incarnation=1, **changes):
        grant = LeaseGrant(device, 0, 1, incarnation)
        self.placing.took(want(function, **changes), grant)
        self.clock.advance(int(seconds * 1e6))
        self.placing.gave_back(grant)

    def chosen(self, function, rows, leases=(), **changes):
        outlook = self.placing.outlook(rows, leases)
        return self.placing.choose(self.placing.request(want(function, **changes)), outlook).id


def test_expected_durations_follow_what_was_seen_and_forget_the_oldest_name():
    durations = Durations(remembered=5, names=2)
    assert durations.expected("f") == 0.0
    for seconds in (10, 10, 500, 10, 10):
        durations.saw("f", seconds)
    assert durations.expected("f") == 10, "one odd run does not count"
    for _ in range(3):
        durations.saw("f", 60)
    assert durations.expected("f") == 60, "a change is followed"
    durations.saw("g", 1)
    durations.saw("h", 1)
    assert (durations.expected("f"), durations.expected("g")) == (0.0, 1)


def test_what_is_overdue_lasts_a_part_of_its_age_and_the_unknown_as_long_again():
    assert [remaining(60, 20), remaining(60, 400), remaining(0, 30)] == [40, 100, 30]


def test_residency_is_of_one_life_of_a_device_and_of_late():
    residency = Residency(lately_s=100, names=2)
    residency.was(1, 7, "f", 0.0)
    assert residency.on(1, 7, 100.0) == {"f"}
    assert not residency.on(1, 7, 101.0) and not residency.on(1, 8, 1.0) and not residency.on(2, 7, 1.0)
    for name in "fgh":
        residency.was(1, 8, name, 1.0)
    assert residency.on(1, 8, 1.0) == {"g", "h"}


def test_residency_forgets_devices_where_nothing_was_lately():
    residency = Residency(lately_s=100)
    for device in range(50):
        residency.was(device, 1, "f", float(device))
    residency.was(0, 1, "g", 50.0)
    residency.was(99, 1, "f", 145.0)
    assert set(residency.devices) == {*range(45, 50), 0, 99}
    assert residency.on(0, 1, 145.0) == {"g"} and residency.on(45, 1, 145.0) == {"f"}


def test_a_function_goes_back_to_the_device_where_it_was():
    held, rows = Held(), [row(1), row(2)]
    assert held.chosen("f", rows) == 1
    held.worker("f", 2, 5)
    assert held.chosen("f", rows) == 2
    assert held.chosen("g", rows) == 1 and held.chosen("f", rows, tenant_id=2) == 1, "others are not drawn there"
    assert held.chosen("f", [row(1), row(2, incarnation=2)]) == 1, "a device server's new life has nothing left"


def test_a_function_joins_its_own_kind_whichever_proxy_holds_it():
    leases = [lease(1, 0, "g"), lease(1, 1, "g"), lease(2, 0, "f")]
    assert Held().chosen("f", [row(1), row(2)], leases) == 2


def test_a_worker_goes_where_the_others_end_when_it_does():
    """Device 1 is fuller, but free soon; a long one would keep it in use for itself."""
    held, rows = Held(), [row(1), row(2)]
    for function, seconds in (("short", 20), ("long", 4000), ("mine", 3900)):
        held.worker(function, 9, seconds)
    leases = [lease(1, 0, "short"), lease(1, 1, "short"), lease(2, 0, "long")]
    assert held.placing.request(want("mine")).duration_s == 3900
    assert held.chosen("mine", rows, leases) == 2
    assert held.chosen("stranger", rows, leases) == 1, "of whom nothing is known"


def test_workers_and_sessions_are_learned_apart_and_a_guess_stands_in():
    held = Held()
    held.worker("f", 1, 7)
    held.worker("f", 1, 70, role="session")
    asked = [held.placing.request(each).duration_s for each in (want("f"), want("f", role="session"))]
    assert asked == [7, 70]
    assert held.placing.request(want("new", guess_s=3.0)).duration_s == 3.0


def test_a_deadline_is_compared_with_the_call_and_not_with_the_life_of_its_worker():
    held = Held()
    held.worker("f", 1, 600)
    request = held.placing.request(want("f", run_s=2.0, deadline_s=5.0))
    assert (request.duration_s, request.due_s, request.deadline_s) == (600, 2.0, 5.0)
    devices = [
        DeviceView(n, t, "cuda", True, 1, 8 * GIB, 1, 8 * GIB, price=p) for n, t, p in ((1, "slow", 1), (2, "fast", 9))
    ]
    gavel = Gavel({("f", "slow"): 1.0, ("f", "fast"): 2.0}, cost_weight=1.0)
    for deadline_s, chosen in ((5.0, 1), (3.0, 2)):
        pool = Pool.of(devices)
        answer = Placer(pool, gavel, Random(0)).place(replace(request, deadline_s=deadline_s))
        assert answer.devices == (chosen,), "the fast one is dear, and taken only where the slow one would be late"


def test_processors_are_those_of_the_node_whichever_of_its_servers_they_were_given_by():
    held = Held()
    small = [row(1, node="small", info={"cpus": 2}), row(2, kind="host", node="small", info={"cpus": 2})]
    large = [row(3, node="large", info={"cpus": 8})]
    assert held.chosen("f", [*small, *large], cpu_milli=4000) == 3
    taken = [lease(3, slot, "g", cpu_milli=3000) for slot in (0, 1)]
    assert held.chosen("f", [*small, *large], taken, cpu_milli=2000) in (1, 3)
    assert held.chosen("f", [*small, *large], [*taken, lease(2, 0, "h", cpu_milli=500)], cpu_milli=2000) == 3
    full = [*taken, lease(3, 2, "g", cpu_milli=2000), lease(2, 0, "h", cpu_milli=500)]
    outlook = held.placing.outlook([*small, *large], full)
    assert held.placing.choose(held.placing.request(want("f", cpu_milli=1600)), outlook) is None
    assert held.placing.choose(held.placing.request(want("f")), outlook) is not None, "who asks for none shares"
    assert held.chosen("f", [row(4, node="silent")], cpu_milli=64_000) == 4, "a node that does not say is not counted"


@pytest.mark.parametrize("policy", ["conspirator", "dgsf_slices"])
def test_the_slice_of_production_is_a_slot_whichever_policy_places_it(policy):
    chooser, views = (
        KeptPoolChooser(policy),
        Held().placing.outlook([row(1), row(2)], [lease(1, 0, "g", tenant=2)]).views,
    )
    for tenant in (1, 2):
        asked = Held().placing.request(want("f", tenant_id=tenant))
        answer = chooser.place(asked, views)
        assert (answer.devices, answer.share, answer.owned_slice) == ((1,), 250, NO_SLICE)


def test_a_function_goes_where_its_calls_were_seen_to_be_fast():
    held = Held()
    rows = [row(1, kind="sim", type="T4"), row(2, kind="sim", type="V100"), row(3, kind="host", type="host")]
    for _ in range(64):
        held.placing.ran(("1", "a"), rows[0], 0.1)
        held.placing.ran(("1", "a"), rows[1], 1.0)
        held.placing.ran(("1", "b"), rows[0], 1.0)
        held.placing.ran(("1", "b"), rows[1], 0.1)
        held.placing.ran(("1", "b"), rows[2], 1e-3)  # the body of a fabric function; its device is elsewhere
    assert held.chosen("a", rows[:2]) == 1
    assert held.chosen("b", rows[:2]) == 2


def test_what_another_tenants_function_of_that_name_took_says_nothing():
    held, rows = Held(), [row(1, kind="sim", type="T4"), row(2, kind="sim", type="V100")]
    for _ in range(64):
        held.placing.ran(("2", "a"), rows[0], 1.0)
        held.placing.ran(("2", "a"), rows[1], 0.1)
    assert [held.chosen("a", rows, tenant_id=tenant) for tenant in (1, 2)] == [1, 2]


def test_a_look_makes_only_the_views_of_devices_that_have_changed():
    held, rows = Held(), [row(number) for number in range(1, 6)]
    leases = [lease(1, 0, "f"), lease(2, 0, "g")]
    before = held.placing.outlook(rows, leases).views
    later = datetime(2026, 1, 2, tzinfo=UTC)
    again = [replace(each, heartbeat_at=later) for each in rows]
    aged = [replace(each, held_s=each.held_s + 5.0) for each in leases]
    held.placing.took(want("h"), LeaseGrant(3, 0, 1, 1))
    after = held.placing.outlook(again, [*aged, lease(4, 0, "f")]).views
    changed = [new.id for old, new in zip(before, after, strict=True) if old is not new]
    assert changed == [3, 4], "neither a heartbeat nor the age of a lease changes what a device looks like"
    assert after[2].weights == {"1/h"}


@pytest.mark.parametrize("seed", range(20))
def test_views_that_are_kept_are_those_that_would_be_made_anew(seed):
    random, held, rows, leases = Random(seed), Held(), [row(number, info={"cpus": 8}) for number in range(1, 9)], []
    for _ in range(30):
        what = random.randrange(6)
        if what == 0:
            number = random.randint(1, 9)
            rows = sorted(
                [*(each for each in rows if each.id != number), row(number, node=random.choice("ab"))], key=_id
            )
        elif what == 1:
            rows = rows[1:] or rows
        elif what == 2:
            state, life = random.choice(("healthy", "lost")), random.randint(1, 2)
            rows = [replace(rows[0], state=state, incarnation=life), *rows[1:]]
        elif what == 3:
            held.worker(random.choice("fg"), random.randint(1, 9), 1000, incarnation=random.randint(1, 2))
        elif what == 4 and leases:
            leases = leases[1:]
        else:
            function = random.choice("fgh")
            leases = [
                *leases,
                lease(random.randint(1, 9), 0, function, random.random() * 99, cpu_milli=random.choice((0, 700))),
            ]
        outlook = held.placing.outlook(rows, leases)
        fresh = Placing(None, KeptPoolChooser(), held.clock)
        fresh._residency, fresh._durations = held.placing._residency, held.placing._durations
        assert outlook == fresh.outlook(list(rows), leases)
        assert [replace(view, weights=frozenset()) for view in outlook.views] == pool_views(rows, leases)
        assert outlook.nodes == node_views(rows, leases) and outlook.rows == {each.id: each for each in rows}


def _id(device):
    return device.id


def test_an_outlook_narrows_to_those_that_will_do_and_placement_is_shown_the_same_pool():
    rows = [row(1), row(2, kind="dummy"), row(3, kind="host"), row(4)]
    held = Held()
    whole = held.placing.outlook(rows, [])
    narrowed = [
        whole.devices(), whole.devices("box/cpu4"), whole.devices("box/host3"), whole.with_values(dummy=True),
        whole.devices().with_values(dummy=False), whole.only(3), whole.only(9), whole.without([1, 9]).devices(),
        whole.only(1).without([1]),
    ]  # fmt: skip
    ids = [[view.id for view in each.candidates] for each in narrowed]
    assert ids == [[1, 2, 4], [4], [], [2], [1, 4], [3], [], [2, 4], []]
    assert all(each.views is whole.views and each.nodes is whole.nodes for each in narrowed)
    asked, kept = held.placing.request(want("f", types=("cpu",))), set()
    for each, device in ((whole, 1), (whole.without([1]), 4), (whole.only(4), 4), (whole.only(2), None), (whole, 1)):
        chosen = held.placing.choose(asked, each)
        assert (chosen.id if chosen else None) == device
        kept.add(id(held.placing._chooser._kept))
    assert len(kept) == 1, "one pool, kept all along"


@pytest.mark.parametrize("chooser", [KeptPoolChooser, FreshPoolChooser])
def test_until_when_devices_are_in_use_can_be_told_apart_from_their_views(chooser):
    views, asked = (
        [DeviceView(n, "a", "cuda", True, 4, GIB, 2, GIB) for n in (1, 2)],
        Request(("any",), 0, duration_s=60.0),
    )
    chosen = chooser()
    for busy_s, device in (({1: 60.0, 2: 900.0}, 1), ({1: 900.0, 2: 60.0}, 2), ({2: 60.0, 7: 1.0}, 2), (None, 1)):
        assert chosen.choose(asked, views, busy_s=busy_s).id == device
    told = [replace(view, busy_until_s=at) for view, at in zip(views, (900.0, 60.0), strict=True)]
    assert chosen.choose(asked, told).id == 2


class Stores:
    """Devices and leases as a directory reads them."""

    def __init__(self, rows):
        self.rows, self.raised, self.read = rows, 1, 0

    async def version(self):
        return self.raised

    async def list_devices(self):
        self.read += 1
        return list(self.rows)

    async def list_leases(self, _tenant):
        return []


async def test_rows_of_devices_are_read_again_only_when_one_has_changed():
    stores = Stores([row(1), row(2)])
    directory = Directory(stores, stores, b"", "here", False, "p")
    first, again = [(await directory.rows_and_leases())[0] for _ in range(2)]
    assert first is again and stores.read == 1
    stores.rows, stores.raised = [row(1), row(2, state="draining")], 2
    assert [each.state for each in (await directory.rows_and_leases())[0]] == ["healthy", "draining"]
