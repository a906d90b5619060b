"""A small platform without Ray and HTTP: real Postgres, real device servers, real workers, one proxy."""

import asyncio
import contextlib
import shutil
import tempfile
from pathlib import Path
from uuid import uuid4

import cloudpickle

from dgsf.config import Settings
from dgsf.fabric.device_server import DeviceServer, ServerOptions
from dgsf.fabric.devices import offers, resolve_devices
from dgsf.ids import CallIds
from dgsf.sdk.bundle import pack
from dgsf.store.calls import CallStore
from dgsf.store.catalogue import Catalogue
from dgsf.store.devices import DeviceStore
from dgsf.store.leases import LeaseStore
from dgsf.store.ledger import Ledger
from dgsf.store.proxies import ProxyStore
from dgsf.store.registry import Registry
from dgsf.wire.link import host_id
from dgsf.wire.messages import Codec
from dgsf.wire.ports import CallRequest, Payload
from dgsf.wire.shared import SharedArea
from proxy.build import Presence, make_proxy

SECRET = b"a secret of this test"
DEADLINE = 60
QUICK = ServerOptions(preload=())


class World:
    """What a test holds of it."""

    def __init__(self, database, settings, folder):
        self.database = database
        self.settings = settings
        self.folder = folder
        self.registry = Registry(database)
        self.devices = DeviceStore(database)
        self.leases = LeaseStore(database)
        self.calls = CallStore(database)
        self.ledger = Ledger(database)
        self.area = SharedArea(f"dgsf-test-{uuid4().hex[:10]}")
        self.ids = CallIds()
        self.servers = {}
        self.proxies = []
        self.catalogues = []
        self.tenant_id = 0

    # --- parts
    async def add_device(self, text, options=QUICK, **more):
        await self._add(resolve_devices(text), options, **more)

    async def add_host(self, slots=2, options=QUICK):
        """A server without a device, for the bodies of functions over the fabric."""
        await self._add(offers("cpu:1", str(slots))[1:], options)

    async def _add(self, specs, options, info=None):
        for spec in specs:
            name = f"box/{spec.short_name}"
            server = DeviceServer(
                spec,
                name=name,
                incarnation=0,
                secret=SECRET,
                run_dir=self.folder,
                shared_name=self.area.folder.name,
                options=options,
            )
            self.servers[name] = server
            address = await server.start()
            row = await self.devices.register(
                name=name,
                node="box",
                kind=spec.kind,
                type=spec.type,
                memory_bytes=spec.memory_bytes,
                slots=spec.slots,
                speed=spec.speed,
                price_nano_per_us=spec.price_nano_per_us,
                host_id=address.host_id,
                unix_path=address.unix_path,
                tcp_host=address.tcp_host,
                tcp_port=address.tcp_port,
                info={"options": spec.options} | (info or {}),
            )
            await server.set_incarnation(row.incarnation)

    async def add_proxy(self, name="box/proxy", **changes):
        settings = self.settings.with_changes(**changes)
        catalogue = Catalogue(self.registry)
        await catalogue.start()
        self.catalogues.append(catalogue)
        row = await ProxyStore(self.database).register(name, "box", host_id())
        proxy = make_proxy(settings, self.database, catalogue, SECRET, self.area, row)
        presence = Presence(self.database, proxy, row)
        await proxy.start()
        presence.start()
        self.proxies.append((proxy, presence))
        return proxy

    @property
    def proxy(self):
        return self.proxies[0][0]

    async def stop_proxy(self, proxy):
        presence = next(presence for known, presence in self.proxies if known is proxy)
        self.proxies.remove((proxy, presence))
        await proxy.stop()
        await presence.stop()

    # --- use
    async def deploy(self, function, name=None, chosen="near", **options):
        function.__module__ = "__main__"  # by value: the tests' own modules stay here
        bundle = pack(function)
        metadata = {"signature": [], "options": options, "python": "3.11", "attach": chosen}
        version = await self.registry.deploy(
            self.tenant_id, name or f"f{uuid4().hex[:8]}", b"d" * 32, metadata, bundle.code
        )
        return version.version_id

    def request(self, version_id, *args, start_s=DEADLINE, timeout_s=0.0, priority=0, **kwargs):
        payload = Payload.of(Codec.pickle, cloudpickle.dumps((args, kwargs)))
        times = (int(start_s * 1e6), int(timeout_s * 1e6))
        return CallRequest(self.ids.mint(1), self.tenant_id, version_id, payload, Codec.pickle, *times, priority)

    def open(self, version_id, *args, proxy=None, **kwargs):
        request = self.request(version_id, *args, **kwargs)
        return request, (proxy or self.proxy).open(request)

    async def call(self, version_id, *args, **kwargs):
        _, stream = self.open(version_id, *args, **kwargs)
        return await ended(stream)

    async def value(self, version_id, *args, **kwargs):
        result = await self.call(version_id, *args, **kwargs)
        assert result.failure is None, result.failure
        return cloudpickle.loads(result.payload.read())


async def ended(stream):
    async with asyncio.timeout(DEADLINE):
        return await stream.result()


async def until(condition, why=""):
    """Wait for a state, not for a time."""
    async with asyncio.timeout(DEADLINE):
        while not (found := await condition() if asyncio.iscoroutinefunction(condition) else condition()):
            await asyncio.sleep(0.01)
    return found


@contextlib.asynccontextmanager
async def world_of(database, devices="cpu:1", **changes):
    folder = Path(tempfile.mkdtemp(prefix="dgsf-w-"))
    folder.chmod(0o711)
    world = World(database, Settings(**{"lease_seconds": 20.0, "grace_seconds": 0.5, **changes}), folder)
    try:
        world.area.make()
        world.tenant_id = await world.registry.create_tenant("acme")
        if devices:
            await world.add_device(devices)
        await world.add_proxy()
        yield world
    finally:
        for proxy, presence in world.proxies:
            await proxy.stop()
            await presence.stop()
        for catalogue in world.catalogues:
            await catalogue.stop()
        for server in world.servers.values():
            await server.stop()
        world.area.remove()
        shutil.rmtree(folder, ignore_errors=True)
