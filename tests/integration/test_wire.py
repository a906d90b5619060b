"""Connections on real sockets: handshake, cuts at every byte, garbage, silence, back-pressure."""

import asyncio
import contextlib
import errno
import os
import socket
from uuid import uuid4

import pytest

from dgsf.config import Settings
from dgsf.errors import ConnectionLost, ProtocolError
from dgsf.wire import chunks
from dgsf.wire import link as wire_link
from dgsf.wire.frames import CHUNK_BYTES, HEADER, MAX_BODY_BYTES, Kind, encode_frame
from dgsf.wire.handshake import MAGIC, shake_as_client, shake_as_server
from dgsf.wire.link import Address, Link, adopt, connect_socket, host_id
from dgsf.wire.messages import Carrier, Codec, Failure, Ref
from dgsf.wire.ports import CallRequest, CallResult, CallStream, Payload
from dgsf.wire.proxy_link import ProxyLink
from dgsf.wire.shared import SharedArea
from proxy import server as proxy_server_module
from proxy.server import ProxyServer

SECRET = b"the cluster's own"
DEADLINE = 60


class EchoPort:
    """A CallPort that answers with what it got; `hold` keeps calls open instead."""

    def __init__(self):
        self.hold = False
        self.open_calls = []
        self.cancelled = []

    def number_for(self, version_id):
        return 7

    def open(self, request):
        stream = CallStream(lambda: self.cancelled.append(request.id))
        self.open_calls.append((request, stream))
        if not self.hold:
            data = request.payload.read()
            path = ""
            if request.payload.path:
                path = request.payload.path + "-out"
                with open(path, "wb") as file:
                    file.write(data)
                request.payload.discard()
            payload = Payload(Codec.raw, b"" if path else data, path, len(data))
            stream.finish(CallResult("succeeded", payload, None, 1, 2, 3, "dev"))
        return stream


class Talk(Link):
    """Remembers what came and why it ended."""

    def __init__(self):
        super().__init__()
        self.frames = []
        self.ended = asyncio.get_running_loop().create_future()

    def frame_received(self, kind, flags, stream, body):
        self.frames.append((kind, stream, body))

    def link_lost(self, error):
        self.ended.set_result(error)


@contextlib.asynccontextmanager
async def proxy_server(tmp_path, port):
    area = SharedArea(f"dgsf-test-{uuid4().hex[:12]}")
    area.make()
    server = ProxyServer(Settings(), SECRET, area, tmp_path / "p.sock")
    tcp_port = server.listen("127.0.0.1")
    server.start(port)
    try:
        yield Address(host_id(), str(tmp_path / "p.sock"), "127.0.0.1", tcp_port), area
    finally:
        await server.stop()
        area.remove()


async def proxy_link(address, area, tcp):
    settings = Settings()
    return await ProxyLink.connect(
        address, 7, SECRET, area, settings.inline_bytes, settings.max_body_bytes, here=host_id(), tcp=tcp
    )


def request_for(data, area=None):
    payload = Payload(Codec.raw, data, "", len(data))
    if area is not None:
        descriptor, path = area.new_file()
        os.write(descriptor, data)
        os.close(descriptor)
        payload = Payload(Codec.raw, b"", path, len(data))
    return CallRequest(uuid4(), 1, 2, payload, Codec.json, 1_000_000)


async def result_of(stream):
    async with asyncio.timeout(DEADLINE):
        return await stream.result()


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "tcp"])
async def test_many_calls_share_one_connection(tmp_path, tcp):
    async with proxy_server(tmp_path, EchoPort()) as (address, area):
        link = await proxy_link(address, area, tcp)
        streams = [link.open(request_for(b"call %d" % number)) for number in range(500)]
        results = [await result_of(stream) for stream in streams]
        assert [result.payload.read() for result in results] == [b"call %d" % number for number in range(500)]
        assert results[0].device == "dev" and results[0].cost_nano == 3
        link.close()


@pytest.mark.parametrize("tcp", [False, True], ids=["shared memory", "chunks"])
async def test_large_payloads_go_both_ways_and_leave_nothing_behind(tmp_path, tcp):
    data = os.urandom(5 * 1024 * 1024 + 17)
    async with proxy_server(tmp_path, EchoPort()) as (address, area):
        link = await proxy_link(address, area, tcp)
        requests = [request_for(data, area) for _ in range(3)]
        for stream in [link.open(request) for request in requests]:
            result = await result_of(stream)
            assert result.payload.read() == data
            result.payload.discard()
        for request in requests:
            request.payload.discard()
        assert list((area.folder / "in").iterdir()) == []
        link.close()


