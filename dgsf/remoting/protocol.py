"""The torch dialect: the records inside COMMAND and ANSWER frames of a session.

A COMMAND body is a MessagePack array of records, done strictly in order; frames are numbered from 1 without
gaps.  A body that is too long for a frame goes on in the next ones: all but the last have FLAG_MORE.  A record
is an array.  One that starts with a number >= 0 is a call of that kind:

    [kind, out, handles] or [kind, out, handles, floats]

A kind is an operator with all of its arguments but the tensors and floats, defined once by DEFINE: `args` are
positional and `kwargs` keyword-only arguments as the operator's schema tells, with holes: {TENSOR: i} is the
i-th handle of the call, {FLOAT: i} its i-th float.  A dtype, layout or memory format is its code from the
tables below, a device or generator nil (the executor has its own), numbers, strings, nil and lists are
themselves, a complex number and a constant tensor (a CPU scalar among device tensors) are the maps below.
The default dtype of the guest is an argument, too: `default` is its code, left out where it is float32.
Every tensor that a call returns and that is not one of its arguments written in place gets the next handle
from `out` on, in order; an undefined one uses up its number.  Handles are chosen by the guest, grow, and are
never used twice.  A kind's number may be defined anew.

A call without an answer that fails makes its results unusable; whatever uses them is skipped.  The first such
error is told by the next record that is answered, in place of its answer, with the number of the call, from
which the guest knows the line.  Calls and asks are counted from 1 over the whole generation, those inside
traces too.  An ask that tells an earlier error is done all the same.  Bulk bytes follow in
frames of their own (FLAG_BULK): a u32 number of the transfer or request, then the bytes.
"""

from __future__ import annotations

import struct
from enum import IntEnum


class Record(IntEnum):
    """First element of every record that is not a call."""

    DEFINE = -1  # [DEFINE, kind, "aten::add.Tensor", args, kwargs, default]: what this number means from now on
    FREE = -2  # [FREE, [handle, ...]]
    UPLOAD = -3  # [UPLOAD, handle, dtype, sizes, bytes]: a small contiguous tensor
    UPLOAD_BULK = -4  # [UPLOAD_BULK, handle, dtype, sizes, size, transfer]: its bytes follow in bulk frames
    KNOWN = -5  # [KNOWN, handle, dtype, sizes, size, digest]: a tensor of this content; NEED if it is not here
    SUPPLY = -6  # [SUPPLY, digest, size, transfer]: the content that was needed; its bytes follow in bulk frames
    FETCH = -7  # [FETCH, request, handle]: answered with the tensor's bytes
    ASK = -8  # [ASK, request, kind, out, handles, floats]: a call whose results' metadata or values are answered
    SYNC = -9  # [SYNC, request]: answered when everything before is done
    SEED = -10  # [SEED, seed]
    RNG_STATE = -11  # [RNG_STATE, request]: answered with the generator's state
    SET_RNG_STATE = -12  # [SET_RNG_STATE, bytes]
    TRACE = -13  # [TRACE, trace, [record, ...]]: a template of calls and frees; handles in it are coded, see below
    RUN = -14  # [RUN, trace, base, start, stop] or with [float, ...] behind: do entries start..stop-1 of the template
    SNAPSHOT = -15  # [SNAPSHOT, request, since]: answered with the state that changed since that snapshot number,
    # or with all of it, 0: contents by name; FROM_NOTHING: every byte
    RESTORE = -16  # [RESTORE, head bytes, all bytes, transfer]: become that state; it follows in bulk frames, see below
    META = -17  # [META, request, handle]: answered with the tensor's true metadata
    MEMORY = -18  # [MEMORY, request, forget]: answered with [live, most, leased] bytes; forget: `most` begins anew
    KEPT = -19  # [KEPT, number]: the guest has this snapshot in whole; what was done before it need not be repeated


class Status(IntEnum):
    """Second element of an ANSWER body [request, status, content]; request 0: nobody asked."""

    OK = 0  # content depends on the record
    FAILED = 1  # content: [call number, error code of dgsf.errors, message]
    NEED = 2  # content: [digest, ...], all that is missed so far; commands wait until the guest has supplied it


# In a template a handle h is written as 2*h (the very handle) or as 2*r + 1 (r from the base of the run; r may be
# negative: a result of the run before).  `out` of a template's call is relative to the base and plain.  A float of a
# template's call may be nil, a hole: the floats of a RUN fill the holes of its entries, in order.  A RUN counts as
# many calls as its entries have (frees are not calls).  A trace's number may be defined anew.
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

FROM_NOTHING = -1  # for a guest that has kept no contents

# The answer to SNAPSHOT is [head bytes, all bytes] and bulk frames: a head in MessagePack, then storages' bytes.
# These frames may come between later answers.
#   head = [number, [[storage, size, source], ...], rest]
# names every live storage; `source` is nil (as it was in snapshot `since`), true (its bytes are here, in this order)
# or a digest (still the content that KNOWN brought).  `rest` is the executor's own: tensors and unusable handles,
# generator, whatever else it needs.  Since 0: nothing was before.  A guest keeps the bytes by storage number.  RESTORE
# carries the same head without nil sources, and the bytes of the true ones; a digest that is not here is a NEED.
# After it the executor is as it was at that snapshot, which is its `since` for the next one; no kind or trace is
# part of it.  Calls and asks count from 1 again.

# The answer to FETCH is [dtype, sizes, size, bytes] for a small tensor, [dtype, sizes, size] and bulk frames else.
INLINE_BYTES = 64 * 1024
BULK_BYTES = 1024 * 1024  # of one bulk frame
BULK_HEADER = struct.Struct("<I")
COMMAND_BYTES = 16 * 1024 * 1024  # of one body at most, however many frames it takes
MAX_LIST = 1 << 20  # tensors or numbers among the arguments of one operation
DRAFT_PREFIX = "."  # of the file of a content that is not whole yet, beside those that are named by their hash

DTYPES = (
    "float32", "float64", "float16", "bfloat16", "uint8", "int8", "int16", "int32", "int64", "bool",
    "complex64", "complex128", "complex32", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2",
    "float8_e4m3fnuz", "float8_e5m2fnuz", "quint8", "qint8", "qint32",
)  # fmt: skip
FLOAT32 = DTYPES.index("float32")
LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "_mkldnn")
MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
