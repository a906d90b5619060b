"""Several runs of the same program: which one is typical, and how far they lie apart. Pure but for its input.

What noting costs is taken off every run alike.  The typical run is the one of the middle slow-down, so one disturbed
run decides nothing; where even the middle half does not agree, the verdict is called noisy, and why is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from dgsf.core.perfmodel import NEAR_ABOVE, SHOWN_LATENCIES_US, Link, on_faster_device, shown, slowdowns
from dgsf.remoting.profiling import Run

NOISY_SHARE = 0.25  # of the median: the middle half of the repeats may be so wide, in time and in slow-down


@dataclass(frozen=True, slots=True)
class Spread:
    """How far the repeats lie apart."""

    repeats: int
    shortest_us: int
    longest_us: int
    middle_us: tuple[int, int]  # the middle half of the times
    median_us: int
    slowdowns: list[tuple[float, float, float]]  # round trip in µs, the least and the most of all repeats
    noisy: bool  # the verdict is not to be trusted
    reason: str  # why not; empty if it is


def without_noting(runs: Sequence[Run], bare_us: Sequence[float]) -> list[Run]:
    """The runs with what they take when nothing is noted: each was followed by one that was only timed."""
    cost_us = max(0.0, median(run.total_us - bare for run, bare in zip(runs, bare_us, strict=True)))
    return [replace(run, bare_us=max(0.0, run.total_us - cost_us)) for run in runs]


def typical(runs: Sequence[Run], link: Link, faster: float = 1.0) -> tuple[Run, Spread]:
    """The run of the middle slow-down at the middle distance, on a device so much faster, and how far all lie apart."""
    found = sorted(((_slowdowns(run, link, faster), run) for run in runs), key=lambda each: each[0][len(each[0]) // 2])
    by_trip = [sorted(column) for column in zip(*(ratios for ratios, _ in found), strict=True)]
    totals = sorted(run.total_us for run in runs)
    least, most = middle_half(totals)
    reason = why_noisy(totals, by_trip)
    spread = Spread(
        repeats=len(runs),
        shortest_us=round(totals[0]),
        longest_us=round(totals[-1]),
        middle_us=(round(least), round(most)),
        median_us=round(median(totals)),
        slowdowns=[(trip, all_[0], all_[-1]) for trip, all_ in zip(SHOWN_LATENCIES_US, by_trip, strict=True)],
        noisy=bool(reason),
        reason=reason,
    )
    return found[(len(found) - 1) // 2][1], spread


def middle_half(values: Sequence[float]) -> tuple[float, float]:
    """Its two ends, of values that come least first; of fewer than four, the least and the most."""
    cut = len(values) // 4
    return values[cut], values[len(values) - 1 - cut]


def why_noisy(totals: Sequence[float], by_trip: Sequence[Sequence[float]]) -> str:
    """What is too far apart, of the times and of the slow-downs at each distance, all least first; empty: nothing."""
    if width(totals) > NOISY_SHARE:
        return f"the middle half of the times is {_too_wide(totals)}"
    for trip_us, ratios in zip(SHOWN_LATENCIES_US, by_trip, strict=True):
        where = f"the middle half of the slow-downs at a round trip of {trip_us:g} µs"
        if width(ratios) > NOISY_SHARE:
            return f"{where} is {_too_wide(ratios)}"
        least, most = middle_half(ratios)
        if least <= NEAR_ABOVE < most:
            return f"{where} is {shown(least)} to {shown(most)}, on both sides of the limit of {NEAR_ABOVE:.2f}"
    return ""


def width(values: Sequence[float]) -> float:
    """How wide the middle half of these values, least first, is: a share of their median."""
    least, most = middle_half(values)
    return (most - least) / median(values) if most > least else 0.0


def _too_wide(values: Sequence[float]) -> str:
    return f"{width(values):.0%} of the median wide, over {NOISY_SHARE:.0%}"


def _slowdowns(run: Run, link: Link, faster: float) -> list[float]:
    return slowdowns(on_faster_device(run.recording(link), faster), run.fitted(link))
