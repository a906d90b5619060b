"""Random streams of commands whose executors and proxies are lost at random points end as if nothing had happened."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dgsf.core.checkpointing import CheckpointPolicy
from dgsf.errors import RemoteOpError
from dgsf.remoting.executor.local import LocalExecutors, LocalSpec
from dgsf.remoting.guest.kinds import Kind
from dgsf.remoting.guest.modes import parse_modes
from dgsf.remoting.guest.session_stream import SessionStream
from dgsf.remoting.protocol import FLOAT, TENSOR
from tests.support.lossy_proxy import lossy_sessions

A, B = {TENSOR: 0}, {TENSOR: 1}
ADD = Kind("aten::add.Tensor", [A, B])
SCALE = Kind("aten::mul.Scalar", [A, {FLOAT: 0}])
GROW = Kind("aten::add_.Tensor", [A, B])
GROW.outs = 0
NOISE = Kind("aten::rand_like", [A])
VIEW = Kind("aten::slice.Tensor", [A, 0, 0, 4, 1])
BROKEN = Kind("aten::view", [A, [7, 13]])
COUNT = Kind("aten::nonzero", [A])

STEP = st.one_of(
    st.sampled_from(["add", "scale", "grow", "noise", "view", "free", "flush", "fetch", "ask", "batch"]),
    st.sampled_from(["add", "scale", "grow", "checkpoint", "broken", "seed", "large"]),
)
BODY = st.lists(STEP, min_size=3, max_size=25)
KILLS = st.lists(st.one_of(st.none(), st.integers(1, 40), st.integers(-40, -1)), max_size=4)  # below 0: the proxy
POLICY = CheckpointPolicy(replay_seconds=1e9, share=0.0)


class Program:
    """Plays steps into a stream and remembers all that a program would see."""

    def __init__(self, stream: SessionStream) -> None:
        self.stream = stream
        self.seen: list[Any] = []
        self.turn = 0
        stream.seed(5)
        self.base = stream.upload(torch.arange(8.0))
        self.weights = stream.upload(torch.arange(40_000.0))
        self.live = [stream.upload(torch.full((8,), 0.5))]

    def play(self, steps: list[str]) -> None:
        for step in steps:
            self.turn += 1
            try:
                getattr(self, step)()
            except RemoteOpError as error:
                self.seen.append(error.message)

    def add(self) -> None:
        self.live.append(self.stream.call(ADD, [self.live[-1], self.base]))

    def scale(self) -> None:
        self.live.append(self.stream.call(SCALE, [self.live[-1]], (1.0 + self.turn / 64,)))

    def grow(self) -> None:
        self.stream.call(GROW, [self.base, self.live[-1]])

    def noise(self) -> None:
        self.live.append(self.stream.call(NOISE, [self.live[0]]))

    def view(self) -> None:
        part = self.stream.call(VIEW, [self.base])
        self.stream.call(GROW, [part, part])
        self.stream.free(part)

    def free(self) -> None:
        if len(self.live) > 1:
            self.stream.free(self.live.pop())

    def flush(self) -> None:
        self.stream.flush()

    def fetch(self) -> None:
        self.seen.append(self.stream.fetch(self.live[-1]).tolist())

    def ask(self) -> None:
        out, results = self.stream.ask(COUNT, [self.live[-1]])
        self.seen.append(results)
        self.stream.free(out)

    def batch(self) -> None:
        handle = self.stream.upload(torch.full((8,), float(self.turn)))
        self.stream.call(GROW, [self.base, handle])
        self.stream.free(handle)

    def checkpoint(self) -> None:
        self.stream.checkpoint()

    def broken(self) -> None:
        self.stream.free(self.stream.call(BROKEN, [self.base]))

    def seed(self) -> None:
        self.stream.seed(self.turn)

    def large(self) -> None:
        handle = self.stream.upload(torch.full((30_000,), float(self.turn % 3)))
        self.stream.call(GROW, [handle, handle])
        self.seen.append(float(self.stream.fetch(handle).sum()))
        self.stream.free(handle)

    def end(self) -> list[Any]:
        for handle in (self.base, *self.live, self.weights):
            try:
                self.seen.append(self.stream.fetch(handle)[:8].tolist())
            except RemoteOpError as error:
                self.seen.append(error.message)
        self.seen.append(("bytes in use", self.stream.memory()[0]))
        return self.seen


@pytest.fixture(scope="module")
def executors() -> Iterator[LocalExecutors]:
    with LocalExecutors() as found:
        yield found


def outcome(
    executors: LocalExecutors, folder: str, steps: list[str], kills: list[int | None], modes: str, blame: bool = False
) -> list[Any]:
    spec = LocalSpec(contents=folder, device_options={"threads": 1})
    with lossy_sessions(executors, spec, kills, blame) as proxies:
        stream = SessionStream(proxies.guest, parse_modes(modes), POLICY, reopen=proxies.reopen)
        program = Program(stream)
        program.play(steps)
        seen = program.end()
        stream.close()
        return seen


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    BODY,
    st.integers(1, 5),
    KILLS,
    st.sampled_from(["full", "full,-frees,-overlap", "full,-traces", "full,-known,-coalesce"]),
    st.booleans(),
)
@example(["add", "add", "add", "broken", "checkpoint", "fetch"], 3, [], "full,-traces", False)  # an error inside a run
@example(["add", "add", "broken"], 1, [1, 8, None], "full", True)  # an error found while a crash was looked for
@example(["add", "broken", "batch"], 1, [], "full,-frees,-overlap", False)  # an error that an upload hears of
def test_killed_executors_and_proxies_change_nothing(
    executors: LocalExecutors, body: list[str], times: int, kills: list[int | None], modes: str, blame: bool
) -> None:
    steps = body * times
    usual = modes if "-overlap" in modes else "full"  # an upload that is waited for hears of errors before it
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        assert outcome(executors, folder, steps, kills, modes, blame) == outcome(executors, other, steps, [], usual)
