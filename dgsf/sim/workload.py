"""What arrives: functions with their needs, and calls in the order of time, as plain columns.

Columns instead of records keep a million calls small and the simulator's inner loop fast.  A workload is data only;
`dgsf.sim.synthetic` draws one, `dgsf.sim.traces` reads one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from dgsf.errors import UsageError
from dgsf.sim.remoted import Remoted
from dgsf.sim.tracefiles import MOST_S


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """What one instance of a function needs and how it behaves."""

    name: str
    types: tuple[str, ...] = ("any",)
    share: int = 1000  # thousandths of a device
    devices: int = 0  # above 0: so many whole devices on one node
    cpu_milli: int = 0
    host_memory_mib: int = 0
    weights_mib: float = 0.0  # moved to the device by a cold start, and held there by each instance
    work_mib: float = 0.0  # device memory beside its weights
    duty: float = 0.0  # the part of a run in which the device works for it alone; up to its share nobody is slowed
    scales: bool = True  # a faster device shortens the run
    remoted: Remoted | None = None  # its device is over the fabric, by the performance model

    def took_s(self, run_s: float, speed: float) -> float:
        """What a call that takes so long on a T4 takes on a device of this speed."""
        run_s = run_s / speed if self.scales else run_s
        return run_s * self.slowdown(speed)

    def duty_on(self, speed: float) -> float:
        """A remoted call that waits for the link leaves the device to others."""
        return self.duty / self.slowdown(speed)

    def slowdown(self, speed: float) -> float:
        """Remoted over native; what does not scale runs everywhere as on a T4."""
        return 1.0 if self.remoted is None else self.remoted.slowdown(speed if self.scales else 1.0)


@dataclass(slots=True)
class Workload:
    """Functions, tenants, and one row per call in each column."""

    name: str
    functions: list[FunctionSpec]
    tenants: list[str]
    arrival_s: list[float] = field(default_factory=list)
    function: list[int] = field(default_factory=list)
    tenant: list[int] = field(default_factory=list)
    run_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        columns = (self.arrival_s, self.function, self.tenant, self.run_s)
        if len({len(column) for column in columns}) != 1:
            raise UsageError(f"workload {self.name}: its columns differ in length")
        if any(later < earlier for earlier, later in pairwise(self.arrival_s)):
            raise UsageError(f"workload {self.name}: its calls are not in the order of arrival")
        self._check_tenants()

    def _check_tenants(self) -> None:
        """As in production: an instance serves one tenant, so a function belongs to one."""
        owners: dict[int, int] = {}
        for function, tenant in sorted(set(zip(self.function, self.tenant, strict=True))):
            if owners.setdefault(function, tenant) != tenant:
                both = f"{self.tenants[owners[function]]} and {self.tenants[tenant]}"
                told = f"function {self.functions[function].name} is called by tenants {both}; it belongs to one"
                raise UsageError(f"workload {self.name}: {told}")

    @property
    def calls(self) -> int:
        return len(self.arrival_s)

    @property
    def span_s(self) -> float:
        return self.arrival_s[-1] - self.arrival_s[0] if self.arrival_s else 0.0

    def owners(self) -> list[int]:
        """The tenant of each function; of those that nobody calls, the first."""
        found = dict(zip(self.function, self.tenant, strict=True))
        return [found.get(function, 0) for function in range(len(self.functions))]

    def lives_s(self) -> dict[int, float]:
        """How long an instance lives, where it serves one call only."""
        calls = Counter(self.function)
        pairs = zip(self.function, self.run_s, strict=True)
        return {function: run_s for function, run_s in pairs if calls[function] == 1}

    def faster(self, factor: float) -> Workload:
        """The same calls, arriving so many times faster."""
        if not factor > 0:
            raise UsageError(f"--speedup {factor:g}: it must be above 0")
        if self.span_s / factor > MOST_S:
            raise UsageError(f"--speedup {factor:g}: the last call would come after more than {MOST_S:g} s; raise it")
        return replace(self, arrival_s=[at / factor for at in self.arrival_s])

    def sharing(self, shares: Sequence[int]) -> Workload:
        """The same calls; functions take these thousandths of a device in turn."""
        functions = [replace(item, share=shares[place % len(shares)]) for place, item in enumerate(self.functions)]
        return replace(self, functions=functions)

    def changed(self, **needs: float | int | tuple[str, ...] | Remoted) -> Workload:
        """The same calls with some needs of every function set anew."""
        functions = [replace(item, **needs) for item in self.functions]  # type: ignore[arg-type]
        return replace(self, functions=functions)
