"""Which worker runs in which slot, and which lease epochs are still good. Pure bookkeeping.

An epoch only grows: one that was reaped or overtaken never gets a worker again.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from pathlib import Path

from dgsf.core.sizes import describe_bytes
from dgsf.errors import DoesNotFit, LeaseLost
from dgsf.fabric.spec import WorkerSpec
from dgsf.fabric.zygote_client import Child
from dgsf.wire.messages import Attach, WorkerExit


@dataclass(slots=True, eq=False)
class WorkerRecord:
    """One running worker."""

    spec: WorkerSpec
    holder: str
    child: Child
    control: socket.socket
    folder: Path
    memory_used: int = 0
    kill_reason: str = ""
    joined: bool = False  # whether it was given the connection of its session

    @property
    def worker_id(self) -> int:
        return self.spec.worker_id

    def exit_notice(self) -> WorkerExit:
        """How it ended, once it has: by itself, by our hand, or with the zygote."""
        report = self.child.ended.result()
        place = (self.spec.worker_id, self.spec.slot, self.spec.epoch)
        if self.kill_reason or report is None:
            return WorkerExit(*place, "killed", self.kill_reason or "zygote", 0, 9)
        return WorkerExit(*place, "exited", "", report.exit_code, report.signal)


@dataclass(slots=True)
class WorkerTable:
    """All workers of one device."""

    slots: int
    memory_bytes: int
    workers: dict[int, WorkerRecord] = field(default_factory=dict)
    _floors: dict[int, int] = field(default_factory=dict)
    _last_id: int = 0

    def admit(self, attach: Attach) -> WorkerRecord | None:
        """Check a request for a slot; returns the worker that has to go first. LeaseLost, DoesNotFit."""
        slot, epoch = attach.slot, attach.epoch
        if not 0 <= slot < self.slots:
            raise DoesNotFit(f"there is no slot {slot}: this device has {self.slots}")
        if not 0 < attach.memory_bytes <= self.memory_bytes:
            raise DoesNotFit(
                f"{describe_bytes(attach.memory_bytes)} do not fit: this device has {describe_bytes(self.memory_bytes)}"
            )
        if epoch < self._floors.get(slot, 0):
            raise LeaseLost(f"slot {slot}: epoch {epoch} is over, {self._floors[slot]} is the lowest that is good")
        held = self.in_slot(slot)
        if held is not None and held.spec.epoch == epoch:
            raise LeaseLost(f"slot {slot}: worker {held.worker_id} runs under epoch {epoch} already")
        self._floors[slot] = epoch
        return held

    def reap(self, slot: int, epoch: int) -> WorkerRecord | None:
        """Refuse this epoch and lower ones from now on; returns the worker that has to go."""
        self._floors[slot] = max(self._floors.get(slot, 0), epoch + 1)
        held = self.in_slot(slot)
        return held if held is not None and held.spec.epoch <= epoch else None

    def still_good(self, slot: int, epoch: int) -> bool:
        return epoch >= self._floors.get(slot, 0)

    def forget_epochs(self) -> None:
        """A new incarnation begins: its leases count on their own."""
        self._floors.clear()

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def add(self, worker: WorkerRecord) -> None:
        assert self.in_slot(worker.spec.slot) is None, "a slot has one worker"
        self.workers[worker.worker_id] = worker

    def remove(self, worker: WorkerRecord) -> None:
        del self.workers[worker.worker_id]

    def in_slot(self, slot: int) -> WorkerRecord | None:
        return next((worker for worker in self.workers.values() if worker.spec.slot == slot), None)

    @property
    def memory_used(self) -> int:
        return sum(worker.memory_used for worker in self.workers.values())
