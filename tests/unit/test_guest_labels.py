"""Labels that are no class, and losses of a single sample: refused, and shaped, as on the CPU."""

import pytest
import torch
import torch.nn.functional as F
from remote_device import same
from torch.fx.experimental.proxy_tensor import make_fx

from dgsf.errors import RemoteOpError


@pytest.mark.parametrize(("classes", "count"), [([1, 2], -1), ([0, 2], 3), ([], 3), ([[0, 1], [1, 0]], 4)])
def test_classes_become_rows(classes, count, device):
    labels = torch.tensor(classes, dtype=torch.int64)
    same(F.one_hot(labels.to(device), count), F.one_hot(labels, count))


def test_nothing_is_waited_for_where_the_number_of_classes_is_known(device, stream):
    labels = torch.tensor([1, 2], device=device)
    before = stream.waits
    rows = F.one_hot(labels, 3)
    assert rows.shape == (2, 3)
    assert stream.waits == before


@pytest.mark.parametrize(("classes", "count"), [([1, 7], 3), ([-1], 3), ([1], 0)])
def test_what_is_no_class_is_told_at_the_next_value(classes, count, device):
    labels = torch.tensor(classes, dtype=torch.int64)
    with pytest.raises(RuntimeError) as here:
        F.one_hot(labels, count)
    with pytest.raises(RemoteOpError, match=str(here.value)):
        F.one_hot(labels.to(device), count).cpu()


@pytest.mark.parametrize(("classes", "why"), [([2, -1], "non-negative"), ([], "empty tensor")])
def test_what_is_no_class_is_told_at_once_where_they_are_counted(classes, why, device):
    with pytest.raises(RuntimeError, match=why):
        F.one_hot(torch.tensor(classes, dtype=torch.int64, device=device))


def test_rows_of_a_batch_by_a_transform(device):
    labels = torch.tensor([1, 2])
    rows = torch.func.vmap(lambda label: F.one_hot(label, 4))
    same(rows(labels.to(device)), rows(labels))


def test_gradients_and_graphs_through_rows(device):
    """By transforms, and traced: then torch's own parts are seen, and no result of the traced labels is kept."""
    labels, others = (torch.tensor(each, device=device) for each in ([1, 2, 0], [3, 3, 3]))
    weights = torch.arange(12.0, device=device).reshape(3, 4)
    loss = lambda given: (given.square() * F.one_hot(labels, 4)).sum()  # noqa: E731 - the shortest name of it
    same(torch.func.grad(loss)(weights), 2 * weights.cpu() * F.one_hot(labels.cpu(), 4))
    for mode in ("real", "fake", "symbolic"):
        graph = make_fx(lambda given: F.one_hot(given, 4), tracing_mode=mode)(labels)
        same(graph(others), F.one_hot(others.cpu(), 4))


def test_labels_that_are_no_integers_are_refused_in_torch_s_words(device):
    for count in (-1, 4):
        with pytest.raises(RuntimeError, match="only applicable to index tensor"):
            F.one_hot(torch.tensor([1.0, 2.0], device=device), count).cpu()


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(
    ("loss", "target"), [(F.multi_margin_loss, 0), (F.multilabel_margin_loss, [3, 0, -1, 1])], ids=["one", "several"]
)
def test_the_loss_of_a_single_sample_has_no_dimension(loss, target, reduction, device):
    given, target = torch.tensor([0.5, -1.0, 0.25, 2.0]), torch.tensor(target)

    def run(where):
        leaf = given.to(where).requires_grad_()
        value = loss(leaf, target.to(where), reduction=reduction)
        value.backward()
        return value.detach(), leaf.grad

    for there, here in zip(run(device), run("cpu"), strict=True):
        assert there.shape == here.shape
        same(there, here)
