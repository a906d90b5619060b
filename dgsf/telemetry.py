"""Logs: stdlib logging, one JSON line per event.

The message of a record is a constant event name; everything that varies is in its `extra` fields.  Lines
go to standard error, which the supervisor sends to a file per process, or to a file that turns over by
size.  Payloads and keys are never logged; fields whose name says "secret" are masked all the same.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from dgsf.config import MIB, Settings

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_MASKED = ("secret", "token", "password", "api_key")
_NOISY = ("aiohttp.access", "asyncio", "ray", "urllib3", "httpx", "httpcore")


class JsonLines(logging.Formatter):
    """One record as one line of JSON."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": round(record.created, 6),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "process": self._process,
            "pid": record.process,
            "logger": record.name,
        }
        for name, value in vars(record).items():
            if name not in _OWN and not name.startswith("_"):  # libraries leave private ones
                line[name] = "***" if any(word in name for word in _MASKED) else value
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = repr(record.exc_info[1])
            line["traceback"] = "".join(traceback.format_exception(record.exc_info[1]))
        return json.dumps(line, default=str)


def setup_logging(settings: Settings, process: str, path: Path | None = None) -> None:
    """Send this process's log to standard error, or to a file of its own."""
    handler: logging.Handler
    if path is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler = RotatingFileHandler(path, maxBytes=16 * MIB, backupCount=2, delay=True)
    handler.setFormatter(JsonLines(process))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(settings.log_level.upper())
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("dgsf").info("process_started", extra={"parent": os.getppid()})
