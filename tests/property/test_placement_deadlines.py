"""Whatever speeds and prices are: a type that meets the deadline comes first, among those the user's order decides."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgsf.core.placement import DeviceView, KeptPoolChooser, Request
from dgsf.core.placement.registry import FreshPoolChooser

GIB = 1024**3
RUN_S = 30.0  # at speed 1
TYPES = ("A", "B", "C")
figures = st.fixed_dictionaries({type_: st.sampled_from([0.25, 1.0, 4.0, 64.0]) for type_ in TYPES})
asks = st.tuples(
    st.permutations(TYPES),
    st.integers(2, 3),  # so many of them will do
    st.sampled_from([None, 0.1, 1.0, 10.0, 50.0, 500.0]),
    st.sampled_from([0.0, 60.0, 40_000.0]),
)


def expected(order, speeds, deadline_s):
    """The first that is in time, or else the first."""
    in_time = [type_ for type_ in order if deadline_s is None or RUN_S / speeds[type_] <= deadline_s]
    return (in_time or order)[0]


def view(number, speeds, prices):
    type_ = TYPES[number % 3]
    speed, price = speeds[type_], prices[type_]
    return DeviceView(number, type_, "cuda", True, 4, GIB, 4, GIB, speed=speed, price=price, node=f"n{number // 6}")


@pytest.mark.parametrize("name", ["dgsf", "gavel"])
@settings(max_examples=100, deadline=None)
@given(speeds=figures, prices=figures, asked=st.lists(asks, min_size=3, max_size=6))
def test_the_order_of_types_holds_among_those_that_are_in_time(name, speeds, prices, asked):
    views = [view(number, speeds, prices) for number in range(12)]
    kept, fresh = KeptPoolChooser(name, Random(3)), FreshPoolChooser(name, Random(3))
    for order, accepted, deadline_s, duration_s in asked:
        types = tuple(order[:accepted])
        times = {"duration_s": duration_s, "run_s": RUN_S / speeds["A"], "run_on": "A", "deadline_s": deadline_s}
        request = Request(types, 0, function="f", share=250, **times)
        for chooser in (kept, fresh):
            assert chooser.choose(request, views).type == expected(types, speeds, deadline_s)
