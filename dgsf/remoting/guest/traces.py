"""The library of templates: which segments were seen, which can be replayed, which fits next.

A segment that is seen a second time with the same kinds of calls becomes a template.  Templates are found by
the kind of their first call, the one that followed last time first.  Old ones make room for new ones, and
their numbers are used again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from dgsf.remoting.guest.kinds import Kind
from dgsf.remoting.guest.templates import Step, Template, common, kinds_of, loosen

MAX_TEMPLATES = 128
MAX_SEEN = 128
MIN_CALLS = 4
WINDOW = 6  # so many equal calls in a row, and far enough apart, are taken for a loop without boundaries
MIN_PERIOD = 8
_NEAR = 64  # handles this close are compared by distance, others as they are


class Library:
    """Learns segments and finds templates."""

    def __init__(self) -> None:
        self.templates: dict[int, Template] = {}
        self._first: dict[Kind, list[Template]] = {}
        self._seen: OrderedDict[tuple[Kind, ...], tuple[list[Step], int]] = OrderedDict()
        self._learnt = 0
        self._window: list[Any] = []
        self._windows: dict[tuple[Any, ...], int] = {}

    # --- finding ------------------------------------------------------------------------------
    def starting_with(self, kind: Kind, last: Template | None) -> list[Template]:
        found = self._first.get(kind)
        if found is None:
            return []
        follower = last.follower if last is not None else None
        if follower is not None and len(found) > 1 and follower in found:
            return [follower, *(template for template in found if template is not follower)]
        return found

    def branches(self, template: Template, position: int, kind: Kind) -> list[Template]:
        """Others that are the same up to here and go on with this kind."""
        first = template.entries[0][0]
        assert first is not None
        return [other for other in self._first.get(first, ()) if _branches_off(template, other, position, kind)]

    # --- learning -----------------------------------------------------------------------------
    def learn(self, segment: list[Step], base: int) -> Template | None:
        """A new template, if this is the second time."""
        key = kinds_of(segment)
        if len(key) < MIN_CALLS:
            return None
        before = self._seen.pop(key, None)
        self._seen[key] = (segment, base)
        if len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)
        if before is None:
            return None
        template = common(self._free_number(), before[0], before[1], segment, base)
        if template is not None:
            self._add(template)
        return template

    def repeats(self, step: Step, position: int) -> bool:
        """Whether the program seems to be where it was some calls ago, so that the segment should end here."""
        out = step.out
        self._window.append((step.kind, *[out - h if out - h < _NEAR else -h for h in step.handles]))
        if len(self._window) < WINDOW:
            return False
        window = tuple(self._window)
        del self._window[0]
        seen = self._windows.setdefault(window, position)
        return position - seen >= MIN_PERIOD

    def begin(self, tail: list[Step]) -> None:
        """A segment begins with these steps."""
        self._window.clear()
        self._windows.clear()
        for position, step in enumerate(tail, 1):
            if step.kind is not None:
                self.repeats(step, position)

    def forget(self, kind: Kind) -> None:
        """This kind's number will mean something else: templates with it are void."""
        for template in [t for t in self.templates.values() if any(entry[0] is kind for entry in t.entries)]:
            self._remove(template)
        for key in [key for key in self._seen if kind in key]:
            del self._seen[key]

    def _add(self, template: Template) -> None:
        first = template.entries[0][0]
        assert first is not None
        old = self.templates.get(template.number)
        if old is not None:
            self._remove(old)
        self._drop_equals(template, first)
        self.templates[template.number] = template
        self._first.setdefault(first, []).insert(0, template)

    def _drop_equals(self, template: Template, first: Kind) -> None:
        """An older template of the same calls did not fit: what it had otherwise is not to be relied on."""
        key = kinds_of(template.steps)
        for other in [other for other in self._first.get(first, ()) if kinds_of(other.steps) == key]:
            loosen(template, other)
            self._remove(other)

    def _remove(self, template: Template) -> None:
        del self.templates[template.number]
        first = template.entries[0][0]
        assert first is not None
        self._first[first].remove(template)
        for other in self.templates.values():
            if other.follower is template:
                other.follower = None

    def _free_number(self) -> int:
        if len(self.templates) < MAX_TEMPLATES:
            while self._learnt % MAX_TEMPLATES in self.templates:
                self._learnt += 1
            return self._learnt % MAX_TEMPLATES
        return min(self.templates.values(), key=lambda template: template.used).number


def _branches_off(template: Template, other: Template, position: int, kind: Kind) -> bool:
    if other is template or len(other.entries) <= position or other.entries[position][0] is not kind:
        return False
    end = template.entries[position][1]
    return (
        other.entries[:position] == template.entries[:position]
        and other.outs[:position] == template.outs[:position]
        and bool((other.values[:end] == template.values[:end]).all())
        and bool((other.moving[:end] == template.moving[:end]).all())
    )
