"""Results as text: one row per figure, one column per policy, the best of each row known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dgsf.sim.result import Result

COST = "cost (hours held x price per hour)"
Show = Callable[[float], str]


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def _seconds(value: float) -> str:
    if value == 0:
        return "0 s"
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:,.4g} s" if value < 1000 else f"{value:,.0f} s"


def _plain(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.4g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report."""

    field: str
    text: str
    show: Show
    better: int  # 1: more is better, -1: less, 0: neither


FIGURES = (
    Figure("allocation", "allocated, mean", _percent, 0),
    Figure("peak_allocation", "allocated, peak", _percent, 0),
    Figure("fragmentation", "free but of no use", _percent, -1),
    Figure("wait_mean_s", "queueing delay, mean", _seconds, -1),
    Figure("wait_p50_s", "queueing delay, p50", _seconds, -1),
    Figure("wait_p90_s", "queueing delay, p90", _seconds, -1),
    Figure("wait_p99_s", "queueing delay, p99", _seconds, -1),
    Figure("wait_max_s", "queueing delay, longest", _seconds, -1),
    Figure("done_mean_s", "arrival to end, mean", _seconds, -1),
    Figure("cold_starts", "cold starts", _plain, -1),
    Figure("gpu_hours", "GPU hours held", _plain, -1),
    Figure("after_gpu_hours", "GPU hours warm after the last call, not in these or the cost", _plain, -1),
    Figure("busy_gpu_hours", "GPU hours of calls", _plain, 0),
    Figure("cost", COST, _plain, -1),
    Figure("fairness", "fairness of device time (Jain)", lambda value: f"{value:.3f}", 1),
    Figure("fairness_stretch", "fairness of stretch (Jain)", lambda value: f"{value:.3f}", 1),
    Figure("slo_misses", "SLO missed", _percent, -1),
    Figure("retried", "calls run again after failures", _plain, -1),
    Figure("lost", "calls lost to failures (tried 10 times)", _plain, -1),
    Figure("lost_gpu_hours", "GPU hours lost to failures", _plain, -1),
    Figure("evicted", "warm instances given up", _plain, -1),
    Figure("ahead", "instances started ahead", _plain, 0),
    Figure("refused", "calls that found no place", _plain, -1),
    Figure("moves", "moves of running calls", _plain, -1),
    Figure("twice_gpu_hours", "GPU hours held twice by moves", _plain, -1),
)

_OPTIONAL = {
    "after_gpu_hours", "retried", "lost", "lost_gpu_hours", "evicted", "ahead", "refused", "moves", "twice_gpu_hours",
}  # fmt: skip


def rows(results: Sequence[Result]) -> list[dict[str, str]]:
    """The table: figure names down, policies across; rows of some figures that are 0 everywhere are left out."""
    shown = [item for item in FIGURES if item.field not in _OPTIONAL or any(getattr(r, item.field) for r in results)]
    return [
        {"figure": item.text, **{result.policy: item.show(getattr(result, item.field)) for result in results}}
        for item in shown
    ]


def best(results: Sequence[Result], figure: Figure) -> set[str]:
    """The policies that are best in a figure, as far as can be seen; none where nothing is better or all look alike."""
    values = {result.policy: getattr(result, figure.field) for result in results}
    shown = {name: figure.show(value) for name, value in values.items()}
    if not figure.better or len(set(shown.values())) < 2:
        return set()
    top = max(values, key=lambda name: figure.better * values[name])
    return {name for name, text in shown.items() if text == shown[top]}
