"""Kernels that only the CPU has, done on other devices by operators that every device has.

A guest may have been on a CPU device when it chose them and may be on a GPU now, so they take the same arguments
and give results of the same sizes and strides.  What the CPU keeps in a workspace is computed again instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from dgsf.errors import OpNotAllowed
from dgsf.remoting.executor import recurrent

_LSTM = 2  # the number of that mode


# --- attention
def _scores(query: Tensor, key: Tensor, causal: bool, mask: Tensor | None, scale: float) -> Tensor:
    """In float32 at least, as the kernel has them."""
    wide = torch.float64 if query.dtype is torch.float64 else torch.float32
    scores = (query.to(wide) @ key.to(wide).transpose(-2, -1)) * scale
    if causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~allowed, float("-inf"))
    return scores if mask is None else scores + mask.to(wide)


def _weights(scores: Tensor) -> Tensor:
    """Softmax; a query that may see nothing sees nothing, instead of not-a-number."""
    return scores.softmax(-1).masked_fill((scores == float("-inf")).all(-1, keepdim=True), 0.0)


def _scale(query: Tensor, scale: float | None) -> float:
    return query.shape[-1] ** -0.5 if scale is None else scale


def _attention(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False, *,
    attn_mask: Tensor | None = None, scale: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    if dropout_p:
        raise OpNotAllowed("this attention is without dropout")
    scores = _scores(query, key, is_causal, attn_mask, _scale(query, scale))
    out = torch.empty_like(query).copy_(_weights(scores) @ value.to(scores.dtype))
    sums = scores.logsumexp(-1)
    sums = sums.masked_fill(sums == float("-inf"), 0.0)
    return out, sums.transpose(1, 2).contiguous().transpose(1, 2)


def _attention_backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor, dropout_p: float,
    is_causal: bool, *, attn_mask: Tensor | None = None, scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    factor = _scale(query, scale)
    weights = _weights(_scores(query, key, is_causal, attn_mask, factor))
    wide = weights.dtype
    grad = grad_out.to(wide)
    to_weights = grad @ value.to(wide).transpose(-2, -1)
    to_scores = weights * (to_weights - (grad * out.to(wide)).sum(-1, keepdim=True)) * factor
    found = (to_scores @ key.to(wide), to_scores.transpose(-2, -1) @ query.to(wide), weights.transpose(-2, -1) @ grad)
    return tuple(_by_rows(each.to(query.dtype)) for each in found)


def _by_rows(tensor: Tensor) -> Tensor:
    """The same, with the heads of one position next to each other in memory."""
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


# --- one layer and direction of an LSTM
def _steps(length: int, reverse: bool) -> list[int]:
    return list(range(length))[::-1] if reverse else list(range(length))


def _run(source: Tensor, weights: tuple[Tensor, ...], hidden: Tensor, cell: Tensor, reverse: bool) -> list[Any]:
    """Per step, in the order they are done: place, hidden and cell before, the four gates, cell after, hidden after."""
    to_gates = functional.linear(source, weights[0], weights[2] + weights[3])
    done = []
    for place in _steps(source.shape[0], reverse):
        gates = to_gates[place] + hidden @ weights[1].t()
        enter, forget, new, leave = gates.chunk(4, 1)
        enter, forget, new, leave = enter.sigmoid(), forget.sigmoid(), new.tanh(), leave.sigmoid()
        after = forget * cell + enter * new
        out = leave * after.tanh()
        done.append((place, hidden, cell, enter, forget, new, leave, after, out))
        hidden, cell = out, after
    return done


def _refuse_other_layers(mode: int, layers: int, bidirectional: bool, batch_first: bool, batch_sizes: Any) -> None:
    if mode != _LSTM or layers != 1 or bidirectional or batch_first or batch_sizes:
        raise OpNotAllowed("only one layer and direction of an LSTM over plain sequences can be done at once")


def _lstm_layer(
    source: Tensor, weight0: Tensor, weight1: Tensor, weight2: Tensor, weight3: Tensor, hx_: Tensor, cx_: Tensor,
    reverse: bool, batch_sizes: list[int], mode: int, hidden_size: int, num_layers: int, has_biases: bool,
    bidirectional: bool, batch_first: bool, train: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    _refuse_other_layers(mode, num_layers, bidirectional, batch_first, batch_sizes)
    done = _run(source, (weight0, weight1, weight2, weight3), hx_[0], cx_[0], reverse)
    outs = [step[-1] for step in sorted(done, key=lambda step: step[0])]
    last = done[-1]
    workspace = torch.empty(0, dtype=torch.uint8, device=source.device)
    return torch.stack(outs), last[-1].unsqueeze(0), last[-2].unsqueeze(0), workspace


def _lstm_layer_backward(
    source: Tensor, weight1: Tensor, weight2: Tensor, weight3: Tensor, weight4: Tensor, hx_: Tensor, cx_tmp: Tensor,
    output: Tensor, hy_: Tensor, cy_: Tensor, grad_output: Tensor | None, grad_hy: Tensor | None,
    grad_cy: Tensor | None, reverse: bool, mode: int, hidden_size: int, num_layers: int, has_biases: bool,
    train: bool, bidirectional: bool, batch_sizes: list[int], batch_first: bool, workspace: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    _refuse_other_layers(mode, num_layers, bidirectional, batch_first, batch_sizes)
    weights = (weight1, weight2, weight3, weight4)
    to_hidden = torch.zeros_like(hx_[0]) if grad_hy is None else grad_hy[0]
    to_cell = torch.zeros_like(cx_tmp[0]) if grad_cy is None else grad_cy[0]
    to_gates = torch.empty((*source.shape[:2], weight1.shape[0]), dtype=source.dtype, device=source.device)
    before = torch.empty_like(output)
    for place, hidden, cell, enter, forget, new, leave, after, _ in reversed(
        _run(source, weights, hx_[0], cx_tmp[0], reverse)
    ):
        if grad_output is not None:
            to_hidden = to_hidden + grad_output[place]
        bent = after.tanh()
        to_cell = to_cell + to_hidden * leave * (1 - bent * bent)
        parts = (
            to_cell * new * enter * (1 - enter), to_cell * cell * forget * (1 - forget),
            to_cell * enter * (1 - new * new), to_hidden * bent * leave * (1 - leave),
        )  # fmt: skip
        to_gates[place] = torch.cat(parts, 1)
        before[place] = hidden
        to_hidden, to_cell = to_gates[place] @ weight2, to_cell * forget
    rows = to_gates.flatten(0, 1)
    bias = rows.sum(0)
    return (
        to_gates @ weight1, rows.t() @ source.flatten(0, 1), rows.t() @ before.flatten(0, 1), bias, bias.clone(),
        to_hidden.unsqueeze(0), to_cell.unsqueeze(0),
    )  # fmt: skip


# --- what wants one of its arguments on the CPU
def _second_on_cpu(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def called(first: Tensor, second: Tensor, *args: Any, **kwargs: Any) -> Any:
        return kernel(first, second.cpu(), *args, **kwargs)

    return called


_STAND_INS: dict[str, Callable[..., Any]] = {
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "aten::mkldnn_rnn_layer": lambda *args: _by_mode(9, _lstm_layer, recurrent.forward)(*args),
    "aten::mkldnn_rnn_layer_backward": lambda *args: _by_mode(14, _lstm_layer_backward, recurrent.backward)(*args),
}
_SECOND_ON_CPU = frozenset((
    "aten::lstm.data", "aten::gru.data", "aten::rnn_tanh.data", "aten::rnn_relu.data",
    "aten::tensor_split.tensor_indices_or_sections",
))  # fmt: skip


def off_cpu(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """What a device other than the CPU calls for this operator."""
    if name in _SECOND_ON_CPU:
        return _second_on_cpu(kernel)
    return _STAND_INS.get(name.removesuffix(".default"), kernel)


def on_cpu(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """What the CPU calls: a layer whose way forward was done on another device has no workspace."""
    name = name.removesuffix(".default")
    if name == "aten::mkldnn_rnn_layer":
        return _by_mode(9, kernel, recurrent.forward)
    if name != "aten::mkldnn_rnn_layer_backward":
        return kernel

    def backward(*args: Any) -> Any:
        return (kernel if args[-1].numel() else _lstm_layer_backward)(*args)

    return _by_mode(14, backward, recurrent.backward)


def _by_mode(place: int, lstm: Callable[..., Any], others: Callable[..., Any]) -> Callable[..., Any]:
    """The layer of the mode that the argument at this place says."""

    def called(*args: Any) -> Any:
        return (others if args[place] in recurrent.MODES else lstm)(*args)

    return called
