"""Pools that are told by views, as production tells them: policies see in them what they see in a booked pool."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from dgsf.core.placement import DeviceView, KeptPoolChooser, Placer, Pool, Request, make_policy
from dgsf.core.placement.policy import placed

GIB = 1024**3


def device(number, node, free=4, slots=4, type_="T4"):
    return DeviceView(number, type_, "cuda", True, slots, 64 * GIB, free, 64 * GIB, node=node)


def slot(**more):
    return Request(("any",), GIB, **more)


def test_clustering_knows_the_classes_of_what_views_tell():
    """One slot of node a is taken; opening node b would be a second node with tasks of the same class."""
    views = [device(n, "a", 3 if n == 0 else 4) for n in range(8)] + [device(8, "b")]
    chooser = KeptPoolChooser("gpu_clustering")
    assert chooser.place(slot(), views).node == "a"
    ended = [replace(views[0], free_slots=4), *views[1:8], replace(views[8], free_slots=3)]
    assert chooser.place(slot(), ended).node == "b"
    booked = Pool.of([replace(view, free_slots=4) for view in views])
    placer = Placer(booked, make_policy("gpu_clustering"), Random(0))
    booked.take(slot(), placed(booked, 0, (0,), 250))
    assert placer.place(slot()).node == "a"


def test_clustering_counts_the_only_slot_of_a_device_as_a_slot():
    pool = Pool.of([device(n, "ab"[n // 2], 1, 1) for n in range(4)])
    placer = Placer(pool, make_policy("gpu_clustering"), Random(0))
    pool.take(slot(), placed(pool, 1, (0,), 1000))
    assert placer.place(slot()).node == "b"


@pytest.mark.parametrize("figure", ["price", "speed"])
def test_a_device_that_registers_with_another_price_or_speed_is_seen_so(figure):
    views = [device(0, "a", type_="T4"), device(1, "b", type_="A10")]
    chooser = KeptPoolChooser("dgsf")
    assert chooser.choose(slot(), views).id == 0
    worse = {"price": 100.0, "speed": 0.1}[figure]
    assert chooser.choose(slot(), [replace(views[0], **{figure: worse}), views[1]]).id == 1


def test_a_task_that_is_overdue_ends_now_and_makes_its_device_no_dearer():
    """One task is 1000 s late; opening an idle device for another would be dearer than joining it."""
    views = [device(0, "a", 3), device(1, "b")]
    assert KeptPoolChooser("dgsf").place(slot(duration_s=60.0), views, now_s=2000.0, busy_s={0: 1000.0}).node == "a"


def test_a_slice_whose_task_is_overdue_is_still_joined_by_its_tenant():
    pool = Pool.of([DeviceView(n, "T4", "cuda", True, 1, GIB, 1, GIB, free_share=1000) for n in range(2)])
    placer = Placer(pool, make_policy("dgsf_slices"), Random(0))
    asked = Request(("any",), 0, tenant="t", share=100, duration_s=60.0)
    first = pool.take(asked, placer.place(asked), 60.0)
    pool.now = 10_000.0
    again = placer.place(replace(asked, share=40))
    assert (again.devices, again.owned_slice) == (first.devices, first.owned_slice)
