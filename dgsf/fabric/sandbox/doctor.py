"""What the sandbox would be on this machine, found by really starting a zygote and one worker.

Run as a process of its own (`python -m dgsf.fabric.sandbox.doctor`), because what it tries cannot be undone
in the process that tries it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

import msgspec

from dgsf.config import GIB, MIB
from dgsf.errors import DgsfError
from dgsf.fabric.sandbox.features import Feature
from dgsf.fabric.spec import Prepared, WorkerSpec
from dgsf.fabric.zygote_client import ZygoteClient, ZygoteOptions, zygote_environment
from dgsf.wire.messages import reader

_TIMEOUT_SECONDS = 60.0
_decode = msgspec.json.Decoder(list[Feature]).decode
_read_prepared = reader(Prepared)


def examine() -> list[Feature]:
    """All features, present or not; one that tells what went wrong if nothing could be tried."""
    command = [sys.executable, "-P", "-m", "dgsf.fabric.sandbox.doctor"]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
            check=True,
            env=zygote_environment(ZygoteOptions()),
            stdin=subprocess.DEVNULL,
        )
        return _decode(done.stdout)
    except (subprocess.SubprocessError, OSError, msgspec.DecodeError) as error:
        return [Feature("sandbox", False, f"it could not be tried: {error}")]


def serve(control: socket.socket, connection: socket.socket, spec: WorkerSpec) -> NoReturn:
    """The entry of the trial worker: it never gets as far."""
    os._exit(0)


async def _try_out() -> list[Feature]:
    zygote = ZygoteClient(ZygoteOptions(entry="dgsf.fabric.sandbox.doctor:serve", preload=()))
    try:
        ready = await zygote.start(_TIMEOUT_SECONDS)
        with tempfile.TemporaryDirectory(prefix="dgsf-doctor-") as folder:
            prepared = await _one_worker(zygote, Path(folder))
    except DgsfError as error:
        return [Feature("sandbox", False, error.message)]
    finally:
        await zygote.stop()
    return _once([*ready.features, *prepared.features])


async def _one_worker(zygote: ZygoteClient, folder: Path) -> Prepared:
    uid = 0x70000000 if os.geteuid() == 0 else 0
    spec = WorkerSpec(1, 0, 1, 0, 0, 64 * MIB, False, str(folder), "cpu", 0, {}, GIB, uid)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one, other = socket.socketpair()
    with ours, one, other:
        with theirs:
            await zygote.spawn(spec, theirs, other)
        ours.setblocking(False)
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            data = await asyncio.get_running_loop().sock_recv(ours, 1 << 16)
    prepared: Prepared = _read_prepared(data)
    if prepared.failure is not None:
        raise prepared.failure.error()
    return prepared


def _once(features: list[Feature]) -> list[Feature]:
    """The last word on each."""
    return list({feature.name: feature for feature in features}.values())


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(_try_out())))
