"""attach="auto" reconsidered: the other choice must be clearly better, and the function must fit there."""

from dataclasses import dataclass, field

import pytest

from dgsf.config import GIB
from dgsf.core.attaching import reconsidered
from dgsf.core.devices import HOST
from dgsf.core.distance import Measured
from dgsf.core.options import FunctionOptions

CURVE = ((0.0, 1.0), (1000.0, 1.2))  # clearly too slow over the fabric from 750 µs, clearly within up to 250


@dataclass
class Server:
    type: str
    memory_bytes: int = 4 * GIB
    slots: int = 2
    node_cpus: int | None = 8
    measured: list[Measured] = field(default_factory=list)

    @property
    def placed_kind(self):
        return self.type

    @property
    def is_host(self):
        return self.type == HOST


def other(chosen, way_us, device, host=None, **options):
    device.measured = [Measured(1, False, way_us, False, True)]
    wanted = FunctionOptions(attach="auto", profile=CURVE, chosen=chosen, **options)
    return reconsidered(wanted, [device, host or Server(HOST)])


def test_the_choice_follows_a_way_that_has_clearly_changed():
    assert other("fabric", 800.0, Server("cpu")) == "near"
    assert other("near", 100.0, Server("cpu")) == "fabric"
    assert other("fabric", 600.0, Server("cpu")) is None and other("near", 400.0, Server("cpu")) is None


@pytest.mark.parametrize("small", [{"memory_bytes": GIB}, {"node_cpus": 1}, {"slots": 0}])
def test_it_stays_where_it_is_if_the_other_place_could_not_run_it(small):
    needs = {"memory": 2 * GIB, "cpu": 4.0, "gpu_memory": GIB}
    assert other("fabric", 800.0, Server("cpu"), **needs) == "near"
    assert other("fabric", 800.0, Server("cpu", **small), **needs) is None, "a session of it fits there, not its body"
    assert other("near", 100.0, Server("cpu"), Server(HOST, **small), **needs) is None
