"""A second connection for a worker that runs already: the guest's end of its session.

The proxy opens it to the function host that started the worker; the host checks whose it is and hands the
socket itself over, so the worker's sandbox stays closed.  Only workers of function hosts get one, once.
"""

from __future__ import annotations

import socket

from dgsf.core.devices import HOST
from dgsf.errors import LeaseLost, StartError
from dgsf.fabric.worker_table import WorkerRecord, WorkerTable
from dgsf.wire.messages import Join

SESSION = b"session"  # the control message that brings the socket
WAIT_SECONDS = 20.0


def claim(table: WorkerTable, join: Join, incarnation: int) -> WorkerRecord:
    """The worker that this connection is for; it is taken from now on. LeaseLost if it is not there any more."""
    worker = table.workers.get(join.worker_id)
    if incarnation != join.incarnation or worker is None or worker.spec.epoch != join.epoch:
        raise LeaseLost(f"there is no worker {join.worker_id} of epoch {join.epoch} here")
    if worker.spec.device_kind != HOST or worker.joined:
        raise LeaseLost(f"worker {join.worker_id} does not take a session")
    worker.joined = True
    return worker


def hand_over(control: socket.socket, connection: socket.socket) -> None:
    """From the host, over the worker's control socket."""
    socket.send_fds(control, [SESSION], [connection.fileno()])


def receive(control: socket.socket) -> socket.socket:
    """In the worker: the connection that was handed over. Its proxy did that before it sent anything else."""
    control.settimeout(WAIT_SECONDS)
    try:
        data, descriptors, _flags, _address = socket.recv_fds(control, len(SESSION), 1)
    except OSError as error:
        raise StartError(f"no connection for the session: {error}") from error
    finally:
        control.setblocking(False)
    if data != SESSION or len(descriptors) != 1:
        raise StartError("the function host sent no connection for the session")
    return socket.socket(fileno=descriptors[0])
