"""Does the records of a session, one after the other.

A call that fails leaves its results empty and is told at the next answered record; nothing that a record can
say ends the process.  A record that makes no sense raises ProtocolError, which ends the session.  A record
that must wait (for content, for bulk bytes) stops the machine until `arrivals.ready()`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from dgsf.errors import DgsfError, OutOfMemory, ProtocolError, RemoteOpError
from dgsf.remoting.executor import uploads
from dgsf.remoting.executor.answers import Answers
from dgsf.remoting.executor.arrivals import Arrivals
from dgsf.remoting.executor.changes import Changes
from dgsf.remoting.executor.codes import DTYPE_CODES, value_of
from dgsf.remoting.executor.contents import Contents
from dgsf.remoting.executor.devices import Device
from dgsf.remoting.executor.growing import growing, reaches_beyond
from dgsf.remoting.executor.handles import CallFailure, Handles
from dgsf.remoting.executor.kinds import Place, Prepared, Returns, prepare
from dgsf.remoting.executor.limits import Limits, refuse_over
from dgsf.remoting.executor.memory import Memory, is_refusal, storage_bytes
from dgsf.remoting.executor.snapshot import Snapshots
from dgsf.remoting.executor.traces import Traces
from dgsf.remoting.protocol import FLOAT32, Record, Status

USAGE_NS = 50_000_000
FAILED: Final = object()
_UNKNOWN = CallFailure(0, RemoteOpError.code, "the call failed")
_MAX_MESSAGE = 4_000


class Machine:
    """The state of one session and what changes it."""

    def __init__(self, device: Device, limits: Limits, contents: Contents) -> None:
        self.device = device
        self.limits = limits
        self.contents = contents
        self.handles = Handles()
        self.kinds: dict[int, Prepared] = {}
        self.changes = Changes()
        self.memory = Memory(limits.memory_bytes, self._live_bytes, time.perf_counter_ns)
        self.calls = 0
        self.answers: Answers
        self.told_ns = 0  # when the usage was told last
        self._others: dict[int, Callable[..., Any]] = {
            Record.DEFINE: self.define,
            Record.FREE: self.free,
            Record.FETCH: self._fetch,
            Record.ASK: self._ask,
            Record.SYNC: self._sync,
            Record.SEED: self._seed,
            Record.RNG_STATE: self._rng_state,
            Record.SET_RNG_STATE: self._set_rng_state,
            Record.META: self._meta,
            Record.MEMORY: self._memory,
        }
        self.arrivals = Arrivals(self)
        self.traces = Traces(self)
        self.snapshots = Snapshots(self)
        for part in (self.arrivals, self.traces, self.snapshots):
            self._others.update(part.records)

    def usage(self) -> tuple[int, int, int, int]:
        return (
            self.device.used_us(), self.memory.estimate(), len(self.handles.tensors), self.snapshots.covered_us,
        )  # fmt: skip

    # --- the loop
    def execute(self, records: list[Any], position: int = 0) -> int:
        """Do records from this position on; the position of the one that must wait, or the end."""
        others, end = self._others, len(records)
        self.device.begin()
        try:
            while position < end:
                record = records[position]
                position += 1
                self.answers.last = position == end
                if record[0] >= 0:
                    self.call(*record)
                elif others[record[0]](*record[1:]) is False:
                    return position - 1
                if time.perf_counter_ns() - self.told_ns > USAGE_NS:
                    self.tell_usage()
        except DgsfError:
            raise
        except Exception as error:  # calls note their own failures: this record was no record
            raise ProtocolError(f"record {position} cannot be read: {type(error).__name__}: {error}"[:300]) from error
        finally:
            self.device.end()
        refuse_over(len(self.handles.tensors), self.limits.handles, "live handles")
        return position

    def tell_usage(self) -> None:
        self.told_ns = time.perf_counter_ns()
        self.say(self.answers.usage)

    def tell_usage_idle(self) -> None:
        """Nothing came for a while: whoever bills should know the last of it."""
        self.answers.last = True
        self.answers.usage()

    def say(self, say: Callable[..., None], *args: Any) -> None:
        """Say something; the time it takes is not device time."""
        self.device.end()
        say(*args)
        self.device.begin()

    # --- calls
    def call(self, number: int, out: int, handles: list[int], floats: Sequence[float] = ()) -> Any:
        """A call that nobody waits for; its result, or FAILED."""
        self.calls += 1
        tensors = self.handles.tensors
        try:
            kind = self.kinds[number]
            result = kind.call([tensors[handle] for handle in handles], floats)
            if kind.returns is Returns.TENSOR:
                tensors[out] = result
                if kind.makes_memory:
                    memory = self.memory
                    memory.room -= result.nbytes
                    if memory.room < 0:
                        memory.check(result.nbytes)
            else:
                self.keep(kind, out, result, handles)
        except Exception as error:
            self.failed(error, self.kinds.get(number), out, handles)
            return FAILED
        if kind.writes:
            self.changes.written(kind.writes, handles)
        return result

    def keep(self, kind: Prepared, out: int, result: Any, handles: list[int]) -> None:
        """Give handles to what is new."""
        tensors, fresh = self.handles.tensors, 0
        if kind.returns is Returns.MIXED:
            new = _new_ones(kind, result)
            for tensor in new:
                if tensor is not None:
                    tensors[out] = tensor
                    fresh += tensor.nbytes
                out += 1
            if kind.whole and kind.makes_memory:
                fresh = storage_bytes(tensor for tensor in new if tensor is not None)
        elif kind.makes_memory:  # an out= or resizing operator may have grown its target
            targets = [tensors[handles[index]] for index in kind.writes]
            fresh = storage_bytes(targets) if kind.whole else sum(target.nbytes for target in targets)
        if kind.makes_memory:
            self.memory.room -= fresh
            if self.memory.room < 0:
                self.memory.check(fresh)

    def failed(self, error: Exception, kind: Prepared | None, out: Any, handles: Any) -> None:
        """Note why, unless the call was lost to an earlier failure: then it is skipped."""
        if kind is None:
            raise ProtocolError("a call of a kind that was never defined")
        if type(out) is not int or type(handles) is not list or any(type(handle) is not int for handle in handles):
            raise ProtocolError("a call is a kind, its first new handle and a list of handles")
        tensors = self.handles.tensors
        if isinstance(error, OutOfMemory) and kind.outs:
            self._drop_results(out)
        for handle in handles:
            if handle not in tensors:
                earlier = self.handles.lost_to(handle)
                if earlier is not None:
                    self.handles.fail(out, earlier, kind.outs, tell=False)
                    return
                error = RemoteOpError(f"{kind.name}: there is no tensor of handle {handle}")
        self.changes.handles.update([handles[place] for place in kind.writes if place < len(handles)])  # some, maybe
        failure = CallFailure.of(self.calls, kind.refusal or self._told(kind.name, error))
        self.handles.fail(out, failure, kind.outs)
        if kind.grows:
            grown = [handles[place] for place in kind.writes] if isinstance(error, OutOfMemory) else []
            lost = grown or _broken(tensors, handles)
            if lost:
                self._lose(lost, failure)

    def _lose(self, handles: list[int], failure: CallFailure) -> None:
        """Tensors that grew beyond the lease, or could not grow."""
        for handle in handles:
            self.handles.fail(handle, failure, tell=False)
        self.free(handles)
        self.memory.walk()

    def _told(self, name: str, error: Exception) -> DgsfError:
        """What the guest gets to know: our own errors as they are, torch's with type and text."""
        if isinstance(error, DgsfError):
            return error
        if is_refusal(error):
            return self.memory.refused(name, error)
        return RemoteOpError(f"{type(error).__name__}: {str(error)[:_MAX_MESSAGE]}")

    def _drop_results(self, out: int) -> None:
        """The last call's results, which are the newest handles, do not fit."""
        tensors = self.handles.tensors
        while tensors and next(reversed(tensors)) >= out:
            tensors.popitem()
        self.memory.walk()

    def lose(self, handle: int, error: DgsfError) -> None:
        """A tensor that should have come in will never be there."""
        self.handles.fail(handle, CallFailure.of(self.calls, error))

    # --- answered records
    def reply(self, request: int, content: Any) -> None:
        """The answer, or the first failure that the guest does not know of yet."""
        self.device.finish()
        failure = self.handles.take_untold()
        if failure is not None:
            self.say(self.answers.answer, request, Status.FAILED, failure.content())
        else:
            self.say(self.answers.answer, request, Status.OK, content)

    def refuse(self, request: int, failure: CallFailure) -> None:
        first = self.handles.take_untold() or failure
        self.say(self.answers.answer, request, Status.FAILED, first.content())

    def _ask(self, request: int, number: int, out: int, handles: list[int], floats: Sequence[float] = ()) -> None:
        result = self.call(number, out, handles, floats)
        if result is FAILED:
            self.refuse(request, self.handles.lost_to(out) or _UNKNOWN)
        else:
            self.reply(request, self._told_results(self.kinds[number], result))

    def _told_results(self, kind: Prepared, result: Any) -> list[Any]:
        told: list[Any] = []
        results = (result,) if len(kind.plan) == 1 else result
        for place, each in zip(kind.plan, results or (), strict=False):
            if place is Place.VALUE:
                told.append(value_of(each))
            elif place is Place.NEW:
                several = each if isinstance(each, list | tuple) else (each,)
                told.extend(None if tensor is None else self.device.meta(tensor) for tensor in several)
        return told

    def _fetch(self, request: int, handle: int) -> None:
        tensor = self._asked(request, handle)
        if tensor is None:
            return
        try:
            found = self.device.get(tensor)
            data = uploads.bytes_of(found)
        except RuntimeError as error:
            self.refuse(request, CallFailure.of(0, self._told("fetch", error)))
            return
        if self.handles.untold is not None:
            self.reply(request, None)
            return
        self.say(self.answers.tensor, request, DTYPE_CODES[found.dtype], list(found.shape), data)

    def _meta(self, request: int, handle: int) -> None:
        tensor = self._asked(request, handle)
        if tensor is not None:
            self.reply(request, self.device.meta(tensor))

    def _memory(self, request: int, forget: bool) -> None:
        live, memory = self.memory.walk(), self.memory
        self.reply(request, [live, memory.most, memory.lease])
        if forget:
            memory.most = live

    def _asked(self, request: int, handle: int) -> Any:
        """The tensor of a handle; if there is none, the request is answered with the reason."""
        tensor = self.handles.tensors.get(handle)
        if tensor is None:
            unknown = CallFailure.of(0, RemoteOpError(f"there is no tensor of handle {int(handle)}"))
            self.refuse(request, self.handles.lost_to(handle) or unknown)
        return tensor

    def _sync(self, request: int) -> None:
        self.reply(request, None)

    # --- the rest
    def define(self, number: int, name: str, args: list[Any], kwargs: dict[str, Any], default: int = FLOAT32) -> None:
        refuse_over(len(self.kinds), self.limits.kinds, "kinds")
        if type(number) is not int or number < 0:
            raise ProtocolError(f"{number!r} is not the number of a kind")
        kind = self.kinds[number] = prepare(self.device, name, args, kwargs, default)
        if kind.grows:
            kind.invoke = growing(kind.invoke, self.handles.tensors, self.changes)

    def free(self, handles: list[int]) -> None:
        tensors, written = self.handles.tensors, self.changes.handles
        for handle in handles:
            tensor = tensors.pop(handle, None)
            if handle in written:
                self.changes.freed(handle, tensor)

    def _seed(self, seed: int) -> None:
        self.device.seed(seed)

    def _rng_state(self, request: int) -> None:
        self.reply(request, self.device.rng_state())

    def _set_rng_state(self, state: bytes) -> None:
        try:
            self.device.set_rng_state(state)
        except RuntimeError as error:
            self.handles.tell(CallFailure.of(self.calls, self._told("set_rng_state", error)))

    def _live_bytes(self) -> int:
        return self.device.memory_of(self.handles.tensors) + self.arrivals.transfers.bytes


def _broken(tensors: dict[int, Any], handles: list[int]) -> list[int]:
    """Torch gives a tensor its new sizes before it has the memory for them: whoever used it then would crash."""
    return [handle for handle in handles if handle in tensors and reaches_beyond(tensors[handle])]


def _new_ones(kind: Prepared, result: Any) -> list[Any]:
    """The new tensors among the results, None for undefined ones."""
    results = (result,) if len(kind.plan) == 1 else result
    found: list[Any] = []
    for place, each in zip(kind.plan, results, strict=True):
        if place is Place.NEW:
            found.extend(each) if isinstance(each, list | tuple) else found.append(each)
    return found
