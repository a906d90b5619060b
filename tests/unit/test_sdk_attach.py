"""What a program hears that cannot have a remote device: early, in the words of the options, without our frames."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

import dgsf
from dgsf.errors import DoesNotFit, InvalidOption, UsageError
from dgsf.sdk.quiet import quiet


class Refusing:
    """A client whose platform says no."""

    def open_session(self, *_: object) -> None:
        self._inner()

    def _inner(self) -> None:
        raise DoesNotFit("no device of the pool can ever hold this session") from ValueError("inner")


def test_a_refusal_is_one_exception_with_the_programs_frames_only() -> None:
    with pytest.raises(DoesNotFit) as caught, dgsf.attach(client=Refusing()):  # type: ignore[arg-type]
        pass
    text = "".join(traceback.format_exception(caught.value))
    assert "ValueError" not in text and "_inner" not in text
    (frame,) = traceback.extract_tb(caught.value.__traceback__)
    assert frame.filename == __file__
    try:
        raise KeyError("the program's own")
    except KeyError:
        with pytest.raises(DoesNotFit), contextlib.ExitStack() as stack:
            stack.enter_context(dgsf.attach(client=Refusing()))  # type: ignore[arg-type]


class Waiting:
    """A client whose program is ended by Ctrl-C."""

    def open_session(self, *_: object) -> None:
        raise KeyboardInterrupt


def test_ctrl_c_while_a_device_is_waited_for_shows_the_programs_frames_only() -> None:
    with pytest.raises(KeyboardInterrupt) as caught, dgsf.attach(client=Waiting()):  # type: ignore[arg-type]
        pass
    (frame,) = traceback.extract_tb(caught.value.__traceback__)
    assert frame.filename == __file__


def test_entering_quietly_gives_the_value_and_the_end_gets_the_bodys_error() -> None:
    heard: list[object] = []

    @contextlib.contextmanager
    def inner() -> Iterator[int]:
        try:
            yield 7
        except KeyError as error:
            heard.append(error)
            raise

    with pytest.raises(KeyError) as caught, quiet(inner) as value:
        {}[value]
    assert heard == [caught.value] and caught.value.args == (7,)
    assert len(traceback.extract_tb(caught.value.__traceback__)) == 1


def test_a_second_entry_of_one_context_is_refused_in_words() -> None:
    @contextlib.contextmanager
    def inner() -> Iterator[int]:
        yield 7

    @contextlib.contextmanager
    def broken() -> Iterator[int]:
        raise KeyError
        yield 7

    once = quiet(inner)
    with once as value, pytest.raises(UsageError, match="entered before"), once:
        pass
    assert value == 7
    for context in (once, dgsf.attach(client=Refusing()), quiet(broken)):  # type: ignore[arg-type]
        with contextlib.suppress(DoesNotFit, KeyError, UsageError), context:
            pass
        with pytest.raises(UsageError, match="make a new one for each 'with'") as caught, context:
            pass
        assert len(traceback.extract_tb(caught.value.__traceback__)) == 1


def test_as_a_decorator_it_is_entered_anew_by_each_call() -> None:
    log: list[str] = []

    @contextlib.contextmanager
    def inner() -> Iterator[None]:
        log.append("in")
        yield
        log.append("out")

    @quiet(inner)
    def work(name: str) -> str:
        """Works."""
        log.append(name)
        return name.upper()

    assert [work("a"), work(name="b")] == ["A", "B"]
    assert log == ["in", "a", "out", "in", "b", "out"]
    assert (work.__name__, work.__doc__) == ("work", "Works.")
    refused = dgsf.attach(client=Refusing())(work)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(DoesNotFit):
            refused("c")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"gpu": 3}, "option gpu=3: expected a device type"),
        ({"gpu": ("A100", 3)}, "option gpu=.*expected a device type"),
        ({"memory": 1.5}, "option memory=1.5: expected a size"),
        ({"memory": "much"}, "option memory='much': expected a size"),
        ({"alias": "rocm"}, "option alias='rocm': expected '' or 'cuda'"),
    ],
)
def test_mistakes_are_told_in_the_words_of_the_decorator(said: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidOption, match=words), dgsf.attach(client=Refusing(), **said):  # type: ignore[arg-type]
        pass


WAITING = """
import threading
from dgsf.sdk import waiting

said = iter(["", "waiting for a free device"])
waiting.PATIENCE_SECONDS = 0.01
with waiting.telling(lambda: next(said)):
    for thread in threading.enumerate():
        if thread.name == "dgsf-waiting":
            thread.join(60)
waiting.PATIENCE_SECONDS = 60.0
with waiting.telling(lambda: "never said"):
    pass
"""


def test_a_long_wait_is_told_once_also_off_a_terminal() -> None:
    done = subprocess.run([sys.executable, "-c", WAITING], capture_output=True, text=True, timeout=100, check=True)
    assert done.stderr == "dgsf: waiting for a free device\n"
