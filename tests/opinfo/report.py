"""What a run over all operators found, in words."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Part:
    """A part of the list of what does not pass."""

    title: str
    made_by: str
    things: str = "operators"
    goal: float = 0.98  # the part that has to pass; what does not is refused, never wrong


VALUES = Part(
    "# Operators that do not pass on the remote device",
    "Made by `make opinfo`; do not edit.  Every operator of torch's own test cases, float32, int64 and bool,\n"
    "forward, in place, `out=` and backward, compared with the CPU.",
)
DERIVATIVES = Part(
    "# Derivatives that do not pass on the remote device",
    "Made by `make opinfo`, too.  Second derivatives, and derivatives by forward mode, of every operator that has\n"
    "them, float64, its first three cases, compared with the CPU.",
)

MODULES = Part(
    "# Modules that do not pass on the remote device",
    "Made by `make opinfo`, too.  Every class of torch's own cases of `nn` modules, float32, built on the CPU and\n"
    "moved, forward, backward to inputs and parameters, and derived twice, compared with the CPU.",
    "modules",
    0.94,  # six classes are lazy
)


def _passed(outcomes: list[dict[str, Any]]) -> tuple[int, int]:
    counted = [outcome for outcome in outcomes if outcome["verdict"] != "empty"]
    return sum(outcome["verdict"] == "passed" for outcome in counted), len(counted)


def good(outcomes: list[dict[str, Any]], part: Part) -> bool:
    """Enough of them pass, and those that do not are refused, not wrong."""
    passed, all_ = _passed(outcomes)
    bad = [outcome for outcome in outcomes if outcome["verdict"] in ("failed", "crashed", "hung")]
    return passed >= part.goal * all_ and not bad


def summary(outcomes: list[dict[str, Any]], seconds: float, things: str) -> str:
    passed, all_ = _passed(outcomes)
    counts = Counter(str(outcome["verdict"]) for outcome in outcomes)
    tried = sum(int(outcome["tried"]) for outcome in outcomes)
    share = 100 * passed / all_ if all_ else 0.0
    rest = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()) if verdict != "passed")
    return (
        f"{passed} of {all_} {things} pass ({share:.1f} %), {rest or 'nothing else'}; {tried} cases in {seconds:.0f} s"
    )


def write(path: Path, part: Part, outcomes: list[dict[str, Any]]) -> None:
    """Put one part into the list, and leave the others."""
    before = re.split(r"(?m)^(?=# )", path.read_text()) if path.exists() else []
    texts = {text.partition("\n")[0]: text.strip() for text in before if text.strip()}
    texts[part.title] = known(part, outcomes).strip()
    path.write_text("\n\n".join(texts[title] for title in sorted(texts, reverse=True)) + "\n")


def known(part: Part, outcomes: list[dict[str, Any]]) -> str:
    passed, all_ = _passed(outcomes)
    lines = [
        part.title,
        "",
        part.made_by,
        "",
        f"{passed} of {all_} {part.things} pass.",
        "",
        f"| {part.things.removesuffix('s')} | verdict | first reason | cases |",
        "|---|---|---|---|",
    ]
    for outcome in outcomes:
        if outcome["verdict"] not in ("passed", "empty"):
            reason = str(outcome["reasons"][0]).replace("|", "/")[:160]
            lines.append(f"| {outcome['name']} | {outcome['verdict']} | {reason} | {len(outcome['reasons'])} |")
    nothing = [str(outcome["name"]) for outcome in outcomes if outcome["verdict"] == "empty"]
    if part is DERIVATIVES:  # most operators of whole numbers, all that only make tensors
        lines += ["", f"Without such a derivative on the CPU, so not counted: {len(nothing)} operators.", ""]
    else:
        lines += ["", f"Without a CPU case of these types, so not counted: {', '.join(nothing) or 'none'}.", ""]
    return "\n".join(lines)
