"""The guest's device over an in-process stream; torch is loaded only by the tests that ask for it."""

import pytest


@pytest.fixture
def stream():
    from inprocess_stream import InProcessStream

    stream = InProcessStream()
    yield stream
    stream.close()


@pytest.fixture
def device(stream):
    from dgsf.remoting.guest.attach import bind

    with bind(stream) as device:
        yield device


@pytest.fixture
def whole_matmul(device, monkeypatch):
    """`matmul` is sent whole, whatever complex numbers other tests in this process have met."""
    import torch

    from dgsf.remoting.guest import fused, plans

    was_whole = bool(fused._matmul)
    fused.whole_matmul()
    monkeypatch.setattr(plans.plan_of(torch.ops.aten.matmul.default), "special", None)
    yield
    if not was_whole:
        fused.saw_complex()
