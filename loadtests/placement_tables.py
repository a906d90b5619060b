"""How the placement load tests print: one console, and tables with a title."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

console = Console(highlight=False)


def table(title: str, *columns: str) -> Table:
    made = Table(title=title, title_justify="left")
    for column in columns:
        made.add_column(column, justify="left" if column == columns[0] else "right")
    return made
