"""The device's name before anything is attached: on request, and without a change for code on the CPU."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import dgsf.torch, torch
from dgsf import DgsfError
device = torch.device("dgsf")
assert device.type == dgsf.torch.device.type == "dgsf"
for use in (lambda: torch.zeros(2, device=device), lambda: torch.nn.Linear(2, 2).to(device)):
    try:
        use()
    except DgsfError as error:
        assert error.code == "not_attached" and "dgsf.attach()" in error.message
    else:
        raise AssertionError
x = torch.randn(3, requires_grad=True)
torch.manual_seed(1)
torch.utils.checkpoint.checkpoint(lambda x: torch.dropout(x * x, 0.5, True), x, use_reentrant=False).sum().backward()
with torch.random.fork_rng():
    assert torch.rand(2, generator=torch.Generator().manual_seed(3)).device.type == "cpu"
assert not torch.accelerator.is_available() and torch.get_device_module() is torch.cpu
print(next(iter(torch.utils.data.DataLoader([1, 2]))).item())
"""


def test_the_name_is_known_and_its_use_says_what_is_missing() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip() == "1", done.stderr
