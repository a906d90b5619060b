"""Worker entries for tests: they run whatever function they are sent, inside the real sandbox."""

import os
import pickle
import socket
import struct
import traceback

import cloudpickle

_LENGTH = struct.Struct("<I")


def read_block(connection):
    head = _read(connection, _LENGTH.size)
    return _read(connection, _LENGTH.unpack(head)[0])


def write_block(connection, data):
    connection.sendall(_LENGTH.pack(len(data)) + data)


def _read(connection, count):
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            os._exit(0)
        data += piece
    return data


def serve(control, connection, spec):
    """Run pickled functions one after the other; a function may ask for `control` and `spec` by name."""
    connection.setblocking(True)
    while True:
        function, args = pickle.loads(read_block(connection))
        try:
            answer = (True, function(*args))
        except BaseException as error:
            answer = (False, f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
        write_block(connection, cloudpickle.dumps(answer))


def serve_badly(control, connection, spec):
    """Ends before it has served anything."""
    os._exit(7)


def listens(control, connection, spec):
    """Sends the first control message that it gets to its connection, when signalled."""
    import signal

    connection.setblocking(True)
    signal.signal(signal.SIGUSR1, lambda _number, _frame: write_block(connection, control.recv(65536)))
    write_block(connection, b"listening")
    while True:
        signal.pause()


assert socket  # the module is imported by the zygote, so that no worker has to


def echoes(control, connection, spec):
    """Answers in capitals on the second connection, the one that is handed over later."""
    from dgsf.fabric.handover import receive

    second = receive(control)
    second.setblocking(True)
    write_block(second, read_block(second).upper())
    os._exit(0)
