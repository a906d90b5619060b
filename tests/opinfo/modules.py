"""One class of torch's own cases of `nn` modules, built here, moved to the remote device, and compared.

Each is tried forward, backward to inputs and parameters, and where the case says that it can be, derived twice; once
training, and once not where that makes a difference.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import cases
import torch
from torch.nn.utils.rnn import PackedSequence
from torch.testing._internal.common_modules import module_db

DTYPE = torch.float32
# Sums of many, some near zero, of numbers that were rounded before: what two orders of adding differ by.
TOLERANCES: dict[str, dict[str, float]] = {
    "backward": {"rtol": 1e-4, "atol": 5e-5},
    "twice": {"rtol": 1e-3, "atol": 1e-4},
}


def names() -> dict[str, Any]:
    return {info.name: info for info in module_db if DTYPE in info.dtypes}


def check(info: Any, device: torch.device, limit: int = 0) -> cases.Outcome:
    """Try a module with all of its inputs, or `limit` of each mode."""
    outcome = cases.Outcome(info.name)
    for training in (True, False) if info.train_and_eval_differ else (True,):
        inputs = _inputs(info, training)
        for index, given in enumerate(inputs[: limit or len(inputs)]):
            for way, run in _ways(info):
                label = f"{way}, {'training' if training else 'evaluating'} #{index}"
                cases.compare(
                    outcome, label, partial(_home, run, info, given, training), device, **TOLERANCES.get(way, {})
                )
    return outcome


def _inputs(info: Any, training: bool) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(1)
        made = info.module_inputs_func(info, device="cpu", dtype=DTYPE, requires_grad=True, training=training)
        return [each for each in made if each.forward_input is not None]


def _ways(info: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    yield "forward", _forward
    yield "backward", _backward
    if info.supports_gradgrad:
        yield "twice", _twice


def _home(run: Callable[..., Any], info: Any, given: Any, training: bool, where: torch.device) -> Any:
    return cases.tree(run(info, given, training, where), lambda t: cases.home(t, where))


def _forward(info: Any, given: Any, training: bool, where: torch.device) -> Any:
    module, args, kwargs = _made(info, given, training, where)
    return _tensors(module(*args, **kwargs))


def _backward(info: Any, given: Any, training: bool, where: torch.device) -> Any:
    return _slopes(*_made(info, given, training, where))


def _twice(info: Any, given: Any, training: bool, where: torch.device) -> Any:
    module, args, kwargs = _made(info, given, training, where)
    first = _slopes(module, args, kwargs, create_graph=True)
    return cases.slopes(first, _leaves(module, args, kwargs)) if first is not None else None


def _made(info: Any, given: Any, training: bool, where: torch.device) -> tuple[Any, Any, Any]:
    torch.manual_seed(3)
    module = info.module_cls(*given.constructor_input.args, **given.constructor_input.kwargs)
    module = module.train(training).to(DTYPE).to(where)
    args, kwargs = (_there(part, where) for part in (given.forward_input.args, given.forward_input.kwargs))
    torch.manual_seed(4)
    return module, args, kwargs


def _slopes(module: Any, args: Any, kwargs: Any, create_graph: bool = False) -> Any:
    leaves = _leaves(module, args, kwargs)
    return cases.slopes(_tensors(module(*args, **kwargs)), leaves, create_graph) if leaves else None


def _leaves(module: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    return [t for t in [*module.parameters(), *cases.flat(_tensors((args, kwargs)))] if t.requires_grad and t.is_leaf]


def _there(value: Any, where: torch.device) -> Any:
    """Copies on a device, leaves again where they were leaves."""
    if isinstance(value, torch.Tensor):
        copy = value.detach().clone() if where.type == "cpu" else value.detach().to(where)
        return copy.requires_grad_(value.requires_grad)
    if isinstance(value, PackedSequence):
        return value.to(where)
    if isinstance(value, list | tuple):
        return type(value)(_there(item, where) for item in value)
    if isinstance(value, dict):
        return {name: _there(item, where) for name, item in value.items()}
    return value


def _tensors(value: Any) -> Any:
    """The same with packed sequences as their data."""
    if isinstance(value, PackedSequence):
        return value.data
    if isinstance(value, list | tuple):
        return [_tensors(item) for item in value]
    if isinstance(value, dict):
        return {name: _tensors(item) for name, item in value.items()}
    return value
