"""The guest's stream over real executors: values, errors, bytes and round trips, contents."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from dgsf.errors import DgsfError, OpNotAllowed, ProtocolError, RemoteOpError, SessionLost
from dgsf.remoting.executor.local import LocalExecutors, LocalSpec
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.kinds import Kind
from dgsf.remoting.guest.lending import lending
from dgsf.remoting.guest.modes import SWITCHES, parse_modes
from dgsf.remoting.guest.recording import RecordingStream
from dgsf.remoting.guest.session_stream import SessionStream
from dgsf.remoting.protocol import FLOAT, TENSOR
from loadtests.latency_relay import LatencyRelay

A, B = {TENSOR: 0}, {TENSOR: 1}
ADD = Kind("aten::add.Tensor", [A, B])
SCALE = Kind("aten::mul.Scalar", [A, {FLOAT: 0}])
RELU = Kind("aten::relu", [A])
SPLIT = Kind("aten::split.Tensor", [A, 2], outs=2)
BROKEN = Kind("aten::view", [A, [7, 13]])
EQUAL = Kind("aten::equal", [A, B], outs=0)
COUNT = Kind("aten::nonzero", [A])
RANDOM = Kind("aten::rand_like", [A])

Opener = Callable[..., SessionStream]


@pytest.fixture(scope="module")
def executors() -> Iterator[LocalExecutors]:
    with LocalExecutors() as found:
        yield found


@pytest.fixture
def open_stream(executors: LocalExecutors, tmp_path: Path) -> Iterator[Opener]:
    opened: list[SessionStream] = []

    def opener(modes: str = "full", contents: Path = tmp_path) -> SessionStream:
        spec = LocalSpec(contents=str(contents), device_options={"threads": 1})
        opened.append(SessionStream(executors.connect(spec), parse_modes(modes)))
        return opened[-1]

    yield opener
    for stream in opened:
        stream.close()


def forward(stream: SessionStream, weight: int, x: int, layers: int = 40) -> int:
    """A model whose temporaries are freed as torch would."""
    value = x
    for layer in range(layers):
        for kind, handles, floats in ((ADD, [value, weight], ()), (SCALE, [value], (0.5,)), (RELU, [value], ())):
            handles[0] = value
            result = stream.call(kind, handles, floats)
            if value != x:
                stream.free(value)
            value = result
        assert layer >= 0
    return value


def run(stream: SessionStream, weight: int, turn: int) -> torch.Tensor:
    x = stream.upload(torch.full((8,), float(turn)))
    y = forward(stream, weight, x)
    result = stream.fetch(y)
    stream.free(y)
    stream.free(x)
    return result


# --- values -----------------------------------------------------------------------------------
EVERY_SWITCH = ["full", *(f"full,-{switch}" for switch in SWITCHES), "full,-known,-coalesce", "naive", "naive,-frees"]


@pytest.mark.parametrize("modes", EVERY_SWITCH)
def test_values_come_back_as_they_should(open_stream: Opener, modes: str) -> None:
    stream = open_stream(modes)
    for tensor in (
        torch.arange(6.0).reshape(2, 3).t(),
        torch.randn(300, 300),
        torch.tensor(3),
        torch.empty(0, 4),
        torch.tensor([1 + 2j, 3 - 1j]).conj(),
        torch.randn(2, 400_000).to(torch.bfloat16),
        torch.tensor([True, False]),
    ):
        assert torch.equal(stream.fetch(stream.upload(tensor)), tensor)
    x = stream.upload(torch.arange(4.0))
    first = stream.call(SPLIT, [x])
    assert stream.fetch(stream.call(ADD, [first, first + 1])).tolist() == [2.0, 4.0]
    assert stream.meta(first + 1) == (torch.float32, (2,), (1,), 2)


@pytest.mark.parametrize("modes", EVERY_SWITCH)
def test_a_program_has_the_same_results_whatever_is_switched_off(open_stream: Opener, modes: str) -> None:
    stream = open_stream(modes)
    with bind(stream) as device:
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(200, 300), torch.nn.ReLU(), torch.nn.Linear(300, 5)).to(device)
        optimizer = torch.optim.AdamW(model.parameters())
        batches = [torch.randn(100, 200) for _ in range(6)]
        for batch in batches:
            optimizer.zero_grad()
            loss = model(batch.to(device)).square().mean()
            loss.backward()
            optimizer.step()
        found = [loss.item(), *(parameter.detach().cpu() for parameter in model.parameters())]
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(200, 300), torch.nn.ReLU(), torch.nn.Linear(300, 5))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in batches:
        batch = torch.randn(100, 200)
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
    torch.testing.assert_close(found, [loss.item(), *(parameter.detach() for parameter in model.parameters())])


def test_frees_ride_along_unless_switched_off(open_stream: Opener) -> None:
    trips, live = {}, {}
    for modes in ("full", "full,-frees"):
        stream = open_stream(modes)
        weight = stream.upload(torch.ones(8))
        for turn in range(5):
            run(stream, weight, turn)
        trips[modes] = stream.traffic["round_trips"]
        live[modes] = stream.memory()[0]
    assert trips["full"] == 5
    assert trips["full,-frees"] > 5 * 100  # a run has 119 temporaries
    assert live["full"] == live["full,-frees"]


def test_transfers_overlap_with_the_program_unless_switched_off(open_stream: Opener) -> None:
    trips = {}
    for modes in ("full,-known", "full,-known,-overlap"):
        stream = open_stream(modes)
        handles = [stream.upload(torch.full((400_000,), float(turn))) for turn in range(5)]
        assert [stream.fetch(handle)[7].item() for handle in handles] == [0.0, 1.0, 2.0, 3.0, 4.0]
        trips[modes] = stream.traffic["round_trips"]
    assert trips == {"full,-known": 5, "full,-known,-overlap": 15}


@pytest.mark.parametrize("modes", ["full", "naive"])
def test_an_ask_tells_metadata_or_values(open_stream: Opener, modes: str) -> None:
    stream = open_stream(modes)
    x = stream.upload(torch.tensor([0.0, 1.0, 2.0]))
    out, results = stream.ask(COUNT, [x])
    (meta,) = results
    assert isinstance(meta, tuple)
    assert meta[:2] == (torch.int64, (2, 1))
    assert stream.fetch(out).tolist() == [[1], [2]]
    assert stream.ask(EQUAL, [x, x])[1] == [True]


def test_random_numbers_follow_the_seed(open_stream: Opener) -> None:
    stream = open_stream()
    x = stream.upload(torch.zeros(4))
    stream.seed(7)
    first = stream.fetch(stream.call(RANDOM, [x]))
    state = stream.rng_state()
    second = stream.fetch(stream.call(RANDOM, [x]))
    stream.set_rng_state(state)
    assert torch.equal(stream.fetch(stream.call(RANDOM, [x])), second)
    stream.seed(7)
    assert torch.equal(stream.fetch(stream.call(RANDOM, [x])), first)


# --- economy ----------------------------------------------------------------------------------
def test_a_repeated_forward_is_one_round_trip_and_almost_no_bytes(open_stream: Opener) -> None:
    traced, plain = open_stream(), open_stream("full,-traces")
    weights = [stream.upload(torch.linspace(0, 1, 8)) for stream in (traced, plain)]
    for turn in range(6):
        before = traced.traffic, plain.traffic
        results = [run(stream, weight, turn) for stream, weight in zip((traced, plain), weights, strict=True)]
        assert torch.equal(*results)
    calls = traced.traffic["calls"] - before[0]["calls"]
    assert traced.traffic["round_trips"] - before[0]["round_trips"] == 1
    assert plain.traffic["round_trips"] - before[1]["round_trips"] == 1
    assert (plain.traffic["bytes_out"] - before[1]["bytes_out"]) / calls <= 40
    # a frame every so often is the price of not holding work back; a slow machine sends more of them
    frames = traced.traffic["frames"] - before[0]["frames"]
    assert traced.traffic["bytes_out"] - before[0]["bytes_out"] <= 200 + 60 * frames


def test_naive_waits_for_every_call(open_stream: Opener) -> None:
    stream = open_stream("naive")
    weight = stream.upload(torch.ones(8))
    before = stream.traffic
    run(stream, weight, 1)
    after = stream.traffic
    assert after["round_trips"] - before["round_trips"] == after["calls"] - before["calls"] + 2


def test_latency_is_paid_once_per_forward(executors: LocalExecutors) -> None:
    with LatencyRelay(executors.connect(), 0.01) as relay:
        stream = SessionStream(relay.guest)
        weight = stream.upload(torch.ones(8))
        run(stream, weight, 0)
        before = relay.passed()
        for turn in range(5):
            run(stream, weight, turn)
        assert relay.passed().round_trips - before.round_trips == 5
        stream.close()


def test_contents_that_the_device_has_are_not_sent_again(open_stream: Opener) -> None:
    tensor = torch.randn(500_000)
    first = open_stream()
    assert torch.equal(first.fetch(first.upload(tensor)), tensor)
    assert first.traffic["bytes_out"] > 2_000_000
    second = open_stream()
    assert torch.equal(second.fetch(second.upload(tensor)), tensor)
    assert second.traffic["bytes_out"] < 10_000


def test_a_fresh_batch_every_time_is_sent_without_asking(open_stream: Opener) -> None:
    stream = open_stream()
    for turn in range(4):
        batch = torch.randn(100_000) + turn
        assert torch.equal(stream.fetch(stream.upload(batch)), batch)
    assert not stream._uploads.unconfirmed
    before = stream.traffic["bytes_in"]
    stream.upload(torch.randn(100_000))
    stream.sync()
    assert stream.traffic["bytes_in"] - before < 40  # the answer to the sync and nothing else


# --- errors -----------------------------------------------------------------------------------
@pytest.mark.parametrize("modes", ["full", "naive"])
def test_an_error_is_told_once_with_its_line(open_stream: Opener, modes: str) -> None:
    stream = open_stream(modes)
    x = stream.upload(torch.ones(4))

    def work() -> torch.Tensor:
        broken = stream.call(BROKEN, [x])
        return stream.fetch(stream.call(ADD, [broken, x]))

    with pytest.raises(RemoteOpError, match="shape") as caught:
        work()
    assert caught.value.details["function"].endswith("work")
    assert caught.value.details["file"] == __file__
    assert stream.fetch(x).tolist() == [1.0] * 4


def test_errors_inside_a_trace_have_their_line_too(open_stream: Opener) -> None:
    stream = open_stream()
    x = stream.upload(torch.ones(4))
    for _ in range(6):
        for _ in range(4):
            stream.free(stream.call(ADD, [x, x]))
        stream.free(stream.call(BROKEN, [x]))
        for _ in range(4):
            stream.free(stream.call(ADD, [x, x]))
        with pytest.raises(RemoteOpError, match="shape") as caught:
            stream.sync()
        assert "BROKEN" in Path(__file__).read_text().splitlines()[caught.value.details["line"] - 1]
        stream.sync()


def test_what_is_not_allowed_is_told_and_the_session_goes_on(open_stream: Opener) -> None:
    stream = open_stream()
    x = stream.upload(torch.ones(4))
    stream.call(Kind("aten::from_file", ["/etc/passwd"]), [])
    with pytest.raises(OpNotAllowed):
        stream.sync()
    assert stream.fetch(x).tolist() == [1.0] * 4


def test_a_session_that_broke_the_protocol_is_over_with_the_reason(open_stream: Opener) -> None:
    stream = open_stream()
    stream._link.channel.sent += 1  # a gap in the numbers
    with pytest.raises(ProtocolError, match="expected"):
        stream.sync()
    with pytest.raises(DgsfError):
        stream.call(ADD, [1, 1])


def test_a_closed_stream_says_so(open_stream: Opener) -> None:
    stream = open_stream()
    x = stream.upload(torch.ones(4))
    stream.close()
    with pytest.raises(SessionLost):
        stream.fetch(x)


# --- threads ----------------------------------------------------------------------------------
def test_many_threads_share_a_stream(open_stream: Opener) -> None:
    stream = open_stream()
    weight = stream.upload(torch.ones(8))
    wrong: list[int] = []

    def work(number: int) -> None:
        for turn in range(10):
            x = stream.upload(torch.full((8,), float(number * 100 + turn)))
            y = stream.call(ADD, [x, weight])
            if stream.fetch(y).tolist() != [number * 100 + turn + 1.0] * 8:
                wrong.append(turn)
            stream.free(x)
            stream.free(y)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- on the way -------------------------------------------------------------------------------
def test_results_that_are_none_are_not_counted_as_alive(executors: LocalExecutors) -> None:
    stream = SessionStream(executors.connect())
    with bind(stream) as device:
        layer = torch.nn.Conv2d(3, 4, 3, bias=False).to(device)  # the gradient of its bias is none
        image, alive = torch.randn(1, 3, 8, 8).to(device), []
        for _ in range(4):
            layer.zero_grad()
            layer(image).sum().backward()
            layer.weight.grad.sum().item()
            alive.append(stream._recorder.live)
        assert alive[-1] == alive[-2]
    stream.close()


def test_who_writes_to_a_tensor_that_moves_gets_what_it_was_or_an_error_and_the_session_lives(
    open_stream: Opener,
) -> None:
    numbers = torch.Generator().manual_seed(50_000)  # contents that no other test sends
    for _ in range(5):  # who is first, the write or the bytes on their way, is not ours to say
        stream, tensor = open_stream(), torch.randn(50_000, generator=numbers)
        before = tensor.clone()
        with lending([tensor.detach()]):
            handle = stream.upload(tensor)
            tensor.add_(1)  # another thread, while the module is on its way
            try:
                assert torch.equal(stream.fetch(handle), before)
            except RemoteOpError as error:
                assert "changed on its way to the device" in error.message  # noqa: PT017 (either is right)
        for good in (tensor, before):
            assert torch.equal(stream.fetch(stream.upload(good)), good)


def test_a_recording_begins_at_rest(open_stream: Opener) -> None:
    stream = open_stream()
    recording = RecordingStream(stream, time.perf_counter_ns)
    handle = recording.upload(torch.ones(10))
    recording.call(ADD, [handle, handle])
    assert stream.unanswered
    recording.start()
    assert not stream.unanswered and recording.events == []
    trips = stream.counts()[3]
    recording.start()
    assert stream.counts()[3] == trips  # nothing was under way: nothing is waited for
