"""A simulated GPU: kernels queue behind their launches, take a model's time, and may have no values."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import torch
from executor_fixtures import connect, executors
from executor_guest import CODES, Failed, TestGuest

from dgsf.core.devices import parse_devices
from dgsf.errors import ConfigError
from dgsf.fabric.devices.a100 import A100
from dgsf.fabric.devices.sim import timing_of
from dgsf.remoting.executor import native
from dgsf.remoting.executor.costs import Meter
from dgsf.remoting.executor.local import LocalSpec
from dgsf.remoting.executor.simqueue import LaunchQueue
from dgsf.remoting.protocol import TENSOR, VALUE, Record
from dgsf.wire.session import decode_usage

__all__ = ["connect", "executors"]
DUMMY = {"timing": "a100", "values": "dummy"}


def hole(index: int) -> dict:
    return {TENSOR: index}


def define(number: int, op: str, *args: object, **kwargs: object) -> list:
    return [Record.DEFINE, number, op, list(args), kwargs]


# --- the model
def test_a_kernel_is_bounded_by_arithmetic_or_by_traffic() -> None:
    assert A100.kernel_us("mm", "float32", 19.5e12 * 0.8, 0) == pytest.approx(1e6 + 2)
    assert A100.kernel_us("mm", "float16", 312e12 * 0.8, 0) == pytest.approx(1e6 + 2)
    assert A100.kernel_us("convolution", "float32", 156e12 * 0.8, 0) == pytest.approx(1e6 + 2)
    assert A100.kernel_us("relu", "float32", 1, 1555e9 * 0.5) == pytest.approx(1e6 + 2)


def test_views_are_free_and_composites_are_their_parts() -> None:
    x, weight, bias = (
        torch.empty(8, 64, device="meta"),
        torch.empty(32, 64, device="meta"),
        torch.empty(32, device="meta"),
    )
    with Meter(timing_of(DUMMY)) as meter, torch._C._AutoDispatchBelowAutograd():
        torch.ops.aten.linear.default(x, weight, bias)
        torch.ops.aten.view.default(x, [-1])
    assert meter.cost.launches == 1
    flops, traffic = 2 * 8 * 64 * 32, (8 * 64 + 32 * 64 + 32 + 8 * 32) * 4
    assert meter.cost.kernel_us == pytest.approx(A100.kernel_us("addmm", "float32", flops, traffic))


def test_the_first_call_loads_nothing_that_costs_device_time() -> None:
    source = (
        "import sys, torch, dgsf.remoting.executor.loop\n"
        "from dgsf.fabric.device_server import SIM_MODULE\n"
        "from dgsf.fabric.devices.sim import timing_of\n"
        "from dgsf.remoting.executor.costs import Meter\n"
        "__import__(SIM_MODULE)\n"
        "before = set(sys.modules)\n"
        "for device in ('cpu', 'meta'):\n"
        "    with Meter(timing_of({'timing': 'a100'})), torch._C._AutoDispatchBelowAutograd():\n"
        "        torch.zeros(4, 4, device=device) @ torch.zeros(4, 4, device=device)\n"
        "print(*sorted(set(sys.modules) - before))\n"
    )
    found = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.split() == []


def test_the_queue_lets_the_host_go_on_and_makes_a_sync_wait() -> None:
    queue = LaunchQueue(1.0)
    began = time.perf_counter_ns()
    for _ in range(10):
        queue.launch(time.perf_counter_ns(), 1, 20_000_000)
    launched = time.perf_counter_ns() - began
    queue.finish()
    assert launched < 150_000_000 <= 200_000_000 <= time.perf_counter_ns() - began
    assert queue.used_ns == 200_000_000


def test_the_settings_of_a_simulated_device() -> None:
    (device,) = parse_devices("sim:A100:1:timing=a100:values=dummy")
    timing = timing_of(device.options)
    assert timing.model is A100 and timing.launch_us == 5.0 and not timing.values
    with pytest.raises(ConfigError, match="values=real"):
        parse_devices("sim:A100:1:values=none")


# --- sessions on it
def test_real_values_are_computed_and_time_is_the_models(connect) -> None:
    guest = connect(device_kind="sim", device_options={"kernel_us": 500.0, "launch_us": 1.0}, usage=True)
    x = torch.randn(4, 4)
    guest.upload(1, x)
    guest.send(define(0, "aten::mm", hole(0), hole(0)), *([0, handle, [1]] for handle in range(2, 22)))
    assert torch.allclose(guest.fetch(5), x @ x)
    assert decode_usage(guest.usages[-1]).device_us == 20 * 500


@pytest.mark.parametrize("options", [{}, {"launch_us": 1.0}, {"values": "dummy"}])
def test_without_declared_kernel_times_a_session_is_billed_for_the_time_its_commands_took(connect, options) -> None:
    guest = connect(device_kind="sim", device_options=options, usage=True)
    guest.upload(1, torch.randn(64, 64))
    guest.send(define(0, "aten::mm", hole(0), hole(0)), *([0, handle, [1]] for handle in range(2, 102)))
    guest.sync()
    guest.sync()
    assert decode_usage(guest.usages[-1]).device_us > 0


def dummy(connect, **spec: object) -> TestGuest:
    return connect(device_kind="sim", device_options=DUMMY, usage=True, **spec)


def test_dummies_have_the_right_shapes_and_zero_values(connect) -> None:
    guest = dummy(connect)
    guest.upload_bulk(1, torch.ones(8, 3, 64, 64))
    guest.upload(2, torch.ones(16, 3, 3, 3))
    conv = define(0, "aten::convolution", hole(0), hole(1), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    guest.send(conv, define(1, "aten::relu_", hole(0)), define(2, "aten::max_pool2d_with_indices", hole(0), [2, 2]))
    guest.send([0, 3, [1, 2]], [1, 4, [3]], [2, 4, [3]], define(3, "aten::sum", hole(0)), [3, 6, [4]])
    assert guest.ask(Record.META, 4) == [0, [8, 16, 32, 32], [16384, 1024, 32, 1], 0]
    assert guest.ask(Record.META, 5)[0] == CODES[torch.int64]
    assert guest.fetch(3).shape == (8, 16, 64, 64) and guest.fetch(6).item() == 0
    guest.send(define(4, "aten::nonzero", hole(0)), define(5, "aten::_local_scalar_dense", hole(0)))
    guest.send(define(6, "aten::t_", hole(0)), define(7, "aten::zeros", [2, 5]), [7, 50, []], [6, 51, [50]])
    assert guest.ask(Record.ASK, 4, 20, [3])[0][1] == [0, 4]
    assert guest.ask(Record.ASK, 5, 30, [6]) == [{VALUE: 0.0}]
    assert guest.ask(Record.META, 50)[1] == [5, 2]
    assert decode_usage(guest.usages[-1]).device_us > 0


def test_errors_and_memory_are_as_on_a_real_device(connect) -> None:
    guest = dummy(connect, memory_bytes=1 << 20)
    guest.upload(1, torch.ones(2))
    guest.upload(2, torch.ones(3))
    guest.send(define(0, "aten::add.Tensor", hole(0), hole(1)), [0, 3, [1, 2]])
    with pytest.raises(Failed, match=r"must match|ismatching"):
        guest.sync()
    guest.send(define(1, "aten::zeros", [1 << 17]), [1, 4, []], [1, 5, []])
    with pytest.raises(Failed) as failed:
        guest.sync()
    assert failed.value.code == "out_of_memory"


# --- the same without guest and wire
def test_a_recording_plays_natively_with_the_same_answers(connect, tmp_path) -> None:
    recording = tmp_path / "frames"
    guest = dummy(connect, record=str(recording))
    guest.upload_bulk(1, torch.ones(300, 300))
    guest.send(define(0, "aten::mm", hole(0), hole(0)), [Record.TRACE, 1, [[0, 0, [2]], [0, 1, [1]]]])
    for base in (100, 200, 300):
        guest.send([Record.RUN, 1, base, 0, 2])
        guest.sync()
    spec = LocalSpec(device_kind="sim", device_options=DUMMY)
    times = native.play(native.read(recording), spec)
    assert len(times) == 3 and times == sorted(times)
