"""The busy time of a slot is divided exactly, whatever the worker reports."""

from hypothesis import given
from hypothesis import strategies as st

from dgsf.core.slotclock import SlotClock, split

reported = st.integers(min_value=-1000, max_value=10**9)


@given(st.integers(0, 10**12), st.lists(reported, min_size=1, max_size=50))
def test_a_split_gives_out_all_of_it_and_nothing_negative(total, weights):
    shares = split(total, weights)
    assert sum(shares) == total
    assert all(share >= 0 for share in shares)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.lists(reported, min_size=1, max_size=8)), min_size=1, max_size=30))
def test_the_shares_of_a_busy_period_add_up_to_its_length(batches):
    clock, now, billed = SlotClock(), 1000, 0
    clock.busy(now)
    for number, (elapsed, reports) in enumerate(batches):
        now += elapsed
        billed += sum(clock.ended(now, reports, still_busy=number < len(batches) - 1))
    assert billed == now - 1000


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_idle_time_is_nobodys(busy, idle):
    clock = SlotClock()
    clock.busy(0)
    first = clock.ended(busy, [5], still_busy=False)
    clock.busy(busy + idle)
    assert clock.ended(busy + idle + 7, [5], still_busy=False) == [7]
    assert first == [busy]


def test_what_a_worker_does_not_report_is_carried_to_its_next_call():
    clock = SlotClock()
    clock.busy(0)
    assert clock.ended(100, [10], still_busy=True) == [10]
    assert clock.ended(150, [1], still_busy=False) == [140]
