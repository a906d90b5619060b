"""Ctrl-C comes at a good moment: it costs neither the session nor the process, and is not lost."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

import dgsf
from dgsf.remoting.executor.local import LocalExecutors, LocalSpec
from dgsf.remoting.guest import interrupts
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.modes import parse_modes
from dgsf.remoting.guest.session_stream import SessionStream
from loadtests.latency_relay import LatencyRelay

pytestmark = pytest.mark.timeout(120)
SPEC = LocalSpec(device_options={"threads": 1})


class Clock:
    """The stream's; it can press Ctrl-C in the middle of a call, where the stream looks at it."""

    presses = 0

    def __call__(self) -> float:
        while self.presses:
            self.presses -= 1
            signal.raise_signal(signal.SIGINT)
        return time.perf_counter()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stream(clock: Clock) -> Iterator[SessionStream]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with LocalExecutors() as executors:
        found = SessionStream(executors.connect(SPEC), now=clock)
        yield found
        found.close()
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def device(stream: SessionStream) -> Iterator[torch.device]:
    with bind(stream) as found:
        yield found
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@contextmanager
def _pressed_after(seconds: float) -> Iterator[None]:
    """And again every two seconds: torch itself may catch one, as without a remote device."""
    done = threading.Event()

    def press() -> None:
        wait = seconds
        while not done.wait(wait):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            wait = 2.0

    thread = threading.Thread(target=press)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _for_ever(work: Callable[[], object]) -> None:
    while True:
        work()


def _until_pressed(work: Callable[[], object]) -> None:
    """Goes on with the program until it is interrupted."""
    with pytest.raises(KeyboardInterrupt):
        _for_ever(work)


def test_what_is_begun_is_done_first_and_then_the_program_is_interrupted(device, clock):
    x = torch.arange(4.0, device=device)
    clock.presses = 1
    y = x + 1
    _until_pressed(lambda: None)
    assert (x + y).tolist() == [1, 3, 5, 7]


def test_a_backward_pass_is_whole(device):
    x = torch.ones(3, device=device, requires_grad=True)
    x.register_hook(lambda grad: signal.raise_signal(signal.SIGINT))
    with contextlib.suppress(KeyboardInterrupt):  # perhaps where it returns, perhaps a moment later
        (x * 2).sum().backward()
        _for_ever(lambda: None)
    assert x.grad.tolist() == [2, 2, 2]


def test_one_key_that_is_told_twice_is_one(device, clock):
    x = torch.ones(3, device=device)
    clock.presses = 3
    x.add_(1)
    _until_pressed(lambda: None)
    assert x.tolist() == [2, 2, 2]


def test_whoever_insists_is_heard_at_once_and_has_no_session_or_a_whole_one(device, clock, monkeypatch):
    x = torch.ones(3, device=device)
    monkeypatch.setattr(interrupts, "INSIST_SECONDS", 0.0)
    clock.presses = 2
    with pytest.raises(KeyboardInterrupt):
        x.add_(1)
    with contextlib.suppress(dgsf.SessionLost):
        assert x.tolist() in ([1, 1, 1], [2, 2, 2])


def test_a_signal_on_its_way_when_the_device_is_given_back_comes_at_once(stream, monkeypatch):
    monkeypatch.setattr(interrupts, "is_in", lambda frame, codes: True)  # no moment is good
    with pytest.raises(KeyboardInterrupt), bind(stream):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_program_is_left_alone(stream):
    called: list[int] = []

    def own(number: int, _: object) -> None:
        called.append(number)

    signal.signal(signal.SIGINT, own)
    with bind(stream):
        signal.raise_signal(signal.SIGINT)
        assert called == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is own


def test_what_was_being_sent_goes_out_later_and_what_nobody_has_is_freed(clock):
    """The other side does not read: the program is interrupted in the middle of an upload, and can close at once."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with LocalExecutors() as executors, LatencyRelay(executors.connect(SPEC), 0.0) as relay:
        stream = SessionStream(relay.guest, parse_modes("full,-known"))
        with bind(stream) as device:
            ones = torch.ones(16 * 2**20)
            relay.delay(2.0)  # longer than its memory lasts
            with _pressed_after(0.3), pytest.raises(KeyboardInterrupt):
                _for_ever(lambda: ones.to(device))
            relay.delay(0.0)
            assert torch.ones(2, device=device).tolist() == [1, 1]
            assert stream.memory()[0] < ones.nbytes
        stream.close()
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("wait", [lambda device: time.sleep(100), lambda device: _ask_for_ever(device)])
def test_a_program_that_waits_is_interrupted(device, wait):
    with _pressed_after(0.2), pytest.raises(KeyboardInterrupt):
        wait(device)
    assert torch.ones(2, device=device).tolist() == [1, 1]


def _ask_for_ever(device: torch.device) -> None:
    x = torch.ones(256, 256, device=device)
    while True:
        (x @ x).sum().item()


@pytest.mark.parametrize("asks", [True, False])
def test_a_session_outlives_any_number_of_them(device, asks):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.ones(4, 16, device=device)

    def step() -> None:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        if asks:
            loss.item()

    step()  # torch makes the optimizer's state at the first one, piece by piece
    for moment in random.Random(4).choices([0.001, 0.002, 0.003, 0.005, 0.008], k=40):
        with _pressed_after(moment):
            _until_pressed(step)
        torch.set_grad_enabled(True)  # torch itself may be interrupted where it has just switched them off
    assert torch.equal((x @ x.T).cpu(), torch.full((4, 4), 16.0))
