"""Nested tensors are refused for the device at once, and made on the CPU as before."""

import pytest
import torch
from inprocess_stream import InProcessStream

from dgsf.errors import OpNotAllowed
from dgsf.remoting.guest.attach import bind

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # they are in prototype stage
PARTS = [torch.ones(2, 3), torch.ones(1, 3)]


@pytest.fixture(params=["", "cuda"])
def anywhere(request):
    stream = InProcessStream()
    with bind(stream, alias=request.param) as device:
        yield device
    stream.close()


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.parametrize(
    "make",
    [
        lambda device, layout: torch.nested.nested_tensor(PARTS, device=device, layout=layout),
        lambda device, layout: torch.nested.nested_tensor(PARTS, device=device.type, layout=layout),
        lambda device, layout: torch.nested.nested_tensor([part.to(device) for part in PARTS], layout=layout),
        lambda device, layout: torch.nested.as_nested_tensor(PARTS, torch.float32, device, layout),
        lambda device, layout: torch.nested.as_nested_tensor(torch.ones(2, 3, device=device), layout=layout),
        lambda device, layout: torch.nested.nested_tensor(PARTS, layout=layout).to(device),
        lambda device, layout: torch.nested.nested_tensor_from_jagged(PARTS[0].to(device), torch.tensor([0, 1, 2])),
    ],
)
def test_a_nested_tensor_on_the_device_is_refused_at_once(make, layout, anywhere):
    with pytest.raises(OpNotAllowed, match="nested tensors cannot live on a remote device"):
        make(anywhere, layout)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_of_the_cpu_are_made_as_before(layout, anywhere):
    nested = torch.nested.nested_tensor(PARTS, layout=layout)
    assert nested.is_nested and [part.shape for part in nested.unbind()] == [part.shape for part in PARTS]
    assert torch.nested.to_padded_tensor(nested, 0.0).sum() == 9
