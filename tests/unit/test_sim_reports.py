"""Reports of simulations can be read: lines told apart, nothing covered, no difference marked that is not shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dgsf.core.policies import DEFAULT_PLACEMENT, PLACEMENT_POLICIES
from dgsf.sim.experiment import Experiment, run_experiment
from dgsf.sim.plots import draw_figure
from dgsf.sim.pools import parse_pool
from dgsf.sim.report import FIGURES, best, rows
from dgsf.sim.rules import Rules
from dgsf.sim.synthetic import Synthetic, draw


@pytest.fixture(scope="module")
def result():
    (found,) = run_experiment(Experiment(lambda _: draw(Synthetic(calls=40)), parse_pool("T4:4"), ["fgd"], Rules()))
    return found


@pytest.fixture
def figure(result):
    pytest.importorskip("matplotlib")
    made = draw_figure([replace(result, policy=name) for name in PLACEMENT_POLICIES], "all")
    made.draw_without_rendering()
    return made


def test_every_policy_has_a_line_of_its_own_and_the_default_stands_out(figure):
    for axis in figure.axes[:4]:
        lines = axis.get_lines()
        assert len({line.get_color() for line in lines}) == len(PLACEMENT_POLICIES) == len(lines)
        widths = {line.get_label(): line.get_linewidth() for line in lines}
        assert widths.pop(DEFAULT_PLACEMENT) >= 2 * max(widths.values())


def test_the_legend_covers_no_plot_and_no_label_another(figure):
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert [text.get_text() for text in legend.get_texts()] == list(PLACEMENT_POLICIES)
    assert not any(axis.get_window_extent().overlaps(box) for axis in figure.axes)
    for axis in figure.axes[4:]:
        labels = axis.get_xticklabels()
        assert {(text.get_horizontalalignment(), text.get_rotation_mode()) for text in labels} == {("right", "anchor")}


def test_what_looks_alike_is_alike_best(result):
    hours = next(figure for figure in FIGURES if figure.field == "gpu_hours")
    two = [replace(result, policy="a", gpu_hours=4.30001), replace(result, policy="b", gpu_hours=4.30002)]
    assert best(two, hours) == set()
    three = [*two, replace(result, policy="c", gpu_hours=4.4)]
    assert best(three, hours) == {"a", "b"}


def test_curves_of_one_seed_say_so_beside_means_of_several():
    pytest.importorskip("matplotlib")
    calls = Experiment(lambda seed: draw(Synthetic(calls=40, seed=seed)), parse_pool("T4:4"), ["fgd"], Rules(seed=7))
    for seeds, told in ((1, "seconds"), (3, "seconds, seed 7 alone")):
        found = run_experiment(replace(calls, seeds=seeds))
        assert found[0].curves_seed == 7
        axes = draw_figure(found, "some").axes
        assert [axis.get_xlabel() for axis in axes[:3]] == [told] * 3
        assert axes[3].get_xlabel() == "percentile of calls"


def test_the_cost_says_what_it_is_counted_in(result):
    (cost,) = [row["figure"] for row in rows([result]) if row["figure"].startswith("cost")]
    assert cost == "cost (hours held x price per hour)"
