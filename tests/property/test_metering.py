"""Any work, losses, replays and lies: what a session pays stands in a fixed relation to what it really used."""

from hypothesis import given
from hypothesis import strategies as st

from dgsf.core.metering import Meter, replay_credit_us

spans = st.integers(1, 3_000_000)
works = st.tuples(st.just("work"), spans)
checkpoints = st.tuples(st.just("checkpoint"), st.integers(0, 3_000_000))
lies = st.tuples(st.just("replayed"), st.integers(0, 50))
stalls = st.tuples(st.just("stall"), st.just(0))
deaths = st.tuples(st.just("death"), st.just(0))
moves = st.tuples(st.just("move"), st.just(0))


class Program:
    """A guest that says what it likes, on executors that tell the truth; `used` is all their time."""

    def __init__(self):
        self.meter = Meter()
        self.meter.attached(1, replay=False)
        self.used = self.clock = self.command = self.forgiven = 0
        self._covered = self._since = 0  # the last checkpoint: by the executor's clock; paid since then

    def do(self, word, value):
        if word == "work":
            self._work(value)
        elif word == "checkpoint":
            self._checkpoint(max(0, self.clock - value))
        elif word == "replayed":
            self.meter.replay_ended(value)
        elif word == "move":
            self.meter.moved(1)
            self.clock = self._covered = 0
        else:
            self._lose(word == "stall")

    def _work(self, span):
        before = self.meter.device_us
        self.clock, self.command, self.used = self.clock + span, self.command + 1, self.used + span
        self.meter.told(self.clock, 0, self.command, self._covered)
        self._since += self.meter.device_us - before

    def _checkpoint(self, taken):
        """One that was taken then has been sent in whole by now."""
        if taken > self._covered:
            self._covered, self._since = taken, min(self._since, self.clock - taken)
            self.meter.told(self.clock, 0, self.command, taken)

    def _lose(self, by_guest):
        self.forgiven += 0 if by_guest else replay_credit_us(self._since)
        self.meter.lost(by_guest=by_guest)
        self.meter.attached(1, replay=True)
        self.clock = self.command = self._covered = 0


@given(st.lists(st.one_of(works, checkpoints, lies, stalls, deaths, moves), max_size=60))
def test_no_guest_gets_more_for_nothing_than_the_platforms_own_losses_made_it_repeat(steps):
    program = Program()
    for step in steps:
        program.do(*step)
        assert program.used - program.forgiven <= program.meter.device_us <= program.used


@given(st.lists(st.one_of(works, checkpoints, lies, stalls, moves), max_size=60))
def test_a_guest_that_loses_its_devices_itself_pays_for_all_that_it_uses(steps):
    program = Program()
    for step in steps:
        program.do(*step)
    assert program.meter.device_us == program.used


@given(st.lists(st.one_of(works, deaths, st.tuples(st.just("saved"), st.just(0))), max_size=60))
def test_an_honest_program_pays_once_for_what_it_does_whatever_dies(steps):
    program, journal, done, lost_work = Program(), [], 0, 0
    for word, value in steps:
        if word == "work":
            program.do(word, value)
            journal.append(value)
            done += value
        elif word == "saved":
            program.do("checkpoint", 0)
            journal.clear()
        else:
            lost_work += program.used
            program.do(word, value)
            for span in journal:
                program.do("work", span)
            program.do("replayed", program.command)
        assert program.meter.device_us == done
        assert program.used - lost_work <= program.meter.device_us
