"""What a link costs, measured on a session that does nothing else: questions, one download, tiny calls.

The device "dgsf" must be bound to the stream.  Each figure is the median of several; what issuing a call
costs is the least of several, because others can only make it longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch

from dgsf.core.perfmodel import Link
from dgsf.remoting.guest.kinds import Stream
from dgsf.remoting.guest.pace import FIRST_SECONDS

QUESTIONS = 40
DOWNLOAD_BYTES = 4 * 1024**2
CALLS = 100
ROUNDS = 5
HOLD_US = FIRST_SECONDS * 1e6


class Probe:
    """Single measurements, for a way that changes; the device must be bound whenever it is asked."""

    def __init__(self, device: torch.device) -> None:
        self._small = torch.ones(4, device=device)
        self._large = torch.zeros(DOWNLOAD_BYTES, dtype=torch.uint8, device=device)

    def value_us(self) -> float:
        """How long a program waits for the value of one tiny call: a question, and the work on both sides around it.

        After a longer wait that work is slower too, so it tells better than a question alone what an answer costs.
        """
        return _took_us(lambda: (self._small + self._small).tolist())

    def download_us(self) -> float:
        """How long `DOWNLOAD_BYTES` take."""
        return _took_us(self._large.cpu)


def measure_link(stream: Stream, device: torch.device) -> Link:
    """The link as it is now; all of a question's time is its `sync_us`, the distance is unknown here."""
    question_us = median([_took_us(stream.sync) for _ in range(QUESTIONS)])
    probe = Probe(device)
    download_us = median([probe.download_us() for _ in range(ROUNDS)])
    return Link(
        bytes_per_us=DOWNLOAD_BYTES / max(1.0, download_us - question_us),
        sync_us=question_us,
        command_us=max(0.0, _call_us(stream, device) - _call_us(stream, torch.device("cpu"))),
        hold_us=HOLD_US,
    )


def _call_us(stream: Stream, device: torch.device) -> float:
    """What issuing one tiny call costs the program."""
    tensor = torch.ones(4, device=device)

    def calls() -> None:
        for _ in range(CALLS):
            tensor + tensor

    found = []
    for _ in range(ROUNDS):
        stream.sync()
        found.append(_took_us(calls) / CALLS)
    return min(found)


def _took_us(do: Callable[[], object]) -> float:
    began = time.perf_counter_ns()
    do()
    return (time.perf_counter_ns() - began) / 1e3
