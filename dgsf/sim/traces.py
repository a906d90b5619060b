"""Reads published traces into workloads.

GenAI: image generation calls, a function per checkpoint model; its groups, which are thousands, are users of one
tenant's service unless each is said to be a tenant, with functions of its own.  Azure: LLM calls, whose run time is
that of their tokens at a stated speed.  openb and tenants: tasks with shares, counts and types; each is its own
function, because nothing is reused.  Times start at 0.  Malformed cells are errors naming file, line and column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from dgsf.errors import TraceError
from dgsf.sim.openb import check_parts
from dgsf.sim.tracefiles import (
    MOST_MIB,
    MOST_MILLI,
    NumberedRow,
    Readers,
    device_types,
    header_of,
    in_order,
    moment,
    named,
    number,
    numbered_rows,
    optional_text,
    seconds,
    text,
    whole,
)
from dgsf.sim.workload import FunctionSpec, Workload

Row = dict[str, Any]
GENAI_SHARE = 125  # eight image models on a device of 80 GB, each with
GENAI_WEIGHTS_MIB = 6_600.0  # a checkpoint of the usual size
GENAI_WORK_MIB = 3_400.0  # and what it computes in
GENAI_DUTY = 0.8  # of a run, the device's part
LLM_WEIGHTS_MIB = 14_000.0  # seven billion parameters of two bytes
LLM_WORK_MIB = 2_000.0
LLM_PROMPT_TOKENS_PER_S = 8_000.0
LLM_SECONDS_PER_TOKEN = 0.025
MOST_TOKENS = 10**9  # of one call: most of a year
_TELL_ROWS = 10_000
_NEAR = 0.5  # of a kind's columns: a header that has so many is meant to be of that kind

COLUMNS: dict[str, Readers] = {
    "genai": {
        "gmt_create": moment,
        "exec_time_seconds": number(0.0, 1e7),
        "groupId": optional_text,
        "checkpoint_model_version_id": optional_text,  # empty for some: they count as one model
    },
    "azure": {"TIMESTAMP": moment, "ContextTokens": whole(0, MOST_TOKENS), "GeneratedTokens": whole(0, MOST_TOKENS)},
    "openb": {
        "name": text,
        "cpu_milli": whole(0, MOST_MILLI),
        "memory_mib": whole(0, MOST_MIB),
        "num_gpu": whole(0, 64),
        "gpu_milli": whole(0, 1000),
        "gpu_spec": device_types,
        "qos": optional_text,
        "creation_time": seconds(),
        "deletion_time": seconds(),
    },
    "tenants": {
        "name": text,
        "tenant": text,
        "arrival_s": seconds(),
        "duration_s": seconds(),
        "gpu_percent": whole(1, 100),
    },
}


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read."""

    path: Path
    most: int | None = None  # calls, the first; None: all
    tenant_per_group: bool = False  # genai: groups are tenants
    tell: Callable[[int], None] | None = None  # now and then, how many rows are read

    def rows(self, kind: str) -> Iterator[NumberedRow]:
        """All that the file has."""
        for count, row in enumerate(numbered_rows(self.path, COLUMNS[kind]), 1):
            if self.tell is not None and count % _TELL_ROWS == 0:
                self.tell(count)
            yield row

    def in_order(self, kind: str, column: str) -> list[Row]:
        """As many as are wanted; the moments of this column must not go back."""
        return list(islice(in_order(self.rows(kind), column), self.most))


def read_genai(source: Source) -> Workload:
    """A function per checkpoint, of one tenant; or of each group that uses it, if groups are tenants."""
    rows, tenant_per_group = source.in_order("genai", "gmt_create"), source.tenant_per_group
    functions = _Numbers()
    tenants = _Numbers()
    model = "checkpoint_model_version_id"
    return Workload(
        "genai",
        arrival_s=_from_zero([row["gmt_create"] for row in rows]),
        function=[functions.of(f"{row['groupId']}/{row[model]}" if tenant_per_group else row[model]) for row in rows],
        tenant=[tenants.of(row["groupId"] if tenant_per_group else "genai") for row in rows],
        run_s=[row["exec_time_seconds"] for row in rows],
        functions=[_checkpoint(name) for name in functions.names],
        tenants=tenants.names,
    )


def read_azure(source: Source) -> Workload:
    rows = source.in_order("azure", "TIMESTAMP")
    count = len(rows)
    speed = LLM_PROMPT_TOKENS_PER_S, LLM_SECONDS_PER_TOKEN
    return Workload(
        "azure",
        arrival_s=_from_zero([row["TIMESTAMP"] for row in rows]),
        function=[0] * count,
        tenant=[0] * count,
        run_s=[row["ContextTokens"] / speed[0] + row["GeneratedTokens"] * speed[1] for row in rows],
        functions=[FunctionSpec("llm-code", share=1000, weights_mib=LLM_WEIGHTS_MIB, work_mib=LLM_WORK_MIB)],
        tenants=["azure"],
    )


def read_openb(source: Source) -> Workload:
    """Its tasks may be in any order, so all are read."""
    rows = sorted(_ending(source.rows("openb")), key=lambda row: float(row["creation_time"]))[: source.most]
    tenants = _Numbers()
    return Workload(
        "openb",
        arrival_s=_from_zero([row["creation_time"] for row in rows]),
        function=list(range(len(rows))),
        tenant=[tenants.of(row["qos"] or "none") for row in rows],
        run_s=[row["deletion_time"] - row["creation_time"] for row in rows],
        functions=[_task(row) for row in rows],
        tenants=tenants.names,
    )


