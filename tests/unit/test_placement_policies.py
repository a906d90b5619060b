"""The policies behind one interface: what each prefers, what none ever does."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from dgsf.config import load_settings
from dgsf.core.placement import (
    DeviceView,
    KeptPoolChooser,
    NodeView,
    Placement,
    Placer,
    Pool,
    Refusal,
    Request,
    Workload,
    fragmentation,
    make_policy,
    policy_names,
    prices,
)
from dgsf.core.placement.fgd import Fgd
from dgsf.core.placement.gavel import Gavel
from dgsf.core.placement.ours import Dgsf, longer_in_use
from dgsf.core.placement.prices import room_prices
from dgsf.core.placement.slices import Conspirator
from dgsf.core.policies import DEFAULT_PLACEMENT, PLACEMENT_POLICIES
from dgsf.errors import ConfigError

GIB = 1024**3


def gpu(number, node="", free=1000, type_="A100", healthy=True, **more):
    slots = {"slots": 1, "free_slots": int(free == 1000), **more}
    return DeviceView(
        number, type_, "cuda", healthy, memory_bytes=8 * GIB, free_memory=8 * GIB, node=node, free_share=free, **slots
    )


def share(thousandths, **more):
    return Request(("any",), 0, share=thousandths, **more)


def place(policy, request, devices, nodes=()):
    pool = Pool.of(devices, nodes)
    return Placer(pool, policy, Random(0)).place(request)


def test_settings_and_registry_name_the_same_policies():
    assert set(policy_names()) == set(PLACEMENT_POLICIES)
    assert load_settings({}).placement == DEFAULT_PLACEMENT == "dgsf"


def test_an_unknown_policy_is_refused_with_the_names_there_are():
    with pytest.raises(ConfigError, match=r"DGSF_PLACEMENT='bestfit'.*best_fit"):
        load_settings({"DGSF_PLACEMENT": "bestfit"})
    with pytest.raises(ConfigError, match="there are: dgsf"):
        make_policy("bestfit")


@pytest.mark.parametrize("name", PLACEMENT_POLICIES)
def test_every_policy_places_shares_slots_and_whole_devices_and_refuses_what_has_no_room(name):
    devices = [gpu(1, "a"), gpu(2, "a"), gpu(3, "b", free=400)]
    nodes = [NodeView("a", 8000, GIB), NodeView("b", 8000, GIB)]
    for request, count in [
        (share(300, tenant="t"), 1),
        (Request(("any",), GIB), 1),
        (Request(("any",), 0, devices=2, cpu_milli=4000), 2),
        (share(0, cpu_milli=1000), 0),
    ]:
        answer = place(make_policy(name), request, devices, nodes)
        assert isinstance(answer, Placement), (name, request)
        assert len(answer.devices) == count
    for request, ever in (
        (Request(("any",), 0, devices=3), False),
        (share(100, cpu_milli=9000), True),  # what its nodes have in all is not told
        (share(100, host_memory=2 * GIB), True),
    ):
        answer = place(make_policy(name), request, devices, nodes)
        assert isinstance(answer, Refusal) and answer.ever == ever


def test_a_type_that_is_not_there_will_never_be():
    answer = place(make_policy("dgsf"), Request(("H100",), 0), [gpu(1)])
    assert answer == Refusal("no device of type H100; the pool has: A100", ever=False)


@pytest.mark.parametrize(("name", "device"), [("first_fit", 1), ("best_fit", 2), ("worst_fit", 1), ("gpu_packing", 2)])
def test_classic_policies_choose_as_their_names_say(name, device):
    devices = [gpu(1, "a", free=900), gpu(2, "b", free=300), gpu(3, "c", free=500)]
    assert place(make_policy(name), share(300), devices).devices == (device,)


def test_clustering_keeps_classes_together():
    pool = Pool.of([gpu(number, node) for number, node in enumerate("aabb")])
    placer = Placer(pool, make_policy("gpu_clustering"), Random(0))
    whole, part = Request(("any",), 0, devices=1), share(500)
    pool.take(whole, placer.place(whole))
    first = placer.place(part)
    assert first.node == "b"
    pool.take(part, first)
    assert placer.place(whole).node == "a"
    assert placer.place(part).node == "b"


def test_random_depends_on_the_seed_alone():
    def run(seed):
        pool = Pool.of([gpu(number) for number in range(50)])
        placer = Placer(pool, make_policy("random"), Random(seed))
        return [placer.place(share(10)).devices for _ in range(20)]

    assert run(1) == run(1) != run(2)


def test_fgd_keeps_the_room_that_popular_shapes_can_use():
    workload = Workload([share(700)] * 9 + [share(300)])
    devices = [gpu(1, "a", free=700), gpu(2, "b", free=300)]
    assert place(Fgd(workload), share(300), devices).devices == (2,)
    assert place(Dgsf(workload), share(300), devices).devices == (2,)


@pytest.mark.parametrize("name", ["fgd", "dgsf"])
def test_a_pool_measured_in_blocks_is_measured_the_same(name, monkeypatch):
    def run():
        pool = Pool.of([gpu(number, f"n{number // 4}", free=100 * (number % 7) + 400) for number in range(64)])
        placer = Placer(pool, make_policy(name), Random(0))
        places = []
        for turn in range(120):
            request = share((150, 250, 400)[turn % 3])
            answer = placer.place(request)
            if isinstance(answer, Placement):
                pool.take(request, answer)
                places.append(answer.devices)
        return places

    whole = run()
    monkeypatch.setattr(fragmentation, "BLOCK", 4)
    assert run() == whole


def test_ours_does_not_strand_gpus_without_processors():
    hungry = share(1000, devices=1, cpu_milli=10_000)
    workload = Workload([hungry] * 10)
    nodes = [NodeView("short", 10_000), NodeView("rich", 64_000)]
    devices = [gpu(1, "short"), gpu(2, "rich")]
    assert place(Dgsf(workload), share(0, cpu_milli=8000), devices, nodes).node == "rich"


def test_prices_say_what_fits_together():
    found = room_prices(((300, 10), (700, 10)))
    assert found[0] == 0 and found[1000] == pytest.approx(1)
    assert found[300] + found[700] == pytest.approx(1)
    assert (np.diff(found) >= -1e-9).all()
    assert room_prices(((470, 3), (810, 3)))[810] == pytest.approx(1)  # nothing fits beside 810


def test_however_many_sizes_are_asked_for_a_device_is_priced_soon_and_worth_one():
    """Hundreds of sizes took seconds, and prices that added up to more than the device."""
    sizes = tuple((share, 1 + share % 7) for share in range(3, 1000, 3))
    assert len(prices._merged(sizes)) <= prices.MOST_SIZES
    found = room_prices(sizes)
    assert (np.diff(found) >= 0).all() and found[1000] == pytest.approx(1)
    assert prices._merged(sizes[:32]) == sizes[:32], "few are priced as they are"
    seldom = tuple((share, 1000 if share == 500 else 1) for share in range(10, 1000, 10))
    merged = dict(prices._merged(seldom))
    assert merged[500] >= 1000 and sum(merged.values()) == sum(count for _, count in seldom)
    assert max(merged) == 990, "all of them fit into what stands for them"


def test_weights_draw_a_request_to_where_they_are():
    devices = [gpu(1, "a", free=500), gpu(2, "b", weights=frozenset({"llama"}))]
    assert place(make_policy("dgsf"), share(100), devices).devices == (1,)
    assert place(make_policy("dgsf"), share(100, weights="llama"), devices).devices == (2,)
    assert place(make_policy("dgsf"), share(100, weights="llama", duration_s=5.0), devices).devices == (2,)


def test_a_task_goes_where_the_device_is_in_use_anyway():
    devices = [gpu(1, free=500, busy_until_s=50.0), gpu(2, free=400, busy_until_s=2000.0), gpu(3)]
    assert place(make_policy("dgsf"), share(100, duration_s=1800.0), devices).devices == (2,)


def test_an_idle_device_stays_idle_while_one_in_use_has_room():
    policy = make_policy("dgsf")
    devices = [gpu(1), gpu(2, free=900, slots=4, free_slots=3), gpu(3, free=200)]
    assert place(policy, share(50), devices).devices != (1,)


def test_of_two_devices_the_one_with_more_tasks_stays_in_use_longer():
    devices = [gpu(1, free=700, slots=9, free_slots=8), gpu(2, free=700, slots=9, free_slots=4)]
    assert place(make_policy("dgsf"), share(100), devices).devices == (2,)
    assert longer_in_use(np.array([0, 1, 3])).tolist() == [1.0, 0.5, 0.25]


def test_gavel_picks_the_type_that_suits_the_function():
    devices = [gpu(1, type_="K80", price=1.0), gpu(2, type_="V100", price=4.0)]
    speeds = {("conv", "K80"): 1.0, ("conv", "V100"): 9.0, ("tiny", "K80"): 2.0, ("tiny", "V100"): 2.2}
    dear = Gavel(speeds, cost_weight=1.0)
    assert place(Gavel(speeds, cost_weight=0.0), share(100, function="tiny"), devices).devices == (2,)
    assert place(dear, share(100, function="tiny"), devices).devices == (1,)
    assert place(dear, share(100, function="conv"), devices).devices == (2,)
    soon = share(100, function="tiny", duration_s=10.0, deadline_s=10.5)
    assert place(dear, soon, devices).devices == (2,)


def test_conspirator_joins_its_tenants_slice_and_leaves_others_alone():
    pool = Pool.of([gpu(1), gpu(2)])
    placer = Placer(pool, Conspirator(), Random(0))

    def arrive(tenant, thousandths):
        request = share(thousandths, tenant=tenant)
        return pool.take(request, placer.place(request))

    first, joined, other = arrive("t", 100), arrive("t", 40), arrive("u", 40)
    assert (first.share, joined.share, other.share) == (140, 0, 140)
    assert joined.owned_slice == first.owned_slice != other.owned_slice
    assert [(part.tenant, part.used) for part in pool.slices_of(1)] == [("t", 140), ("u", 40)]
    pool.give_back(share(100, tenant="t"), first)
    assert pool.left[0, 0] == 720
    pool.give_back(share(40, tenant="t"), joined)
    assert pool.left[0, 0] == 860


@pytest.mark.parametrize("name", ["conspirator", "dgsf_slices"])
def test_a_slice_on_a_type_is_joined_only_if_no_preferred_type_has_room(name):
    def second(types, free=1000):
        pool = Pool.of([gpu(1, free=free), gpu(2, type_="T4"), gpu(3, type_="P100")])
        placer = Placer(pool, make_policy(name), Random(0))
        for type_ in ("P100", "T4"):  # the tenant has a slice on each
            first = Request((type_,), 0, tenant="t", share=100)
            pool.take(first, placer.place(first))
        return placer.place(Request(types, 0, tenant="t", share=40))

    assert second(("A100", "T4")).devices == (1,)
    for answer in (second(("T4", "A100")), second(("T4", "P100")), second(("A100", "T4"), free=100)):
        assert answer.devices == (2,) and answer.owned_slice > 0


def test_a_slice_is_not_joined_on_an_unhealthy_device():
    pool = Pool.of([gpu(1), gpu(2)])
    placer = Placer(pool, Conspirator(), Random(0))
    request = share(50, tenant="t")
    pool.take(request, placer.place(request))
    pool.set_health(1, False)
    assert placer.place(request).devices == (2,)
    pool.set_health(1, True)
    assert placer.place(request).devices == (1,)


def test_taking_more_than_there_is_is_refused():
    pool = Pool.of([gpu(1, "a")], [NodeView("a", 1000, GIB)])
    request = share(600)
    answer = Placer(pool, make_policy("first_fit"), Random(0)).place(request)
    pool.take(request, answer)
    with pytest.raises(ValueError, match="too little left"):
        pool.take(request, answer)
    with pytest.raises(ValueError, match="CPU or memory"):
        pool.take(share(100, cpu_milli=2000), answer)


def test_types_that_share_a_node_share_its_processors():
    devices = [gpu(1, "a", type_="A100"), gpu(2, "a", type_="T4")]
    pool = Pool.of(devices, [NodeView("a", 4000)])
    placer = Placer(pool, make_policy("best_fit"), Random(0))
    request = Request(("T4",), 0, share=100, cpu_milli=3000)
    pool.take(request, placer.place(request))
    assert isinstance(placer.place(Request(("A100",), 0, share=100, cpu_milli=3000)), Refusal)


def test_equal_types_are_written_with_a_bar():
    devices = [gpu(1, type_="T4", free=900), gpu(2, type_="A10", free=300), gpu(3, type_="A100", free=100)]
    chooser = KeptPoolChooser("best_fit")
    assert chooser.choose(Request(("T4|A10", "A100"), 0, share=100), devices).id == 2


def test_a_chooser_goes_on_learning_between_views():
    chooser = KeptPoolChooser("fgd")
    for _ in range(40):
        chooser.place(share(700), [gpu(1)])
    assert chooser.place(share(300), [gpu(1, free=700), gpu(2, free=300)]).devices == (2,)


def test_a_node_without_devices_takes_what_needs_none():
    nodes = [NodeView("gpus", 1000), NodeView("cpus", 8000)]
    assert place(make_policy("dgsf"), share(0, cpu_milli=4000), [gpu(1, "gpus")], nodes).node == "cpus"
    assert isinstance(place(make_policy("dgsf"), share(100, cpu_milli=4000), [gpu(1, "gpus")], nodes), Refusal)


def test_an_empty_pool_refuses():
    assert place(make_policy("dgsf"), share(100), []) == Refusal(
        "no device of type any; the pool has: none", ever=False
    )


@pytest.mark.parametrize("seed", [4, 18])
def test_the_default_chooses_the_same_whether_its_scores_were_kept_or_not(seed):
    """Also where memory is taken on the device that has the most left."""
    random = Random(seed)
    sizes = [random.choice((16, 24, 80)) * GIB for _ in range(12)]
    views = [
        DeviceView(n, "g", "cuda", True, 1, m, 1, m, node=f"n{n // 2}", free_share=1000) for n, m in enumerate(sizes)
    ]
    pool, policy, held = Pool.of(views), Dgsf(), []
    kept = Placer(pool, Dgsf(), Random(0))
    for _ in range(60):
        request = Request(("any",), random.choice((0, 1, 4, 14, 40)) * GIB, share=random.choice((50, 100, 200)))
        answer = kept.place(request)
        assert answer == Placer(pool, policy, Random(0)).place(request)
        if isinstance(answer, Placement):
            held.append((request, pool.take(request, answer)))
        if random.random() < 0.4:
            pool.give_back(*held.pop(random.randrange(len(held))))


@pytest.mark.parametrize("duration_s", [0.0, 600.0])
def test_ours_keeps_a_node_that_could_hold_those_who_ask_for_all_of_it(duration_s):
    """They are rare, and whoever takes a little of an idle node makes them wait until that ends."""
    large = share(1000, devices=4, cpu_milli=40_000)
    small = share(250, cpu_milli=2000, duration_s=duration_s)
    nodes = [NodeView("idle", 41_000), NodeView("used", 20_000)]
    devices = [*(gpu(number, "idle") for number in range(4)), gpu(4, "used"), gpu(5, "used")]
    some, none = Workload([small] * 60 + [large] * 3), Workload([small] * 60)
    assert place(Dgsf(some), small, devices, nodes).node == "used"
    processors = share(0, cpu_milli=4200)
    assert place(Dgsf(some), processors, devices, nodes).node == "used"
    assert place(Dgsf(none), processors, devices, nodes).node == "idle", "the other would lack them for its devices"
