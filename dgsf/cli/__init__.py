"""The command line `dgsf`: one file per command, loaded only when that command is used.

This module knows the names of the commands and turns errors into one clear line and an exit code: 2 for a
mistake in how it was used, 1 for everything else, never a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

import click

from dgsf import __version__
from dgsf.errors import DgsfError, FunctionError, UsageError

COMMANDS: dict[str, str] = {
    "up": "start the whole platform on this machine",
    "demo": "start, deploy, call, show the bill, stop",
    "deploy": "deploy the functions of a file",
    "run": "deploy one function of a file and call it",
    "invoke": "call a deployed function",
    "profile": "show where a function's time goes and what distance to its device would cost",
    "functions": "list, show and delete deployed functions",
    "devices": "list, drain, restore and forget the devices of the pool",
    "leases": "show who holds which device",
    "sessions": "list and move sessions with remote devices",
    "usage": "show what was used and what it cost",
    "keys": "list, create and revoke API keys",
    "sim": "simulate a pool and compare placement policies",
    "doctor": "check this machine and show every setting",
    "gateway": "run a gateway alone",
    "proxy": "run a proxy alone",
    "controller": "run a controller alone",
    "fabric": "run the devices of this node alone",
}


class LazyGroup(click.Group):
    """A group that imports a command's module when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found = import_module(f"dgsf.cli.{cmd_name}").command
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            close = get_close_matches(args[0], COMMANDS, n=1)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {close[0]!r}?" if close else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dgsf")
def cli() -> None:
    """DGSF: functions on a shared pool of GPUs."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command and ends the process with its exit code."""
    sys.exit(execute(arguments))


def execute(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; the exit code."""
    try:
        code = cli.main(args=arguments, prog_name="dgsf", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
    except DgsfError as error:
        return _tell(error)
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code if isinstance(code, int) else 0


def _tell(error: DgsfError) -> int:
    remote, text = error.details.get("error"), error.message
    if error.details.get("output"):
        click.echo(f"it printed:\n{str(error.details['output']).rstrip()}", err=True)
    if isinstance(error, FunctionError) and isinstance(remote, dict) and remote.get("traceback"):
        click.echo(str(remote["traceback"]).rstrip(), err=True)
        if "message" in remote:  # a call's: its text stands above
            text = "the function raised this exception"
    hint = f" (call {error.call_id})" if error.call_id else ""
    if "flags" in error.details:  # of use here only; the error itself also meets programs
        hint += f" (or pass {error.details['flags']})"
    click.echo(f"error: {text}{hint}", err=True)
    return 2 if isinstance(error, UsageError) else 1
