"""A Postgres server of our own, for one node: made on first use, a direct child, gone with its parent.

Owns one data folder (the cluster, its password, its log) and one socket folder.  It listens on no
network, trusts nobody without the password, and runs as an unprivileged user when we are root, without
touching folders that it did not make.  It does not watch itself: a supervisor waits on `wait()` and
calls `start()` again.  The parent's thread that calls `start()` must live as long as the server should.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import asyncpg

from dgsf.errors import StartError
from dgsf.store import postmaster
from dgsf.store.binaries import Account, Binaries, server_account

_log = logging.getLogger(__name__)
_USER = "dgsf"
_PORT = 5432  # only names the socket's file
_START_SECONDS = 120.0  # recovery after a crash may take a while
_STOP_SECONDS = 20.0
_INITDB_SECONDS = 300.0
_MOST_LOG_BYTES = 8 * 1024 * 1024
_LONGEST_SOCKET_PATH = 107  # what the kernel takes
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "wal_buffers": "16MB",
    "max_wal_size": "1GB",
    "min_wal_size": "128MB",
    "checkpoint_timeout": "10min",
    "checkpoint_completion_target": "0.9",
    "wal_compression": "on",
    "autovacuum_naptime": "20s",
    "autovacuum_max_workers": "2",
    "max_worker_processes": "4",
    "max_logical_replication_workers": "0",
    "max_parallel_workers_per_gather": "0",  # nothing here is worth a second core that calls need
    "random_page_cost": "1.1",
    "jit": "off",
    "log_min_messages": "warning",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] ",
}


class EmbeddedPostgres:
    """One server in one data folder; may be started again after its death or its stop."""

    def __init__(self, data_dir: Path, *, run_dir: Path) -> None:
        self.data_dir = data_dir.absolute()
        self.run_dir = run_dir.absolute()
        self.process: subprocess.Popen[bytes] | None = None
        self._cluster = self.data_dir / "cluster"  # is there only when it is complete
        self._making = self.data_dir / "cluster.making"
        self._sockets = self.run_dir / "pg"
        self._lock: IO[str] | None = None
        self._binaries: Binaries | None = None

    @property
    def log_path(self) -> Path:
        return self.data_dir / "postgres.log"

    @property
    def url(self) -> str:
        """For asyncpg; holds the password, so do not log it."""
        try:
            password = quote((self.data_dir / "password").read_text().strip(), safe="")
        except FileNotFoundError:
            raise StartError(
                f"{self.data_dir}/password is missing: put it back, or start with a new data folder"
            ) from None
        return f"postgresql://{_USER}:{password}@/postgres?host={quote(str(self._sockets), safe='/')}&port={_PORT}"

    async def start(self) -> str:
        """Starts the server, making or recovering its data if need be, and returns its URL."""
        if self.process is not None and self.process.poll() is None:
            return self.url
        began = time.monotonic()
        try:
            await _whole(asyncio.to_thread(self._prepare))
            self.process = self._launch()
            await self._until_ready()
        except (OSError, subprocess.SubprocessError) as error:
            await self.stop()
            raise StartError(f"the embedded database in {self.data_dir} cannot be started: {error}") from error
        except BaseException:
            await self.stop()
            raise
        _log.info("postgres_ready", extra={"pid": self.process.pid, "seconds": round(time.monotonic() - began, 3)})
        return self.url

    async def stop(self) -> None:
        """Fast shutdown; immediate, then by force, if it takes too long. May be called at any time."""
        process, self.process = self.process, None
        if process is not None:
            await _end(process)
        await _whole(asyncio.to_thread(self._clean_up))

    async def wait(self) -> int:
        """Returns the exit status once the server has ended."""
        process = self.process
        if process is None:
            raise StartError("the embedded database is not running; start() it first")
        await _exited(process)
        return process.wait()

    # --- before and after the server's life; in a thread, because folders may be slow

    def _prepare(self) -> None:
        account = server_account()
        self._make_folders(account)
        self._take_lock()
        self._end_leftovers()
        self._binaries = Binaries.find(self._cluster, account, self.data_dir)
        if not self._cluster.exists():
            self._make_cluster(self._binaries)
        _trim_log(self.log_path)

    def _make_folders(self, account: Account | None) -> None:
        longest = len(os.fsencode(self._sockets / f".s.PGSQL.{_PORT}"))
        if longest > _LONGEST_SOCKET_PATH:
            raise StartError(
                f"the socket path below {self.run_dir} has {longest} bytes, but at most {_LONGEST_SOCKET_PATH} "
                "are possible: use a shorter run folder"
            )
        for folder in (self.data_dir, self.run_dir):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sockets.mkdir(mode=0o700, exist_ok=True)
        if account is not None:
            os.chown(self._sockets, account.uid, account.gid)

    def _take_lock(self) -> None:
        """Held as long as we live: two platforms must not end each other's server as a leftover."""
        if self._lock is not None:
            return
        lock = (self.data_dir / "lock").open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise StartError(
                f"another platform is using the data folder {self.data_dir}: stop it, or choose another --data-dir"
            ) from None
        self._lock = lock

    def _make_cluster(self, binaries: Binaries) -> None:
        """initdb beside its place, then renamed into it: a killed start leaves no half cluster."""
        password = self.data_dir / "password"
        password.unlink(missing_ok=True)
        with open(os.open(password, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
        self._making.mkdir(mode=0o700)
        postmaster.init_cluster(binaries, self._making, password.read_text(), user=_USER, timeout=_INITDB_SECONDS)
        self._making.rename(self._cluster)
        _log.info("postgres_made", extra={"data_dir": str(self.data_dir)})

    def _end_leftovers(self) -> None:
        """Whatever a killed run has left: processes, sockets, a half-made cluster, copied programs."""
        postmaster.end_leftovers(self._cluster)
        shutil.rmtree(self._making, ignore_errors=True)
        _clear_sockets(self._sockets)
        Binaries.drop_copy(self.data_dir)
        self._binaries = None

    def _clean_up(self) -> None:
        if self._lock is None:
            return  # never ours
        self._end_leftovers()
        self._lock.close()
        self._lock = None

    # --- the server itself

    def _launch(self) -> subprocess.Popen[bytes]:
        """Not in a thread: the server dies with the thread that has started it."""
        assert self._binaries is not None
        with postmaster.open_folders(self._cluster, self._sockets) as (cluster_fd, sockets_fd):
            settings = {
                **_SETTINGS,
                "unix_socket_directories": f"/proc/self/fd/{sockets_fd}",
                "port": str(_PORT),
                "cluster_name": postmaster.cluster_mark(self._cluster),
            }
            arguments = [str(self._binaries.postgres), "-D", f"/proc/self/fd/{cluster_fd}"]
            for name, value in settings.items():
                arguments += ["-c", f"{name}={value}"]
            with self.log_path.open("ab") as log:
                return subprocess.Popen(
                    postmaster.launcher(arguments, self._binaries.account, signal.SIGQUIT),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    env=postmaster.ENVIRONMENT,
                    pass_fds=(cluster_fd, sockets_fd),
                    start_new_session=True,  # Ctrl-C in a terminal must not stop it before those who use it
                )

    async def _until_ready(self) -> None:
        """Asks until it answers; a connection that is opened must be closed, or a shutdown waits for it."""
        assert self.process is not None
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                connection = await asyncpg.connect(self.url, timeout=_START_SECONDS)
            except (OSError, asyncpg.CannotConnectNowError, asyncpg.PostgresConnectionError) as error:
                self._check_start(deadline, error)
                await asyncio.sleep(0.005)
            else:
                await connection.close()
                return

    def _check_start(self, deadline: float, error: Exception) -> None:
        assert self.process is not None
        status = self.process.poll()
        if status is None and time.monotonic() < deadline:
            return
        reason = f"it ended with status {status}" if status is not None else f"not ready in {_START_SECONDS:g} s"
        raise StartError(
            f"the embedded database did not start: {reason}; {_last_line(self.log_path)} (log: {self.log_path})"
        ) from error


async def _whole(work: Coroutine[Any, Any, None]) -> None:
    """Waits for the thread's end even when cancelled: what follows must not meet it half-way."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):  # fast, immediate, by force
        if process.poll() is not None:
            return
        process.send_signal(number)
        try:
            await asyncio.wait_for(_exited(process), _STOP_SECONDS)
        except TimeoutError:
            _log.warning("postgres_slow_to_stop", extra={"pid": process.pid, "signal": number.name})
    process.wait()


async def _exited(process: subprocess.Popen[bytes]) -> None:
    """Waits without a thread, in whatever loop runs now."""
    if process.poll() is not None:
        return
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    descriptor = os.pidfd_open(process.pid)
    try:
        loop.add_reader(descriptor, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    process.wait()


def _clear_sockets(folder: Path) -> None:
    """Only after leftovers have ended: names that no process answers to."""
    for name in (f".s.PGSQL.{_PORT}", f".s.PGSQL.{_PORT}.lock"):
        (folder / name).unlink(missing_ok=True)


def _trim_log(path: Path) -> None:
    if path.exists() and path.stat().st_size > _MOST_LOG_BYTES:
        path.replace(path.with_suffix(".log.1"))


def _last_line(path: Path) -> str:
    lines = path.read_text("utf-8", "replace").strip().splitlines() if path.exists() else []
    return f"its last words: {lines[-1]!r}" if lines else "it said nothing"
