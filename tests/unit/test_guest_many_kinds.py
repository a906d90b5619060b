"""Programs with more kinds of calls than are remembered: what they use all the time stays, the rest costs its own."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from dgsf.remoting.guest import infer, plans
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.bound import bound
from dgsf.remoting.guest.kinds import Kind
from dgsf.remoting.guest.numbers import Numbers
from dgsf.remoting.guest.recorder import Recorder
from dgsf.remoting.guest.templates import Step
from dgsf.remoting.guest.traces import MAX_TEMPLATES, Library
from dgsf.remoting.protocol import Record
from tests.support.inprocess_stream import InProcessStream


def kinds(count: int, name: str = "op") -> list[Kind]:
    return [Kind(f"{name}{index}", []) for index in range(count)]


def sent(recorder: Recorder) -> tuple[set[str], int]:
    """The operators that were defined, and how many runs of traces there were."""
    records = recorder.take()
    return {r[2] for r in records if r[0] == Record.DEFINE}, sum(r[0] == Record.RUN for r in records)


# --- numbers ----------------------------------------------------------------------------------
def test_a_kind_in_use_keeps_its_number_however_many_others_come() -> None:
    gone: list[Kind] = []
    numbers, hot = Numbers(gone.append, limit=64), kinds(16, "hot")
    for kind in hot:
        numbers.use(kind)
    for turn, kind in enumerate(kinds(1000)):
        numbers.use(kind)
        used = hot[turn % 16]
        if used.generation != numbers.mark:
            assert numbers.use(used) is None
    assert not set(gone) & set(hot)
    assert len(gone) == 1000 + 16 - 64


def test_one_that_was_forgotten_is_defined_anew_and_only_then() -> None:
    numbers, many = Numbers(lambda kind: None, limit=4), kinds(5)
    defined = [numbers.use(kind) for kind in many]
    assert [record[1] for record in defined if record is not None] == [0, 1, 2, 3, 0]
    assert many[0].generation != numbers.mark
    again = numbers.use(many[0])
    assert again is not None
    assert again[1:3] == [1, "op0"]
    assert sorted(numbers.definitions) == [0, 1, 2, 3]


def test_what_runs_as_a_trace_stays_while_others_come_and_go() -> None:
    recorder, loop = Recorder(kinds=256), kinds(10, "loop")
    redefined: set[str] = set()
    runs = 0
    for turn in range(400):
        base = recorder.new_handle()
        for kind in loop:
            base = recorder.call(kind, [base], ())
        recorder.boundary()
        for kind in kinds(3, f"once{turn}_"):
            recorder.call(kind, [base], ())
        recorder.boundary()
        defined, ran = sent(recorder)
        if turn:
            redefined |= defined
            runs += ran
    assert not redefined & {kind.op for kind in loop}
    assert runs >= 390


def test_forgetting_a_kind_looks_at_nothing_but_the_templates_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    library, many = Library(), kinds(40)
    for start in range(0, 40, 4):
        for base in (100, 200):
            steps = [Step(kind, [base], (), base + place) for place, kind in enumerate(many[start : start + 4])]
            library.learn(steps, base)
    assert len(library.templates) == 10
    removed: list[Any] = []
    monkeypatch.setattr(library, "_remove", removed.append)
    library.forget(Kind("another", []))
    assert not removed
    library.forget(many[5])
    assert [template.entries[0][0] for template in removed] == [many[4]]


def test_what_a_template_was_found_by_goes_with_it() -> None:
    library, recorder = Library(), Recorder(kinds=8)
    recorder.library = library
    for turn in range(50):
        for kind in kinds(4, f"turn{turn}_"):
            for base in (1, 1):
                recorder.call(kind, [base], ())
    assert len(library._first) <= MAX_TEMPLATES
    assert len(library._holding) <= 8


def test_templates_of_a_part_that_is_over_make_room_for_those_of_the_next() -> None:
    recorder = Recorder()

    def segment(part: list[Kind]) -> None:
        base = recorder.new_handle()
        for kind in part:
            base = recorder.call(kind, [base], ())
        recorder.boundary()

    first = [kinds(4, f"first{index}_") for index in range(MAX_TEMPLATES)]
    for part in first * 40:
        segment(part)
    recorder.take()
    second = [kinds(4, f"second{index}_") for index in range(4)]
    for part in second * 200:
        segment(part)
    recorder.take()
    for part in second * 10:
        segment(part)
    assert sent(recorder)[1] == 40


# --- the shape cache --------------------------------------------------------------------------
def test_a_shape_that_is_used_all_the_time_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "CACHE_LIMIT", 20)
    worked_out: list[Any] = []
    real = infer.infer

    def noted(plan: Any, args: Any, kwargs: Any) -> Any:
        worked_out.append(args[0].shape)
        return real(plan, args, kwargs)

    with bind(InProcessStream()) as device:
        hot, base = torch.ones(77, device=device), torch.ones(300, device=device)
        torch.relu(hot)
        monkeypatch.setattr(infer, "infer", noted)
        for size in range(100, 300):
            torch.relu(base[:size])
            assert torch.equal(torch.relu(hot).cpu(), torch.ones(77))
    assert (77,) not in worked_out


def test_shapes_are_forgotten_with_the_calls_that_knew_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "CACHE_LIMIT", 20)
    with bind(InProcessStream()) as device:
        base = torch.ones(500, device=device)
        for size in range(500):
            torch.relu(base[:size])
        assert len(bound.layouts._known) < 200


@pytest.mark.parametrize("limit", [2, 3, 8])
def test_a_small_cache_changes_no_result(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(plans, "CACHE_LIMIT", limit)
    chance = random.Random(limit)
    local = torch.arange(60.0).reshape(6, 10)
    with bind(InProcessStream()) as device:
        remote = local.to(device)
        for _ in range(200):
            rows, columns = chance.randint(0, 6), chance.randint(1, 10)
            if chance.random() < 0.1:
                torch.set_default_dtype(chance.choice([torch.float32, torch.float64]))
            try:
                here, there = (x[:rows, :columns].t().exp().sum(0) * 2 + torch.tensor(1.5) for x in (local, remote))
            finally:
                torch.set_default_dtype(torch.float32)
            assert torch.equal(here, there.cpu())
