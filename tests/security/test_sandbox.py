"""Hostile functions in real workers: what they must not see, reach, do or use up.

Each one runs inside the sandbox that every worker has.  The whole file also runs as an ordinary user; see
test_ordinary_user.py.
"""

import asyncio
import itertools
import os
import secrets
import socket
import sys
from pathlib import Path

import pytest
import pytest_asyncio
from device_kit import DEADLINE, MIB, alive, by_value, descendants, running_server, until

import dgsf

by_value(__name__)
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(tmp_path_factory):
    async with running_server(tmp_path_factory.mktemp("run")) as pool:
        yield pool


@pytest_asyncio.fixture(loop_scope="module")
async def worker(pool):
    """A new worker for each test, in the place of the last one."""
    return await pool.attach(epoch=next(EPOCHS))


EPOCHS = itertools.count(1)


def attempt(function, *args):
    """Runs in the worker: the error that an act brought, or 'done'."""
    try:
        function(*args)
    except OSError as error:
        import errno

        return errno.errorcode.get(error.errno, str(error))
    return "done"


def open_for_reading(path):
    with open(path, "rb") as file:
        file.read(1)


# --- files
async def test_the_data_dir_the_run_dir_and_home_folders_are_not_there(worker, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("key")
    python = (sys.prefix, sys.base_prefix, dgsf.__file__)
    for path in (secret, tmp_path, "/home", "/var", "/run", "/mnt", "/opt", "/etc/shadow", "/proc/1/root/home"):
        if not any(one.startswith(str(path).removeprefix("/proc/1/root") + "/") for one in python):
            assert await worker.run(attempt, open_for_reading, str(path)) == "ENOENT", path


async def test_root_shows_only_what_python_needs(worker):
    def look():
        import os

        top = sorted(os.listdir("/"))
        return top, os.listdir("/root") if os.path.isdir("/root") else []

    top, home = await worker.run(look)
    assert set(top) <= {
        *("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "dev", "proc", "sys", "tmp"),
        *("dgsf", ".outside"),
        *(Path(path).parts[1] for path in (os.path.realpath(__file__), *map(os.path.realpath, _python_folders()))),
    }
    assert set(home) <= {Path(path).parts[2] for path in _python_folders() if path.startswith("/root/")}


def _python_folders():
    import sys

    return [sys.prefix, sys.base_prefix]


async def test_of_the_repository_only_the_package_is_visible(worker):
    import dgsf

    root = Path(dgsf.__file__).resolve().parents[1]

    def look(folder):
        import os

        return os.listdir(folder)

    python = [Path(path).relative_to(root).parts[0] for path in _python_folders() if Path(path).is_relative_to(root)]
    assert set(await worker.run(look, str(root))) == {"dgsf", *python}


async def test_a_hidden_folder_below_a_visible_one_is_empty(tmp_path):
    import dgsf

    inside = str(Path(dgsf.__file__).resolve().parent / "wire")
    async with running_server(tmp_path, hidden=(inside,)) as pool:
        worker = await pool.attach()

        def look(folder):
            import os

            return os.listdir(folder)

        assert await worker.run(look, inside) == []


async def test_other_workers_folders_cannot_be_seen(pool):
    one, two = [await pool.attach(slot=slot, epoch=next(EPOCHS)) for slot in (0, 1)]
    Path(two.shared_dir, "payload").write_text("of another tenant")

    def look(path):
        import os

        return os.listdir("/dgsf/shared"), os.listdir("/dev/shm"), os.path.exists(path)

    assert await one.run(look, two.shared_dir) == ([], [], False)
    assert await two.run(look, two.shared_dir) == (["payload"], [], False)


async def test_nothing_but_scratch_can_be_written(worker):
    def write(path):
        with open(path, "w") as file:
            file.write("x")

    places = ["/x", "/usr/x", "/etc/passwd", "/dev/x", "/proc/sys/kernel/core_pattern", "/dgsf/x", "/sys/x"]
    places += [f"{path}/x" for path in _python_folders()]
    for place in places:
        assert await worker.run(attempt, write, place) in {"EROFS", "EACCES", "EPERM", "ENOENT"}, place
    for place in ("/tmp/x", "/dev/shm/x", "/dgsf/shared/x", "/dev/null"):
        assert await worker.run(attempt, write, place) == "done", place


async def test_only_plain_files_can_be_left_in_the_shared_folder(worker):
    def make(kind):
        import os
        import socket

        path = "/dgsf/shared/" + kind
        if kind == "folder":
            os.mkdir(path)
        elif kind == "link":
            os.symlink("/etc/passwd", path)
        elif kind == "fifo":
            os.mkfifo(path)
        else:
            socket.socket(socket.AF_UNIX).bind(path)

    for kind in ("folder", "link", "fifo", "socket"):
        assert await worker.run(attempt, make, kind) == "EACCES", kind


# --- processes
async def test_no_other_process_can_be_seen(worker):
    def look():
        import os

        return os.getpid(), [name for name in os.listdir("/proc") if name.isdigit()]

    assert await worker.run(look) == (1, ["1"])


async def test_processes_outside_can_be_neither_read_nor_signalled(worker):
    def touch(pid):
        import os

        os.kill(pid, 0)

    zygote = [pid for pid in descendants(os.getpid()) if worker.pid in descendants(pid)][-1]
    for pid in (os.getpid(), zygote, worker.pid):
        assert await worker.run(attempt, touch, pid) == "ESRCH"
        assert await worker.run(attempt, open_for_reading, f"/proc/{pid}/environ") == "ENOENT"
        assert await worker.run(attempt, open_for_reading, f"/proc/{pid}/mem") == "ENOENT"


async def test_the_environment_holds_nothing_of_the_platform(monkeypatch, tmp_path):
    monkeypatch.setenv("SOME_SECRET", "do-not-tell")
    monkeypatch.setenv("DGSF_MARK", "mark")
    async with running_server(tmp_path) as pool:
        worker = await pool.attach()

        def look():
            import os

            with open("/proc/self/environ") as file:
                return dict(os.environ), file.read()

        environment, raw = await worker.run(look)
    assert "do-not-tell" not in raw + str(environment)
    assert set(environment) <= {
        *("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH"),
        *("PYTHONDONTWRITEBYTECODE", "OPENBLAS_NUM_THREADS", "KMP_BLOCKTIME", "GLIBC_TUNABLES", "DGSF_MARK"),
        "CUDA_VISIBLE_DEVICES",
    }
    assert environment["HOME"] == "/tmp" and environment["DGSF_MARK"] == "mark"


async def test_no_descriptor_is_inherited_but_the_two_handed_over(worker):
    def look():
        import os

        found = {}
        for name in os.listdir("/proc/self/fd"):
            try:
                found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
            except FileNotFoundError:
                continue  # the listing's own
        return found

    found = await worker.run(look)
    assert [found.pop(number) for number in (0, 1, 2)] == ["/dev/null"] * 3
    assert sorted(target.split(":")[0] for target in found.values()) == ["socket", "socket"]


async def test_no_rights_are_left(worker):
    def look():
        with open("/proc/self/status") as file:
            return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)

    status = await worker.run(look)
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    if os.geteuid() == 0:
        assert int(status["Uid"].split()[0]) >= 0x70000000 and status["Groups"].strip() == ""


async def test_two_workers_are_two_users(pool):
    if os.geteuid() != 0:
        pytest.skip("only root can be several users")

    def who():
        import os

        return os.getuid()

    workers = [await pool.attach(slot=slot, epoch=next(EPOCHS)) for slot in range(3)]
    assert len({await worker.run(who) for worker in workers}) == 3


# --- system calls
def call(number, *arguments):
    """Runs in the worker: the error of a raw system call."""
    import ctypes
    import errno

    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(each) for each in arguments))
    return errno.errorcode.get(ctypes.get_errno(), "?") if result < 0 else "done"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86_64")
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("mount", (165, 0, 0, 0, 0, 0), "EPERM"),
        ("umount2", (166, 0, 0), "EPERM"),
        ("pivot_root", (155, 0, 0), "EPERM"),
        ("unshare user", (272, 0x10000000), "EPERM"),
        ("setns", (308, 0, 0), "EPERM"),
        ("clone with a namespace", (56, 0x10000000 | 17, 0, 0, 0, 0), "EPERM"),
        ("clone3", (435, 0, 0), "ENOSYS"),
        ("ptrace", (101, 0, 0, 0, 0), "EPERM"),
        ("process_vm_readv", (310, 1, 0, 0, 0, 0, 0), "EPERM"),
        ("pidfd_getfd", (438, 0, 0, 0), "EPERM"),
        ("bpf", (321, 0, 0, 0), "EPERM"),
        ("perf_event_open", (298, 0, 0, 0, 0, 0), "EPERM"),
        ("userfaultfd", (323, 0), "EPERM"),
        ("io_uring_setup", (425, 1, 0), "ENOSYS"),
        ("keyctl", (250, 0, 0, 0, 0), "EPERM"),
        ("open_by_handle_at", (304, 0, 0, 0), "EPERM"),
        ("init_module", (175, 0, 0, 0), "EPERM"),
        ("reboot", (169, 0, 0, 0, 0), "EPERM"),
        ("the x32 interface", (0x40000000 | 39,), "ENOSYS"),
        ("getpid, which is harmless", (39,), "done"),
    ],
)
async def test_dangerous_system_calls_are_refused(worker, name, arguments, expected):
    assert await worker.run(call, *arguments) == expected, name


