"""Programs that a benchmark starts: with a log, awaited until they answer, stopped without leftovers.

Each gets a variable of this run in its environment, which its children inherit; what still has it after the
stop (Ray leaves some) is ended by pid.  Everything dies with the benchmark.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path

from dgsf.errors import StartError

ROOT = Path(__file__).resolve().parents[1]
_MARK = "LOADTEST_MARK"
_STOP_SECONDS = 60.0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def python_module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", name, *arguments]


class Service:
    """One running program."""

    def __init__(self, name: str, process: subprocess.Popen[str], log: Path, mark: str) -> None:
        self.name = name
        self.process = process
        self.log = log
        self._mark = mark

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Until `ready`; StartError with its last words if it ends before or takes too long."""
        deadline = time.monotonic() + seconds
        while not ready():
            status = self.process.poll()
            if status is not None:
                raise StartError(f"{self.name} ended with status {status} before it was ready; {self._last_words()}")
            if time.monotonic() > deadline:
                raise StartError(f"{self.name} was not ready within {seconds:g} s; {self._last_words()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """SIGTERM and patience, then force; then whatever it has left behind."""
        self.thaw()
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_STOP_SECONDS)
        for _ in range(50):
            if self.process.poll() is not None and not _carrying(self._mark):
                return
            self._signal(signal.SIGKILL)
            time.sleep(0.1)

    def freeze(self) -> None:
        """Stop all its processes where they are: a peer at rest must not take time from who is measured."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for pid in _carrying(self._mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _last_words(self) -> str:
        text = self.log.read_text("utf-8", "replace").strip() if self.log.exists() else ""
        return f"its last words: {' | '.join(text.splitlines()[-4:])}" if text else "it said nothing"


@contextmanager
def running(
    name: str,
    command: Sequence[str],
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    piped: bool = False,
    processors: Set[int] = frozenset(),
) -> Iterator[Service]:
    """The program while the block runs. `piped`: standard input and output are ours to talk through.

    `processors`: it and its children are kept to these; none: to all of them.
    """
    mark = secrets.token_hex(12)
    log = folder / f"{name}.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
            stdout=subprocess.PIPE if piped else output,
            stderr=output,
            text=True,
            cwd=ROOT,
            env=_environment(environment or {}, mark),
            start_new_session=True,  # Ctrl-C reaches the benchmark, which stops them in order
            preexec_fn=lambda: _begin(processors),
        )
    service = Service(name, process, log, mark)
    try:
        yield service
    finally:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        service.stop()


def _environment(changes: Mapping[str, str], mark: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DGSF_")}
    return {**kept, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONUNBUFFERED": "1", **changes, _MARK: mark}


def _begin(processors: Set[int]) -> None:
    """In the child: die with us, and stay where it belongs."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if processors:
        os.sched_setaffinity(0, processors)


def _carrying(mark: str) -> list[int]:
    """Our own processes that have the mark in their environment."""
    needle = f"{_MARK}={mark}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # gone meanwhile, or not ours to read
            if needle in Path(entry.path, "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


# --- asking whether it answers ------------------------------------------------------------------
def post(url: str, body: bytes, headers: Mapping[str, str], timeout: float = 60.0) -> tuple[int, bytes]:
    """Status and body; 0 if nobody answers."""
    request = urllib.request.Request(url, data=body, headers=dict(headers), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return int(answer.status), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return 0, b""
