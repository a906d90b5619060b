"""Modules and checkpoints that move: in threads, while something holds on to them, and by a map of places."""

import io
import threading

import pytest
import torch
from inprocess_stream import InProcessStream
from remote_device import same

from dgsf.remoting.guest.attach import bind

PATIENCE = 60


def identities(module):
    return [id(parameter) for parameter in module.parameters()]


def test_a_move_in_another_thread_changes_nothing_here(device):
    begun, go_on = threading.Event(), threading.Event()
    theirs, ours = torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    before = identities(theirs), identities(ours)

    def slowly(tensor):
        if tensor.numel():  # the guest tries a conversion on an empty tensor first
            begun.set()
            assert go_on.wait(PATIENCE)
        return tensor.to(device)

    swaps = torch.__future__.get_swap_module_params_on_conversion
    other = threading.Thread(target=lambda: theirs._apply(slowly))
    other.start()
    assert begun.wait(PATIENCE)
    assert not swaps()  # modules of the CPU are converted as ever
    ours.to(device)
    assert not swaps()
    go_on.set()
    other.join(PATIENCE)
    assert (identities(theirs), identities(ours)) == before
    assert not swaps()


def test_a_module_whose_result_is_still_held_says_so(device):
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    result = module(torch.ones(1, 2))
    with pytest.raises(RuntimeError, match="a result that still has its graph"):
        module.to(device)
    del result
    assert module.to(device)[1].weight.device.type == "dgsf"


def saved(content, place="cpu"):
    """A file of a program whose tensors were at this place."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda storage: place)
        file = io.BytesIO()
        torch.save(content, file)
    file.seek(0)
    return file


def test_a_checkpoint_goes_where_its_map_says(device):
    content = {"a": torch.ones(2), "m": torch.nn.Linear(2, 2)}
    loaded = torch.load(saved(content), map_location={"cpu": "dgsf"}, weights_only=False)
    same(loaded["a"], torch.ones(2))
    same(loaded["m"].weight, content["m"].weight)
    assert torch.load(saved(content), map_location={"cuda:0": "dgsf"}, weights_only=False)["a"].device.type == "cpu"
    same(torch.load(saved({"a": torch.ones(2)}, "cuda:0"), map_location={"cuda:0": "dgsf"})["a"], torch.ones(2))
    assert torch.load(saved(content), map_location={"cpu": "cpu"}, weights_only=False)["a"].device.type == "cpu"


@pytest.mark.parametrize("places", [None, {"cuda:0": "cuda:0"}, "cuda", torch.device("cuda", 0)])
def test_a_checkpoint_of_a_gpu_comes_to_the_device_that_is_called_cuda(places):
    with bind(InProcessStream(), alias="cuda"):
        loaded = torch.load(saved({"a": torch.ones(2)}, "cuda:0"), map_location=places)["a"]
        assert loaded.is_cuda
        assert loaded.tolist() == [1.0, 1.0]
        assert torch.load(saved({"a": torch.ones(2)}))["a"].device.type == "cpu"
