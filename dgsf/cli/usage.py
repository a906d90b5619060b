"""`dgsf usage [--since 1h]`: what was used and what it cost."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import click

from dgsf.cli.output import client_options, json_option, show_listing
from dgsf.errors import UsageError
from dgsf.sdk.client import Client

COLUMNS = (
    "tenant_name", "tenant", "function_name", "function", "calls", "device_us", "amount_nano", "cost_nano", "refunds",
)  # fmt: skip
_UNITS = {"s": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@click.command("usage")
@click.option("--since", metavar="TIME", help="only what came after: 30s, 15m, 1h, 7d, or a date such as 2030-01-31")
@json_option
@client_options
def command(since: str | None, as_json: bool, client: Client) -> None:
    """Show what was used and what it cost."""
    start = parse_since(since, datetime.now(UTC)) if since else None
    document = client.usage(start.isoformat() if start else None)
    show_listing(document, "usage", COLUMNS, as_json=as_json, empty="nothing was used in that time")


def parse_since(text: str, now: datetime) -> datetime:
    """A moment from '1h' (that long ago) or an ISO date."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip())
    try:
        if match and match[2] in _UNITS:
            return now - timedelta(**{_UNITS[match[2]]: float(match[1])})
        moment = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise UsageError(f"--since {text!r}: write e.g. 30s, 15m, 1h, 7d, or a date such as 2030-01-31") from None
    return moment if moment.tzinfo is not None else moment.astimezone()
