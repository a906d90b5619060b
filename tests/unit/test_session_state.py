"""The life of a session: given a state, an event, then the next state and what is to be done."""

import pytest

from dgsf.core.metering import Meter
from dgsf.core.session import (
    MAX_LOSSES,
    Begin,
    DeviceLost,
    EndReplay,
    Flush,
    Leave,
    Move,
    Moved,
    NotMoved,
    NotOpened,
    Open,
    Opened,
    Release,
    Replayed,
    SessionLife,
    StartMove,
    State,
    StopMove,
    StopOpening,
    TellBegan,
    TellEnded,
    TellLost,
    Way,
    Worked,
)
from dgsf.errors import NoDevice, SessionLost, SessionRefused

GONE = SessionLost("the executor is gone")


def life(*events):
    found = SessionLife()
    for event in events:
        found.handle(event)
    return found


def attached():
    return life(Begin(1), Opened(1))


def paid(device_us, command=1):
    """A meter on its first device, which has told so much."""
    meter = Meter()
    meter.attached(1, replay=False)
    meter.told(device_us, 0, command)
    return meter


def lose(meter, *, by_guest):
    """Its device, and have another."""
    meter.lost(by_guest=by_guest)
    meter.attached(1, replay=True)


def test_a_guest_begins_and_gets_a_device():
    session = SessionLife()
    assert session.way is Way.refuse
    assert session.handle(Begin(1)) == [Open(1)]
    assert (session.state, session.way) == (State.begun, Way.hold)
    assert session.handle(Opened(1)) == [TellBegan(1), Flush()]
    assert (session.state, session.way) == (State.attached, Way.relay)


def test_without_a_device_it_ends_with_the_reason():
    error = NoDevice("all are taken")
    session = life(Begin(1))
    assert session.handle(NotOpened(1, error)) == [StopOpening(), TellEnded(error)]
    assert session.state is State.ended


def test_a_lost_device_is_told_and_the_guest_may_begin_again():
    session = attached()
    assert session.handle(DeviceLost(1, GONE)) == [Release(), TellLost(1, GONE)]
    assert (session.state, session.way) == (State.lost, Way.drop)
    assert session.handle(Begin(2)) == [Open(2)]


def test_a_loss_that_no_replay_can_mend_ends_it():
    error = SessionRefused("too much memory")
    assert attached().handle(DeviceLost(1, error, resumable=False)) == [Release(), TellEnded(error)]


def test_losses_in_a_row_are_bounded_and_new_work_forgives_them_not_the_guests_word():
    session = attached()
    for generation in range(1, MAX_LOSSES + 1):
        assert session.handle(DeviceLost(generation, GONE))[-1] == TellLost(generation, GONE)
        session.handle(Begin(generation + 1))
        session.handle(Opened(generation + 1))
    assert isinstance(session.handle(DeviceLost(MAX_LOSSES + 1, GONE))[-1], TellEnded)
    forgiven = life(Begin(1), Opened(1), DeviceLost(1, GONE), Begin(2), Opened(2))
    assert forgiven.handle(Replayed(2)) == [EndReplay()]
    assert forgiven.losses == 1
    assert forgiven.handle(Worked()) == []
    assert forgiven.losses == 0


def test_a_device_that_the_guest_itself_lost_is_released_as_such():
    effects = attached().handle(DeviceLost(1, GONE, by_guest=True))
    assert effects == [Release(by_guest=True), TellLost(1, GONE)]


@pytest.mark.parametrize("event", [Begin(2), Begin(1), Replayed(2)])
def test_words_out_of_turn_end_the_session(event):
    session = attached()
    effects = session.handle(event)
    assert effects[0] == Release()
    assert isinstance(effects[-1].error, SessionRefused)
    assert session.state is State.ended


def test_a_late_word_about_a_lost_generation_is_ignored():
    session = life(Begin(1), Opened(1), DeviceLost(1, GONE))
    assert session.handle(Replayed(1)) == []
    session = life(Begin(1), Opened(1), DeviceLost(1, GONE), Begin(2), Opened(2))
    assert session.handle(DeviceLost(1, GONE)) == []
    assert session.state is State.attached


def test_a_move_holds_commands_and_the_guest_hears_nothing():
    session = attached()
    assert session.handle(Move()) == [StartMove()]
    assert session.way is Way.hold
    assert session.handle(Moved()) == [Flush()]
    session.handle(Move())
    assert session.handle(NotMoved()) == [Flush()]
    assert session.state is State.attached


