"""Any process killed with -9 under load: nothing acknowledged is lost, nothing is billed twice, all comes back."""

import asyncio
import contextlib
import os
import signal
import time

import pytest
from chaos_world import Load, check_books, identity, start_platform

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    """Two gateways on one port, the proxy apart: every part is a process of its own."""
    data_dir = tmp_path_factory.mktemp("chaos") / "data"
    flags = ("--devices", "cpu:1", "--gateways", "2", "--proxy", "apart")
    running = start_platform(data_dir, *flags, DGSF_LEASE_SECONDS="3")
    try:
        yield running
    finally:
        assert running.stop() == 0, running.said
    running.assert_nothing_left()


VICTIMS = {
    "worker": lambda platform: platform.workers()[-1],
    "proxy": lambda platform: platform.part("proxy"),
    "gateway": lambda platform: platform.part("gateway"),
    "controller": lambda platform: platform.part("controller"),
    "zygote": lambda platform: platform.descendant("dgsf.fabric.zygote"),
    "device server": lambda platform: platform.device_server(),
    "Postgres": lambda platform: platform.part("Postgres"),
    "raylet": lambda platform: platform.descendant("raylet/raylet"),
}
TAKES_DEVICES_ALONG = ("device server", "raylet")


@pytest.mark.parametrize("victim", VICTIMS)
async def test_killed_under_load(platform, victim):
    device_server = platform.device_server()
    async with Load(platform) as load:
        pid = VICTIMS[victim](platform)
        os.kill(pid, signal.SIGKILL)
        if victim in TAKES_DEVICES_ALONG:
            await load.until(lambda: not identity(device_server))
            await load.until(lambda: any("-host" not in name for name in platform.servers()))
        await load.good_since(time.monotonic(), 50)
    await check_books(platform, load.story)
    if victim == "controller":
        assert not load.story.refused and not load.story.broken, "a controller's death stops no call"


async def test_a_proxy_that_stood_still_past_its_leases_writes_nothing_stale(platform):
    async with Load(platform) as load:
        pid = platform.part("proxy")
        os.kill(pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(60):
                while not load.story.refused:  # the gateways have given it up and settled its calls
                    await asyncio.sleep(0.05)
        finally:
            os.kill(pid, signal.SIGCONT)
        await load.good_since(time.monotonic(), 50)
    await check_books(platform, load.story)


async def test_workers_that_stood_still_are_ended_and_their_calls_told(platform):
    async with Load(platform, callers=4) as load:
        workers = platform.workers()
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        try:  # those that had a call are over their time, and then killed; the others were idle
            await load.until(lambda: any(identity(pid) is None for pid in workers))
            await load.good_since(time.monotonic(), 20)
        finally:
            for pid in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
    load.story.unlawful = [text for text in load.story.unlawful if '"timed_out"' not in text]
    load.story.refused = [(code, call) for code, call in load.story.refused if code != "timed_out"]
    await check_books(platform, load.story)
