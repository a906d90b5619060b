"""Results that are older than a move of their module, and what they may still be asked for.

Their graphs keep the content that a parameter had before, and end at it; a gradient that came there would be nobody's.
So whoever asks such a result for the gradient of the parameter is refused: by a hook, if the pass goes through the
whole graph, and before it begins, if it is asked for certain parameters only: torch looks for those as they are now,
finds them unused, and would not go where the hook is.  Nothing here keeps a graph or an old content alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from importlib import import_module
from typing import Any

import torch

_MOVED = (
    "this result was made before its module moved to or from the remote device, so its gradients cannot reach the "
    "parameters any more: run backward before the module moves, or the forward pass again after it"
)
_NOTE = "dgsf: was the end of"  # in the metadata of a graph's node
_RUN = "_engine_run_backward"
_MODULES = ("torch.autograd.graph", "torch.autograd")


class _Left:
    """Lives as long as the node of a graph that ends at what a parameter was."""

    __slots__ = ("__weakref__", "parameter")

    def __init__(self, parameter: Any) -> None:
        self.parameter = weakref.ref(parameter)


_all_left: weakref.WeakSet[_Left] = weakref.WeakSet()


def refuse_gradients(tensor: Any) -> None:
    """To whatever graph holds the content of this tensor, which gets another one now."""
    if tensor._use_count() == 1 or tensor.is_inference() or not (tensor.requires_grad and tensor.is_leaf):
        return
    with torch.inference_mode(False), torch.enable_grad():  # elsewhere there are no graphs to be seen
        node: Any = torch.autograd.graph.get_gradient_edge(tensor).node
    node.register_prehook(_refuse)
    node.metadata[_NOTE] = left = _Left(tensor)
    _all_left.add(left)


def _refuse(gradients: Any) -> None:
    raise RuntimeError(_MOVED)


def install(stack: ExitStack) -> None:
    """Look at backward passes that are asked for certain tensors; after the session, too, if old graphs outlive it."""
    graph = import_module(_MODULES[0])
    before = getattr(graph, _RUN)
    if not hasattr(before, "looks_for_outdated"):
        _put(_looking(before))
        stack.callback(_remove_if_idle, before)
    else:
        stack.callback(_remove_if_idle, before.looks_for_outdated)


def _remove_if_idle(original: Any) -> None:
    if not _all_left:
        _put(original)


def _put(function: Any) -> None:
    for module in _MODULES:
        setattr(import_module(module), _RUN, function)


def _looking(original: Callable[..., Any]) -> Any:
    def _engine_run_backward(
        outputs: Any, gradients: Any, retain: Any, create: Any, inputs: Any = (), *args: Any, **kwargs: Any
    ) -> Any:
        if inputs and _all_left and _lead_to(outputs, inputs):
            raise RuntimeError(_MOVED)
        return original(outputs, gradients, retain, create, inputs, *args, **kwargs)

    looking: Any = _engine_run_backward
    looking.looks_for_outdated = original
    return looking


def _lead_to(outputs: Iterable[Any], inputs: Iterable[Any]) -> bool:
    """Whether the graph of these results ends at what one of these tensors was."""
    wanted = {id(_tensor_of(each)) for each in inputs}
    return any(id(left.parameter()) in wanted for left in _left_in(outputs) if left.parameter() is not None)


def _tensor_of(wanted: Any) -> Any:
    """A gradient may be asked for by its tensor, or by its place in the graph."""
    return wanted if isinstance(wanted, torch.Tensor) else getattr(wanted.node, "variable", wanted)


def _left_in(outputs: Iterable[Any]) -> Iterator[_Left]:
    """All the ends of this graph that are outdated."""
    waiting = [each.grad_fn if isinstance(each, torch.Tensor) else each.node for each in outputs]
    seen = {None}
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, torch._C._functions.AccumulateGrad) and _NOTE in node.metadata:
            yield node.metadata[_NOTE]
        waiting.extend(each for each, _ in node.next_functions)
