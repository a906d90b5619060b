"""Which links are asked again how far they are, and how often."""

from types import SimpleNamespace

from dgsf.clock import ManualClock
from proxy.measuring import AGAIN_SECONDS, MOST_AT_ONCE, Measuring


class Link:
    """Answers at once that the way takes `us`."""

    def __init__(self, device, us=50):
        self.post = SimpleNamespace(device=SimpleNamespace(id=device))
        self.asked, self.us = 0, us

    def measure(self, clock, done):
        self.asked += 1
        done(self.us)


def measuring():
    clock, heard = ManualClock(), []
    return clock, heard, Measuring(clock, lambda device, us: heard.append((device.id, us)))


def test_one_link_of_each_device_is_asked_soon_and_then_now_and_then():
    clock, heard, made = measuring()
    links = [Link(1), Link(1), Link(2, 70)]
    made.look(links)
    made.look(links)
    assert sorted(heard) == [(1, 50), (2, 70)]
    clock.advance(int(AGAIN_SECONDS * 1e6))
    made.look(links)
    assert len(heard) == 4


def test_of_many_devices_a_few_are_asked_at_once_and_all_have_their_turn():
    clock, heard, made = measuring()
    links = [Link(device) for device in range(3 * MOST_AT_ONCE)]
    for looks in (1, 2, 3, 4):
        made.look(links)
        assert len(heard) == min(looks, 3) * MOST_AT_ONCE
        clock.advance(1_000_000)
    assert {device for device, _ in heard} == set(range(3 * MOST_AT_ONCE))


def test_a_device_that_comes_back_is_asked_soon():
    _, heard, made = measuring()
    for links in ([Link(1)], [], [Link(1)]):
        made.look(links)
    assert len(heard) == 2
