"""Random programs of operations, views, in-place changes and gradients give on the device what they give here."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inprocess_stream import InProcessStream

from dgsf.remoting.guest.attach import bind

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
    "chunk": lambda a, b, i: a.chunk(2, -1)[0],
    "contiguous": lambda a, b, i: a.contiguous(),
    "linear": lambda a, b, i: torch.nn.functional.linear(a, torch.ones(2, a.shape[-1], device=a.device)),
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
    leaf = torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape).to(device).requires_grad_()
    made = [leaf * 1.0]
    for name, first, second, number in program:
        a, b = made[first % len(made)], made[second % len(made)]
        if name in STEPS:
            if a.numel() <= 256:
                made.append(STEPS[name](a, b, number))
        else:
            try:
                IN_PLACE[name](a, number)
            except RuntimeError as error:
                made.append(a * 0 + len(str(error).split()[0]))  # torch forbids it (an expanded tensor): so on both
    total = sum(tensor.sum() for tensor in made)
    try:
        (gradient,) = torch.autograd.grad(total, [leaf])
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
        gradient = None
    return [tensor.detach().cpu() for tensor in made], None if gradient is None else gradient.cpu()


@settings(max_examples=40, deadline=None)
@given(programs, shapes)
def test_a_program_means_the_same_there_and_here(program, shape):
    values, gradient = run(program, shape, torch.device("cpu"))
    stream = InProcessStream()
    try:
        with bind(stream) as device:
            remote_values, remote_gradient = run(program, shape, device)
        torch.testing.assert_close(remote_values, values, equal_nan=True)
        assert (gradient is None) == (remote_gradient is None)
        if gradient is not None:
            torch.testing.assert_close(remote_gradient, gradient, equal_nan=True)
    finally:
        stream.close()