async def test_a_gateway_that_is_gone_cancels_its_calls_but_not_the_keyed_ones(tmp_path):
    port = EchoPort()
    port.hold = True
    async with proxy_server(tmp_path, port) as (address, area):
        link = await proxy_link(address, area, False)
        plain, keyed = request_for(b"a"), request_for(b"b")
        keyed.keep = True
        link.open(plain)
        link.open(keyed)
        async with asyncio.timeout(DEADLINE):
            while len(port.open_calls) < 2:
                await asyncio.sleep(0)
            link.close()
            while not port.cancelled:
                await asyncio.sleep(0.01)
        assert port.cancelled == [plain.id]


async def test_a_lost_connection_is_told_to_every_caller(tmp_path):
    port = EchoPort()
    port.hold = True
    async with proxy_server(tmp_path, port) as (address, area):
        link = await proxy_link(address, area, False)
        streams = [link.open(request_for(b"x")) for _ in range(10)]
        link.close(ConnectionLost("cut"))
        results = [await result_of(stream) for stream in streams]
        assert {result.failure.code for result in results} == {"connection_lost"}
        assert (await result_of(link.open(request_for(b"x")))).failure.code == "connection_lost"


@pytest.mark.parametrize("side", ["client", "server"])
async def test_a_wrong_secret_is_refused_on_both_sides(side):
    left, right = socket.socketpair()
    left.setblocking(False)
    right.setblocking(False)
    secrets = {"client": (b"wrong", SECRET), "server": (SECRET, b"wrong")}[side]
    client = asyncio.create_task(shake_as_client(left, secrets[0]))
    server = asyncio.create_task(shake_as_server(right, secrets[1]))
    with pytest.raises(ProtocolError, match="does not hold this cluster's secret"):
        await client
    left.close()
    with pytest.raises(ConnectionLost):
        await server
    right.close()


async def test_another_protocol_is_refused(tmp_path):
    async with proxy_server(tmp_path, EchoPort()) as (address, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", address.tcp_port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + b" " * 64)
        async with asyncio.timeout(DEADLINE):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()


async def test_silence_in_the_handshake_ends_after_its_deadline():
    left, right = socket.socketpair()
    left.setblocking(False)
    right.setblocking(False)
    with pytest.raises(ConnectionLost, match="no answer within"):
        await shake_as_server(right, SECRET, timeout=0.05)
    left.send(MAGIC)
    with pytest.raises(ConnectionLost, match="no answer within"):
        await shake_as_server(right, SECRET, timeout=0.05)
    left.close()
    right.close()


async def test_a_stream_cut_at_every_byte_closes_that_connection_and_no_other(tmp_path):
    async with proxy_server(tmp_path, EchoPort()) as (address, area):
        healthy = await proxy_link(address, area, False)
        whole = encode_frame(Kind.PING, 0) + encode_frame(Kind.OPEN, 1, b"\x00\x01\x02 not a head")
        for cut in range(1, len(whole)):
            sock = await connect_socket(address, SECRET, here=host_id(), tcp=False)
            await asyncio.get_running_loop().sock_sendall(sock, whole[:cut])
            sock.close()
        assert (await result_of(healthy.open(request_for(b"still here")))).payload.read() == b"still here"
        healthy.close()


@pytest.mark.parametrize(
    "garbage",
    [
        HEADER.pack(3 * 1024 * 1024, Kind.OPEN, 0, 0, 1),
        HEADER.pack(0, 99, 0, 0, 1),
        HEADER.pack(0, Kind.OPEN, 0, 7, 1),
        encode_frame(Kind.OPEN, 1, b""),
        encode_frame(Kind.OPEN, 1, b"\xff\xff\xff\x7f" + b"x" * 50),
        encode_frame(Kind.ITEM, 5, b"a piece of nothing"),
        encode_frame(Kind.LOADED, 0, b""),
        os.urandom(4096),
    ],
)
async def test_garbage_closes_the_connection_and_wedges_nothing(tmp_path, garbage):
    async with proxy_server(tmp_path, EchoPort()) as (address, area):
        sock = await connect_socket(address, SECRET, here=host_id(), tcp=False)
        talk = await adopt(sock, Talk())
        talk._transport.write(garbage + b"\x01" * HEADER.size)
        async with asyncio.timeout(DEADLINE):
            await talk.ended
        link = await proxy_link(address, area, True)
        assert (await result_of(link.open(request_for(b"ok")))).payload.read() == b"ok"
        link.close()


async def test_a_sender_without_credit_waits(tmp_path):
    """A receiver that never gives credit gets the window and not a byte more."""
    left, right = socket.socketpair()
    talk = await adopt(left, Talk())
    link = await adopt(right, ProxyLink(1, SharedArea("unused"), 1024, 2**30, sharing=False))
    link.open(request_for(b"z" * (40 * CHUNK_BYTES)))
    async with asyncio.timeout(DEADLINE):
        while sum(kind == Kind.ITEM for kind, _, _ in talk.frames) < 4:
            await asyncio.sleep(0)
        for _ in range(200):
            await asyncio.sleep(0)
    assert sum(kind == Kind.ITEM for kind, _, _ in talk.frames) == 4
    link.close()
    talk.close()


async def test_a_peer_that_does_not_read_is_given_up(monkeypatch):
    monkeypatch.setattr(wire_link, "MAX_WAITING_BYTES", 1024 * 1024)
    left, right = socket.socketpair()
    talk = await adopt(left, Talk())
    async with asyncio.timeout(DEADLINE):
        with contextlib.suppress(ConnectionLost):
            while True:
                talk.send(Kind.LOG, 0, b"x" * 100_000)
                await asyncio.sleep(0)
        assert "does not read" in (await talk.ended).message
    right.close()


# --- one call's trouble is not the link's -----------------------------------------------------
async def still_works(link):
    result = await result_of(link.open(request_for(b"still here")))
    assert result.payload.read() == b"still here" and not link.lost
    link.close()


async def until(condition):
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.005)


