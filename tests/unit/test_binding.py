"""Arguments against signatures: what binds, and what the caller is told when it does not."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgsf.core.binding import KINDS, Binder, Parameter, check_signature
from dgsf.errors import InvalidArguments


def parameters_of(function):
    found = []
    for item in inspect.signature(function).parameters.values():
        variadic = item.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        found.append(Parameter(item.name, item.kind.name, item.default is item.empty and not variadic))
    return found


def binder_of(function):
    return Binder(parameters_of(function))


def refusal(function, arguments):
    with pytest.raises(InvalidArguments) as caught:
        binder_of(function).check(arguments)
    return caught.value.message


def two(width, height=1): ...
def only_by_position(x, y=2, /, *, z=3): ...
def only_by_name(x, *, size): ...
def anything(*args, **kwargs): ...
def nothing(): ...


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (two, {"width": 1}),
        (two, {"width": 1, "height": 2}),
        (two, [1]),
        (two, [1, 2]),
        (nothing, {}),
        (nothing, []),
        (anything, {"a": 1, "b": 2}),
        (anything, [1, 2, 3]),
        (only_by_position, [1, 2]),
        (only_by_name, {"x": 1, "size": 2}),
    ],
)
def test_arguments_that_fit_are_accepted(function, arguments):
    binder_of(function).check(arguments)


@pytest.mark.parametrize(
    ("function", "arguments", "told"),
    [
        (two, {}, "missing argument 'width'"),
        (two, [], "missing argument 'width'"),
        (two, {"width": 1, "heigth": 2}, "unexpected argument 'heigth'; did you mean 'height'?"),
        (two, {"width": 1, "zzz": 2}, "unexpected argument 'zzz'"),
        (two, [1, 2, 3], "takes 2 positional arguments but 3 were given"),
        (nothing, [1], "takes 0 positional arguments but 1 was given"),
        (only_by_position, {}, "missing argument 'x': it goes by position only, send a JSON array"),
        (only_by_position, {"x": 1}, "missing argument 'x': it goes by position only, send a JSON array"),
        (only_by_name, [1], "missing argument 'size': it goes by name only, send a JSON object"),
        (only_by_name, {}, "missing arguments 'x', 'size'"),
    ],
)
def test_a_misfit_names_the_argument(function, arguments, told):
    assert refusal(function, arguments) == told


@pytest.mark.parametrize(
    ("value", "told"), [(3, "a number"), ("x", "a string"), (None, "null"), (True, "true or false")]
)
def test_only_objects_and_arrays_are_arguments(value, told):
    message = refusal(two, value)
    assert told in message
    assert "JSON object" in message


def test_an_optional_positional_only_argument_by_name_is_explained():
    def function(x=1, /): ...

    assert refusal(function, {"x": 1}) == "argument 'x' goes by position only, send a JSON array"


def test_a_long_name_is_cut_in_the_message():
    assert len(refusal(two, {"width": 1, "n" * 10_000: 2})) < 200


@given(
    st.dictionaries(st.sampled_from(["width", "height", "other"]), st.integers()) | st.lists(st.integers(), max_size=4)
)
def test_the_binder_agrees_with_python(arguments):
    signature = inspect.signature(two)
    try:
        if isinstance(arguments, dict):
            signature.bind(**arguments)
        else:
            signature.bind(*arguments)
        binds = True
    except TypeError:
        binds = False
    try:
        binder_of(two).check(arguments)
        bound = True
    except InvalidArguments:
        bound = False
    assert bound == binds


@pytest.mark.parametrize("function", [two, only_by_position, only_by_name, anything, nothing])
def test_signatures_of_real_functions_are_lawful(function):
    assert check_signature(parameters_of(function)) is None


@pytest.mark.parametrize(
    "parameters",
    [
        [Parameter("x", "SOMETHING", True)],
        [Parameter("x", "KEYWORD_ONLY", True), Parameter("y", "POSITIONAL_ONLY", True)],
        [Parameter("x", "VAR_KEYWORD", False), Parameter("y", "VAR_KEYWORD", False)],
        [Parameter("x", "POSITIONAL_ONLY", True), Parameter("x", "KEYWORD_ONLY", True)],
        [Parameter("no name", "KEYWORD_ONLY", True)],
        [Parameter("x", "VAR_POSITIONAL", True)],
        [Parameter("x", "POSITIONAL_OR_KEYWORD", False), Parameter("y", "POSITIONAL_OR_KEYWORD", True)],
    ],
)
def test_signatures_that_python_cannot_have_are_refused(parameters):
    assert check_signature(parameters)


@given(st.lists(st.builds(Parameter, st.text(max_size=3), st.sampled_from(KINDS), st.booleans()), max_size=5))
def test_any_lawful_signature_makes_a_binder(parameters):
    if check_signature(parameters) is None:
        with_all = {p.name: 0 for p in parameters if p.kind in ("POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY")}
        if not any(p.kind == "POSITIONAL_ONLY" and p.required for p in parameters):
            Binder(parameters).check(with_all)
