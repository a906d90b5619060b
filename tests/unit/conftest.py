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
