"""Starts a Ray actor that imports torch, once for each line on standard input, and writes the seconds it took.

The cluster runs before the first line; the time is from asking for the actor to the answer of its method.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import ray


@ray.remote(num_cpus=1)
class Torch:
    def __init__(self) -> None:
        import torch

        self._torch = torch

    def total(self) -> float:
        return float(self._torch.ones(4).sum())


def start_one() -> float:
    began = time.perf_counter()
    actor: Any = Torch.remote()  # type: ignore[attr-defined]  # ray adds it
    answer = ray.get(actor.total.remote(), timeout=120)
    took = time.perf_counter() - began
    ray.kill(actor)
    assert answer == 4.0
    return took


def main(folder: str) -> None:
    ray.init(_node_ip_address="127.0.0.1", include_dashboard=False, _temp_dir=folder, log_to_driver=False, num_cpus=2)
    try:
        print("ready", flush=True)
        for _ in sys.stdin:
            print(start_one(), flush=True)
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
