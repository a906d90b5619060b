"""Ten thousand functions on a running platform: deployed over HTTP, then called by name, any of them."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from statistics import median

import aiohttp

from dgsf.errors import DgsfError
from dgsf.sdk.manifest import encode_deploy, manifest_of
from loadtests.ours import BENCH, Ours, function_of, platform
from loadtests.plan import Plan
from loadtests.report import Section, at_least, single

_AT_ONCE = 8
_SAMPLE = 200
_TIMEOUT = aiohttp.ClientTimeout(total=120)


def measure(plan: Plan) -> Section:
    section = Section("Many functions")
    with platform("dgsf-many", plan.folder) as ours:
        asyncio.run(_measure(plan, ours, section))
    return section


async def _measure(plan: Plan, ours: Ours, section: Section) -> None:
    names = [f"many.f{number:06}" for number in range(plan.functions)]
    rng = random.Random(11)
    chosen = [names[0], names[-1], *rng.sample(names, min(_SAMPLE, len(names)))]
    async with aiohttp.ClientSession(ours.url, headers=ours.headers, timeout=_TIMEOUT) as session:
        began = time.monotonic()
        await _each(names, _deployer(session), plan.say)
        deploying = time.monotonic() - began
        plan.say(f"{len(names):,} functions deployed in {deploying:.1f} s; calling {len(chosen)} of them")
        calls = [await _call(session, name, number) for number, name in enumerate(chosen)]
    took = [call.seconds for call in calls]
    wrong = [call.trouble for call in calls if call.trouble]
    worked = len(calls) - len(wrong)
    section.rows = [single(f"calls that worked, of {len(calls)}", worked, at_least(len(calls)))]
    section.facts["what went wrong"] = wrong[:3] or "nothing"
    section.facts["deployed"] = f"{len(names):,} in {deploying:.1f} s ({len(names) / deploying:,.0f}/s)"
    section.facts["each called cold"] = f"p50 {median(took) * 1e3:.1f} ms, most {max(took) * 1e3:.1f} ms"
    section.raw = {"deploy_seconds": deploying, "call_ms": [value * 1e3 for value in took]}


async def _each(names: Iterable[str], do: Callable[[str], Awaitable[None]], say: Callable[[str], None]) -> None:
    """All of them, some at once."""
    waiting = iter(names)
    done = 0

    async def work() -> None:
        nonlocal done
        for name in waiting:
            await do(name)
            done += 1
            if done % 1000 == 0:
                say(f"{done:,} deployed")

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(work())


def _deployer(session: aiohttp.ClientSession) -> Callable[[str], Awaitable[None]]:
    function = function_of(BENCH, "bench.echo")
    bundle = function.bundle()
    body = encode_deploy(manifest_of(function.raw, function.options, bundle.digest), bundle.code)

    async def deploy(name: str) -> None:
        async with session.put(f"/v1/functions/{name}", data=body) as answer:
            if answer.status != 201:
                raise DgsfError(f"deploying {name} failed: {answer.status} {(await answer.text())[:300]}")

    return deploy


@dataclass(frozen=True, slots=True)
class _Called:
    seconds: float
    trouble: str


async def _call(session: aiohttp.ClientSession, name: str, number: int) -> _Called:
    """Every one is its function's first call, so it waits for a worker."""
    began = time.perf_counter()
    async with session.post(f"/v1/functions/{name}/invoke", json={"x": number}) as answer:
        text = await answer.text()
    right = answer.status == 200 and json.loads(text) == {"x": number}
    return _Called(time.perf_counter() - began, "" if right else f"{name}: {answer.status} {text[:300]}")
