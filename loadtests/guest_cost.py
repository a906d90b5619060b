"""What one operation costs in the guest, over a stream that goes nowhere: `python -m loadtests.guest_cost`.

This is the tensor side alone (torch's dispatcher, the shape cache, the wrapper), after warm-up; the stream's own
cost per call comes on top and is measured with it elsewhere.  A plain CPU operation stands beside for scale.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from dgsf.config import GIB
from dgsf.remoting.executor.local import LocalExecutors, LocalSpec
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.kinds import Kind, Meta
from dgsf.remoting.guest.session_stream import SessionStream


class NullStream:
    """Numbers handles and forgets everything else."""

    def __init__(self) -> None:
        self._next = 1

    def call(self, kind: Kind, handles: list[int], floats: Sequence[float] = ()) -> int:
        first = self._next
        self._next += kind.outs
        return first

    def ask(self, kind: Kind, handles: list[int], floats: Sequence[float] = ()) -> tuple[int, list[Any]]:
        raise NotImplementedError(f"{kind.op} asks the device, and here is none")

    def meta(self, handle: int) -> Meta:
        raise NotImplementedError("here is no device")

    def upload(self, tensor: torch.Tensor) -> int:
        self._next += 1
        return self._next - 1

    def fetch(self, handle: int) -> torch.Tensor:
        return torch.zeros(())

    def free(self, handle: int) -> None: ...

    def seed(self, seed: int) -> None: ...

    def rng_state(self) -> torch.Tensor:
        return torch.zeros(0, dtype=torch.uint8)

    def set_rng_state(self, state: torch.Tensor) -> None: ...

    def forked(self) -> None: ...

    def memory(self, forget_peak: bool = False) -> tuple[int, int, int]:
        return 0, 0, self.lease()

    def lease(self) -> int:
        return 1 << 30

    def sync(self) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


def cases(device: torch.device) -> Iterator[tuple[str, int, Callable[[], Any]]]:
    """Name, operations per round, the round."""
    x, y = torch.ones(64, 64, device=device), torch.ones(64, 64, device=device)
    bias, image = torch.ones(64, device=device), torch.ones(2, 8, 16, 16, device=device)
    kernel = torch.ones(8, 8, 3, 3, device=device)
    many = [torch.ones(16, 16, device=device) for _ in range(200)]
    yield "add", 1, lambda: x + y
    yield "mul by a number", 1, lambda: x * 0.5
    yield "add_ in place", 1, lambda: x.add_(y)
    yield "relu", 1, lambda: torch.relu(x)
    yield "matmul", 1, lambda: x @ y
    yield "addmm", 1, lambda: torch.addmm(bias, x, y)
    yield "view", 1, lambda: x.view(-1)
    yield "transpose", 1, lambda: x.t()
    yield "select", 1, lambda: x[3]
    yield "sum over a dimension", 1, lambda: x.sum(1)
    yield "softmax", 1, lambda: torch.softmax(x, -1)
    yield "cat of two", 1, lambda: torch.cat([x, y])
    yield "convolution", 1, lambda: torch.conv2d(image, kernel, padding=1)
    yield "zeros", 1, lambda: torch.zeros(4, 4, device=device)
    yield "detach", 1, lambda: x.detach()
    yield "linear", 1, lambda: torch.nn.functional.linear(x, y, bias)
    yield "layer norm", 1, lambda: torch.nn.functional.layer_norm(x, (64,), bias, bias)
    yield "foreach add_ of 200 (per tensor)", 200, lambda: torch._foreach_add_(many, 1.0)
    yield "foreach mul of 200 (per tensor)", 200, lambda: torch._foreach_mul(many, 0.5)


def microseconds(run: Callable[[], Any], operations: int, seconds: float) -> float:
    """The best of five rounds, per operation."""
    rounds = max(1, 200 // operations)
    for _ in range(rounds):
        run()
    best = float("inf")
    deadline = time.perf_counter() + seconds
    for _ in range(5):
        started, done = time.perf_counter(), 0
        while done < rounds or time.perf_counter() < started + seconds / 5:
            run()
            done += 1
        best = min(best, (time.perf_counter() - started) / done / operations)
        if time.perf_counter() > deadline:
            break
    return best * 1e6


def measure(runs: int = 300) -> list[float]:
    """Processor time of the guest per operation in µs, its stream and sending included, to an executor that computes
    nothing; one figure per operator."""
    found = []
    spec = LocalSpec(device_kind="sim", memory_bytes=4 * GIB, device_options={"timing": "a100", "values": "dummy"})
    with LocalExecutors() as executors:
        stream = SessionStream(executors.connect(spec))
        with bind(stream) as device, torch.no_grad():
            for _, operations, run in cases(device):
                times = max(1, runs // operations)
                for _ in range(times):
                    run()
                stream.sync()
                began = time.thread_time()
                for _ in range(times):
                    run()
                found.append((time.thread_time() - began) / times / operations * 1e6)
                stream.sync()
        stream.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.5, help="per operation")
    options = parser.parse_args()
    torch.set_num_threads(1)
    local = torch.ones(64, 64)
    print(f"{'CPU add, for scale':36} {microseconds(lambda: local + local, 1, options.seconds):7.2f} us")
    with bind(NullStream()) as device:
        for grad in (False, True):
            print("with autograd" if grad else "without autograd")
            with torch.set_grad_enabled(grad):
                for name, operations, run in cases(device):
                    print(f"  {name:34} {microseconds(run, operations, options.seconds):7.2f} us", flush=True)


if __name__ == "__main__":
    main()
