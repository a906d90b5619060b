"""The connection of a session that outlives its devices, and its proxy if there is a way to another one.

Sends batches and questions, keeps the journal, and brings everything back on a new device when the proxy says
`Lost`, or over a new connection when the proxy itself is gone.  Whatever was being sent or awaited at that moment
simply goes on: a journalled batch is part of the replay, an open question is asked again behind it.  The stream's
lock is held by every caller.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from dgsf.core.checkpointing import CheckpointPolicy
from dgsf.errors import ConnectionLost, DgsfError, OpCrashed, ProtocolError, SessionLost
from dgsf.remoting.guest.answers import Answers, Question
from dgsf.remoting.guest.bodies import decode_records, encode_records, in_frames, with_question
from dgsf.remoting.guest.channel import Buffer, Channel
from dgsf.remoting.guest.checkpoint import NOTHING, Checkpoint
from dgsf.remoting.guest.journal import Journal, Transfer
from dgsf.remoting.guest.recorder import Recorder
from dgsf.remoting.guest.room import Room
from dgsf.remoting.guest.saving import Saver
from dgsf.remoting.guest.stepping import Stepper
from dgsf.remoting.guest.trial import Doubts, Trial
from dgsf.remoting.guest.uploads import Uploads, digests_in
from dgsf.remoting.protocol import Record
from dgsf.wire.frames import Frame
from dgsf.wire.frames import Kind as FrameKind
from dgsf.wire.messages import Failure
from dgsf.wire.session import Began, Begin, End, Ended, Lost, Replayed, read_from_proxy

log = logging.getLogger(__name__)
_SYNC, _RESTORE, _KEPT = int(Record.SYNC), int(Record.RESTORE), int(Record.KEPT)
LOOK_SECONDS = 0.02  # how often arriving bytes are looked at while nothing is awaited
MAX_LOSSES_IN_A_ROW = 8
DEFINITIONS_PER_FRAME = 500
Reopen = Callable[[str], socket.socket]  # another connection, to go on with what the session of this id had
GONE = "the proxy of this session is gone and its device state with it; attach again"


class _LostAgain(Exception):
    """While bringing back the state, that device was lost too."""


class Survival:
    """One session, from the first `Begin` to the end, over any number of generations."""

    def __init__(
        self,
        sock: socket.socket,
        recorder: Recorder,
        uploads: Uploads,
        policy: CheckpointPolicy | None,
        now: Callable[[], float],
        reopen: Reopen | None = None,
        room: Room | None = None,
    ) -> None:
        room = room or Room()
        self.channel = Channel(sock, self._deliver)
        self.answers = Answers(self._on_need, self.owe)
        self.began: Began | None = None
        self.losses = self.round_trips = self.frames = 0
        self.journal = Journal(room, keeping=policy is not None)
        self.adrift = ""  # why nothing is kept; a loss is final then
        self._warned = False
        self.saved: Checkpoint = NOTHING
        self.saver = Saver(self, recorder, uploads, policy, now, room)
        self._recorder = recorder
        self._uploads = uploads
        self._policy = policy
        self._now = now
        self._reopen = reopen
        self._breaking = threading.Lock()
        self._cut = False  # the connection is gone, not only the device
        self._generation = 0
        self._begun = 0  # the last generation of this connection that has a device
        self._calls_before = 0  # this generation
        self._lost: Lost | None = None
        self._doubts = Doubts()
        self._dead: DgsfError | None = None
        self._owed: DgsfError | None = None
        self._owed_of_trial = False
        self.busy = 0.0  # seconds that the device may have worked since the last checkpoint
        self.busy_since: float | None = None
        self._next_look = 0.0
        self.recovering = False

    # --- begin and end ------------------------------------------------------------------------
    def open(self) -> None:
        try:
            self._begin()
        except _LostAgain:
            self._recover()

    def close(self) -> None:
        if self._dead is None:
            self._dead = SessionLost("this session is closed")
            with contextlib.suppress(ConnectionLost):
                self.channel.say(End())  # behind what waits, if that is taken now: who cannot wait is not told
        self.channel.close()

    def abandon(self) -> None:
        """Close this process's copy of the connection; the parent's goes on."""
        self._dead = SessionLost("this session belongs to the parent process")
        self.channel.close()

    def _begin(self) -> None:
        """Asks for a device and waits for it."""
        if self._cut:
            self._connect_again()
        self._generation += 1
        self._lost = None
        self.channel.sent = 0
        self.channel.intake.sinks.clear()
        self.answers.start_over()
        self._uploads.needed.clear()
        self._guarded(lambda: self.channel.say(Begin("torch", self._generation)))
        self._guarded(self.channel.settle)
        while not self._has_begun():
            self._guarded(lambda: self.channel.receive(wait=True, until=self._has_begun))
        self.check_alive()
        if self._lost is not None:
            raise _LostAgain

    def _has_begun(self) -> bool:
        return not self.whole or self._begun == self._generation

    def _connect_again(self) -> None:
        """Another connection in the place of the one that is gone; a session of its own to whoever is there."""
        assert self._reopen is not None
        old = self.channel
        old.close()
        sock = self._reopen("" if self.began is None else str(UUID(bytes=self.began.session)))
        channel = Channel(sock, self._deliver)
        channel.bytes_in, channel.bytes_out = old.bytes_in, old.bytes_out
        self._generation = self._begun = 0
        with self._breaking:
            self.channel, self._cut = channel, False

    # --- sending ------------------------------------------------------------------------------
    def send(
        self,
        records: list[Any],
        question: Question | None = None,
        record: list[Any] | None = None,
        transfer: tuple[int, memoryview] | None = None,
    ) -> None:
        """A batch; behind it a question that only reads (it is asked again after a loss), or announced bulk bytes."""
        self.check_alive()
        try:
            self._queue(records, question, record, transfer)
        except Exception:
            raise
        except BaseException:  # somebody insisted: what is queued and what is lost is not known
            self.fail(SessionLost("interrupted while sending"))
            raise
        if self._lost is None:
            self._guarded(self.channel.settle)  # whoever is interrupted here may go on as if nothing had been
        self._mend()

    def _queue(
        self,
        records: list[Any],
        question: Question | None,
        record: list[Any] | None,
        transfer: tuple[int, memoryview] | None,
    ) -> None:
        if self.busy_since is None:
            self.busy_since = self._now()
        bodies = in_frames(records) if records else []
        for body in bodies:
            self.journal.note(body)
        if self.journal.keeping:
            for digest in digests_in(records):
                self.journal.note_name(digest)
        if question is not None:
            question.again = record
            if record is not None:
                bodies = with_question(bodies, record)
        if self._lost is None:
            for body in bodies:
                self._command(body)
        if transfer is not None:
            number, data = transfer
            self.journal.note_transfer(number, data)
            if self._lost is None:
                self._guarded(lambda: self.channel.bulk(number, [data]))

    def send_all(self) -> None:
        """Returns when all that is queued has been sent, or the device is lost."""
        self._guarded(self.channel.settle)

    def tell_kept(self) -> None:
        """A replay would begin at the state that was saved just now: the device that gave it counts from there."""
        if self.whole and not self.recovering:
            self._command(encode_records([[_KEPT, self.saved.number]]))

    def _command(self, body: bytes) -> None:
        self.frames += 1
        self._guarded(lambda: self.channel.command(body))

    @property
    def kept_bytes(self) -> int:
        """What a checkpoint would make superfluous."""
        return self.journal.bytes + self._uploads.loose_bytes

    def confirm(self) -> None:
        """Returns when all until now is done; an error that is told meanwhile is for whoever asks next."""
        told = self.question()
        try:
            self.send(self._recorder.take(), told, [_SYNC, told.number])
            self.wait(told)
        finally:
            self.answers.close(told)
        if told.failure is not None:
            self.owe(told.failure)

    def give_way(self, why: str) -> None:
        """What there is to go on from on another device is dropped."""
        self.adrift, self.saved = why, NOTHING
        self.journal.give_up()
        if not self._warned:
            self._warned = True
            log.warning("the session goes on, but a loss of its device is final: its state cannot be kept (%s)", why)

    # --- waiting ------------------------------------------------------------------------------
    def question(self, size_of: Callable[[Any], int] | None = None) -> Question:
        self.check_alive()
        return self.answers.question(size_of)

    def wait(self, question: Question) -> None:
        self.round_trips += 1
        self._guarded(self.channel.settle)  # an interrupted program may have left something
        self._mend()
        while not question.done:  # another thread may have read what there is to know
            self._guarded(lambda: self.channel.receive(wait=True, until=lambda: question.done or self._is_called))
            self._mend()
        if question.failure is not None and question.again is not None:
            self.journal.note(encode_records([[_SYNC, question.number]]))
        self._uploads.answered()
        self._recorder.answered()
        self.journal.all_done()
        self._doubts.answered()
        self.count_busy()
        self.busy_since = None

    def count_busy(self) -> None:
        """What was worked until now is in `busy`."""
        if self.busy_since is not None:
            now = self._now()
            self.busy, self.busy_since = self.busy + now - self.busy_since, now

    def look(self, now: float) -> None:
        """Takes what has arrived unasked; saves the state if it is time to."""
        if self._uploads.unconfirmed or now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            self._guarded(lambda: self.channel.receive(wait=False))
            self._mend()
            self.saver.consider(now)

    def look_soon(self) -> None:
        self._next_look = 0.0

    def owe(self, failure: tuple[int, str, str]) -> None:
        """An error that the program will hear of when it asks for something."""
        self._owed = self._owed or self.error(failure)

    def _owe_of_trial(self, failure: tuple[int, str, str]) -> None:
        """The journal knows nothing of a trial's SYNCs: whoever replays it will tell this error again."""
        if self._owed is None:
            self.owe(failure)
            self._owed_of_trial = True

    def raise_owed(self) -> None:
        """An error that was found while the program did not ask."""
        if self._owed is not None:
            error, self._owed = self._owed, None
            if self._owed_of_trial:
                self._owed_of_trial = False
                told = self.answers.question()
                self.answers.close(told)
                self.journal.note(encode_records([[_SYNC, told.number]]))
            try:
                raise error
            finally:
                del error  # a frame that holds its own error would keep the call's tensors

    def _forget_owed_of_trial(self) -> None:
        """Its device is lost before the program heard of it."""
        if self._owed_of_trial:
            self._owed, self._owed_of_trial = None, False

    def error(self, failure: tuple[int, str, str]) -> DgsfError:
        """What the executor told; its calls are counted anew in each generation."""
        call, code, message = failure
        return self._recorder.lines.error(self._calls_before + call if call > 0 else 0, code, message)

    @property
    def whole(self) -> bool:
        """Whether there is a device, as far as is known."""
        return self._lost is None and self._dead is None

    # --- what arrives -------------------------------------------------------------------------
    def _deliver(self, frame: Frame) -> None:
        if frame.kind == FrameKind.ANSWER:
            bulk = self.answers.take(frame.body)
            if bulk is not None:
                self.channel.intake.sinks[bulk[0]] = bulk[1]
        elif frame.kind == FrameKind.SESSION:
            self._hear(read_from_proxy(frame.body))
        else:
            raise ProtocolError(f"a guest got a frame of kind {frame.kind}")

    def _hear(self, message: Began | Lost | Ended) -> None:
        if isinstance(message, Began):
            self.began, self._begun = message, message.generation
        elif isinstance(message, Lost):
            if message.generation == self._generation:
                self._lost = message
        else:
            failure = message.failure
            self._dead = failure.error() if failure is not None else SessionLost("the session was ended")

    def _on_need(self, digests: list[bytes]) -> None:
        self._uploads.needed.extend(digests)

    def _guarded(self, work: Callable[[], Any]) -> None:
        """Work with the channel; if that breaks, the session is lost or over, as whoever mends will see."""
        channel = self.channel
        try:
            work()
        except ConnectionLost as error:
            self.broke(channel, error)
            self.check_alive()

    def broke(self, channel: Channel, error: DgsfError) -> None:
        """This channel is of no use any more: whatever was said before tells why, else the proxy is gone."""
        with self._breaking:  # the thread of a checkpoint may have met it, too
            if channel is not self.channel or self._cut or self._dead is not None:
                return
            channel.last_words()
            if self._dead is None and self._can_reopen(channel, error):
                self._lost = self._lost or Lost(self._generation, Failure.of(error))
                self._cut = True
            else:
                self.fail(error)

    def _can_reopen(self, channel: Channel, error: DgsfError) -> bool:
        way_there = self._reopen is not None and self._policy is not None and not self.adrift
        return way_there and isinstance(error, ConnectionLost) and not channel.interrupted

    def fail(self, error: DgsfError) -> None:
        """The session is over; whoever uses it next is told."""
        if self._dead is None:
            broken = isinstance(error, ConnectionLost | ProtocolError)
            self._dead = SessionLost(f"{GONE} ({error.message})") if broken else error

    def check_alive(self) -> None:
        if self._dead is not None:
            raise self._dead from None  # it says all that the connection's own error would

    # --- mending ------------------------------------------------------------------------------
    def _mend(self) -> None:
        """Does what arrived words ask for: takes a state, brings a lost one back, supplies contents, raises the end."""
        self.check_alive()
        if self.recovering:
            if self._lost is not None:
                raise _LostAgain
        else:
            self.saver.take_if_here()
            if self._lost is not None:
                self._recover()
        self._supply()

    @property
    def _is_called(self) -> bool:
        """Whether there is something to mend."""
        return bool(self._uploads.needed) or self.saver.here or not self.whole

    def _supply(self) -> None:
        while self._uploads.needed and self._lost is None:
            record, transfer, data = self._uploads.supply(self._uploads.needed.pop(0))
            self._command(encode_records([record]))
            self._bulk(transfer, [data])

    def _recover(self) -> None:
        """Brings the state back, on as many devices as it takes."""
        self.recovering = True
        self.saver.forget()
        try:
            for _ in range(MAX_LOSSES_IN_A_ROW):
                lost = self._lost
                if lost is None:
                    return
                self._refuse_if_final(lost)
                self._judge(lost)
                self.losses += 1
                try:
                    self._begin()
                    self._replay()
                except _LostAgain:
                    continue
                return
            raise SessionLost(f"{MAX_LOSSES_IN_A_ROW} devices in a row were lost while the state was restored")
        except BaseException as error:  # half a state is none, also if it was Ctrl-C
            self.fail(error if isinstance(error, DgsfError) else SessionLost("interrupted while it was restored"))
            raise
        finally:
            self.recovering = False
            self.saver.recovered()

    def _refuse_if_final(self, lost: Lost) -> None:
        if not lost.resumable or self._policy is None:
            self._dead = SessionLost(f"the remote device was lost: {lost.failure.message}")
        elif self.adrift:
            why = f"the remote device was lost, and its state could not be kept ({self.adrift})"
            self._dead = SessionLost(f"{why}: {lost.failure.message}")
        self.check_alive()

    def _judge(self, lost: Lost) -> None:
        """Whether another device should be tried: not for a call that crashed two already."""
        self._forget_owed_of_trial()
        culprit = self._doubts.crashed_at(lost.failure)
        if culprit is not None:
            call, told = culprit
            raise self._recorder.lines.error(self._calls_before + call, OpCrashed.code, told)

    def _replay(self) -> None:
        saved = self.saved
        self._calls_before = saved.calls
        for start in range(0, len(saved.definitions), DEFINITIONS_PER_FRAME):
            for body in in_frames(saved.definitions[start : start + DEFINITIONS_PER_FRAME]):
                self._again(body)
        if saved.number:
            head, size, pieces = saved.restore()
            transfer = self._uploads.new_transfer()
            self._again(encode_records([[_RESTORE, len(head), size, transfer]]))
            self._bulk(transfer, pieces)
        if self._doubts.any:
            self._replay_by_steps()
        else:
            for entry in self.journal.replay():
                self._repeat(entry)
        self._guarded(lambda: self.channel.say(Replayed(self._generation)))
        self._guarded(self.channel.settle)
        for question in list(self.answers.open.values()):
            if question.again is not None:
                self._again(encode_records([question.again]))
        self._mend()

    def _replay_by_steps(self) -> None:
        """What went well once as it was; the rest so that a crash can be told from its call."""
        stepper = Stepper(self.saved.definitions)
        for entry in self.journal.replay_done():
            if isinstance(entry, bytes):
                stepper.skip(decode_records(entry))
            self._repeat(entry)
        trial = self._doubts.trial = Trial(stepper, self.answers, self._owe_of_trial)
        self._again(encode_records([trial.begin()]))
        for entry in self.journal.doubtful():
            if isinstance(entry, Transfer):
                self._repeat(entry)
                continue
            for group in trial.groups(decode_records(entry)):
                for body in in_frames(group):
                    self._again(body)

    def _repeat(self, entry: bytes | Transfer) -> None:
        if isinstance(entry, Transfer):
            self._bulk(entry.number, [entry.data])
        else:
            self._again(entry)

    def _bulk(self, transfer: int, pieces: Iterable[Buffer]) -> None:
        self._guarded(lambda: self.channel.bulk(transfer, pieces))
        self._guarded(self.channel.settle)

    def _again(self, body: bytes) -> None:
        self._command(body)
        self._guarded(self.channel.settle)
        self._guarded(lambda: self.channel.receive(wait=False))
        self._mend()
