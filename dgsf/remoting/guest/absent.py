"""What of `torch.cuda` a remote device does not have: said by name and with the reason, at the call.

Without this they would end in an AttributeError: torch here has none of the C++ functions that they call.
"""

from __future__ import annotations

from contextlib import ExitStack
from importlib import import_module
from typing import Any, NoReturn

from dgsf.remoting.guest.replacing import replace

_MEMORY = "its memory is elsewhere"
_RUNTIME = "CUDA's runtime is in another process"
_KERNELS = "its kernels are chosen elsewhere"
_ALONE = "there is one device, so none to exchange tensors with"

TABLE: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("torch.cuda.memory", _MEMORY, (
        "caching_allocator_alloc", "caching_allocator_delete", "caching_allocator_enable", "change_current_allocator",
        "use_mem_pool", "_record_memory_history", "_record_memory_history_impl", "_record_memory_history_legacy",
        "_allocation_traceback", "_snapshot", "_dump_snapshot", "_save_segment_usage", "_save_memory_usage",
        "_get_memory_metadata", "_set_memory_metadata", "_get_current_allocator", "_host_allocator",
    )),
    ("torch.cuda", _MEMORY, (
        "current_blas_handle", "caching_allocator_alloc", "caching_allocator_delete", "caching_allocator_enable",
        "change_current_allocator", "use_mem_pool",
    )),
    ("torch.cuda", _RUNTIME, ("_sleep", "cudart", "check_error", "current_solver_handle", "_compile_kernel")),
    ("torch.cuda.gds", _MEMORY, ("gds_register_buffer", "gds_deregister_buffer")),
    ("torch.cuda.jiterator", _RUNTIME, ("_create_jit_fn", "_create_multi_output_jit_fn")),
    ("torch.cuda.tunable", _KERNELS, (
        "enable", "tuning_enable", "record_untuned_enable", "set_max_tuning_duration", "get_max_tuning_duration",
        "set_max_tuning_iterations", "get_max_tuning_iterations", "set_filename", "get_filename", "get_results",
        "get_validators", "read_file", "tune_gemm_in_file", "mgpu_tune_gemm_in_file", "set_rotating_buffer_size",
        "get_rotating_buffer_size", "set_numerical_check_tolerances",
    )),
    ("torch.cuda.nccl", _ALONE, (
        "all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "version", "unique_id", "init_rank",
    )),
    ("torch.cuda.comm", _ALONE, ("broadcast", "broadcast_coalesced", "scatter", "gather")),
)  # fmt: skip


def install(stack: ExitStack) -> None:
    for place, why, names in TABLE:
        module = import_module(place)
        for name in names:
            if hasattr(module, name):  # torch comes and goes with them
                replace(stack, module, name, _unavailable(f"{place}.{name}", why))


def _unavailable(name: str, why: str) -> Any:
    def use(*_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"{name} is not available on a remote device: {why}")

    return use
