"""Calls and frees become records, or steps of a trace that is being replayed.

The recorder hands out handles, counts calls, defines kinds, matches calls against a template one by one, and
learns new templates at boundaries (wherever a value crosses between guest and device).  It does no I/O and
takes no lock: its stream does both.  On a match nothing is built; a RUN record is made when it is cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from dgsf.remoting.guest.kinds import Kind
from dgsf.remoting.guest.lines import Lines, Spot, here
from dgsf.remoting.guest.numbers import MAX_KINDS, Numbers
from dgsf.remoting.guest.templates import HOLES, LOOSE, Entry, Step, Template
from dgsf.remoting.guest.traces import WINDOW, Library
from dgsf.remoting.protocol import Record

_FREE, _ASK, _RUN = int(Record.FREE), int(Record.ASK), int(Record.RUN)
MAX_SEGMENT = 8192
MAX_MADE = 1 << 20  # more than one operation returns


class Run:
    """A template that is being matched: `done` entries are matched, those from `cut` on are not yet in a record."""

    __slots__ = ("base", "cut", "done", "entries", "first_call", "flat", "floats", "template")

    def __init__(self, template: Template, base: int, first_call: int) -> None:
        self.template = template
        self.base = base
        self.first_call = first_call
        self.entries = template.entries
        self.flat = template.handles(base)
        self.done = 0
        self.cut = 0
        self.floats: list[float] = []


class Recorder:
    """Everything up to the encoded bytes; see `Stream` for the meaning of the methods."""

    def __init__(self, traces: bool = True, freed: deque[int] | None = None, kinds: int = MAX_KINDS) -> None:
        self.records: list[Any] = []
        self.freed: deque[int] = deque() if freed is None else freed
        self.next_handle = 1
        self.calls = 0  # over the whole life of the stream
        self.lines = Lines()
        self.library = Library()
        self.low: float = 0  # `on_low` is called when no more handles than this are in use
        self.on_low: Callable[[], None] = lambda: None
        self.on_frees: Callable[[], None] | None = None  # called when frees became a record, if they do not ride along
        self._freed_count = 0
        self._lowest = self._lowest_before = 0
        self._traces = traces
        self._numbers = Numbers(self.library.forget, kinds)
        self._mark = self._numbers.mark
        self._run: Run | None = None
        self._last: Template | None = None
        self._segment: list[Step] = []
        self._base = 1
        self._spots: list[Spot] = []
        self._spots_from = 1

    # --- the hot path -------------------------------------------------------------------------
    def call(self, kind: Kind, handles: list[int], floats: tuple[float, ...]) -> int:
        if self.freed:
            self.take_frees()
        out = self.next_handle
        self.next_handle = out + kind.outs
        self.calls += 1
        run = self._run
        if run is not None:
            entry = run.entries[run.done]
            if entry[0] is kind and entry[3] == floats and run.flat[entry[1] : entry[2]] == handles:
                run.done += 1
                if run.done == len(run.entries):
                    self._complete(run)
                return out
            if self._step_aside(run, kind, handles, floats, out):
                return out
        elif not self._segment and self._traces and self._start(kind, handles, floats, out):
            return out
        self._plain(kind, handles, floats, out)
        return out

    @property
    def waiting(self) -> bool:
        """Whether anything is not yet taken."""
        run = self._run
        return bool(self.records) or (run is not None and run.done > run.cut)

    def _plain(self, kind: Kind, handles: list[int], floats: tuple[float, ...], out: int) -> None:
        number = kind.number if kind.generation == self._mark else self._define(kind)
        self.records.append([number, out, handles, floats] if floats else [number, out, handles])
        spot = here()
        self._spots.append(spot)
        if self._traces:
            self._learn_step(Step(kind, handles, floats, out, spot))

    def _learn_step(self, step: Step) -> None:
        if not self._segment:
            self._base = step.out
        self._segment.append(step)
        if len(self._segment) >= MAX_SEGMENT:
            self.boundary()
        elif self.library.repeats(step, len(self._segment)):
            self._split_loop()

    def _split_loop(self) -> None:
        """The program is in a loop without boundaries: the segment ended where its last few calls began."""
        index, calls = len(self._segment), 0
        while calls < WINDOW:
            index -= 1
            calls += self._segment[index].kind is not None
        tail = self._segment[index:]
        self._learn(self._segment[:index])
        self._segment, self._base = tail, tail[0].out
        self.library.begin(tail)
        self._enter(tail)

    def _enter(self, tail: list[Step]) -> None:
        """Goes on by a template whose first calls were made already."""
        first = tail[0].kind
        assert first is not None
        for template in self.library.starting_with(first, None):
            run = Run(template, self._base, self.calls - WINDOW + 1)
            if _begins_with(run, tail) and run.done < len(run.entries):
                self._settle_spots(self.calls + 1)
                run.first_call = self.calls - WINDOW + 1
                run.cut = run.done
                self._run, self._segment = run, []
                self._note_lines(run, self.calls + 1)
                return

    # --- matching -----------------------------------------------------------------------------
    def _start(self, kind: Kind, handles: list[int], floats: tuple[float, ...], out: int) -> bool:
        for template in self.library.starting_with(kind, self._last):
            run = Run(template, out, self.calls)
            if _fits(run, 0, kind, handles, floats):
                self._settle_spots(self.calls)
                self._note_lines(run, self.calls)
                self._run = run
                self._base = out
                return self._step(run, kind, handles, floats, out)
        return False

    def _step(self, run: Run, kind: Kind, handles: list[int], floats: tuple[float, ...], out: int) -> bool:
        """Takes the call as the next entry, which it fits."""
        expected = run.entries[run.done][3]
        if expected is HOLES:
            run.floats.extend(floats)
        elif expected is LOOSE:
            self.cut()
            number = kind.number if kind.generation == self._mark else self._define(kind)
            self.records.append([number, out, handles, floats] if floats else [number, out, handles])
            run.cut += 1
        run.done += 1
        if run.done == len(run.entries):
            self._complete(run)
        return True

    def _step_aside(self, run: Run, kind: Kind, handles: list[int], floats: tuple[float, ...], out: int) -> bool:
        """Not plainly the next entry: with holes, a free that did not happen, another template, or the end."""
        while run.entries[run.done][0] is None:
            self.cut()
            run.done += 1
            run.cut = run.done
            if run.done == len(run.entries):
                self._complete(run)
                return not self._segment and self._start(kind, handles, floats, out)
        if _fits(run, run.done, kind, handles, floats):
            return self._step(run, kind, handles, floats, out)
        branch = self._branch(run, kind, handles, floats)
        if branch is not None:
            self.cut()
            branch.cut = branch.done
            self._run = branch
            self._note_lines(branch, self.calls)
            return self._step(branch, kind, handles, floats, out)
        self._leave(run)
        return False

    def _branch(self, run: Run, kind: Kind, handles: list[int], floats: tuple[float, ...]) -> Run | None:
        """Another template that began in the same way and goes on with this call."""
        first = run.entries[0][0]
        assert first is not None
        steps: list[Step] = []
        for template in self.library.starting_with(first, None):
            if template is run.template or len(template.entries) <= run.done:
                continue
            steps = steps or _steps_of(run)
            branch = Run(template, run.base, run.first_call)
            if _begins_with(branch, steps) and _goes_on_with(branch, kind, handles, floats):
                return branch
        return None

    def _complete(self, run: Run) -> None:
        self.cut()
        template = run.template
        template.used += 1
        if template.mark != self._mark:
            self._use(template.entries)
            template.mark = self._mark
        if self._last is not None:
            self._last.follower = template
        self._last = template
        self._spots_from = run.first_call + len(template.lines)
        self._run = None

    def _leave(self, run: Run) -> None:
        """The match ended early: what was matched is the start of a new segment."""
        self.cut()
        self._use(run.entries[: run.done])
        self._spots_from = run.first_call + run.template.calls_before[run.done]
        self._run = None
        self._segment = _steps_of(run)
        self._base = run.base

    def cut(self) -> None:
        """Makes the record of what was matched and not yet taken."""
        run = self._run
        if run is None or run.done == run.cut:
            return
        record = [_RUN, run.template.number, run.base, run.cut, run.done]
        if run.floats:
            record.append(run.floats)  # type: ignore[arg-type]
            run.floats = []
        self.records.append(record)
        run.cut = run.done

    # --- frees, asks, boundaries --------------------------------------------------------------
    def take_frees(self) -> None:
        """Those noted by finalizers until now."""
        freed, handles = self.freed, []
        while freed:
            handles.append(freed.popleft())
        self._freed_count += len(handles)
        live = self.next_handle - self._freed_count
        if live < self._lowest:
            self._lowest = live
        self._note_frees(handles)
        if live <= self.low:
            self.on_low()

    def _note_frees(self, handles: list[int]) -> None:
        run = self._run
        if self.on_frees is not None:
            self.cut()
            self.records.append([_FREE, handles])
            self.on_frees()
            return
        if run is None:
            self.records.append([_FREE, handles])
            if self._segment:
                self._segment.append(Step(None, handles, (), self.next_handle))
            return
        entry = run.entries[run.done]
        if entry[0] is None and run.flat[entry[1] : entry[2]] == handles:
            run.done += 1
            if run.done == len(run.entries):
                self._complete(run)
            return
        self.cut()
        self.records.append([_FREE, handles])

    def ask(self, request: int, kind: Kind, handles: list[int], floats: tuple[float, ...]) -> int:
        """A call that is answered; always by itself, and a boundary."""
        self.boundary()
        out = self.next_handle
        self.next_handle = out + kind.outs
        self.calls += 1
        number = kind.number if kind.generation == self._mark else self._define(kind)
        self.records.append([_ASK, request, number, out, handles, floats])
        self._spots.append(here())
        return out

    def use_up(self, out: int, content: list[Any]) -> None:
        """What an ask made may be more than its kind foresaw: those handles are in use."""
        made = sum(1 for item in content if not isinstance(item, dict))
        self.next_handle = max(self.next_handle, out + made)

    def abandon(self, out: int, foreseen: int) -> None:
        """Nobody waits for an ask any more: what it makes is not known, and must not meet other handles."""
        self.freed.extend(range(out, out + foreseen))
        self.next_handle += MAX_MADE
        self._freed_count += MAX_MADE

    def new_handle(self) -> int:
        self.boundary()
        self.next_handle += 1
        return self.next_handle - 1

    def boundary(self) -> None:
        """A segment ends here: what was seen twice becomes a template."""
        if self.freed:
            self.take_frees()
        if self._run is not None:
            self._leave(self._run)
        segment = self._segment
        if not segment:
            return
        self._learn(segment)
        self._last = None
        self._segment = []
        self.library.begin([])

    def _learn(self, segment: list[Step]) -> None:
        template = self.library.learn(segment, self._base)
        if template is not None:
            record = template.define(self._define)
            if template in self.library:  # not if its last kinds have the numbers of its first ones
                self.records.append(record)

    @property
    def live(self) -> int:
        """Handles in use, about."""
        return self.next_handle - self._freed_count

    def lowest(self) -> int:
        """The fewest handles in use since the question before the last."""
        return min(self._lowest, self._lowest_before)

    def answered(self) -> None:
        """A question was answered: a round of the program, as far as one can tell."""
        self._lowest_before, self._lowest = self._lowest, self.live

    def take(self) -> list[Any]:
        """The records so far; the next ones begin a new batch."""
        self.cut()
        self._settle_spots(self.calls + 1)
        records, self.records = self.records, []
        return records

    # --- lines --------------------------------------------------------------------------------
    def _settle_spots(self, next_call: int) -> None:
        if self._spots:
            self.lines.note(self._spots_from, self._spots.__getitem__)
            self._spots = []
        self._spots_from = next_call

    def _note_lines(self, run: Run, call: int) -> None:
        """From this call on they are the template's, from its next entry on: known before any of them can fail."""
        lines, skipped = run.template.lines, run.template.calls_before[run.done]
        self.lines.note(call, lambda place: lines[skipped + place])

    def all_definitions(self) -> list[Any]:
        """What a new device must be told before anything else."""
        return [*self._numbers.definitions.values(), *(template.wire for template in self.library.templates.values())]

    # --- kinds --------------------------------------------------------------------------------
    def _define(self, kind: Kind) -> int:
        """Its number, which it has from now on if it had none."""
        definition = self._numbers.use(kind)
        self._mark = self._numbers.mark
        if definition is not None:
            self.records.append(definition)
        return kind.number

    def _use(self, entries: list[Entry]) -> None:
        """Calls of these kinds were made by a run: they are as much in use as those that are sent one by one."""
        mark = self._mark
        for entry in entries:
            kind = entry[0]
            if kind is not None and kind.generation != mark:
                self._define(kind)


