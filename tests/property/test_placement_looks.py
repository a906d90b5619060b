"""Whatever is in the pool: scoring one of the rows that look alike answers as scoring them all does."""

from __future__ import annotations

from random import Random
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgsf.core.placement import DeviceView, NodeView, Placement, Placer, Pool, Request, looks, make_policy, placer

GIB = 1024**3
DEVICES = 24
requests = st.builds(
    Request,
    types=st.sampled_from([("any",), ("A",), ("B", "A"), ("A|B",)]),
    memory_bytes=st.sampled_from([0, GIB, 3 * GIB]),
    share=st.sampled_from([None, 140, 300, 1000]),
    devices=st.sampled_from([0, 0, 0, 2]),
    cpu_milli=st.sampled_from([0, 1000, 4000]),
    host_memory=st.sampled_from([0, GIB]),
    weights=st.sampled_from(["", "w"]),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("place"), st.integers(0, 3)),
        st.tuples(st.just("place"), st.integers(0, 3)),
        st.tuples(st.just("place_in"), st.integers(0, 3), st.sets(st.integers(0, DEVICES - 1), max_size=DEVICES)),
        st.tuples(st.just("end"), st.integers(0, 30)),
        st.tuples(st.sampled_from(["fail", "mend"]), st.integers(0, DEVICES - 1)),
    ),
    min_size=20,
    max_size=60,
)


def pool_of_many_alike():
    views = [
        DeviceView(
            number, "AB"[number // 12], "cuda", True, 4, 8 * GIB, 4, 8 * GIB, node=f"n{number // 2}",
            price=1.0 + number // 20, weights=frozenset("w") if number % 7 == 3 else frozenset(),
        )
        for number in range(DEVICES)
    ]  # fmt: skip
    return Pool.of(views, [NodeView(f"n{number}", 16_000, 4 * GIB) for number in range(DEVICES // 2)])


def answers(name, asked, steps, many):
    pool = pool_of_many_alike()
    asks, held, found = Placer(pool, make_policy(name), Random(3)), [], []
    with patch.object(placer, "MANY", many), patch.object(looks, "FORGOTTEN", 1):
        for what, number, *more in steps:
            if what == "end" and held:
                pool.give_back(*held.pop(number % len(held)))
            elif what in ("fail", "mend"):
                pool.set_health(number, what == "mend")
            elif what in ("place", "place_in"):
                part = pool.part(np.array(sorted(*more), dtype=np.int64)) if more else None
                answer = asks.place(asked[number], part)
                found.append(answer)
                if isinstance(answer, Placement):
                    held.append((asked[number], pool.take(asked[number], answer)))
    return found


@pytest.mark.parametrize("name", ["fgd", "dgsf"])
@settings(max_examples=60, deadline=None)
@given(asked=st.lists(requests, min_size=4, max_size=4), steps=steps)
def test_rows_that_look_alike_are_scored_alike(name, asked, steps):
    assert answers(name, asked, steps, many=1) == answers(name, asked, steps, many=10**9)
