"""Over a real session: the device's random numbers are its own, and linear algebra that fails says so at its call."""

from __future__ import annotations

import struct

import pytest
import torch
from executor_fixtures import executors
from remote_device import same

from dgsf.errors import RemoteOpError
from dgsf.remoting.executor.local import LocalSpec
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.lazy import LazyStream
from dgsf.remoting.guest.session_stream import SessionStream

__all__ = ["executors"]


@pytest.fixture
def lazy(executors):
    """A function's stream: its session begins with the first operation."""
    spec = LocalSpec(device_options={"threads": 1})
    stream = LazyStream(lambda freed: SessionStream(executors.connect(spec), freed=freed))
    with bind(stream, "cuda"):
        yield stream
    stream.close()


# --- random numbers
def drawn() -> torch.Tensor:
    return torch.randn(3, device="cuda").cpu()


def test_a_state_saved_before_the_device_is_there_is_the_one_it_begins_with(lazy):
    torch.manual_seed(-3)
    state = torch.cuda.get_rng_state()
    assert lazy.real is None
    first = drawn()
    assert lazy.real is not None and not torch.equal(first, drawn())
    torch.cuda.set_rng_state(state)
    assert torch.equal(drawn(), first)


def test_what_is_drawn_in_a_fork_is_not_missing_after_it(lazy):
    torch.manual_seed(0)
    with torch.random.fork_rng(devices=[0]):
        torch.manual_seed(5)
        inside = drawn()
    after = drawn()
    torch.manual_seed(0)
    assert torch.equal(after, drawn()) and not torch.equal(inside, after)


def test_code_of_the_cpu_that_forks_opens_no_device_and_changes_nothing(lazy):
    torch.manual_seed(4)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        torch.rand(1)
    x = torch.ones(2, requires_grad=True)
    torch.utils.checkpoint.checkpoint(torch.dropout, x, 0.5, True, use_reentrant=False).sum().backward()
    assert lazy.real is None
    assert torch.cuda.initial_seed() == 4
    after = drawn()
    torch.manual_seed(4)
    assert torch.equal(after, drawn())


def test_a_new_seed_of_the_device_is_its_own_and_remembered(lazy):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    torch.cuda.seed()
    assert torch.equal(torch.get_rng_state(), before) and torch.initial_seed() == 1
    seed, first = torch.cuda.initial_seed(), drawn()
    assert seed != 1
    state = torch.cuda.get_rng_state()
    torch.cuda.manual_seed(77)
    assert torch.cuda.initial_seed() == torch.cuda.default_generators[0].initial_seed() == 77
    torch.cuda.set_rng_state(state)
    assert torch.cuda.initial_seed() == seed
    torch.cuda.manual_seed(seed)
    assert torch.equal(drawn(), first)


BAD = [
    (torch.zeros(3), TypeError),
    ([1, 2], TypeError),
    (torch.zeros(5056, dtype=torch.uint8), RuntimeError),
    (torch.zeros(17, dtype=torch.uint8), RuntimeError),
    (torch.empty(0, dtype=torch.uint8), RuntimeError),
    (torch.tensor([*struct.pack("<QQ", 1, 2)], dtype=torch.uint8), RuntimeError),
]


@pytest.mark.parametrize(("state", "error"), BAD, ids=range(len(BAD)))
def test_what_is_no_state_is_refused_where_it_is_set(lazy, state, error):
    torch.manual_seed(9)
    with pytest.raises(error):
        torch.cuda.set_rng_state(state)
    with pytest.raises(ValueError, match="Overflow"):
        torch.cuda.manual_seed(2**65)
    assert torch.cuda.initial_seed() == 9 and lazy.real is None


def test_a_state_on_the_device_is_refused(lazy):
    with pytest.raises(TypeError, match="CPU"):
        torch.cuda.set_rng_state(torch.zeros(16, dtype=torch.uint8, device="cuda"))


