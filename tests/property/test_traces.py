"""However a program repeats itself, what is sent by traces is exactly what would be sent without them."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dgsf.remoting.guest.kinds import Kind
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

    def __init__(self, traces: bool) -> None:
        self.recorder = Recorder(traces=traces)
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


@settings(max_examples=300, deadline=None)
@given(PROGRAM)
def test_traces_say_the_same_as_plain_records(program: tuple[list[tuple[list[Action], int]], list[int]]) -> None:
    blocks, order = program
    traced, plain = Player(traces=True), Player(traces=False)
    for index in order:
        body, times = blocks[index]
        for action in body * times:
            traced.play(action)
            plain.play(action)
    for player in (traced, plain):
        player.boundary()
        player.take()
    assert repr(traced.reader.done) == repr(plain.reader.done)
    assert traced.recorder.calls == plain.recorder.calls
    assert traced.recorder.next_handle == plain.recorder.next_handle


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
