"""What hiding latency is worth: the six workloads and ResNet-50 with a delay added on the way.

The delay is added by a relay of our own between guest and proxy, in each direction.  Naive is the same code
with one round trip per operation.  Where the device does a workload by kernels that torch would not have chosen, what
the way costs does not show; there it is measured once more on a device that leaves the choice to torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loadtests.ours import Ours, platform
from loadtests.plan import Plan
from loadtests.remoting.on_cpu import DEVICES
from loadtests.remoting.pairs import Runner, alternate, environment_of, joined, runner, side_by_side
from loadtests.remoting.programs import PROGRAMS, WORKLOADS
from loadtests.report import Section, at_most, compare, single

NEAR_MS = 0.5
FAR_MS = (1.0, 10.0)
# Few long kernels: what is compared is a small difference of long times, and where a process happens to have its memory
# makes it up to a sixth slower or faster for as long as it lives, native or not.  So all are started several times.
STARTS = {"ct_scan": 5}
FAR_STARTS = 3
TORCHS_KERNELS = f"{DEVICES}:kernels=torch"
BY_TORCHS_KERNELS = ("ct_scan",)
SHORT_KERNEL_SECONDS = 300e-6  # kernels shorter than this on average: the way is most of the time


def measure(plan: Plan) -> Section:
    section = Section("Remote torch over a distance (CPU device, one thread)")
    _measure_on(plan, section, DEVICES, WORKLOADS, "")
    _measure_on(plan, section, TORCHS_KERNELS, BY_TORCHS_KERNELS, ", torch's own kernels")
    return section


def _measure_on(plan: Plan, section: Section, devices: str, workloads: Sequence[str], how: str) -> None:
    with platform("dgsf-far-torch" if how else "dgsf-far", plan.folder, devices=devices) as ours:
        for name in workloads:
            _near(plan, section, ours, name, how)
        for delay in FAR_MS:
            _far(plan, section, environment_of(ours), delay, how)


def _near(plan: Plan, section: Section, ours: Ours, name: str, how: str) -> None:
    """One workload natively, as it is meant, and naively."""
    program, delay = f"workload-{name}", ("--delay-ms", str(NEAR_MS))
    full, naive = environment_of(ours), environment_of(ours, remoting="naive")

    def start() -> list[Any]:
        return [
            runner(plan, program, "native"),
            runner(plan, program, "attached", *delay, environment=full),
            runner(plan, program, "attached", *delay, name=f"{program}-naive", environment=naive),
        ]

    _rows(section, f"{PROGRAMS[program].what}{how}", *_measured(plan, start, STARTS.get(name, 1), seconds=1.0))


def _measured(plan: Plan, start: Callable[[], list[Any]], starts: int, seconds: float) -> list[Runner]:
    """The rounds of all starts, runner by runner."""
    all_starts: list[list[Runner]] = []
    for _ in range(starts):
        with side_by_side(plan, *start()) as runners:
            alternate(plan, runners, seconds)
        all_starts.append(runners)
    return [joined(each) for each in zip(*all_starts, strict=True)]


def _rows(section: Section, what: str, native: Runner, full: Runner, naive: Runner) -> None:
    extra = [mine - base for mine, base in zip(full.seconds, native.seconds, strict=True)]
    naive_extra = [mine - base for mine, base in zip(naive.seconds, native.seconds, strict=True)]
    section.rows.append(
        compare(f"{what}, {NEAR_MS} ms: overhead ÷ naive's", _ms(extra), _ms(naive_extra), at_most(0.1), "ms")
    )
    calls = full.typical("calls") or 1.0
    if min(native.seconds) / calls < SHORT_KERNEL_SECONDS:
        section.rows.append(
            compare(
                f"{what}, {NEAR_MS} ms: run time ÷ naive's", _ms(full.seconds), _ms(naive.seconds), at_most(0.5), "ms"
            )
        )
    section.raw[what] = {each.name: {"seconds": each.seconds, "wire": each.counts} for each in (native, full, naive)}


def _far(plan: Plan, section: Section, environment: dict[str, str], delay_ms: float, how: str) -> None:
    """ResNet-50: one round trip per forward, and no more time than the way takes."""

    def start() -> list[Any]:
        return [
            runner(plan, "resnet50", "native"),
            runner(plan, "resnet50", "attached", "--delay-ms", str(delay_ms), environment=environment),
        ]

    native, remote = _measured(plan, start, FAR_STARTS, seconds=2.0)
    what = f"ResNet-50{how}, {delay_ms:g} ms"
    section.rows.append(single(f"{what}: round trips per forward", remote.typical("round_trips"), at_most(1)))
    bound = [seconds + 4 * delay_ms / 1e3 + remote.typical("bytes_out") / 1e9 for seconds in native.seconds]
    title = f"{what}: time ÷ (native + 2 round trips + transfer at 1 GB/s)"
    section.rows.append(compare(title, _ms(remote.seconds), _ms(bound), at_most(1.0), "ms"))
    section.raw[what] = {"native": native.seconds, "remote": remote.seconds, "wire": remote.counts}


def _ms(seconds: list[float]) -> list[float]:
    return [value * 1e3 for value in seconds]
