"""Policies by name, and the one-shot question that production asks: which device for this request now?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from random import Random

from dgsf.core.placement.classic import BestFit, DotProduct, GpuClustering, GpuPacking, RandomFit, WorstFit
from dgsf.core.placement.fgd import Fgd
from dgsf.core.placement.gavel import Gavel
from dgsf.core.placement.model import DeviceView, NodeView, Placement, Refusal, Request
from dgsf.core.placement.ours import Dgsf
from dgsf.core.placement.placer import Placer
from dgsf.core.placement.policy import Policy
from dgsf.core.placement.pool import Bools, Pool
from dgsf.core.placement.slices import Conspirator, SlicedHours
from dgsf.core.placement.speeds import Speeds
from dgsf.core.policies import DEFAULT_PLACEMENT
from dgsf.errors import ConfigError

_MAKERS: dict[str, Callable[[], Policy]] = {
    kind.name: kind
    for kind in (
        Dgsf,
        SlicedHours,
        RandomFit,
        Policy,
        BestFit,
        WorstFit,
        DotProduct,
        GpuPacking,
        GpuClustering,
        Fgd,
        Conspirator,
        Gavel,
    )
}


def policy_names() -> tuple[str, ...]:
    return tuple(_MAKERS)


def make_policy(name: str, speeds: Speeds | None = None) -> Policy:
    """A policy that learns what it needs from the requests that it sees; `speeds` tells it what is known of types."""
    if name not in _MAKERS:
        raise ConfigError(f"no placement policy '{name}'; there are: {', '.join(_MAKERS)}")
    policy = _MAKERS[name]()
    if speeds is not None:
        policy.use(speeds)
    return policy


class FreshPoolChooser:
    """Answers requests from fresh views of the pool, by one policy that goes on learning."""

    def __init__(
        self, name: str = DEFAULT_PLACEMENT, random: Random | None = None, speeds: Speeds | None = None
    ) -> None:
        self.policy = make_policy(name, speeds)
        self._random = Random(0) if random is None else random  # noqa: S311 (a choice, not a secret)

    def place(
        self,
        request: Request,
        devices: Sequence[DeviceView],
        nodes: Sequence[NodeView] = (),
        now_s: float = 0.0,
        busy_s: Mapping[int, float] | None = None,
        among: Bools | None = None,
    ) -> Placement | Refusal:
        """Where the request goes in a pool that looks like this now.

        `busy_s` says until when devices are in use, instead of their views: it is what changes with every moment.
        `among` says which of the devices will do, if not all: the others are as if out of order.
        """
        pool = Pool.of(sorted(devices, key=lambda device: device.id), nodes)
        pool.now = now_s
        if busy_s is not None:
            pool.expect_all(busy_s)
        self.policy.look_at(pool)
        placer = Placer(pool, self.policy, self._random)
        if among is None:
            return placer.place(request)
        return placer.place(request, pool.part(pool.places(each.id for each in compress(devices, among.tolist()))))

    def choose(
        self,
        request: Request,
        devices: Sequence[DeviceView],
        nodes: Sequence[NodeView] = (),
        busy_s: Mapping[int, float] | None = None,
        among: Bools | None = None,
    ) -> DeviceView | None:
        """The device for a request that needs one, or None if none has room now."""
        answer = self.place(request, devices, nodes, busy_s=busy_s, among=among)
        if isinstance(answer, Refusal) or not answer.devices:
            return None
        return self._view_of(answer.devices[0], devices)

    def _view_of(self, number: int, devices: Sequence[DeviceView]) -> DeviceView:
        return next(device for device in devices if device.id == number)


def choose(request: Request, pool: Sequence[DeviceView], policy: str = DEFAULT_PLACEMENT) -> DeviceView | None:
    """The best device that has room now, by a policy that has not seen any request before."""
    return FreshPoolChooser(policy).choose(request, pool)
