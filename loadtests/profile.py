"""Where the time of a call goes: py-spy looks at a part of the platform under load.

    python -m loadtests.profile [--part gateway|proxy] [--proxy inside|apart] [--seconds 8] [--connections 64]

Prints the functions with the most own time, and the share of each layer.  Cython and C code shows as time of
the Python function that called it, unless --native is given.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from dgsf.errors import UsageError
from loadtests.contenders import check_answer, our_echo
from loadtests.cpu import per_request, processor_us
from loadtests.ours import DEMO, deploy, function_of, platform
from loadtests.service import ROOT
from loadtests.wrk import WrkResult, run_wrk

_RATE = 500
_LAYERS = (
    ("aiohttp", "/aiohttp/"),
    ("asyncpg", "/asyncpg/"),
    ("gateway", f"{ROOT}/gateway/"),
    ("proxy", f"{ROOT}/proxy/"),
    ("wire", f"{ROOT}/dgsf/wire/"),
    ("store", f"{ROOT}/dgsf/store/"),
    ("core", f"{ROOT}/dgsf/core/"),
    ("dgsf", f"{ROOT}/dgsf/"),
    ("multidict, yarl", "/multidict/"),
    ("multidict, yarl", "/yarl/"),
    ("asyncio", "/asyncio/"),
    ("uvloop", "uvloop"),
)


@dataclass(slots=True)
class Profile:
    """Samples, counted three ways."""

    samples: int = 0
    own: Counter[str] = field(default_factory=Counter)  # by function: it was running
    total: Counter[str] = field(default_factory=Counter)  # by function: it was on the stack
    layer_own: Counter[str] = field(default_factory=Counter)
    layer_total: Counter[str] = field(default_factory=Counter)


def layer_of(frame: str) -> str:
    """The layer of a frame like 'name (/path/file.py:12)'."""
    return next((name for name, needle in _LAYERS if needle in frame), "other")


def read_profile(lines: Iterable[str]) -> Profile:
    """From py-spy's raw format: frames from the outermost on, split by ';', then a count."""
    profile = Profile()
    for line in lines:
        stack, _, count_text = line.rpartition(" ")
        if not stack:
            continue
        count = int(count_text)
        frames = [_without_line(frame) for frame in stack.split(";")]
        profile.samples += count
        profile.own[frames[-1]] += count
        profile.layer_own[layer_of(frames[-1])] += count
        for frame in set(frames):
            profile.total[frame] += count
        for layer in {layer_of(frame) for frame in frames}:
            profile.layer_total[layer] += count
    return profile


def _without_line(frame: str) -> str:
    head, colon, tail = frame.rpartition(":")
    return f"{head})" if colon and tail.rstrip(")").isdigit() else frame


@click.command()
@click.option("--part", type=click.Choice(["gateway", "proxy"]), default="gateway", show_default=True)
@click.option("--proxy", type=click.Choice(["inside", "apart"]), default="inside", show_default=True)
@click.option("--seconds", type=click.IntRange(1, 600), default=8, show_default=True)
@click.option("--connections", type=click.IntRange(1, 10_000), default=64, show_default=True)
@click.option("--top", type=click.IntRange(1, 500), default=30, show_default=True, help="Functions in the table.")
@click.option("--native", is_flag=True, help="See Cython and C functions too (slower).")
def main(part: str, proxy: str, seconds: int, connections: int, top: int, native: bool) -> None:
    """Profile the echo under load."""
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    with tempfile.TemporaryDirectory(prefix="dgsf-p-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with platform("dgsf", folder, proxy=proxy) as ours:
            deploy(ours, function_of(DEMO, "demo.echo"))
            target = our_echo(ours).target
            check_answer(target)
            run_wrk(target, connections, 1, folder)
            with ThreadPoolExecutor(1) as pool:
                load = pool.submit(run_wrk, target, connections, seconds + 2, folder)
                profile = _record(ours.pid_of(part), seconds, folder, native)
                _show(console, profile, load.result(), top)
            before = processor_us(ours.service.pid)
            found = run_wrk(target, connections, seconds, folder)
            used = per_request(before, processor_us(ours.service.pid), found.requests)
            console.print(f"{found.per_second:,.0f} requests/s unwatched; processor us of one call: {used}")


def _record(pid: int, seconds: int, folder: Path, native: bool) -> Profile:
    spy = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if spy is None:
        raise UsageError("py-spy is not installed; it is in the 'dev' extra: pip install -e '.[dev]'")
    out = folder / "stacks.txt"
    command = [spy, "record", "-p", str(pid), "-d", str(seconds), "-r", str(_RATE), "-f", "raw", "-o", str(out)]
    command += ["--full-filenames", *(["--native"] if native else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
    if not out.exists():
        raise UsageError(f"py-spy could not look at process {pid}: {done.stderr.strip()[-500:]}")
    return read_profile(out.read_text("utf-8", "replace").splitlines())


def _show(console: Console, profile: Profile, load: WrkResult, top: int) -> None:
    console.print(f"{load.per_second:,.0f} requests/s while watched, {profile.samples:,} samples")
    layers = Table("layer", "own %", "on the stack %", title="Layers", title_justify="left")
    for name, count in profile.layer_own.most_common():
        layers.add_row(name, _share(count, profile), _share(profile.layer_total[name], profile))
    console.print(layers)
    functions = Table("function", "own %", "total %", title="Functions", title_justify="left")
    for name, count in profile.own.most_common(top):
        functions.add_row(_short(name), _share(count, profile), _share(profile.total[name], profile))
    console.print(functions)


def _share(count: int, profile: Profile) -> str:
    return f"{100 * count / max(1, profile.samples):.1f}"


def _short(frame: str) -> str:
    return frame.replace(f"{ROOT}/", "").replace(f"{Path(sys.prefix)}/lib/", "").replace("site-packages/", "")


if __name__ == "__main__":
    main()
