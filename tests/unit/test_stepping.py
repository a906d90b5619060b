"""A journal taken apart says the same, one call at a time."""

from __future__ import annotations

from dgsf.remoting.guest.stepping import Stepper
from dgsf.remoting.protocol import Record, absolute, relative

DEFINE = [[Record.DEFINE, 0, "aten::add.Tensor", [], {}], [Record.DEFINE, 1, "aten::mul.Scalar", [], {}]]
TRACE = [
    Record.TRACE,
    7,
    [
        [0, 0, [absolute(1), absolute(1)]],
        [1, 1, [relative(0)], [None, 2.0, None]],
        [Record.FREE, [relative(0)]],
        [1, 2, [relative(1)], [3.0]],
        [1, 3, [relative(1)], [None]],
    ],
]


def test_a_run_becomes_runs_of_its_entries_with_their_own_floats() -> None:
    stepper = Stepper([*DEFINE, TRACE])
    steps = list(stepper.steps([[Record.RUN, 7, 50, 0, 5, [0.1, 0.2, 0.3]]]))
    assert [step.record for step in steps] == [
        [Record.RUN, 7, 50, 0, 1],
        [Record.RUN, 7, 50, 1, 2, [0.1, 0.2]],
        [Record.RUN, 7, 50, 2, 3],
        [Record.RUN, 7, 50, 3, 4],
        [Record.RUN, 7, 50, 4, 5, [0.3]],
    ]
    assert [step.op for step in steps] == ["aten::add.Tensor", "aten::mul.Scalar", "", *["aten::mul.Scalar"] * 2]


def test_calls_are_counted_as_the_executor_counts_them_stepped_or_not() -> None:
    records = [
        *DEFINE,
        [0, 5, [1, 2]],
        [Record.ASK, 1, 1, 6, [5], [2.0]],
        [Record.FREE, [5]],
        TRACE,
        [Record.RUN, 7, 50, 1, 4, [0.1, 0.2]],
        [Record.SYNC, 2],
    ]
    whole, single = Stepper([]), Stepper([])
    whole.skip(records)
    steps = list(single.steps(records))
    assert whole.calls == single.calls == 4 == sum(bool(step.op) for step in steps)
    assert [step.record for step in steps if step.record[0] != Record.RUN] == [r for r in records if r[0] != Record.RUN]


def test_a_number_that_is_defined_anew_means_the_new_operator() -> None:
    stepper = Stepper(DEFINE)
    again = [Record.DEFINE, 0, "aten::sub.Tensor", [], {}]
    assert [step.op for step in stepper.steps([[0, 1, []], again, [0, 2, []]])] == [
        "aten::add.Tensor",
        "",
        "aten::sub.Tensor",
    ]
