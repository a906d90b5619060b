"""A platform as its users start it: `dgsf up` as a process, in a folder of its own, on a free port."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from dgsf.paths import Layout, mark_of
from dgsf.store.postmaster import processes_of
from dgsf.supervisor.leftovers import Identity, marked
from dgsf.supervisor.parts import outer_environment

START_SECONDS = 240.0
STOP_SECONDS = 120.0


class Platform:
    """One running `dgsf up`."""

    def __init__(self, data_dir: Path, *options: str, environment: dict[str, str] | None = None) -> None:
        self.data_dir = data_dir
        self.layout = Layout(data_dir.absolute(), mark_of(data_dir.absolute()))
        words = [sys.executable, "-m", "dgsf.cli", "up", "--port", "0", "--data-dir", str(data_dir), *options]
        self.process = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=outer_environment() | (environment or {}),
            start_new_session=True,
        )
        self.lines: list[str] = []
        self.url = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            for line in stream:
                self.lines.append(line.rstrip("\n"))

    @property
    def said(self) -> str:
        return "\n".join(self.lines)

    def wait_ready(self) -> Platform:
        self.wait_until(lambda: any(line.startswith("ready ") for line in self.lines), "the ready line", alive=True)
        self.url = next(line for line in self.lines if line.startswith("ready ")).removeprefix("ready ")
        return self

    def wait_until(self, true: Callable[[], bool], what: str, *, alive: bool = False) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not true():
            ended = alive and self.process.poll() is not None
            assert not ended, f"dgsf up ended while waiting for {what}:\n{self.said}"
            assert time.monotonic() < deadline, f"no {what} within {START_SECONDS:g} s:\n{self.said}"
            time.sleep(0.05)

    @property
    def api_key(self) -> str:
        return json.loads((self.data_dir / "client.json").read_text())["api_key"]

    def get(self, path: str, key: str | None = None) -> tuple[int, dict]:
        request = urllib.request.Request(self.url + path)
        request.add_header("Authorization", f"Bearer {key or self.api_key}")
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return reply.status, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())
        except OSError:
            return 0, {}

    def devices(self) -> dict[str, dict]:
        status, body = self.get("/v1/devices")
        return {row["name"]: row for row in body["devices"]} if status == 200 else {}

    def healthy(self) -> list[dict]:
        return [row for row in self.devices().values() if row["state"] == "healthy"]

    def healthy_device(self) -> dict:
        """The first that is healthy: on a busy machine each may be suspect for a moment."""
        found: list[dict] = []
        self.wait_until(lambda: bool(found.extend(self.healthy()) or found), "a healthy device")
        return found[0]

    def processes(self) -> list[Identity]:
        """Everything of this platform that runs, but not `dgsf up` itself."""
        return [item for item in marked(self.layout.mark) if item.pid != self.process.pid]

    def find(self, words: str) -> list[int]:
        """The pids of this platform whose command line has these words."""
        found = []
        for item in self.processes():
            try:
                line = Path(f"/proc/{item.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if words in line:
                found.append(item.pid)
        return found

    def servers(self) -> dict[str, int]:
        """The pids of the servers of devices and function hosts, by the name in each one's log: vm-cpu0, vm-host0."""
        found = {}
        for pid in self.find("ray::DeviceActor"):
            with contextlib.suppress(OSError):
                logs = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
                found |= {Path(log).stem.removeprefix("device-"): pid for log in logs if "/device-" in log}
        return found

    def device_server(self) -> int:
        """The pid of a server that has a device."""
        devices: list[int] = []

        def there() -> bool:
            devices[:] = [pid for name, pid in self.servers().items() if "-host" not in name]
            return bool(devices)

        self.wait_until(there, "a device server")
        return devices[0]

    def postgres_pid(self) -> int:
        return int((self.layout.postgres / "cluster" / "postmaster.pid").read_text().split()[0])

    def wait_ended(self) -> int:
        status = self.process.wait(STOP_SECONDS)
        self._reader.join(60)
        return status

    def stop(self, number: int = signal.SIGINT) -> int:
        """Ask it to end and wait until it has."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.wait_ended()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.wait_ended()
            raise AssertionError(f"dgsf up did not stop within {STOP_SECONDS:g} s:\n{self.said}") from None

    def stop_at_once(self) -> int:
        """A second Ctrl-C, once the first was heard: before that the two would be one."""
        self.process.send_signal(signal.SIGINT)
        self.wait_until(lambda: "stopping;" in self.said, "the word that it stops")
        self.process.send_signal(signal.SIGINT)
        return self.stop()

    def assert_nothing_left(self) -> None:
        assert self.processes() == []
        assert not self.layout.run_dir.exists()
        assert not Path("/dev/shm", self.layout.shared_name).exists()
        pid_file = self.layout.postgres / "cluster" / "postmaster.pid"
        assert not pid_file.exists(), "Postgres was not shut down"
        assert processes_of(pid_file.parent) == [], "Postgres still runs"


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
