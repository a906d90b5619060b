"""`dgsf.attach()` from programs of their own against a running platform, and what operators see of it."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import uuid

import pytest

import dgsf
from dgsf.supervisor.parts import outer_environment

SECONDS = 110


def program(platform, text, key=None, **environment):
    """Runs a program that knows the platform; what it printed."""
    own = {"DGSF_URL": platform.url, "DGSF_API_KEY": key or platform.api_key, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        env=outer_environment() | own | environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return done.stdout.strip() or done.stderr.strip()


def cli(platform, *words):
    done = subprocess.run(
        [sys.executable, "-m", "dgsf.cli", *words, "--url", platform.url, "--api-key", platform.api_key],
        env=outer_environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def client(platform):
    with dgsf.Client(platform.url, platform.api_key) as made:
        yield made


def attached_usage(client):
    rows = [row for row in client.usage()["usage"] if row["function_name"] == "(attached)"]
    return rows[0]["device_us"] if rows else 0


def test_a_program_computes_on_the_remote_device_and_pays_for_it(platform, client):
    before = attached_usage(client)
    said = program(
        platform,
        """
        import dgsf, torch
        with dgsf.attach(memory="256MiB") as device:
            x = torch.arange(12.0, device=device).reshape(3, 4)
            print(device.type, (x @ x.T).sum().item())
        """,
    )
    assert said == "dgsf 1134.0"
    platform.wait_until(lambda: attached_usage(client) > before, "the bill of the session")
    (last, *_) = client.sessions(ended=True)["sessions"]
    assert last["state"] == "ended" and last["bytes_up"] > 0 and last["device_us"] > 0


def test_code_for_cuda_runs_with_an_alias_and_seeds_set_before_hold(platform):
    text = """
        import dgsf, torch
        torch.manual_seed(5)
        with dgsf.attach(memory="256MiB", alias="cuda"):
            assert torch.cuda.is_available()
            print(torch.randn(3).cuda().sum().item(), torch.rand(2, device="cuda").sum().item())
        """
    assert program(platform, text) == program(platform, text)


def test_errors_say_what_to_do(platform, client):
    text = """
        import dgsf
        try:
            with dgsf.attach({}):
                print("attached")
        except dgsf.DgsfError as error:
            print(error.code, error.message)
        """
    assert "the pool has: cpu" in program(platform, text.format("gpu='A100'"))
    assert program(platform, text.format("memory='much'")).startswith("invalid_option")
    assert program(platform, text.format("memory='500GiB'")).startswith("does_not_fit")
    assert program(platform, text.format(""), key="dgsf_no_key").startswith("unauthenticated")
    assert "is it running?" in program(platform, text.format(""), DGSF_URL="http://127.0.0.1:9")
    without_torch = "import sys; sys.modules['torch'] = None\n" + textwrap.dedent(text.format(""))
    assert "pip install 'dgsf[torch]'" in program(platform, without_torch)


def test_an_operation_that_crashes_its_executor_is_named_and_not_tried_for_ever(platform):
    said = program(
        platform,
        """
        import dgsf, torch
        with dgsf.attach(memory="256MiB") as device:
            lowest = torch.full((4,), -2**31, dtype=torch.int32, device=device)
            try:
                print(torch.div(lowest, -torch.ones_like(lowest), rounding_mode="trunc").tolist())
            except dgsf.DgsfError as error:
                print(error.code, error.message)
        """,
    )
    assert said.startswith("op_crashed aten::div.Tensor_mode crashed"), said
    assert "SIGFPE" in said and "at <string>:6" in said


def test_a_program_that_holds_the_interpreter_through_a_checkpoint_goes_on(platform):
    """It cannot read meanwhile, so its device is taken back; what it had there is brought to another one."""
    said = program(
        platform,
        """
        import ctypes, dgsf, torch
        from dgsf.remoting.guest.bound import bound
        with dgsf.attach(memory="512MiB") as device:
            x = torch.ones(2**24, device=device)
            x += 1
            stream = bound.stream
            stream.sync()
            stream._link.saver._begin()
            ctypes.PyDLL(None).usleep(3_000_000)
            x += 1
            print(x.sum().item() / 2**24, stream.traffic["losses"])
        """,
    )
    assert said == "3.0 1", said


def test_a_pool_full_of_warm_workers_makes_room(platform, client):
    name = f"warm-{uuid.uuid4().hex[:8]}"
    client.deploy(_slow, name=name, options={"memory": "64MiB"})
    slots = sum(row["slots"] for row in client.devices()["devices"])
    said = program(
        platform,
        f"""
        import asyncio, dgsf
        async def fill(client):
            await asyncio.gather(*(client.invoke.aio("{name}", 0.5) for _ in range({3 * slots})))
            await client.aclose()
        client = dgsf.Client()
        asyncio.run(fill(client))
        held = len(client.leases()["leases"])
        import torch
        with dgsf.attach(memory="128MiB", wait=60) as device:
            print(held, torch.ones(3, device=device).sum().item())
        """,
    )
    assert said == f"{slots} 3.0"


def _slow(seconds: float) -> None:
    import time

    time.sleep(seconds)


def test_commands_list_move_drain_and_restore(platform, client):
    code, said = cli(platform, "sessions", "--json")
    assert (code, json.loads(said)) == (0, {"sessions": []})
    code, said = cli(platform, "sessions", "move", "0")
    assert code == 1 and "no open session '0'" in said
    code, said = cli(platform, "sessions", "move", str(uuid.uuid4()))
    assert code == 1 and "no such session" in said
    (device,) = (row["name"] for row in client.devices()["devices"])
    assert cli(platform, "devices", "drain", device.rpartition("/")[2])[0] == 0  # its short name will do
    try:
        assert platform.devices()[device]["state"] == "draining"
        with pytest.raises(dgsf.PlatformError, match=r"takes work now \(1 draining\)"):
            _begin(client)
    finally:
        assert cli(platform, "devices", "restore", device)[0] == 0
    assert platform.devices()[device]["state"] == "healthy"
    code, said = cli(platform, "devices", "restore", device)
    assert code == 1 and "takes work already; only a draining device can be restored" in said
    assert cli(platform, "devices")[0] == 0


def _begin(client):
    """A guest's first word, without torch in this process."""
    from dgsf.sdk.doorway import Ticket, connect
    from dgsf.wire.blocking import FrameSocket
    from dgsf.wire.frames import Kind
    from dgsf.wire.messages import encode
    from dgsf.wire.session import Begin, Ended, read_from_proxy

    with connect(Ticket.of(client.open_session(memory="64MiB", wait=0.5), client)) as sock:
        frames = FrameSocket(sock)
        frames.send(Kind.SESSION, 0, encode(Begin("torch", 1)))
        word = read_from_proxy(frames.next().body)
        if isinstance(word, Ended) and word.failure is not None:
            raise word.failure.error()


def test_keys_of_other_roles_may_attach_but_not_move_or_drain(platform, client):
    key = client.create_key("invoke")["key"]
    with dgsf.Client(platform.url, key) as invoker:
        assert invoker.open_session(memory="64MiB")["ticket"]
        for forbidden in (
            lambda: invoker.move_session(str(uuid.uuid4())),
            lambda: invoker.drain_device("1"),
            lambda: invoker.restore_device("1"),
            lambda: invoker.forget_device("1"),
        ):
            with pytest.raises(dgsf.Forbidden):
                forbidden()


def test_weights_that_a_device_has_seen_are_not_sent_again(platform):
    text = """
        import torch, dgsf
        from dgsf.remoting.guest.bound import bound
        weights = torch.arange(500_000, dtype=torch.float32)
        sent = []
        for _ in range(2):  # each time another executor, with a user of its own
            with dgsf.attach(gpu="cpu", memory="256MiB") as device:
                assert weights.to(device).sum().item() == weights.sum().item()
                sent.append(bound.stream.traffic["bytes_out"])
        print(sent[0] > weights.nbytes, sent[1] < 100_000)
        """
    assert program(platform, text) == "True True"
