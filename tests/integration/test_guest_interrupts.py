"""Ctrl-C comes at a good moment: it costs neither the session nor the process, and is not lost."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
import torch

from dgsf.remoting.executor.local import LocalExecutors, LocalSpec
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.interrupts import put_off
from dgsf.remoting.guest.session_stream import SessionStream

pytestmark = pytest.mark.timeout(120)
SIGNAL = signal.SIGUSR2  # as good as SIGINT, and pytest has no use for it
SPEC = LocalSpec(device_options={"threads": 1})


class Pressed(BaseException):
    """What the handler raises."""


class Clock:
    """The stream's; it can press Ctrl-C in the middle of a call, where the stream looks at it."""

    presses = 0

    def __call__(self) -> float:
        while self.presses:
            self.presses -= 1
            signal.raise_signal(SIGNAL)
        return time.perf_counter()


@pytest.fixture
def handled() -> Iterator[list[str]]:
    """How often the handler ran; it is put off as in any program with a remote device."""
    times: list[str] = []

    def handler(number: int, _: object) -> None:
        times.append(signal.Signals(number).name)
        raise Pressed

    before = signal.signal(SIGNAL, handler)
    with ExitStack() as stack:
        put_off(SIGNAL, stack)
        yield times
    assert signal.getsignal(SIGNAL) is handler
    signal.signal(SIGNAL, before)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def device(clock: Clock, handled: list[str]) -> Iterator[torch.device]:
    with LocalExecutors() as executors:
        stream = SessionStream(executors.connect(SPEC), now=clock)
        with bind(stream) as found:
            yield found
        stream.close()


@contextmanager
def _pressed_after(seconds: float) -> Iterator[None]:
    """And again every two seconds: torch itself may catch one, as without a remote device."""
    done = threading.Event()

    def press() -> None:
        wait = seconds
        while not done.wait(wait):
            signal.pthread_kill(threading.main_thread().ident or 0, SIGNAL)
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
    with pytest.raises(Pressed):
        _for_ever(work)


def test_what_is_begun_is_done_first_and_then_the_program_is_interrupted(device, clock, handled):
    x = torch.arange(4.0, device=device)
    clock.presses = 1
    y = x + 1
    _until_pressed(lambda: None)
    assert handled == ["SIGUSR2"]
    assert (x + y).tolist() == [1, 3, 5, 7]


def test_a_backward_pass_is_whole(device, handled):
    x = torch.ones(3, device=device, requires_grad=True)
    x.register_hook(lambda grad: signal.raise_signal(SIGNAL))
    with contextlib.suppress(Pressed):  # perhaps where it returns, perhaps a moment later
        (x * 2).sum().backward()
        _for_ever(lambda: None)
    assert x.grad.tolist() == [2, 2, 2]


def test_whoever_insists_is_heard_at_once(device, clock):
    x = torch.ones(3, device=device)
    clock.presses = 2
    with pytest.raises(Pressed):
        x + 1


@pytest.mark.parametrize("wait", [lambda device: time.sleep(100), lambda device: _ask_for_ever(device)])
def test_a_program_that_waits_is_interrupted(device, wait):
    with _pressed_after(0.2), pytest.raises(Pressed):
        wait(device)
    assert torch.ones(2, device=device).tolist() == [1, 1]


def _ask_for_ever(device: torch.device) -> None:
    x = torch.ones(256, 256, device=device)
    while True:
        (x @ x).sum().item()


def test_a_handler_that_raises_nothing_is_called_once(device):
    called: list[int] = []
    before = signal.signal(SIGNAL, lambda number, _: called.append(number))
    with ExitStack() as stack:
        put_off(SIGNAL, stack)
        signal.raise_signal(SIGNAL)
        while not called:
            torch.ones(2, device=device).tolist()
    assert called == [SIGNAL]
    signal.signal(SIGNAL, before)


@pytest.mark.parametrize("asks", [True, False])
def test_a_session_outlives_any_number_of_them(device, handled, asks):
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
