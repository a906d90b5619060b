"""Whatever changes in the pool: the pool that a chooser keeps answers as one made anew from the same views does."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgsf.core.placement import DeviceView, KeptPoolChooser, NodeView, Refusal, Request
from dgsf.core.placement.model import Slice
from dgsf.core.placement.registry import FreshPoolChooser
from dgsf.core.policies import PLACEMENT_POLICIES

GIB = 1024**3
NUMBERS = st.integers(0, 8)
requests = st.builds(
    Request,
    types=st.sampled_from([("any",), ("A",), ("B", "A"), ("A|B",), ("C",)]),
    memory_bytes=st.sampled_from([0, GIB, 3 * GIB, 9 * GIB]),
    tenant=st.sampled_from(["t", "u"]),
    function=st.sampled_from(["f", "g"]),
    share=st.sampled_from([None, None, None, 140, 300, 1000]),
    devices=st.sampled_from([0, 0, 0, 2, 3]),
    cpu_milli=st.sampled_from([0, 1000, 4000, 20_000]),
    duration_s=st.sampled_from([0.0, 10.0, 100.0]),
    deadline_s=st.sampled_from([None, 20.0]),
    weights=st.sampled_from(["", "f", "g"]),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, 2)),
        st.tuples(
            st.sampled_from(["lease", "lease", "lease", "end", "fail", "mend", "go", "come", "replaced"]), NUMBERS
        ),
        st.tuples(st.just("ask_for"), st.integers(0, 2), st.sets(NUMBERS, max_size=9)),
        st.tuples(st.just("warm"), NUMBERS, st.sampled_from([frozenset(), frozenset("f")])),
        st.tuples(st.just("until"), NUMBERS, st.sampled_from([0.0, 50.0, 500.0])),
        st.tuples(st.just("slices"), NUMBERS, st.sampled_from([(), (Slice("t", 280, 140),)])),
        st.tuples(st.just("cpu"), NUMBERS, st.sampled_from([0, 2000, 16_000])),
        st.tuples(st.just("rebuilt"), NUMBERS, st.sampled_from([8_000, 12_000])),
        st.tuples(st.just("silent"), NUMBERS),
        st.tuples(st.sampled_from(["priced", "timed"]), NUMBERS, st.sampled_from([0.1, 1.0, 50.0])),
        st.tuples(st.just("priced"), NUMBERS, st.just(0.0)),
        st.tuples(st.just("turned"), NUMBERS),
    ),
    min_size=20,
    max_size=60,
)


def view(number):
    return DeviceView(
        number, "AB"[number % 2], "cuda", True, 4, 4 * GIB, 4, 4 * GIB, node=f"n{number // 3}", node_cpu_milli=16_000
    )


class World:
    """Views that change, and two choosers that are asked the same."""

    def __init__(self, name):
        self.views = {number: view(number) for number in range(8)}
        self.nodes = [NodeView(f"n{number}", 16_000) for number in range(3)]
        self.kept, self.fresh = KeptPoolChooser(name, Random(3)), FreshPoolChooser(name, Random(3))

    def change(self, number, **changes):
        if number in self.views:
            self.views[number] = replace(self.views[number], **changes)

    def lease(self, number):
        if number in self.views and self.views[number].free_slots and self.views[number].free_memory >= GIB:
            free, memory = self.views[number].free_slots - 1, self.views[number].free_memory - GIB
            self.change(number, free_slots=free, free_memory=memory)

    def end(self, number):
        if number in self.views and self.views[number].free_slots < 4:
            free, memory = self.views[number].free_slots + 1, self.views[number].free_memory + GIB
            self.change(number, free_slots=free, free_memory=memory)

    def fail(self, number):
        self.change(number, healthy=False)

    def mend(self, number):
        self.change(number, healthy=True)

    def go(self, number):
        if len(self.views) > 1:
            self.views.pop(number, None)

    def come(self, number):
        self.views.setdefault(number, view(number))

    def replaced(self, number):
        self.change(number, memory_bytes=8 * GIB, free_memory=8 * GIB, free_slots=4)

    def warm(self, number, names):
        self.change(number, weights=names)

    def until(self, number, at):
        self.change(number, busy_until_s=at)

    def slices(self, number, owned):
        self.change(number, slices=owned, free_share=720 if owned else None)

    def cpu(self, number, free):
        self.nodes = [NodeView(node.name, free) if node.name == f"n{number % 3}" else node for node in self.nodes]

    def rebuilt(self, number, cpu_milli):
        """A node has another number of processors."""
        there = [node for node in self.nodes if node.name != f"n{number % 3}"]
        self.nodes = [*there, NodeView(f"n{number % 3}", cpu_milli, 4 * GIB, cpu_milli, 4 * GIB)]

    def silent(self, number):
        """A node of which nothing is told."""
        self.nodes = [node for node in self.nodes if node.name != f"n{number % 3}"]

    def priced(self, number, price):
        """It has registered anew, with another price,"""
        self.change(number, price=price)

    def timed(self, number, speed):
        """or another speed."""
        self.change(number, speed=speed)

    def turned(self, _number):
        """The views come in another order."""
        self.views = dict(reversed(self.views.items()))

    def ask(self, request):
        shown = list(self.views.values())
        answer = self.kept.place(request, shown, self.nodes, now_s=5.0)
        assert self.kept._kept.views == self.views
        assert seen(answer) == seen(self.fresh.place(request, shown, self.nodes, now_s=5.0))

    def ask_for(self, request, numbers):
        """Only these will do: the others are as if they were out of order."""
        shown = list(self.views.values())
        among = np.array([view.id in numbers for view in shown])
        answer = self.kept.place(request, shown, self.nodes, now_s=5.0, among=among)
        others = [view if view.id in numbers else replace(view, healthy=False) for view in shown]
        expected = self.fresh.place(request, others, self.nodes, now_s=5.0)
        if isinstance(expected, Refusal):
            assert isinstance(answer, Refusal)
        else:
            assert seen(answer) == seen(expected)


def seen(answer):
    """Numbers of slices are each pool's own."""
    return answer if isinstance(answer, Refusal) else (answer.devices, answer.share)


@pytest.mark.parametrize("name", PLACEMENT_POLICIES)
@settings(max_examples=40, deadline=None)
@given(asked=st.lists(requests, min_size=2, max_size=2), steps=steps)
def test_a_kept_pool_answers_as_a_fresh_one(name, asked, steps):
    """Few shapes, so that each comes again and kept scores are used."""
    world, asked = World(name), [Request(("any",), GIB, weights="f"), *asked]
    for what, number, *more in steps:
        if what in ("ask", "ask_for"):
            getattr(world, what)(asked[number], *more)
        else:
            getattr(world, what)(number, *more)
    for request in asked:
        world.ask(request)
