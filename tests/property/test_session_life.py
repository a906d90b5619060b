"""Any events in any order: a session keeps its promises about devices, words and endings."""

from hypothesis import given
from hypothesis import strategies as st

from dgsf.core import session as core
from dgsf.core.metering import Meter
from dgsf.errors import SessionLost

numbers = st.integers(1, 4)
events = st.one_of(
    st.builds(core.Begin, numbers),
    st.builds(core.Replayed, numbers),
    st.builds(core.Worked),
    st.builds(core.Leave),
    st.builds(core.Opened, numbers),
    st.builds(core.NotOpened, numbers, st.just(SessionLost())),
    st.builds(core.DeviceLost, numbers, st.just(SessionLost()), st.booleans(), st.booleans()),
    st.builds(core.Move),
    st.builds(core.Moved),
    st.builds(core.NotMoved),
)


@given(st.lists(events, max_size=40))
def test_devices_and_last_words_are_never_doubled_or_forgotten(given):
    life, held, opening, moving, ended = core.SessionLife(), False, False, False, 0
    for event in given:
        if isinstance(event, core.Opened) and life.state in core.HAS_DEVICE:
            continue  # each Open is answered once, and it has been
        for effect in life.handle(event):
            assert not ended or isinstance(effect, core.Release)
            match effect:
                case core.Open(generation):
                    assert not opening and not held and generation == life.generation
                    opening = True
                case core.StopOpening():
                    opening = False
                case core.TellBegan(generation):
                    assert opening and generation == life.generation
                    opening, held = False, True
                case core.Release():
                    held = False
                case core.StartMove():
                    assert held and not moving
                    moving = True
                case core.StopMove():
                    moving = False
                case core.Flush():
                    moving = False
                    assert held
                case core.TellLost(_, _):
                    assert not held
                case core.TellEnded(_):
                    ended += 1
        assert held == (life.state in core.HAS_DEVICE)
        assert moving == (life.state is core.State.moving)
        assert opening == (life.state is core.State.begun)
        assert ended == (life.state is core.State.ended)


readings = st.lists(
    st.one_of(
        st.tuples(st.just("told"), st.integers(0, 10**9), st.integers(1, 100)),
        st.tuples(st.just("lost"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("replayed"), st.integers(0, 100), st.just(0)),
        st.tuples(st.just("moved"), st.integers(0, 5), st.just(0)),
    ),
    max_size=40,
)


@given(readings)
def test_a_bill_never_shrinks_and_never_exceeds_the_time_that_was_used(given):
    meter, used, clock = Meter(), 0, 0
    meter.attached(1, replay=False)
    for word, value, command in given:
        before = (meter.device_us, meter.cost_nano)
        if word == "told":
            meter.told(value, 0, command)
            used += max(0, value - clock)
            clock = max(clock, value)
        elif word == "lost":
            meter.lost(by_guest=value % 2 == 0)
            meter.attached(value, replay=True)
            clock = 0
        elif word == "replayed":
            meter.replay_ended(value)
        else:
            meter.moved(value)
            clock = 0
        assert meter.device_us >= before[0] and meter.cost_nano >= before[1]
        assert meter.device_us <= used
