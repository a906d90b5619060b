"""The search of a plan: several unfinished plans side by side (a beam), each given the same task next.

Every way to place the task in every plan is weighed, and the most promising ones are kept.  A plan promises what it
pays already, and what no plan can avoid: the GPUs needed in a piece of time beyond those that it uses there.  So a GPU
that is needed anyway costs nothing, and plans that differ in what they have paid for so far are compared fairly.
Nothing is random.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from dgsf.core.placement.holdings import FreeShares, Holding, OwnedSlices, Slicing, Ways
from dgsf.core.placement.needed import gpus_needed, levels
from dgsf.core.placement.pieces import Interval, Pieces

SAME = 1e-9
Groups = Sequence[Sequence[Sequence[int]]]  # of each GPU, of each slice: tasks


class Unfinished(NamedTuple):
    """A plan of some of the tasks."""

    least: float  # what it will cost at least; once it is finished, what it costs
    gpus: list[Holding]  # the last one holds nothing yet
    lacking: tuple[int, ...]  # the pieces in which one GPU more is needed, two more, and so on; then none


_Candidate = tuple[float, Unfinished, int, int]  # least, before, GPU, place on it
_promise = itemgetter(0)


class SideBySide:
    """Plans for these tasks, which are numbered by their starts; the `held` ones are where they are."""

    def __init__(self, tasks: Sequence[Interval], slicing: Slicing | None, held: Groups = ()) -> None:
        self._pieces = Pieces(tasks)
        self._ways: Ways = (
            FreeShares(tasks, self._pieces) if slicing is None else OwnedSlices(tasks, self._pieces, slicing)
        )
        self._nothing = self._ways.of(())
        self._places = [_Places(self._ways, self._pieces.spans[task], task) for task in range(len(tasks))]
        self.start = self._begun(levels(gpus_needed(tasks, self._pieces, slicing)), held)

    def _begun(self, lacking: tuple[int, ...], held: Groups) -> Unfinished:
        length = self._pieces.length
        gpus = [self._ways.of(groups) for groups in held]
        least = sum([length[level] for level in lacking])
        for holding in gpus:
            least += length[holding.busy & ~lacking[0]]
            lacking = _less(lacking, holding.busy)
        return Unfinished(least, [*gpus, self._nothing], lacking)

    def best(self, order: Sequence[int], width: int, below: float) -> Unfinished | None:
        """The plan that costs least, of those found by placing tasks in this order; none if none is below this."""
        plans = [self.start]
        for task in order:
            candidates = self._candidates(plans, task, below - SAME)
            candidates.sort(key=_promise)
            plans = [self._made(candidate, task) for candidate in candidates[:width]]
        return plans[0] if plans else None

    def _candidates(self, plans: Sequence[Unfinished], task: int, below: float) -> list[_Candidate]:
        """No two are alike: without their last task, they are other plans, or it is at another place."""
        length, places = self._pieces.length, self._places[task]
        found: list[_Candidate] = []
        for plan in plans:
            least, gpus, lacking = plan
            enough = ~lacking[0]
            for gpu, holding in enumerate(gpus):
                here, new = places[holding]
                if here:
                    promised = least + length[new & enough]
                    if promised < below:
                        for place in here:
                            found.append((promised, plan, gpu, place))  # noqa: PERF401 (mostly one: a list takes longer)
        return found

    def _made(self, candidate: _Candidate, task: int) -> Unfinished:
        least, (_, gpus, lacking), gpu, place = candidate
        before, gpus = gpus[gpu], gpus.copy()
        gpus[gpu] = self._ways.taken(before, task, place)
        if before is self._nothing:
            gpus.append(before)
        return Unfinished(least, gpus, _less(lacking, self._pieces.spans[task] & ~before.busy))


class _Places(dict[Holding, tuple[Sequence[int], int]]):
    """Where GPUs could take this task, and in which pieces they would be newly in use; found once for each."""

    def __init__(self, ways: Ways, span: int, task: int) -> None:
        self._ways, self._span, self._task = ways, span, task

    def __missing__(self, holding: Holding) -> tuple[Sequence[int], int]:
        self[holding] = found = (self._ways.places(holding, self._task), self._span & ~holding.busy)
        return found


def _less(lacking: tuple[int, ...], new: int) -> tuple[int, ...]:
    """What is lacking once one GPU more is in use in these pieces."""
    if not new & lacking[0]:
        return lacking
    more = (*lacking[1:], 0)
    return tuple([(one & ~new) | (two & new) for one, two in zip(lacking, more, strict=True)])
