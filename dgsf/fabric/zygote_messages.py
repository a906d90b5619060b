"""What a device server and its zygote say to each other: one datagram, one message.

Descriptors travel beside them: `Spawn` brings the worker's control socket and its connection, `Spawned`
brings a pidfd, by which the server learns the process's number in its own pid namespace, and `Ready` brings
the zygote's own.
"""

from __future__ import annotations

from dgsf.fabric.sandbox.features import Feature
from dgsf.fabric.spec import WorkerSpec
from dgsf.wire.messages import Failure, Message, reader

MAX_MESSAGE_BYTES = 64 * 1024


class Setup(Message):
    """To the zygote, once: what its workers will run, and with which modules loaded ahead."""

    entry: str
    preload: list[str]
    device_nodes: list[str]
    hidden: list[str]  # folders of the platform that stay invisible even below a folder that is shown


class Spawn(Message, tag="spawn"):
    request: int
    spec: WorkerSpec


class Signal(Message, tag="signal"):
    """Only a process that is a child and not yet reaped is ever signalled."""

    pid: int
    number: int


class Ready(Message, tag="ready"):
    """From the zygote, once: it can fork. `threads` must be 1, or forks may hang."""

    threads: int
    resident_bytes: int
    import_ms: int
    absent: list[str]
    features: list[Feature]


class Refused(Message, tag="refused"):
    """From the zygote, once, instead of Ready: it can do nothing on this machine."""

    failure: Failure


class Spawned(Message, tag="spawned"):
    request: int
    pid: int
    failure: Failure | None = None


class Exited(Message, tag="exited"):
    pid: int
    exit_code: int
    signal: int


read_setup = reader(Setup)
read_order = reader(Spawn | Signal)
read_report = reader(Ready | Refused | Spawned | Exited)
