"""Encoders give on the device what they give on the CPU, by torch's fast path or beside it, padding included."""

import copy

import pytest
import torch
from remote_device import same
from torch import nn

from dgsf.errors import OpNotAllowed

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # nested tensors are in prototype stage
X = torch.linspace(-1, 1, 3 * 4 * 8).sin().reshape(3, 4, 8)
INF = float("inf")
MASKS = {
    "aligned": torch.tensor([[0, 0, 1, 1], [0, 0, 0, 0], [0, 1, 1, 1]]).bool(),
    "aligned, one all padding": torch.tensor([[0, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]]).bool(),
    "not aligned": torch.tensor([[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 1]]).bool(),
    "nothing padded": torch.zeros(3, 4).bool(),
    "numbers": torch.tensor([[0, 0, -INF, -INF], [0, 0, 0, 0], [0, 0, 0, -INF]]),
    "small numbers": torch.tensor([[0, 0, -1.0, -2.0], [0, 0, 0, 0], [0, 0, 0, -3.0]]),
    "small numbers, not aligned": torch.tensor([[0, -1.0, 0, -2.0], [0, 0, 0, 0], [0, 0, 0, -3.0]]),
}


def encoder(norm=None, check=True, nested=True, **options):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, **{"batch_first": True, "dropout": 0.0, **options})
    return nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=nested, mask_check=check).eval()


def shifted():
    norm = nn.LayerNorm(8)
    nn.init.constant_(norm.bias, 0.25)
    return norm


ENCODERS = {
    "plain": encoder,
    "with a norm": lambda: encoder(shifted()),
    "unchecked": lambda: encoder(check=False),
    "gelu": lambda: encoder(activation="gelu"),
    "never nested": lambda: encoder(nested=False),
    "norm first": lambda: encoder(norm_first=True),
    "training": lambda: encoder().train(),
}


def alike(local, *args, device, **named):
    remote = copy.deepcopy(local).to(device)
    args_there = [value.to(device) for value in args]
    named_there = {name: value.to(device) if torch.is_tensor(value) else value for name, value in named.items()}
    found = remote(*args_there, **named_there)
    assert found.device.type == device.type
    # On the plain way a row that looks at padding alone is not a number.
    torch.testing.assert_close(found.detach().cpu(), local(*args, **named).detach(), equal_nan=True)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", ENCODERS)
def test_an_encoder_with_a_mask_of_padding(kind, mask, device):
    with torch.no_grad():
        alike(ENCODERS[kind](), X, src_key_padding_mask=MASKS[mask], device=device)


@pytest.mark.parametrize("mask", ["aligned", "not aligned"])
def test_an_encoder_in_inference_mode(mask, device):
    with torch.inference_mode():
        alike(encoder(), X, src_key_padding_mask=MASKS[mask], device=device)


@pytest.mark.parametrize("mask", ["aligned", "not aligned", "numbers"])
def test_an_encoder_that_could_learn_fills_nothing_in(mask, device):
    alike(encoder(), X, src_key_padding_mask=MASKS[mask], device=device)


def test_an_encoder_whose_weights_are_frozen_fills_in_with_gradients_enabled(device):
    alike(encoder().requires_grad_(False), X, src_key_padding_mask=MASKS["aligned"], device=device)


def test_an_encoder_with_both_masks(device):
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    with torch.no_grad():
        alike(encoder(), X, mask=causal.isinf(), src_key_padding_mask=MASKS["aligned"], device=device)


def test_an_encoder_with_the_fast_path_switched_off(device):
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            alike(encoder(), X, src_key_padding_mask=MASKS["aligned"], device=device)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


@pytest.mark.parametrize("mask", ["aligned", "not aligned", "numbers", "small numbers"])
def test_a_layer_alone_and_its_attention(mask, device):
    with torch.no_grad():
        alike(encoder().layers[0], X, src_key_padding_mask=MASKS[mask], device=device)
        attention = encoder().layers[0].self_attn
        remote, there = copy.deepcopy(attention).to(device), X.to(device)
        for weights in (True, False):
            mine = remote(there, there, there, key_padding_mask=MASKS[mask].to(device), need_weights=weights)
            theirs = attention(X, X, X, key_padding_mask=MASKS[mask], need_weights=weights)
            same(mine[0], theirs[0])
            assert (mine[1] is None) == (theirs[1] is None)
            same(mine[1], theirs[1]) if weights else None


@pytest.mark.parametrize("mask", ["aligned", "not aligned"])
def test_a_whole_transformer(mask, device):
    torch.manual_seed(0)
    model = nn.Transformer(8, 2, 2, 2, 16, dropout=0.0, batch_first=True).eval()
    with torch.no_grad():
        alike(model, X, X.flip(1), src_key_padding_mask=MASKS[mask], device=device)
        alike(model, X, X, src_key_padding_mask=MASKS[mask], memory_key_padding_mask=MASKS[mask], device=device)


def test_the_mask_is_looked_at_on_the_device_and_nothing_waits(device, stream):
    remote, x, mask = encoder().to(device), X.to(device), MASKS["aligned"].to(device)
    with torch.no_grad():
        remote(x, src_key_padding_mask=mask)
        waits = stream.waits
        remote(x, src_key_padding_mask=mask)
    assert stream.waits == waits


def test_hooks_and_subclasses_see_their_own_encoder(device):
    class Mine(nn.TransformerEncoder):
        def forward(self, src, **named):
            self.seen = True
            return super().forward(src, **named)

    seen = []
    remote = Mine(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval().to(device)
    remote.register_forward_hook(lambda module, given, out: seen.append(module))
    with torch.no_grad():
        found = remote(X.to(device), src_key_padding_mask=MASKS["aligned"].to(device))
    assert seen == [remote] and remote.seen and not found[0, 2:].any().item()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_encoder_is_compiled_as_torch_wrote_it(device):
    local = encoder()
    scripted = torch.jit.script(local)
    with torch.no_grad():
        expected = local(X, src_key_padding_mask=MASKS["aligned"])
        torch.testing.assert_close(scripted(X, src_key_padding_mask=MASKS["aligned"]), expected)
        there = torch.jit.script(copy.deepcopy(local).to(device))
        with pytest.raises(
            RuntimeError, match="_nested_tensor_from_mask"
        ):  # of what Python raises it tells the place only
            there(X.to(device), src_key_padding_mask=MASKS["aligned"].to(device))
        plain = MASKS["not aligned"]
        same(there(X.to(device), src_key_padding_mask=plain.to(device)), local(X, src_key_padding_mask=plain))


def test_packing_by_hand_is_refused(device):
    mask = MASKS["aligned"].logical_not()
    x = X.to(device)
    for each in (mask, MASKS["not aligned"].logical_not()):
        there = torch._nested_tensor_from_mask_left_aligned(x, each.to(device))
        assert there == torch._nested_tensor_from_mask_left_aligned(X, each)
    with pytest.raises(OpNotAllowed, match="nested tensors cannot live on a remote device"):
        torch._nested_tensor_from_mask(x, mask.to(device))
