"""What a worker is told about itself, and what it may be told later.

`WorkerSpec` travels from the device server through the zygote into the fork.  `Stop` comes over the
worker's control socket, a SOCK_SEQPACKET socket, so that one datagram is one message.  Nothing in here
is secret: user code can read all of it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dgsf.core.checkpointing import survival_bytes
from dgsf.fabric.sandbox.features import Feature
from dgsf.wire.messages import Failure, Message

SHARED_MOUNT = "/dgsf/shared"
CONTENTS_MOUNT = "/dgsf/contents"  # what the sessions of one tenant on one device have uploaded, by digest

SCRATCH_BYTES = 512 * 1024 * 1024


def executor_bytes(lease: int) -> int:
    """What an executor's process may hold, so that its tensors can have the whole lease at any time.

    As much again for what is beside them: the copy of a checkpoint on its way, a state that moves in, contents of its
    own, holes in the heap; and a quarter, or what the heap keeps and small sessions need, for the kernels.
    """
    return 2 * lease + max(SCRATCH_BYTES, lease // 4)


class WorkerSpec(msgspec.Struct, array_like=True, frozen=True):
    """One worker: whose it is, what it may use, and which device it drives."""

    worker_id: int
    slot: int
    epoch: int
    tenant_id: int
    version_id: int
    memory_bytes: int
    network: bool
    shared_dir: str  # on the host; the worker sees it as SHARED_MOUNT
    device_kind: str
    device_index: int
    device_options: dict[str, Any]
    max_file_bytes: int
    uid: int = 0  # run as this user and group; 0: stay who the platform is
    role: str = "function"  # or "session": execute a guest's device commands
    session_bytes: int = 0  # memory on the device of the session that a function on a host is given
    contents_dir: str = ""  # of a session, on the host; the worker sees it as CONTENTS_MOUNT

    @property
    def process_bytes(self) -> int:
        """What its process may hold: a function its memory; an executor counts tensors itself and needs room beside."""
        return self.memory_bytes if self.role != "session" else executor_bytes(self.memory_bytes)

    @property
    def beside_bytes(self) -> int:
        """What the platform may keep in a function's process beside that, to outlive the function's remote device."""
        return survival_bytes(self.session_bytes) if self.session_bytes else 0


class Stop(Message):
    """Control message to a worker, followed by SIGUSR1: stop this call if it still runs."""

    call: bytes
    reason: str


class Prepared(Message):
    """First control message from a worker: it is confined and waits for `GO`, or why it could not be."""

    failure: Failure | None = None
    features: tuple[Feature, ...] = ()  # what the kernel gave and what it did not
    timings_us: tuple[tuple[str, int], ...] = ()


GO = b"go"  # the device server's answer to Prepared: the connection is yours now
