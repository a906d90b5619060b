"""Whatever checkpoints cost, and however wrong the guess is, a program loses no more to them than its largest share."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from dgsf.core.checkpointing import CheckpointCost, CheckpointPolicy

POLICY = CheckpointPolicy()
MOST = POLICY.share_for(1e9)
sizes = st.integers(0, 10**10)
losses = st.floats(0, 30, allow_nan=False)
turns = st.lists(st.tuples(sizes, losses, st.booleans()), min_size=1, max_size=12)  # the last: its device is lost then
growing = st.tuples(st.integers(10**6, 10**9), st.floats(1.0, 1.5), st.floats(1e7, 1e10))


@dataclass
class Program:
    """Works step by step and saves when it is due."""

    cost: CheckpointCost
    step: float = 0.45
    worked: float = 0.0
    lost: float = 0.0

    def until_due(self, most: float = 1e4) -> float:
        """Work since the last one when the next is due."""
        busy = 0.0
        while busy < most:
            busy += self.step
            if POLICY.due(busy=busy, worked=busy, cost=self.cost.seconds, journal_bytes=0, ahead=self.step):
                break
        self.worked += busy
        return busy

    def save(self, size: int, seconds: float, busy: float) -> None:
        self.cost.measure(size, seconds, POLICY.share_for(busy) * busy)
        self.lost += seconds


@given(sizes, st.floats(0.01, 5), turns)
def test_all_but_the_last_checkpoint_are_paid_for(sent: int, step: float, turns: list) -> None:
    program = Program(CheckpointCost(), step)
    program.cost.expect_at_least(sent)
    for size, seconds, device_lost in turns:
        busy = program.until_due()
        assert program.lost <= MOST * program.worked + 1e-6
        program.save(size, seconds, busy)
        if device_lost:
            program.cost.begin_again()


@given(growing)
def test_also_if_the_state_grows_each_time(how: tuple[int, float, float]) -> None:
    size, growth, speed = how
    program = Program(CheckpointCost(), step=0.2)
    for turn in range(8):
        now = int(size * growth**turn)
        busy = program.until_due()
        assert program.lost <= MOST * program.worked + 1e-6
        program.save(now, min(30, now / speed), busy)


@given(st.lists(st.floats(0, 3), min_size=1, max_size=10))
def test_those_that_a_full_journal_forces_are_paid_for_by_the_next_that_is_free(forced: list) -> None:
    program = Program(CheckpointCost())
    for seconds in forced:
        program.worked += 0.1
        program.save(10**8, seconds, 0.1)
    program.until_due()
    assert program.lost <= MOST * program.worked + 1e-6


@given(st.floats(2.5e9, 4e9), st.floats(1.0, 4.0))
def test_cheap_ones_are_taken_about_every_second_of_work(speed: float, first_slower: float) -> None:
    size, program = 131_000_000, Program(CheckpointCost())
    program.cost.expect_at_least(44_000_000)  # the parameters; the optimizer's state is made there
    assert program.until_due() <= 1.0
    program.save(size, first_slower * size / speed, 0.9)
    program.save(size, size / speed, program.until_due())
    for _ in range(10):
        busy = program.until_due()
        assert busy + program.step >= 0.8 and busy <= 1.0
        program.save(size, size / speed, busy)
