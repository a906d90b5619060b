"""One self-contained HTML page of a simulation: what was assumed, the table, the picture inside.

Everything that comes from outside is escaped; the page loads nothing.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from dgsf.errors import UsageError
from dgsf.sim.plots import draw
from dgsf.sim.report import FIGURES, best, rows
from dgsf.sim.result import Result

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0}th,td{padding:.25rem .8rem;border-bottom:1px solid #ddd;text-align:right}
th:first-child,td:first-child{text-align:left}td.best{font-weight:700;background:#eaf6ea}img{max-width:100%}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem}dt{color:#666}dd{margin:0}
"""


def save_html(
    path: Path, results: Sequence[Result], title: str, assumed: Mapping[str, object], notes: Sequence[str] = ()
) -> None:
    page = render(results, title, assumed, notes)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error


def render(results: Sequence[Result], title: str, assumed: Mapping[str, object], notes: Sequence[str] = ()) -> str:
    """The page as text; the notes stand below the table."""
    picture = base64.b64encode(draw(results, title)).decode()
    facts = "".join(f"<dt>{escape(str(name))}</dt><dd>{escape(str(value))}</dd>" for name, value in assumed.items())
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{_STYLE}</style>"
        f"<h1>{escape(title)}</h1>{_table(results)}{below}"
        f'<img alt="plots of the figures above over time" src="data:image/png;base64,{picture}">'
        f"<h2>Assumed</h2><dl>{facts}</dl></html>\n"
    )


def _table(results: Sequence[Result]) -> str:
    heads = "".join(f"<th>{escape(result.policy)}</th>" for result in results)
    figures = {figure.text: figure for figure in FIGURES}
    lines = []
    for row in rows(results):
        top = best(results, figures[row["figure"]])
        cells = "".join(
            f"<td{' class=best' if result.policy in top else ''}>{escape(row[result.policy])}</td>"
            for result in results
        )
        lines.append(f"<tr><td>{escape(row['figure'])}</td>{cells}</tr>")
    return f"<table><tr><th>figure</th>{heads}</tr>{''.join(lines)}</table>"
