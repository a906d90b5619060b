"""The peer on a simulated GPU: the same launches on the same device in one process, without guest and wire.

Run as `python -m loadtests.remoting.sim_native PROGRAM`.  It runs the program once against an executor of its own
that writes down what it is sent, then plays that, decoded beforehand, as often as its parent asks: each line
on standard input is a round, each line on standard output tells the seconds of its steps.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from pathlib import Path

import click
import torch

from dgsf.config import GIB
from dgsf.remoting.executor.local import LocalExecutors, LocalSpec
from dgsf.remoting.executor.native import Step, play, read
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.modes import parse_modes
from dgsf.remoting.guest.session_stream import SessionStream
from loadtests.remoting.programs import PROGRAMS

STEPS = 24  # of a recording; the first ones are warm-up
WARM = 4
OPTIONS = {"timing": "a100", "values": "dummy"}


@click.command()
@click.argument("program", type=click.Choice(sorted(PROGRAMS)))
def main(program: str) -> None:
    """Serve rounds until standard input ends."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="dgsf-rec-") as folder:
        path = Path(folder, "frames")
        answers = _record(program, path)
        steps = read(path)
    _tell({"ready": True})
    for _ in sys.stdin:
        _tell({"seconds": _round(steps, answers)})


def _record(program: str, path: Path) -> int:
    """Writes the recording; how many answers a step of it has."""
    spec = LocalSpec(device_kind="sim", memory_bytes=16 * GIB, device_options=OPTIONS, record=str(path))
    with LocalExecutors() as executors:
        stream = SessionStream(executors.connect(spec), parse_modes("full,-survival,-known"))
        try:
            with bind(stream) as device:
                step = PROGRAMS[program].on(device)
                for _ in range(WARM):
                    step()
                before = stream.traffic["round_trips"]
                for _ in range(STEPS):
                    step()
                return (stream.traffic["round_trips"] - before) // STEPS
        finally:
            stream.close()


def _round(steps: list[Step], answers: int) -> list[float]:
    spec = LocalSpec(device_kind="sim", memory_bytes=16 * GIB, device_options=OPTIONS)
    ends = play(steps, spec)[-1 - STEPS * answers :: answers]
    return [after - before for before, after in itertools.pairwise(ends)]


def _tell(answer: dict[str, object]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
