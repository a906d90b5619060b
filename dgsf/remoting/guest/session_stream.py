"""The guest's end of a session: implements `Stream` over one socket to a proxy.

Calls are recorded and sent a few at a time, without waiting; only questions wait.  Everything sent is kept in
a journal since the last checkpoint; when the proxy says that the device is lost, another one is asked for
and the state brought back, wherever in this file the program happens to be.  One lock guards it all, except
`free`, which finalizers may call at any moment and which only notes the handle.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dgsf.core.checkpointing import CheckpointPolicy, within
from dgsf.errors import DgsfError
from dgsf.remoting.guest.answers import Question
from dgsf.remoting.guest.fetches import Result, bulk_size, meta_of, result_of, tensor_of
from dgsf.remoting.guest.kinds import Kind, Meta
from dgsf.remoting.guest.modes import FULL, Modes
from dgsf.remoting.guest.pace import Pace
from dgsf.remoting.guest.recorder import Recorder
from dgsf.remoting.guest.room import Room, room_of_process
from dgsf.remoting.guest.survival import Reopen, Survival
from dgsf.remoting.guest.uploads import Uploads
from dgsf.remoting.protocol import Record
from dgsf.wire.session import Began

_FETCH, _SYNC, _META, _MEMORY = int(Record.FETCH), int(Record.SYNC), int(Record.META), int(Record.MEMORY)
_SEED, _RNG_STATE, _SET_RNG_STATE = int(Record.SEED), int(Record.RNG_STATE), int(Record.SET_RNG_STATE)
INLINE_FLUSH_BYTES = 256 * 1024


class SessionStream:
    """See `dgsf.remoting.guest.kinds.Stream`."""

    def __init__(
        self,
        sock: socket.socket,
        modes: Modes = FULL,
        policy: CheckpointPolicy | None = None,
        now: Callable[[], float] = time.perf_counter,
        reopen: Reopen | None = None,
        freed: deque[int] | None = None,
        room: Room | None = None,
    ) -> None:
        """Asks for a device over this connection and waits for it; `reopen` gets another one if it breaks.

        `freed`: where handles that nobody needs any more are noted, if tensors know that place already.
        `room`: memory that survival may take; without it, a share of what the process may have.
        """
        self.modes = modes
        self._lock = threading.RLock()
        self._now = now
        self._recorder = Recorder(modes.traces, freed)
        self.free = self._recorder.freed.append
        room = room or room_of_process()
        self._uploads = Uploads(modes.known, room)
        self._uploads.lock, self._uploads.send_all = self._lock, self._send_all
        self._uploads.make_room, self._uploads.save = self._make_room, self._save
        self._uploads.give_way = self._give_way
        bounds = within(policy or CheckpointPolicy(), room.most) if modes.survival else None
        self._link = Survival(sock, self._recorder, self._uploads, bounds, now, reopen, room)
        self._pace = Pace() if modes.coalesce else None
        self._due = 0.0
        self._inline_bytes = 0
        self._direct = modes.naive
        if not modes.frees:
            self._recorder.on_frees = self._link.confirm
        self._recorder.on_low = self._few_alive
        self._link.open()

    @property
    def device(self) -> Began:
        """The device that the session has now."""
        assert self._link.began is not None
        return self._link.began

    @property
    def traffic(self) -> dict[str, int]:
        """Counted since the start, for measurements."""
        link = self._link
        return {
            "bytes_out": link.channel.bytes_out,
            "bytes_in": link.channel.bytes_in,
            "frames": link.frames,
            "round_trips": link.round_trips,
            "calls": self._recorder.calls,
            "losses": link.losses,
            "checkpoints": link.saver.checkpoints,
        }

    def counts(self) -> tuple[int, int, int, int]:
        """Calls, bytes out, bytes in and round trips since the start: as `traffic`, but quick."""
        link = self._link
        return self._recorder.calls, link.channel.bytes_out, link.channel.bytes_in, link.round_trips

    @property
    def unanswered(self) -> bool:
        """Whether anything was issued since the last answer."""
        return self._recorder.waiting or self._link.busy_since is not None

    def use_pace(self, pace: Pace) -> None:
        """For a way whose length is changed on purpose: what is learned of one length is not true of another."""
        with self._lock:
            self._pace = pace

    # --- calls --------------------------------------------------------------------------------
    def call(self, kind: Kind, handles: list[int], floats: Sequence[float] = ()) -> int:
        with self._lock:
            if self._direct:
                return self.ask(kind, handles, floats)[0]
            out = self._recorder.call(kind, handles, floats if floats.__class__ is tuple else tuple(floats))
            now = self._now()
            if now >= self._due:
                try:
                    self._flush(now)
                except BaseException:
                    self._recorder.freed.extend(range(out, out + kind.outs))  # it is done, but nobody has it
                    raise
            return out

    def ask(self, kind: Kind, handles: list[int], floats: Sequence[float] = ()) -> tuple[int, list[Result]]:
        with self._lock:
            question = self._link.question()
            out = self._recorder.ask(question.number, kind, handles, tuple(floats))
            try:
                self._await(question, None)
            except DgsfError:
                self._recorder.freed.extend(range(out, out + kind.outs))  # done or not, nobody will use them
                raise
            except BaseException:
                self._recorder.abandon(out, kind.outs)
                raise
            results = [result_of(item) for item in question.content]
            self._recorder.use_up(out, question.content)
            return out, results

    def meta(self, handle: int) -> Meta:
        return meta_of(self._read(lambda request: [_META, request, handle]).content)

    def memory(self, forget_peak: bool = False) -> tuple[int, int, int]:
        live, most, lease = self._read(lambda request: [_MEMORY, request, forget_peak]).content
        return live, most, lease

    def lease(self) -> int:
        return self.device.memory_bytes

    # --- data ---------------------------------------------------------------------------------
    def upload(self, tensor: torch.Tensor) -> int:
        with self._lock:
            handle = self._recorder.new_handle()
            record, transfer, data = self._uploads.plan(tensor, handle)
            self._recorder.records.append(record)
            self._link.saver.cost.expect_at_least(tensor.nbytes)
            try:
                if data is not None:
                    self._link.send(self._recorder.take(), transfer=(transfer, data))
                else:
                    self._hold_back(len(record[-1]))
                if self._direct or not self.modes.overlap:
                    self.sync()
            except BaseException:
                self._recorder.freed.append(handle)  # it is there, or will be, but nobody has it
                raise
            return handle

    def _hold_back(self, size: int) -> None:
        """A record with so many bytes in it may wait for others, within bounds."""
        self._inline_bytes += size
        now = self._now()
        if self._inline_bytes >= INLINE_FLUSH_BYTES or now >= self._due:
            self._flush(now)

    def _make_room(self, size: int) -> None:
        with self._lock:
            self._link.saver.make_room(size)

    def _save(self) -> None:
        with self._lock:
            self._link.saver.save_if_it_may_help()

    def _give_way(self) -> None:
        with self._lock:
            self._link.saver.give_way()

    def _send_all(self) -> None:
        with self._lock:
            self._link.send_all()

    def fetch(self, handle: int) -> torch.Tensor:
        if not self.modes.overlap:
            self.sync()
        question = self._read(lambda request: [_FETCH, request, handle], bulk_size)
        return tensor_of(question.content, question.bulk)

    # --- the generator ------------------------------------------------------------------------
    def seed(self, seed: int) -> None:
        self._note([_SEED, seed])

    def rng_state(self) -> torch.Tensor:
        question = self._read(lambda request: [_RNG_STATE, request])
        return torch.frombuffer(bytearray(question.content), dtype=torch.uint8)

    def set_rng_state(self, state: torch.Tensor) -> None:
        self._note([_SET_RNG_STATE, bytes(state.to(torch.uint8).contiguous().numpy())])

    def _note(self, record: list[Any]) -> None:
        with self._lock:
            self._recorder.boundary()
            self._recorder.records.append(record)
            self._hold_back(64)

    # --- waiting ------------------------------------------------------------------------------
    def sync(self) -> None:
        self._read(lambda request: [_SYNC, request])

    def flush(self) -> None:
        with self._lock:
            self._flush(self._now())

    def checkpoint(self) -> None:
        """Saves the device's state as of all calls so far, now instead of when it pays."""
        with self._lock:
            self._link.saver.save_now()

    def close(self) -> None:
        with self._lock:
            self._link.close()

    def forked(self) -> None:
        # The other one may be held by a thread that does not exist here.
        self._lock = self._uploads.lock = threading.RLock()
        self._link.abandon()

    def _few_alive(self) -> None:
        """A good moment for the checkpoint that is due: now, before the next call makes another tensor."""
        self._link.look_soon()
        self._flush(self._now())

    def _flush(self, now: float) -> None:
        self._inline_bytes = 0
        records = self._recorder.take()
        if records:
            self._link.send(records)
        if self._pace is not None:
            done = self._now()
            self._due = done + self._pace.sent(done - now)
        self._link.look(now)

    def _read(self, record_of: Callable[[int], list[Any]], size_of: Callable[[Any], int] | None = None) -> Question:
        """A question that changes nothing: asked again on another device if this one is lost."""
        with self._lock:
            self._recorder.boundary()
            question = self._link.question(size_of)
            self._await(question, record_of(question.number))
            return question

    def _await(self, question: Question, record: list[Any] | None) -> None:
        """Sends everything, `record` last and apart from the journal, and waits for the answer."""
        link = self._link
        try:
            link.raise_owed()
            link.send(self._recorder.take(), question, record)
            link.wait(question)
        finally:
            link.answers.close(question)
        self._inline_bytes = 0
        if self._pace is not None:
            self._due = self._now() + self._pace.answered()
        link.raise_owed()  # told to a checkpoint in between; a failed question would only say it once more
        if question.failure is not None:
            raise link.error(question.failure)
        if question.trouble is not None:
            raise question.trouble
        link.saver.answered(self._now())
