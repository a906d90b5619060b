"""The library of templates: which segments were seen, which can be replayed, which fits next.

A segment that is seen a second time with the same kinds of calls becomes a template.  Templates are found by
the kind of their first call, the one that followed last time first.  Old ones make room for new ones, and
their numbers are used again.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from dgsf.remoting.guest.kinds import Kind
from dgsf.remoting.guest.templates import Step, Template, common, equal, kinds_of, loosen

MAX_TEMPLATES = 100
MAX_SEEN_STEPS = 100_000  # of segments that were seen once
MIN_CALLS = 4
WINDOW = 24  # so many equal calls in a row are taken for a loop without boundaries; the layers of a model are none
MIN_PERIOD = 8
_FACTOR = 6364136223846793005
_MASK = (1 << 64) - 1
_OLDEST = pow(_FACTOR, WINDOW, 1 << 64)
_NEAR = 64  # handles this close are compared by distance, others as they are


class Library:
    """Learns segments and finds templates."""

    def __init__(self) -> None:
        self.templates: dict[int, Template] = {}
        self._first: dict[Kind, list[Template]] = {}
        self._holding: dict[Kind, set[Template]] = {}  # by any kind in them
        self._seen: OrderedDict[tuple[Kind, ...], tuple[list[Step], int]] = OrderedDict()
        self._seen_steps = 0
        self._learnt = 0
        self._replaced = 0
        self._window: deque[int] = deque()
        self._rolling = 0  # the hash of the last calls
        self._windows: dict[int, int] = {}

    # --- finding ------------------------------------------------------------------------------
    def starting_with(self, kind: Kind, last: Template | None) -> list[Template]:
        """The one that followed last time, then those that say most in one run."""
        found = self._first.get(kind)
        if found is None:
            return []
        follower = last.follower if last is not None else None
        if follower is not None and len(found) > 1 and follower in found:
            return [follower, *(template for template in found if template is not follower)]
        return found

    # --- learning -----------------------------------------------------------------------------
    def learn(self, segment: list[Step], base: int) -> Template | None:
        """A new template, if this is the second time."""
        key = kinds_of(segment)
        if len(key) < MIN_CALLS:
            return None
        before = self._seen.pop(key, None)
        self._seen[key] = (segment, base)
        self._forget_old(len(segment) - (len(before[0]) if before is not None else 0))
        if before is None:
            return None
        template = common(self._free_number(), before[0], before[1], segment, base)
        return template if template is not None and self._add(template, key) else None

    def repeats(self, step: Step, position: int) -> bool:
        """Whether the program seems to be where it was some calls ago, so that the segment should end here."""
        out = step.out
        now = hash((step.kind, *[out - h if out - h < _NEAR else -h for h in step.handles]))
        window = self._window
        window.append(now)
        self._rolling = (self._rolling * _FACTOR + now) & _MASK
        if len(window) > WINDOW:
            self._rolling = (self._rolling - window.popleft() * _OLDEST) & _MASK
        if len(window) < WINDOW:
            return False
        seen = self._windows.setdefault(self._rolling, position)
        return position - seen >= MIN_PERIOD

    def begin(self, tail: list[Step]) -> None:
        """A segment begins with these steps."""
        self._window.clear()
        self._windows.clear()
        self._rolling = 0
        for position, step in enumerate(tail, 1):
            if step.kind is not None:
                self.repeats(step, position)

    def forget(self, kind: Kind) -> None:
        """This kind's number will mean something else: templates with it are void.

        Segments that were seen once stay: they name kinds, not numbers.
        """
        for template in list(self._holding.get(kind, ())):
            self._remove(template)

    def __contains__(self, template: Template) -> bool:
        return self.templates.get(template.number) is template

    def _forget_old(self, more: int) -> None:
        """Segments that were seen long ago make room for so many more steps."""
        self._seen_steps += more
        while self._seen_steps > MAX_SEEN_STEPS and len(self._seen) > 1:
            _, (segment, _) = self._seen.popitem(last=False)
            self._seen_steps -= len(segment)

    def _add(self, template: Template, key: tuple[Kind, ...]) -> bool:
        """False if it says nothing new."""
        for other in [other for other in self._first.get(key[0], ()) if kinds_of(other.steps) == key]:
            loosen(template, other)  # what did not fit once is not to be relied on
            if equal(template, other):
                return False
            self._remove(other)
        old = self.templates.get(template.number)
        if old is not None:
            self._remove(old)
            self._age()
        self.templates[template.number] = template
        for kind in set(key):
            self._holding.setdefault(kind, set()).add(template)
        same = self._first.setdefault(key[0], [])
        same.append(template)
        same.sort(key=lambda item: (item.loose * 8 > len(item.entries), -len(item.entries)))
        return True

    def _age(self) -> None:
        """Once as many were replaced as there can be, uses count half: else a part of the program that is over would
        keep its templates, and those of the next part replace each other."""
        self._replaced += 1
        if self._replaced % MAX_TEMPLATES == 0:
            for template in self.templates.values():
                template.used //= 2

    def _remove(self, template: Template) -> None:
        del self.templates[template.number]
        key = kinds_of(template.steps)
        self._first[key[0]].remove(template)
        if not self._first[key[0]]:
            del self._first[key[0]]
        for kind in set(key):
            self._holding[kind].discard(template)
            if not self._holding[kind]:
                del self._holding[kind]
        for other in self.templates.values():
            if other.follower is template:
                other.follower = None

    def _free_number(self) -> int:
        if len(self.templates) < MAX_TEMPLATES:
            while self._learnt % MAX_TEMPLATES in self.templates:
                self._learnt += 1
            return self._learnt % MAX_TEMPLATES
        return min(self.templates.values(), key=lambda template: template.used).number
