"""The streams that operator cases can run over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from inprocess_stream import InProcessStream

from dgsf.remoting.guest.attach import bind


@contextmanager
def over(what: str) -> Iterator[torch.device]:
    """The device of an in-process stream, or of a real session with an executor of its own."""
    if what == "inprocess":
        with bind(InProcessStream()) as device:
            yield device
        return
    from dgsf.remoting.executor.local import LocalExecutors
    from dgsf.remoting.guest.session_stream import SessionStream

    with LocalExecutors() as executors:
        stream = SessionStream(executors.connect())
        try:
            with bind(stream) as device:
                yield device
        finally:
            stream.close()
