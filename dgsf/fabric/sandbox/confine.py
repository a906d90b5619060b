"""Putting a worker in its sandbox, step by step, from the fork to the first byte of user code.

The order matters: names go first (namespaces, root), then the user, then rights, then the walls that need
no rights (Landlock, seccomp), so that every step still may do what it has to.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field

from dgsf.fabric.sandbox import capabilities, landlock, libc, limits, namespaces, seccomp
from dgsf.fabric.sandbox.features import Features
from dgsf.fabric.sandbox.rootfs import Plan, enter_root, plan_root
from dgsf.fabric.sandbox.worker_root import WorkerRoot
from dgsf.fabric.spec import WorkerSpec


@dataclass(slots=True)
class Sandbox:
    """What all workers of one zygote have in common; made once, before the first fork."""

    plan: Plan
    filter: bytes
    refused: str = ""  # why there is no filter

    @classmethod
    def prepare(cls, device_nodes: tuple[str, ...], hidden: tuple[str, ...], features: Features) -> Sandbox:
        """Move this process, the zygote, into the root that its workers will copy."""
        plan = plan_root(device_nodes)
        enter_root(plan, hidden, features)
        try:
            return cls(plan, seccomp.build_filter())
        except OSError as error:
            return cls(plan, b"", error.strerror or str(error))


@dataclass(slots=True)
class Stopwatch:
    """How long each step took, for the breakdown of a cold start."""

    steps: dict[str, int] = field(default_factory=dict)
    _last: int = field(default_factory=time.perf_counter_ns)

    def lap(self, name: str) -> None:
        now = time.perf_counter_ns()
        self.steps[name] = (now - self._last) // 1000
        self._last = now


def keep_only(descriptors: list[int]) -> None:
    """Standard streams become /dev/null; of all others only these stay open."""
    null = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    first = 3
    for kept in sorted(descriptors):
        if kept > first:
            libc.close_range(first, kept - 1)
        first = kept + 1
    libc.close_range(first)


def confine(sandbox: Sandbox, spec: WorkerSpec, features: Features, watch: Stopwatch) -> None:
    """All of it; SandboxError if what is needed cannot be had."""
    os.umask(0o022)
    libc.die_with_parent(signal.SIGKILL)
    limits.be_first_to_go()
    held = limits.data_bytes()
    namespaces.enter_worker_namespaces(features, network=spec.network)
    watch.lap("namespaces")
    root = WorkerRoot(sandbox.plan, spec, features)
    root.build()
    watch.lap("root")
    namespaces.become(spec.uid, features)
    libc.die_with_parent(signal.SIGKILL)  # the change of user took it off
    namespaces.enter_own_user_namespace(root.proc_self, features)
    root.close()
    watch.lap("user")
    _give_up_rights(sandbox, spec, features, held)
    watch.lap("rights")


def _give_up_rights(sandbox: Sandbox, spec: WorkerSpec, features: Features, held: int) -> None:
    with features.needed("no capabilities", "dropping capabilities must be possible"):
        capabilities.drop_all()
        capabilities.forbid_new_privileges()
    with features.needed("resource limits", "setting resource limits must be possible"):
        limits.apply_limits(held + spec.process_bytes, spec.max_file_bytes, spec.beside_bytes)
    with features.optional("Landlock") as details:
        details += landlock.restrict(network=spec.network, devices=sandbox.plan.devices)
    if sandbox.refused:
        features.note("seccomp", False, sandbox.refused)
        return
    with features.optional("seccomp"):
        seccomp.install(sandbox.filter)
