"""`dgsf run FILE::fn --x 3`: deploys one function of a file if it changed, calls it, and shows the result."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pprint import pformat
from typing import Any

import click

from dgsf.cli.output import call_under_way, client_options, json_option, show_json, show_outcome
from dgsf.cli.values import parameter_at, read_for
from dgsf.errors import UsageError
from dgsf.sdk.client import Client
from dgsf.sdk.loadfile import AnyFunction, functions_in, load_file, pick
from dgsf.sdk.outcome import Outcome
from dgsf.sdk.plan import run
from dgsf.sdk.waiting import for_device, telling


@click.command(
    "run", context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": True}
)
@click.argument("target", metavar="FILE::FUNCTION")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[--NAME VALUE]...")
@json_option
@client_options
def command(target: str, arguments: tuple[str, ...], as_json: bool, client: Client) -> None:
    """Deploy FUNCTION of FILE, call it, and print its result.

    Arguments are given as --name value (or plain values, in order); a value is read as JSON, else as text,
    and must be what the function's annotation says if that is a plain type.
    """
    file, _, name = target.rpartition("::")
    if not file or not name:
        raise UsageError(f"{target!r} does not name a function; write e.g. functions/demo.py::echo")
    function = pick(functions_in(load_file(file)), name, file)
    args, kwargs = bound_arguments(name, function.raw, arguments)
    run(client.ensure_plan(function.name, function.raw, function.options, function.bundle()), client.driver)
    with call_under_way(), telling(lambda: _awaited(client, function)):
        outcome = client.outcome(function.name, tuple(args), kwargs, own_exceptions=False)
    _show(outcome, as_json=as_json)


def bound_arguments(name: str, raw: Callable[..., Any], words: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a function's call; UsageError, with its signature, if it cannot be called with them."""
    signature = inspect.signature(raw)
    args, kwargs = parse_arguments(words, signature)
    _check_names(name, signature, kwargs)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise UsageError(f"{name}{signature} cannot be called like this: {error}") from None
    return args, kwargs


def _check_names(name: str, signature: inspect.Signature, kwargs: Mapping[str, Any]) -> None:
    """A name that the function does not have is told before anything that is missing: it may be that, misspelt."""
    parameters = signature.parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return
    known = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    for given in kwargs:
        if given not in known and given not in signature.parameters:
            close = difflib.get_close_matches(given, [*known, *_own_options()], n=1)
            hint = f"; did you mean --{close[0].replace('_', '-')}?" if close else ""
            raise UsageError(f"{name}{signature} has no argument {given!r}{hint}")


def _own_options() -> list[str]:
    """The options of the command itself."""
    context = click.get_current_context(silent=True)
    if context is None:
        return []
    return [option.removeprefix("--") for each in context.command.get_params(context) for option in each.opts]


def _awaited(client: Client, function: AnyFunction) -> str:
    """Why the call has no device yet, as far as the platform says."""
    options = function.options
    memory_bytes = options.gpu_memory_bytes if options.over_fabric else options.memory_bytes
    return for_device(client, options.gpu, memory_bytes, function.name)


def parse_arguments(
    words: Sequence[str], signature: inspect.Signature | None = None
) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments of `--x 3 --name=bob --flag 7`; a name without a value is true.

    That is refused if the signature says that it is no bool: the value was forgotten.  So are values that are not of
    the plain type that their parameter is annotated with.
    """
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("--") or word == "--":
            parameter = parameter_at(signature, len(args))
            args.append(read_for(parameter, word, parameter.name if parameter is not None else ""))
            continue
        option, given, text = word.partition("=")
        name = option[2:].replace("-", "_")
        if not name.isidentifier() or name in kwargs:
            raise UsageError(f"{word!r}: " + ("given twice" if name in kwargs else "not the name of an argument"))
        if given:
            kwargs[name] = read_for(parameter_at(signature, name), text, option)
        elif waiting and not waiting[0].startswith("--"):
            kwargs[name] = read_for(parameter_at(signature, name), waiting.pop(0), option)
        elif signature is None or _may_be_bool(signature.parameters.get(name)):
            kwargs[name] = True
        else:
            raise UsageError(f"{word} has no value and is not a bool; write {word} VALUE (or {word} true)")
    return args, kwargs


def _may_be_bool(parameter: inspect.Parameter | None) -> bool:
    """By its default or annotation, which may be text; a name that is no parameter is told later."""
    if parameter is None or isinstance(parameter.default, bool):
        return True
    return re.search(r"\bbool\b", str(parameter.annotation)) is not None


def _show(outcome: Outcome[Any], *, as_json: bool) -> None:
    if as_json:
        numbers = {"queue_us": outcome.queue_us, "device_us": outcome.device_us, "cost_nano": outcome.cost_nano}
        show_json({"result": outcome.value, "call_id": outcome.call_id, "device": outcome.device, **numbers})
        return
    click.echo(outcome.value if isinstance(outcome.value, str) else pformat(outcome.value, width=100))
    show_outcome(outcome.device, outcome.queue_us, outcome.device_us, outcome.cost_nano)
