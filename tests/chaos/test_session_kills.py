"""Parts killed under attached programs: results as without, every microsecond billed once, all comes back."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from chaos_world import database_of, start_platform

from dgsf.sdk.client import Client
from dgsf.store.ledger import Ledger
from dgsf.supervisor.parts import outer_environment

pytestmark = pytest.mark.timeout(400)
PROGRAM = Path(__file__).parent / "session_program.py"
STEPS = 150
SECONDS = 120
_started = []  # processes of programs, ended with their test


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    data_dir = tmp_path_factory.mktemp("sessions") / "data"
    running = start_platform(data_dir, "--devices", "cpu:2:slots=2", DGSF_LEASE_SECONDS="2", DGSF_START_SECONDS="60")
    try:
        yield running
    finally:
        assert running.stop() == 0, running.said
    running.assert_nothing_left()


class Program:
    """An attached program in a process of its own."""

    def __init__(self, platform, steps=STEPS, hold=-1):
        own = {"DGSF_URL": platform.url, "DGSF_API_KEY": platform.api_key, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(steps), str(hold)],
            env=outer_environment() | own,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines = []
        _started.append(self.process)

    def go_on(self):
        """Past the step at which it waits."""
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self

    def until_step(self, step):
        for line in self.process.stdout:
            self.lines.append(line.strip())
            if line.startswith(f"step {step} "):
                return self
        raise AssertionError(self.lines[-20:])

    def end(self):
        """The steps' losses and the last line."""
        with contextlib.closing(self.process.stdin), contextlib.closing(self.process.stdout):
            self.lines += [line.strip() for line in self.process.stdout]
        self.process.wait(SECONDS)
        return [line for line in self.lines if line.startswith("step ")], self.lines[-1]


@pytest.fixture(autouse=True)
def no_program_is_left():
    yield
    for process in _started:
        if process.poll() is None:
            process.kill()
            process.communicate()
    _started.clear()


@pytest.fixture(scope="module")
def undisturbed(platform):
    steps, last = Program(platform).end()
    assert last.startswith("result "), last
    return steps, last


def device_of(client):
    (session,) = client.sessions()["sessions"]
    return session["device_name"]


def executor(platform):
    """The pid of the one executor."""
    return next(pid for pid in platform.workers() if _is_session(pid))


def _is_session(pid):
    """An executor has its tenant's contents mounted."""
    with contextlib.suppress(OSError):
        return " /dgsf/contents " in Path(f"/proc/{pid}/mountinfo").read_text()
    return False


async def check_money(platform):
    """What the ledger has is what the sessions used, once."""
    database = await database_of(platform)
    try:
        check = await Ledger(database).check()
        assert check.clean, check
        async with database.acquire() as connection:
            used = await connection.fetchval(
                "SELECT coalesce(sum(device_us), 0) FROM sessions WHERE version_id IS NULL"
            )
            billed = await connection.fetchval(
                "SELECT coalesce(sum(device_us), 0) FROM charges WHERE version_id = 0 AND kind = 'usage'"
            )
    finally:
        await database.close()
    return used, billed


def wait_for_books(client):
    deadline = time.monotonic() + SECONDS
    while client.sessions()["sessions"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("victim", ["executor", "device server", "controller", "proxy"])
async def test_a_program_goes_on_as_if_nothing_had_been(platform, undisturbed, victim):
    with Client(platform.url, platform.api_key) as client:
        program = Program(platform).until_step(STEPS // 3)
        if victim == "executor":
            pid = executor(platform)
        elif victim == "device server":
            pid = platform.servers()[device_of(client).replace("/", "-")]
        else:
            pid = platform.part(victim)
        os.kill(pid, signal.SIGKILL)
        assert program.end() == undisturbed
        wait_for_books(client)
        used, billed = await check_money(platform)
        assert used == billed > 0


async def test_moves_and_drains_are_not_noticed(platform, undisturbed):
    with Client(platform.url, platform.api_key) as client:
        program = Program(platform, hold=STEPS - 10).until_step(STEPS // 4)
        (session,) = client.sessions()["sessions"]
        first = session["device_name"]
        client.move_session(session["id"])
        platform.wait_until(lambda: device_of(client) != first, "another device")
        second = device_of(client)
        program.until_step(STEPS // 2)
        client.drain_device(second)
        platform.wait_until(lambda: device_of(client) != second, "a drained device without sessions")
        client.restore_device(second)
        assert program.go_on().end() == undisturbed
        wait_for_books(client)
        used, billed = await check_money(platform)
        assert used == billed > 0


def test_vanished_programs_leave_no_lease(platform):
    with Client(platform.url, platform.api_key) as client:
        program = Program(platform, steps=100_000).until_step(5)
        program.process.kill()
        program.end()
        wait_for_books(client)
        platform.wait_until(lambda: not any(not row["function_name"] for row in client.leases()["leases"]), "no lease")
        assert client.sessions()["sessions"] == []
