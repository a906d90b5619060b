"""A whole platform on one machine, from the first process to the last.

Parts that do not need each other start at the same time: Postgres and Ray, then controller, proxy and
gateways.  It is ready when this machine's devices are there and the gateway says that calls are answered.  Whatever
way it ends, by a signal, a failed start or an error, the parts are stopped in order (gateways, proxy,
controller, Ray, Postgres) and nothing that carries our mark is left.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from dgsf.config import Settings
from dgsf.core.devices import AUTO, DeviceSpec, parse_hosts
from dgsf.fabric.ray_node import LOOPBACK
from dgsf.paths import Layout, secret_in
from dgsf.store.embedded import EmbeddedPostgres
from dgsf.supervisor import leftovers
from dgsf.supervisor.arrivals import Arrivals
from dgsf.supervisor.bootstrap import devices_arrived, prepare_database, write_client_file
from dgsf.supervisor.keeper import Keeper, Part, child_part
from dgsf.supervisor.parts import Commands
from dgsf.supervisor.ports import http_status
from dgsf.supervisor.postgres import RunningPostgres
from dgsf.supervisor.processes import Child, Command
from dgsf.supervisor.progress import Progress
from dgsf.supervisor.ray import LocalRay, there
from dgsf.wire.shared import SharedArea

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.05
_RAY_SECONDS = 15.0  # for a cluster that is started at the same time
_END_DEVICES_SECONDS = 60.0  # a process of its own that joins the cluster first
_GATEWAY_SECONDS = 20.0  # calls that run have 10 s to end, are then given up and answered
_STOP_ORDER = ("gateway", "proxy", "controller", "ray", "postgres")


class Platform:
    """`run` starts it, stays, and stops it."""

    def __init__(
        self, settings: Settings, layout: Layout, progress: Progress, offered: Sequence[DeviceSpec] = ()
    ) -> None:
        """`offered`: the devices of this machine."""
        self._settings = settings
        self._layout = layout
        self._progress = progress
        self._commands = Commands(settings, layout)
        self._offered = offered
        self._ray = None if settings.ray_address else LocalRay()
        self._ending: Child | None = None
        self._postgres: EmbeddedPostgres | None = None
        self._keepers: dict[str, list[Keeper]] = {kind: [] for kind in _STOP_ORDER}
        self._tasks: list[asyncio.Task[None]] = []
        self._ready = False
        self._told = asyncio.Event()
        self._trouble: asyncio.Future[None]

    async def run(self) -> None:
        """Until a signal, or an error that makes it pointless to go on."""
        loop = asyncio.get_running_loop()
        self._trouble = loop.create_future()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._signalled)
        self._progress.when_closed(self._told.set)  # 'dgsf up 2>&1 | head': whoever watched has seen enough
        starting, told = loop.create_task(self._start()), loop.create_task(self._wait_to_be_told())
        try:
            watched: set[asyncio.Future[None]] = {starting, told, self._trouble}
            while told in watched:
                done, watched = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
                for future in done:
                    future.result()  # raises what went wrong
        finally:
            starting.cancel()
            told.cancel()
            await asyncio.gather(starting, told, return_exceptions=True)
            await self._stop()

    @property
    def url(self) -> str:
        reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._settings.host, self._settings.host)  # noqa: S104
        return f"http://{f'[{reachable}]' if ':' in reachable else reachable}:{self._settings.port}"

    # --- starting
    async def _start(self) -> None:
        with self._progress:
            self._make_secrets()
            if self._ray is None:
                with self._progress.step(f"Ray at {self._settings.ray_address}", "there"):
                    await there(self._settings.ray_address, _RAY_SECONDS)
            else:
                self._keep("ray", child_part("Ray", self._ray_command, self._log_of("ray"), on_end=self._ray_ended))
            with self._progress.step("postgres"):
                await self._start_database()
            self._start_parts()
            await self._wait_for_parts()
        for keeper in self._all():
            keeper.settled = True
        self._ready = True
        _log.info("ready", extra={"url": self.url})
        self._progress.ready(self.url)

    def _make_secrets(self) -> None:
        SharedArea(self._layout.shared_name).make()
        secret = self._settings.cluster_secret or secret_in(self._layout.secret_file)
        token = "" if self._ray is None else secret_in(self._layout.ray_token_file)
        self._settings = self._settings.with_changes(cluster_secret=secret)
        self._commands = Commands(self._settings, self._layout, token)

    async def _start_database(self) -> None:
        if not self._settings.database_url:
            server = self._postgres = EmbeddedPostgres(self._layout.postgres, run_dir=self._layout.run_dir)
            part = Part("Postgres", lambda: RunningPostgres.start(server), server.log_path, stop_seconds=30.0)
            await self._keep("postgres", part).up()
            self._settings = self._settings.with_changes(database_url=server.url)
            self._commands = Commands(self._settings, self._layout, self._commands.ray_token)
        url = self._settings.database_url
        key = await prepare_database(url, self._layout, fresh_fabric=self._ray is not None)
        write_client_file(self._layout.client_file, self.url, key)

    def _start_parts(self) -> None:
        self._keep("controller", child_part("controller", self._controller_command, self._log_of("controller")))
        # Also when calls' proxy is inside the gateway: sessions never pass through a gateway.
        self._keep("proxy", child_part("proxy", self._commands.proxy, self._log_of("proxy")))
        for number in range(self._settings.gateways):
            name = f"gateway-{number + 1}" if self._settings.gateways > 1 else "gateway"
            part = child_part(name, self._gateway_command(name), self._log_of(name), stop_seconds=_GATEWAY_SECONDS)
            self._keep("gateway", part)

    async def _wait_for_parts(self) -> None:
        async with asyncio.TaskGroup() as waits:
            if self._ray is not None:
                waits.create_task(self._ray_ready(self._ray))
            waits.create_task(self._step("gateway", lambda: self._answers("/healthz")))
            arrivals, url = self._arrivals(), self._settings.database_url
            waits.create_task(self._step("devices", lambda: devices_arrived(url, arrivals, self._progress.say)))
        await self._step("calls", lambda: self._answers("/readyz"), "answered")

    async def _ray_ready(self, ray: LocalRay) -> None:
        await self._step("ray", ray.ready)
        if self._settings.ray_port or self._settings.ray_host != LOOPBACK:
            token = self._layout.ray_token_file
            self._progress.say(
                f"others join with: dgsf fabric --ray-address {ray.address} (RAY_AUTH_TOKEN: in {token})"
            )

    def _arrivals(self) -> Arrivals:
        names = [] if self._ray is None else [f"{self._settings.node_name}/{spec.short_name}" for spec in self._offered]
        host, log = parse_hosts(self._settings.hosts) is not None, str(self._log_of("controller"))
        return Arrivals(names, host=host, now_s=time.monotonic(), log=log)

    async def _step(self, name: str, ready: Callable[[], Awaitable[bool]], done: str = "ready") -> None:
        with self._progress.step(name, done):
            while not await ready():  # noqa: ASYNC110 - it is in other processes, nothing here tells us
                await asyncio.sleep(_LOOK_SECONDS)

    async def _answers(self, path: str) -> bool:
        host = self.url.removeprefix("http://").rpartition(":")[0].strip("[]")
        return await http_status(host, self._settings.port, path) == 200

    # --- the parts
    def _keep(self, kind: str, part: Part) -> Keeper:
        keeper = Keeper(part, self._progress.say, self._write_down)
        self._keepers[kind].append(keeper)
        task = asyncio.create_task(keeper.run())
        task.add_done_callback(self._keeper_ended)
        self._tasks.append(task)
        return keeper

    def _keeper_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._trouble.done():
            self._trouble.set_exception(error)

    def _all(self) -> list[Keeper]:
        return [keeper for group in self._keepers.values() for keeper in group]

    def _ray_command(self) -> Command:
        assert self._ray is not None
        return self._ray.command(self._commands)

    def _ray_ended(self) -> None:
        """The controller belongs to that Ray; a new one finds the new Ray."""
        for keeper in self._keepers["controller"]:
            keeper.kill()

    def _controller_command(self) -> Command:
        if self._ray is not None:
            return self._commands.controller(self._ray.address, "--devices", self._settings.devices)
        own = () if self._settings.devices == AUTO else ("--devices", self._settings.devices)
        return self._commands.controller(self._settings.ray_address, *own)

    def _gateway_command(self, name: str) -> Callable[[], Command]:
        return lambda: self._commands.gateway(name)

    def _log_of(self, name: str) -> Path:
        return self._layout.logs / f"{name}.log"

    # --- stopping
    def _signalled(self) -> None:
        if self._told.is_set():  # the second time: at once
            for keeper in self._all():
                keeper.give_up()
            if self._ending is not None:
                self._ending.kill()
        self._told.set()

    async def _wait_to_be_told(self) -> None:
        await self._told.wait()

    async def _stop(self) -> None:
        self._progress.settle()
        calls = "calls that run have up to 10 s to end, " if self._ready else ""
        self._progress.say(f"stopping; {calls}Ctrl-C again stops at once")
        for kind, group in self._keepers.items():
            await asyncio.gather(*(keeper.stop() for keeper in group), return_exceptions=True)
            if kind == "controller" and self._ray is None and any(not keeper.hopeless for keeper in group):
                await self._end_devices()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._trouble.done():
            self._trouble.exception()  # seen: it is told already, or the stop was asked for
        try:
            if self._postgres is not None:  # once more: one that ended before its turn left its files
                await self._postgres.stop()
        finally:
            await asyncio.to_thread(self._sweep)
        _log.info("stopped")
        self._progress.say("stopped")

    async def _end_devices(self) -> None:
        """On a cluster that is not ours the device servers would stay."""
        child = self._ending = await Child.start(self._commands.controller(self._settings.ray_address, "--end-devices"))
        try:
            async with asyncio.timeout(_END_DEVICES_SECONDS):
                failed = await child.wait() != 0
        except TimeoutError:
            failed = True
            child.kill()
        if failed:
            address, log = self._settings.ray_address, self._log_of("controller")
            self._progress.say(f"the device servers could not be ended: Ray at {address} does not answer; log: {log}")

    def _sweep(self) -> None:
        left = leftovers.end_marked(self._layout.mark)
        if left:
            _log.warning("leftovers_ended", extra={"count": left})
        SharedArea(self._layout.shared_name).remove()
        shutil.rmtree(self._layout.run_dir, ignore_errors=True)
        self._layout.processes_file.unlink(missing_ok=True)

    def _write_down(self) -> None:
        found = {keeper.part.name: keeper.pid for keeper in self._all() if keeper.pid is not None}
        leftovers.record(self._layout.processes_file, found)
