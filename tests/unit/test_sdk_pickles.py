"""A remote device among a function's results: it opens in every program, whether that one knows the device or not."""

from __future__ import annotations

import base64
import pickle
import subprocess
import sys

from dgsf.sdk import pickles

HOLDS = """
import base64, sys, dgsf.torch, torch
from types import SimpleNamespace
from dgsf.fabric.calling import write_result
from dgsf.wire.messages import Codec
class Settings:
    def __init__(self, device):
        self.device = device
d = torch.device("dgsf")
value = (str(d), d, {"nested": [torch.device("dgsf", 0)]}, Settings(d), torch.device("cuda:1"), torch.float16)
print(base64.b64encode(write_result(value, Codec.pickle, 1 << 20)[1]).decode())
"""
OPENS = """
import base64, sys
{before}
from dgsf.sdk.codec import PICKLE, load_result
from dgsf.sdk.plan import Reply
value = load_result(Reply(200, {{"content-type": PICKLE}}, base64.b64decode({data!r})))
name, device, nested, settings, other, dtype = value
print(name, device, nested["nested"][0], settings.device, other, dtype)
"""


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert not done.returncode, done.stderr
    return done.stdout.strip()


def test_a_device_opens_as_itself_where_it_is_known_and_as_the_cpu_elsewhere() -> None:
    data = run(HOLDS)
    assert run(OPENS.format(before="", data=data)) == "dgsf cpu cpu cpu cuda:1 torch.float16"
    assert run(OPENS.format(before="import dgsf.torch", data=data)) == "dgsf dgsf dgsf:0 dgsf cuda:1 torch.float16"


def test_a_program_without_torch_pickles_without_it() -> None:
    program = "import sys, base64; from dgsf.sdk.pickles import dumps; data = dumps({1: (2, 'x')}); "
    program += "assert 'torch' not in sys.modules; print(base64.b64encode(data).decode())"
    assert pickle.loads(base64.b64decode(run(program))) == {1: (2, "x")}
    assert pickle.loads(pickles.dumps([lambda: 3]))[0]() == 3
