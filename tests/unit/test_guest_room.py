"""Memory for survival is counted, bounded and given back; where there is none, survival is told so."""

import pytest
import torch

from dgsf.core.checkpointing import JOURNAL_BYTES, Attempts, CheckpointPolicy, survival_bytes, within
from dgsf.remoting.guest.bodies import encode_records
from dgsf.remoting.guest.copies import Copies
from dgsf.remoting.guest.journal import Journal
from dgsf.remoting.guest.room import CountedRoom, NoRoom, Room, share_of
from dgsf.spare_memory import is_enough

PAGE = 4096
MIB = 1024**2


def test_what_is_held_is_counted_told_and_given_back():
    changes = []
    room = CountedRoom(10 * PAGE, changes.append)
    memory = room.new(3 * PAGE - 5)
    assert memory.numel() == 3 * PAGE == room.held
    memory.fill_(7)
    view = memoryview(memory.numpy())
    del memory
    assert room.held == 3 * PAGE and set(view) == {7}  # somebody reads it
    del view
    assert room.held == 0
    assert changes == [3 * PAGE, -3 * PAGE]


def test_no_more_is_held_than_may_be():
    room = CountedRoom(4 * PAGE)
    kept = room.new(3 * PAGE)
    with pytest.raises(NoRoom, match="all there may be"):
        room.new(2 * PAGE)
    assert not room.hold(2 * PAGE)
    assert room.hold(PAGE) and room.held == 4 * PAGE
    room.let_go(PAGE)
    assert kept.numel() == room.held


def test_an_impossible_size_is_no_room_and_leaves_nothing_counted():
    room = CountedRoom(1 << 62)
    with pytest.raises(NoRoom):
        room.new(1 << 60)
    assert room.held == 0
    with pytest.raises(NoRoom):
        Room().new(1 << 60)


def test_spare_copies_make_room_for_another_size():
    room = CountedRoom(4 * PAGE)
    copies = Copies(room=room)
    spare = copies.of(torch.ones(3 * PAGE, dtype=torch.uint8), 3 * PAGE)
    del spare
    assert room.held == 3 * PAGE
    assert copies.has_place(2 * PAGE) and room.held == 2 * PAGE
    kept = copies.place(3 * PAGE)
    assert len(kept) == 3 * PAGE
    assert not copies.has_place(2 * PAGE)


def test_a_machine_keeps_some_memory_free_and_one_that_says_nothing_is_tried():
    assert is_enough(10, available=100, total=200)
    assert not is_enough(91, available=100, total=200)
    assert is_enough(10**12, available=None, total=0)


def test_a_limited_program_keeps_most_of_what_it_may_have():
    assert share_of(800 * MIB) == 300 * MIB
    assert share_of(-5) == 0
    assert within(CheckpointPolicy(), share_of(800 * MIB)).journal_bytes == 100 * MIB
    assert within(CheckpointPolicy(), None) == CheckpointPolicy()


@pytest.mark.parametrize("lease", [64 * MIB, 3072 * MIB])
def test_a_functions_allowance_has_room_for_two_states_and_the_journal(lease):
    allowance = survival_bytes(lease)
    assert within(CheckpointPolicy(), allowance).journal_bytes >= JOURNAL_BYTES // 2
    assert allowance >= 2 * lease + 2 * within(CheckpointPolicy(), allowance).journal_bytes


def test_the_journal_has_room_up_to_its_bound_and_then_for_one_thing_of_any_size():
    policy = CheckpointPolicy(journal_bytes=1600)
    assert policy.has_room(1000, 600) and not policy.has_room(1000, 601)
    assert policy.has_room(100, 10**9) and not policy.has_room(101, 10**9)
    assert not policy.is_full(1000) and policy.is_full(1100)


def test_a_checkpoint_that_came_to_nothing_is_tried_again_each_time_later():
    attempts, now, waits = Attempts(), 0.0, []
    for _ in range(9):
        attempts.came_to_nothing(now)
        wait = next(seconds for seconds in range(1, 1000) if attempts.may_try(now + seconds))
        waits.append(wait)
        now += wait
    assert waits == [1, 2, 4, 8, 16, 32, 64, 64, 64]
    attempts.succeeded()
    attempts.came_to_nothing(now)
    assert not attempts.may_try(now + 0.5) and attempts.may_try(now + 1)


def test_a_journal_that_was_given_up_keeps_nothing_until_it_begins_anew():
    journal, body = Journal(), encode_records([[1, 2]])
    journal.note(body)
    journal.note_transfer(1, memoryview(b"abc"))
    journal.give_up()
    journal.note(body)
    journal.note_transfer(2, memoryview(b"abc"))
    journal.note_name(b"d" * 32)
    assert journal.bytes == 0 and not list(journal.replay()) and not journal.digests
    journal.begin_anew()
    journal.note(body)
    assert list(journal.replay()) == [body] and journal.bytes == len(body)


def test_what_bodies_took_at_most_stays_covered_because_a_heap_gives_nothing_back():
    room = CountedRoom(1 << 40)
    journal, body = Journal(room), encode_records([b"x" * MIB])
    for _ in range(20):
        journal.note(body)
    most = room.held
    assert most >= journal.bytes
    journal.drop(journal.mark())
    for _ in range(20):
        journal.note(body)
    assert room.held == most
