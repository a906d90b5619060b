"""The numbers of kinds on the wire, and which kind gives its number to a new one when there are no more. Pure.

Noting each use of a kind would cost every call something.  So time goes in epochs, each so many new kinds long: a kind
whose mark is not the present one's is looked up here, which notes its use, and then not again until the next epoch.
Whoever was not used for longest goes; what is used in every epoch stays, up to half as many kinds as there are numbers.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from dgsf.remoting.guest.kinds import Kind

MAX_KINDS = 32_768
_EPOCHS = 4  # until all numbers are given anew
_marks = itertools.count(1)  # never the same for two streams


class Numbers:
    """Of one stream; `forget` is told of each kind whose number means another one from now on."""

    def __init__(self, forget: Callable[[Kind], None], limit: int = MAX_KINDS) -> None:
        self.mark = next(_marks)  # a kind that carries it has its number and was used in this epoch
        self.definitions: dict[int, list[Any]] = {}  # as they hold now
        self._forget = forget
        self._limit = limit
        self._of: OrderedDict[Kind, int] = OrderedDict()  # the one that was not used for longest first
        self._given = 0  # in this epoch

    def use(self, kind: Kind) -> list[Any] | None:
        """Sees to it that the kind has a number; the record that defines it, if that is new."""
        number, definition = self._of.get(kind), None
        if number is not None:
            self._of.move_to_end(kind)
        else:
            number = self._new()
            self._of[kind] = number
            definition = self.definitions[number] = kind.definition(number)
        kind.number, kind.generation = number, self.mark
        return definition

    def _new(self) -> int:
        self._given += 1
        if self._given * _EPOCHS > self._limit:
            self._given, self.mark = 0, next(_marks)
        if len(self._of) < self._limit:
            return len(self._of)
        kind, number = self._of.popitem(last=False)
        kind.generation = 0
        self._forget(kind)
        return number
