"""A tensor that was sent before is named again by what it holds now, never by what it held."""

import torch

from dgsf.remoting.digest import digest_of
from dgsf.remoting.guest.room import CountedRoom
from dgsf.remoting.guest.uploads import Uploads
from dgsf.remoting.protocol import Record

COUNT = 64 * 1024


def named(uploads, tensor):
    record, _transfer, data = uploads.plan(tensor, 1)
    assert record[0] == Record.KNOWN and data is None
    return record[5]


def bytes_of(tensor):
    return tensor.numpy().tobytes()


def test_the_same_bytes_have_the_same_name_wherever_they_are():
    uploads, tensor = Uploads(by_hash=True), torch.randn(COUNT)
    first = named(uploads, tensor)
    assert first == named(uploads, tensor.clone()) == digest_of(bytes_of(tensor))


def test_a_changed_tensor_has_another_name():
    uploads, tensor = Uploads(by_hash=True), torch.randn(COUNT)
    first = named(uploads, tensor)
    tensor[-1] += 1
    assert named(uploads, tensor) == digest_of(bytes_of(tensor)) != first


def test_two_in_turn_keep_their_names():
    uploads = Uploads(by_hash=True)
    pair = [torch.full((COUNT,), 1.0), torch.full((COUNT,), 2.0)]
    names = [named(uploads, pair[number % 2]) for number in range(6)]
    assert names == [digest_of(bytes_of(pair[number % 2])) for number in range(6)]


def test_of_one_size_and_another_type_is_another_content_only_if_its_bytes_are():
    uploads, tensor = Uploads(by_hash=True), torch.randn(COUNT)
    assert named(uploads, tensor) == named(uploads, tensor.view(torch.int32))


def test_contents_that_are_not_kept_any_more_are_hashed_and_kept_again():
    uploads, tensor = Uploads(by_hash=True), torch.randn(COUNT)
    first = named(uploads, tensor)
    uploads.keep_only(set())
    assert named(uploads, tensor) == first
    assert bytes(uploads.contents[first]) == bytes_of(tensor)


def test_not_a_number_is_compared_by_its_bits():
    uploads = Uploads(by_hash=True)
    tensor = torch.full((COUNT,), float("nan"))
    zeros = torch.zeros(COUNT)
    assert named(uploads, tensor) == named(uploads, tensor.clone())
    assert named(uploads, zeros) != named(uploads, -zeros)


def test_copies_count_until_a_checkpoint_has_them_or_they_are_forgotten():
    uploads = Uploads(by_hash=True)
    first, second = (named(uploads, torch.full((COUNT,), value)) for value in (1.0, 2.0))
    named(uploads, torch.full((COUNT,), 2.0))  # the same again
    assert uploads.loose_bytes == 2 * 4 * COUNT
    uploads.keep_only({first, second}, {first})
    assert uploads.loose_bytes == 4 * COUNT
    uploads.keep_only(set())
    assert uploads.loose_bytes == 0


def test_without_memory_for_a_copy_a_checkpoint_is_taken_then_survival_gives_way_then_it_is_sent_as_it_lies():
    uploads, asked = Uploads(by_hash=True, room=CountedRoom(0)), []
    uploads.make_room = lambda size: asked.append(size)
    uploads.save, uploads.give_way = (lambda: asked.append("save")), (lambda: asked.append("give way"))
    tensor = torch.randn(COUNT)
    record, _, data = uploads.plan(tensor, 1)
    assert record[0] == Record.UPLOAD_BULK and bytes(data) == bytes_of(tensor)
    assert asked[:3] == [4 * COUNT, "save", "give way"]
    assert not uploads.contents and not uploads.loose_bytes
