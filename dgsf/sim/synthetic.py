"""Draws workloads: calls at a steady mean rate (Poisson), or in bursts of quiet and busy times.

Functions are called by a Zipf law, run times are log-normal around each function's own mean, and every function belongs
to one tenant.  The first call comes at 0, as in traces.  The same numbers and seed draw the same workload, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dgsf.errors import UsageError
from dgsf.sim.workload import FunctionSpec, Workload

Floats = NDArray[np.float64]
LEAST, MOST = 1e-6, 1e9
MOST_BURSTS = 10_000_000
_SPREAD = 0.5  # sigma of the log-normal run times


@dataclass(frozen=True, slots=True)
class Synthetic:
    """What to draw."""

    calls: int = 10_000
    rate_per_s: float = 10.0
    functions: int = 20
    tenants: int = 4
    mean_run_s: float = 2.0
    shares: tuple[int, ...] = (250,)  # thousandths of a device; functions take them in turn
    duty: float = 0.0  # up to the share, calls do not slow each other down
    weights_mib: float = 500.0
    work_mib: float = 500.0  # device memory beside them: the process's own, and what it computes in
    zipf: float = 1.0
    burst: float = 1.0  # the rate in a burst over the mean rate; 1: no bursts
    burst_s: float = 30.0  # mean length of a burst
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.calls, self.functions, self.tenants) < 1:
            raise UsageError("a workload needs at least one call, one function and one tenant")
        if not all(LEAST <= value <= MOST for value in (self.rate_per_s, self.mean_run_s, self.burst_s)):
            raise UsageError(f"rate, run time and burst length must be from {LEAST:g} to {MOST:g}")
        if not 1 <= self.burst <= MOST:
            raise UsageError(f"--burst {self.burst:g}: a burst is at least 1 x the mean rate, and at most {MOST:g} x")
        if self.burst > 1 and self.calls / (self.rate_per_s * self.burst * self.burst_s) > MOST_BURSTS:
            most = f"more than {MOST_BURSTS:,} bursts"
            raise UsageError(f"--burst-s {self.burst_s:g}: so many calls at this rate take {most}; make them longer")
        if not self.shares or not all(1 <= share <= 1000 for share in self.shares):
            raise UsageError("--share: shares are whole numbers from 1 to 1000, in thousandths of a device")
        if not 0 <= self.duty <= 1:
            raise UsageError(f"--duty {self.duty:g}: the device's part of a run is from 0 to 1")


def draw(wanted: Synthetic) -> Workload:
    """The workload of these numbers."""
    rng = np.random.default_rng(wanted.seed)
    arrivals = _bursts(wanted, rng) if wanted.burst > 1 else _poisson(wanted, rng)
    popularity = 1 / np.arange(1, wanted.functions + 1) ** wanted.zipf
    function = rng.choice(wanted.functions, size=wanted.calls, p=popularity / popularity.sum())
    means = wanted.mean_run_s * rng.lognormal(-(_SPREAD**2) / 2, _SPREAD, wanted.functions)
    run = means[function] * rng.lognormal(-(_SPREAD**2) / 2, _SPREAD, wanted.calls)
    owner = np.arange(wanted.functions) % wanted.tenants
    return Workload(
        "bursts" if wanted.burst > 1 else "poisson",
        arrival_s=(arrivals - arrivals[0]).tolist(),  # nothing is to be seen before the first
        function=function.tolist(),
        tenant=owner[function].tolist(),
        run_s=run.tolist(),
        functions=[_function(wanted, index) for index in range(wanted.functions)],
        tenants=[f"tenant-{index}" for index in range(wanted.tenants)],
    )


def _function(wanted: Synthetic, index: int) -> FunctionSpec:
    return FunctionSpec(
        f"fn-{index}",
        share=wanted.shares[index % len(wanted.shares)],
        duty=wanted.duty,
        weights_mib=wanted.weights_mib,
        work_mib=wanted.work_mib,
    )


def _poisson(wanted: Synthetic, rng: np.random.Generator) -> Floats:
    arrivals: Floats = np.cumsum(rng.exponential(1 / wanted.rate_per_s, wanted.calls))
    return arrivals


def _bursts(wanted: Synthetic, rng: np.random.Generator) -> Floats:
    """Poisson arrivals in bursts only, which are apart so far that the mean rate is kept."""
    busy = np.cumsum(rng.exponential(1 / (wanted.rate_per_s * wanted.burst), wanted.calls))  # time within bursts
    count = int(busy[-1] / wanted.burst_s * 2) + 16
    lengths = rng.exponential(wanted.burst_s, count)
    while lengths.sum() < busy[-1]:
        lengths = np.concatenate([lengths, rng.exponential(wanted.burst_s, count)])
    gaps = rng.exponential(wanted.burst_s * (wanted.burst - 1), len(lengths))
    burst = np.searchsorted(np.cumsum(lengths), busy)
    arrivals: Floats = busy + np.cumsum(gaps)[burst]
    return arrivals
