"""`dgsf doctor`: what this machine has and lacks, and every setting with its value."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import click

from dgsf.config import Settings, load_settings, settings_table


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(as_json: bool) -> None:
    """Check this machine and show every setting; exit status 1 if something needed is missing."""
    from dgsf.supervisor.checks import Finding, examine

    settings = load_settings()
    findings: list[Finding] = []
    group = ""
    for finding in examine(settings):
        findings.append(finding)
        if not as_json:
            if finding.group != group:
                group = finding.group
                click.secho(f"\n{group}", bold=True)
            click.echo(_line(finding))
    bad = [item for item in findings if item.needed and not item.ok]
    if as_json:
        _print_json(findings, settings, ok=not bad)
    else:
        _print_settings(settings)
        click.echo(f"\n{len(bad)} needed things are missing" if bad else "\nthis machine can run a platform")
    sys.exit(1 if bad else 0)


def _line(finding: Any) -> str:
    sign = click.style("✓", fg="green") if finding.ok else click.style("✗", fg="red" if finding.needed else "yellow")
    hint = f" → {finding.hint}" if finding.hint and not finding.ok else ""
    return f"  {sign} {finding.name:<28} {finding.detail}{hint}"


def _rows(settings: Settings) -> list[dict[str, str]]:
    """Every setting with what it is now; secrets masked."""
    secret = {item.name for item in dataclasses.fields(settings) if item.metadata["secret"]}
    rows = []
    for (variable, kind, default, text), item in zip(settings_table(), dataclasses.fields(settings), strict=True):
        value = getattr(settings, item.name)
        shown = ("***" if value else "") if item.name in secret else str(value)
        rows.append({"variable": variable, "type": kind, "default": default, "value": shown, "help": text})
    return rows


def _print_settings(settings: Settings) -> None:
    click.secho("\nsettings", bold=True)
    for row in _rows(settings):
        changed = " *" if row["value"] != row["default"] else ""
        click.echo(f"  {row['variable']:<26} {(row['value'] or '-') + changed:<22} {row['help']}")


def _print_json(findings: list[Any], settings: Settings, *, ok: bool) -> None:
    import msgspec

    document = {"ok": ok, "findings": findings, "settings": _rows(settings)}
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
