"""A session has its lease and no more, whatever its operators say of their memory."""

from __future__ import annotations

import pytest
import torch
from executor_fixtures import connect, executors
from executor_guest import CODES, Failed

from dgsf.remoting.executor.devices import Host
from dgsf.remoting.executor.kinds import Returns, prepare
from dgsf.remoting.protocol import TENSOR, Record

__all__ = ["connect", "executors"]
LEASE = 16 << 20
FIRST, SECOND = {TENSOR: 0}, {TENSOR: 1}
MILLION = 1 << 20  # floats, so 4 MiB


@pytest.mark.parametrize(
    ("name", "args", "handles"),
    [
        ("aten::empty_strided", [[2], [MILLION - 1]], []),
        ("aten::new_empty_strided", [FIRST, [2], [MILLION - 1]], [1]),
        ("aten::contiguous", [FIRST], [1]),
        ("aten::to.dtype", [FIRST, CODES[torch.int32]], [1]),
        ("aten::to.dtype", [FIRST, CODES[torch.float32], False, True], [1]),
        ("aten::reshape", [FIRST, [-1]], [1]),
        ("aten::ravel", [FIRST], [1]),
        ("aten::flatten.using_ints", [FIRST], [1]),
        ("aten::resolve_conj", [SECOND], [1, 3]),
        ("aten::soft_margin_loss", [FIRST, FIRST], [1]),
        ("aten::binary_cross_entropy", [FIRST, FIRST], [1]),
        ("aten::clone", [FIRST], [1]),
    ],
)
def test_results_count_with_all_the_memory_that_they_keep(connect, name, args, handles) -> None:
    guest = connect(memory_bytes=LEASE)
    guest.upload(9, torch.ones(2, 1))
    guest.upload(8, torch.ones(2, 1, dtype=torch.complex64))
    expand = [Record.DEFINE, 0, "aten::expand", [FIRST, [2, MILLION // 2]], {}]
    guest.send(expand, [0, 1, [9]], [Record.DEFINE, 1, "aten::_conj", [FIRST], {}], [0, 2, [8]], [1, 3, [2]])
    guest.send([Record.DEFINE, 2, name, args, {}])
    guest.sync()
    guest.send(*([2, 10 + each, handles] for each in range(10)))
    with pytest.raises(Failed) as failed:
        guest.sync()
    assert failed.value.code == "out_of_memory"
    live, most, lease = guest.ask(Record.MEMORY, False)
    assert live <= lease == LEASE
    assert most <= LEASE + 2 * 4 * MILLION, "no more than the call that was refused had made"


@pytest.mark.parametrize(
    ("name", "args", "input_"),
    [
        ("aten::unique_consecutive", [FIRST], torch.zeros(MILLION // 8, dtype=torch.int64)),
        ("aten::_unique2", [FIRST], torch.zeros(MILLION // 8, dtype=torch.int64)),
        ("aten::col2im", [FIRST, [16, 16], [32, 32], [1, 1], [16, 16], [1, 1]], torch.ones(1024, 289)),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_results_that_shrank_keep_no_more_than_they_show(connect, name, args, input_) -> None:
    guest = connect(memory_bytes=LEASE)
    guest.upload(1, input_)
    guest.send([Record.DEFINE, 0, name, args, {}])
    guest.sync()
    guest.send(*([0, 10 + 3 * each, [1]] for each in range(60)))
    guest.sync()
    live, _, _ = guest.ask(Record.MEMORY, False)
    assert live - input_.nbytes < 60 * 3 * 2048


def test_what_a_result_had_room_for_shows_nothing_of_earlier_tensors(connect) -> None:
    guest = connect(memory_bytes=LEASE)
    guest.upload(1, torch.zeros(4000, dtype=torch.int64))
    guest.upload(5, torch.full((4000,), 77))
    guest.send(
        [Record.DEFINE, 0, "aten::unique_consecutive", [FIRST], {}], [Record.DEFINE, 1, "aten::neg", [FIRST], {}]
    )
    guest.send([1, 6, [5]], [Record.FREE, [5, 6]], [0, 10, [1]])
    guest.send([Record.DEFINE, 2, "aten::as_strided", [FIRST, [4000], [1], 0], {}], [2, 20, [10]])
    with pytest.raises(Failed, match="out of bounds"):
        guest.sync()


def test_memory_that_grew_under_a_loss_counts(connect) -> None:
    guest = connect(memory_bytes=LEASE)
    guest.upload(1, torch.ones(MILLION // 4))
    for each in range(20):
        guest.upload(10 + each, torch.ones(1))
    guest.send([Record.DEFINE, 0, "aten::mse_loss.out", [FIRST, FIRST], {"out": SECOND}])
    guest.send(*([0, 100, [1, 10 + each]] for each in range(20)))
    with pytest.raises(Failed) as failed:
        guest.sync()
    assert failed.value.code == "out_of_memory"


def test_only_kinds_that_may_keep_more_than_they_show_leave_the_short_way() -> None:
    for name in ("aten::add.Tensor", "aten::mm", "aten::linear", "aten::matmul"):
        kind = prepare(Host(), name, [FIRST, SECOND], {})
        assert kind.returns is Returns.TENSOR and not kind.whole, name
    strided = prepare(Host(), "aten::empty_strided", [[2], [9]], {})
    assert strided.whole and strided.returns is Returns.MIXED
    assert not prepare(Host(), "aten::expand", [FIRST, [4]], {}).makes_memory
