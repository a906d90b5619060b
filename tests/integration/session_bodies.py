"""A small executor for tests of the relay: it answers commands by echo and does what their first word says."""

import os
import signal
import struct
import time

from dgsf.wire.blocking import FrameSocket
from dgsf.wire.frames import FLAG_MORE, Kind
from dgsf.wire.session import encode_usage

_PIECE = 256 * 1024


class Executor:
    def __init__(self, connection, spec):
        connection.setblocking(True)
        self.frames = FrameSocket(connection)
        self.spec = spec
        self.seen = 0  # the last command's number
        self.used_us = 0
        self.memory = {}
        self.busy = False  # in the middle of a transfer

    def serve(self):
        while True:
            frame = self.frames.next()
            if frame.kind == Kind.COMMAND:
                if frame.stream != self.seen + 1:
                    os._exit(76)
                self.seen = frame.stream
                self.command(frame)
            elif frame.kind == Kind.STATE:
                self.state(frame)
            elif frame.kind == Kind.PING:
                self.frames.send(Kind.PONG, frame.stream)
            else:
                os._exit(76)

    def command(self, frame):
        word, _, rest = frame.body.partition(b" ")
        if word == b"die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif word == b"exit":
            os._exit(int(rest))
        elif word == b"use":
            self.used_us += int(rest)
        elif word == b"set":
            name, _, value = rest.partition(b"=")
            self.memory[name] = value
        elif word == b"get":
            self.answer(frame, self.memory.get(rest, b"nothing"))
        elif word == b"flood":
            for _ in range(int(rest)):
                self.frames.send(Kind.ANSWER, frame.stream, b"x" * _PIECE)
            self.answer(frame, b"flooded")
        elif word == b"sleep":
            time.sleep(float(rest))
            self.answer(frame, b"slept")
        elif word == b"until":
            while not os.path.exists(f"/dgsf/contents/{rest.decode()}"):
                time.sleep(0.01)
        elif word == b"busy":
            self.busy = rest == b"1"
        elif word == b"pid":
            self.answer(frame, str(self.spec.worker_id).encode())
        elif word == b"size":
            self.answer(frame, str(len(rest)).encode())
        elif word == b"contents":
            self.answer(frame, ",".join(sorted(os.listdir("/dgsf/contents"))).encode())
        elif word == b"keep":
            with open(f"/dgsf/contents/{rest.decode()}", "wb") as file:
                file.write(b"content")
        elif word == b"echo":
            self.answer(frame, rest)

    def answer(self, frame, body):
        self.usage()
        self.frames.send(Kind.ANSWER, frame.stream, body)

    def usage(self):
        self.frames.send(Kind.USAGE, self.seen, encode_usage(self.used_us, len(self.memory), len(self.memory)))

    def state(self, frame):
        if frame.body:
            self.load(frame)
        elif self.busy:
            self.frames.send(Kind.STATE, 0)
        else:
            self.usage()
            self.dump()

    def dump(self):
        parts = [struct.pack("<I", self.seen)]
        for name, value in self.memory.items():
            parts.append(struct.pack("<II", len(name), len(value)) + name + value)
        data = b"".join(parts)
        for start in range(0, len(data), _PIECE):
            more = FLAG_MORE if start + _PIECE < len(data) else 0
            self.frames.send(Kind.STATE, 0, data[start : start + _PIECE], more)

    def load(self, frame):
        parts = [frame.body]
        while frame.flags & FLAG_MORE:
            frame = self.frames.next()
            if frame.kind == Kind.PING:
                self.frames.send(Kind.PONG, frame.stream)
                frame = frame._replace(flags=FLAG_MORE)  # there is still more to come
            else:
                parts.append(frame.body)
        data = b"".join(parts)
        (self.seen,) = struct.unpack_from("<I", data)
        position = 4
        while position < len(data):
            name_size, size = struct.unpack_from("<II", data, position)
            position += 8
            name = data[position : position + name_size]
            self.memory[name] = data[position + name_size : position + name_size + size]
            position += name_size + size
        self.frames.send(Kind.STATE, 0)


def serve(control, connection, spec):
    code = 0
    try:
        Executor(connection, spec).serve()
    except BaseException:
        code = 1
    finally:
        os._exit(code)
