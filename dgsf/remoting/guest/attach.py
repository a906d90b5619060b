"""Bind a stream as this process's remote device, for as long as a context lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from dgsf.errors import UsageError
from dgsf.remoting.guest import alias as aliases
from dgsf.remoting.guest import backend, interrupts, patches
from dgsf.remoting.guest.bound import bound
from dgsf.remoting.guest.generators import GENERATOR
from dgsf.remoting.guest.kinds import Stream
from dgsf.remoting.guest.plans import forget


@contextmanager
def bind(stream: Stream, alias: str = "") -> Iterator[torch.device]:
    """The remote device of this stream; its tensors end with the context."""
    if bound.stream is not None:
        raise UsageError("a remote device is attached already; one program uses one at a time")
    backend.register()
    threads = torch.autograd.is_multithreading_enabled()
    with ExitStack() as stack:
        forget()
        interrupts.put_off(stack)
        bound.to(stream, alias)
        stack.callback(bound.to, None)
        GENERATOR.manual_seed(torch.initial_seed())  # the program may have set it before it had a device
        torch.autograd.set_multithreading_enabled(False)
        stack.callback(torch.autograd.set_multithreading_enabled, threads)
        patches.install(stack)
        if alias:
            aliases.install(stack, alias)
        else:
            patches.hint_at_alias(stack)
        yield torch.device(bound.name)
