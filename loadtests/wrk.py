"""Runs `wrk` with one thread and reads its figures through a small Lua script, not off its screen."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dgsf.errors import UsageError

_MARK = "RESULT "
_SLACK_SECONDS = 30.0
_REPORT = """
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('RESULT {"requests":%d,"duration_us":%d,"bad_status":%d,"socket_errors":%d,' ..
    '"p50_us":%.1f,"p90_us":%.1f,"p99_us":%.1f,"max_us":%.1f}\\n',
    summary.requests, summary.duration, e.status, e.connect + e.read + e.write + e.timeout,
    latency:percentile(50), latency:percentile(90), latency:percentile(99), latency.max))
end
"""


@dataclass(frozen=True, slots=True)
class Target:
    """One request, to be repeated."""

    name: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold a key
    body: bytes = b""
    repeat: int = 1  # the body is this many times `body`: large ones are made inside wrk

    @property
    def whole_body(self) -> bytes:
        return self.body * self.repeat


@dataclass(frozen=True, slots=True)
class WrkResult:
    """What wrk has seen in one run."""

    requests: int
    duration_us: int
    bad_status: int  # answers of 400 and above
    socket_errors: int
    p50_us: float
    p90_us: float
    p99_us: float
    max_us: float

    @property
    def per_second(self) -> float:
        return self.requests * 1e6 / self.duration_us

    @property
    def failures(self) -> int:
        return self.bad_status + self.socket_errors


def find_wrk() -> str:
    found = shutil.which("wrk")
    if found is None:
        raise UsageError("wrk is not on the PATH; install it with 'apt install wrk' or from https://github.com/wg/wrk")
    return found


def run_wrk(target: Target, connections: int, seconds: float, folder: Path) -> WrkResult:
    """One run of whole seconds (at least one)."""
    script = folder / f"{target.name}.lua"
    script.write_text(script_of(target))
    script.chmod(0o600)
    whole = max(1, round(seconds))
    command = [find_wrk(), "-t1", f"-c{connections}", f"-d{whole}s", "--timeout", "30s", "-s", str(script), target.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=whole + _SLACK_SECONDS, check=False)
    if done.returncode != 0:
        raise UsageError(f"wrk against {target.name} failed: {(done.stderr or done.stdout).strip()[:500]}")
    return parse(done.stdout, target.name)


def parse(output: str, name: str) -> WrkResult:
    for line in output.splitlines():
        if line.startswith(_MARK):
            return WrkResult(**json.loads(line.removeprefix(_MARK)))
    raise UsageError(f"wrk against {name} told no figures: {output.strip()[:500]!r}")


def script_of(target: Target) -> str:
    """The Lua that makes the request once; wrk then sends the same bytes each time."""
    lines = ['wrk.method = "POST"']
    lines += [f"wrk.headers[{_quoted(name)}] = {_quoted(value)}" for name, value in target.headers.items()]
    lines.append(f"wrk.body = string.rep({_quoted(target.body.decode('latin-1'))}, {target.repeat})")
    return "\n".join(lines) + "\n" + _REPORT


def _quoted(text: str) -> str:
    """A Lua string; every byte that is not plain goes as \\ddd."""
    plain = "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else f"\\{ord(c):03d}" for c in text)
    return f'"{plain}"'
