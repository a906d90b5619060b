"""Placement: a request and a view of the pool in, devices or a reason out; policies are chosen by name.

Production (`KeptPoolChooser`) and simulations (`Pool` and `Placer`) share everything here.  Nothing here does I/O.
"""

from dgsf.core.placement.kept import KeptPoolChooser
from dgsf.core.placement.matching import could_ever_fit, has_slot, preference, rank_of, why_not
from dgsf.core.placement.model import DeviceView, NodeView, Placement, Refusal, Request, Slice
from dgsf.core.placement.placer import Placer
from dgsf.core.placement.policy import Policy
from dgsf.core.placement.pool import Pool
from dgsf.core.placement.registry import choose, make_policy, policy_names
from dgsf.core.placement.speeds import Speeds
from dgsf.core.placement.workload import Workload

__all__ = [
    "DeviceView",
    "KeptPoolChooser",
    "NodeView",
    "Placement",
    "Placer",
    "Policy",
    "Pool",
    "Refusal",
    "Request",
    "Slice",
    "Speeds",
    "Workload",
    "choose",
    "could_ever_fit",
    "has_slot",
    "make_policy",
    "policy_names",
    "preference",
    "rank_of",
    "why_not",
]
