"""Kept files: used again only when every holder has dropped its name, and never for ever."""

import os
from pathlib import Path

import pytest

from dgsf.errors import ProtocolError
from dgsf.wire.recycle import KEPT_BYTES, KEPT_SECONDS, FilePool, write_all
from dgsf.wire.shared import SharedArea


def put(pool, path, data):
    descriptor = pool.file_for(str(path))
    write_all(descriptor, data)
    os.close(descriptor)
    return os.stat(path).st_ino


def test_a_file_is_used_again_after_its_last_holder_let_go(tmp_path):
    pool = FilePool(str(tmp_path), 0o600)
    first = put(pool, tmp_path / "a", b"long content")
    (tmp_path / "a").unlink()
    assert put(pool, tmp_path / "b", b"short") == first
    assert (tmp_path / "b").read_bytes() == b"short"


def test_a_file_that_somebody_holds_is_left_alone(tmp_path):
    pool = FilePool(str(tmp_path), 0o600)
    first = put(pool, tmp_path / "a", b"one")
    os.link(tmp_path / "a", tmp_path / "lent")
    (tmp_path / "a").unlink()
    assert put(pool, tmp_path / "b", b"two") != first
    assert (tmp_path / "lent").read_bytes() == b"one"


def test_more_holders_than_kept_files_get_plain_ones(tmp_path):
    pool = FilePool(str(tmp_path), 0o600, files=2)
    inodes = {put(pool, tmp_path / name, name.encode()) for name in "abcd"}
    assert (len(inodes), len(pool)) == (4, 2)
    assert [(tmp_path / name).read_bytes() for name in "abcd"] == [b"a", b"b", b"c", b"d"]


def test_what_is_not_used_or_too_large_is_let_go(tmp_path):
    pool = FilePool(str(tmp_path), 0o600)
    put(pool, tmp_path / "a", b"x")
    (tmp_path / "a").unlink()
    pool.trim()
    assert len(pool) == 1
    os.truncate(next(tmp_path.glob("kept-*")), KEPT_BYTES + 1)
    pool.trim()
    assert len(pool) == 0 and not list(tmp_path.iterdir())
    put(pool, tmp_path / "b", b"x")
    pool.trim(now=1e12 + KEPT_SECONDS)
    assert len(pool) == 0 and (tmp_path / "b").read_bytes() == b"x"


def test_tenants_never_share_a_file():
    area = SharedArea(f"dgsf-test-{os.getpid()}")
    area.make()
    try:
        seen = {}
        for tenant in (1, 2, 1, 2):
            descriptor, path = area.new_file(tenant)
            os.close(descriptor)
            seen.setdefault(tenant, set()).add(os.stat(path).st_ino)
            os.unlink(path)
        assert len(seen[1]) == len(seen[2]) == 1
        assert seen[1] != seen[2]
    finally:
        area.remove()


def test_files_of_a_process_that_is_gone_are_removed_at_the_next_start():
    area = SharedArea(f"dgsf-test-{os.getpid()}")
    area.make()
    try:
        (area.folder / "kept" / "kept-999999999-abc").write_bytes(b"x")
        (area.folder / "kept" / f"kept-{os.getpid()}-abc").write_bytes(b"x")
        area.make()
        assert [path.name for path in (area.folder / "kept").iterdir()] == [f"kept-{os.getpid()}-abc"]
    finally:
        area.remove()


def test_payloads_of_a_process_that_is_gone_are_removed_and_those_of_living_ones_are_not(tmp_path):
    area = SharedArea(f"dgsf-test-{os.getpid()}")
    area.make()
    try:
        (area.folder / "in" / "999999999-abc").write_bytes(b"x")
        descriptor, path = area.new_file()
        os.close(descriptor)
        left = area.folder / "left"
        left.write_bytes(b"result")
        mine = {path, area.link(path), area.take(str(area.folder), "left", 6, 10)}
        area.make()
        assert {str(found) for found in (area.folder / "in").iterdir()} == mine
        assert all(Path(name).name.startswith(f"{os.getpid()}-") for name in mine)
    finally:
        area.remove()


def test_a_folder_in_the_place_of_a_result_is_refused_and_removed():
    area = SharedArea(f"dgsf-test-{os.getpid()}")
    area.make()
    try:
        (area.folder / "bad" / "deep").mkdir(parents=True)
        with pytest.raises(ProtocolError, match="not what it says"):
            area.take(str(area.folder), "bad", 6, 10)
        assert list((area.folder / "in").iterdir()) == []
    finally:
        area.remove()
