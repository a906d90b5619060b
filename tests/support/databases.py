"""Databases of the tests: where they live, and how they are named."""

import shutil
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 2 * 1024**3


def url_of(server_url: str, name: str) -> str:
    """The URL of another database of the same server."""
    return urlsplit(server_url)._replace(path=f"/{name}").geturl()


def quick_folder() -> Path:
    """A new folder for a server whose data need not last: in memory if there is room, so that no disk is waited for.

    Its name is short, because the paths of sockets are limited.
    """
    roomy = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES
    return Path(tempfile.mkdtemp(prefix="dgsf-t-", dir=_MEMORY if roomy else None))
