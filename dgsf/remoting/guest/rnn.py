"""Recurrent layers: whole without gradients; with them, LSTM by torch's fused layer and the others step by step."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from dgsf.remoting.guest.dispatch import dispatch

aten = torch.ops.aten
_LSTM = 2  # the fused layer's number for it


def _gradients(*parts: Any) -> bool:
    if not torch.is_grad_enabled():
        return False
    return any(
        any(item.requires_grad for item in part) if isinstance(part, list) else part.requires_grad for part in parts
    )


def _decomposed() -> Any:
    from torch._decomp import decompositions

    return decompositions


def _kernel(func: Any, name: str, packed: bool) -> Any:
    """A layer that is sent whole, or done by torch's own decomposition if gradients are wanted."""

    def layer(*args: Any, **kwargs: Any) -> Any:
        hidden, params = (args[2], args[3]) if packed else (args[1], args[2])
        if not _gradients(args[0], hidden, params):
            return dispatch(func, args, kwargs)
        if packed:
            args = (args[0], args[1].tolist(), *args[2:])
        return getattr(_decomposed(), name)(*args, **kwargs)

    return layer


def _lstm(
    source: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    if not _gradients(source, hx, params):
        args = (source, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
        return dispatch(aten.lstm.input, args, {})
    torchs = _decomposed()
    projected = hx[0].size(2) != hx[1].size(2)
    if projected or source.dtype is not torch.float32 or not source.numel():
        layer = torchs.one_layer_lstm
    else:
        layer = _fused_layer
    weights = torchs.gather_params(params, has_biases, projected)
    hidden = list(zip(hx[0].unbind(0), hx[1].unbind(0), strict=True))
    out, finals = torchs._rnn_helper(
        source, hidden, weights, has_biases, num_layers, dropout, train, bidirectional, batch_first, layer
    )
    finals = list(zip(*finals, strict=True))
    return out, torch.stack(finals[0], 0), torch.stack(finals[1], 0)


def _fused_layer(source: Any, hidden: Any, params: Any, has_biases: bool, reverse: bool = False) -> Any:
    """One layer and direction over all steps, in one call forward and one backward."""
    size = hidden[0].size(-1)
    if has_biases:
        bias_in, bias_hidden = params[2], params[3]
    else:
        bias_in = bias_hidden = torch.zeros(4 * size, dtype=source.dtype, device=source.device)
    out, last, cell, workspace = aten.mkldnn_rnn_layer.default(
        source.contiguous(), params[0], params[1], bias_in, bias_hidden, hidden[0].unsqueeze(0).contiguous(),
        hidden[1].unsqueeze(0).contiguous(), reverse, [], _LSTM, size, 1, has_biases, False, False, True,
    )  # fmt: skip
    if workspace is None:  # the device keeps none, so there is no way back through this layer
        return _decomposed().one_layer_lstm(source, hidden, params, has_biases, reverse)
    return out, (last.reshape(hidden[0].shape), cell.reshape(hidden[1].shape))


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
    library.impl("lstm.data", _kernel(aten.lstm.data, "lstm_data_impl", True), "AutogradPrivateUse1")
    library.impl("gru.input", _kernel(aten.gru.input, "gru_impl", False), "AutogradPrivateUse1")
    library.impl("gru.data", _kernel(aten.gru.data, "gru_impl_data", True), "AutogradPrivateUse1")
    for kind in ("tanh", "relu"):
        packet = getattr(aten, f"rnn_{kind}")
        for overload, packed in (("input", False), ("data", True)):
            kernel = _kernel(getattr(packet, overload), f"rnn_{kind}_{overload}", packed)
            library.impl(f"rnn_{kind}.{overload}", kernel, "AutogradPrivateUse1")
