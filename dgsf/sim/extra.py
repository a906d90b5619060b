"""What is said when a package of the extra `sim` is missing: one way out, wherever it is."""

from __future__ import annotations

from dgsf.errors import UsageError

WAY_OUT = "in a clone: .venv/bin/pip install -e '.[sim]'"


def lacking(what: str, package: str) -> UsageError:
    """`what` cannot be done without this package."""
    return UsageError(f"{what} needs {package}, which is in the extra 'sim'; {WAY_OUT}")