async def test_strange_kinds_of_sockets_are_refused(worker):
    def make(family, kind, protocol):
        import socket

        socket.socket(family, kind, protocol).close()

    assert await worker.run(attempt, make, socket.AF_PACKET, socket.SOCK_RAW, 0) == "EAFNOSUPPORT"
    assert await worker.run(attempt, make, 40, socket.SOCK_STREAM, 0) == "EAFNOSUPPORT"  # to the hypervisor
    assert await worker.run(attempt, make, socket.AF_NETLINK, socket.SOCK_RAW, 9) == "EPERM"  # audit
    assert await worker.run(attempt, make, socket.AF_INET, socket.SOCK_RAW, 1) == "EPERM"
    assert await worker.run(attempt, make, socket.AF_UNIX, socket.SOCK_STREAM, 0) == "done"


async def test_ordinary_programs_and_threads_go_on_working(worker):
    def live():
        import subprocess
        import threading
        from concurrent.futures import ThreadPoolExecutor
        from multiprocessing import get_context

        with ThreadPoolExecutor(4) as threads:
            numbers = list(threads.map(lambda n: n + 1, range(8)))
        with get_context("fork").Pool(2) as processes:
            squares = processes.map(abs, [-1, -2])
        text = subprocess.run(["sh", "-c", "echo $((6*7)); id -un"], capture_output=True, text=True, check=True).stdout
        return numbers, squares, text.split(), threading.active_count()

    numbers, squares, text, _ = await worker.run(live)
    assert numbers == list(range(1, 9)) and squares == [1, 2] and text == ["42", "worker"]


