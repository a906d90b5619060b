"""What the sandbox got from the kernel, and what it had to do without.

Each step of the sandbox writes one `Feature`.  What is missing is logged by the device server and shown by
`dgsf doctor`; only a step marked as needed stops a worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from dgsf.errors import StartError


class Feature(msgspec.Struct, array_like=True, frozen=True):
    """One protection: its name, whether it is in force, and why not or how."""

    name: str
    present: bool
    detail: str = ""


class SandboxError(StartError):
    """This machine cannot confine a worker, so none is started."""


class Features:
    """Collects the features of one sandbox as it is built."""

    def __init__(self) -> None:
        self.found: list[Feature] = []

    def note(self, name: str, present: bool, detail: str = "") -> None:
        self.found.append(Feature(name, present, detail))

    @contextmanager
    def optional(self, name: str) -> Iterator[list[str]]:
        """A step that may fail: the worker then goes on without it. Details can be put into the list."""
        details: list[str] = []
        try:
            yield details
        except OSError as error:
            self.note(name, False, error.strerror or str(error))
        else:
            self.note(name, True, "; ".join(details))

    @contextmanager
    def needed(self, name: str, hint: str) -> Iterator[None]:
        """A step without which no user code may run."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            self.note(name, False, reason)
            raise SandboxError(f"cannot confine workers: {name}: {reason}; {hint}", feature=name) from error
        self.note(name, True)
