"""Groups of sub-commands that list when nothing else is asked: `dgsf keys --json` is `dgsf keys list --json`."""

from __future__ import annotations

import click

_HELP = ("-h", "--help")


class ListingGroup(click.Group):
    """A group whose `list` command may be left out."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in _HELP):
            args = ["list", *args]
        return super().parse_args(ctx, args)
