"""Tensors grow wherever their bytes came from, and one that could not grow ends nothing but itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch
from executor_fixtures import connect, executors, guest
from executor_guest import CODES, Failed, TestGuest, raw

from dgsf.remoting.digest import digest_of
from dgsf.remoting.protocol import FLOAT, TENSOR, Record, absolute

__all__ = ["connect", "executors", "guest"]
X = torch.arange(50_000.0)
FIRST = {TENSOR: 0}
KINDS = [
    [Record.DEFINE, 0, "aten::resize_", [FIRST, [60_000]], {}],
    [Record.DEFINE, 1, "aten::view", [FIRST, [-1, 2]], {}],
    [Record.DEFINE, 2, "aten::fill_.Scalar", [FIRST, {FLOAT: 0}], {}],
    [Record.DEFINE, 3, "aten::cat.out", [[FIRST, FIRST]], {"out": {TENSOR: 1}}],
    [Record.DEFINE, 4, "aten::resize_", [FIRST, [1 << 45]], {}],
]


def in_bulk(guest: TestGuest, _folder: Path) -> None:
    guest.upload_bulk(1, X)


def by_content(guest: TestGuest, folder: Path) -> None:
    data = raw(X)
    digest = digest_of(data)
    (folder / digest.hex()).write_bytes(data)
    guest.send([Record.KNOWN, 1, CODES[X.dtype], list(X.shape), len(data), digest])


def by_a_state(guest: TestGuest, _folder: Path) -> None:
    rest = {"views": [[1, 1, CODES[X.dtype], [50_000], [1], 0, 0]], "failures": [], "untold": None, "contents": {},
            "rng": bytes(torch.default_generator.get_state().numpy()), "next": 2}  # fmt: skip
    head = msgspec.msgpack.encode([1, [[1, X.nbytes, True]], rest])
    guest.send([Record.RESTORE, len(head), len(head) + X.nbytes, 9])
    guest.bulk(9, head + raw(X))


def in_a_record_and_fetched(guest: TestGuest, _folder: Path) -> None:
    guest.upload(1, X)
    guest.fetch(1)


@pytest.mark.parametrize("bring", [in_bulk, by_content, by_a_state, in_a_record_and_fetched])
def test_a_tensor_grows_wherever_its_bytes_came_from(
    connect, tmp_path: Path, bring: Callable[[TestGuest, Path], None]
) -> None:
    guest = connect(contents=str(tmp_path))
    bring(guest, tmp_path)
    guest.send(*KINDS, [1, 2, [1]], [0, 0, [1]])
    grown = guest.fetch(1)
    assert grown.shape == (60_000,) and torch.equal(grown[:50_000], X)
    guest.send([2, 0, [1], [7.0]])
    assert guest.fetch(2).eq(7).all()  # a view stays one


def test_an_out_argument_grows_as_on_the_cpu_also_in_a_trace(connect, tmp_path: Path) -> None:
    guest = connect(contents=str(tmp_path))
    by_content(guest, tmp_path)
    guest.upload_bulk(2, X[:20_000])
    trace = [Record.TRACE, 1, [[3, 0, [absolute(2), absolute(1)]]]]
    guest.send(*KINDS, [3, 0, [1, 2]], trace, [Record.RUN, 1, 9, 0, 1])
    assert torch.equal(guest.fetch(1), torch.cat([X] * 4))
    guest.send([Record.KNOWN, 3, CODES[X.dtype], list(X.shape), X.nbytes, digest_of(raw(X))])
    assert torch.equal(guest.fetch(3), X)  # the content is what it was


def test_a_tensor_that_could_not_grow_is_lost_and_the_session_goes_on(guest: TestGuest) -> None:
    guest.upload(1, torch.ones(4))
    guest.send(*KINDS, [1, 2, [1]], [4, 0, [1]], [2, 0, [1], [7.0]])
    with pytest.raises(Failed, match=r"aten::resize_ needs 128\.0 TiB") as failed:
        guest.sync()
    assert (failed.value.call, failed.value.code) == (2, "out_of_memory")
    with pytest.raises(Failed, match="no tensor of handle 99"):
        guest.ask(Record.ASK, 4, 0, [99])
    with pytest.raises(Failed, match=r"128\.0 TiB"):
        guest.fetch(1)
    assert guest.fetch(2).tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize("grow", [[0, 0, [1]], [3, 0, [2, 1]]])
def test_growing_beyond_the_lease_is_refused_and_freed(connect, grow: list) -> None:
    guest = connect(memory_bytes=230_000)
    guest.upload(1, X[:10])
    guest.upload(2, X[:30_000])
    guest.send(*KINDS, grow)
    with pytest.raises(Failed) as failed:
        guest.sync()
    assert failed.value.code == "out_of_memory"
    assert guest.ask(Record.MEMORY, False)[0] == 120_000
    guest.upload(3, X[:20_000])
    assert guest.fetch(3).numel() == 20_000
