"""The decisions about device health, on a clock that is turned by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgsf.core.pool import (
    ALIVE,
    Adopt,
    Beat,
    Kill,
    MarkLost,
    Offer,
    Policy,
    Pool,
    PoolError,
    Refused,
    SetState,
    Start,
    Started,
    StartFailed,
    State,
    Tick,
    Withdraw,
)

MS = 1000
NAME = "box/cpu0"


class Driver:
    """A pool and its time."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.pool = Pool(policy)
        self.now = 10_000_000

    def on(self, event):
        return self.pool.handle(event, self.now)

    def pass_time(self, ms: int, *, beats: int | None = None, ready: bool = True):
        """Ticks every 100 ms, with a heartbeat of this incarnation each time if given."""
        effects = []
        for _ in range(ms // 100):
            self.now += 100 * MS
            if beats is not None:
                effects += self.on(Beat(NAME, beats, ready))
            effects += self.on(Tick())
        return effects

    @property
    def state(self):
        return self.pool.devices[NAME].state


@pytest.fixture
def healthy() -> Driver:
    driver = Driver()
    driver.on(Offer(NAME))
    driver.on(Started(NAME, 1))
    driver.on(Tick())
    return driver


def test_an_offered_device_is_started_once():
    driver = Driver()
    assert driver.on(Offer(NAME)) == [Start(NAME)]
    assert driver.on(Offer(NAME)) == []
    assert driver.state is State.starting


def test_a_started_device_is_healthy_and_stays_so_while_it_answers(healthy):
    assert healthy.pass_time(10_000, beats=1) == []
    assert healthy.state is State.healthy


def test_silence_makes_a_device_suspect_then_lost_and_replaces_it(healthy):
    assert healthy.pass_time(900) == []
    assert healthy.pass_time(100) == [SetState(NAME, 1, State.suspect)]
    assert healthy.pass_time(400) == []
    assert healthy.pass_time(100) == [MarkLost(NAME, 1), Kill(NAME), Start(NAME)]
    assert healthy.state is State.starting


@pytest.fixture
def near() -> Driver:
    """A device on the controller's own host."""
    driver = Driver()
    driver.on(Offer(NAME))
    driver.on(Started(NAME, 1, near=True))
    driver.on(Tick())
    return driver


def test_silence_of_a_server_on_our_own_host_is_given_longer(near):
    assert near.pass_time(1_000) == [SetState(NAME, 1, State.suspect)]
    assert near.pass_time(2_900) == []
    assert near.pass_time(100) == [MarkLost(NAME, 1), Kill(NAME), Start(NAME)]


def test_a_server_on_our_own_host_whose_process_has_ended_is_lost_at_once(near):
    assert near.on(Refused(NAME, 1)) == [MarkLost(NAME, 1), Kill(NAME), Start(NAME)]


def test_an_adopted_server_on_our_own_host_is_given_longer_too():
    driver = Driver()
    driver.on(Adopt(NAME, 5, State.healthy, near=True))
    assert driver.pass_time(3_900) == [SetState(NAME, 5, State.suspect)]
    assert MarkLost(NAME, 5) in driver.pass_time(100)


@pytest.mark.parametrize(("place", "alone_s"), [("healthy", 1.5), ("near", 4.0)])
def test_when_our_own_ticks_are_late_all_silence_is_given_longer_but_not_for_ever(request, place, alone_s):
    starved = request.getfixturevalue(place)
    silent_s, effects = 0.0, []
    while MarkLost(NAME, 1) not in effects:
        starved.now += 300 * MS  # three times as late as it should be
        effects = starved.on(Tick())
        silent_s += 0.3
    most = starved.pool.policy.most_grace_us / 1e6
    assert alone_s + most <= silent_s <= alone_s + most + 0.3


def test_a_tick_that_is_a_little_late_changes_nothing(healthy):
    for _ in range(10):
        healthy.now += 140 * MS
        assert MarkLost(NAME, 1) not in healthy.on(Tick())
    healthy.now += 140 * MS
    assert MarkLost(NAME, 1) in healthy.on(Tick()), "1.54 s"


def test_patience_is_for_the_silence_at_hand_only(healthy):
    for _ in range(20):
        healthy.now += 300 * MS
        healthy.on(Tick())
    healthy.on(Beat(NAME, 1, True))
    assert MarkLost(NAME, 1) in healthy.pass_time(1_500)


def test_a_suspect_that_answers_is_healthy_again(healthy):
    healthy.pass_time(1200)
    assert healthy.on(Beat(NAME, 1, True)) == [SetState(NAME, 1, State.healthy)]


def test_a_device_that_is_not_ready_takes_no_leases_but_is_not_lost_at_once(healthy):
    assert healthy.pass_time(5_000, beats=1, ready=False) == [SetState(NAME, 1, State.suspect)]
    assert healthy.on(Beat(NAME, 1, True)) == [SetState(NAME, 1, State.healthy)]


def test_a_device_that_is_not_ready_for_too_long_is_replaced(healthy):
    effects = healthy.pass_time(61_000, beats=1, ready=False)
    assert MarkLost(NAME, 1) in effects and Start(NAME) in effects


def test_an_answer_of_another_incarnation_is_not_believed(healthy):
    assert healthy.on(Beat(NAME, 7, True)) == [MarkLost(NAME, 1), Kill(NAME), Start(NAME)]


def test_a_refused_connection_is_a_loss_at_once(healthy):
    assert healthy.on(Refused(NAME, 1)) == [MarkLost(NAME, 1), Kill(NAME), Start(NAME)]


def test_a_refusal_of_an_earlier_incarnation_means_nothing(healthy):
    assert healthy.on(Refused(NAME, 0)) == []


def test_a_crash_loop_is_started_later_and_later():
    driver = Driver()
    driver.on(Offer(NAME))
    waits = []
    for _ in range(9):
        effects = driver.on(StartFailed(NAME))
        waited = 0
        while Start(NAME) not in effects:
            effects = driver.pass_time(100)
            waited += 100
        waits.append(waited)
    assert waits == [0, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]


def test_a_device_that_was_steady_is_forgiven_its_failures(healthy):
    healthy.on(Refused(NAME, 1))
    healthy.on(Started(NAME, 3))
    healthy.pass_time(31_000, beats=3)
    assert healthy.on(Refused(NAME, 3))[-1] == Start(NAME)


def test_our_own_sleep_is_not_held_against_the_devices(healthy):
    healthy.now += 60_000 * MS
    assert healthy.on(Tick()) == []
    assert healthy.state is State.healthy
    assert healthy.pass_time(1_500)[-1] == Start(NAME), "silence after that counts as always"


def test_a_withdrawn_device_is_lost_and_not_started_again(healthy):
    assert healthy.on(Withdraw(NAME)) == [MarkLost(NAME, 1), Kill(NAME)]
    assert healthy.pass_time(60_000) == []
    assert NAME not in healthy.pool.devices


def test_a_start_that_ends_after_the_withdrawal_is_undone():
    driver = Driver()
    driver.on(Offer(NAME))
    assert driver.on(Withdraw(NAME)) == [Kill(NAME)]
    assert driver.on(Started(NAME, 1)) == [MarkLost(NAME, 1), Kill(NAME)]


def test_an_adopted_device_is_kept_as_it_is():
    driver = Driver()
    assert driver.on(Adopt(NAME, 5, State.healthy)) == []
    assert driver.on(Offer(NAME)) == []
    assert driver.pass_time(5_000, beats=5) == []


def test_an_adopted_device_that_nobody_offers_is_not_replaced_when_lost():
    driver = Driver()
    driver.on(Adopt(NAME, 5, State.healthy))
    assert driver.on(Refused(NAME, 5)) == [MarkLost(NAME, 5), Kill(NAME)]
    assert driver.on(Offer(NAME)) == [Start(NAME)]


@pytest.mark.parametrize("state", [State.draining, State.quarantined, State.spare])
def test_what_an_operator_has_set_is_watched_and_left_alone(state):
    driver = Driver()
    driver.on(Adopt(NAME, 5, state))
    assert driver.pass_time(5_000, beats=5) == []
    assert driver.state is state
    assert MarkLost(NAME, 5) in driver.pass_time(2_000)


def test_an_unlawful_step_tells_the_story_of_the_device():
    driver = Driver()
    driver.on(Offer(NAME))
    device = driver.pool.devices[NAME]
    with pytest.raises(PoolError, match="start number 1"):
        device.go(State.draining, 0, "test")


events = st.one_of(
    st.builds(Offer, st.just(NAME)),
    st.builds(Withdraw, st.just(NAME)),
    st.builds(Started, st.just(NAME), st.integers(1, 4), st.booleans()),
    st.builds(StartFailed, st.just(NAME)),
    st.builds(Beat, st.just(NAME), st.integers(1, 4), st.booleans()),
    st.builds(Refused, st.just(NAME), st.integers(1, 4)),
    st.builds(Tick),
)


@given(st.lists(st.tuples(events, st.integers(0, 2_000)), max_size=60))
def test_whatever_happens_a_device_is_started_only_when_it_does_not_run(steps):
    driver = Driver()
    for event, wait in steps:
        driver.now += wait * MS
        device = driver.pool.devices.get(NAME)
        ran = device is not None and device.state in ALIVE
        was_starting = device is not None and device.state is State.starting
        effects = driver.on(event)
        if Start(NAME) in effects:
            assert driver.state is State.starting
            assert not was_starting or isinstance(event, StartFailed)
            assert not ran or any(isinstance(effect, MarkLost) for effect in effects)
        if ran and (NAME not in driver.pool.devices or driver.state not in ALIVE):
            assert any(isinstance(effect, MarkLost) for effect in effects), "nobody may go on using a lost one"
