"""The placement experiments on tiny data of their own."""

from __future__ import annotations

import json
from itertools import product
from random import Random

import pytest

from dgsf.core.placement import Policy, make_policy
from dgsf.core.placement.classic import BestFit
from dgsf.core.placement.fgd import Fgd
from dgsf.core.placement.gavel import Gavel
from dgsf.core.placement.holdings import Slicing
from dgsf.core.placement.ours import Dgsf
from dgsf.core.placement.plan import plan, time_in_use
from dgsf.core.placement.slices import Conspirator
from dgsf.errors import TraceError, UsageError
from dgsf.sim import gavel, openb, optimum, tenants, windows
from dgsf.sim.tenants import Task

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,65536,4,A\nn1,32000,65536,4,A\nn2,64000,65536,2,B\n"
TASKS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(
    f"t{number},{cpu},1024,{gpus},{milli},{spec}\n"
    for number, (cpu, gpus, milli, spec) in enumerate(
        [(4000, 1, 500, ""), (4000, 1, 300, "A"), (8000, 1, 1000, ""), (2000, 0, 0, ""), (8000, 2, 1000, "A|B")] * 4
    )
)
TENANTS = "name,tenant,arrival_s,duration_s,gpu_percent\na,x,0,100,50\nb,y,10,20,60\nc,x,20,100,40\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / openb.NODES_FILE).write_text(NODES)
    (tmp_path / openb.TASKS_FILE).write_text(TASKS)
    (tmp_path / tenants.TASKS_FILE).write_text(TENANTS)
    return tmp_path


def test_openb_fills_the_cluster_the_same_way_for_the_same_seed(folder):
    nodes, tasks = openb.read_nodes(folder), openb.read_tasks(folder)
    runs = [openb.fill(nodes, tasks, Fgd, 5) for _ in range(2)]
    assert (runs[0].unallocated, runs[0].placed) == (runs[1].unallocated, runs[1].placed)
    assert 0 <= runs[0].unallocated < 60
    assert runs[0].placed + runs[0].refused >= len(tasks)


def test_openb_names_the_wrong_cell(folder):
    (folder / openb.TASKS_FILE).write_text(TASKS.replace("500", "1500", 1))
    with pytest.raises(TraceError, match=r"openb_pod_list_default\.csv: line 2, column 5 'gpu_milli': '1500'"):
        openb.read_tasks(folder)


def test_gpu_hours_are_the_time_that_gpus_hold_tasks(folder):
    tasks = tenants.read_tasks(folder / tenants.TASKS_FILE)
    free = tenants.run(tasks, Policy())
    assert free.gpu_hours * 3600 == pytest.approx(120 + 20)
    alone = tenants.run(tasks, Conspirator((1000,)))
    assert alone.most_gpus == 2
    assert tenants.bound_hours(tasks) * 3600 == pytest.approx(10 + 20 * 2 + 90)
    assert tenants.work_hours(tasks) * 3600 == pytest.approx(50 + 12 + 40)


def test_a_plan_that_is_brought_is_checked_and_counted(folder):
    tasks = tenants.read_tasks(folder / tenants.TASKS_FILE)
    assert tenants.plan_hours(tasks, [0, 1, 0]) * 3600 == pytest.approx(120 + 20)
    assert tenants.plan_hours(tasks, [0, 1, 2]) * 3600 == pytest.approx(100 + 20 + 100)
    with pytest.raises(TraceError, match="uses 110 % of GPU 7 at 10 s"):
        tenants.plan_hours(tasks, [7, 7, 0])
    with pytest.raises(TraceError, match="for 2 tasks, there are 3"):
        tenants.plan_hours(tasks, [0, 1])


def test_a_task_may_take_the_share_of_one_that_ends_when_it_arrives():
    tasks = [Task("x", 0.0, 10.0, 75), Task("x", 10.0, 5.0, 50)]
    assert tenants.plan_hours(tasks, [0, 0]) * 3600 == pytest.approx(15)


def test_tasks_out_of_order_are_refused_by_the_line_that_they_are_in(folder):
    path = folder / tenants.TASKS_FILE
    path.write_text(TENANTS + "\n\nd,x,5,10,10\n")
    with pytest.raises(TraceError, match="line 7, column 3 'arrival_s': is earlier than in the row before"):
        tenants.read_tasks(path)


def test_too_few_gpus_are_named(folder):
    tasks = tenants.read_tasks(folder / tenants.TASKS_FILE)
    with pytest.raises(TraceError, match="1 GPUs are too few"):
        tenants.run(tasks, Dgsf(), gpus=1)


def _random_tasks(count):
    random = Random(2)
    tasks, now = [], 0.0
    for _ in range(count):
        now += random.randrange(1, 40)
        duration = float(random.randrange(20, 300))
        tasks.append(Task(f"t{random.randrange(2)}", now, duration, random.choice([5, 10, 14, 25, 40, 75])))
    return tasks


@pytest.mark.parametrize("name", ["dgsf", "dgsf_slices", "conspirator", "best_fit"])
def test_hours_are_never_below_the_bound_and_repeat_bit_for_bit(name):
    tasks = _random_tasks(150)
    first, again = (tenants.run(tasks, make_policy(name)) for _ in range(2))
    assert first.gpu_hours == again.gpu_hours >= tenants.bound_hours(tasks)


