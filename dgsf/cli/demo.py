"""`dgsf demo`: the whole story once: start, deploy, call by HTTP and by the SDK, show leases and bill, stop.

It is a user of the platform like any other: it starts `dgsf up` as a process and then only speaks HTTP.
"""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from dgsf.errors import StartError

if TYPE_CHECKING:
    from dgsf.sdk.client import Client

STOP_SECONDS = 60


@click.command("demo")
@click.option("--port", type=int, default=0, help="port of the platform (0: a free one)")
@click.option("--devices", default="auto", show_default=True, help="devices to offer, as for 'dgsf up'")
def command(port: int, devices: str) -> None:
    """Start a platform, deploy and call sample functions, show what it cost, stop everything."""
    with tempfile.TemporaryDirectory(prefix="dgsf-demo-") as folder, _platform(port or _free_port(), devices, folder):
        from dgsf.sdk.client import Client

        with Client(data_dir=folder) as client:
            _deploy(client)
            _call_by_http(client)
            _call_by_sdk(client)
            _show_records(client)
    _title("Stopped; nothing is left running.")


@contextmanager
def _platform(port: int, devices: str, folder: str) -> Iterator[None]:
    _title("Starting the platform: embedded Postgres, local Ray, device servers, proxy, gateway")
    words = [sys.executable, "-m", "dgsf.cli", "up", "--port", str(port), "--data-dir", folder, "--devices", devices]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            click.echo(f"  {line.rstrip()}")
            if line.startswith("ready "):
                break
        else:
            raise StartError("the platform did not start; what it said is above")
        yield
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _deploy(client: Client) -> None:
    from dgsf.sdk.plan import run
    from functions.demo import app

    _title("Deploying functions/demo.py")
    for function in app.functions.values():
        run(client.ensure_plan(function.name, function.raw, function.options, function.bundle()), client.driver)
        click.echo(f"  {function.name}")


def _call_by_http(client: Client) -> None:
    _title("Calling by HTTP")
    _post(client, "demo.echo", {"x": 1})
    _post(client, "demo.statistics", {"values": [1, 2, 3, 4, 10]})
    image = _picture()
    click.echo(f"  POST /v1/functions/demo.classify/invoke  <{len(image)} bytes: a picture of a triangle>")
    outcome = client.post("demo.classify", image, "image/png")
    _answer(outcome.value.decode(), outcome)


def _picture() -> bytes:
    """A triangle as PNG."""
    from PIL import Image, ImageDraw

    image = Image.new("L", (64, 64), 0)
    ImageDraw.Draw(image).polygon([(32, 8), (8, 56), (56, 56)], fill=255)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def _post(client: Client, name: str, arguments: dict[str, Any]) -> None:
    body = json.dumps(arguments)
    click.echo(f"  POST /v1/functions/{name}/invoke  {body}")
    outcome = client.post(name, body.encode())
    _answer(outcome.value.decode(), outcome)


def _answer(text: str, outcome: Any) -> None:
    from dgsf.cli.output import human_nano, human_us

    click.secho(f"    → {text}", fg="green")
    times = f"waited {human_us(outcome.queue_us)}, device time {human_us(outcome.device_us)}"
    click.echo(f"      on {outcome.device}, {times}, cost {human_nano(outcome.cost_nano)}")


def _call_by_sdk(client: Client) -> None:
    from functions.demo import DemoError

    _title("Calling from Python")
    outcome = client.outcome("demo.statistics", ([3.0, 4.0],))
    click.echo("  statistics.remote([3.0, 4.0])")
    _answer(repr(outcome.value), outcome)
    click.echo("  fail.remote('on purpose')")
    try:
        client.invoke("demo.fail", "on purpose")
    except DemoError as error:
        click.secho(f"    → raised here as its own type: {type(error).__name__}: {error}", fg="green")


def _show_records(client: Client) -> None:
    from dgsf.cli.leases import COLUMNS as LEASE_COLUMNS
    from dgsf.cli.output import show_listing
    from dgsf.cli.usage import COLUMNS as USAGE_COLUMNS

    _title("Who holds which slot of which device (dgsf leases)")
    show_listing(client.leases(), "leases", LEASE_COLUMNS, as_json=False, empty="no device is leased now")
    _title("What it cost (dgsf usage)")
    show_listing(client.usage(), "usage", USAGE_COLUMNS, as_json=False, empty="nothing was used")


def _title(text: str) -> None:
    click.secho(f"\n{text}", bold=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
