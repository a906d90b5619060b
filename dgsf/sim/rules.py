"""The assumptions of a simulation, in one place, with the limits within which they make sense."""

from __future__ import annotations

from dataclasses import dataclass

from dgsf.core.placement.consolidate import MoveRules
from dgsf.errors import UsageError

MOST = 1e9
LEAST_MTBF_H = 0.001  # devices that fail more often do nothing else
_LEAST = {
    ("idle_s", "start_s", "mtbf_h", "interference", "slo_s"): 0.0,
    ("network_mib_per_s", "host_mib_per_s", "mttr_s", "slo_factor"): 0.001,
}


@dataclass(frozen=True, slots=True)
class Rules:
    """How the simulated platform behaves; every figure is an assumption that the report repeats."""

    idle_s: float = 60.0  # an instance stays warm so long after its last call; 0: it ends with its call
    learned: bool = False  # instead, what stays is learned, for no more device time than `idle_s` would cost
    start_s: float = 0.01  # a fork of the zygote
    network_mib_per_s: float = 1_200.0  # weights come over the network the first time
    host_mib_per_s: float = 12_000.0  # and from the node's own memory after that, while they are there
    mtbf_h: float = 0.0  # mean time between failures of one device; 0: none fails
    mttr_s: float = 600.0  # mean time to repair
    interference: float = 0.0  # slow-down by each other call that runs on the same device
    fair: bool = True  # waiting calls: the tenant with the least device time first; otherwise first come
    quantum_s: float = 30.0  # device time by which a tenant may be ahead and still keep a warm instance
    durations: bool = False  # placement is told how long functions run that are called once
    exclusive: bool = False  # every call gets a whole device
    slo_s: float = 0.0  # a call must end within so long; 0: within slo_factor x its own run
    slo_factor: float = 3.0
    moves: MoveRules | None = None  # running calls may move so that devices can be given up
    seed: int = 0

    def limit_s(self, run_s: float) -> float:
        """Within how long a call must end that runs for so long by itself."""
        return self.slo_s or self.slo_factor * run_s

    def __post_init__(self) -> None:
        for names, least in _LEAST.items():
            for name in names:
                value = getattr(self, name)
                if not least <= value <= MOST:
                    raise UsageError(f"{name} is {value:g}; it must be from {least:g} to {MOST:g}")
        if 0 < self.mtbf_h < LEAST_MTBF_H:
            raise UsageError(f"mtbf_h is {self.mtbf_h:g}; it must be at least {LEAST_MTBF_H:g}, or 0: no device fails")
        if self.moves is not None and not 0 <= self.moves.copy_s <= self.moves.soon_s:
            limit = f"{self.moves.soon_s:g}"
            raise UsageError(
                f"a move takes {self.moves.copy_s:g} s; it must be from 0 to {limit}, or it outlives tasks"
            )
