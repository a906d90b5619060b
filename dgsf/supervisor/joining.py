"""A Ray node on this machine that belongs to a cluster elsewhere: started, kept running, stopped.

The devices are told to it by its environment; the platform's controller, wherever it runs, finds the node
and starts the device servers on it.  Nothing else of the platform runs here.
"""

from __future__ import annotations

import asyncio
import shutil
import signal

from dgsf.config import Settings
from dgsf.fabric.ray_node import RayNode
from dgsf.paths import Layout, layout_of, private_folder
from dgsf.supervisor import leftovers
from dgsf.supervisor.keeper import Keeper, child_part
from dgsf.supervisor.parts import Commands
from dgsf.supervisor.processes import Command
from dgsf.supervisor.progress import Progress
from dgsf.telemetry import setup_logging
from dgsf.wire.shared import SharedArea

_LOOK_SECONDS = 0.1


async def join(settings: Settings) -> None:
    """Stay in the cluster until a signal."""
    settings = _of_this_node(settings)
    layout = layout_of(settings)
    for folder in (layout.data_dir, layout.logs):
        private_folder(folder)
    setup_logging(settings, "fabric", layout.logs / "fabric.log")
    with leftovers.lock(layout.lock_file), Progress() as progress:
        await asyncio.to_thread(leftovers.end, leftovers.recorded(layout.processes_file))
        await asyncio.to_thread(leftovers.end_marked, layout.mark)
        private_folder(layout.run_dir)
        SharedArea(layout.shared_name).make()
        try:
            await _stay(settings, layout, progress)
        finally:
            await asyncio.to_thread(leftovers.end_marked, layout.mark)
            SharedArea(layout.shared_name).remove()
            shutil.rmtree(layout.run_dir, ignore_errors=True)
            progress.say("stopped")


def _of_this_node(settings: Settings) -> Settings:
    """A folder and so a mark of its own: a whole platform may run beside it from the same data dir."""
    own = settings.with_changes(data_dir=settings.data_dir.expanduser().absolute() / "fabric", mark="")
    return own.with_changes(mark=layout_of(own).mark)


async def _stay(settings: Settings, layout: Layout, progress: Progress) -> None:
    part = child_part("Ray", lambda: _command(settings, layout), layout.logs / "ray.log")
    keeper = Keeper(part, progress.say, lambda: _write_down(layout, keeper))
    keeping = asyncio.create_task(keeper.run())
    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    joined = asyncio.create_task(_tell_joined(settings, layout, keeper, progress))
    stopping = asyncio.create_task(told.wait())
    try:
        done, _ = await asyncio.wait({keeping, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if keeping in done:
            keeping.result()
    finally:
        progress.settle()
        progress.say("stopping")
        await keeper.stop()
        for task in (keeping, joined, stopping):
            task.cancel()
        await asyncio.gather(keeping, joined, stopping, return_exceptions=True)


def _write_down(layout: Layout, keeper: Keeper) -> None:
    if keeper.pid is not None:
        leftovers.record(layout.processes_file, {keeper.part.name: keeper.pid})


async def _tell_joined(settings: Settings, layout: Layout, keeper: Keeper, progress: Progress) -> None:
    with progress.step(f"Ray at {settings.ray_address}", "joined"):
        while not any(layout.ray.glob("session_*/sockets/raylet*")):  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(_LOOK_SECONDS)
    keeper.settled = True
    progress.settle()


def _command(settings: Settings, layout: Layout) -> Command:
    shutil.rmtree(layout.ray, ignore_errors=True)
    layout.ray.mkdir(mode=0o700)
    node = RayNode(settings.node_name, layout.ray, head_address=settings.ray_address)
    return Commands(settings, layout).ray(node)