def files_of(area):
    return list((area.folder / "in").iterdir())


def test_a_frame_over_the_limit_is_not_made():
    encode_frame(Kind.END, 1, bytes(MAX_BODY_BYTES))
    with pytest.raises(ProtocolError, match="over the limit"):
        encode_frame(Kind.END, 1, bytes(MAX_BODY_BYTES + 1))


class AnsweringPort(EchoPort):
    """Gives its first call this result, and echoes the others."""

    def __init__(self, result):
        super().__init__()
        self.result = result

    def open(self, request):
        if self.result is None:
            return super().open(request)
        stream = CallStream(lambda: None)
        result, self.result = self.result, None
        stream.finish(result)
        return stream


async def test_a_huge_failure_is_clipped_and_its_link_lives_on(tmp_path):
    big = "x" * 2_000_000
    error = {"qualname": "Boom", "traceback": big, "pickle": big, "frames": [{"code": big}] * 3}
    failure = Failure("function_error", big, {"error": error, "output": big})
    port = AnsweringPort(CallResult("failed", None, failure, 1, 2, 3, "dev"))
    async with proxy_server(tmp_path, port) as (address, area):
        link = await proxy_link(address, area, False)
        result = await result_of(link.open(request_for(b"")))
        assert (result.failure.code, result.cost_nano) == ("function_error", 3)
        assert len(result.failure.message) <= 4096
        assert result.failure.details["error"]["qualname"] == "Boom"
        await still_works(link)


async def test_a_result_over_the_frame_limit_ends_its_call_only(tmp_path, monkeypatch):
    data = bytes(MAX_BODY_BYTES)
    port = AnsweringPort(CallResult("succeeded", Payload(Codec.raw, data, "", len(data)), None, 1, 2, 3, "dev"))
    monkeypatch.setattr(proxy_server_module.GatewayLink, "describe", lambda self, payload: chunks_never(payload))
    async with proxy_server(tmp_path, port) as (address, area):
        link = await proxy_link(address, area, False)
        result = await result_of(link.open(request_for(b"")))
        assert (result.state, result.failure.code, result.cost_nano) == ("failed", "result_too_large", 3)
        await still_works(link)


def chunks_never(payload):
    return Ref() if payload is None else Ref(payload.codec, Carrier.inline, payload.size)


async def test_a_payload_that_its_gateway_dropped_ends_its_call_only(tmp_path):
    async with proxy_server(tmp_path, EchoPort()) as (address, area):
        link = await proxy_link(address, area, False)
        request = request_for(b"x" * 100_000, area)
        stream = link.open(request)
        request.payload.discard()
        result = await result_of(stream)
        assert (result.state, result.failure.code) == ("cancelled", "cancelled")
        await still_works(link)


async def test_a_payload_that_is_gone_before_it_was_sent_in_chunks_ends_its_call_only(tmp_path):
    port = EchoPort()
    async with proxy_server(tmp_path, port) as (address, area):
        link = await proxy_link(address, area, True)
        request = request_for(b"x" * 100_000, area)
        os.unlink(request.payload.path)
        assert (await result_of(link.open(request))).state == "cancelled"
        assert not port.open_calls
        await still_works(link)


async def test_a_result_that_is_gone_before_it_was_sent_ends_its_call_only(tmp_path):
    port = AnsweringPort(CallResult("succeeded", Payload(Codec.raw, b"", "/nowhere/x", 9), None, 1, 2, 3, "dev"))
    async with proxy_server(tmp_path, port) as (address, area):
        link = await proxy_link(address, area, True)
        result = await result_of(link.open(request_for(b"")))
        assert (result.state, result.failure.code, result.cost_nano) == ("failed", "internal", 3)
        await still_works(link)


