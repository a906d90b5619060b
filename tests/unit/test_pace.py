"""How long work is held back."""

import pytest

from dgsf.remoting.guest.pace import FIRST_SECONDS, LONGEST_SECONDS, SECOND_SECONDS, USUAL_SECONDS, Pace


def test_the_first_batch_after_an_answer_leaves_soon():
    pace = Pace()
    for _ in range(20):
        pace.sent(0.01)
    assert pace.answered() == FIRST_SECONDS


def test_later_ones_wait_longer_and_longer_up_to_a_bound():
    pace = Pace()
    pace.answered()
    holds = [pace.sent(5e-6) for _ in range(12)]
    assert holds == sorted(holds)
    assert holds[0] == pytest.approx(SECOND_SECONDS)
    assert holds[-1] == pytest.approx(USUAL_SECONDS)


def test_where_sending_is_slow_batches_are_fewer_within_bounds():
    pace = Pace()
    assert USUAL_SECONDS < max(pace.sent(80e-6) for _ in range(30)) <= 800e-6
    assert max(pace.sent(1.0) for _ in range(30)) == LONGEST_SECONDS


def test_however_slow_sending_is_the_first_ones_after_an_answer_leave_soon():
    pace = Pace()
    for _ in range(30):
        pace.sent(200e-6)
    pace.answered()
    assert pace.sent(200e-6) == pytest.approx(SECOND_SECONDS)
