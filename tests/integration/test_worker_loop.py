"""What a worker process does with frames, without its sandbox: calls, failures, stops, chunks, epochs."""

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import cloudpickle
import msgspec
import pytest

from dgsf.errors import OutcomeUnknown, QueueFull, ResultTooLarge
from dgsf.fabric.spec import Stop
from dgsf.sdk.bundle import pack
from dgsf.wire.blocking import FrameSocket
from dgsf.wire.frames import CHUNK_BYTES, Kind
from dgsf.wire.messages import Carrier, Codec, Load, Loaded, Ref, Run, RunEnd, encode, join, reader, split

START = """
import socket, sys
from dgsf.fabric.spec import WorkerSpec
from dgsf.fabric.worker import serve
spec = WorkerSpec(1, 0, 5, 1, 1, 2**28, False, "/nowhere", "cpu", 0, {}, 2**26)
serve(socket.socket(fileno=int(sys.argv[1])), socket.socket(fileno=int(sys.argv[2])), spec)
"""
INLINE = 64 * 1024


class WorkerProcess:
    """A worker and the two sockets that speak to it."""

    def __init__(self, function, tcp=False):
        self.control, worker_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        near, far = tcp_pair() if tcp else socket.socketpair()
        descriptors = (worker_control.fileno(), far.fileno())
        self.process = subprocess.Popen(
            [sys.executable, "-c", START, *map(str, descriptors)], pass_fds=descriptors, cwd="/"
        )
        worker_control.close()
        far.close()
        near.settimeout(60)
        self.socket = near
        self.frames = FrameSocket(near)
        self.stream = 0
        self.loaded = self.load(pack(function).code if callable(function) else function)

    def load(self, code):
        self.stream += 1
        chunked = len(code) > INLINE
        ref = Ref(0, Carrier.chunks if chunked else Carrier.inline, len(code))
        head = join(Load(1, ref, INLINE, 2**24), b"" if chunked else code)
        self.frames.send(Kind.LOAD, self.stream, head)
        if chunked:
            self.frames.send_chunks(self.stream, code)
        frame = self.frames.next()
        while frame.kind == Kind.CREDIT:
            frame = self.frames.next()
        return reader(Loaded)(frame.body)

    def begin(self, data, codec=Codec.json, reply=Codec.json, epoch=5, call=b"c" * 16):
        self.stream += 1
        chunked = len(data) > INLINE
        ref = Ref(codec, Carrier.chunks if chunked else Carrier.inline, len(data))
        body = join(Run(call, 1, epoch, reply, ref), b"" if chunked else data)
        self.frames.send(Kind.OPEN, self.stream, body)
        if chunked:
            self.frames.send_chunks(self.stream, data)

    def end(self):
        parts = []
        while (frame := self.frames.next()).kind != Kind.END:
            if frame.kind == Kind.ITEM:
                parts.append(frame.body)
                self.frames.send(Kind.CREDIT, frame.stream, msgspec.msgpack.encode([len(frame.body)]))
        end, inline = split(frame.body, reader(RunEnd))
        return end, b"".join(parts) or inline

    def call(self, data, **options):
        self.begin(data, **options)
        return self.end()

    def stop(self, call, reason="timeout"):
        self.control.send(encode(Stop(call, reason)))
        self.process.send_signal(signal.SIGUSR1)

    def close(self):
        self.socket.close()
        self.control.close()
        return self.process.wait(60)


def tcp_pair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    return near, far


@pytest.fixture
def worker_for():
    workers = []

    def make(function, **options):
        workers.append(WorkerProcess(function, **options))
        return workers[-1]

    yield make
    for worker in workers:
        worker.process.kill()
        worker.close()


def test_json_in_json_out(worker_for):
    worker = worker_for(lambda x, y=2: {"sum": x + y})
    assert worker.loaded.failure is None
    assert worker.call(b'{"x": 1}')[1] == b'{"sum":3}'
    assert worker.call(b"[1, 5]")[1] == b'{"sum":6}'
    assert worker.call(b'{"x": 1}')[0].payload.codec == Codec.json


def test_bytes_in_bytes_out_and_pickles(worker_for):
    worker = worker_for(lambda value: value)
    assert worker.call(b"\x00raw", codec=Codec.raw)[1] == b"\x00raw"
    args = cloudpickle.dumps((({1, 2},), {}))
    assert cloudpickle.loads(worker.call(args, codec=Codec.pickle, reply=Codec.pickle)[1]) == {1, 2}


def test_coroutines_and_generators_are_run_to_their_end(worker_for):
    async def later(x):
        await asyncio.sleep(0)
        return x * 2

    def many(x):
        yield from range(x)

    assert worker_for(later).call(b"[4]")[1] == b"8"
    assert worker_for(many).call(b"[3]")[1] == b"[0,1,2]"


def test_an_exception_is_described_with_its_output_and_the_worker_lives_on(worker_for):
    def shaky(x):
        print("about to divide")
        return 1 / x

    worker = worker_for(shaky)
    failure = worker.call(b"[0]")[0].failure
    assert failure.code == "function_error"
    assert failure.details["error"]["type"].endswith("ZeroDivisionError")
    assert failure.details["output"] == "about to divide\n"
    assert worker.call(b"[2]")[1] == b"0.5"


