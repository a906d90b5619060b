"""The executor does calls in order, gives handles to what is new, and tells failures at the next answer."""

from __future__ import annotations

import pytest
import torch
from executor_fixtures import connect, executors, guest
from executor_guest import CODES, Closed, Failed, TestGuest, raw

from dgsf.remoting.protocol import COMPLEX, CONSTANT, FLOAT, TENSOR, VALUE, Record

__all__ = ["connect", "executors", "guest"]


def hole(index: int) -> dict:
    return {TENSOR: index}


def define(number: int, op: str, *args: object, **kwargs: object) -> list:
    return [Record.DEFINE, number, op, list(args), kwargs]


def test_a_call_with_a_float_hole_and_a_keyword(guest: TestGuest) -> None:
    x = torch.randn(3, 4)
    guest.upload(1, x)
    guest.send(define(0, "aten::add.Tensor", hole(0), hole(1), alpha={FLOAT: 0}), [0, 2, [1, 1], [2.5]])
    assert torch.equal(guest.fetch(2), torch.add(x, x, alpha=2.5))


@pytest.mark.parametrize("dtype", list(CODES)[:12])
def test_small_and_large_tensors_come_and_go_unchanged(guest: TestGuest, dtype: torch.dtype) -> None:
    for sizes in ([], [0], [3, 0, 2], [7], [50, 60], [300, 400]):
        tensor = torch.randint(0, 2, sizes).to(dtype)
        guest.upload_bulk(1, tensor) if tensor.numel() > 1000 else guest.upload(1, tensor)
        found = guest.fetch(1)
        assert found.dtype == dtype and torch.equal(found, tensor)


def test_lists_of_tensors_with_and_without_gaps(guest: TestGuest) -> None:
    for handle in (1, 2, 3):
        guest.upload(handle, torch.full((2,), float(handle)))
    guest.send(define(0, "aten::cat", [hole(0), hole(1), hole(2)]), [0, 10, [1, 2, 3]])
    guest.send(define(1, "aten::cat", [hole(2), hole(0)], 0), [1, 11, [1, 2, 3]])
    assert guest.fetch(10).tolist() == [1, 1, 2, 2, 3, 3]
    assert guest.fetch(11).tolist() == [3, 3, 1, 1]


def test_optional_tensors_in_a_list(guest: TestGuest) -> None:
    guest.upload(1, torch.arange(6.0).reshape(2, 3))
    guest.upload(2, torch.tensor([2, 0]))
    guest.send(define(0, "aten::index.Tensor", hole(0), [None, hole(1)]), [0, 3, [1, 2]])
    assert guest.fetch(3).tolist() == [[2, 0], [5, 3]]


def test_dtypes_formats_complex_numbers_and_constants(guest: TestGuest) -> None:
    guest.upload(1, torch.ones(2))
    guest.send(define(0, "aten::_to_copy", hole(0), dtype=CODES[torch.complex64]), [0, 2, [1]])
    guest.send(define(1, "aten::mul.Tensor", hole(0), {CONSTANT: [CODES[torch.float32], [], raw(torch.tensor(3.0))]}))
    guest.send(define(2, "aten::add.Scalar", hole(0), {COMPLEX: [0.0, 1.0]}), [1, 3, [2]], [2, 4, [3]])
    assert guest.fetch(4).tolist() == [3 + 1j, 3 + 1j]


def test_in_place_results_get_no_handle_and_views_alias(guest: TestGuest) -> None:
    guest.upload(1, torch.zeros(4))
    guest.send(define(0, "aten::slice.Tensor", hole(0), 0, 1, 3), define(1, "aten::add_.Scalar", hole(0), {FLOAT: 0}))
    guest.send([0, 2, [1]], [1, 3, [2], [5.0]])
    assert guest.fetch(1).tolist() == [0, 5, 5, 0]
    with pytest.raises(Failed, match="no tensor of handle 3"):
        guest.fetch(3)


def test_an_ask_tells_metadata_and_values(guest: TestGuest) -> None:
    guest.upload(1, torch.tensor([1.0, 0.0, 2.0]))
    guest.send(define(0, "aten::nonzero", hole(0)), define(1, "aten::_local_scalar_dense", hole(0)))
    guest.send(define(2, "aten::sum", hole(0)), [2, 5, [1]])
    assert guest.ask(Record.ASK, 0, 2, [1]) == [[CODES[torch.int64], [2, 1], [1, 2], 0]]
    assert guest.ask(Record.ASK, 1, 3, [5]) == [{VALUE: 3.0}]
    assert guest.ask(Record.META, 2) == [CODES[torch.int64], [2, 1], [1, 2], 0]


