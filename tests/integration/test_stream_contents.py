"""Contents that are known by their hash stay with the program as long as a device may ask for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from dgsf.remoting.executor.local import LocalExecutors, LocalSpec
from dgsf.remoting.guest.session_stream import SessionStream
from tests.support.lossy_proxy import lossy_session


@pytest.fixture(scope="module")
def executors() -> Iterator[LocalExecutors]:
    with LocalExecutors() as found:
        yield found


def test_a_content_that_is_named_in_a_record_held_back_outlives_a_checkpoint_of_before(
    executors: LocalExecutors,
) -> None:
    with lossy_session(executors, LocalSpec(device_options={"threads": 1}), []) as proxy:
        stream = SessionStream(proxy.guest)
        stream.upload(torch.ones(1000))
        stream.sync()
        stream._link.saver._begin()
        stream._due = float("inf")  # nothing leaves unasked
        content = torch.randn(50_001)
        handle = stream.upload(content)
        assert stream._recorder.waiting
        stream.checkpoint()  # finishes the one that is under way, which knows nothing of it
        assert torch.equal(stream.fetch(handle), content)
        stream.close()
