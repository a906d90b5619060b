"""Draws results as one picture: allocation, useless free room and waiting calls over time, delays, and bars.

matplotlib is in the extra `sim` and is imported only here.  It draws into memory or a file and opens no window.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgsf.core.policies import DEFAULT_PLACEMENT
from dgsf.errors import UsageError
from dgsf.sim.extra import lacking
from dgsf.sim.report import COST
from dgsf.sim.result import Result
from dgsf.sim.writable import check_writable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OVER_TIME = (
    ("allocated", "allocated, %", 100),
    ("fragmented", "free but of no use, %", 100),
    ("waiting", "calls waiting", 1),
)
_FORMATS = {".png": "Software", ".svg": "Creator", ".pdf": "Creator"}  # and where each says who made it
_DASHES = ("solid", (0, (5, 1.5)), (0, (1.5, 1)), (0, (6, 1.5, 1.5, 1.5)))
_BARS = (("gpu_hours", "GPU hours held"), ("cost", COST))


@dataclass(frozen=True, slots=True)
class _Style:
    """How a policy is drawn."""

    colour: Any
    dashes: Any = "solid"
    width: float = 1.5
    layer: float = 2.0

    def plot(self, axis: Any, result: Result, across: Sequence[float], up: Sequence[float]) -> None:
        look = {"color": self.colour, "linestyle": self.dashes, "linewidth": self.width, "zorder": self.layer}
        axis.plot(across, up, label=result.policy, **look)


_DEFAULT_STYLE = _Style("black", width=3.5, layer=1.5)  # broad, and below others that run along it


def draw_figure(results: Sequence[Result], title: str) -> Figure:
    """Six small plots that compare the policies."""
    figure_type = _figure_type()
    figure = figure_type(figsize=(15, 7.5), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(2, 3).ravel()
    styles = _styles(results)
    for axis, (field, label, scale) in zip(axes, _OVER_TIME, strict=False):
        _over_time(axis, results, styles, field, label, scale)
    _delays(axes[3], results, styles)
    for axis, (field, label) in zip(axes[4:], _BARS, strict=True):
        _bars(axis, results, styles, field, label)
    lines, names = axes[0].get_legend_handles_labels()
    for text in figure.legend(lines, names, loc="outside right upper", handlelength=3.5).get_texts():
        text.set_fontweight(_weight(text.get_text()))
    return figure


def check_drawing(plot: Path | None, html: Path | None) -> None:
    """Tells before a long run what would stop its drawing after it."""
    wanted = [path for path in (plot, html) if path is not None]
    if plot is not None and plot.suffix.lower() not in _FORMATS:
        raise UsageError(f"--plot {plot}: a picture's name ends with {', '.join(_FORMATS)}; choose one of these")
    if plot is not None and html is not None and plot.resolve() == html.resolve():
        raise UsageError(f"--plot and --html both name {plot}; the second would overwrite the first, give two names")
    for path in wanted:
        check_writable(path)
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


def _styles(results: Sequence[Result]) -> list[_Style]:
    """One for each; that of the default policy stands out."""
    turns = count()
    return [_DEFAULT_STYLE if result.policy == DEFAULT_PLACEMENT else _style(next(turns)) for result in results]


def _style(turn: int) -> _Style:
    """The strong colours first, then the pale ones; those that are alike in colour differ in their dashes."""
    from matplotlib import colormaps

    place = 2 * turn % 20 + turn // 10 % 2
    return _Style(colormaps["tab20"](place), _DASHES[turn % len(_DASHES)])


def _weight(policy: str) -> str:
    return "bold" if policy == DEFAULT_PLACEMENT else "normal"


def _over_time(
    axis: Any, results: Sequence[Result], styles: Sequence[_Style], field: str, label: str, scale: float
) -> None:
    hours = max((result.at_s[-1] for result in results if result.at_s), default=0.0) > 7200
    for result, style in zip(results, styles, strict=True):
        times = [at / 3600 if hours else at for at in result.at_s]
        style.plot(axis, result, times, [scale * value for value in getattr(result, field)])
    unit = "hours" if hours else "seconds"
    axis.set_xlabel(f"{unit}, seed {results[0].curves_seed} alone" if results[0].seeds > 1 else unit)
    axis.set_ylabel(label)
    axis.set_ylim(bottom=0)


def _delays(axis: Any, results: Sequence[Result], styles: Sequence[_Style]) -> None:
    for result, style in zip(results, styles, strict=True):
        style.plot(axis, result, range(len(result.wait_curve_s)), result.wait_curve_s)
    axis.set_xlabel("percentile of calls")
    axis.set_ylabel("queueing delay, s")
    if any(result.wait_curve_s[-1] > 0 for result in results):
        axis.set_yscale("symlog", linthresh=0.01)
    axis.set_ylim(bottom=0)


def _bars(axis: Any, results: Sequence[Result], styles: Sequence[_Style], field: str, label: str) -> None:
    places = range(len(results))
    axis.bar(places, [getattr(result, field) for result in results], color=[style.colour for style in styles])
    axis.set_ylabel(label)
    names = [result.policy for result in results]
    axis.set_xticks(places, names, rotation=40, ha="right", rotation_mode="anchor")
    for text in axis.get_xticklabels():
        text.set_fontweight(_weight(text.get_text()))
