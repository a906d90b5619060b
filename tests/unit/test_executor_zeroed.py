"""Memory that nobody has written is zero on every device, whoever had it before."""

from __future__ import annotations

import pytest
import torch
from executor_fixtures import connect, executors, guest
from executor_guest import Failed, TestGuest

from dgsf.remoting.executor.devices import Host
from dgsf.remoting.protocol import TENSOR, Record

__all__ = ["connect", "executors", "guest"]
aten = torch.ops.aten
COUNT = 5_000


def all_of(tensor: torch.Tensor) -> torch.Tensor:
    """Its storage, gaps included."""
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))


def dirty(overload: object) -> object:
    """As if the allocator had given memory that was used before; bytes that the caller had stay."""

    class Dirty:
        @staticmethod
        def _op(*args: object, **kwargs: object) -> torch.Tensor:
            given = kwargs.get("out", args[0])
            before = given.untyped_storage().nbytes() if isinstance(given, torch.Tensor) else 0
            made = overload(*args, **kwargs)  # type: ignore[operator]
            all_of(made)[before if made is given else 0 :].fill_(0xAA)
            return made

    return Dirty


@pytest.mark.parametrize(
    ("overload", "args"),
    [
        (aten.empty.memory_format, ([4],)),
        (aten.empty_like.default, (torch.ones(4),)),
        (aten.empty_permuted.default, ([2, 2], [1, 0])),
        (aten.empty_strided.default, ([2], [100])),
        (aten.new_empty.default, (torch.ones(1), [4])),
        (aten.new_empty_strided.default, (torch.ones(1), [2], [100])),
    ],
)
def test_memory_without_values_is_zero_on_the_cpu(overload, args) -> None:
    made = Host().bind(dirty(overload), overload.name())(*args)
    assert not all_of(made).any()


@pytest.mark.parametrize(
    ("overload", "args", "out"),
    [
        (aten.resize_.default, ([6],), False),
        (aten.resize_as_.default, (torch.ones(6),), False),
        (aten.empty.out, ([6],), True),
    ],
)
def test_memory_that_grows_keeps_its_values_and_the_rest_is_zero(overload, args, out) -> None:
    given = torch.full((2,), 7.0)
    call = Host().bind(dirty(overload), overload.name())
    call(*args, out=given) if out else call(given, *args)
    assert given.tolist() == [7.0, 7.0, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("overload", "args"),
    [
        (aten.empty_like.out, (torch.ones(6),)),
        (aten.empty_permuted.out, ([6], [0])),
        (aten.empty_strided.out, ([6], [1])),
        (aten.new_empty.out, (torch.ones(1), [6])),
        (aten.new_empty_strided.out, (torch.ones(1), [6], [1])),
    ],
)
def test_memory_without_values_is_not_copied_into_that_of_others(overload, args) -> None:
    given = torch.full((6,), 7.0)
    Host().bind(dirty(overload), overload.name())(*args, out=given)
    assert set(given.tolist()) <= {0.0, 7.0}


@pytest.mark.parametrize("name", ["mse_loss", "smooth_l1_loss"])
def test_a_loss_keeps_nothing_but_its_value(name: str) -> None:
    given, packet = torch.ones(1000), getattr(aten, name)
    assert all_of(Host().bind(packet.default, f"aten::{name}")(given, given + 1)).numel() == 4
    out = torch.ones(1)
    Host().bind(packet.out, f"aten::{name}.out")(given, given + 1, out=out)
    assert not all_of(out)[4:].any()


@pytest.mark.parametrize("overload", [aten._ctc_loss.default, aten._ctc_loss.Tensor])
def test_what_a_ctc_loss_keeps_is_zero_beyond_the_sequences(overload) -> None:
    lengths = [9, 2, 5], [3, 1, 0]
    given = [*lengths] if overload is aten._ctc_loss.default else [torch.tensor(each) for each in lengths]
    args = (torch.randn(9, 3, 5).log_softmax(2), torch.tensor([[1, 2, 2], [4, 1, 1], [1, 1, 1]]), *given)
    expected = overload(*args)
    loss, alpha = Host().bind(overload, overload.name())(*args)
    assert torch.equal(loss, expected[0])
    for row, (steps, labels) in enumerate(zip(*lengths, strict=True)):
        inside = torch.zeros_like(alpha[row], dtype=torch.bool)
        inside[:steps, : 2 * labels + 1] = True
        assert torch.equal(alpha[row][inside], expected[1][row][inside])
        assert not alpha[row][~inside].any()


def soiled(guest: TestGuest) -> None:
    """The session's heap has freed memory of this size that was written."""
    guest.send([Record.DEFINE, 9, "aten::full", [[COUNT], 3.0], {}], *([9, 100 + each, []] for each in range(20)))
    guest.send([Record.FREE, [100 + each for each in range(20)]])
    guest.sync()


def test_a_session_does_not_see_what_was_freed(guest: TestGuest) -> None:
    soiled(guest)
    guest.send(
        [Record.DEFINE, 0, "aten::empty.memory_format", [[COUNT]], {}], *([0, 1 + each, []] for each in range(20))
    )
    assert not any(guest.fetch(1 + each).any() for each in range(20))


def test_what_a_failed_call_had_grown_is_zero(guest: TestGuest) -> None:
    soiled(guest)
    guest.upload(1, torch.ones(10))
    guest.upload(2, torch.full((COUNT,), 10**6))
    guest.upload(3, torch.ones(1))
    args = [{TENSOR: 0}, 0, {TENSOR: 1}]
    guest.send([Record.DEFINE, 0, "aten::index_select.out", args, {"out": {TENSOR: 2}}], [0, 4, [1, 2, 3]])
    with pytest.raises(Failed, match="out of range"):
        guest.sync()
    assert guest.fetch(3)[1:].count_nonzero() == 0


@pytest.mark.parametrize("name", ["aten::resize", "aten::resize_as", "aten::_resize_output"])
def test_copies_that_grow_are_not_to_be_had(guest: TestGuest, name: str) -> None:
    guest.upload(1, torch.ones(1))
    guest.send([Record.DEFINE, 0, name, [{TENSOR: 0}], {}], [0, 2, [1]])
    with pytest.raises(Failed) as failed:
        guest.sync()
    assert failed.value.code == "op_not_allowed"
