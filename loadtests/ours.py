"""Our own platform as one of the contenders: `dgsf up` in a new data dir, with the sample functions deployed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dgsf.config import load_settings
from dgsf.errors import StartError
from dgsf.paths import Layout, layout_of
from dgsf.sdk.client import Client
from dgsf.sdk.loadfile import AnyFunction, functions_in, load_file
from dgsf.sdk.plan import run
from dgsf.store.embedded import EmbeddedPostgres
from loadtests.service import ROOT, Service, free_port, python_module, running

DEMO = ROOT / "functions" / "demo.py"
BENCH = ROOT / "loadtests" / "deployed" / "bench_functions.py"
_START_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Ours:
    """A platform that runs."""

    name: str
    url: str
    api_key: str = field(repr=False)
    layout: Layout
    service: Service

    @property
    def database_url(self) -> str:
        return EmbeddedPostgres(self.layout.postgres, run_dir=self.layout.run_dir).url

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"}

    def client(self) -> Client:
        return Client(self.url, self.api_key)

    def invoke_url(self, function: str) -> str:
        return f"{self.url}/v1/functions/{function}/invoke"

    def pid_of(self, part: str) -> int:
        """The process id of one part: 'gateway', 'proxy', 'controller'."""
        rows = json.loads(self.layout.processes_file.read_text())
        for row in rows:
            if row["name"] == part:
                return int(row["pid"])
        raise StartError(f"there is no {part} among {', '.join(str(row['name']) for row in rows)}")


@contextmanager
def platform(
    name: str,
    folder: Path,
    *,
    proxy: str = "inside",
    devices: str = "cpu:1",
    environment: Mapping[str, str] | None = None,
    processors: Set[int] = frozenset(),
) -> Iterator[Ours]:
    """A platform of one gateway while the block runs, on these processors if any are named."""
    port, data_dir = free_port(), folder / name
    flags = ["--port", str(port), "--data-dir", str(data_dir), "--devices", devices, "--gateways", "1"]
    command = python_module("dgsf.cli", "up", *flags, "--proxy", proxy)
    with running(name, command, folder, environment=environment, processors=processors) as service:
        try:
            service.wait_until(lambda: _says_ready(service.log), _START_SECONDS)
        except StartError as error:
            raise StartError(f"{error.message}\n{_last_words(data_dir / 'logs')}") from None
        layout = layout_of(load_settings({}, data_dir=str(data_dir)))
        found = json.loads(layout.client_file.read_text())
        yield Ours(name, found["url"], found["api_key"], layout, service)


def _last_words(logs: Path) -> str:
    """The end of every part's log: the folder is gone when somebody reads the message."""
    tails = [(log.name, log.read_text("utf-8", "replace").splitlines()[-3:]) for log in sorted(logs.glob("*.log"))]
    return "\n".join(f"  {name}: {line[:400]}" for name, lines in tails for line in lines)


def _says_ready(log: Path) -> bool:
    return any(line.startswith("ready ") for line in log.read_text("utf-8", "replace").splitlines())


def function_of(file: Path, name: str) -> AnyFunction:
    """A function of a file, by the name that it has on the platform."""
    return functions_in(load_file(file))[name]


def deploy(ours: Ours, function: AnyFunction, name: str | None = None) -> None:
    """Deploy it, under another name if one is given."""
    with ours.client() as client:
        run(client.deploy_plan(name or function.name, function.raw, function.options, function.bundle()), client.driver)
