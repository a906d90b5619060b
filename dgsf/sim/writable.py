"""Whether a file can be written, found out before the work whose outcome it is to hold."""

from __future__ import annotations

from pathlib import Path

from dgsf.errors import UsageError


def check_writable(path: Path) -> None:
    """Tells before the work what would stop the writing after it; leaves all as it was."""
    try:
        new = not path.exists()
        if not new and not (path.is_file() or path.is_dir()):
            return  # such as a pipe: that is for its other end to say
        with path.open("ab"):
            pass
        if new:
            path.resolve().unlink()  # a link to a file that was not there stays
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error
