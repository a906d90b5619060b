"""A stream that begins with the first use of its device."""

from __future__ import annotations

import pytest
import torch

from dgsf.errors import NoDevice
from dgsf.remoting.guest.bound import bound
from dgsf.remoting.guest.kinds import Kind
from dgsf.remoting.guest.lazy import LazyStream


class Real:
    """Writes down what it is asked for."""

    def __init__(self):
        self.said = []

    def __getattr__(self, name):
        def method(*arguments):
            self.said.append((name, *arguments))
            return 17

        return method


@pytest.fixture
def lazy():
    opened = []

    def opener(freed):
        opened.append(Real())
        opened[-1].freed = freed
        return opened[-1]

    stream = LazyStream(opener)
    stream.opened = opened
    bound.to(stream)
    yield stream
    bound.to(None)


def test_what_needs_no_device_asks_for_none(lazy):
    lazy.sync(), lazy.flush(), lazy.seed(5), lazy.close()
    state = lazy.rng_state()
    lazy.seed(6)
    lazy.set_rng_state(state)
    assert lazy.opened == []
    lazy.meta(1)
    assert lazy.opened[0].said == [("seed", 5), ("meta", 1)]


def test_the_first_use_opens_it_once_with_the_last_seed(lazy):
    lazy.seed(5), lazy.seed(6)
    assert lazy.call(Kind("aten::ones", []), []) == 17
    assert lazy.upload(torch.ones(1)) == 17
    (real,) = lazy.opened
    assert [said[0] for said in real.said] == ["seed", "call", "upload"] and real.said[0] == ("seed", 6)


def test_afterwards_calls_go_straight_to_the_real_stream_and_tensors_still_know_theirs(lazy):
    before = lazy.free
    lazy.fetch(1)
    (real,) = lazy.opened
    assert bound.stream is lazy and lazy.free == before
    bound.call("kind", [])
    lazy.free(9)
    lazy.seed(8)
    assert real.said[2:] == [("call", "kind", []), ("seed", 8)]
    assert list(real.freed) == [9]


def test_a_device_that_could_not_be_had_is_asked_for_again():
    answers = [NoDevice("none now"), Real()]

    def opener(_freed):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    stream = LazyStream(opener)
    with pytest.raises(NoDevice):
        stream.sync(), stream.upload(torch.ones(1))
    assert stream.upload(torch.ones(1)) == 17
