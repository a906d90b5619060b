"""Small parts of the executor: accounts of memory, contents on disk, lost handles, what is told of usage."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import msgspec
import pytest
import torch
from executor_fixtures import connect, executors
from executor_guest import CODES, Failed, TestGuest

from dgsf.errors import OutOfMemory, ProtocolError, SessionRefused
from dgsf.fabric.spec import SCRATCH_BYTES, WorkerSpec
from dgsf.remoting.digest import digest_of
from dgsf.remoting.executor.contents import Contents
from dgsf.remoting.executor.devices import Host
from dgsf.remoting.executor.handles import CallFailure, Handles
from dgsf.remoting.executor.kinds import Returns, prepare
from dgsf.remoting.executor.limits import refuse_over
from dgsf.remoting.executor.loop import KEPT_BYTES
from dgsf.remoting.executor.memory import Memory, storage_bytes
from dgsf.remoting.executor.uploads import Transfers, bytes_of
from dgsf.remoting.protocol import BULK_HEADER, FLOAT, TENSOR, Record
from dgsf.wire.frames import HEADER, Kind
from dgsf.wire.session import decode_usage

__all__ = ["connect", "executors"]


# --- memory
def test_views_of_one_storage_count_once() -> None:
    x = torch.zeros(100)
    assert storage_bytes([x, x[2:], x.view(10, 10)]) == 400


def test_the_walk_is_made_only_when_the_bound_is_passed() -> None:
    live, walks = [0], []
    memory = Memory(100, lambda: walks.append(1) or live[0], lambda: 0)
    for _ in range(10):
        memory.reserve(10)
    assert not walks
    live[0] = 30
    memory.reserve(10)
    assert len(walks) == 1 and memory.allowed == 60
    with pytest.raises(OutOfMemory, match="in use are 30 bytes of the leased 100 bytes"):
        memory.reserve(80)


def test_somebody_may_look_at_the_process_sixteen_times_while_a_lease_is_filled() -> None:
    looks: list[int] = []
    memory = Memory(1600, lambda: 0, lambda: 0)
    memory.look = lambda: looks.append(memory.allowed)
    for _ in range(1600):
        memory.reserve(1)
    assert looks == list(range(1500, 0, -100)) and not memory.allowed
    memory.walk()
    memory.reserve(900)
    assert len(looks) == 16 and memory.allowed == 700
    memory.room -= 900  # as calls do, before they ask
    memory._walk = lambda: 1800
    with pytest.raises(OutOfMemory):
        memory.check(900)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes. Error code 12",
            "4.0 KiB (4096 bytes) more",
        ),
        ("CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has", "1.5 GiB (1610612736 bytes) more"),
        ("CUDA error: out of memory", "more memory than is left"),
    ],
)
def test_a_refusal_of_the_allocator_says_what_was_wanted_and_where_to_ask_for_more(text: str, wanted: str) -> None:
    told = str(Memory(100, lambda: 30, lambda: 0).refused("aten::zeros", RuntimeError(text)))
    assert told.startswith(f"aten::zeros needs {wanted}; in use are 30 bytes of the leased 100 bytes; ")
    assert "gpu_memory= of the function" in told and "memory= of dgsf.attach" in told


def test_an_executor_may_hold_more_than_its_tensors() -> None:
    function = WorkerSpec(1, 0, 1, 1, 1, 100 << 20, False, "", "cpu", 0, {}, 0)
    assert function.process_bytes == 100 << 20
    session = WorkerSpec(1, 0, 1, 1, 1, 100 << 20, False, "", "cpu", 0, {}, 0, role="session")
    assert session.process_bytes == 2 * (100 << 20) + SCRATCH_BYTES
    assert SCRATCH_BYTES > KEPT_BYTES  # what the heap keeps is no kernel's
    large = msgspec.structs.replace(session, memory_bytes=8 << 30)
    assert large.process_bytes == 18 << 30


def test_a_refusal_below_the_lease_is_not_told_as_one_of_the_lease() -> None:
    refusal = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 50 bytes.")
    told = str(Memory(100, lambda: 30, lambda: 0).refused("aten::zeros", refusal))
    assert told.startswith("aten::zeros was refused 50 bytes more, although only 30 bytes of the leased 100 bytes")
    assert "the process that serves this session, or its device, has no memory left" in told


def test_what_is_kept_beside_the_tensors_gives_way_to_them_and_is_not_in_use() -> None:
    live, gone = [40], []
    memory = Memory(100, lambda: live[0], lambda: 0)
    memory.walk()
    memory.keep_beside(40, lambda: gone.append(1))
    assert memory.allowed == 20 and memory.estimate() == 40
    memory.reserve(20)
    assert not gone
    live[0] = 60
    memory.reserve(40)
    assert gone == [1] and memory.allowed == 0
    with pytest.raises(OutOfMemory, match="in use are 60 bytes of the leased 100 bytes"):
        memory.reserve(50)
    memory.keep_beside(10, lambda: gone.append(2))
    live[0] = 95
    memory.room -= 35
    memory.check(35)
    assert gone == [1, 2] and memory.allowed == 5


MIB = 1 << 20


def test_the_whole_lease_can_be_used_also_after_a_checkpoint(connect) -> None:
    guest = connect(memory_bytes=1024 * MIB)  # its process is limited as a session's is
    guest.send([Record.DEFINE, 0, "aten::zeros", [[100 * MIB]], {"dtype": CODES[torch.uint8]}])
    for handle in range(1, 11):
        guest.send([0, handle, []])
        guest.sync()
        if handle == 4:
            _, size = guest.ask(Record.SNAPSHOT, 0)
            while size > 0:
                size -= len(guest.frame()[3]) - BULK_HEADER.size
    assert guest.ask(Record.MEMORY, False)[0] == 1000 * MIB
    guest.send([0, 11, []])
    with pytest.raises(Failed, match=r"the operation needs 100\.0 MiB .* in use are 1000\.0 MiB"):
        guest.sync()


def test_the_whole_lease_can_be_used_however_tensors_came_and_went(connect) -> None:
    guest = connect(memory_bytes=512 * MIB)
    guest.send([Record.DEFINE, 0, "aten::zeros", [[1000]], {"dtype": CODES[torch.float32]}])
    handle = 0
    for kind in range(1, 7):  # each time a little larger, so that none fits where the last ones were
        size = (20 + 3 * kind) * MIB
        guest.send([Record.DEFINE, kind, "aten::zeros", [[size]], {"dtype": CODES[torch.uint8]}])
        large = []
        for _ in range(480 * MIB // size):
            guest.send([kind, handle + 1, []], [0, handle + 2, []])
            large.append(handle + 1)
            handle += 2
        guest.sync()
        guest.send([Record.FREE, large])
    guest.sync()


# --- contents
def publish(contents: Contents, digest: bytes, data: torch.Tensor) -> bool:
    """As if it had come in two pieces."""
    draft, whole = contents.draft(data.numel()), memoryview(data.numpy())
    draft.add(whole[:7])
    draft.add(whole[7:])
    return contents.publish(digest, draft)


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_content_is_private_to_who_writes_to_it(tmp_path: Path, on_disk: bool) -> None:
    contents = Contents(str(tmp_path) if on_disk else "")
    data = torch.arange(1000, dtype=torch.int64).view(torch.uint8)
    digest = digest_of(memoryview(data.numpy()))
    assert contents.find(digest, 8000) is None
    publish(contents, digest, data)
    first, second = contents.find(digest, 8000), contents.find(digest, 8000)
    first.zero_()
    assert torch.equal(second, data) and torch.equal(contents.find(digest, 8000), data)
    assert contents.find(digest, 7999) is None


def test_a_content_that_lies_about_its_name_is_not_kept(tmp_path: Path) -> None:
    assert not publish(Contents(str(tmp_path)), b"\0" * 32, torch.zeros(4, dtype=torch.uint8))
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_the_session_its_own_copy(tmp_path: Path) -> None:
    contents = Contents(str(tmp_path / "missing"))
    data = torch.ones(16, dtype=torch.uint8)
    digest = digest_of(bytes(data.numpy()))
    publish(contents, digest, data)
    assert torch.equal(contents.find(digest, 16), data)


def test_a_file_whose_lock_another_has_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(*_: object) -> None:
        raise BlockingIOError

    monkeypatch.setattr(fcntl, "flock", taken)
    contents, data = Contents(str(tmp_path)), torch.arange(16, dtype=torch.uint8)
    digest = digest_of(bytes(data.numpy()))
    assert publish(contents, digest, data)
    assert torch.equal(contents.find(digest, 16), data)


@pytest.mark.parametrize("when", ["full", "removed"])
def test_a_file_that_cannot_be_finished_leaves_the_session_its_own_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    contents = Contents(str(tmp_path))
    data = torch.arange(100, dtype=torch.uint8)
    draft, whole = contents.draft(100), memoryview(data.numpy())
    draft.add(whole[:40])
    if when == "full":
        write = os.write
        rest = iter([5])  # so many bytes more, then none

        def write_less(file: int, piece: memoryview) -> int:
            for count in rest:
                return write(file, piece[:count])
            raise OSError(errno.ENOSPC, "full")

        monkeypatch.setattr(os, "write", write_less)
    else:
        (left,) = tmp_path.iterdir()
        left.unlink()
    draft.add(whole[40:])
    assert contents.publish(digest_of(whole), draft)
    assert torch.equal(contents.find(digest_of(whole), 100), data)
    assert not list(tmp_path.iterdir())


def test_own_copies_of_contents_are_bounded() -> None:
    contents = Contents(own_bytes=250)
    several = [torch.full((100,), value, dtype=torch.uint8) for value in range(5)]
    digests = [digest_of(bytes(each.numpy())) for each in several]
    for digest, each in zip(digests, several, strict=True):
        publish(contents, digest, each)
        assert contents.has(digest, 100)  # the newest is there for whoever waits for it
    assert [contents.has(digest, 100) for digest in digests] == [False, False, False, True, True]


# --- handles, limits, transfers
def test_only_the_handles_of_a_failed_call_are_lost_to_it() -> None:
    handles = Handles()
    first, second = CallFailure(1, "x", "first"), CallFailure(2, "x", "second")
    handles.fail(10, first, 2)
    handles.fail(20, second, 1)
    assert [handles.lost_to(handle) for handle in (9, 10, 11, 12, 20, 21)] == [None, first, first, None, second, None]
    assert handles.take_untold() is first and handles.take_untold() is None
    other = Handles()
    other.restore_failures(handles.failures())
    assert other.lost_to(11) == first and other.untold is None


def test_too_much_of_anything_closes_the_session() -> None:
    refuse_over(5, 5, "traces")
    with pytest.raises(SessionRefused, match="6 traces are over the session's limit of 5"):
        refuse_over(6, 5, "traces")


def test_transfers_take_what_was_announced_and_no_more() -> None:
    transfers = Transfers(2)
    transfer = transfers.open(1, 4)
    transfers.sink(1, 3)[:] = b"abc"
    assert not transfer.complete
    with pytest.raises(ProtocolError, match="got 5"):
        transfers.sink(1, 2)
    with pytest.raises(ProtocolError, match="nobody opened"):
        transfers.sink(7, 1)
    transfers.open(2, 1)
    with pytest.raises(SessionRefused):
        transfers.open(3, 1)


# --- kinds
def test_a_kind_knows_what_it_makes_and_what_it_writes() -> None:
    def kind(name: str, *args: object, **kwargs: object):
        return prepare(Host(), name, list(args), kwargs)

    x, y = {TENSOR: 0}, {TENSOR: 1}
    assert kind("aten::add.Tensor", x, y).returns is Returns.TENSOR
    assert kind("aten::add_.Tensor", x, y).writes == (0,)
    assert kind("aten::_foreach_add_.List", [x, y], [y, x]).writes == (0, 1)
    assert kind("aten::native_batch_norm", x, None, None, y, {TENSOR: 2}, True, 0.1, 1e-5).writes == (1, 2)
    assert not kind("aten::view", x, [-1]).makes_memory
    assert kind("aten::max.dim", x, 0).outs == 2
    assert kind("aten::mul.Scalar", x, {FLOAT: 0}).leading == -1
    assert kind("aten::mm", x, y).leading == 2
    assert kind("aten::from_file", "/etc/passwd").refusal is not None
    with pytest.raises(ProtocolError):
        kind("aten::add.Tensor", x, y, x)
    lacking = kind("aten::add.Tensor", None, y).refusal  # a call that fails, not a broken protocol
    assert lacking is not None and lacking.code == "remote_op_failed"


# --- usage
def test_usage_comes_before_every_answer_and_after_a_pause(connect) -> None:
    guest: TestGuest = connect(usage=True)
    guest.upload(1, torch.ones(1000))
    guest.send([Record.DEFINE, 0, "aten::mul.Tensor", [{TENSOR: 0}, {TENSOR: 0}], {}], [0, 2, [1]])
    guest.sync()
    told = decode_usage(guest.usages[-1])
    assert told.device_us > 0 and told.handles == 2 and told.memory_bytes >= 8000
    guest.send([0, 3, [1]])
    header = guest.sock.recv(HEADER.size, 0x100)  # MSG_WAITALL
    length, kind, _, _, done = HEADER.unpack(header)
    later = decode_usage(guest.sock.recv(length, 0x100))
    assert (kind, done, later.handles) == (Kind.USAGE, guest.sequence, 3) and later.device_us > told.device_us


def test_usage_tells_up_to_where_a_checkpoint_that_the_guest_has_covers_the_work(connect) -> None:
    guest: TestGuest = connect(usage=True)
    guest.upload_bulk(1, torch.ones(1000, 1000))
    guest.send([Record.DEFINE, 0, "aten::mul.Tensor", [{TENSOR: 0}, {TENSOR: 0}], {}], [0, 2, [1, 1]])
    guest.sync()
    before = decode_usage(guest.usages[-1])
    assert before.covered_us == 0
    _, size = guest.ask(Record.SNAPSHOT, 0)
    guest.bulk_answer(guest.requests, size)
    guest.sync()
    assert decode_usage(guest.usages[-1]).covered_us == 0, "it may have had no memory for it"
    guest.send([Record.KEPT, 1])
    guest.sync()
    assert before.device_us <= decode_usage(guest.usages[-1]).covered_us <= decode_usage(guest.usages[-1]).device_us


# --- what CUDA has and the CPU lacks
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("aten::histc", (torch.randint(0, 9, (50,)), 5, 0, 10)),
        ("aten::_cdist_forward", (torch.randn(3, 4).half(), torch.randn(2, 4).half(), 2.0, None)),
        ("aten::_standard_gamma", (torch.ones(3).bfloat16(),)),
    ],
)
def test_narrow_kernels_are_widened_to_what_cuda_takes(name: str, args: tuple) -> None:
    kernel = prepare(Host(), name, [{TENSOR: 0}, *([{TENSOR: 1}] if name.endswith("forward") else [])], {}).invoke
    result = kernel(*args)
    assert result.dtype == args[0].dtype
    assert name != "aten::histc" or result.sum() == 50


def test_the_bytes_of_a_contiguous_tensor_with_an_odd_stride() -> None:
    odd = torch.arange(4.0).as_strided((1,), (2,), 1)
    assert odd.is_contiguous() and bytes(bytes_of(odd)) == bytes(torch.tensor([1.0]).view(torch.uint8).numpy())
