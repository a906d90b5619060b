"""Copies that nobody reads any more give their memory to the next one; others are never touched."""

import ctypes

import torch

from dgsf.remoting.guest.copies import Copies

SIZE = 1000


def filled(value):
    return torch.full((SIZE,), value, dtype=torch.uint8)


def address(view):
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def test_memory_is_used_again_when_its_copy_is_gone():
    copies = Copies()
    first = copies.of(filled(1), SIZE)
    place = address(first)
    del first
    second = copies.of(filled(2), SIZE)
    assert address(second) == place
    assert set(second) == {2}


def test_a_copy_that_is_still_read_stays_as_it_is():
    copies = Copies()
    kept = [copies.of(filled(value), SIZE) for value in range(5)]
    parts = [view[10:20] for view in kept]
    del kept
    copies.of(filled(9), SIZE)
    assert [set(part) for part in parts] == [{value} for value in range(5)]


def test_no_more_is_kept_than_the_limit():
    copies = Copies(limit=3 * SIZE)
    held = [copies.of(filled(value), SIZE) for value in range(10)]
    assert copies._bytes == 3 * SIZE
    assert [set(view) for view in held] == [{value} for value in range(10)]


def test_other_sizes_make_room_for_new_ones():
    copies = Copies(limit=2 * SIZE)
    for _ in range(2):
        copies.of(filled(1), SIZE)
    place = address(copies.of(torch.zeros(2 * SIZE, dtype=torch.uint8), 2 * SIZE))
    assert address(copies.of(torch.ones(2 * SIZE, dtype=torch.uint8), 2 * SIZE)) == place


def test_what_nobody_reads_is_given_back_but_for_the_sizes_that_are_needed_again():
    copies = Copies()
    read = copies.of(filled(1), SIZE)
    for size in (SIZE, 2 * SIZE, 3 * SIZE):
        copies.place(size)
    spare = address(copies.place(2 * SIZE))
    copies.release((2 * SIZE, 3 * SIZE), most=4 * SIZE)
    assert copies._bytes == 3 * SIZE  # the one that is read, and two more
    assert address(copies.place(2 * SIZE)) == spare
    assert set(read) == {1}
    copies.release((2 * SIZE,), most=SIZE)
    assert copies._bytes == SIZE
