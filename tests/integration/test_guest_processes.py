"""Programs with a remote device as they are: they fork, seed early, run out of memory, resize what they uploaded."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from dgsf.errors import OutOfMemory, UsageError
from dgsf.remoting.executor import local
from dgsf.remoting.executor.local import LocalExecutors, LocalSpec
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.session_stream import SessionStream
from dgsf.remoting.guest.uploads import Uploads

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def executors() -> Iterator[LocalExecutors]:
    with LocalExecutors() as found:
        yield found


def test_executors_that_are_still_loading_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "CLOSE_SECONDS", 0.0)
    early = LocalExecutors()
    early.close()
    assert early._keeper.returncode == -signal.SIGKILL


def new_stream(executors: LocalExecutors) -> SessionStream:
    return SessionStream(executors.connect(LocalSpec(device_options={"threads": 1})))


@pytest.mark.parametrize(("alias", "pinned"), [("", False), ("cuda", True)])
def test_workers_of_a_data_loader_leave_the_session_alone(executors: LocalExecutors, alias: str, pinned: bool) -> None:
    stream = new_stream(executors)
    with bind(stream, alias) as device:
        total = torch.zeros((), device=device)
        for (batch,) in DataLoader(TensorDataset(torch.arange(12.0)), batch_size=5, num_workers=2, pin_memory=pinned):
            total += batch.to(device).sum()
        assert total.item() == 66
    stream.close()


def _in_child(stream: SessionStream, tensor: torch.Tensor) -> bool:
    torch.manual_seed(1)
    for use in (lambda: tensor + 1, tensor.cpu, lambda: torch.ones(1, device=tensor.device)):
        with pytest.raises(RuntimeError, match="use spawn, or keep device work in the parent"):
            use()
    tensor._h.__del__()  # as when it is let go of
    stream.close()
    module = torch.get_device_module("dgsf")
    return module._is_in_bad_fork() and not module.is_available()


def test_a_forked_child_is_refused_and_the_parent_goes_on(executors: LocalExecutors) -> None:
    stream = new_stream(executors)
    with bind(stream) as device:
        tensor = torch.ones(3, device=device)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if _in_child(stream, tensor) else 2
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (tensor + 1).sum().item() == 6
    stream.close()


def test_a_seed_from_before_the_device_counts(executors: LocalExecutors) -> None:
    torch.manual_seed(77)
    stream = new_stream(executors)
    with bind(stream) as device:
        found = torch.rand(4, device=device).cpu()
    stream.close()
    torch.manual_seed(77)
    assert torch.equal(found, torch.rand(4))


def test_too_little_memory_is_torchs_error_too(executors: LocalExecutors) -> None:
    stream = new_stream(executors)
    with bind(stream, alias="cuda"):
        total = torch.cuda.get_device_properties(0).total_memory
        assert total == stream.device.memory_bytes
        with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
            torch.ones(4 * total, dtype=torch.uint8, device="cuda").sum().item()
        assert type(pickle.loads(pickle.dumps(caught.value))) is OutOfMemory
        assert torch.ones(2, device="cuda").sum().item() == 2
    stream.close()


def test_small_uploads_can_be_resized(executors: LocalExecutors) -> None:
    stream = new_stream(executors)
    with bind(stream) as device:
        tensor = torch.tensor([1.0, 2.0]).to(device)
        tensor.resize_(3)[2] = 3.0
        assert tensor.tolist() == [1.0, 2.0, 3.0]
    stream.close()


def test_a_tensor_of_an_earlier_session_is_not_taken_for_another(executors: LocalExecutors) -> None:
    first, second = new_stream(executors), new_stream(executors)
    with bind(first) as device:
        old, empty = torch.full((), 3.0, device=device), torch.empty((), device=device)
    with bind(second) as device:
        new = torch.full((), 4.0, device=device)
        for use in (
            torch.Tensor.cpu,
            torch.Tensor.item,
            lambda t: t.tolist(),
            lambda t: t + new,
            lambda t: new.add_(t),
        ):
            with pytest.raises(UsageError, match="whose session has ended"):
                use(old)
            with pytest.raises(UsageError, match="whose session has ended"):
                use(old.detach())
        with pytest.raises(UsageError, match="whose session has ended"):
            empty.copy_(torch.zeros(()))
        assert new.item() == 4
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("use", "kind"),
    [
        (lambda device: torch.arange(3, device=device)[torch.tensor([5], device=device)], IndexError),
        (lambda device: torch.linalg.cholesky(-torch.eye(2, device=device)), torch.linalg.LinAlgError),
        (lambda device: torch.linalg.inv(torch.zeros(2, 2, device=device)), torch.linalg.LinAlgError),
        (lambda device: torch.ones(2, device=device).view(3), RuntimeError),
    ],
)
def test_errors_are_of_the_types_that_torch_raises(executors: LocalExecutors, use: Any, kind: type) -> None:
    stream = new_stream(executors)
    with bind(stream) as device:
        with pytest.raises(kind) as caught:
            use(device).sum().item()
        assert "Error:" not in str(caught.value), "the type is not named again in the text"
        again = pickle.loads(pickle.dumps(caught.value))
        assert str(again) == str(caught.value)
        assert not type(again).__module__.startswith("dgsf.remoting")
    stream.close()


def test_memory_as_torch_cuda_tells_it_is_the_sessions(executors: LocalExecutors) -> None:
    stream = new_stream(executors)
    with bind(stream, alias="cuda"):
        total = stream.device.memory_bytes
        assert torch.cuda.memory_allocated() == 0 and torch.cuda.mem_get_info() == (total, total)
        held = torch.ones(1 << 20, device="cuda")
        assert torch.cuda.memory_allocated(0) == torch.cuda.memory.memory_reserved() == 4 << 20
        assert torch.cuda.mem_get_info("cuda:0") == (total - (4 << 20), total)
        del held
        assert torch.cuda.memory_allocated() == 0 and torch.cuda.max_memory_allocated() == 4 << 20
        torch.cuda.reset_peak_memory_stats()
        assert torch.cuda.max_memory_reserved() == torch.cuda.memory_stats()["allocated_bytes.all.peak"] == 0
        assert f"({total} bytes)" in torch.cuda.memory_summary()
    stream.close()


BACKWARD_IN_A_THREAD = """
import threading, torch
from dgsf.remoting.executor import local
from dgsf.remoting.executor.local import LocalExecutors
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.session_stream import SessionStream
from dgsf.remoting.guest.uploads import Uploads
torch.ones(2, requires_grad=True).sum().backward()  # torch counts the devices now, and never again
def work():
    x = torch.ones(2, device="dgsf", requires_grad=True)
    x.mul(3).sum().backward()
    print(x.grad.tolist(), torch.autograd.is_multithreading_enabled())
with LocalExecutors() as executors:
    stream = SessionStream(executors.connect())
    with bind(stream):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    stream.close()
"""


def test_other_threads_have_backward_passes_too() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", BACKWARD_IN_A_THREAD], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.stdout.strip() == "[3.0, 3.0] True", ended.stderr


def test_a_module_that_moves_lends_its_memory(executors: LocalExecutors, monkeypatch: pytest.MonkeyPatch) -> None:
    lent: list[bool] = []
    borrow = Uploads._borrow
    monkeypatch.setattr(Uploads, "_borrow", lambda *args: lent.append((digest := borrow(*args)) is not None) or digest)
    stream = new_stream(executors)
    with bind(stream) as device:
        module = torch.nn.Sequential(torch.nn.Linear(200, 200), torch.nn.Linear(200, 200)).to(device)
        torch.ones(200, 200).to(device)  # nobody gives this one up
        assert module(torch.ones(1, 200, device=device)).shape == (1, 200)
    stream.close()
    assert lent == [True, True, False]
