"""Where the platform is and which key to show: flags, then `DGSF_*`, then the file that `dgsf up` writes.

The file is `client.json` in the data dir (`./.dgsf`), else in `~/.dgsf`.  A key is never printed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from dgsf.config import load_settings
from dgsf.errors import ConfigError

CLIENT_FILE = "client.json"


@dataclass(frozen=True, slots=True)
class Connection:
    """An address and a key."""

    url: str
    api_key: str = field(repr=False)


class _ClientFile(msgspec.Struct):
    url: str = ""
    api_key: str = ""


def find_connection(
    url: str | None = None, api_key: str | None = None, data_dir: str | Path | None = None
) -> Connection:
    """The platform to talk to; ConfigError says what is missing and what to do, and which `flags` would help."""
    settings = load_settings(url=url, api_key=api_key, data_dir=data_dir)
    found_url, found_key = settings.url, settings.api_key
    folders = _folders(settings.data_dir, named=data_dir is not None)
    for folder in folders:
        if found_url and found_key:
            break
        file = _read(folder / CLIENT_FILE)
        # A key belongs to its platform: never send the file's key to an address from elsewhere.
        if not found_url or found_url.rstrip("/") == file.url.rstrip("/"):
            found_url, found_key = found_url or file.url, found_key or file.api_key
    if not found_url:
        looked = " or ".join(str(folder.absolute()) for folder in folders)
        raise ConfigError(
            f"no platform is known here: there is no {CLIENT_FILE} in {looked}; start one with 'dgsf up', or name the "
            "data dir of one by DGSF_DATA_DIR, or set DGSF_URL and DGSF_API_KEY",
            flags="--data-dir, or --url and --api-key",
        )
    if not found_key:
        raise ConfigError(f"no API key for {found_url}: set DGSF_API_KEY", flags="--api-key")
    return Connection(_checked(found_url), found_key)


def _folders(data_dir: Path, *, named: bool) -> list[Path]:
    return [data_dir] if named else [data_dir, Path.home() / ".dgsf"]


def _read(path: Path) -> _ClientFile:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_ClientFile)
    except (FileNotFoundError, NotADirectoryError):
        return _ClientFile()
    except PermissionError:
        raise ConfigError(f"{path} belongs to another user; set DGSF_URL and DGSF_API_KEY instead") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is damaged ({error}); 'dgsf up' writes it anew") from error


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{url!r} is not the address of a platform; write e.g. http://127.0.0.1:8700")
    return url.rstrip("/")