def test_a_device_lost_while_moving_stops_the_move():
    session = life(Begin(1), Opened(1), Move())
    assert session.handle(DeviceLost(1, GONE)) == [StopMove(), Release(), TellLost(1, GONE)]


def test_leaving_gives_everything_back_wherever_it_is():
    assert life().handle(Leave()) == [TellEnded(None)]
    assert life(Begin(1)).handle(Leave()) == [StopOpening(), TellEnded(None)]
    assert attached().handle(Leave()) == [Release(), TellEnded(None)]
    assert life(Begin(1), Opened(1), Move()).handle(Leave()) == [StopMove(), Release(), TellEnded(None)]
    assert life(Begin(1), Opened(1), DeviceLost(1, GONE)).handle(Leave()) == [TellEnded(None)]


def test_a_device_that_comes_too_late_is_given_back():
    assert life(Begin(1), Leave()).handle(Opened(1)) == [Release()]


# --- the meter
def test_device_time_is_the_executors_clock_by_its_devices_price():
    meter = Meter()
    meter.attached(3, replay=False)
    meter.told(100, 5, 1)
    meter.told(90, 5, 2)  # a clock does not go back
    meter.told(150, 7, 3)
    assert (meter.device_us, meter.cost_nano, meter.memory_bytes) == (150, 450, 7)


def test_a_move_goes_on_at_the_new_devices_price():
    meter = paid(100, 1)
    meter.moved(10)
    meter.told(5, 0, 2)
    assert (meter.device_us, meter.cost_nano) == (105, 150)


def test_a_replay_is_free_up_to_the_command_that_ends_it():
    meter = paid(1_000_000, 9)
    lose(meter, by_guest=False)
    meter.told(900_000, 0, 4)
    meter.replay_ended(6)
    meter.told(1_100_000, 0, 6)
    assert meter.device_us == 1_000_000
    meter.told(1_100_030, 0, 7)
    assert meter.device_us == 1_000_030


def test_a_guest_that_never_ends_its_replay_pays_in_the_end():
    meter = paid(1_000_000, 9)
    lose(meter, by_guest=False)
    meter.told(5_000_000, 0, 4)
    assert meter.device_us == 4_000_000


def test_losses_during_a_replay_do_not_add_up_to_free_time():
    meter = paid(1_000_000, 9)
    for _ in range(5):
        lose(meter, by_guest=False)
        meter.told(1_000_000, 0, 4)
    assert meter.device_us == 1_000_000
    meter.told(9_000_000, 0, 4)
    assert meter.device_us == 8_000_000


def test_who_loses_a_device_by_its_own_doing_pays_for_the_replay():
    meter = paid(1_000_000, 9)
    lose(meter, by_guest=True)
    meter.told(1_000_000, 0, 9)
    assert meter.device_us == 2_000_000


def test_free_time_earns_no_free_time():
    meter = paid(1_000_000, 1)
    for _ in range(10):
        lose(meter, by_guest=False)
        meter.told(2_000_000, 0, 1)
        meter.replay_ended(1)
    assert meter.device_us == 1_000_000 and meter.replaying
    meter.told(9_000_000, 0, 2)
    assert meter.device_us == 8_000_000 and not meter.replaying


def test_what_a_checkpoint_covers_is_not_repeated():
    meter = paid(10_000_000, 1)
    meter.told(10_200_000, 0, 2, covered_us=10_000_000)
    meter.told(10_300_000, 0, 3, covered_us=10_000_000)
    lose(meter, by_guest=False)
    meter.told(5_000_000, 0, 1)
    assert meter.device_us == 10_300_000 + 5_000_000 - 600_000


def test_what_the_platform_owes_stays_free_though_the_guest_loses_the_next_device():
    meter = paid(10_000_000, 1)
    lose(meter, by_guest=False)
    meter.told(1_000_000, 0, 1)
    lose(meter, by_guest=True)
    meter.told(10_000_000, 0, 1)
    assert meter.device_us == 10_000_000


def test_a_replay_that_was_paid_earns_no_more_than_the_work_itself():
    meter = paid(10_000_000, 1)
    for _ in range(3):
        lose(meter, by_guest=True)
        meter.told(10_000_000, 0, 1)
    lose(meter, by_guest=False)
    before = meter.device_us
    meter.told(20_000_000, 0, 1)
    assert meter.device_us == before, "free as far as a replay of the work may take"
    meter.told(20_000_007, 0, 1)
    assert meter.device_us == before + 7
