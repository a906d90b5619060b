"""Every operator case of torch on the remote device: `python tests/opinfo/run.py [--over session] [NAME ...]`.

Operators run in a few worker processes, each with a time limit; one that crashes or hangs costs only itself.
The list of what does not pass, with reasons, is written to KNOWN.md beside this file: one part of it for values and
first derivatives, one (`--derivatives`) for what is derived twice or by forward mode, one (`--modules`) for the classes
of `nn`.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="operators; all if none is named")
    parser.add_argument("--over", choices=("inprocess", "session"), default="inprocess")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=180, help="time limit of one operator")
    parser.add_argument("--samples", type=int, default=0, help="of each dtype; 0: all")
    parser.add_argument("--dtypes", default="float32,int64,bool", help="such as float16,bfloat16,float64")
    parser.add_argument("--default", default="float32", help="the default dtype")
    parser.add_argument("--honest", action="store_true", help="compare all metadata with the device's")
    parser.add_argument("--derivatives", action="store_true", help="second ones and by forward mode, nothing else")
    parser.add_argument("--modules", action="store_true", help="torch's cases of nn modules instead of operators")
    parser.add_argument("--known", type=Path, default=None, help="where to write the list")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def work(options: argparse.Namespace) -> None:
    """A worker: operator names come in on stdin, outcomes go out on stdout, one per line."""
    import cases
    import streams
    import torch

    torch.set_num_threads(1)
    known = _known(options)
    dtypes = [getattr(torch, name) for name in options.dtypes.split(",")]
    check = cases.check_derivatives if options.derivatives else partial(cases.check, dtypes=dtypes)
    if options.modules:
        import modules

        check = modules.check
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what operators print is no answer
    with streams.over(options.over) as device:
        torch.set_default_dtype(getattr(torch, options.default))
        if options.honest:
            import honest

            honest.install()
        print("{}", file=answers, flush=True)
        for line in sys.stdin:
            outcome = check(known[line.strip()], device, options.samples)
            found = {"name": outcome.name, "verdict": outcome.verdict, "tried": outcome.tried}
            print(json.dumps({**found, "reasons": (outcome.wrong + outcome.refused)[:50]}), file=answers, flush=True)


def _known(options: argparse.Namespace) -> dict[str, Any]:
    """What there are cases of, by name."""
    import cases
    import modules

    return modules.names() if options.modules else cases.operators()


class Worker:
    """A process that tries operators one at a time."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._command = [sys.executable, __file__, "--worker", "--over", options.over]
        self._command += ["--samples", str(options.samples), "--dtypes", options.dtypes]
        self._command += ["--default", options.default] + (["--honest"] if options.honest else [])
        self._command += ["--derivatives"] if options.derivatives else []
        self._command += ["--modules"] if options.modules else []
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        if self._process is None:
            quiet = {"stderr": subprocess.DEVNULL} if "DGSF_OPINFO_LOUD" not in os.environ else {}
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, text=True, bufsize=1, **quiet)
            self._line(120)
        return self._process

    def _line(self, seconds: float) -> str:
        assert self._process is not None and self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        return self._process.stdout.readline() if ready else "late"

    def check(self, name: str, seconds: float) -> dict[str, Any]:
        process = self.start()
        assert process.stdin is not None
        process.stdin.write(name + "\n")
        process.stdin.flush()
        line = self._line(seconds)
        if line == "late":
            self.stop()
            return {"name": name, "verdict": "hung", "tried": 0, "reasons": [f"not done after {seconds:.0f} s"]}
        if not line:
            code = process.wait()
            self._process = None
            return {"name": name, "verdict": "crashed", "tried": 0, "reasons": [f"the process ended with {code}"]}
        return dict(json.loads(line))

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in options.names or sorted(_known(options)):
        waiting.put(name)
    found: list[dict[str, Any]] = []

    def loop() -> None:
        worker = Worker(options)
        try:
            while True:
                outcome = worker.check(waiting.get_nowait(), options.seconds)
                found.append(outcome)
                if outcome["verdict"] not in ("passed", "empty"):
                    print(f"{outcome['verdict']:8} {outcome['name']}: {outcome['reasons'][0][:300]}", flush=True)
        except queue.Empty:
            pass
        finally:
            worker.stop()

    threads = [threading.Thread(target=loop) for _ in range(options.workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(found, key=lambda outcome: str(outcome["name"]))


def main() -> int:
    options = arguments()
    if options.worker:
        work(options)
        return 0
    import report

    started = time.monotonic()
    outcomes = run(options)
    part = report.MODULES if options.modules else report.DERIVATIVES if options.derivatives else report.VALUES
    print(report.summary(outcomes, time.monotonic() - started, part.things))
    if options.known is not None:
        report.write(options.known, part, outcomes)
    return 0 if report.good(outcomes, part) else 1


if __name__ == "__main__":
    sys.exit(main())
