"""However a program repeats itself, what is sent by traces is exactly what would be sent without them.

The same with few numbers for kinds, which then mean others all the time.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dgsf.remoting.guest.kinds import Kind
from dgsf.remoting.guest.numbers import MAX_KINDS
from dgsf.remoting.guest.recorder import Recorder
from tests.support.wire_reader import WireReader

KINDS = [Kind(f"op{index}", [], {}, outs) for index, outs in enumerate((1, 1, 2, 0, 1))]
Action = tuple[Any, ...]

FLOATS = st.sampled_from([(), (), (), (0.5,), (0.0,), (-0.0,), (1.5, float("nan"))])
CALL = st.tuples(
    st.just("call"),
    st.integers(0, len(KINDS) - 1),
    st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=3),
    FLOATS,
)
FREE = st.tuples(st.just("free"), st.integers(1, 5))
EDGE = st.sampled_from([("upload",), ("ask",), ("take",), ("boundary",), ("moving",)])
BODY = st.lists(st.one_of(CALL, CALL, CALL, CALL, CALL, FREE, EDGE), min_size=4, max_size=16)
PROGRAM = st.lists(st.tuples(BODY, st.integers(1, 9)), min_size=1, max_size=4).flatmap(
    lambda blocks: st.tuples(st.just(blocks), st.lists(st.integers(0, len(blocks) - 1), min_size=1, max_size=6))
)


class Player:
    """Plays a program into a recorder; handles come from a few fixed ones and the latest results."""

    def __init__(self, traces: bool, kinds: int = MAX_KINDS) -> None:
        self.recorder = Recorder(traces=traces, kinds=kinds)
        self.reader = WireReader()
        self.live = [self.recorder.new_handle() for _ in range(4)]
        self.turn = 0

    def play(self, action: Action) -> None:
        getattr(self, action[0])(*action[1:])

    def call(self, kind: int, picks: list[tuple[bool, int]], floats: tuple[float, ...]) -> None:
        handles = [
            self.live[pick % len(self.live)] if fixed else self.live[-1 - pick % len(self.live)]
            for fixed, pick in picks
        ]
        out = self.recorder.call(KINDS[kind], handles, floats)
        self.live.extend(range(out, out + KINDS[kind].outs))

    def moving(self) -> None:
        """A float that is another one every time."""
        self.turn += 1
        self.live.append(self.recorder.call(KINDS[0], [self.live[0]], (float(self.turn),)))

    def free(self, back: int) -> None:
        if len(self.live) > 4 + back:
            self.recorder.freed.append(self.live.pop(-back))

    def upload(self) -> None:
        self.live.append(self.recorder.new_handle())

    def ask(self) -> None:
        self.recorder.ask(1, KINDS[0], [self.live[0]], ())

    def boundary(self) -> None:
        self.recorder.boundary()

    def take(self) -> None:
        self.reader.read(self.recorder.take())


Program = tuple[list[tuple[list[Action], int]], list[int]]


def played(program: Program, *players: Player) -> None:
    blocks, order = program
    for index in order:
        body, times = blocks[index]
        for action in body * times:
            for player in players:
                player.play(action)
    for player in players:
        player.boundary()
        player.take()


def assert_same(one: Player, other: Player) -> None:
    assert repr(one.reader.done) == repr(other.reader.done)
    assert one.recorder.calls == other.recorder.calls
    assert one.recorder.next_handle == other.recorder.next_handle


@settings(max_examples=300, deadline=None)
@given(PROGRAM)
def test_traces_say_the_same_as_plain_records(program: Program) -> None:
    traced, plain = Player(traces=True), Player(traces=False)
    played(program, traced, plain)
    assert_same(traced, plain)


@settings(max_examples=300, deadline=None)
@given(PROGRAM, st.integers(1, 6), st.booleans())
def test_few_numbers_for_kinds_say_the_same_as_many(program: Program, kinds: int, traces: bool) -> None:
    few, many = Player(traces, kinds), Player(traces=False)
    played(program, few, many)
    assert_same(few, many)
    assert_another_device_would_be_told_the_same(few)


def assert_another_device_would_be_told_the_same(player: Player) -> None:
    """Of the kinds and templates that can still be named: a template means what it meant when it was defined."""
    anew = WireReader()
    anew.read(player.recorder.all_definitions())
    for number in player.recorder.library.templates:
        assert repr(anew.traces[number]) == repr(player.reader.traces[number])


def test_a_loop_with_boundaries_is_sent_by_runs() -> None:
    player = Player(traces=True)
    body: list[Action] = [("upload",), *[("call", 0, [(True, 1), (False, 0)], (0.5,))] * 10, ("moving",), ("take",)]
    for _ in range(6):
        for action in body:
            player.play(action)
        player.boundary()
        for _ in range(12):
            player.recorder.freed.append(player.live.pop())
    assert player.reader.runs >= 3


def test_a_loop_without_boundaries_is_sent_by_runs() -> None:
    player = Player(traces=True)
    body: list[Action] = [("call", index % 5, [(True, index % 4), (False, 0)], ()) for index in range(40)]
    for _ in range(10):
        for action in body:
            player.play(action)
        player.live = player.live[:4]
    player.take()
    assert player.reader.runs >= 4
    assert len(player.reader.done) == 400
