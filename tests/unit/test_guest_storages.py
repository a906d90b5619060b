"""Storages of a remote device are refused; those of the CPU are as ever."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch

# In a process of its own: torch itself ends the one that gets as far as its allocator.
REFUSED = """
import warnings
import torch, dgsf.torch
from dgsf.errors import OpNotAllowed
warnings.simplefilter("ignore")  # typed storages are old-fashioned
for make in (
    lambda: torch.UntypedStorage(8, device="dgsf"),
    lambda: torch.UntypedStorage([1, 2], device=torch.device("dgsf", 0)),
    lambda: torch.TypedStorage(8, dtype=torch.float32, device="dgsf"),
    lambda: torch.UntypedStorage(8).to(device="dgsf"),
):
    try:
        make()
    except OpNotAllowed as error:
        assert "a remote device has no storages" in str(error)
    else:
        raise AssertionError("it was made")
print("all refused")
"""


def test_a_storage_on_the_remote_device_is_refused_and_the_process_lives():
    done = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "all refused\n"), done.stderr


def test_storages_of_the_cpu_are_made_as_before(device):
    storage = torch.UntypedStorage([1, 2, 3], device="cpu")
    assert list(storage) == [1, 2, 3] and storage.device.type == "cpu"
    assert torch.UntypedStorage(4).nbytes() == torch.UntypedStorage(4, device=torch.device("cpu")).nbytes() == 4
    assert torch.UntypedStorage(4, device="meta").device.type == "meta"
    for same in (storage.clone(), copy.deepcopy(storage), storage.share_memory_()):
        assert list(same) == [1, 2, 3]
    with pytest.raises(RuntimeError, match="nonsense"):
        torch.UntypedStorage(4, device="nonsense")


def test_a_subclass_of_a_storage_is_still_one(device):
    class Own(torch.UntypedStorage):
        pass

    assert type(Own(4)) is Own and Own(4).nbytes() == 4
