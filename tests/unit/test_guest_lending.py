"""Tensors that are given up are not copied; those that somebody still holds are."""

import ctypes

import numpy as np
import pytest
import torch

from dgsf.remoting.digest import digest_of
from dgsf.remoting.guest import lending as lending_module
from dgsf.remoting.guest.lending import lending
from dgsf.remoting.guest.uploads import Uploads

BIG = 40_000  # numbers: more than is sent inline
LARGE = 10_000_000  # 40 MB: memory that the C library always gives back to the system


@pytest.fixture
def uploads():
    return Uploads(by_hash=True)


def send(uploads, tensor):
    """What an upload of a named content gives: its digest."""
    record, _, data = uploads.plan(tensor, 1)
    assert data is None
    return record[5]


def address(view):
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def is_true(uploads, digest):
    return digest_of(uploads.contents[digest]) == digest


def test_what_nobody_holds_is_used_where_it_is(uploads):
    tensor = torch.randn(BIG)
    place = tensor.data_ptr()
    with lending([tensor.detach()]):
        digest = send(uploads, tensor)
        del tensor
    assert address(uploads.contents[digest]) == place
    assert is_true(uploads, digest)


def test_what_somebody_still_holds_is_copied(uploads):
    tensor = torch.randn(BIG)
    part = tensor[100:]
    with lending([tensor.detach()]):
        digest = send(uploads, tensor)
        del tensor
    part.zero_()
    assert is_true(uploads, digest)


def test_what_another_thread_wrote_before_it_was_sent_is_sent(uploads):
    tensor = torch.randn(BIG)
    with lending([tensor.detach()]):
        lending_module.current().digest_of(tensor)  # its hash is there
        tensor.add_(1)
        digest = send(uploads, tensor)
    assert is_true(uploads, digest)
    assert torch.equal(torch.frombuffer(uploads.contents[digest], dtype=torch.float32), tensor)


def test_what_was_written_while_it_was_lent_is_not_sent_for_another_tensor(uploads):
    tensor = torch.randn(BIG)
    other = tensor.clone()
    with lending([tensor.detach()]):
        digest = send(uploads, tensor)
        tensor.add_(1)
    assert not is_true(uploads, digest)  # the device will refuse it
    assert send(uploads, other) == digest
    assert is_true(uploads, digest)


def test_memory_of_others_is_copied(uploads):
    array = np.ones(BIG)
    with lending([torch.from_numpy(array)]):
        digest = send(uploads, torch.from_numpy(array))
    array[:] = 0
    assert is_true(uploads, digest)


def test_what_is_asked_for_before_it_was_given_up_is_sent_from_where_it_is(uploads):
    tensor, waits = torch.randn(BIG), []
    place, uploads.send_all = tensor.data_ptr(), lambda: waits.append("")
    with lending([tensor.detach()]):
        digest = send(uploads, tensor)
        _, _, sent = uploads.supply(digest)
        del tensor
    assert address(sent) == address(uploads.contents[digest]) == place
    assert not waits, "nobody can write to it any more"


def test_who_keeps_what_is_under_way_gets_it_back_when_it_is_sent(uploads):
    tensor, sent, seen = torch.randn(BIG), [], []
    uploads.send_all = lambda: seen.append(digest_of(sent[0]))
    with lending([tensor.detach()]):
        digest = send(uploads, tensor)
        sent.append(uploads.supply(digest)[2])
    assert seen == [digest]
    tensor.zero_()
    assert is_true(uploads, digest)


def test_other_tensors_are_copied_meanwhile(uploads):
    lent, other = torch.randn(BIG), torch.randn(BIG)
    with lending([lent.detach()]):
        digest = send(uploads, other)
    other.zero_()
    assert is_true(uploads, digest)


def test_equal_contents_are_kept_once(uploads):
    first, second = torch.ones(BIG), torch.ones(BIG)
    with lending([first.detach(), second.detach()]):
        assert send(uploads, first) == send(uploads, second)
    first.zero_()
    second.zero_()
    assert [is_true(uploads, digest) for digest in uploads.contents] == [True]


def test_memory_that_is_used_again_is_not_taken_for_what_was_there(uploads):
    gone = torch.randn(LARGE)
    with lending([gone.detach()]):
        place, known = gone.data_ptr(), digest_of(memoryview(gone.numpy()).cast("B"))
        lending_module.current().digest_of(gone)  # it is hashed, and then dropped
        del gone
        other = torch.randn(LARGE)
        digest = send(uploads, other)
    if other.data_ptr() != place:
        pytest.skip("the system did not give the same pages again")
    assert digest != known
    assert is_true(uploads, digest)


def test_a_move_that_fails_leaves_what_it_lent_with_its_owner(uploads):
    tensor, sent = torch.randn(BIG), []

    def fail_in_the_middle():
        with lending([tensor.detach()]):
            sent.append(send(uploads, tensor))
            raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        fail_in_the_middle()
    tensor.zero_()
    assert is_true(uploads, sent[0])


def test_weights_are_named_though_others_of_their_size_had_to_be_sent(uploads):
    first, weights = torch.randn(BIG), torch.randn(BIG)
    uploads.supply(send(uploads, first))  # the device did not have it
    uploads.answered()
    assert uploads.plan(torch.randn(BIG), 2)[2] is not None, "a batch of that size is sent straight away"
    with lending([weights.detach()]):
        assert send(uploads, weights) in uploads.contents


def test_what_owners_gave_up_counts_until_a_checkpoint_has_it(uploads):
    tensor = torch.randn(BIG)
    with lending([tensor.detach()]):
        digest = send(uploads, tensor)
        del tensor
    assert uploads.loose_bytes == 4 * BIG
    uploads.keep_only({digest}, saved={digest})
    assert uploads.loose_bytes == 0 and is_true(uploads, digest)
