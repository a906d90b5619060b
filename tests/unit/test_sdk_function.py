"""Functions and apps: local calls, names, pickling, variants."""

from __future__ import annotations

import inspect
import pickle

import cloudpickle
import pytest

import dgsf
from dgsf.errors import ConfigError, InvalidName
from dgsf.sdk import place
from dgsf.sdk.client import Client
from dgsf.sdk.manifest import decode_deploy, encode_deploy, manifest_of

app = dgsf.App("tests", timeout=5)


@app.function
def square(x: float) -> float:
    """Squares.

    More."""
    return x * x


@app.function(name="other", retries=1)
async def later(x: int, *rest: int, flag: bool = False, **more: str) -> int:
    return x


def test_a_plain_call_runs_here():
    assert square(3) == 9
    assert square.local(3) == 9


async def test_an_async_function_is_awaited_here():
    assert await later(4) == 4


def test_names_are_the_apps_and_the_functions():
    assert square.name == "tests.square"
    assert later.name == "tests.other"
    assert set(app.functions) == {"tests.square", "tests.other"}
    assert repr(square) == "<dgsf.Function tests.square>"


def test_it_looks_like_the_function_inside():
    assert square.__name__ == "square"
    assert square.__doc__.startswith("Squares.")
    assert list(inspect.signature(square).parameters) == ["x"]


def test_options_of_the_app_are_defaults():
    assert square.options.timeout == 5
    assert later.options.retries == 1


def test_a_function_of_a_module_pickles_as_a_reference():
    data = pickle.dumps(square)
    assert len(data) < 150
    assert pickle.loads(data) is square


def test_a_nested_function_pickles_by_value_and_small():
    inner_app = dgsf.App("inner")

    @inner_app.function(memory="1GiB")
    def fact(n: int) -> int:
        return 1 if n < 2 else n * fact.local(n - 1)

    data = cloudpickle.dumps(fact)
    found = cloudpickle.loads(data)
    assert len(data) < 2000
    assert found(5) == 120
    assert (found.name, found.options) == (fact.name, fact.options)


def test_a_variant_pickles_with_its_options():
    variant = square.with_options(timeout=9)
    found = pickle.loads(pickle.dumps(variant))
    assert (found.name, found.options.timeout, found(2)) == (variant.name, 9, 4)


def test_variants_have_names_of_their_own():
    first, again, other = (square.with_options(timeout=t) for t in (9, 9, 10))
    assert first.name == again.name != other.name
    assert first.name.startswith("tests.square--")
    assert square.with_options(timeout=5) is square
    assert first.with_options(timeout=5) is square
    with pytest.raises(dgsf.UnknownOption):
        square.with_options(tmeout=3)


def test_an_app_pickles_without_its_functions():
    assert pickle.loads(pickle.dumps(app)).name == "tests"
    assert len(pickle.dumps(app)) < 150


def test_a_client_does_not_pickle():
    with pytest.raises(ConfigError, match="cannot be sent"):
        pickle.dumps(Client("http://127.0.0.1:9", "k"))


def test_what_cannot_be_a_function_is_refused():
    fresh = dgsf.App("fresh")
    with pytest.raises(dgsf.UsageError, match="lambda"):
        fresh.function(lambda: 1)
    with pytest.raises(dgsf.UsageError, match="class"):
        fresh.function(type("C", (), {}))
    with pytest.raises(dgsf.UsageError, match="already"):
        fresh.function(square)
    with pytest.raises(InvalidName):
        dgsf.App("no spaces please")
    assert fresh.function(name="one")(lambda: 1).name == "fresh.one"


def test_two_functions_of_one_name_are_refused_but_a_redefinition_is_not():
    fresh = dgsf.App("fresh")

    def define() -> None:
        @fresh.function
        def twin() -> int:
            return 1

    define()
    define()
    with pytest.raises(dgsf.UsageError, match="already"):
        fresh.function(name="twin")(square.raw)


def test_wrong_arguments_are_the_same_type_error_as_in_a_plain_call():
    for call in (square, square.remote):
        with pytest.raises(TypeError, match="x"):
            call(y=1)


def test_inside_a_worker_remote_says_that_it_cannot(monkeypatch):
    monkeypatch.setattr(place, "_in_worker", True)
    with pytest.raises(dgsf.UsageError, match=r"cannot call \.remote yet"):
        square.remote(3)


def test_methods_are_refused_when_they_are_looked_up():
    class Thing:
        method = square

    with pytest.raises(dgsf.UsageError, match="method"):
        Thing().method(3)


def test_the_manifest_tells_the_signature():
    manifest, code = decode_deploy(encode_deploy(manifest_of(later.raw, later.options, "abc"), b"code"))
    told = [(p.name, p.kind, p.required, p.annotation) for p in manifest.signature]
    assert told == [
        ("x", "POSITIONAL_OR_KEYWORD", True, "int"),
        ("rest", "VAR_POSITIONAL", False, "int"),
        ("flag", "KEYWORD_ONLY", False, "bool"),
        ("more", "VAR_KEYWORD", False, "str"),
    ]
    assert (manifest.is_async, manifest.is_generator, manifest.digest, code) == (True, False, "abc", b"code")
    assert manifest.options == {"timeout": 5.0, "retries": 1}
    assert manifest_of(square.raw, square.options, "").doc == "Squares."
    for body in (b"", b"\0\0\0\xff{}", b"\0\0\0\x02[]"):
        with pytest.raises(ValueError):  # noqa: PT011 - several kinds of wrong
            decode_deploy(body)