def test_a_state_that_the_executor_refuses_is_told_and_the_session_goes_on(lazy):
    x = torch.ones(2, device="cuda")
    lazy.upload(torch.ones(1))
    lazy.set_rng_state(torch.zeros(5056, dtype=torch.uint8))
    with pytest.raises(RemoteOpError, match="mt19937"):
        torch.cuda.synchronize()
    same(x + 1, torch.full((2,), 2.0))


def test_the_devices_generator_may_be_named_where_numbers_are_drawn(lazy):
    generator = torch.cuda.default_generators[0]
    x = torch.empty(3, device="cuda")
    draws = (
        lambda **of: x.normal_(**of).clone(),
        lambda **of: x.uniform_(**of).clone(),
        lambda **of: x.exponential_(**of).clone(),
        lambda **of: torch.rand(3, device="cuda", **of),
        lambda **of: torch.randperm(9, device="cuda", **of),
        lambda **of: torch.multinomial(torch.ones(9, device="cuda"), 3, **of),
        lambda **of: torch.bernoulli(torch.full((9,), 0.5, device="cuda"), **of),
        lambda **of: torch.normal(0.0, 1.0, (3,), device="cuda", **of),
    )
    for draw in draws:
        generator.manual_seed(3)
        expected = draw().cpu()
        torch.cuda.manual_seed(3)
        same(draw(generator=generator), expected)
    assert generator.device == x.device and not hasattr(generator, "clone_state")


# --- linear algebra
def out(like: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, device=like.device)


SINGULAR = {
    "cholesky": torch.linalg.cholesky,
    "cholesky out": lambda a: torch.linalg.cholesky(a, out=out(a)),
    "old cholesky": torch.cholesky,
    "cholesky_inverse": torch.cholesky_inverse,
    "inv": torch.linalg.inv,
    "inv out": lambda a: torch.linalg.inv(a, out=out(a)),
    "solve": lambda a: torch.linalg.solve(a, a),
    "solve out": lambda a: torch.linalg.solve(a, a, out=out(a)),
    "matrix_power": lambda a: torch.linalg.matrix_power(a, -1),
    "lu_factor": torch.linalg.lu_factor,
    "ldl_factor": torch.linalg.ldl_factor,
}
NOT_FINITE = {"svd": torch.linalg.svd, "svdvals": torch.linalg.svdvals, "pinv": torch.linalg.pinv,
              "matrix_rank": torch.linalg.matrix_rank, "eig": torch.linalg.eig}  # fmt: skip
CASES = [(name, function, 0.0) for name, function in SINGULAR.items()]
CASES += [(name, function, float("nan")) for name, function in NOT_FINITE.items()]


@pytest.mark.filterwarnings("ignore:torch.cholesky is deprecated")
def test_a_matrix_that_cannot_be_factored_is_told_at_the_call_each_time(lazy):
    for name, function, value in CASES:
        function(torch.eye(3, device="cuda"))  # known from now on
        with pytest.raises(RuntimeError) as local:
            function(torch.full((3, 3), value))
        wanted = torch.linalg.LinAlgError if isinstance(local.value, torch.linalg.LinAlgError) else RuntimeError
        bad = torch.full((3, 3), value, device="cuda")
        for _ in range(2):
            try:
                function(bad)
            except wanted:
                continue
            pytest.fail(f"{name} did not say that it failed")
    assert torch.ones(1, device="cuda").item() == 1


def test_a_program_may_try_until_it_succeeds(lazy):
    matrix = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
    there, tried = matrix.to("cuda"), []
    for jitter in (0.0, 0.5, 4.0):
        tried.append(jitter)
        try:
            found = torch.linalg.cholesky(there + jitter * torch.eye(2, device="cuda"))
            break
        except torch.linalg.LinAlgError:
            continue
    assert tried == [0.0, 0.5, 4.0]
    same(found, torch.linalg.cholesky(matrix + 4 * torch.eye(2)))
