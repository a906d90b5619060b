"""One operator of torch's own test cases, done on the remote device and on the CPU, and compared.

Each sample input is tried forward, in place, with `out=` and backward, where the case says that the operator can;
a few in float64 also for the derivative of the derivative, and for the one by forward mode.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.testing._internal.common_methods_invocations import op_db

from dgsf.errors import OpNotAllowed

DERIVED = 3  # samples whose further derivatives are compared
DTYPES = (torch.float32, torch.int64, torch.bool)
# Results that are not defined by the arguments: only type and sizes are compared.
UNDEFINED = ("empty", "new_empty", "empty_like", "empty_strided", "empty_permuted", "new_empty_strided")
# Arguments that torch wants on the CPU whatever the device.
STAY_ON_CPU = ("tensor_split",)


@dataclass
class Outcome:
    """What came of one operator."""

    name: str
    tried: int = 0
    wrong: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        if self.wrong:
            return "failed"
        if self.refused:
            return "refused"
        return "passed" if self.tried else "empty"


def name_of(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def operators() -> dict[str, Any]:
    return {name_of(op): op for op in op_db}


def check(op: Any, device: torch.device, limit: int = 0, dtypes: Iterable[torch.dtype] = DTYPES) -> Outcome:
    """Try an operator with all of its samples, or `limit` of each dtype."""
    outcome = Outcome(name_of(op))
    for dtype in dtypes:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        for index, sample in enumerate(_samples(op, dtype)):
            if limit and index >= limit:
                break
            for way, run in _ways(op, sample, dtype):
                _compare(outcome, f"{way} {dtype} #{index}", run, sample, device)
    return outcome


def check_derivatives(op: Any, device: torch.device, limit: int = 0) -> Outcome:
    """Try an operator's second derivative and its derivative by forward mode, with the first samples of float64."""
    outcome = Outcome(name_of(op))
    if not op.supports_autograd or torch.float64 not in op.supported_dtypes("cpu"):
        return outcome
    for index, sample in enumerate(_samples(op, torch.float64)[: limit or DERIVED]):
        if op.supports_gradgrad:
            _compare(outcome, f"twice #{index}", lambda s: _twice(op, s), sample, device)
        if op.supports_forward_ad:
            _compare(outcome, f"forward mode #{index}", lambda s: _tangents(op, s), sample, device)
    return outcome


def _samples(op: Any, dtype: torch.dtype) -> list[Any]:
    grad = dtype.is_floating_point and op.supports_autograd
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(1)
        return list(op.sample_inputs("cpu", dtype, requires_grad=grad))


def _ways(op: Any, sample: Any, dtype: torch.dtype) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    yield "forward", lambda s: op(s.input, *s.args, **s.kwargs)
    if op.inplace_variant is not None and not getattr(sample, "broadcasts_input", False):
        yield "in place", lambda s: _in_place(op, s)
    if op.supports_out:
        yield "out=", lambda s: _out(op, s)
    if dtype.is_floating_point and op.supports_autograd:
        yield "backward", lambda s: _backward(op, s)


def _in_place(op: Any, sample: Any) -> Any:
    with torch.no_grad():
        target = tree(sample.input, lambda t: t.detach().clone())
        op.inplace_variant(target, *sample.args, **sample.kwargs)
    return target


def _out(op: Any, sample: Any) -> Any:
    with torch.no_grad():
        shape = op(sample.input, *sample.args, **sample.kwargs)
        if not isinstance(shape, torch.Tensor | tuple | list):
            return shape
        out = tree(shape, torch.zeros_like)
        op(sample.input, *sample.args, **sample.kwargs, out=out)
    return out


def _backward(op: Any, sample: Any) -> Any:
    leaves = _leaves(sample)
    return slopes(_outputs(op, sample), leaves) if leaves else None


def _twice(op: Any, sample: Any) -> Any:
    leaves = _leaves(sample)
    first = slopes(_outputs(op, sample), leaves, create_graph=True) if leaves else None
    return slopes(first, leaves) if first is not None else None