def _fits(run: Run, index: int, kind: Kind, handles: list[int], floats: tuple[float, ...]) -> bool:
    entry = run.entries[index]
    if entry[0] is not kind:
        return False
    expected = entry[3]
    if expected is LOOSE:
        return len(handles) == entry[2] - entry[1]
    if expected is HOLES:
        if len(floats) != len(run.template.steps[index].floats):
            return False
    elif expected != floats:
        return False
    return run.flat[entry[1] : entry[2]] == handles


def _begins_with(run: Run, tail: list[Step]) -> bool:
    """Moves the run behind these calls, if they are its first; frees do not matter."""
    for step in tail:
        if step.kind is None:
            continue
        while run.done < len(run.entries) and run.entries[run.done][0] is None:
            run.done += 1
        if run.done == len(run.entries) or not _fits(run, run.done, step.kind, step.handles, step.floats):
            return False
        run.done += 1
    return True


def _goes_on_with(run: Run, kind: Kind, handles: list[int], floats: tuple[float, ...]) -> bool:
    """Moves the run to the next call, if it is this one."""
    while run.done < len(run.entries) and run.entries[run.done][0] is None:
        run.done += 1
    return run.done < len(run.entries) and _fits(run, run.done, kind, handles, floats)


def _steps_of(run: Run) -> list[Step]:
    """What was matched, as it would have been recorded."""
    found = []
    for index in range(run.done):
        kind, first, last, expected = run.entries[index]
        step = run.template.steps[index]
        floats = tuple(float("nan") for _ in step.floats) if expected is HOLES else step.floats  # equal to none
        found.append(Step(kind, run.flat[first:last], floats, run.base + run.template.outs[index], step.line))
    return found
