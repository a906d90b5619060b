"""What a simulation found, in the words of the report: one frozen record per run, and the mean over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dgsf.sim.engine import Simulator

CURVE_POINTS = 101
_NO_MEANS = ("seeds", "calls", "devices", "curves_seed")


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one run, or the means of several."""

    policy: str
    seeds: int
    calls: int
    devices: int
    allocation: float  # part of the pool that is given away, mean over the time of arrivals and drain
    peak_allocation: float  # the most of it that was given away at once
    fragmentation: float  # part of the pool that is free but of no use to the mix of calls, mean over time
    wait_mean_s: float  # of the calls that started, as all delays
    wait_p50_s: float
    wait_p90_s: float
    wait_p99_s: float
    wait_max_s: float
    done_mean_s: float  # arrival to end
    cold_starts: float
    gpu_hours: float  # of devices that hold anything, to the end of the last call, as the cost
    after_gpu_hours: float  # for which they would stay warm after that
    busy_gpu_hours: float  # of calls, by their shares
    cost: float
    fairness: float  # Jain's index over the device time of tenants that called
    fairness_stretch: float  # and over their mean of (arrival to end) over run time
    slo_misses: float  # part of all calls
    retried: float
    lost: float  # calls under which too many devices failed
    lost_gpu_hours: float
    evicted: float
    ahead: float  # instances started ahead of a call
    refused: float
    why_refused: dict[str, float]  # reason: calls, most frequent first
    moves: float
    twice_gpu_hours: float  # held at both ends of a move
    wait_curve_s: tuple[float, ...]  # percentiles 0 to 100 of the queueing delay
    curves_seed: int  # of several seeds, the one whose run the rest shows
    at_s: tuple[float, ...]  # moments, evenly apart; what follows are means from each to the next
    allocated: tuple[float, ...]
    fragmented: tuple[float, ...]
    waiting: tuple[float, ...]


def summarise(run: Simulator) -> Result:
    """The figures of a run that has ended."""
    wait = np.frombuffer(run.wait_s, dtype=np.float64)
    wait = wait[~np.isnan(wait)]  # of the calls that started
    done = np.frombuffer(run.done_s, dtype=np.float64)
    served = done >= 0
    curve = np.percentile(wait, np.linspace(0, 100, CURVE_POINTS)) if len(wait) else np.zeros(CURVE_POINTS)
    span = run.now or 1.0
    machine, timeline = run.machine, run.timeline
    return Result(
        policy=run.policy,
        seeds=1,
        calls=run.workload.calls,
        devices=machine.devices,
        allocation=machine.booked_s / (1000 * machine.devices * span),
        peak_allocation=machine.most_booked / (1000 * machine.devices),
        fragmentation=_mean_over_time(timeline.at_s, timeline.fragmented),
        wait_mean_s=float(wait.mean()) if len(wait) else 0.0,
        wait_p50_s=float(curve[50]),
        wait_p90_s=float(curve[90]),
        wait_p99_s=float(curve[99]),
        wait_max_s=float(curve[100]),
        done_mean_s=float(done[served].mean()) if served.any() else 0.0,
        cold_starts=run.cold,
        gpu_hours=machine.held_s / 3600,
        after_gpu_hours=run.fleet.warm_after_s(run.now) / 3600,
        busy_gpu_hours=run.busy_s / 3600,
        cost=machine.cost,
        fairness=jain([run.tenant_s[tenant] for tenant in sorted(set(run.workload.tenant))]),
        fairness_stretch=jain(_stretch_by_tenant(run, done)),
        slo_misses=_slo_misses(run, done),
        retried=run.failures.retried,
        lost=run.failures.lost,
        lost_gpu_hours=run.failures.lost_s / 3600,
        evicted=run.fleet.evicted,
        ahead=run.keeping.ahead if run.keeping else 0,
        refused=run.refused,
        why_refused=_by_count(run.why_refused),
        moves=run.mover.moves if run.mover else 0,
        twice_gpu_hours=run.mover.twice_s / 3600 if run.mover else 0.0,
        wait_curve_s=tuple(curve.tolist()),
        curves_seed=run.rules.seed,
        at_s=tuple(timeline.at_s),
        allocated=tuple(timeline.allocated),
        fragmented=tuple(timeline.fragmented),
        waiting=tuple(timeline.waiting),
    )


def mean_of(results: Sequence[Result]) -> Result:
    """The mean of every figure over runs of one policy; curves over time are those of the first."""
    first = results[0]
    if len(results) == 1:
        return first
    means: dict[str, object] = {"seeds": len(results)}
    for item in fields(Result):
        values = [getattr(result, item.name) for result in results]
        if isinstance(values[0], float | int) and item.name not in _NO_MEANS:
            means[item.name] = sum(values) / len(values)
    reasons: dict[str, float] = {}
    for result in results:
        for reason, calls in result.why_refused.items():
            reasons[reason] = reasons.get(reason, 0.0) + calls / len(results)
    means["why_refused"] = _by_count(reasons)
    means["wait_curve_s"] = tuple(np.mean([result.wait_curve_s for result in results], axis=0).tolist())
    return replace(first, **means)  # type: ignore[arg-type]


def _by_count(reasons: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(reasons.items(), key=lambda each: (-each[1], each[0])))


def jain(values: Sequence[float]) -> float:
    """Jain's index: 1 if all have the same, 1/n if one has all."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def _mean_over_time(at_s: Sequence[float], values: Sequence[float]) -> float:
    """Each value is the mean until the next."""
    span = at_s[-1] - at_s[0]
    if span <= 0:
        return values[-1]
    mean = sum(value * (later - at) for value, (at, later) in zip(values, pairwise(at_s), strict=False)) / span
    return min(mean, max(values))  # beyond which only rounding leads


def _slo_misses(run: Simulator, done: NDArray[np.float64]) -> float:
    if not len(done):
        return 0.0
    rules = run.rules
    own = np.asarray(run.workload.run_s)
    limit = np.full(len(own), rules.slo_s) if rules.slo_s else own * rules.slo_factor  # as `Rules.limit_s`
    return float(((done < 0) | (done > limit)).mean())


def _stretch_by_tenant(run: Simulator, done: NDArray[np.float64]) -> list[float]:
    """Each tenant's mean of (arrival to end) over run time, of the calls that ran; shorter than 1 µs counts as that."""
    own = np.maximum(np.asarray(run.workload.run_s), 1e-6)
    good = done >= 0
    tenant = np.asarray(run.workload.tenant, dtype=np.intp)[good]
    count = len(run.workload.tenants)
    total = np.bincount(tenant, weights=done[good] / own[good], minlength=count)
    calls = np.bincount(tenant, minlength=count)
    stretches: list[float] = (total[calls > 0] / calls[calls > 0]).tolist()
    return stretches
