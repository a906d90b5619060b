"""Modules and checkpoints that move: in threads, while something holds on to them, and by a map of places."""

import gc
import io
import threading
import weakref

import pytest
import torch
from inprocess_stream import InProcessStream
from remote_device import same

from dgsf.remoting.guest import outdated
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


def two_layers():
    return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))


@pytest.mark.parametrize("back", [False, True])
def test_a_module_moves_while_a_result_of_it_is_held(device, back):
    here, there = (device, "cpu") if back else ("cpu", device)
    module = two_layers().to(here)
    before, references = identities(module), [weakref.ref(each) for each in module.parameters()]
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    x = torch.ones(1, 2, device=here, requires_grad=True)
    result, view = module(x).sum(), module[0].weight.view(-1)
    value, weights = result.item(), [each.detach().cpu().clone() for each in module.parameters()]
    module.to(there)
    assert identities(module) == before and [id(each()) for each in references] == before
    assert {each.device.type for each in module.parameters()} == {torch.device(there).type}
    for each, weight in zip(module.parameters(), weights, strict=True):
        assert torch.equal(each.detach().cpu(), weight)
    assert result.item() == value and view.device.type == torch.device(here).type
    (of_x,) = torch.autograd.grad(result, x, retain_graph=True)  # what the graph was made of is still there
    assert torch.allclose(of_x.cpu(), (weights[2] @ weights[0]).sum(0, keepdim=True))
    with pytest.raises(RuntimeError, match="made before its module moved"):
        result.backward()
    assert all(each.grad is None for each in module.parameters())
    module(torch.ones(1, 2, device=there)).sum().backward()
    optimizer.step()
    assert not torch.equal(module[1].bias.detach().cpu(), weights[3])


def some_of(result, module):
    result.backward(inputs=list(module.parameters()))


def grad_of(result, module):
    torch.autograd.grad(result, list(module.parameters()))


def grad_of_any(result, module):
    torch.autograd.grad(result, list(module.parameters()), allow_unused=True)


def grad_at_the_edges(result, module):
    edges = [torch.autograd.graph.get_gradient_edge(each) for each in module.parameters()]
    torch.autograd.grad([torch.autograd.graph.get_gradient_edge(result)], edges, torch.ones(()), allow_unused=True)


ASKED_FOR_PARAMETERS = [some_of, grad_of, grad_of_any, grad_at_the_edges]


@pytest.mark.parametrize("ask", ASKED_FOR_PARAMETERS)
@pytest.mark.parametrize("moves", [1, 2])
def test_a_held_result_is_refused_when_it_is_asked_for_the_moved_parameters(device, ask, moves):
    module = two_layers()
    result = module(torch.ones(1, 2)).sum()
    for place in (device, "cpu")[:moves]:
        module.to(place)
    later = module(torch.ones(1, 2, device=place)).sum()  # the parameters have a graph of their own by now
    with pytest.raises(RuntimeError, match="made before its module moved"):
        ask(result, module)
    with pytest.raises(RuntimeError, match="made before its module moved"):
        ask(result.to(place) + later, module)  # half of a gradient is none either
    assert all(each.grad is None for each in module.parameters())
    later.backward(inputs=list(module.parameters()))
    assert all(each.grad is not None for each in module.parameters())


def test_a_held_result_is_asked_for_what_has_not_moved(device):
    moved, stays = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    result = moved(stays(torch.ones(1, 2))).sum()
    moved.to(device)
    result.backward(inputs=list(stays.parameters()), retain_graph=True)
    assert stays.weight.grad is not None
    (gradient,) = torch.autograd.grad(result, stays.bias, retain_graph=True)
    assert torch.equal(gradient, stays.bias.grad)
    other = moved(torch.ones(1, 2, device=device)).sum()
    torch.autograd.grad(other, list(moved.parameters()))


def test_nothing_of_a_held_result_outlives_it(device):
    gc.collect()
    before = len(outdated._all_left)
    module = two_layers()
    result = module(torch.ones(1, 2)).sum()
    module.to(device)
    assert len(outdated._all_left) == before + 4
    del result
    assert len(outdated._all_left) == before


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_module_moves_in_any_mode(device, mode):
    module = two_layers()
    result = module(torch.ones(1, 2)).sum()
    with mode():
        module.to(device)
        two_layers().to(device)  # was made in it
    with pytest.raises(RuntimeError, match="made before its module moved"):
        result.backward()


@pytest.mark.parametrize("ask", [*ASKED_FOR_PARAMETERS, lambda result, module: result.backward()])
def test_a_held_result_is_refused_its_gradients_after_the_session_too(ask):
    module = two_layers()
    result = module(torch.ones(1, 2)).sum()
    stream = InProcessStream()
    with bind(stream) as device:
        module.to(device).cpu()
    stream.close()
    with pytest.raises(RuntimeError, match="made before its module moved"):
        ask(result, module)


