"""Processor time by part: who of a family of processes has worked how much.

Unlike requests per second it hardly depends on what else runs, so it shows where a call's microseconds go
even on a machine that is not quiet.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter, defaultdict
from pathlib import Path

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
# The first that is found in a command line names the process.
_LABELS = (
    ("dgsf.cli gateway", "gateway"),
    ("dgsf.cli proxy", "proxy"),
    ("dgsf.cli controller", "controller"),
    ("dgsf.cli up", "supervisor"),
    ("dgsf.fabric.zygote", "workers"),
    ("postgres", "postgres"),
    ("ray", "ray"),
)


def processor_us(root: int) -> Counter[str]:
    """Microseconds of processor time used so far by a process and its descendants, by part."""
    found: Counter[str] = Counter()
    for pid in _family(root):
        with contextlib.suppress(OSError, IndexError):  # gone meanwhile
            fields = _stat(pid)
            found[_label(pid)] += (int(fields[11]) + int(fields[12])) * 1_000_000 // _TICKS_A_SECOND
    return found


def per_request(before: Counter[str], after: Counter[str], requests: int) -> dict[str, float]:
    """Microseconds of each part for one request, the largest first."""
    used = {part: (after[part] - before[part]) / max(1, requests) for part in after if after[part] > before[part]}
    return {part: round(value, 1) for part, value in sorted(used.items(), key=lambda item: -item[1])}


def _family(root: int) -> list[int]:
    children: defaultdict[int, list[int]] = defaultdict(list)
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                children[int(_stat(int(entry.name))[1])].append(int(entry.name))
    family = [root]
    for pid in family:  # grows while it is read
        family.extend(children[pid])
    return family


def _stat(pid: int) -> list[str]:
    """The fields after the name, which may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _label(pid: int) -> str:
    command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    return next((label for needle, label in _LABELS if needle in command), "other")
