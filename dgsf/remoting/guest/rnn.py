"""Recurrent layers: whole without gradients; with them, a layer and direction at once, forward and backward.

An LSTM has torch's own fused layer.  For the others the executor has one, under the same operator; where derivatives of
derivatives are wanted, and for packed sequences, they are done step by step as torch does them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.nn import functional

from dgsf.remoting.guest import derivatives
from dgsf.remoting.guest.dispatch import dispatch

aten = torch.ops.aten
_RELU, _TANH, _LSTM, _GRU = range(4)  # the fused layer's numbers for them


def _gradients(*parts: Any) -> bool:
    """Whether there is more to do than to send it whole."""
    if derivatives.watched():
        return True
    if not torch.is_grad_enabled():
        return False
    return any(
        any(item.requires_grad for item in part) if isinstance(part, list) else part.requires_grad for part in parts
    )


def _decomposed() -> Any:
    from torch._decomp import decompositions

    return decompositions


def _stacked(
    source: Any, hidden: Any, weights: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, layer: Any,
) -> Any:  # fmt: skip
    """Layer upon layer, each in one or two directions, with dropout in between (torch's own helper forgets that)."""
    finals: list[Any] = []
    ways = (False, True) if bidirectional else (False,)
    for number in range(num_layers):
        if number and train and dropout:
            source = torch.dropout(source, dropout, train=True)
        outs = []
        for reverse in ways:
            place = len(finals)
            out, final = layer(source, hidden[place], weights[place], has_biases, reverse=reverse)
            outs.append(out)
            finals.append(final)
        source = torch.cat(outs, outs[0].dim() - 1) if bidirectional else outs[0]
    return source, finals


def _packed(func: Any, mode: int) -> Any:
    """Packed sequences: sent whole, or done step by step if gradients are wanted."""

    def layers(
        source: Any, batch_sizes: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float,
        train: bool, bidirectional: bool,
    ) -> Any:  # fmt: skip
        rest = has_biases, num_layers, dropout, train, bidirectional
        if not _gradients(source, hx, params):
            return dispatch(func, (source, batch_sizes, hx, params, *rest), {})
        torchs, sizes = _decomposed(), batch_sizes.tolist()
        if mode == _LSTM:
            weights = torchs.gather_params(params, has_biases, hx[0].size(2) != hx[1].size(2))
            hidden = list(zip(hx[0].unbind(0), hx[1].unbind(0), strict=True))
            out, finals = _stacked(
                source, hidden, weights, *rest, partial(torchs.one_layer_lstm_data, batch_sizes=sizes)
            )
            return out, *(torch.stack(each, 0) for each in zip(*finals, strict=True))
        cell = torchs.gru_cell_data if mode == _GRU else torchs.rnn_cell_data(_nonlinearity(mode))
        weights = torchs.gather_params(params, has_biases, False)
        layer = partial(torchs.one_layer_rnn_data, batch_sizes=sizes, hidden_fn=cell)
        out, finals = _stacked(source, hx.unbind(0), weights, *rest, layer)
        return out, torch.stack(finals, 0)

    return layers


def _lstm(
    source: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    if not _gradients(source, hx, params):
        args = (source, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
        return dispatch(aten.lstm.input, args, {})
    torchs = _decomposed()
    projected = hx[0].size(2) != hx[1].size(2)
    if projected or source.dtype is not torch.float32 or not source.numel() or derivatives.watched():
        layer = torchs.one_layer_lstm
    else:
        layer = _fused_layer
    weights = torchs.gather_params(params, has_biases, projected)
    hidden = list(zip(hx[0].unbind(0), hx[1].unbind(0), strict=True))
    source = source.transpose(0, 1) if batch_first else source
    out, finals = _stacked(source, hidden, weights, has_biases, num_layers, dropout, train, bidirectional, layer)
    finals = list(zip(*finals, strict=True))
    return out.transpose(0, 1) if batch_first else out, torch.stack(finals[0], 0), torch.stack(finals[1], 0)


def _fused_layer(source: Any, hidden: Any, params: Any, has_biases: bool, reverse: bool = False) -> Any:
    """One layer and direction over all steps, in one call forward and one backward."""
    size = hidden[0].size(-1)
    if has_biases:
        bias_in, bias_hidden = params[2], params[3]
    else:
        bias_in = bias_hidden = torch.zeros(4 * size, dtype=source.dtype, device=source.device)
    out, last, cell, workspace = aten.mkldnn_rnn_layer.default(
        source.contiguous(), params[0], params[1], bias_in, bias_hidden, hidden[0].contiguous(),
        hidden[1].contiguous(), reverse, [], _LSTM, size, 1, has_biases, False, False, True,
    )  # fmt: skip
    if workspace is None:  # the device keeps none, so there is no way back through this layer
        return _decomposed().one_layer_lstm(source, hidden, params, has_biases, reverse)
    return out, (last.reshape(hidden[0].shape), cell.reshape(hidden[1].shape))


class _Layer(torch.autograd.Function):
    """A layer of a GRU or RNN in one call, and its way back in another."""

    @staticmethod
    def forward(ctx: Any, mode: int, reverse: bool, source: Any, hidden: Any, *weights: Any) -> Any:
        size = hidden.size(-1)
        given = (source, *weights, hidden, hidden)
        out, last, cell, workspace = dispatch(
            aten.mkldnn_rnn_layer.default,
            (*given, reverse, [], mode, size, 1, True, False, False, True),
            {},
        )
        ctx.mode, ctx.reverse, ctx.size = mode, reverse, size
        ctx.save_for_backward(*given[:6], out, last, cell, workspace)
        ctx.set_materialize_grads(False)
        return out, last

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        *given, out, last, cell, workspace = ctx.saved_tensors
        if grads[0] is None and grads[1] is None:  # weights that nothing came back to have no gradient, not a zero
            return (None,) * (4 + len(given[1:5]))
        grads = tuple(
            torch.zeros_like(of) if grad is None else grad for grad, of in zip(grads, (out, last), strict=True)
        )
        if torch.is_grad_enabled():  # they are to be derived again
            return (None, None, *_derived_again(ctx.mode, ctx.reverse, given, grads))
        found = dispatch(
            aten.mkldnn_rnn_layer_backward.default,
            (*given, given[5], out, last, cell, *grads, None, ctx.reverse, ctx.mode, ctx.size, 1, True, True, False, [],
             False, workspace),
            {},
        )  # fmt: skip
        return (None, None, found[0], found[5], *found[1:5])


def _derived_again(mode: int, reverse: bool, given: list[Any], grads: Any) -> Any:
    source, *weights, hidden = given
    out, last = _decomposed().one_layer_rnn(source, hidden[0], weights, True, _cell(mode), reverse)
    inputs = [source, hidden, *weights]
    wanted = [each for each in inputs if each.requires_grad]
    found = iter(
        torch.autograd.grad((out, last.unsqueeze(0)), wanted, grads, create_graph=True, materialize_grads=True)
    )
    return [next(found) if each.requires_grad else None for each in inputs]


def _cell(mode: int) -> Any:
    torchs = _decomposed()
    return torchs.gru_cell if mode == _GRU else torchs.rnn_cell(_nonlinearity(mode))


def _nonlinearity(mode: int) -> Any:
    return torch.tanh if mode == _TANH else torch.relu


def _by_layers(func: Any, mode: int) -> Any:
    """A layer's kernel of this mode."""

    def layers(
        source: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
        bidirectional: bool, batch_first: bool,
    ) -> Any:  # fmt: skip
        if not _gradients(source, hx, params):
            args = (source, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
            return dispatch(func, args, {})
        torchs = _decomposed()
        whole = source.dtype is torch.float32 and source.numel() and not derivatives.watched()
        layer = partial(_one_layer, mode) if whole else partial(torchs.one_layer_rnn, hidden_fn=_cell(mode))
        source = source.transpose(0, 1) if batch_first else source
        out, finals = _stacked(
            source, hx.unbind(0), torchs.gather_params(params, has_biases, False), has_biases, num_layers, dropout,
            train, bidirectional, layer,
        )  # fmt: skip
        return out.transpose(0, 1) if batch_first else out, torch.stack(finals, 0)

    return layers


def _one_layer(mode: int, source: Any, hidden: Any, params: Any, has_biases: bool, reverse: bool = False) -> Any:
    weights = list(params)
    if not has_biases:
        none = torch.zeros(params[0].size(0), dtype=source.dtype, device=source.device)
        weights = [*params[:2], none, none]
    out, last = _Layer.apply(mode, reverse, source.contiguous(), hidden.unsqueeze(0).contiguous(), *weights)
    return out, last.squeeze(0)


def _lstm_cell(source: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """One step of an LSTM; torch would choose a kernel that only CUDA has."""
    if not _gradients(source, hx, [each for each in (w_ih, w_hh, b_ih, b_hh) if each is not None]):
        return dispatch(aten.lstm_cell.default, (source, hx, w_ih, w_hh, b_ih, b_hh), {})
    hidden, cell = hx
    gates = functional.linear(source, w_ih, b_ih) + functional.linear(hidden, w_hh, b_hh)
    enter, forget, new, leave = gates.chunk(4, 1)
    cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * cell.tanh(), cell


def _gru_cell(source: Any, hidden: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """One step of a GRU, likewise."""
    if not _gradients(source, hidden, [each for each in (w_ih, w_hh, b_ih, b_hh) if each is not None]):
        return dispatch(aten.gru_cell.default, (source, hidden, w_ih, w_hh, b_ih, b_hh), {})
    given = functional.linear(source, w_ih, b_ih).chunk(3, 1)
    kept = functional.linear(hidden, w_hh, b_hh).chunk(3, 1)
    reset, update = (given[0] + kept[0]).sigmoid(), (given[1] + kept[1]).sigmoid()
    new = (given[2] + reset * kept[2]).tanh()
    return (hidden - new) * update + new


def register(library: Any) -> None:
    library.impl("lstm_cell", _lstm_cell, "AutogradPrivateUse1")
    library.impl("gru_cell", _gru_cell, "AutogradPrivateUse1")
    library.impl("lstm.input", _lstm, "AutogradPrivateUse1")
    library.impl("lstm.data", _packed(aten.lstm.data, _LSTM), "AutogradPrivateUse1")
    for name, mode in (("gru", _GRU), ("rnn_tanh", _TANH), ("rnn_relu", _RELU)):
        library.impl(f"{name}.input", _by_layers(getattr(aten, name).input, mode), "AutogradPrivateUse1")
        library.impl(f"{name}.data", _packed(getattr(aten, name).data, mode), "AutogradPrivateUse1")