def test_passes_are_looked_at_no_longer_than_there_are_such_results():
    torch.ones((), requires_grad=True).backward()  # torch forgets what was left of a pass that failed
    gc.collect()
    with bind(InProcessStream()):
        pass
    run_backward = torch.autograd.graph._engine_run_backward
    module = two_layers()
    result = module(torch.ones(1, 2)).sum()
    with bind(InProcessStream()) as device:
        module.to(device)
    assert torch.autograd.graph._engine_run_backward is not run_backward
    del result
    with bind(InProcessStream()):
        pass
    assert torch.autograd.graph._engine_run_backward is torch.autograd._engine_run_backward is run_backward


def test_tied_weights_and_gradients_move_while_a_result_is_held(device):
    module = two_layers()
    module[1].weight = module[0].weight
    result = module(torch.ones(1, 2)).sum()
    result.backward(retain_graph=True)
    gradient = module[0].weight.grad.clone()
    module.to(device)
    assert module[1].weight is module[0].weight
    same(module[0].weight.grad, gradient)


def test_parameters_are_moved_by_hand(device):
    module, x = two_layers(), torch.ones(1, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    module(x).sum().backward()
    before, gradients = identities(module), [each.grad.clone() for each in module.parameters()]
    weights = [each.detach().clone() for each in module.parameters()]
    for each in module.parameters():
        each.data = each.data.to(device)
        each.grad.data = each.grad.data.to(device)
    assert identities(module) == before
    assert all(isinstance(each, torch.nn.Parameter) and each.requires_grad for each in module.parameters())
    for each, weight, gradient in zip(module.parameters(), weights, gradients, strict=True):
        same(each, weight)
        same(each.grad, gradient)
    optimizer.step()
    same(module[1].bias, weights[3] - 0.1 * gradients[3])
    module(x.to(device)).sum().backward()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of TorchScript as such
@pytest.mark.parametrize("wrap", [lambda scripted: scripted, torch.nn.Sequential])
def test_a_scripted_module_moves_there_and_back(device, wrap):
    module, x = wrap(torch.jit.script(two_layers())), torch.ones(1, 2)
    expected = module(x).detach()
    assert module.to(device) is module and {each.device for each in module.parameters()} == {device}
    out = module(x.to(device))
    same(out, expected)
    out.sum().backward()
    assert all(each.grad is not None for each in module.parameters())
    assert torch.allclose(module.cpu()(x), expected)


def test_data_of_a_tensor_that_is_no_leaf_is_not_moved_by_hand(device):
    base = torch.ones(4)
    for fixed in (torch.ones(2, requires_grad=True) * 2, base.view(2, 2)):
        with pytest.raises(RuntimeError, match=r"module\.to\(device\)"):
            fixed.data = torch.zeros(2, device=device)
    buffer = torch.ones(2)
    buffer.data = buffer.data.to(device)
    same(buffer, torch.ones(2))


def test_data_of_cpu_tensors_is_exchanged_as_before(device):
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.data = torch.zeros(3)
    assert type(parameter) is torch.nn.Parameter and parameter.tolist() == [0.0] * 3
    with pytest.raises(TypeError):
        parameter.data = 3


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("back", [False, True])
def test_hooks_of_parameters_move_along_and_can_be_removed(device, back, held):
    here, there = (device, "cpu") if back else ("cpu", device)
    module, heard = torch.nn.Linear(2, 2).to(here), []
    twice = module.weight.register_hook(lambda gradient: gradient * 2)
    after = module.weight.register_post_accumulate_grad_hook(lambda weight: heard.append(weight is module.weight))
    result = module(torch.ones(1, 2, device=here)).sum() if held else None
    module.to(there)
    module.weight.register_hook(lambda gradient: heard.append(gradient.device.type == torch.device(there).type))

    def gradients():
        module.zero_grad()
        module(torch.ones(1, 2, device=there)).sum().backward()
        return module.weight.grad.tolist()

    assert gradients() == [[2.0, 2.0]] * 2 and heard == [True, True]
    twice.remove()
    after.remove()
    assert gradients() == [[1.0, 1.0]] * 2 and heard == [True] * 3
    if result is not None:
        with pytest.raises(RuntimeError, match="made before its module moved"):
            result.backward()
        assert heard == [True] * 3  # a pass that is refused is none


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_module_with_hooks_moves_in_any_mode(device, mode):
    module, heard = torch.nn.Linear(2, 2), []
    module.weight.register_hook(lambda gradient: heard.append(1))
    module.weight.register_post_accumulate_grad_hook(lambda weight: heard.append(2))
    with mode():
        module.to(device)
    if mode is torch.no_grad:
        module(torch.ones(1, 2, device=device)).sum().backward()
        assert heard == [1, 2]


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
