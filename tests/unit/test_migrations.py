"""Which migrations run, and which databases are refused."""

from __future__ import annotations

import pytest

from dgsf.errors import StartError
from dgsf.store.migrate import Applied, Migration, Phase, load_migrations, pending
from dgsf.store.queries import QueryFileError, load, parse

BOTH = (Phase.before, Phase.after)


def made(number: int, phase: Phase = Phase.before, text: str = "SELECT 1", name: str = "thing") -> Migration:
    return Migration(number, name, phase, text)


def recorded(migration: Migration) -> Applied:
    return Applied(migration.number, migration.phase, migration.name, migration.checksum)


def test_the_package_has_migrations_in_order_without_gaps():
    before = [m.number for m in load_migrations() if m.phase is Phase.before]
    assert before == list(range(1, len(before) + 1))


def test_what_was_applied_is_not_run_again():
    first, second = made(1), made(2)
    assert pending([first, second], [recorded(first)], BOTH) == [second]


def test_an_after_waits_until_its_phase_is_asked_for():
    first, later, second = made(1), made(1, Phase.after), made(2)
    known = [first, later, second]
    assert pending(known, [], [Phase.before]) == [first, second]
    assert pending(known, [recorded(first), recorded(second)], BOTH) == [later]


def test_a_migration_changed_after_it_ran_stops_the_start_by_name():
    with pytest.raises(StartError, match=r"0001_thing\.before was changed"):
        pending([made(1, text="SELECT 2")], [recorded(made(1))], BOTH)


def test_a_database_with_a_later_after_migration_is_newer_than_the_code():
    with pytest.raises(StartError, match=r"newer than this code: it has 0009_thing\.after"):
        pending([made(1)], [recorded(made(1)), recorded(made(9, Phase.after))], BOTH)


def test_a_later_additive_migration_lets_the_old_code_start():
    assert pending([made(1)], [recorded(made(1)), recorded(made(2))], BOTH) == []


def test_files_come_back_by_number_then_before_then_after(tmp_path):
    for name in ("0002_b.before.sql", "0001_a.after.sql", "0001_a.before.sql"):
        (tmp_path / name).write_text(f"-- {name}")
    assert [m.title for m in load_migrations(tmp_path)] == ["0001_a.before", "0001_a.after", "0002_b.before"]


@pytest.mark.parametrize("name", ["1_short.before.sql", "0001_x.sql", "0001_x.during.sql", "notes.txt"])
def test_a_file_that_is_no_migration_is_named(tmp_path, name):
    (tmp_path / name).write_text("")
    with pytest.raises(StartError, match=f"{name} is not a migration"):
        load_migrations(tmp_path)


def test_two_files_of_one_number_are_refused(tmp_path):
    for name in ("0001_a.before.sql", "0001_b.before.sql"):
        (tmp_path / name).write_text("")
    with pytest.raises(StartError, match="one number"):
        load_migrations(tmp_path)


def test_every_query_has_a_name_a_reason_and_a_text():
    assert "finish_calls" in load()


def test_comments_are_not_sent_to_the_server():
    assert parse("-- name: one\n-- because\nSELECT 1\n", "x.sql") == {"one": "SELECT 1"}


@pytest.mark.parametrize(
    "text",
    ["-- name: one\nSELECT 1", "-- name: one\n-- because\n", "SELECT 1", "-- name: a\n-- b\nX\n-- name: a\n-- b\nX"],
)
def test_a_query_file_that_is_not_well_formed_is_refused(text):
    with pytest.raises(QueryFileError):
        parse(text, "x.sql")
