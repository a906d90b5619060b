"""The torch dialect: the records inside COMMAND and ANSWER frames of a session.

A COMMAND body is a MessagePack array of records, done strictly in order; frames are numbered from 1 without
gaps.  A record is an array.  One that starts with a number >= 0 is a call of that kind:

    [kind, out, handles] or [kind, out, handles, floats]

A kind is an operator with all of its arguments but the tensors and floats, defined once by DEFINE: `args` are
positional and `kwargs` keyword-only arguments as the operator's schema tells, with holes: {TENSOR: i} is the
i-th handle of the call, {FLOAT: i} its i-th float.  A dtype, layout or memory format is its code from the
tables below, a device or generator nil (the executor has its own), numbers, strings, nil and lists are
themselves, a complex number and a constant tensor (a CPU scalar among device tensors) are the maps below.
Every tensor that a call returns and that is not one of its arguments written in place gets the next handle
from `out` on, in order; an undefined one uses up its number.  Handles are chosen by the guest, grow, and are
never used twice.  A kind's number may be defined anew.

A call without an answer that fails makes its results unusable; whatever uses them is skipped.  The first such
error is told by the next record that is answered, with the number of the call (calls are counted from 1 over
the whole generation, those inside traces too), from which the guest knows the line.  Bulk bytes follow in
frames of their own (FLAG_BULK): a u32 number of the transfer or request, then the bytes.
"""

from __future__ import annotations

import struct
from enum import IntEnum


class Record(IntEnum):
    """First element of every record that is not a call."""

    DEFINE = -1  # [DEFINE, kind, "aten::add.Tensor", args, kwargs]: what this number means from now on
    FREE = -2  # [FREE, [handle, ...]]
    UPLOAD = -3  # [UPLOAD, handle, dtype, sizes, bytes]: a small contiguous tensor
    UPLOAD_BULK = -4  # [UPLOAD_BULK, handle, dtype, sizes, size, transfer]: its bytes follow in bulk frames
    KNOWN = -5  # [KNOWN, handle, dtype, sizes, size, sha256]: a tensor of this content; NEED if it is not here
    SUPPLY = -6  # [SUPPLY, sha256, size, transfer]: the content that was needed; its bytes follow in bulk frames
    FETCH = -7  # [FETCH, request, handle]: answered with the tensor's bytes
    ASK = -8  # [ASK, request, kind, out, handles, floats]: a call whose results' metadata or values are answered
    SYNC = -9  # [SYNC, request]: answered when everything before is done
    SEED = -10  # [SEED, seed]
    RNG_STATE = -11  # [RNG_STATE, request]: answered with the generator's state
    SET_RNG_STATE = -12  # [SET_RNG_STATE, bytes]
    TRACE = -13  # [TRACE, trace, [record, ...]]: a template of calls and frees; handles in it are coded, see below
    RUN = -14  # [RUN, trace, base, start, stop]: do entries start..stop-1 of the template, with this base
    SNAPSHOT = -15  # [SNAPSHOT, request, since]: answered with the state that changed since that snapshot number
    RESTORE = -16  # [RESTORE, header, transfer]: become that state; the storages' bytes follow in bulk frames
    META = -17  # [META, request, handle]: answered with the tensor's true metadata


class Status(IntEnum):
    """Second element of an ANSWER body [request, status, content]; request 0: nobody asked."""

    OK = 0  # content depends on the record
    FAILED = 1  # content: [call number, error code of dgsf.errors, message]
    NEED = 2  # content: [sha256, ...]; commands wait until the guest has supplied it


# In a template a handle h is written as 2*h (the very handle) or as 2*r + 1 (r from the base of the run; r may be
# negative: a result of the run before).  `out` of a template's call is relative to the base and plain.
def absolute(handle: int) -> int:
    return 2 * handle


def relative(offset: int) -> int:
    return 2 * offset + 1


# A tensor's metadata in an answer: [dtype, sizes, strides, storage offset]; None for an undefined one.
# A value (a number that the operator returned) is a map {VALUE: x}.
VALUE = "v"
# Holes in a kind's arguments: {TENSOR: i}, {FLOAT: i}.
TENSOR = "h"
FLOAT = "f"
# A complex number: {COMPLEX: [real, imaginary]}.  A constant: {CONSTANT: [dtype, sizes, bytes]}.
COMPLEX = "z"
CONSTANT = "t"

# The answer to FETCH is [dtype, sizes, size, bytes] for a small tensor, [dtype, sizes, size] and bulk frames else.
INLINE_BYTES = 64 * 1024
BULK_BYTES = 1024 * 1024  # of one bulk frame
BULK_HEADER = struct.Struct("<I")

DTYPES = (
    "float32", "float64", "float16", "bfloat16", "uint8", "int8", "int16", "int32", "int64", "bool",
    "complex64", "complex128", "complex32", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2",
    "float8_e4m3fnuz", "float8_e5m2fnuz", "quint8", "qint8", "qint32",
)  # fmt: skip
LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "_mkldnn")
MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
