"""The search of a plan: several unfinished plans side by side (a beam), each given the same task next.

Every way to place the task in every plan is weighed, and the most promising ones are kept.  A plan promises what it
pays already, and what no plan can avoid: the GPUs needed in a piece of time beyond those that it uses there.  So a GPU
that is needed anyway costs nothing, and plans that differ in what they have paid for so far are compared fairly.
Nothing is random.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from dgsf.core.placement.holdings import FreeShares, Holding, OwnedSlices, Slicing, Ways
from dgsf.core.placement.needed import gpus_needed, levels
from dgsf.core.placement.pieces import Interval, Pieces

SAME = 1e-9
Groups = Sequence[Sequence[Sequence[int]]]  # of each GPU, of each slice: tasks


class Lacking(dict[int, "Lacking"]):
    """What is needed beyond the GPUs in use; by pieces, what is lacking once one GPU more is in use in them.

    Plans side by side lack the same most of the time, so each is found once.
    """

    __slots__ = ("_known", "enough", "levels")

    def __init__(self, levels: tuple[int, ...], known: dict[tuple[int, ...], Lacking]) -> None:
        self.levels = levels  # the pieces in which one GPU more is needed, two more, and so on; then none
        self.enough = ~levels[0]  # the pieces in which one GPU more costs its time
        self._known = known

    def __missing__(self, new: int) -> Lacking:
        levels, old = self.levels, ~new
        less = tuple([(one & old) | (two & new) for one, two in zip(levels, (*levels[1:], 0), strict=True)])
        found = self._known.get(less)
        if found is None:
            found = self._known[less] = Lacking(less, self._known)
        self[new] = found
        return found


# A plan of some of the tasks: what it will cost at least (once it is finished, what it costs); the GPUs, the last of
# which holds nothing yet; and what it lacks.
Unfinished = tuple[float, list[Holding], Lacking]
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
        self._places = [self._ways.places(task) for task in range(len(tasks))]
        self.start = self._begun(Lacking(levels(gpus_needed(tasks, self._pieces, slicing)), {}), held)

    def _begun(self, lacking: Lacking, held: Groups) -> Unfinished:
        length = self._pieces.length
        gpus = [self._ways.of(groups) for groups in held]
        least = sum([length[level] for level in lacking.levels])
        for holding in gpus:
            least += length[holding.busy & lacking.enough]
            lacking = lacking[holding.busy]
        return (least, [*gpus, self._nothing], lacking)

    def best(self, order: Sequence[int], width: int, below: float) -> Unfinished | None:
        """The plan that costs least, of those found by placing tasks in this order; none if none is below this."""
        plans = [self.start]
        for place, task in enumerate(order, start=1):
            candidates = self._candidates(plans, task, below - SAME)
            candidates.sort(key=_promise)
            plans = self._made(candidates[: width if place < len(order) else 1], task)
        return plans[0] if plans else None

    def _candidates(self, plans: Sequence[Unfinished], task: int, below: float) -> list[_Candidate]:
        """No two are alike: without their last task, they are other plans, or it is at another place."""
        length, places = self._pieces.length, self._places[task]
        found: list[_Candidate] = []
        for plan in plans:
            least, gpus, lacking = plan
            enough = lacking.enough
            for gpu, holding in enumerate(gpus):
                could = places[holding]
                if could is not None:
                    here, new = could
                    promised = least + length[new & enough]
                    if promised < below:
                        for place in here:
                            found.append((promised, plan, gpu, place))  # noqa: PERF401 (mostly one: a list takes longer)
        return found

    def _made(self, candidates: Sequence[_Candidate], task: int) -> list[Unfinished]:
        """These plans, with the task; all in one call, since there are hundreds of them in a millisecond."""
        taken, span, nothing = self._ways.taken, self._pieces.spans[task], self._nothing
        made: list[Unfinished] = []
        for least, (_, gpus, lacking), gpu, place in candidates:
            before, gpus = gpus[gpu], gpus.copy()
            gpus[gpu] = taken(before, task, place)
            if before is nothing:
                gpus.append(before)
            new = span & ~before.busy & ~lacking.enough
            made.append((least, gpus, lacking[new] if new else lacking))
        return made
