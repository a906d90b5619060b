"""A call's life follows the table and nothing else."""

import pytest

from dgsf.core.invocation import TERMINAL, TRANSITIONS, InvalidTransition, Invocation, State


def test_a_call_that_goes_well_is_queued_then_running_then_succeeded():
    call = Invocation()
    call.to(State.running)
    call.to(State.succeeded)
    assert call.terminal
    assert [state for _, state, _ in call.story] == [State.queued, State.running]


def test_a_retry_goes_back_to_the_queue_with_the_next_attempt():
    call = Invocation()
    call.to(State.running)
    call.to(State.queued, "worker_crashed")
    assert call.attempt == 2
    assert call.state is State.queued


def test_a_call_that_its_dead_worker_never_looked_at_keeps_its_attempt():
    call = Invocation()
    call.to(State.running)
    call.requeue_unstarted()
    assert call.attempt == 1
    assert call.state is State.queued


@pytest.mark.parametrize("state", sorted(TERMINAL))
@pytest.mark.parametrize("onward", list(State))
def test_terminal_is_terminal(state, onward):
    call = Invocation()
    call.state = state
    with pytest.raises(InvalidTransition):
        call.to(onward)


def test_a_forbidden_step_tells_the_whole_story():
    call = Invocation()
    call.to(State.running, "sent")
    call.to(State.failed, "boom")
    with pytest.raises(InvalidTransition, match=r"failed → running .*queued#1\(sent\) → running#1\(boom\)"):
        call.to(State.running)


def test_every_state_is_in_the_table():
    assert set(TRANSITIONS) == set(State)
