"""Large bodies: raw bytes in and the same bytes out, beside plain aiohttp, and what the gateway's memory does."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from dgsf.config import MIB
from loadtests import machine
from loadtests.checker import check_books
from loadtests.contenders import aiohttp_server, check_answer
from loadtests.machine import MemoryWatch, watch_memory
from loadtests.ours import DEMO, deploy, function_of, platform
from loadtests.plan import Plan, rotated
from loadtests.report import Section, at_least, at_most, compare, single
from loadtests.wrk import Target, WrkResult, run_wrk

CONNECTIONS = 8
SIZES = (1, 16)  # MB
_PATTERN = bytes(range(33, 97))  # 64 bytes that a Lua string holds plainly
_MOST_GROWTH = 32.0
_RAW = {"Content-Type": "application/octet-stream", "Accept": "application/octet-stream"}


def measure(plan: Plan) -> Section:
    section = Section("Large bodies, in and out")
    answered = 0
    with ExitStack() as stack:
        ours = stack.enter_context(platform("dgsf-bulk", plan.folder))
        deploy(ours, function_of(DEMO, "demo.blob"))
        url, _ = stack.enter_context(aiohttp_server(plan.folder))
        gateway = ours.pid_of("gateway")
        for size in SIZES:
            repeat = size * MIB // len(_PATTERN)
            mine = Target("dgsf-bulk", ours.invoke_url("demo.blob"), {**_RAW, **ours.headers}, _PATTERN, repeat)
            peer = Target("aiohttp-bulk", f"{url}/blob", _RAW, _PATTERN, repeat)
            results, watch = _rounds(plan, mine, peer, gateway, size)
            answered += sum(found.requests - found.bad_status for found in results[mine.name])
            _add(section, size, results[mine.name], results[peer.name], watch)
        section.facts["ledger"] = check_books(ours.database_url, answered)
    return section


def _rounds(
    plan: Plan, mine: Target, peer: Target, gateway: int, size: int
) -> tuple[dict[str, list[WrkResult]], MemoryWatch]:
    results: dict[str, list[WrkResult]] = {mine.name: [], peer.name: []}
    for target in (mine, peer):
        check_answer(target)
        run_wrk(target, CONNECTIONS, 1, plan.folder)
    with watch_memory(gateway) as watch:
        for number in range(plan.rounds):
            for target in rotated((mine, peer), number):
                machine.settle()
                found = run_wrk(target, CONNECTIONS, plan.seconds, plan.folder)
                results[target.name].append(found)
                failed = f"  {found.failures} FAILED" if found.failures else ""
                rate = _mb_per_second(found, size)
                plan.say(f"round {number + 1}/{plan.rounds}  {target.name:12} {size:2} MB  {rate:7,.0f} MB/s{failed}")
    return results, watch


def _mb_per_second(found: WrkResult, size: int) -> float:
    """One way: a body of 1 MB that goes in and comes out counts as 1 MB."""
    return found.per_second * size


def _add(section: Section, size: int, ours: list[WrkResult], peer: list[WrkResult], watch: MemoryWatch) -> None:
    mine = [_mb_per_second(found, size) for found in ours]
    theirs = [_mb_per_second(found, size) for found in peer]
    section.rows.append(compare(f"{size} MB bodies, MB/s ÷ aiohttp", mine, theirs, at_least(0.5), "MB/s"))
    growth = watch.growth / MIB
    section.rows.append(single(f"gateway memory growth, {size} MB bodies", growth, at_most(_MOST_GROWTH), "MB"))
    section.facts[f"gateway memory, {size} MB bodies"] = _memory(watch)
    section.facts[f"failed requests, {size} MB"] = sum(found.failures for found in ours)
    section.raw[f"{size} MB"] = {"ours": [asdict(r) for r in ours], "aiohttp": [asdict(r) for r in peer]}


def _memory(watch: MemoryWatch) -> dict[str, Any]:
    figures = {"before": watch.before, "peak": watch.peak, "after": watch.after}
    return {**{name: f"{value / MIB:.0f} MB" for name, value in figures.items()}, "samples": watch.samples}