# --- sockets
def connect(family, address):
    import socket

    with socket.socket(family) as sock:
        sock.settimeout(5)
        sock.connect(address)


async def test_no_unix_socket_can_be_reached_by_path_or_by_name(pool, worker, tmp_path):
    name = f"\0dgsf-test-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX) as by_path, socket.socket(socket.AF_UNIX) as abstract:
        by_path.bind(str(tmp_path / "listening.sock"))
        abstract.bind(name)
        by_path.listen()
        abstract.listen()
        networked = await pool.attach(slot=1, epoch=next(EPOCHS), network=True)
        for each in (worker, networked):
            assert await each.run(attempt, connect, socket.AF_UNIX, pool.address.unix_path) == "ENOENT"
            assert await each.run(attempt, connect, socket.AF_UNIX, str(tmp_path / "listening.sock")) == "ENOENT"
            assert await each.run(attempt, connect, socket.AF_UNIX, name) in {"ECONNREFUSED", "EPERM"}


async def test_the_network_is_there_only_if_granted(pool, worker):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = ("127.0.0.1", listener.getsockname()[1])
        assert await worker.run(attempt, connect, socket.AF_INET, address) in {"ENETUNREACH", "EACCES"}
        granted = await pool.attach(slot=1, epoch=next(EPOCHS), network=True)
        assert await granted.run(attempt, connect, socket.AF_INET, address) == "done"


