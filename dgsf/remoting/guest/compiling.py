"""`torch.compile` while a remote device is attached: code that touches the device runs as it is written.

There is nothing here to compile for it.  All other code is compiled as ever, before, during and after the attachment:
dynamo asks about each function as it is called, and only those are passed over whose arguments, module, closure or
globals are on the device.  A graph that comes to the device all the same is run as it is, by torch's own compiler.
"""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from typing import Any

import torch

from dgsf.remoting.guest.bound import bound
from dgsf.remoting.guest.replacing import replace, standing_for
from dgsf.remoting.guest.tensor import DEVICE_NAME, RemoteTensor

_DYNAMO = "torch._dynamo.eval_frame"
_COUNT = "set_fullgraph_compiled_frame_count"
_here = threading.local()  # `passed`: a function was passed over since somebody began to count
_DEEP = 4  # steps from a function's own names to a tensor
_WHY = "its tensors are on a remote device"


def install(stack: ExitStack) -> None:
    """Now if dynamo is here, else when it is asked for: it takes a second to import."""
    if _DYNAMO in sys.modules:
        _watch(stack)
        return
    original, watched = torch.compile, list[bool]()

    def compile_(*args: Any, **kwargs: Any) -> Any:
        if bound.stream is not None and not watched:
            watched.append(True)
            import_module(_DYNAMO)
            _watch(stack)
        return original(*args, **kwargs)

    replace(stack, torch, "compile", standing_for(compile_, original))


def _watch(stack: ExitStack) -> None:
    frames = import_module(_DYNAMO)
    choose = frames._callback_from_stance

    def _callback_from_stance(callback: Any) -> Any:
        chosen = choose(callback)
        return chosen if chosen is None or chosen is False or isinstance(chosen, _Watch) else _Watch(chosen)

    replace(stack, frames, "_callback_from_stance", _callback_from_stance)
    compiler = torch._TorchCompileInductorWrapper
    replace(stack, compiler, "__call__", _compiling(compiler.__call__))
    replace(stack, frames, _COUNT, _counting(getattr(frames, _COUNT)))


def _compiling(original: Any) -> Any:
    """torch's own compiler, which has never heard of the device: it gives such a graph back."""

    def __call__(self: Any, graph: Any, inputs: Any, **options: Any) -> Any:
        values = [node.meta.get("example_value") for node in graph.graph.nodes]
        on_device = any(isinstance(each, torch.Tensor) and each.device.type == DEVICE_NAME for each in values)
        return graph.forward if on_device else original(self, graph, inputs, **options)

    return __call__


def _counting(original: Any) -> Any:
    """How torch knows that fullgraph=True was in vain: it counts what was compiled. What was passed over counts too."""

    def set_fullgraph_compiled_frame_count(count: int) -> int:
        before = int(original(count))
        passed, _here.passed = getattr(_here, "passed", False), False
        return 1 if passed and before == 0 else before

    return set_fullgraph_compiled_frame_count


class _Watch:
    """What dynamo asks to compile a function: passes over those on the device, this time and whatever they call."""

    def __init__(self, callback: Any) -> None:
        self._torchdynamo_orig_backend = callback  # by it dynamo finds what it has compiled before
        self._callback = callback

    def __call__(self, frame: Any, *args: Any) -> Any:
        return _as_written() if bound.stream is not None and _is_remote(frame) else self._callback(frame, *args)


def _as_written() -> Any:
    kinds = import_module("torch._dynamo.types")
    _here.passed = True
    way = kinds.FrameExecStrategy(kinds.FrameAction.SKIP, kinds.FrameAction.SKIP)
    return kinds.ConvertFrameReturn(frame_exec_strategy=way, apply_to_code=False, skip_reason=_WHY)


def _is_remote(frame: Any) -> bool:
    names = [frame.f_globals.get(name) for name in frame.f_code.co_names]
    direct = [value for value in names if isinstance(value, torch.Tensor | torch.nn.Module | torch.device)]
    seen: set[int] = set()
    if torch.get_default_device().type in _device_types():
        return True
    return any(_touches(value, _DEEP, seen) for value in (*frame.f_locals.values(), *direct))


def _device_types() -> tuple[str, str]:
    return DEVICE_NAME, bound.name.partition(":")[0]


def _touches(value: Any, deep: int, seen: set[int]) -> bool:
    """Whether something is on the device, or leads there in a few steps."""
    if isinstance(value, RemoteTensor):
        return True
    if isinstance(value, torch.Tensor | int | float | type | types.ModuleType) or value is None:
        return False
    if isinstance(value, str):
        return value.partition(":")[0] in _device_types()
    if isinstance(value, torch.device):
        return value.type in _device_types()
    if not deep or id(value) in seen:
        return False
    seen.add(id(value))
    return any(_touches(each, deep - 1, seen) for each in _parts(value))


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, torch.nn.Module):
        return (*value.parameters(), *value.buffers())
    if isinstance(value, torch.optim.Optimizer):
        return [parameter for group in value.param_groups for parameter in group["params"]]
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return value
    if isinstance(value, types.MethodType):
        return (value.__self__, value.__func__)
    if isinstance(value, partial):
        return (value.func, value.args, value.keywords)
    if isinstance(value, types.FunctionType):
        return _closure(value)
    return list(getattr(value, "__dict__", {}).values())


def _closure(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # nothing in it yet
            continue
