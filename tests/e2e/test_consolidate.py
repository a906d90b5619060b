"""A platform that is set to free devices: programs on two of them end up on one, and compute on as if nothing were."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

import dgsf
from dgsf.supervisor.parts import outer_environment

PROGRAM = """
import sys, torch, dgsf
with dgsf.attach(memory="256MiB") as device:
    x = torch.arange(1000.0, dtype=torch.float64, device=device)
    print("there", x.sum().item(), flush=True)
    sys.stdin.readline()
    print("result", (x * int(sys.argv[1])).sum().item(), flush=True)
"""
SECONDS = 110


@pytest.fixture
def freeing(start):
    running = start("data", "--devices", "cpu:2", environment={"DGSF_CONSOLIDATE": "3600"}).wait_ready()
    running.wait_until(lambda: len(_devices(running)) == 2, "two devices")
    yield running
    assert running.stop() == 0, running.said
    running.assert_nothing_left()


def _devices(platform):
    return [row["name"] for row in platform.healthy() if row["kind"] == "cpu"]


def _attach(platform, factor):
    own = {"DGSF_URL": platform.url, "DGSF_API_KEY": platform.api_key, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(factor)],
        env=outer_environment() | own,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _make_older(platform):
    """What would otherwise take as long as sessions have to live before they are worth a move."""
    (gateway, *_) = platform.find("gateway")
    variables = Path(f"/proc/{gateway}/environ").read_bytes().decode().split("\0")
    url = next(text.partition("=")[2] for text in variables if text.startswith("DGSF_DATABASE_URL="))

    async def change():
        connection = await asyncpg.connect(url)
        try:
            await connection.execute("UPDATE dgsf.sessions SET started_at = started_at - interval '1 hour'")
        finally:
            await connection.close()

    asyncio.run(change())


def test_sessions_on_two_devices_end_up_on_one_with_right_results(freeing):
    programs = [_attach(freeing, factor) for factor in (2, 3)]
    try:
        with dgsf.Client(freeing.url, freeing.api_key) as client:
            for each in programs:
                assert each.stdout.readline() == "there 499500.0\n"
            _spread(freeing, client)
            _make_older(freeing)
            freeing.wait_until(lambda: len(_used(client)) == 1, "a free device")
            assert all(session["generation"] == 1 for session in client.sessions()["sessions"])
        told = [each.communicate("\n", timeout=SECONDS)[0] for each in programs]
        assert told == ["result 999000.0\n", "result 1498500.0\n"]
    finally:
        for each in programs:
            each.kill()
            each.wait()


def _spread(platform, client):
    """One session on each device."""

    def where():
        sessions = client.sessions()["sessions"]
        return [session["device_name"] for session in sessions if session["state"] == "attached"]

    platform.wait_until(lambda: len(where()) == 2 and all(where()), "two sessions")
    first, second = where()
    if first == second:
        other = next(name for name in _devices(platform) if name != first)
        client.move_session(client.sessions()["sessions"][0]["id"], other)
    platform.wait_until(lambda: len(set(where())) == 2 == len(_used(client)), "a session on each device")


def _used(client):
    """Devices of which somebody holds a slot; none while a session is on its way."""
    sessions = client.sessions()["sessions"]
    if any(session["state"] != "attached" or session["move_to"] is not None for session in sessions):
        return set()
    return {lease["device_name"] for lease in client.leases()["leases"]}
