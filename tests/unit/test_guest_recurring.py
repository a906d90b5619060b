"""Contents that are sent again and again are named in the end, whatever their size turned out to be before."""

import pytest
import torch

from dgsf.remoting.digest import digest_of
from dgsf.remoting.guest import recurring
from dgsf.remoting.guest.recurring import Recurring
from dgsf.remoting.guest.uploads import Uploads
from dgsf.remoting.protocol import Record

SIZE = 64 * 1024


def content(first: int = 0, fill: int = 7) -> memoryview:
    return memoryview(bytes([first]) + bytes([fill]) * (SIZE - 1))


def test_a_content_is_recognised_when_it_comes_for_the_third_time():
    seen = Recurring()
    assert [seen.digest_of(content()) for _ in range(4)] == [None, None, *[digest_of(content())] * 2]


def test_contents_that_only_look_alike_are_never_taken_for_each_other():
    seen = Recurring()
    for number in range(50):
        data = bytearray(content())
        data[1] = number  # between two points of the sample
        assert seen.digest_of(memoryview(bytes(data))) is None


def test_only_the_latest_are_remembered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(recurring, "MOST", 3)
    seen = Recurring()
    for first in range(10):
        seen.digest_of(content(first))
    assert seen.digest_of(content(0)) is None
    assert len(seen._samples) == 3


def missed(uploads: Uploads, tensor: torch.Tensor) -> None:
    """The device did not have it, as it would not have a fresh batch."""
    record, _, _ = uploads.plan(tensor, 1)
    uploads.supply(record[5])
    uploads.answered()


def kinds(uploads: Uploads, tensors: list[torch.Tensor]) -> list[Record]:
    return [Record(uploads.plan(tensor, 1)[0][0]) for tensor in tensors]


def test_a_size_that_was_needed_once_is_sent_straight_until_its_content_recurs():
    uploads, same = Uploads(by_hash=True), torch.arange(SIZE)
    missed(uploads, torch.zeros(SIZE, dtype=torch.int64))
    assert kinds(uploads, [same] * 4) == [Record.UPLOAD_BULK] * 2 + [Record.KNOWN] * 2
    fresh = [torch.full((SIZE,), number) for number in range(5)]
    assert kinds(uploads, fresh) == [Record.UPLOAD_BULK] * 5


def test_without_names_everything_is_sent():
    uploads, same = Uploads(by_hash=False), torch.arange(SIZE)
    assert kinds(uploads, [same] * 5) == [Record.UPLOAD_BULK] * 5
