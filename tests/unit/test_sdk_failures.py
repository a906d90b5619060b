"""A remote exception arrives as the user's own type, with the remote frames."""

from __future__ import annotations

import json
import pickle
import sys
import traceback
import types

import pytest

import dgsf
from dgsf.core.options import parse_options
from dgsf.sdk.failures import MAX_PICKLE_BYTES, describe, rebuild


class Plain(Exception):
    pass


class Awkward(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Outer:
    class Inner(KeyError):
        pass


def caught(error: BaseException, cause: BaseException | None = None) -> dict:
    def deep() -> None:
        raise error from cause

    try:
        deep()
    except BaseException as found:
        return json.loads(json.dumps(describe(found)))
    raise AssertionError


def back(info: dict, **more) -> BaseException:
    return rebuild({"code": "function_error", "call_id": "c-1", "detail": "x", "error": info, **more})


@pytest.mark.parametrize(
    "error",
    [Plain("a", 2), ValueError("bad"), Outer.Inner("key"), OSError(2, "nothing"), Awkward(7, "seven")],
    ids=lambda error: type(error).__qualname__,
)
def test_a_type_that_exists_here_comes_back_as_itself(error):
    made = back(caught(error))
    assert type(made) is type(error)
    assert made.args == error.args
    assert str(made) == str(error)
    assert getattr(made, "code", None) == getattr(error, "code", None)


def test_attributes_and_notes_come_along():
    error = Plain("x")
    error.detail = {"a": 1}
    error.add_note("look here")
    made = back(caught(error))
    assert made.detail == {"a": 1}
    assert made.__notes__ == ["look here", "raised in remote call c-1"]


def test_without_its_pickle_the_type_is_found_by_name():
    info = {**caught(Awkward(7, "seven")), "pickle": None}
    made = back(info)
    assert type(made) is Awkward
    assert str(made) == "7: seven"


def test_another_edition_of_a_class_by_value_becomes_the_one_that_is_here(monkeypatch):
    main = sys.modules["__main__"]
    here = type("OwnError", (ValueError,), {"__module__": "__main__"})
    there = type("OwnError", (ValueError,), {"__module__": "__main__"})
    monkeypatch.setattr(main, "OwnError", there, raising=False)
    info = caught(there("v"))
    monkeypatch.setattr(main, "OwnError", here)
    assert type(back(info)) is here


def test_a_type_that_travels_by_value_is_caught_by_its_bases():
    module = types.ModuleType("somewhere_else")
    sys.modules["somewhere_else"] = module
    try:
        import cloudpickle

        cloudpickle.register_pickle_by_value(module)
        exec("class Far(LookupError):\n    def hello(self): return 'hi'\n", vars(module))
        info = caught(module.Far("x"))
        cloudpickle.unregister_pickle_by_value(module)
    finally:
        del sys.modules["somewhere_else"]
    made = back(info)
    assert type(made).__name__ == "Far"
    assert made.hello() == "hi"
    assert isinstance(made, LookupError)


@pytest.mark.parametrize("base", ["ValueError", "UnicodeDecodeError", "OSError", "ExceptionGroup", "StopIteration"])
def test_an_unknown_type_becomes_a_remote_error_of_its_name_and_its_known_base(base):
    mro = ["gone.Odd", f"builtins.{base}", "builtins.ValueError", "builtins.Exception", "builtins.BaseException"]
    made = back({"module": "gone_away", "qualname": "Odd", "message": "odd", "mro": mro, "frames": [], "pickle": None})
    assert isinstance(made, dgsf.RemoteError)
    assert isinstance(made, ValueError if base == "ExceptionGroup" else getattr(__builtins__, base, None) or eval(base))
    assert type(made).__name__ == "Odd"
    assert type(made).__module__ == "gone_away"
    assert str(made) == "odd"
    assert made.call_id == "c-1"


def test_an_exit_of_the_function_is_not_an_exit_of_the_caller():
    made = back(caught(SystemExit(3)))
    assert isinstance(made, dgsf.RemoteError)
    assert not isinstance(made, SystemExit)


def test_the_remote_frames_are_in_the_traceback():
    info = caught(Plain("x"))
    with pytest.raises(Plain) as raised:
        raise back(info)
    names = [entry.name for entry in traceback.extract_tb(raised.value.__traceback__)]
    assert names[-2:] == ["caught", "deep"]
    text = "".join(traceback.format_exception(raised.value))
    assert "raise error from cause" in text
    assert "raised in remote call c-1" in text


def test_lines_of_files_that_are_not_here_are_shown():
    frames = [{"file": "/not/here/job.py", "line": 40, "name": "work", "code": "result = divide(a, 0)"}]
    info = {**caught(ZeroDivisionError("by zero")), "frames": frames}
    with pytest.raises(ZeroDivisionError) as raised:
        raise back(info)
    text = "".join(traceback.format_exception(raised.value))
    assert 'File "/not/here/job.py", line 40, in work\n    result = divide(a, 0)\n' in text


def test_lines_of_another_edition_of_a_file_are_not_mistaken():
    frames = [{"file": __file__, "line": 1, "name": "work", "code": "something_else()"}]
    made = back({**caught(Plain("x")), "frames": frames})
    text = "".join(traceback.format_exception(made))
    assert "something_else()" in text
    assert "(remote)" in text


def test_causes_are_kept_as_text():
    made = back(caught(Plain("x"), cause=KeyError("first")))
    assert "KeyError: 'first'" in "".join(traceback.format_exception(made))


def test_a_huge_or_unpicklable_exception_still_arrives():
    import threading

    huge = caught(Plain("x" * (MAX_PICKLE_BYTES + 1)))
    assert huge["pickle"] is None
    assert len(huge["message"]) < MAX_PICKLE_BYTES
    held = Plain("held")
    held.lock = threading.Lock()
    assert str(back(caught(held))) == "held"


def test_endless_recursion_is_described_briefly():
    def forever() -> None:
        forever()

    try:
        forever()
    except RecursionError as error:
        info = describe(error)
    assert len(info["frames"]) <= 100
    assert type(back(info)) is RecursionError


def test_frames_of_the_platform_are_nowhere_in_what_a_caller_gets():
    def body() -> None:
        try:
            parse_options({"colour": "red"})
        except dgsf.UnknownOption as error:
            raise Plain("no such colour") from error

    try:
        body()
    except Plain as error:
        info = describe(error)
    assert [frame["name"] for frame in info["frames"]][-1] == "body"
    for text in (info["traceback"], info["cause"]):
        assert "colour" in text and "in body" in text and "options.py" not in text
    with pytest.raises(dgsf.UnknownOption) as raised:
        parse_options({"colour": "red"})
    assert [frame["file"] for frame in describe(raised.value)["frames"]] == [__file__]


def test_a_mistake_of_the_platforms_own_keeps_its_frames():
    namespace: dict = {}
    place = describe.__code__.co_filename
    exec(compile("def broken():\n    {}['x']\n", place, "exec"), namespace)
    try:
        namespace["broken"]()
    except KeyError as error:
        info = describe(error)
    assert [frame["name"] for frame in info["frames"]][-1] == "broken"


def test_a_type_whose_module_lacks_what_it_needs_is_left_out(monkeypatch):
    def missing(name: str) -> None:
        raise ImportError("no torch here")

    module = types.ModuleType("lazy_module")
    module.__getattr__ = missing
    monkeypatch.setitem(sys.modules, "lazy_module", module)
    info = {**caught(Plain("x")), "module": "lazy_module", "qualname": "Heavy", "pickle": None}
    assert type(back(info)).__name__ == "Heavy"


@pytest.mark.parametrize(
    "error", [None, {}, {"qualname": ""}, "text", {"qualname": "X", "frames": [3, {}], "mro": [1]}]
)
def test_a_strange_description_is_a_function_error(error):
    made = rebuild({"code": "function_error", "detail": "what", "call_id": "c", "error": error})
    assert isinstance(made, dgsf.FunctionError)


def test_platform_errors_survive_pickling_with_what_was_decided_per_call():
    error = pickle.loads(pickle.dumps(dgsf.OutcomeUnknown("lost", call_id="c", retryable=True)))
    assert (error.call_id, error.retryable, str(error)) == ("c", True, "lost")
    assert dgsf.OutcomeUnknown().retryable is False