def _tangents(op: Any, sample: Any) -> Any:
    def dual(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.requires_grad:
            return tensor
        return forward_ad.make_dual(tensor.detach(), _weight(tensor.detach()))

    with forward_ad.dual_level():
        given, args, kwargs = (tree(part, dual) for part in (sample.input, sample.args, sample.kwargs))
        made = flat(op(given, *args, **kwargs))
        return [forward_ad.unpack_dual(each).tangent for each in made]


def _leaves(sample: Any) -> list[torch.Tensor]:
    return [t for t in flat((sample.input, sample.args, sample.kwargs)) if t.requires_grad]


def _outputs(op: Any, sample: Any) -> Any:
    made = op(sample.input, *sample.args, **sample.kwargs)
    return made if sample.output_process_fn_grad is None else sample.output_process_fn_grad(made)


def slopes(made: Any, leaves: list[torch.Tensor], create_graph: bool = False) -> Any:
    outs = [t for t in flat(made) if t.requires_grad and t.numel()]
    weights = [_weight(t) for t in outs]
    return torch.autograd.grad(outs, leaves, weights, create_graph=create_graph, allow_unused=True) if outs else None


def _weight(tensor: torch.Tensor) -> torch.Tensor:
    return torch.linspace(0.5, 1.5, tensor.numel()).reshape(tensor.shape).to(tensor.dtype).to(tensor.device)


def _compare(outcome: Outcome, label: str, run: Callable[[Any], Any], sample: Any, device: torch.device) -> None:
    def on(where: torch.device) -> Any:
        moved = _fresh(sample, where, outcome.name)
        torch.manual_seed(3)
        named = bool(flat((moved.input, moved.args, moved.kwargs))) or "device" in moved.kwargs
        return tree(run(moved), lambda t: home(t, where if named else t.device))

    compare(outcome, label, on, device)


def compare(
    outcome: Outcome, label: str, run: Callable[[torch.device], Any], device: torch.device, **tolerances: float
) -> None:
    """What a case gives on the CPU and on the device, if the CPU can do it; `run` brings its results home."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = run(torch.device("cpu"))
        except Exception:
            return  # not something that the CPU can do
        outcome.tried += 1
        try:
            actual = run(device)
        except (OpNotAllowed, NotImplementedError) as error:
            outcome.refused.append(f"{label}: {_line(error)}")
            return
        except Exception as error:
            outcome.wrong.append(f"{label}: {type(error).__name__}: {_line(error)}")
            return
    _equal(outcome, label, actual, expected, **tolerances)


def home(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    if tensor.device.type != device.type:
        raise AssertionError(f"a result is on {tensor.device}")
    return tensor.detach().cpu()


def _equal(outcome: Outcome, label: str, actual: Any, expected: Any, **tolerances: float) -> None:
    expected = tree(expected, lambda t: t.detach())
    try:
        if outcome.name.partition(".")[0] in UNDEFINED or outcome.name in UNDEFINED:
            for mine, theirs in zip(flat(actual), flat(expected), strict=True):
                assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
            return
        torch.testing.assert_close(actual, expected, equal_nan=True, **tolerances)
    except (AssertionError, TypeError, ValueError) as error:  # a tensor and none cannot be compared
        outcome.wrong.append(f"{label}: {_line(error)}")


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text[:200]


def tree(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """The same structure with every tensor changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return tuple(tree(item, change) for item in value)
    if isinstance(value, list | tuple):
        made = [tree(item, change) for item in value]
        return made if isinstance(value, list) else tuple(made)
    if isinstance(value, dict):
        return {name: tree(item, change) for name, item in value.items()}
    return value


def flat(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    tree(value, found.append)
    return found


def _fresh(sample: Any, device: torch.device, name: str) -> Any:
    """The sample with its tensors copied to a device, and mentions of the CPU replaced by it."""

    def move(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if device.type != "cpu" and value.layout is not torch.strided:
                raise NotImplementedError("sparse tensors cannot be moved to a remote device")
            copy = value.detach().clone() if device.type == "cpu" else value.detach().to(device)
            return copy.requires_grad_(value.requires_grad)
        if isinstance(value, torch.device):
            return device if value.type == "cpu" else value
        if isinstance(value, str) and value == "cpu":
            return str(device)
        return value

    def deep(value: Any) -> Any:
        if isinstance(value, list | tuple) and not isinstance(value, torch.Size) and not hasattr(value, "_fields"):
            return type(value)(deep(item) for item in value)
        if isinstance(value, dict):
            return {name: deep(item) for name, item in value.items()}
        return move(value)

    stays = name in STAY_ON_CPU
    return type(sample)(
        deep(sample.input),
        args=sample.args if stays else tuple(deep(item) for item in sample.args),
        kwargs=deep(dict(sample.kwargs)),
        output_process_fn_grad=sample.output_process_fn_grad,
        broadcasts_input=sample.broadcasts_input,
    )
