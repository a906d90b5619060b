"""`dgsf deploy FILE`: deploys the functions that a file defines."""

from __future__ import annotations

import click

from dgsf.cli.output import client_options, json_option, show_json
from dgsf.errors import RequestError, UsageError
from dgsf.sdk.client import Client
from dgsf.sdk.loadfile import AnyFunction, functions_in, load_file, pick
from dgsf.sdk.plan import run


@click.command("deploy")
@click.argument("file", type=click.Path())
@click.option("--only", multiple=True, metavar="NAME", help="deploy just this function; may be repeated")
@json_option
@client_options
def command(file: str, only: tuple[str, ...], as_json: bool, client: Client) -> None:
    """Deploy the functions of FILE, each as a new version."""
    functions = functions_in(load_file(file))
    if not functions:
        raise UsageError(f"{file} has no functions to deploy; put @app.function on one")
    chosen = [pick(functions, name, file) for name in only] or list(functions.values())
    deployed = [_deploy(client, function) for function in chosen]
    if as_json:
        show_json({"functions": deployed})


def _deploy(client: Client, function: AnyFunction) -> dict[str, object]:
    bundle = function.bundle()
    plan = client.deploy_plan(function.name, function.raw, function.options, bundle)
    try:
        found = run(plan, client.driver)
    except RequestError as error:
        raise type(error)(f"{function.name}: {error.message}; it and those after it are not deployed") from None
    size = f"{len(bundle.code):,} bytes"
    click.echo(f"deployed {function.name} version {found.get('version', '?')} ({size})", err=True)
    if found.get("attach_reason"):
        click.echo(f"attach=auto: {found.get('attach', '?')}, {found['attach_reason']}", err=True)
    return found
