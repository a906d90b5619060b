"""Placement: a request and a view of the pool in, devices or a reason out; the policies are chosen by name."""

from dgsf.core.placement.classic import BestFit, DotProduct, GpuClustering, GpuPacking, RandomFit, WorstFit
from dgsf.core.placement.fgd import Fgd
from dgsf.core.placement.matching import could_ever_fit, preference, why_not
from dgsf.core.placement.model import DeviceView, NodeView, Placement, Refusal, Request, Slice
from dgsf.core.placement.placer import Placer
from dgsf.core.placement.policy import Policy
from dgsf.core.placement.pool import Pool
from dgsf.core.placement.workload import Workload
