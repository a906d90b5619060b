"""The platform that the end-to-end tests share, and platforms of their own for those that break them."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from platforms import Platform


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="dgsf-e2e-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def platform() -> Iterator[Platform]:
    """A running platform with one CPU device: .url, .api_key, .data_dir, .process.

    Idle workers go after a fixed time: what one test called is not to be started ahead in another.
    """
    with _folder() as folder:
        started = Platform(folder / "data", "--devices", "cpu:1", environment={"DGSF_KEEP_WARM": "fixed"})
        try:
            yield started.wait_ready()
        finally:
            assert started.stop() == 0, started.said
        started.assert_nothing_left()


@pytest.fixture
def start() -> Iterator[Callable[..., Platform]]:
    """Starts platforms (data dir name, options) that end with the test at the latest."""
    with _starter() as begin:
        yield begin


@pytest.fixture(scope="module")
def start_for_module() -> Iterator[Callable[..., Platform]]:
    """The same, for platforms that several tests share: they end with the module."""
    with _starter() as begin:
        yield begin


@contextlib.contextmanager
def _starter() -> Iterator[Callable[..., Platform]]:
    running: list[Platform] = []
    with _folder() as folder:

        def begin(name: str = "data", *options: str, **more: dict[str, str]) -> Platform:
            running.append(Platform(folder / name, "--devices", "cpu:1", *options, **more))
            return running[-1]

        try:
            yield begin
        finally:
            for one in running:
                one.stop()
