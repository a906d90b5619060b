"""Programs that must type-check, with just these types."""

from collections.abc import Coroutine
from typing import Any, assert_type

import dgsf

app = dgsf.App("typed", timeout=5)


@app.function
def square(x: float) -> float:
    return x * x


@app.function(gpu=["A100", "T4"], memory="1GiB", retries=2)
def join(words: list[str], sep: str = ",") -> str:
    return sep.join(words)


@app.function(attach="fabric", gpu_memory="2GiB", device_alias="cuda")
def remote_device(x: int) -> int:
    return x


@app.function(attach="auto", profile=[[0, 1.0], [1000, 1.2]])
def chosen_for(x: int) -> str:
    return str(dgsf.device())


@app.function
async def later(x: int) -> int:
    return x


@app.function(timeout=3)
async def much_later(x: int) -> list[int]:
    return [x]


assert_type(square(3), float)
assert_type(square.local(3), float)
assert_type(square.remote(3), float)
assert_type(join.remote(["a"], sep=";"), str)
assert_type(join.with_options(timeout=60).remote(["a"]), str)
waiting: Coroutine[Any, Any, int] = assert_type(later(1), Coroutine[Any, Any, int])
assert_type(later.remote(1), int)
assert_type(much_later.remote(1), list[int])
assert_type(square.options.memory, int)


async def main() -> None:
    assert_type(await square.remote.aio(3), float)
    assert_type(await later.remote.aio(3), int)
    assert_type(await later(3), int)
    client = dgsf.Client()
    assert_type(await client.list.aio(), list[dict[str, Any]])


def blocking(client: dgsf.Client) -> None:
    assert_type(client.describe("x"), dict[str, Any])
    assert_type(client.outcome("x", (1,)).device_us, int)
    client.invoke("x", 1, key="value")
