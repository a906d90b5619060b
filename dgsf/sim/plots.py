"""Draws results as one picture: allocation, useless free room and waiting calls over time, delays, and bars.

matplotlib is in the extra `sim` and is imported only here.  It draws into memory or a file and opens no window.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgsf.errors import UsageError
from dgsf.sim.extra import lacking
from dgsf.sim.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OVER_TIME = (
    ("allocated", "allocated, %", 100),
    ("fragmented", "free but of no use, %", 100),
    ("waiting", "calls waiting", 1),
)
_FORMATS = {".png": "Software", ".svg": "Creator", ".pdf": "Creator"}  # and where each says who made it
_BARS = (("gpu_hours", "GPU hours held"), ("cost", "cost"))


def draw_figure(results: Sequence[Result], title: str) -> Figure:
    """Six small plots that compare the policies."""
    figure_type = _figure_type()
    figure = figure_type(figsize=(13, 7.5), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(2, 3).ravel()
    for axis, (field, label, scale) in zip(axes, _OVER_TIME, strict=False):
        _over_time(axis, results, field, label, scale)
    _delays(axes[3], results)
    for axis, (field, label) in zip(axes[4:], _BARS, strict=True):
        axis.bar(
            [result.policy for result in results],
            [getattr(result, field) for result in results],
            color=_colours(results),
        )
        axis.set_ylabel(label)
        axis.tick_params(axis="x", rotation=30)
    axes[0].legend(fontsize="small")
    return figure


def check_drawing(plot: Path | None, html: Path | None) -> None:
    """Tells before a long run what would stop its drawing after it."""
    wanted = [path for path in (plot, html) if path is not None]
    if plot is not None and plot.suffix.lower() not in _FORMATS:
        raise UsageError(f"--plot {plot}: a picture's name ends with {', '.join(_FORMATS)}; choose one of these")
    for path in wanted:
        if path.is_dir() or not path.absolute().parent.is_dir():
            raise UsageError(f"{path}: cannot be written: it is a folder, or its folder does not exist")
    if wanted:
        _figure_type()


def save_plot(path: Path, results: Sequence[Result], title: str) -> None:
    """A file of the format that its name ends with."""
    picture = draw(results, title, path.suffix.lower())
    try:
        path.write_bytes(picture)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error


def draw(results: Sequence[Result], title: str, suffix: str = ".png") -> bytes:
    """The picture as bytes of this format."""
    buffer = io.BytesIO()
    metadata = {_FORMATS[suffix]: "dgsf sim"}
    draw_figure(results, title).savefig(buffer, format=suffix[1:], dpi=110, metadata=metadata)
    return buffer.getvalue()


def _figure_type() -> type[Figure]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise lacking("a plot or an HTML report", "matplotlib") from error
    return Figure


def _colours(results: Sequence[Result]) -> list[str]:
    return [f"C{index % 10}" for index in range(len(results))]


def _over_time(axis: Any, results: Sequence[Result], field: str, label: str, scale: float) -> None:
    hours = max((result.at_s[-1] for result in results if result.at_s), default=0.0) > 7200
    for result, colour in zip(results, _colours(results), strict=True):
        times = [at / 3600 if hours else at for at in result.at_s]
        axis.plot(times, [scale * value for value in getattr(result, field)], label=result.policy, color=colour)
    axis.set_xlabel("hours" if hours else "seconds")
    axis.set_ylabel(label)
    axis.set_ylim(bottom=0)


def _delays(axis: Any, results: Sequence[Result]) -> None:
    for result, colour in zip(results, _colours(results), strict=True):
        axis.plot(range(len(result.wait_curve_s)), result.wait_curve_s, label=result.policy, color=colour)
    axis.set_xlabel("percentile of calls")
    axis.set_ylabel("queueing delay, s")
    if any(result.wait_curve_s[-1] > 0 for result in results):
        axis.set_yscale("symlog", linthresh=0.01)
