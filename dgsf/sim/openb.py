"""The openb experiment: Alibaba's GPU cluster filled by its own tasks in random order until nothing fits any more.

Tasks never leave.  The figure of merit is the part of all GPUs still not allocated when the tasks that have arrived
ask for 100 % of the cluster, the mean over all events whose rounded arrival percentage is 100.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from dgsf.core.placement import DeviceView, NodeView, Placement, Placer, Policy, Pool, Request, Workload
from dgsf.core.placement.model import PLENTY, WHOLE
from dgsf.sim.tracefiles import (
    MOST_MIB,
    MOST_MILLI,
    Where,
    device_type,
    device_types,
    distinct,
    numbered_rows,
    published,
    text,
    whole,
)

NODES_FILE = "openb_node_list_gpu_node.csv"
TASKS_FILE = "openb_pod_list_default.csv"
MIB = 1024**2


@dataclass(frozen=True, slots=True)
class OpenbNode:
    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class Filling:
    """What became of one run."""

    unallocated: float  # % of all GPUs at 100 % asked
    placed: int
    refused: int
    seconds: float  # of processor time, spent deciding and booking


def read_nodes(folder: Path) -> list[OpenbNode]:
    columns = {
        "sn": text,
        "cpu_milli": whole(0, MOST_MILLI),
        "memory_mib": whole(0, MOST_MIB),
        "gpu": whole(0, 1024),
        "model": device_type,
    }
    path = published(folder / NODES_FILE)
    return [OpenbNode(*row.values()) for row in distinct(numbered_rows(path, columns), "sn")]


def read_tasks(folder: Path) -> list[Request]:
    columns = {
        "cpu_milli": whole(0, MOST_MILLI),
        "memory_mib": whole(0, MOST_MIB),
        "num_gpu": whole(0, 1024),
        "gpu_milli": whole(0, WHOLE),
        "gpu_spec": device_types,
    }
    path = published(folder / TASKS_FILE)
    tasks = []
    for where, row in numbered_rows(path, columns):
        check_parts(where, row["num_gpu"], row["gpu_milli"])
        tasks.append(_request(**row))
    return tasks


def check_parts(where: Where, gpus: int, milli: int) -> None:
    """A task takes no device, a part of one, or whole ones; what else a row may mean is not guessed."""
    wanted = {0: "0", 1: "from 1 to 1000"}.get(gpus, "1000")
    if not (milli == 0 if gpus == 0 else milli > 0 if gpus == 1 else milli == WHOLE):
        raise where.wrong("gpu_milli", f"{milli} beside num_gpu {gpus}; it must be {wanted} then")


def _request(cpu_milli: int, memory_mib: int, num_gpu: int, gpu_milli: int, gpu_spec: str) -> Request:
    partial = num_gpu == 1 and gpu_milli < WHOLE
    return Request(
        types=(gpu_spec or "any",),
        memory_bytes=0,
        share=gpu_milli if partial else (0 if num_gpu == 0 else WHOLE),
        devices=0 if partial else num_gpu,
        cpu_milli=cpu_milli,
        host_memory=memory_mib * MIB,
    )


def build_pool(nodes: list[OpenbNode]) -> Pool:
    """All GPUs idle, rows in the given order."""
    devices = [
        DeviceView(number * 64 + gpu, node.model, "cuda", True, 1, PLENTY, 1, PLENTY, node=node.name, free_share=WHOLE)
        for number, node in enumerate(nodes)
        for gpu in range(node.gpus)
    ]
    return Pool.of(devices, [NodeView(node.name, node.cpu_milli, node.memory_mib * MIB) for node in nodes])


def asked_of(request: Request) -> int:
    return request.devices * WHOLE if request.devices else (request.share or 0)


def arrivals(tasks: list[Request], capacity: int, random: Random, until: float = 1.006) -> list[Request]:
    """All tasks in random order, then copies of random ones, until they ask for this part of the capacity."""
    order = list(tasks)
    random.shuffle(order)
    asked = sum(asked_of(task) for task in order)
    while asked < until * capacity:
        order.append(tasks[random.randrange(len(tasks))])
        asked += asked_of(order[-1])
    return order


def rate(nodes: list[OpenbNode], tasks: list[Request], policy: Policy, seed: int, copies: int, count: int) -> float:
    """Placements per second of the first `count` arrivals on so many copies of the cluster."""
    random = Random(seed)  # noqa: S311 (repeatable on purpose)
    rows = [replace(node, name=f"{node.name}/{copy}") for copy in range(copies) for node in nodes]
    random.shuffle(rows)
    order = arrivals(tasks, 0, random)[:count]
    capacity = sum(node.gpus for node in rows) * WHOLE
    run = _run(Placer(build_pool(rows), policy, random), order, capacity)
    return len(order) / run.seconds


def fill(nodes: list[OpenbNode], tasks: list[Request], policy: Callable[[Workload], Policy], seed: int) -> Filling:
    """One run: nodes and tasks in the order that the seed draws.  The policy may know the whole workload."""
    random = Random(seed)  # noqa: S311 (repeatable on purpose)
    rows = list(nodes)
    random.shuffle(rows)
    capacity = sum(node.gpus for node in nodes) * WHOLE
    order = arrivals(tasks, capacity, random)
    placer = Placer(build_pool(rows), policy(Workload(tasks)), random)
    return _run(placer, order, capacity)


def _run(placer: Placer, order: list[Request], capacity: int) -> Filling:
    started = time.process_time()
    asked = given = placed = 0
    at_full: list[int] = []
    for request in order:
        asked += asked_of(request)
        answer = placer.place(request)
        if isinstance(answer, Placement):
            placer.pool.take(request, answer)
            given += asked_of(request)
            placed += 1
        if round(100 * asked / capacity) == 100:
            at_full.append(given)
    seconds = time.process_time() - started
    mean = sum(at_full) / len(at_full) if at_full else given
    return Filling(100 - 100 * mean / capacity, placed, len(order) - placed, seconds)
