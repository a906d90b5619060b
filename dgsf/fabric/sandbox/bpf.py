"""A very small assembler for seccomp filters.

A filter is a list of (code, jump if true, jump if false, constant); jumps count the instructions to skip.
Blocks end with a return, so they can simply be put one after the other.
"""

from __future__ import annotations

import struct

Instruction = tuple[int, int, int, int]
Block = list[Instruction]

_LOAD, _RETURN = 0x20, 0x06
_JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT = 0x15, 0x35, 0x45
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000

ALLOW: Instruction = (_RETURN, 0, 0, _ALLOW)
KILL: Instruction = (_RETURN, 0, 0, _KILL_PROCESS)
LOAD_NUMBER: Instruction = (_LOAD, 0, 0, 0)
LOAD_ARCHITECTURE: Instruction = (_LOAD, 0, 0, 4)


def refuse(errno: int) -> Instruction:
    return (_RETURN, 0, 0, _ERRNO | errno)


def load_argument(index: int) -> Instruction:
    """The low half of an argument; both of our architectures are little-endian."""
    return (_LOAD, 0, 0, 16 + 8 * index)


def if_equal(value: int, block: Block) -> Block:
    return [(_JUMP_EQUAL, 0, len(block), value), *block]


def unless_equal(value: int, block: Block) -> Block:
    return [(_JUMP_EQUAL, len(block), 0, value), *block]


def if_at_least(value: int, block: Block) -> Block:
    return [(_JUMP_AT_LEAST, 0, len(block), value), *block]


def if_any_bit(bits: int, block: Block) -> Block:
    return [(_JUMP_ANY_BIT, 0, len(block), bits), *block]


def assemble(block: Block) -> bytes:
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in block)
