"""The JSON echo: ours with its charge committed before each reply, beside servers that record nothing.

Two passes, with the proxy inside the gateway and apart, each in alternating rounds with all peers, at 64
connections and at 1.  After each pass the ledger must account for every answer that was counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from statistics import median
from typing import Any

from loadtests.checker import check_books, durability
from loadtests.contenders import Contender, aiohttp_echo, check_answer, mosec_echo, our_echo, rayserve_echo
from loadtests.cpu import per_request, processor_us
from loadtests.ours import DEMO, Ours, deploy, function_of, platform
from loadtests.plan import Plan, rotated
from loadtests.report import Row, Section, at_least, at_most, compare
from loadtests.wrk import WrkResult, run_wrk

MANY, ONE = 64, 1
Results = dict[tuple[str, int], list[WrkResult]]


def measure(plan: Plan) -> Section:
    section = Section("JSON echo, charge committed before each reply")
    with ExitStack() as stack:
        plan.say("starting the peers")
        peers = [stack.enter_context(start(plan.folder)) for start in (aiohttp_echo, mosec_echo, rayserve_echo)]
        for peer in peers:
            assert peer.service is not None
            peer.service.freeze()
        for place, least, most in (("inside", 0.5, 6.0), ("apart", 0.4, 7.0)):
            section.rows += _pass(plan, section, place, peers, least, most)
    return section


def _pass(plan: Plan, section: Section, place: str, peers: Sequence[Contender], least: float, most: float) -> list[Row]:
    plan.say(f"starting the platform, proxy {place}")
    with platform(f"dgsf-{place}", plan.folder, proxy=place) as ours:
        deploy(ours, function_of(DEMO, "demo.echo"))
        contenders = [our_echo(ours), *peers]
        results, busy = _rounds(plan, contenders)
        section.facts.setdefault("settings of our database", durability(ours.database_url))
        section.facts[f"processor us of one call, proxy {place}"] = _processor_time(plan, ours, contenders[0])
        section.facts[f"ledger, proxy {place}"] = _books(ours, results)
    section.facts[f"failed requests, proxy {place}"] = {c.name: _failures(results, c.name) for c in contenders}
    section.facts[f"busy before rounds, proxy {place}"] = f"median {median(busy):.1%}, most {max(busy):.1%}"
    section.raw[place] = {f"{name} at {count}": [asdict(r) for r in found] for (name, count), found in results.items()}
    return _rows(results, place, least, most)


def _rounds(plan: Plan, contenders: Sequence[Contender]) -> tuple[Results, list[float]]:
    results: Results = {(contender.name, count): [] for contender in contenders for count in (MANY, ONE)}
    busy: list[float] = []
    for contender in contenders:
        _warm(plan, contender)
    for number in range(plan.rounds):
        for count in (MANY, ONE):
            for contender in rotated(contenders, number):
                with contender.awake() as share:
                    found = run_wrk(contender.target, count, plan.seconds, plan.folder)
                busy.append(share)
                results[contender.name, count].append(found)
                plan.say(f"round {number + 1}/{plan.rounds}  {contender.name:12} at {count:2}  {_told(found)}")
    return results, busy


def _processor_time(plan: Plan, ours: Ours, contender: Contender) -> dict[str, float]:
    """Where a call's microseconds go; a run of its own, after those that count."""
    before = processor_us(ours.service.pid)
    found = run_wrk(contender.target, MANY, plan.seconds, plan.folder)
    return per_request(before, processor_us(ours.service.pid), found.requests)


def _warm(plan: Plan, contender: Contender) -> None:
    """Connections, caches, workers: a benchmark of the steady state begins after them."""
    with contender.awake():
        check_answer(contender.target)
        run_wrk(contender.target, MANY, 1, plan.folder)


def _told(found: WrkResult) -> str:
    failed = f"  {found.failures} FAILED" if found.failures else ""
    return f"{found.per_second:8,.0f}/s  p50 {found.p50_us:8,.0f} us  p99 {found.p99_us:8,.0f} us{failed}"


def _rows(results: Results, place: str, least: float, most: float) -> list[Row]:
    rows = []
    name = f"dgsf-{place}"
    many = [found.per_second for found in results[name, MANY]]
    one = [found.p50_us for found in results[name, ONE]]
    for peer, goal in (("aiohttp", least), ("mosec", 1.2), ("rayserve", 30.0)):
        theirs = [found.per_second for found in results[peer, MANY]]
        rows.append(compare(f"requests/s at {MANY}, proxy {place} ÷ {peer}", many, theirs, at_least(goal), "/s"))
    for peer, goal in (("aiohttp", most), ("rayserve", 1 / 8)):
        theirs = [found.p50_us for found in results[peer, ONE]]
        rows.append(compare(f"p50 at {ONE}, proxy {place} ÷ {peer}", one, theirs, at_most(goal), "us"))
    return rows


def _failures(results: Results, name: str) -> int:
    return sum(found.failures for (who, _), runs in results.items() if who == name for found in runs)


def _books(ours: Ours, results: Results) -> dict[str, Any]:
    runs = [found for (name, _), all_runs in results.items() if name == ours.name for found in all_runs]
    return check_books(ours.database_url, sum(found.requests - found.bad_status for found in runs))
