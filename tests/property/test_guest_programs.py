"""Random programs of operations, views, in-place changes and gradients give on the device what they give here."""

import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from inprocess_stream import InProcessStream

from dgsf.remoting.guest.attach import bind


def weights(rows, like):
    return torch.ones(rows, like.shape[-1], device=like.device, requires_grad=True)


# A step takes the list of tensors so far, some numbers, and appends a tensor or changes one in place.
STEPS = {
    "add": lambda a, b, i: a + b.sum() * 0.1,
    "mul": lambda a, b, i: a * (0.5 + i),
    "matmul": lambda a, b, i: a.reshape(-1, a.shape[-1]) @ a.reshape(-1, a.shape[-1]).t(),
    "transpose": lambda a, b, i: a.transpose(0, -1),
    "slice": lambda a, b, i: a[i % a.shape[0] :],
    "select": lambda a, b, i: a.select(-1, i % a.shape[-1]).unsqueeze(0),
    "narrow": lambda a, b, i: a.narrow(-1, 0, 1 + i % a.shape[-1]),
    "flatten": lambda a, b, i: a.reshape(1, -1),
    "expand": lambda a, b, i: a[:1].expand(2, *a.shape[1:]),
    "cat": lambda a, b, i: torch.cat([a, a.flip(0)]),
    "sum": lambda a, b, i: a.sum(i % a.dim(), keepdim=True),
    "softmax": lambda a, b, i: torch.softmax(a, i % a.dim()),
    "tanh": lambda a, b, i: torch.tanh(a),
    "where": lambda a, b, i: torch.where(a > 0, a, a * 0.5),
    "mask": lambda a, b, i: a.masked_fill(a > 0.5, 0.25),
    "index": lambda a, b, i: a[torch.tensor([0, i % a.shape[0]])],
    "sort": lambda a, b, i: a.sort(-1).values,
    "chunk": lambda a, b, i: a.chunk(2, -1)[0].clone(),
    "contiguous": lambda a, b, i: a.contiguous(),
    "linear": lambda a, b, i: torch.nn.functional.linear(a, weights(2, a)),
}
IN_PLACE = {
    "add_": lambda a, i: a.add_(0.5 * i),
    "mul_row_": lambda a, i: a[i % a.shape[0]].mul_(0.5),
    "fill_column_": lambda a, i: a.select(-1, i % a.shape[-1]).fill_(0.1 * i),
    "copy_": lambda a, i: a.copy_(a.detach().flip(0).clone()),
    "tanh_": lambda a, i: a.tanh_(),
}
programs = st.lists(
    st.tuples(st.sampled_from([*STEPS, *IN_PLACE]), st.integers(0, 30), st.integers(0, 30), st.integers(0, 7)),
    min_size=1,
    max_size=10,
)
shapes = st.lists(st.integers(1, 4), min_size=2, max_size=3)


def run(program, shape, device):
    """The tensors that a program makes, what torch forbids in it, and its gradient."""
    leaf = torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape).to(device).requires_grad_()
    made, forbidden = [leaf * 1.0], []
    for index, (name, first, second, number) in enumerate(program):
        a, b = made[first % len(made)], made[second % len(made)]
        try:
            if name in IN_PLACE:
                IN_PLACE[name](a, number)
            elif a.numel() <= 256:
                made.append(STEPS[name](a, b, number))
        except RuntimeError:
            forbidden.append(index)
    try:
        (gradient,) = torch.autograd.grad(sum(tensor.sum() for tensor in made), [leaf])
    except RuntimeError:
        forbidden.append(-1)
        gradient = torch.zeros(())
    return [tensor.detach().cpu() for tensor in made], forbidden, gradient.cpu()


@settings(max_examples=40, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(programs, shapes)
def test_a_program_means_the_same_there_and_here(program, shape):
    expected = run(program, shape, torch.device("cpu"))
    stream = InProcessStream()
    try:
        with bind(stream) as device:
            found = run(program, shape, device)
        assert found[1] == expected[1]
        torch.testing.assert_close(found[::2], expected[::2], equal_nan=True)
    finally:
        stream.close()
