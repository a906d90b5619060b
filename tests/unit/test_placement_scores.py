"""Scores are kept: shapes that come again, and questions about a part of the pool, cost only what has changed."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from dgsf.core.placement import (
    DeviceView,
    KeptPoolChooser,
    Placer,
    Pool,
    Refusal,
    Request,
    Workload,
    make_policy,
    placer,
)
from dgsf.core.placement.fgd import Fgd
from dgsf.core.placement.ours import Dgsf
from dgsf.core.placement.policy import Policy

GIB = 1024**3
WANTED = Request(("any",), GIB)


def device(number, type_="T4", kind="cuda", node=""):
    return DeviceView(number, type_, kind, True, 4, 64 * GIB, 4, 64 * GIB, node=node)


@pytest.fixture
def scored(monkeypatch):
    """How many rows were scored at each question that scored any."""
    counts = []
    for policy in (Policy, Fgd, Dgsf):

        def counted(self, pool, need, rows, plain=policy.score):
            counts.append(len(rows))
            return plain(self, pool, need, rows)

        monkeypatch.setattr(policy, "score", counted)
    return counts


def test_the_shape_that_has_not_come_for_longest_makes_way(monkeypatch, scored):
    monkeypatch.setattr(placer, "SHAPES", 16)
    asked = Placer(Pool.of([device(number) for number in range(4)]), make_policy("first_fit"), Random(0))
    shapes = [Request(("any",), size) for size in range(17)]
    for shape in (*shapes[:16], shapes[0], shapes[16]):
        asked.place(shape)
    assert len(scored) == 17
    for shape in (shapes[0], *shapes[2:]):
        asked.place(shape)
    assert len(scored) == 17, "all but one are still there"
    asked.place(shapes[1])
    assert len(scored) == 18


def test_a_pool_of_sixty_thousand_nodes_keeps_the_scores_of_a_clusters_shapes():
    """A cluster's trace has 138 shapes of at most one device; each of them costs 24 bytes for every node."""
    rows = 62_120
    assert rows * 24 * 138 < placer.SCORES_BYTES < 2**29


@pytest.mark.parametrize("policy", ["fgd", "dgsf", "best_fit"])
def test_questions_about_a_part_of_the_pool_leave_scores_as_they_are(policy, scored):
    views = [*(device(number, node=f"n{number // 4}") for number in range(40)), device(40, "host", "host", "hosts")]
    chooser, devices = KeptPoolChooser(policy), np.array([view.kind != "host" for view in views])
    assert chooser.choose(WANTED, views).id == 0
    scored.clear()
    for number in range(10):
        assert chooser.choose(WANTED, views, among=devices).id == 0
        alone = np.arange(41) == number
        assert chooser.choose(WANTED, views, among=alone).id == number
        assert chooser.choose(WANTED, views).id == 0
    assert sum(scored) <= 2 * 10, "one node is other than it was, and then as it was, at most"


def test_a_part_of_the_pool_without_room_is_refused_by_what_it_has():
    views, chooser = [device(0), replace(device(1), free_slots=0), device(2, "A10")], KeptPoolChooser()
    asked = Request(("T4",), GIB)
    among = ([False, True, True], [False, False, True], [True, False, False])
    answers = [chooser.place(asked, views, among=np.array(each)) for each in among]
    assert [isinstance(answer, Refusal) for answer in answers] == [True, True, False]
    assert [answer.ever for answer in answers[:2]] == [True, False]
    assert "no device of type T4" in answers[1].reason


def test_no_device_at_all_will_do():
    assert KeptPoolChooser().choose(WANTED, [device(0)], among=np.zeros(1, dtype=bool)) is None
    assert KeptPoolChooser().choose(WANTED, [], among=np.zeros(0, dtype=bool)) is None


@pytest.mark.parametrize("policy", ["fgd", "dgsf"])
def test_of_many_nodes_that_look_alike_one_is_scored(policy, scored):
    """Or else a pool of ten times the nodes takes more than ten times as long whenever all scores are old."""
    pool = Pool.of([device(number, "T4" if number % 2 else "A10", node=f"n{number}") for number in range(1000)])
    asked = Placer(pool, make_policy(policy), Random(0))
    pool.take(WANTED, asked.place(WANTED))
    scored.clear()
    asked.place(replace(WANTED, memory_bytes=2 * GIB))
    assert sum(scored) == 3, "two types, and one node that is in use"


@pytest.mark.parametrize("policy", [Fgd, Dgsf])
def test_rows_measure_alike_wherever_they_are(policy):
    """Sums that depend on the processor's vectors made choices among equals a matter of where in a block they are."""
    asked = [replace(WANTED, share=share, cpu_milli=cpu) for share in (70, 130, 310, 570) for cpu in (0, 300, 700)]
    pool = Pool.of([device(number, node=f"n{number}") for number in range(67)])
    measured = Placer(pool, policy(Workload(asked * 3 + asked[:7])), Random(0))
    for request in asked:
        measured.place(request)
        values = measured._scores[measured.policy.cache_key(request)].values
        assert len(set(values.tolist())) == 1
