"""`dgsf deploy FILE`: deploys the functions that a file defines."""

from __future__ import annotations

import click

from dgsf.cli.output import client_options, json_option, show_json
from dgsf.errors import Forbidden, RequestError, Unauthenticated, UsageError
from dgsf.sdk.client import Client
from dgsf.sdk.loadfile import AnyFunction, functions_in, load_file, pick
from dgsf.sdk.plan import run

_OF_ALL = (Unauthenticated, Forbidden)  # no other function would fare better


@click.command("deploy")
@click.argument("file", type=click.Path())
@click.option("--only", multiple=True, metavar="NAME", help="deploy just this function; may be repeated")
@json_option
@client_options
def command(file: str, only: tuple[str, ...], as_json: bool, client: Client) -> None:
    """Deploy the functions of FILE, each as a new version; one that cannot be is left out, and told at the end."""
    functions = functions_in(load_file(file))
    if not functions:
        raise UsageError(f"{file} has no functions to deploy; put @app.function on one")
    chosen = [pick(functions, name, file) for name in only] or list(functions.values())
    deployed: list[dict[str, object]] = []
    left_out: dict[str, str] = {}
    for function in chosen:
        try:
            deployed.append(_deploy(client, function))
        except _OF_ALL:
            raise
        except (RequestError, UsageError) as error:
            left_out[function.name] = error.message
    if as_json:
        show_json({"functions": deployed, **({"left_out": left_out} if left_out else {})})
    if left_out:
        _tell(left_out, len(chosen))
        raise click.exceptions.Exit(1)  # all is said


def _deploy(client: Client, function: AnyFunction) -> dict[str, object]:
    bundle = function.bundle()
    found = run(client.deploy_plan(function.name, function.raw, function.options, bundle), client.driver)
    size = f"{len(bundle.code):,} bytes"
    click.echo(f"deployed {function.name} version {found.get('version', '?')} ({size})", err=True)
    if found.get("attach_reason"):
        click.echo(f"attach=auto: {found.get('attach', '?')}, {found['attach_reason']}", err=True)
    return found


def _tell(left_out: dict[str, str], chosen: int) -> None:
    for name, why in left_out.items():
        click.echo(f"error: {name} is not deployed: {why}", err=True)
    if chosen > len(left_out):
        click.echo(f"{chosen - len(left_out)} of {chosen} functions are deployed", err=True)