async def test_there_is_no_interface_but_a_dead_loopback(worker):
    def look():
        import socket

        return [name for _, name in socket.if_nameindex()]

    assert await worker.run(look) == ["lo"]


# --- using up
async def test_too_much_memory_is_a_memory_error_and_the_worker_lives_on(worker):
    def hoard():
        try:
            held = [bytearray(16 << 20) for _ in range(1000)]
        except MemoryError:
            return "MemoryError"
        return len(held)

    assert await worker.run(hoard) == "MemoryError"
    assert await worker.run(lambda: 1) == 1


async def test_scratch_space_is_bounded_by_the_memory(worker):
    def fill(folder):
        import contextlib

        written = 0
        with contextlib.suppress(OSError), open(folder + "/big", "wb") as file:
            while written < 10 << 30:
                written += file.write(bytes(1 << 20))
        return written

    def clear(path):
        import os

        os.unlink(path)

    assert await worker.run(fill, "/tmp") <= 256 * MIB
    assert await worker.run(fill, "/dev/shm") <= 1 * MIB  # the same space
    await worker.run(clear, "/tmp/big")


async def test_a_file_has_a_largest_size(tmp_path):
    async with running_server(tmp_path, max_file_bytes=1 * MIB) as pool:
        worker = await pool.attach()

        def write():
            with open("/tmp/big", "wb") as file:
                file.write(bytes(2 << 20))

        assert await worker.run(attempt, write) == "EFBIG"


def fork_bomb():
    import os
    import time

    children = 0
    while True:
        try:
            pid = os.fork()
        except OSError:
            return children
        if pid == 0:
            time.sleep(1000)
            os._exit(0)
        children += 1


async def test_a_fork_bomb_is_bounded_and_ends_with_its_worker(tmp_path):
    async with running_server(tmp_path, memory_watch_seconds=1000.0) as pool:
        worker, other = await pool.attach(slot=0), await pool.attach(slot=1)
        assert 100 < await worker.run(fork_bomb) < 512
        assert await other.run(lambda: "well") == "well"
        children = descendants(worker.pid)
        worker.close()
        await until(lambda: not any(alive(pid) for pid in children))


async def test_the_memory_of_all_its_processes_counts(pool, worker):
    def share_out():
        import subprocess
        import sys
        import time

        hoard = "held = bytearray(100 << 20); import time; time.sleep(1000)"
        for _ in range(6):
            subprocess.Popen([sys.executable, "-c", hoard])
        time.sleep(1000)

    _, exits = await pool.control()
    await worker.send(share_out)
    async with asyncio.timeout(DEADLINE):
        notices = [await exits.get()]
        while notices[-1].worker_id != worker.id:
            notices.append(await exits.get())
    assert notices[-1].reason == "memory"


async def test_core_files_and_limits_cannot_be_had_back(worker):
    def raise_limits():
        import resource

        outcomes = []
        for which in (resource.RLIMIT_DATA, resource.RLIMIT_NPROC, resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
            try:
                resource.setrlimit(which, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                outcomes.append("raised")
            except (ValueError, OSError):
                outcomes.append("refused")
        return outcomes

    assert await worker.run(raise_limits) == ["refused"] * 4


async def test_a_worker_is_the_first_to_go_when_memory_ends(worker):
    assert Path(f"/proc/{worker.pid}/oom_score_adj").read_text().strip() == "1000"


async def test_what_crosses_to_the_next_worker_in_a_slot_is_nothing(pool):
    first = await pool.attach(epoch=next(EPOCHS))

    def leave():
        for folder in ("/tmp", "/dev/shm", "/dgsf/shared"):
            with open(folder + "/left", "w") as file:
                file.write("secret")

    def look():
        import os

        return [os.listdir(folder) for folder in ("/tmp", "/dev/shm", "/dgsf/shared")]

    await first.run(leave)
    second = await pool.attach(epoch=next(EPOCHS))
    async with asyncio.timeout(DEADLINE):
        found = await second.run(look)
    python = {path.split("/")[2] for path in (sys.prefix, dgsf.__file__) if path.startswith("/tmp/")}
    assert [sorted(found[0]), *found[1:]] == [sorted(python), [], []]
