"""How long work is held back."""

import pytest

from dgsf.remoting.guest.pace import FIRST_SECONDS, LONGEST_SECONDS, SECOND_SECONDS, USUAL_SECONDS, Pace


def test_the_first_batch_after_an_answer_leaves_soon():
    pace = Pace()
    pace.answered(0.1)
    pace.sent(0.01)
    assert pace.answered(0.1) == FIRST_SECONDS


def test_a_device_that_keeps_up_gets_small_batches():
    pace = Pace()
    for _ in range(10):
        pace.answered(200e-6)
        holds = [pace.sent(5e-6) for _ in range(6)]
        assert holds == sorted(holds)
        assert holds[0] == pytest.approx(SECOND_SECONDS)
        assert holds[-1] == pytest.approx(USUAL_SECONDS)


def test_a_device_that_is_behind_gets_larger_and_larger_ones():
    pace = Pace()
    pace.answered(200e-6)
    pace.answered(4e-3)
    holds = [pace.sent(5e-6) for _ in range(12)]
    assert holds == sorted(holds)
    assert SECOND_SECONDS <= holds[0] * 1.001
    assert USUAL_SECONDS < holds[-1] <= LONGEST_SECONDS


def test_how_far_the_device_is_behind_is_known_after_any_number_of_long_answers():
    pace = Pace()
    pace.answered(200e-6)
    for _ in range(1000):
        pace.answered(12e-3)
    assert max(pace.sent(5e-6) for _ in range(12)) == LONGEST_SECONDS


def test_where_sending_is_slow_batches_are_fewer_within_bounds():
    pace = Pace()
    holds = [pace.sent(50e-6) for _ in range(30)]
    assert 400e-6 < holds[-1] <= 500e-6
    assert max(pace.sent(1.0) for _ in range(30)) == LONGEST_SECONDS


def test_a_device_that_is_behind_gets_its_first_batches_soon_however_slow_sending_is():
    pace = Pace()
    pace.answered(200e-6)
    for _ in range(30):
        pace.sent(200e-6)
    pace.answered(12e-3)
    assert pace.sent(200e-6) == pytest.approx(SECOND_SECONDS)