def read_tenants(source: Source) -> Workload:
    rows = source.in_order("tenants", "arrival_s")
    tenants = _Numbers()
    return Workload(
        "tenants",
        arrival_s=_from_zero([row["arrival_s"] for row in rows]),
        function=list(range(len(rows))),
        tenant=[tenants.of(row["tenant"]) for row in rows],
        run_s=[row["duration_s"] for row in rows],
        functions=[FunctionSpec(row["name"], share=10 * row["gpu_percent"], scales=False) for row in rows],
        tenants=tenants.names,
    )


READERS: dict[str, tuple[str, Callable[[Source], Workload]]] = {
    "genai": ("genai_requests_first_half.csv", read_genai),
    "azure": ("azure_llm_code.csv", read_azure),
    "tenants": ("fractional_tenants.csv", read_tenants),
    "openb": ("openb_pod_list_default.csv", read_openb),
}


PUBLISHED: dict[str, str] = {  # what each is, and under which name its publishers have it
    "genai": "calls of an image generation service, published by Alibaba as cluster-trace-v2026-GenAI (its first half)",
    "azure": "calls of a language model for code, published by Microsoft as the Azure LLM inference trace 2023",
    "openb": "tasks of a GPU cluster, published by Alibaba as cluster-trace-gpu-v2023",
    "tenants": "tasks of twelve made-up tenants, not published: any file with these columns will do",
}


def trace_path(name: str, folder: Path, path: Path | None = None) -> Path:
    """The file of a trace: its usual one in the folder of traces, or the given one."""
    if path is not None:
        return _given(path)
    file = READERS[name][0]
    if not (folder / file).exists():
        raise TraceError(
            f"the trace '{name}' does not come with DGSF: {PUBLISHED[name]}. Get it as CSV with the columns "
            f"{', '.join(COLUMNS[name])}; then give it with --trace-file FILE, or name it {file} and set DGSF_TRACES "
            f"(or --traces) to its folder (there is none in {folder}). Calls can also be drawn: --arrivals bursts"
        )
    return folder / file


def read_trace(name: str, folder: Path, path: Path | None = None, *, tenant_per_group: bool = False) -> Workload:
    """A trace by its name, from its usual file in the folder of traces or from a path; groups are those of genai."""
    return read_source(name, Source(trace_path(name, folder, path), tenant_per_group=tenant_per_group))


def read_source(name: str, source: Source) -> Workload:
    """A trace of this kind."""
    return READERS[name][1](source)


def kind_of(path: Path) -> str:
    """Which kind of trace a file is, by its columns."""
    header = header_of(_given(path))
    found = [name for name, columns in COLUMNS.items() if set(header).issuperset(columns)]
    if len(found) == 1:
        return found[0]
    if found:
        raise TraceError(f"{path}: has the columns of {' and '.join(found)}; say which it is with --arrivals")
    near = _nearest(header)
    if near is not None:
        missing = ", ".join(f"'{column}'" for column in COLUMNS[near] if column not in header)
        told = f"looks like a '{near}' trace, but has no column {missing}; the header has: {named(header)}"
        raise TraceError(f"{path}: line 1: {told}")
    wanted = "; ".join(f"{name}: {', '.join(columns)}" for name, columns in COLUMNS.items())
    raise TraceError(f"{path}: line 1: no kind of trace has such columns. Wanted are those of one kind. {wanted}")


def _nearest(header: Sequence[str]) -> str | None:
    """The kind that this header has most of, whatever the case of its letters; None if it has little of any."""
    seen = {name.strip().casefold() for name in header}
    parts = {kind: sum(name.casefold() in seen for name in names) / len(names) for kind, names in COLUMNS.items()}
    best = max(parts, key=parts.__getitem__)
    return best if parts[best] >= _NEAR else None


def _given(path: Path) -> Path:
    if not path.exists():
        raise TraceError(f"--trace-file {path}: there is no such file")
    return path


def _checkpoint(name: str) -> FunctionSpec:
    return FunctionSpec(
        name, share=GENAI_SHARE, weights_mib=GENAI_WEIGHTS_MIB, work_mib=GENAI_WORK_MIB, duty=GENAI_DUTY
    )


def _task(row: dict[str, object]) -> FunctionSpec:
    gpus, milli = int(str(row["num_gpu"])), int(str(row["gpu_milli"]))
    whole_devices = gpus if gpus > 1 or (gpus == 1 and milli == 1000) else 0
    return FunctionSpec(
        str(row["name"]),
        types=(str(row["gpu_spec"]) or "any",),
        share=0 if gpus == 0 or whole_devices else milli,
        devices=whole_devices,
        scales=False,
        cpu_milli=int(str(row["cpu_milli"])),
        host_memory_mib=int(str(row["memory_mib"])),
    )


class _Numbers:
    """Gives each name a number, in the order of first sight."""

    def __init__(self) -> None:
        self._found: dict[str, int] = {}

    def of(self, name: str) -> int:
        return self._found.setdefault(name, len(self._found))

    @property
    def names(self) -> list[str]:
        return list(self._found)


def _ending(rows: Iterable[NumberedRow]) -> Iterator[Row]:
    """Tasks of openb; none may end before it begins, or leave open how many devices it means."""
    for where, row in rows:
        check_parts(where, row["num_gpu"], row["gpu_milli"])
        begins, ends = row["creation_time"], row["deletion_time"]
        if ends < begins:
            raise where.wrong("deletion_time", f"{ends:g} is before creation_time, {begins:g}")
        yield row


def _from_zero(moments: list[float]) -> list[float]:
    return [moment - moments[0] for moment in moments]
