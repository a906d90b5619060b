"""Several runs of the same program: which one is typical, and how far they lie apart. Pure but for its input.

What noting costs is taken off every run alike.  The typical run is the one of the middle slow-down, so one disturbed
run decides nothing; where even the middle half does not agree, the verdict is called noisy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from dgsf.core.perfmodel import NEAR_ABOVE, SHOWN_LATENCIES_US, Link, slowdowns
from dgsf.remoting.profiling import Run

NOISY_ABOVE = 1.25  # the middle half of the slow-downs may lie so far apart, the most over the least


@dataclass(frozen=True, slots=True)
class Spread:
    """How far the repeats lie apart."""

    repeats: int
    shortest_us: int
    longest_us: int
    slowdowns: list[tuple[float, float, float]]  # round trip in µs, the least and the most of all repeats
    noisy: bool  # the verdict is not to be trusted


def without_noting(runs: Sequence[Run], bare_us: Sequence[float]) -> list[Run]:
    """The runs with what they take when nothing is noted: each was followed by one that was only timed."""
    cost_us = max(0.0, median(run.total_us - bare for run, bare in zip(runs, bare_us, strict=True)))
    return [replace(run, bare_us=max(0.0, run.total_us - cost_us)) for run in runs]


def typical(runs: Sequence[Run], link: Link) -> tuple[Run, Spread]:
    """The run of the middle slow-down at the middle distance, and how far all lie apart."""
    found = sorted(((_slowdowns(run, link), run) for run in runs), key=lambda each: each[0][len(each[0]) // 2])
    by_trip = [sorted(column) for column in zip(*(ratios for ratios, _ in found), strict=True)]
    totals = [run.total_us for run in runs]
    spread = Spread(
        repeats=len(runs),
        shortest_us=round(min(totals)),
        longest_us=round(max(totals)),
        slowdowns=[(trip, all_[0], all_[-1]) for trip, all_ in zip(SHOWN_LATENCIES_US, by_trip, strict=True)],
        noisy=any(is_noisy(ratios) for ratios in by_trip),
    )
    return found[(len(found) - 1) // 2][1], spread


def is_noisy(ratios: Sequence[float]) -> bool:
    """Whether the middle half of these slow-downs, least first, is apart or would choose differently."""
    cut = len(ratios) // 4
    least, most = ratios[cut], ratios[len(ratios) - 1 - cut]
    return most > NOISY_ABOVE * least or (least <= NEAR_ABOVE) != (most <= NEAR_ABOVE)


def _slowdowns(run: Run, link: Link) -> list[float]:
    return slowdowns(run.recording(link), run.fitted(link))
