"""Keep-warm of a proxy: what it knows of functions goes when they do."""

import math
from types import SimpleNamespace

import pytest

from dgsf.clock import ManualClock
from dgsf.core.options import FunctionOptions
from dgsf.errors import NotFound
from proxy.keeping import TIDY_US, Ahead, Keeping


class Lane:
    """A function that is called before each look, by its one worker."""

    def __init__(self, name, version_id=1):
        self.name, self.options, self.queue = name, FunctionOptions(), ()
        self.version = SimpleNamespace(version_id=version_id, tenant_id=1, name=name)
        device = SimpleNamespace(id=1, slots=4, type="cpu")
        self.links = [SimpleNamespace(post=SimpleNamespace(device=device), inflight=True, idle_since_us=0)]

    def take_reached(self):
        return {1}


@pytest.fixture
def world():
    clock, host = ManualClock(), SimpleNamespace(lanes={}, later=lambda work: work.close(), retire=lambda *_: None)
    return SimpleNamespace(
        clock=clock,
        lanes=host.lanes,
        keeping=Keeping(host, SimpleNamespace(), clock, budget_idle_s=60.0, fixed_idle_s=None),
    )


def look(world, after_us=TIDY_US):
    world.clock.advance(after_us)
    world.keeping.tick(world.clock.now_us())


def test_functions_that_are_forgotten_leave_nothing_behind(world):
    for number in range(50):
        world.lanes[number] = Lane(f"1/f{number}")
    look(world)
    world.keeping._sulk(Ahead("1/f0", None), NotFound())
    assert len(world.keeping._names) == len(world.keeping._newest) == 50 and world.keeping._sulking
    for number in range(1, 50):
        del world.lanes[number]
    world.keeping._warmth._policy.model.forget(math.inf, math.inf, world.clock.now_us() / 1e6)
    look(world)
    assert world.keeping._newest.keys() == {"1/f0"}
    assert world.keeping._names.keys() == {"1/f0"}, "it was called again"
    assert not world.keeping._sulking


def test_an_earlier_version_stays_one_while_it_has_a_lane_though_the_later_has_none(world):
    old = world.lanes[1] = Lane("1/f", version_id=1)
    world.lanes[2] = Lane("1/f", version_id=2)
    look(world)
    del world.lanes[2]
    look(world)
    assert world.keeping._newest == {"1/f": 2} and not world.keeping._is_learned(old)
