"""The folders of uploaded contents: one per tenant, within a budget, the least used goes first."""

import os

from dgsf.fabric.contents_keeper import ContentsKeeper
from dgsf.remoting.executor.drafts import Draft

PAGE = 4096


def put(folder, name, used, pages=1):
    path = folder / name
    path.write_bytes(b"x" * PAGE * pages)
    os.utime(path, (used, used))
    return path


def test_each_tenant_has_a_folder_of_its_own(tmp_path):
    keeper = ContentsKeeper(tmp_path, "box/cpu0", 10 * PAGE)
    first, second = keeper.folder(1), keeper.folder(2)
    assert first != second and first.parent == second.parent
    assert keeper.folder(1) == first
    assert first.stat().st_mode & 0o777 == 0o777 and first.parent.stat().st_mode & 0o066 == 0


def test_what_was_not_used_longest_goes_until_the_rest_fits(tmp_path):
    keeper = ContentsKeeper(tmp_path, "box/cpu0", 3 * PAGE)
    old = put(keeper.folder(1), "old", used=1000)
    middle = put(keeper.folder(2), "middle", used=2000, pages=2)
    new = put(keeper.folder(1), "new", used=3000)
    assert keeper.prune() == PAGE
    assert (old.exists(), middle.exists(), new.exists()) == (False, True, True)
    assert keeper.prune() == 0


def test_a_content_over_the_whole_budget_does_not_push_out_smaller_ones(tmp_path):
    keeper = ContentsKeeper(tmp_path, "box/cpu0", 2 * PAGE)
    small = put(keeper.folder(1), "small", used=1000)
    huge = put(keeper.folder(1), "huge", used=2000, pages=5)
    keeper.prune()
    assert small.exists() and not huge.exists()


def test_what_a_killed_executor_left_unfinished_goes_and_what_is_being_written_stays(tmp_path):
    keeper = ContentsKeeper(tmp_path, "box/cpu0", 10 * PAGE)
    folder = keeper.folder(1)
    left, whole = put(folder, ".0a", used=1), put(folder, "0b", used=1)
    draft = Draft(str(folder), PAGE)
    assert keeper.sweep() == PAGE
    assert not left.exists() and whole.exists() and len(list(folder.iterdir())) == 2
    draft.add(memoryview(b"x" * PAGE))
    assert draft.publish(str(folder / "0c")) and keeper.prune() == 0


def test_nothing_there_is_nothing_to_do(tmp_path):
    keeper = ContentsKeeper(tmp_path, "box/cpu0", 0)
    assert keeper.prune() == 0
    keeper.clear()
    put(keeper.folder(3), "a", used=1)
    keeper.clear()
    assert list(tmp_path.iterdir()) == []
