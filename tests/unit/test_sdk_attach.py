"""What a program hears that cannot have a remote device: early, in the words of the options, without our frames."""

from __future__ import annotations

import traceback

import pytest

import dgsf
from dgsf.errors import DoesNotFit


class Refusing:
    """A client whose platform says no."""

    def open_session(self, *_: object) -> None:
        self._inner()

    def _inner(self) -> None:
        raise DoesNotFit("no device of the pool can ever hold this session") from ValueError("inner")


def test_a_refusal_is_one_exception_with_few_frames() -> None:
    with pytest.raises(DoesNotFit) as caught, dgsf.attach(client=Refusing()):  # type: ignore[arg-type]
        pass
    text = "".join(traceback.format_exception(caught.value))
    assert "ValueError" not in text and "_inner" not in text
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "attach"
