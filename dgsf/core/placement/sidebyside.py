"""The search of a plan: several unfinished plans side by side (a beam), each given the same task next.

Every way to place the task in every plan is weighed, and the most promising ones are kept.  A plan promises what it
pays already, and what no plan can avoid: the GPUs needed in a piece of time beyond those that it uses there.  So a GPU
that is needed anyway costs nothing, and plans that differ in what they have paid for so far are compared fairly.
Nothing is random.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dgsf.core.placement.holdings import FreeShares, Holding, OwnedSlices, Slicing, Way, Ways
from dgsf.core.placement.needed import gpus_needed, levels
from dgsf.core.placement.pieces import Interval, Pieces

SAME = 1e-9
Groups = Sequence[Sequence[Sequence[int]]]  # of each GPU, of each slice: tasks


class Unfinished(NamedTuple):
    """A plan of some of the tasks."""

    least: float  # what it will cost at least
    paid: float
    reserved: float  # share times time of its slices
    gpus: tuple[Holding, ...]
    lacking: tuple[int, ...]  # the pieces in which one GPU more is needed, two more, and so on; then none
    mark: int  # the same for the same holdings in any order


# least, paid, reserved, a number to keep the order, mark, before, GPU, place of the slice, the pieces newly in use
_Candidate = tuple[float, float, float, int, int, Unfinished, int, int, int]
_WaysHere = tuple[list[Way], int, float]  # and the pieces newly in use, and their length


class SideBySide:
    """Plans for these tasks, which are numbered by their starts; the `held` ones are where they are."""

    def __init__(self, tasks: Sequence[Interval], slicing: Slicing | None, held: Groups = ()) -> None:
        self._pieces = Pieces(tasks)
        self._ways: Ways = (
            FreeShares(tasks, self._pieces) if slicing is None else OwnedSlices(tasks, self._pieces, slicing)
        )
        self._nothing = self._ways.of(())
        self._seen: list[dict[Holding, _WaysHere]] = [{} for _ in tasks]
        self.start = self._begun(levels(gpus_needed(tasks, self._pieces, slicing)), held)

    def _begun(self, lacking: tuple[int, ...], held: Groups) -> Unfinished:
        length = self._pieces.length
        plan = Unfinished(sum(map(length, lacking)), 0.0, 0.0, (), lacking, 0)
        for groups in held:
            holding = self._ways.of(groups)
            least = plan.least + length(holding.busy & ~plan.lacking[0])
            paid, gpus = plan.paid + length(holding.busy), (*plan.gpus, holding)
            plan = Unfinished(least, paid, 0.0, gpus, _less(plan.lacking, holding.busy), plan.mark + holding.mark)
        return plan

    def best(self, order: Sequence[int], width: int, below: float) -> Unfinished | None:
        """The plan that costs least, of those found by placing tasks in this order; none if none is below this."""
        plans = [self.start]
        for task in order:
            candidates = self._candidates(plans, task, below - SAME)
            candidates.sort()
            plans = self._most_promising(candidates, task, width)
        return plans[0] if plans else None

    def _candidates(self, plans: Sequence[Unfinished], task: int, below: float) -> list[_Candidate]:
        length, seen = self._pieces.length, self._seen[task]
        found: list[_Candidate] = []
        for plan in plans:
            least, paid, reserved, gpus, lacking, mark = plan
            enough = ~lacking[0]
            for gpu, holding in enumerate((*gpus, self._nothing)):
                here = seen.get(holding)
                if here is None:
                    here = seen[holding] = self._ways_here(holding, task)
                ways, new, added = here
                if not ways:
                    continue
                more = new & enough
                promised = least + length(more) if more else least
                if promised < below:
                    pays, others = paid + added, mark - holding.mark
                    for after, grown, place in ways:
                        found.append(
                            (promised, pays, reserved + grown, len(found), others + after, plan, gpu, place, new)
                        )
        return found

    def _ways_here(self, holding: Holding, task: int) -> _WaysHere:
        new = self._pieces.spans[task] & ~holding.busy
        return self._ways.with_task(holding, task), new, self._pieces.length(new)

    def _most_promising(self, candidates: Sequence[_Candidate], task: int, width: int) -> list[Unfinished]:
        """The first candidates, no two alike."""
        marks: set[int] = set()
        kept: list[Unfinished] = []
        for least, paid, reserved, _, mark, before, gpu, place, new in candidates:
            if mark in marks:
                continue
            marks.add(mark)
            gpus = before.gpus
            holding = self._ways.taken(gpus[gpu] if gpu < len(gpus) else self._nothing, task, place)
            gpus = (*gpus[:gpu], holding, *gpus[gpu + 1 :])
            kept.append(Unfinished(least, paid, reserved, gpus, _less(before.lacking, new), mark))
            if len(kept) == width:
                break
        return kept


def _less(lacking: tuple[int, ...], new: int) -> tuple[int, ...]:
    """What is lacking once one GPU more is in use in these pieces."""
    if not new & lacking[0]:
        return lacking
    more = (*lacking[1:], 0)
    return tuple([(one & ~new) | (two & new) for one, two in zip(lacking, more, strict=True)])
