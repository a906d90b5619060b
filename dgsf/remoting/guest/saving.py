"""Takes checkpoints: decides when, asks for the state, and joins it while the program goes on.

The program does not wait for a checkpoint.  Its bytes are read by a thread that lives only as long, because a
program that is busy elsewhere must not let them pile up on their way.  The journal keeps everything until the
state is complete; a device that is lost in between costs nothing but the attempt.  One that fails, for whatever
reason, is thrown away whole and tried again later; if the journal is full by then, survival gives way, not the program.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dgsf.core.checkpointing import Attempts, CheckpointCost, CheckpointPolicy, time_lost
from dgsf.errors import ConnectionLost, DgsfError
from dgsf.remoting.guest.answers import Question
from dgsf.remoting.guest.checkpoint import absorb
from dgsf.remoting.guest.copies import Copies
from dgsf.remoting.guest.journal import Mark
from dgsf.remoting.guest.recorder import Recorder
from dgsf.remoting.guest.room import Room
from dgsf.remoting.guest.uploads import Uploads, digests_in
from dgsf.remoting.protocol import FROM_NOTHING, Record

if TYPE_CHECKING:
    from dgsf.remoting.guest.survival import Survival

_SYNC, _SNAPSHOT = int(Record.SYNC), int(Record.SNAPSHOT)
_KEPT_BYTES = 512 * 1024**2  # of memory for states: two take turns, and there are two whenever one arrives
_SPARE = 1.25  # times the last state: so much of it is kept for the next one when nobody reads it
_SHRUNK = 0.75  # of a state that there was no memory for: it may be smaller by the next attempt
_BOUNDS = CheckpointPolicy()
_PAGES_FROM = 64 * 1024
_PATIENCE = 0.5  # of the replay bound: so much work a due checkpoint lets pass to find few tensors alive


@dataclass(slots=True)
class Saving:
    """A checkpoint on its way."""

    done: Question  # everything before it is done
    state: Question
    mark: Mark  # what it covers of the journal
    definitions: list[Any]
    calls: int
    busy: float
    began: float | None = None  # when the device had done all before it and turned to it
    copied: float | None = None  # when it turned to what was behind it
    ended: float | None = None  # when the last byte was here
    calls_ended: int = 0  # and how many calls had been made by then


class Saver:
    """One at a time."""

    def __init__(
        self,
        link: Survival,
        recorder: Recorder,
        uploads: Uploads,
        policy: CheckpointPolicy | None,
        now: Callable[[], float],
        room: Room,
    ) -> None:
        self.cost = CheckpointCost()
        self.checkpoints = 0
        self._link = link
        self._recorder = recorder
        self._uploads = uploads
        self._policy = policy
        self._now = now
        self._memory = Copies(_KEPT_BYTES, room)
        self._attempts = Attempts()
        self._lacked = 0  # bytes that there was no memory for the last time
        self._why = ""  # the last one came to nothing
        self._sizes = (0, 0)  # of memory for the last two states, the last one first
        self._saving: Saving | None = None
        self._calls_saved = 0  # calls that the last checkpoint covers
        self._busy_meanwhile = 0.0  # work that was done while it was under way, or that was none of the program's
        self._worked_until = 0.0  # when the device was lost
        self._due_since: float | None = None  # in seconds of work; while the program rests, nothing changes
        self._answered = 0.0  # work that there was to replay at the last answer

    def answered(self, now: float) -> None:
        """A round of the program is over: a good moment, and the next one is probably a round away."""
        busy = self._busy(now)
        round_seconds, self._answered = busy - self._answered, busy
        self.consider(now, max(0.0, round_seconds))

    def consider(self, now: float, ahead: float = 0.0) -> None:
        """Takes a finished one, or begins one if it is time to; the journal keeps its bound whatever it takes."""
        if self._policy is None or self._link.recovering:
            return
        if self._saving is not None:
            self.take_if_here()
        elif self._attempts.may_try(now) and self._is_time(now, ahead):
            self._begin()
        if not self._policy.has_room(self._link.kept_bytes):
            self.make_room()

    def _is_time(self, now: float, ahead: float) -> bool:
        """Whether one is due, and this is a good moment for it."""
        assert self._policy is not None
        busy = self._busy(now)
        if not self._is_due(busy, ahead):
            return False
        if self._due_since is None:
            self._due_since = busy
        self._recorder.low = self._recorder.lowest() * 1.02 + 2
        patience = self._policy.replay_seconds * _PATIENCE
        few = self._recorder.live <= self._recorder.low
        return few or self._policy.is_full(self._link.kept_bytes) or busy - self._due_since >= patience

    def save_now(self) -> None:
        """Saves all calls until now, and waits for it; a device that is lost meanwhile costs the attempt."""
        if self._policy is None:
            return
        if self._saving is not None:  # it began earlier, and what is held back since then is not in it
            self._finish(self._saving)
        while self._saving is None:
            if not self._begin():
                return
        self._finish(self._saving)

    def make_room(self, more: int = 0) -> None:
        """Returns when so many more bytes may be kept: the program waits for a checkpoint, or goes on without any."""
        if self._has_room(more):
            return
        if self._saving is not None:
            self._finish(self._saving)
        if not self._has_room(more):
            self.save_if_it_may_help()
        if not self._has_room(more):
            self.give_way()

    def save_if_it_may_help(self) -> None:
        """Memory is short: a checkpoint gives back what the journal keeps, unless one has just failed."""
        if not self._link.recovering and self._attempts.may_try(self._now()):
            self.save_now()

    def _has_room(self, more: int) -> bool:
        bounds = self._policy or _BOUNDS
        return self._link.recovering or bounds.has_room(self._link.kept_bytes, more)

    def give_way(self) -> None:
        """Nothing is kept from now on: to lose the device is final, until a checkpoint succeeds after all."""
        link = self._link
        if link.recovering:
            return
        saving, self._saving = self._saving, None
        if saving is not None:
            self._throw_away(saving)
        link.confirm()
        if self._policy is not None:
            link.give_way(self._why or "there is no memory for it")
            self._memory.release((), 0)
        self._uploads.keep_only(digests_in(self._recorder.records))

    def _throw_away(self, saving: Saving) -> None:
        """Its bytes may still arrive: to nobody."""
        self._link.answers.close(saving.state)
        self._link.channel.intake.sinks.pop(saving.state.number, None)
        saving.state.finish()

    def _finish(self, saving: Saving) -> None:
        self._link.wait(saving.done)
        while self._saving is saving and not saving.state.done:
            self._link.wait(saving.state)
        self.take_if_here()

    def forget(self) -> None:
        """The device that was asked, if one was, is lost; the time that the attempt took is owed all the same."""
        self.cost.begin_again()
        saving, self._saving = self._saving, None
        if saving is not None:
            self._link.answers.close(saving.state)
            saving.state.finish()
            self.cost.owe(self._lost(saving), paid=0.0)
        self._worked_until = saving.busy if saving is not None else self._busy(self._now())

    def recovered(self) -> None:
        """A state was brought back, or an attempt at it ended: that was no work of the program's."""
        self._busy_meanwhile += max(0.0, self._busy(self._now()) - self._worked_until)

    def _busy(self, now: float) -> float:
        link = self._link
        return link.busy + (now - link.busy_since if link.busy_since is not None else 0.0)

    def _is_due(self, busy: float, ahead: float) -> bool:
        assert self._policy is not None
        worked, journal, cost = busy - self._busy_meanwhile, self._link.kept_bytes, self.cost.seconds
        return self._policy.due(busy=busy, worked=worked, cost=cost, journal_bytes=journal, ahead=ahead)

    def _begin(self) -> bool:
        """Asks for the state; False if there is no use in that."""
        if self._lacked and not self._memory.has_place(self._lacked):
            self._lacked = int(self._lacked * _SHRUNK)
            self._came_to_nothing(self._why)
            return False
        link, recorder = self._link, self._recorder
        done, state = link.question(), link.question(lambda content: int(content[1]))
        done.on_done, state.place_of = self._told, self._place
        records = [*recorder.take(), [_SYNC, done.number]]  # an error before it is told to the SYNC, also in a replay
        link.send(records)
        link.count_busy()
        if link.adrift:
            link.journal.begin_anew()
        saving = Saving(done, state, link.journal.mark(), recorder.all_definitions(), recorder.calls, link.busy)
        self._saving = saving
        state.on_done = self._arrived
        self._due_since = None
        recorder.low = 0
        if not self._start_reader(saving):
            self._saving = None
            self._throw_away(saving)
            self._came_to_nothing("no thread can be started to read it")
            return False
        link.send([], state, [_SNAPSHOT, state.number, FROM_NOTHING if link.adrift else link.saved.number])
        return True

    def _start_reader(self, saving: Saving) -> bool:
        reader = threading.Thread(target=self._drain, args=(saving,), name="dgsf-checkpoint", daemon=True)
        try:
            reader.start()
        except (RuntimeError, MemoryError):
            return False
        return True

    def _place(self, size: int) -> memoryview:
        """Where the bytes go of a state that was copied just now."""
        if self._saving is not None:
            self._saving.copied = self._now()
        self._lacked = _rounded(size)
        place = self._memory.place(self._lacked)[:size]
        self._lacked = 0
        return place

    def _place_apart(self, size: int) -> memoryview:
        """For what is left of an old state; few bytes need no pages of their own."""
        return self._memory.place(size) if size >= _PAGES_FROM else memoryview(bytearray(size))

    def _told(self, done: Question) -> None:
        """Everything before the snapshot is done; an error of it is for the program, when it asks."""
        if self._saving is not None and self._saving.done is done:
            self._saving.began = self._now()
        self._link.answers.close(done)
        if done.failure is not None:
            self._link.owe(done.failure)

    def _arrived(self, state: Question) -> None:
        if self._saving is not None and self._saving.state is state:
            self._saving.ended, self._saving.calls_ended = self._now(), self._recorder.calls

    def _drain(self, saving: Saving) -> None:
        channel = self._link.channel
        try:
            channel.drain(lambda: saving.state.done or not self._link.whole)
        except DgsfError as error:
            self._link.broke(channel, error)
        except Exception as error:  # half a frame may be read: there is no way back into step
            self._link.broke(channel, ConnectionLost(f"reading a checkpoint failed: {error!r}"))

    @property
    def here(self) -> bool:
        """Whether all of one has come that is not taken yet."""
        return self._saving is not None and self._saving.state.done

    def take_if_here(self) -> None:
        """A complete state counts from now on, also if the device that gave it is lost."""
        saving = self._saving
        if saving is not None and saving.state.done:
            self._saving = None
            self._link.answers.close(saving.state)
            self._save(saving)

    def _save(self, saving: Saving) -> None:
        link, lost, paid = self._link, self._lost(saving), self._paid(saving)
        trouble = self._absorb(saving)
        if trouble:
            self.cost.owe(lost, paid)
            self._came_to_nothing(trouble)
        else:
            size = len(saving.state.bulk or b"")
            self.cost.measure(size, lost, paid)
            self._release(_rounded(size))
            self._attempts.succeeded()
            self.checkpoints += 1
            link.busy = max(0.0, link.busy - saving.busy)
            self._answered -= saving.busy
            self._calls_saved = saving.calls
            link.tell_kept()
        self._busy_meanwhile = self._busy(self._now())

    def _absorb(self, saving: Saving) -> str:
        """Makes it the state that counts; why not, if it cannot."""
        link, state = self._link, saving.state
        if state.failure is not None or state.bulk is None:
            return state.failure[2] if state.failure is not None else str(state.trouble or "the device sent no state")
        try:
            saved = absorb(link.saved, state.content, state.bulk, saving.definitions, saving.calls, self._place_apart)
        except Exception as error:  # of whatever kind: the program goes on with what it has
            return str(error) or repr(error)
        link.saved, link.adrift = saved, ""
        link.journal.drop(saving.mark)
        held_back = digests_in(self._recorder.records)  # named already, and in no journal before they are sent
        self._uploads.keep_only(saved.digests | link.journal.digests | held_back, saved.digests)
        return ""

    def _came_to_nothing(self, why: str) -> None:
        """The state before it still counts, if there is one; another is tried later."""
        self._why = why
        self._attempts.came_to_nothing(self._now())
        self._memory.release((), 0)
        if self._link.adrift:
            self._link.journal.give_up()

    def _release(self, size: int) -> None:
        """The state before is not read any more; what the next ones will not need goes back."""
        self._sizes = (size, self._sizes[0])
        self._memory.release(self._sizes, int(size * _SPARE))

    def _lost(self, saving: Saving) -> float:
        """What it cost, by how much slower the program made its calls meanwhile."""
        if saving.began is None:  # the device never came to it
            return 0.0
        usual = (saving.calls - self._calls_saved) / saving.busy if saving.busy else 0.0
        copied = saving.copied - saving.began if saving.copied is not None else 0.0
        ended, calls = saving.ended, saving.calls_ended
        if ended is None:  # it never will
            ended, calls = self._now(), self._recorder.calls
        return time_lost(ended - saving.began, calls - saving.calls, usual, copied)

    def _paid(self, saving: Saving) -> float:
        """What the work before it was good for."""
        share = self._policy.share_for(saving.busy) if self._policy is not None else 0.0
        return share * (saving.busy - self._busy_meanwhile)


def _rounded(size: int) -> int:
    """A little more: states of one program differ by a few bytes, and memory is found again by its size."""
    unit = 1 << max(16, size.bit_length() - 4)
    return -(-size // unit) * unit
