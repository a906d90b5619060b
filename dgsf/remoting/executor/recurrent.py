"""One layer and direction of a GRU or plain RNN over all steps, forward and backward.

Torch has such a layer for LSTMs alone and does the others step by step, which costs a guest one command per step and
operator.  They come under the same operator with the numbers of their modes.  All but the way of the gradient through
the hidden states is done for all steps at once, because the output has kept these.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from dgsf.errors import OpNotAllowed

RELU, TANH, GRU = 0, 1, 3
MODES = (RELU, TANH, GRU)
_WHOLE = {RELU: torch.ops.aten.rnn_relu.input, TANH: torch.ops.aten.rnn_tanh.input, GRU: torch.ops.aten.gru.input}


def forward(
    source: Tensor, weight0: Tensor, weight1: Tensor, weight2: Tensor, weight3: Tensor, hx_: Tensor, cx_: Tensor,
    reverse: bool, batch_sizes: list[int], mode: int, hidden_size: int, num_layers: int, has_biases: bool,
    bidirectional: bool, batch_first: bool, train: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    _refuse_more(num_layers, bidirectional, batch_first, batch_sizes)
    given = source.flip(0) if reverse else source
    weights = [weight0, weight1, weight2, weight3]
    out, last = _WHOLE[mode](given, hx_, weights, True, 1, 0.0, False, False, False)
    workspace = torch.empty(0, dtype=torch.uint8, device=source.device)
    out = out.flip(0) if reverse else out
    return out.contiguous(), last.contiguous(), torch.zeros_like(cx_), workspace


def backward(
    source: Tensor, weight1: Tensor, weight2: Tensor, weight3: Tensor, weight4: Tensor, hx_: Tensor, cx_tmp: Tensor,
    output: Tensor, hy_: Tensor, cy_: Tensor, grad_output: Tensor | None, grad_hy: Tensor | None,
    grad_cy: Tensor | None, reverse: bool, mode: int, hidden_size: int, num_layers: int, has_biases: bool,
    train: bool, bidirectional: bool, batch_sizes: list[int], batch_first: bool, workspace: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    _refuse_more(num_layers, bidirectional, batch_first, batch_sizes)
    turned = [each.flip(0) if reverse else each for each in (source, output)]
    given, out = turned
    grad = torch.zeros_like(out) if grad_output is None else (grad_output.flip(0) if reverse else grad_output)
    before = torch.cat((hx_, out[:-1]))
    first = torch.zeros_like(hx_[0]) if grad_hy is None else grad_hy[0]
    if mode == GRU:
        to_source, to_hidden, to_first = _gru(given, before, (weight1, weight2, weight3, weight4), grad, first)
    else:
        slope = 1 - out * out if mode == TANH else (out > 0).to(out.dtype)
        to_source, to_first = _plain(slope, weight2, grad, first)
        to_hidden = to_source
    rows, hidden_rows = to_source.flatten(0, 1), to_hidden.flatten(0, 1)
    to_given = to_source @ weight1
    return (
        to_given.flip(0) if reverse else to_given, rows.t() @ given.flatten(0, 1),
        hidden_rows.t() @ before.flatten(0, 1), rows.sum(0), hidden_rows.sum(0), to_first.unsqueeze(0),
        torch.zeros_like(cx_tmp),
    )  # fmt: skip


def _plain(slope: Tensor, weight: Tensor, grad: Tensor, carried: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of what goes into the steps, and of the first hidden state."""
    found = torch.empty_like(slope)
    for step in range(slope.shape[0] - 1, -1, -1):
        found[step] = (grad[step] + carried) * slope[step]
        carried = found[step] @ weight
    return found, carried


def _gru(
    source: Tensor, before: Tensor, weights: tuple[Tensor, ...], grad: Tensor, carried: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the gates from the source and from the hidden state, and of the first hidden state."""
    from_source = functional.linear(source, weights[0], weights[2]).chunk(3, 2)
    from_hidden = functional.linear(before, weights[1], weights[3]).chunk(3, 2)
    reset, update = (from_source[0] + from_hidden[0]).sigmoid(), (from_source[1] + from_hidden[1]).sigmoid()
    new = (from_source[2] + reset * from_hidden[2]).tanh()
    by_update = (before - new) * update * (1 - update)
    by_new = (1 - update) * (1 - new * new)
    by_reset = from_hidden[2] * reset * (1 - reset)
    to_gates = torch.empty((*before.shape[:2], weights[1].shape[0]), dtype=before.dtype, device=before.device)
    to_new = torch.empty_like(before)
    for step in range(before.shape[0] - 1, -1, -1):
        carried = carried + grad[step]
        to_new[step] = carried * by_new[step]
        torch.cat(
            (to_new[step] * by_reset[step], carried * by_update[step], to_new[step] * reset[step]), 1,
            out=to_gates[step],
        )  # fmt: skip
        carried = carried * update[step] + to_gates[step] @ weights[1]
    size = before.shape[2]
    return torch.cat((to_gates[:, :, : 2 * size], to_new), 2), to_gates, carried


def _refuse_more(layers: int, bidirectional: bool, batch_first: bool, batch_sizes: Any) -> None:
    if layers != 1 or bidirectional or batch_first or batch_sizes:
        raise OpNotAllowed("only one layer and direction over plain sequences can be done at once")