@pytest.mark.parametrize("fractions", [(), (14, 28, 42, 57, 100)])
def test_the_optimum_is_between_the_bound_and_our_plan(fractions):
    pytest.importorskip("ortools")
    tasks = _random_tasks(9)
    one = windows.compare(tasks, fractions, 60.0)
    assert one.optimum.proved
    assert tenants.bound_hours(tasks) - 1e-9 <= one.optimum.gpu_hours
    assert one.planned >= 1 - 1e-9 and one.one_by_one >= 1 - 1e-9


KINDS = (optimum.GpuKind("slow", 2, 1.0, 1.0), optimum.GpuKind("fast", 2, 2.6, 2.0))


def _least_cost(tasks, kinds):
    """By trying all assignments."""
    gpus = [kind for kind in kinds for _ in range(kind.count)]
    found = [_cost(tasks, gpus, choice) for choice in product(range(len(gpus)), repeat=len(tasks))]
    return min(cost for cost in found if cost is not None)


def _cost(tasks, gpus, choice):
    total = 0.0
    for gpu, kind in enumerate(gpus):
        mine = [(task.arrival_s, task.arrival_s + task.duration_s / kind.speed, task.percent)
                for task, place in zip(tasks, choice, strict=True) if place == gpu]  # fmt: skip
        if any(sum(p for start, end, p in mine if start <= at < end) > 100 for at, _, _ in mine):
            return None
        total += kind.price_per_h * time_in_use(mine, [0] * len(mine))
    return total / 3600


@pytest.mark.parametrize("seed", range(6))
def test_the_least_cost_on_several_kinds_is_what_trying_all_assignments_finds(seed):
    pytest.importorskip("ortools")
    random = Random(seed)
    tasks = sorted(
        (Task("t", float(random.randrange(60)), float(random.randrange(20, 300)), random.choice([20, 40, 60, 75]))
         for _ in range(5)),
        key=lambda task: task.arrival_s,
    )  # fmt: skip
    found = optimum.best_cost(tasks, KINDS, 60.0)
    assert found.proved and found.cost == pytest.approx(_least_cost(tasks, KINDS))
    slow = optimum.best_cost(tasks, [optimum.GpuKind("slow", 5, 1.0)], 60.0)
    assert slow.cost == pytest.approx(slow.gpu_hours) == pytest.approx(optimum.best_hours(tasks, 60.0, 5).gpu_hours)


def test_a_faster_kind_is_taken_where_it_costs_less_for_the_work():
    pytest.importorskip("ortools")
    tasks = [Task("t", 0.0, 3600.0, 60), Task("t", 0.0, 3600.0, 60)]
    for price, kind, cost in ((1.9, "fast", 1.9), (2.1, "slow", 2.0)):
        kinds = [optimum.GpuKind("slow", 2), optimum.GpuKind("fast", 2, price, 2.0)]
        found = optimum.best_cost(tasks, kinds, 60.0)
        assert (set(found.kinds), found.cost) == ({kind}, pytest.approx(cost))
        sliced = optimum.best_cost(tasks, kinds, 60.0, (14, 28, 42, 57, 100))
        assert (set(sliced.kinds), sliced.cost) == ({kind}, pytest.approx(cost))


def test_slices_on_several_kinds_end_with_the_tasks_of_their_kind():
    """On a fast GPU the first task is over when the third comes: one is enough, though two slices of 57 do not fit."""
    pytest.importorskip("ortools")
    tasks = [Task("a", 0.0, 100.0, 50), Task("a", 10.0, 40.0, 5), Task("b", 60.0, 100.0, 50)]
    fractions = (14, 57, 100)
    fast = optimum.best_cost(
        tasks, [optimum.GpuKind("slow", 2, 9.0), optimum.GpuKind("fast", 1, 1.0, 2.0)], 60.0, fractions
    )
    assert fast.kinds == ("fast",) * 3 and fast.gpu_hours * 3600 == pytest.approx(50 + 50)
    slow = optimum.best_cost(
        tasks, [optimum.GpuKind("slow", 2, 1.0), optimum.GpuKind("fast", 1, 9.0, 2.0)], 60.0, fractions
    )
    assert slow.kinds == ("slow",) * 3 and slow.gpu_hours * 3600 == pytest.approx(100 + 100)


def test_a_share_above_the_largest_fraction_is_told():
    pytest.importorskip("ortools")
    with pytest.raises(UsageError, match="task 1 of tenant 'x' asks for 60 % of a GPU; the largest fraction is 57 %"):
        optimum.best_hours([Task("x", 0.0, 1.0, 5), Task("x", 0.0, 1.0, 60)], 1.0, 2, (14, 57))
    with pytest.raises(UsageError, match="GPUs 'T4': expected a count and a speed above 0"):
        optimum.GpuKind("T4", 1, speed=0.0)