@pytest.mark.parametrize("kind", [QueueFull, OutcomeUnknown, ResultTooLarge])
def test_a_platform_error_raised_by_the_function_is_the_functions_own_error(worker_for, kind):
    class Sly:
        def __reduce__(self):
            raise kind("pay me nothing", retryable=True)

    def sly(how):
        if how == "raise":
            raise kind("pay me nothing", retryable=True, held=object())
        return Sly()

    worker = worker_for(sly)
    for how, reply in (("raise", Codec.json), ("return", Codec.pickle)):
        failure = worker.call(b'["%s"]' % how.encode(), reply=reply)[0].failure
        assert failure.code == "function_error"
        assert failure.details["error"]["qualname"] == kind.__name__
        assert "retryable" not in failure.details


@pytest.mark.parametrize(
    ("reply", "code", "how"),
    [(Codec.pickle, "result_not_sendable", "sent: TypeError"), (Codec.json, "result_not_json", "written as JSON")],
)
def test_a_result_that_cannot_be_sent_is_told_as_such_by_its_type(worker_for, reply, code, how):
    failure = worker_for(threading.Lock).call(b"", reply=reply)[0].failure
    assert failure.code == code and f"the function's result, a lock, cannot be {how}" in failure.message
    assert "error" not in failure.details, "it is no exception of the function"


def test_running_out_of_memory_keeps_its_code_and_what_was_printed(worker_for):
    def greedy():
        print("nearly full")
        raise MemoryError

    failure = worker_for(greedy).call(b"")[0].failure
    assert (failure.code, failure.details) == ("out_of_memory", {"output": "nearly full\n"})


@pytest.mark.parametrize("text", ["x" * 3_000_000, "\U0001f600" * 1_000_000, "\udcff not UTF-8"], ids=len)
def test_a_failure_is_small_whatever_it_says(worker_for, text):
    head = text[:1]

    def loud(size):
        print(head * size)
        raise type("E" + "e" * 300_000, (ValueError,), {})(head * size) from KeyError(head * size)

    def plain(size):
        raise ValueError(head * size)

    for function in (loud, plain):
        worker = worker_for(function)
        end = worker.call(b"[%d]" % len(text))[0]
        assert end.failure.code == "function_error"
        assert len(end.failure.message.encode()) <= 4096
        assert len(encode(end)) <= 300 * 1024
        assert worker.process.poll() is None
    assert end.failure.details["error"]["qualname"] == "ValueError"


@pytest.mark.parametrize("text", ["1j", "float('nan')", "[float('inf')]", "object()", "{(1, 2): 3}"])
def test_what_json_cannot_say_is_a_failure_of_its_own(worker_for, text):
    failure = worker_for(lambda: eval(text)).call(b"")[0].failure
    assert failure.code == "result_not_json"
    assert ".tolist()" in failure.message


def test_none_is_json(worker_for):
    assert worker_for(lambda: {"a": None}).call(b"")[1] == b'{"a":null}'


def test_too_large_a_result_is_refused(worker_for):
    failure = worker_for(lambda: b"x" * (2**24 + 1)).call(b"")[0].failure
    assert failure.code == "result_too_large"
    assert "(16777217 bytes)" in failure.message and "DGSF_MAX_RESULT_BYTES" in failure.message


def test_code_that_cannot_be_loaded_says_why(worker_for):
    worker = worker_for(b"not a bundle")
    assert worker.loaded.failure.code == "function_load_error"


def test_large_payloads_go_in_chunks_over_tcp(worker_for):
    worker = worker_for(lambda data: data[::-1], tcp=True)
    data = os.urandom(6 * CHUNK_BYTES + 11)
    end, result = worker.call(data, codec=Codec.raw)
    assert (end.payload.carrier, end.payload.size, result) == (Carrier.chunks, len(data), data[::-1])


def test_a_lower_epoch_is_refused_and_a_higher_one_is_kept(worker_for):
    worker = worker_for(lambda: 1)
    assert worker.call(b"", epoch=4)[0].failure.code == "lease_lost"
    assert worker.call(b"", epoch=9)[0].failure is None
    assert worker.call(b"", epoch=8)[0].failure.code == "lease_lost"


@pytest.mark.parametrize(("reason", "code"), [("timeout", "timed_out"), ("cancel", "cancelled")])
def test_a_running_call_stops_when_asked_and_the_worker_goes_on(worker_for, reason, code):
    def slow(x):
        try:
            time.sleep(x)
        except Exception:
            return "swallowed"

    worker = worker_for(slow)
    assert worker.call(b"[0]", call=b"a" * 16)[0].failure is None
    worker.begin(b"[60]", call=b"b" * 16)
    worker.stop(b"b" * 16, reason)
    while not select.select([worker.socket], [], [], 0.2)[0]:
        worker.stop(b"b" * 16, reason)  # the signal may come before the call began: ask again until it has
    end, _ = worker.end()
    assert end.failure.code == code
    assert worker.call(b"[0]", call=b"d" * 16)[0].failure is None


def test_a_stop_for_another_call_changes_nothing(worker_for):
    worker = worker_for(lambda: 7)
    worker.stop(b"z" * 16)
    assert worker.call(b"")[1] == b"7"


def test_calls_sent_ahead_are_answered_in_order(worker_for):
    worker = worker_for(lambda x: x)
    for number in range(200):
        worker.begin(b"[%d]" % number)
    assert [worker.end()[1] for _ in range(200)] == [b"%d" % number for number in range(200)]


def test_a_worker_ends_with_its_connection(worker_for):
    assert worker_for(lambda: 1).close() == 0


def test_frames_that_make_no_sense_end_the_worker(worker_for):
    worker = worker_for(lambda: 1)
    worker.frames.send(Kind.ATTACH, 1, b"")
    assert worker.process.wait(60) == 76
