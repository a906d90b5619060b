"""What follows when Ray answers late: a slow cluster is not a lost one, until nothing comes any more."""

import threading

import pytest

from dgsf.fabric import ray_cluster
from dgsf.fabric.cluster import ClusterLost, ClusterSlow
from dgsf.fabric.ray_cluster import RayCluster


class SlowRay:
    """Stands in for the library: answers only while it is let."""

    def __init__(self):
        self.may_answer = threading.Event()
        self.may_answer.set()

    def nodes(self):
        self.may_answer.wait(60)
        return []

    def shutdown(self):
        self.may_answer.set()


@pytest.fixture
def slow(monkeypatch):
    monkeypatch.setattr(ray_cluster, "ANSWER_SECONDS", 0.02)
    made = RayCluster("127.0.0.1:1", namespace="n", secret=b"s", mark="m")
    made._ray = SlowRay()
    yield made
    made.close()


async def first_answer(cluster):
    """On a busy machine a good answer may take longer than allowed here: that is told apart, and asked again."""
    while True:
        try:
            return await cluster.nodes()
        except ClusterSlow:
            continue


async def test_one_late_answer_is_a_slow_cluster_and_the_next_one_counts(slow):
    assert await first_answer(slow) == []
    slow._ray.may_answer.clear()
    for _ in range(2):
        with pytest.raises(ClusterSlow, match=r"did not answer within"):
            await slow.nodes()
    slow._ray.may_answer.set()
    assert await first_answer(slow) == []


async def test_no_answer_at_all_for_too_long_is_a_lost_cluster(slow, monkeypatch):
    assert await first_answer(slow) == []
    slow._ray.may_answer.clear()
    monkeypatch.setattr(ray_cluster, "LOST_SECONDS", 0.1)
    with pytest.raises(ClusterLost, match="has not answered for"):
        await first_answer(slow)


async def test_a_gone_connection_is_a_lost_cluster_at_once(slow):
    def gone():
        raise ConnectionError("no head")

    slow._ray.nodes = gone
    with pytest.raises(ClusterLost, match="no head"):
        await first_answer(slow)