def test_a_failure_is_told_once_with_its_call_and_poisons_what_follows(guest: TestGuest) -> None:
    guest.upload(1, torch.ones(2))
    guest.upload(2, torch.ones(3))
    guest.send(define(0, "aten::add.Tensor", hole(0), hole(1)))
    guest.send([0, 3, [1, 1]], [0, 4, [1, 2]], [0, 5, [4, 1]], [0, 6, [3, 1]])
    with pytest.raises(Failed) as failed:
        guest.sync()
    assert (failed.value.call, failed.value.code) == (2, "remote_op_failed")
    guest.sync()
    assert guest.fetch(6).tolist() == [3, 3]
    for lost in (4, 5):
        with pytest.raises(Failed) as failed:
            guest.fetch(lost)
        assert failed.value.call == 2


def test_unknown_handles_and_forbidden_operators_are_typed_errors(guest: TestGuest) -> None:
    guest.send(define(0, "aten::relu", hole(0)), [0, 3, [99]])
    with pytest.raises(Failed, match="no tensor of handle 99"):
        guest.sync()
    for op in (
        "aten::from_file",
        "aten::set_.source_Storage",
        "prim::print",
        "c10d::allreduce_",
        "aten::record_stream",
    ):
        guest.send(define(1, op), [1, 4, []])
        with pytest.raises(Failed) as failed:
            guest.sync()
        assert failed.value.code == "op_not_allowed"
    guest.upload(1, torch.ones(1))
    assert guest.fetch(1).tolist() == [1]


def test_shapes_beyond_the_storage_are_refused(guest: TestGuest) -> None:
    guest.upload(1, torch.ones(4))
    guest.send(define(0, "aten::as_strided", hole(0), [1000], [1], 0), [0, 2, [1]])
    with pytest.raises(Failed, match="out of bounds"):
        guest.fetch(2)


def test_more_memory_than_leased_is_refused_and_freed(connect) -> None:
    guest = connect(memory_bytes=64 << 20)
    guest.send(define(0, "aten::zeros", [4 << 20]), *([0, handle, []] for handle in range(1, 6)))
    with pytest.raises(Failed) as failed:
        guest.sync()
    assert failed.value.code == "out_of_memory" and failed.value.call == 5 and "leased" in failed.value.message
    guest.send([Record.FREE, [1]], [0, 9, []])
    guest.sync()
    guest.send(define(1, "aten::empty.memory_format", [1 << 50]), [1, 10, []])
    with pytest.raises(Failed) as failed:
        guest.sync()
    assert failed.value.code == "out_of_memory"
    assert (
        "aten::empty.memory_format needs 4096.0 TiB (4503599627370496 bytes) more; in use are" in failed.value.message
    )
    assert "of the leased 64.0 MiB" in failed.value.message and "gpu_memory=" in failed.value.message


def test_random_numbers_follow_the_seed_and_the_state(guest: TestGuest) -> None:
    guest.send(define(0, "aten::rand", [5]), [Record.SEED, 7], [0, 1, []])
    state = guest.ask(Record.RNG_STATE)
    guest.send([0, 2, []], [Record.SET_RNG_STATE, state], [0, 3, []])
    torch.manual_seed(7)
    assert torch.equal(guest.fetch(1), torch.rand(5))
    assert torch.equal(guest.fetch(2), guest.fetch(3))


def test_frames_out_of_order_close_the_session(guest: TestGuest) -> None:
    guest.send([Record.SYNC, 1])
    guest.answer(1)
    guest.sequence += 1
    guest.send([Record.SYNC, 2])
    with pytest.raises(Failed) as failed:
        guest.answer(2)
    assert failed.value.code == "protocol_error"
    with pytest.raises(Closed):
        guest.read_to_the_end()


@pytest.mark.parametrize("record", [[], [-99], [5, 1, []], ["x"], [0], None, [Record.FREE, 3], [Record.FETCH, 1]])
def test_what_makes_no_sense_closes_the_session(guest: TestGuest, record: object) -> None:
    guest.send(record)
    with pytest.raises(Failed) as failed:
        guest.answer(1)
    assert failed.value.code == "protocol_error"


@pytest.mark.parametrize(
    ("op", "args"),
    [("aten::add.Tensor", [None, None]), ("aten::mm", [{TENSOR: 0}, None]), ("aten::cat", [[{TENSOR: 0}, None]])],
)
def test_a_missing_tensor_fails_its_call_alone(guest: TestGuest, op: str, args: list) -> None:
    guest.upload(1, torch.ones(2, 2))
    guest.send([Record.DEFINE, 0, op, args, {}], [0, 2, [1]])
    with pytest.raises(Failed, match="got None") as failed:
        guest.fetch(2)
    assert failed.value.code == "remote_op_failed"
    assert guest.fetch(1).tolist() == [[1, 1], [1, 1]]
