"""A device in the program's own process: the guest's calls go straight to the executor's machine.

The native peer of a program on a simulated GPU: the same Python program, the same device, no wire, no proxy, no
second process.  What a call costs the host is what the guest's dispatch costs, as torch's own would on a GPU,
and then the device's launch time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import torch

from dgsf.errors import by_code
from dgsf.remoting.executor.answers import Answers
from dgsf.remoting.executor.loop import Spec, new_machine
from dgsf.remoting.executor.wires import Wires
from dgsf.remoting.guest.fetches import DTYPE_CODES, meta_of, result_of, tensor_of
from dgsf.remoting.guest.kinds import Kind, Meta
from dgsf.remoting.protocol import Record, Status

_NO_WIRES: Wires = object.__new__(Wires)


class _Kept(Answers):
    """Keeps the last answer instead of sending it."""

    def __init__(self, reading: Any) -> None:
        super().__init__(_NO_WIRES, reading, tell_usage=False)
        self.content: Any = None

    def answer(self, request: int, status: Status, content: Any) -> None:
        if status != Status.OK:
            raise by_code(content[1])(content[2])
        self.content = content

    def tensor(self, request: int, dtype: int, sizes: list[int], data: memoryview) -> None:
        self.content = [dtype, sizes, len(data), bytes(data)]


class DirectStream:
    """See `dgsf.remoting.guest.kinds.Stream`; everything is done at once."""

    def __init__(self, spec: Spec) -> None:
        self._machine = new_machine(spec)
        self._kept = _Kept(self._machine.usage)
        self._machine.answers = self._kept
        self._next = 1
        self._kinds = 0
        self._freed: deque[int] = deque()
        self.traffic: dict[str, int] = {}

    def call(self, kind: Kind, handles: list[int], floats: Sequence[float] = ()) -> int:
        out = self._begin(kind)
        self._do([kind.number, out, handles, list(floats)])
        return out

    def ask(self, kind: Kind, handles: list[int], floats: Sequence[float] = ()) -> tuple[int, list[Any]]:
        out = self._begin(kind)
        found = self._answer([int(Record.ASK), 1, kind.number, out, handles, list(floats)])
        self._next = max(self._next, out + len(found))
        return out, [result_of(item) for item in found]

    def meta(self, handle: int) -> Meta:
        return meta_of(self._answer([int(Record.META), 1, handle]))

    def upload(self, tensor: torch.Tensor) -> int:
        handle, self._next = self._next, self._next + 1
        plain = tensor.detach().contiguous()
        data = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
        self._do([int(Record.UPLOAD), handle, DTYPE_CODES[plain.dtype], list(plain.shape), data])
        return handle

    def fetch(self, handle: int) -> torch.Tensor:
        return tensor_of(self._answer([int(Record.FETCH), 1, handle]), None)

    def free(self, handle: int) -> None:
        self._freed.append(handle)

    def seed(self, seed: int) -> None:
        self._do([int(Record.SEED), seed])

    def rng_state(self) -> torch.Tensor:
        return torch.frombuffer(bytearray(self._answer([int(Record.RNG_STATE), 1])), dtype=torch.uint8)

    def set_rng_state(self, state: torch.Tensor) -> None:
        self._do([int(Record.SET_RNG_STATE), bytes(state.numpy())])

    def sync(self) -> None:
        self._answer([int(Record.SYNC), 1])

    def memory(self, forget_peak: bool = False) -> tuple[int, int, int]:
        live, most, lease = self._answer([int(Record.MEMORY), 1, forget_peak])
        return live, most, lease

    def lease(self) -> int:
        return self.memory()[2]

    def flush(self) -> None:
        """Nothing is held back."""

    def forked(self) -> None:
        """There is no connection to let go of."""

    def close(self) -> None:
        """Nothing is open."""

    def _begin(self, kind: Kind) -> int:
        if kind.generation != id(self):
            kind.number, kind.generation = self._kinds, id(self)
            self._kinds += 1
            self._do(kind.definition(kind.number))
        out, self._next = self._next, self._next + kind.outs
        return out

    def _do(self, record: list[Any]) -> None:
        if self._freed:
            freed = [self._freed.popleft() for _ in range(len(self._freed))]
            self._machine.execute([[int(Record.FREE), freed], record])
        else:
            self._machine.execute([record])

    def _answer(self, record: list[Any]) -> Any:
        self._do(record)
        return self._kept.content
