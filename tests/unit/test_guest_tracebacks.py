"""Errors of a remote device point at the program's line: one frame of ours at most, types by their public names."""

from __future__ import annotations

import gc
import os
import pickle
import traceback
import weakref

import pytest
import torch

import dgsf
import dgsf.torch
from dgsf.remoting.guest import failures
from dgsf.remoting.guest.bound import bound

OURS = os.path.dirname(dgsf.__file__)


def our_frames(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(OURS)]


def test_an_operation_that_fails_shows_one_frame_of_ours_and_no_chain(device):
    with pytest.raises(RuntimeError) as caught:
        torch.ones(2, 3, device=device) @ torch.ones(2, 3, device=device)
    assert our_frames(caught.value) == ["__torch_dispatch__"]
    assert caught.value.__cause__ is None and caught.value.__context__ is None


@pytest.mark.parametrize(
    ("waits", "use"),
    [
        ("fetch", lambda x: x.item()),
        ("fetch", lambda x: x.cpu()),
        ("call", lambda x: x + 1),
        ("upload", lambda x: torch.ones(3).to(x.device)),
        ("sync", lambda x: torch.dgsf.synchronize()),
    ],
)
def test_ctrl_c_shows_one_frame_of_ours(device, stream, monkeypatch, waits, use):
    def interrupted(*_):
        raise KeyboardInterrupt

    x = torch.ones((), device=device)
    monkeypatch.setattr(stream, waits, interrupted)
    if waits == "call":
        monkeypatch.setattr(bound, "call", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        use(x)
    assert len(our_frames(caught.value)) == 1


def test_a_device_that_is_not_attached_shows_one_frame_of_ours():
    for use in (
        lambda: torch.zeros(3, device="dgsf"),
        lambda: torch.empty(3, device="dgsf"),
        lambda: torch.ones(3).to("dgsf"),
    ):
        with pytest.raises(dgsf.NotAttached) as caught:
            use()
        assert len(our_frames(caught.value)) == 1


def test_the_programs_own_context_stays(device):
    try:
        raise KeyError("own")
    except KeyError:
        with pytest.raises(RuntimeError) as caught:
            torch.ones(2, device=device) @ torch.ones(3, device=device)
    assert isinstance(caught.value.__context__, KeyError)


def test_an_error_keeps_no_tensor_once_it_is_handled(device):
    x = torch.ones(2, 3, device=device)
    gone = weakref.ref(x)
    gc.disable()
    try:
        with pytest.raises(RuntimeError):
            x @ x
        del x
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", failures.PUBLIC, ids=lambda kind: kind.__name__)
def test_types_are_shown_and_found_by_their_public_name(kind):
    assert getattr(dgsf, kind.__name__) is kind
    assert traceback.format_exception_only(kind("x")) == [f"dgsf.{kind.__name__}: x\n"]
    assert kind.__name__ not in dgsf.__all__, "import * must not need torch"
    assert type(pickle.loads(pickle.dumps(kind("x")))) in (dgsf.RemoteOpError, dgsf.OutOfMemory)
