"""How long kernels take on an A100: a roofline model with published peaks, for simulated devices.

A kernel takes a fixed time plus the longer of its arithmetic and its memory traffic.  Sources:
  peaks, bandwidth   NVIDIA A100 Tensor Core GPU data sheet and Ampere architecture white paper (A100 40GB SXM4)
  share of bandwidth NVIDIA's published TF32 training throughput of ResNet-50 v1.5 in PyTorch, one A100, 938 images/s
                     (DeepLearningExamples); with half of the bandwidth this model gives 983
  share of the peaks what large matrix products reach; small ones reach less, so the model is rather too fast
  fixed times        about 5 µs of host time per launch and 2 µs for the smallest kernel, as profilers show them
It is a model for comparing ways of launching the same kernels, not a measurement of a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TENSOR_CORE_OPS: Final = frozenset(("convolution", "convolution_backward", "_convolution"))  # TF32 by torch's default


@dataclass(frozen=True, slots=True)
class Roofline:
    """What bounds a kernel; rates per second, times in microseconds."""

    flops: dict[str, float]  # by torch's name of the type; matrix products
    tf32_flops: float  # of convolutions in float32
    vector_flops: float  # of everything else
    bytes_per_second: float
    link_bytes_per_second: float  # between host and device
    flops_share: float  # of the peaks that kernels reach
    bytes_share: float
    launch_us: float  # of the host, per kernel
    floor_us: float  # of the device, per kernel

    def kernel_us(self, op: str, dtype: str, flops: float, traffic: float) -> float:
        """One kernel of this operator (bare name), so many floating-point operations and bytes."""
        if dtype == "float32" and op in TENSOR_CORE_OPS:
            peak = self.tf32_flops
        else:
            peak = self.flops.get(dtype, self.vector_flops)
        arithmetic = flops / (peak * self.flops_share)
        seconds = max(arithmetic, traffic / (self.bytes_per_second * self.bytes_share))
        return self.floor_us + seconds * 1e6

    def copy_us(self, size: int) -> float:
        """Between host and device."""
        return self.floor_us + size / self.link_bytes_per_second * 1e6


A100: Final = Roofline(
    flops={"float16": 312e12, "bfloat16": 312e12, "float64": 19.5e12, "float32": 19.5e12},
    tf32_flops=156e12,
    vector_flops=19.5e12,
    bytes_per_second=1555e9,
    link_bytes_per_second=25e9,  # PCIe 4.0 x16: 31.5 GB/s less protocol
    flops_share=0.8,
    bytes_share=0.5,
    launch_us=5.0,
    floor_us=2.0,
)
MODELS: Final = {"a100": A100}
