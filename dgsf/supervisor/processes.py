"""Child processes: started with a log of their own, dead when we are, ended by pid.

A child gets its own session, so that Ctrl-C in a terminal reaches only us and the parts stop in order.
PDEATHSIG ends it with the thread that started it, even if we are killed with -9; start only from the main
thread.  Nothing here decides when to start again.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dgsf.config import MIB
from dgsf.errors import StartError

_PR_SET_PDEATHSIG = 1
_MAX_LOG_BYTES = 16 * MIB
_TAIL_BYTES = 4096
ERROR = "error: "  # how the last line of a command begins that ended by an error of ours
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Command:
    """What to run, and where its output goes."""

    name: str
    argv: list[str]
    environment: dict[str, str]
    log: Path


class Child:
    """One running child."""

    def __init__(self, command: Command, process: asyncio.subprocess.Process) -> None:
        self.command = command
        self._process = process

    @classmethod
    async def start(cls, command: Command) -> Child:
        _turn_over(command.log)
        with command.log.open("ab") as log:
            try:
                process = await asyncio.create_subprocess_exec(
                    *command.argv,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=command.environment,
                    start_new_session=True,
                    preexec_fn=_die_with(os.getpid()),
                )
            except OSError as error:
                raise StartError(f"cannot run {command.argv[0]} for the {command.name}: {error.strerror}") from error
        return cls(command, process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.returncode is not None

    async def wait(self) -> int:
        return await self._process.wait()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def stop(self, grace: float) -> None:
        """Ask it to end, then make it."""
        if self.ended:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(grace):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()


def describe_exit(status: int) -> str:
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def last_lines(path: Path, count: int = 5) -> list[str]:
    """The end of a log, for an error message."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-count:]


def last_error(path: Path) -> str:
    """What a part of ours said last, if that was why it could not go on."""
    said = last_lines(path, 1)
    return said[0].removeprefix(ERROR)[:600] if said and said[0].startswith(ERROR) else ""


def _die_with(parent: int) -> Callable[[], None]:
    def set_up() -> None:  # in the child, before exec
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the line above
            os._exit(1)

    return set_up


def _turn_over(log: Path) -> None:
    """A log that has grown large makes room for a new one."""
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > _MAX_LOG_BYTES:
            log.replace(log.with_suffix(".1.log"))