class FullDisk:
    """Writes of one area's files as a nearly full file system takes them: in parts, then not at all."""

    def __init__(self, room):
        self.room = room

    def write(self, descriptor, data):
        taken = os.write(descriptor, bytes(data)[: min(len(data) // 2 + 1, self.room)]) if self.room > 0 else 0
        if not taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= taken
        return taken

    def __getattr__(self, name):
        return getattr(os, name)


async def test_pieces_that_are_taken_in_parts_arrive_whole(tmp_path, monkeypatch):
    data = os.urandom(3 * CHUNK_BYTES + 5)
    monkeypatch.setattr(chunks, "os", FullDisk(2 * len(data)))
    async with proxy_server(tmp_path, EchoPort()) as (address, area):
        link = await proxy_link(address, area, True)
        assert (await result_of(link.open(request_for(data)))).payload.read() == data
        await still_works(link)


@pytest.mark.parametrize("room", [0, 1_000_000], ids=["none", "some"])
async def test_a_payload_without_room_ends_its_call_only(tmp_path, monkeypatch, room):
    port = EchoPort()
    async with proxy_server(tmp_path, port) as (address, area):
        link = await proxy_link(address, area, True)
        monkeypatch.setattr(chunks, "os", FullDisk(room))
        result = await result_of(link.open(request_for(bytes(20 * CHUNK_BYTES))))
        assert (result.state, result.failure.code) == ("failed", "unavailable")
        assert not port.open_calls and files_of(area) == []
        await still_works(link)


async def test_a_result_without_room_at_the_gateway_ends_its_call_only_and_says_its_cost(tmp_path, monkeypatch):
    data = bytes(20 * CHUNK_BYTES)
    port = AnsweringPort(CallResult("succeeded", Payload(Codec.raw, data, "", len(data)), None, 1, 2, 3, "dev"))
    async with proxy_server(tmp_path, port) as (address, area):
        link = await proxy_link(address, area, True)
        monkeypatch.setattr(chunks, "os", FullDisk(CHUNK_BYTES))
        result = await result_of(link.open(request_for(b"")))
        assert (result.state, result.failure.code, result.cost_nano) == ("failed", "unavailable", 3)
        assert result.failure.error().retryable is False and files_of(area) == []
        await still_works(link)


@pytest.mark.parametrize("large", [False, True], ids=["inline", "chunks"])
async def test_one_call_too_many_is_refused_and_the_others_go_on(tmp_path, monkeypatch, large):
    monkeypatch.setattr(proxy_server_module, "MAX_OPEN_CALLS", 2)
    port = EchoPort()
    port.hold = True
    async with proxy_server(tmp_path, port) as (address, area):
        link = await proxy_link(address, area, True)
        held = [link.open(request_for(b"x")) for _ in range(2)]
        data = bytes(20 * CHUNK_BYTES) if large else b"x"
        assert (await result_of(link.open(request_for(data)))).failure.code == "queue_full"
        for _, stream in port.open_calls:
            stream.finish(CallResult("succeeded", None, None))
        assert [(await result_of(stream)).state for stream in held] == ["succeeded"] * 2
        port.hold = False
        await still_works(link)


async def test_a_call_cancelled_while_its_payload_arrives_never_begins(tmp_path):
    port = EchoPort()
    async with proxy_server(tmp_path, port) as (address, area):
        link = await proxy_link(address, area, True)
        stream = link.open(request_for(bytes(40 * CHUNK_BYTES)))
        await until(lambda: files_of(area))
        stream.cancel()
        assert (await result_of(stream)).state == "cancelled"
        assert not port.open_calls and files_of(area) == []
        await still_works(link)


async def test_a_result_on_its_way_is_discarded_when_the_link_is_lost(tmp_path):
    port = EchoPort()
    port.hold = True
    async with proxy_server(tmp_path, port) as (address, area):
        link = await proxy_link(address, area, True)
        for _ in range(2):
            link.open(request_for(b"x"))
        await until(lambda: len(port.open_calls) == 2)
        results = [request_for(bytes(40 * CHUNK_BYTES), area).payload for _ in range(2)]
        port.open_calls[0][1].finish(CallResult("succeeded", results[0], None))
        await until(lambda: len(files_of(area)) == 3)  # the first piece has arrived at the gateway
        link.close(ConnectionLost("cut"))
        port.open_calls[1][1].finish(CallResult("succeeded", results[1], None))
        await until(lambda: files_of(area) == [])