def test_without_the_solver_the_error_says_what_to_install(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(optimum.importlib, "import_module", missing)
    with pytest.raises(UsageError, match="in the extra 'sim'; in a clone: "):
        optimum.best_hours(_random_tasks(2), 1.0, 2)


def test_the_solver_stops_at_its_limit_of_processor_time():
    pytest.importorskip("ortools")
    try:
        proved = optimum.best_hours(_random_tasks(60), 0.2, 12).proved
    except UsageError as error:
        proved = "no assignment of 60 tasks" not in str(error)
    assert not proved


def test_a_plan_packs_what_fits_together():
    gpus, cost = plan([(0, 10, 600), (0, 10, 600), (0, 10, 400), (0, 10, 400)])
    assert cost == pytest.approx(20)
    assert {gpus[0], gpus[1]} == {gpus[2], gpus[3]} and gpus[0] != gpus[1]
    assert plan([]) == ([], 0.0)
    assert plan([(1, 1, 500)]) == plan([(1, 1, 500)], Slicing("a", [570])) == ([0], 0.0)


def test_a_plan_lets_tasks_of_one_owner_share_a_slice_and_no_others():
    tasks = [(0, 10, 400), (2, 8, 500), (0, 10, 570)]
    one, cost = plan(tasks, Slicing("aab", [1000, 570, 570]))
    assert one[0] == one[1] != one[2] and cost == pytest.approx(20)
    apart, cost = plan(tasks, Slicing("abc", [420, 570, 570]))
    assert apart[0] in apart[1:] and apart[1] != apart[2] and cost in (16, 20)


def test_a_plan_lets_a_short_task_decide_the_slice_that_later_ones_share():
    """Only in the slice of 280 that the first task opens can the second and the third be together."""
    tasks = [(0, 30, 200), (10, 900, 50), (60, 800, 200), (0, 1000, 500), (0, 950, 100)]
    gpus, cost = plan(tasks, Slicing("aaabc", [280, 140, 280, 570, 140]))
    assert set(gpus) == {gpus[0]} and cost == pytest.approx(1000)


def test_a_plan_is_also_sought_from_the_last_end_backwards():
    """By length the first task goes beside the fourth, where the last one then has no room; one plan alone is kept."""
    tasks = [(0, 5, 400), (1, 2, 700), (2, 5, 400), (3, 8, 500), (4, 8, 400)]
    gpus, cost = plan(tasks, width=1)
    assert gpus[3] == gpus[4] != gpus[0] and cost == pytest.approx(11)


@pytest.mark.parametrize("slicing", [None, Slicing("ab" * 30, [140] * 60)])
def test_a_large_batch_is_planned_step_by_step(slicing):
    tasks = [(10 * number, 10 * number + 35, 140) for number in range(60)]
    gpus, cost = plan(tasks, slicing, large=8)
    assert set(gpus) == {0} and cost == pytest.approx(625)


def _table(tmp_path):
    rows = {
        "k80": {"('conv', 1)": {"null": 1.0}, "('tiny', 1)": {"null": 5.0}, "('conv', 2)": {"null": 1.5}},
        "p100": {"('conv', 1)": {"null": 3.0}, "('tiny', 1)": {"null": 6.0}},
        "v100": {"('conv', 1)": {"null": 9.0}, "('tiny', 1)": {"null": 7.0}},
    }
    path = tmp_path / gavel.TABLE_FILE
    path.write_text(json.dumps(rows))
    return path


def test_knowing_speeds_beats_not_knowing_them(tmp_path):
    speeds = gavel.read_speeds(_table(tmp_path))
    assert set(speeds) == {(model, type_) for model in ("conv", "tiny") for type_ in gavel.TYPES}
    counts = {"k80": 3, "p100": 3, "v100": 3}
    jobs = gavel.draw_jobs(speeds, 200, 0.6 * gavel.blind_rate(speeds, counts), Random(1))
    knowing = gavel.mean_completion(jobs, gavel.mixed_pool(counts, Random(1)), Gavel(speeds), speeds)
    blind = gavel.mean_completion(jobs, gavel.mixed_pool(counts, Random(1)), BestFit(), speeds)
    assert knowing < 0.8 * blind


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{\n 3", "line 2, column 2"),
        ("{}", "no table for device type 'k80'"),
        ('{"k80": {"(1": {"null": 2}}}', "table 'k80', row '\\(1'"),
        ('{"k80": {"(\'a\', 1)": {"null": "x"}}}', "expected a model and its speed alone"),
    ],
)
def test_a_wrong_table_of_speeds_is_named(tmp_path, text, told):
    path = tmp_path / "speeds.json"
    path.write_text(text)
    with pytest.raises(TraceError, match=told):
        gavel.read_speeds(path)


@pytest.mark.parametrize(
    "read",
    [
        openb.read_nodes,
        openb.read_tasks,
        lambda folder: tenants.read_tasks(folder / tenants.TASKS_FILE),
        lambda folder: gavel.read_speeds(folder / gavel.TABLE_FILE),
    ],
)
def test_a_missing_published_trace_says_which_folder_to_set(tmp_path, read):
    with pytest.raises(TraceError, match=r"there is no such trace; set DGSF_TRACES .* to the folder that has it"):
        read(tmp_path)
