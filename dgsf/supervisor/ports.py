"""Ports and what answers on them."""

from __future__ import annotations

import asyncio
import errno
import socket

from dgsf.errors import StartError

_HTTP_SECONDS = 5.0


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody uses right now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def check_free(host: str, port: int) -> None:
    """StartError if this machine cannot listen there; asked before anything is started."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise StartError(_why(host, port, error)) from error


def check_ray_place(host: str, port: int) -> None:
    """StartError if no Ray can listen there: it tells others its address, which must be one of this machine."""
    if host in ("0.0.0.0", "::", ""):  # noqa: S104 - refused
        raise StartError(f"--ray-host {host!r}: give the address by which the other machines reach this one")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            why = "another program has that port" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
            raise StartError(f"Ray cannot listen on {host}, port {port}: {why}; see --ray-host, --ray-port") from error


def _why(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is taken by another program; choose another --port (0: any free one)"
    if error.errno == errno.EACCES:
        return f"port {port} needs more rights than we have; choose a --port above 1023"
    return f"cannot listen on {host}, port {port}: {error.strerror}"


async def http_status(host: str, port: int, path: str) -> int:
    """The status of a GET; 0 if nobody answers."""
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_HTTP_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            line = await reader.readline()
            await reader.read()
        return int(line.split()[1])
    except (OSError, TimeoutError, ValueError, IndexError):
        return 0
    finally:
        if writer is not None:
            writer.close()


async def answers(host: str, port: int) -> bool:
    """Whether somebody accepts connections there."""
    try:
        async with asyncio.timeout(_HTTP_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
