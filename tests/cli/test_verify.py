"""`turnlog verify` in a real process: what it prints, how it ends, and how it mends index tables."""

import shutil
from pathlib import Path

import pytest
from tests.cli.command import Command
from tests.faults.hostile import run_sql, run_sql_as_it_is
from tests.faults.rich_store import NAMES, build
from tests.faults.tampering import FOUND


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store with one of everything, and return its folder."""
    folder = tmp_path_factory.mktemp("sound")
    build(folder / "log.db")
    return folder


@pytest.fixture
def rich(sound: Path, tmp_path: Path) -> Command:
    """Give the command on a copy of the store."""
    return Command(store=shutil.copytree(sound, tmp_path / "rich") / "log.db")


def test_what_is_no_damage_is_told_beside_the_counts(rich: Command) -> None:
    """Erased events, and tables of others."""
    run_sql_as_it_is(rich.store, "CREATE TABLE notes (text)")
    first, *facts = rich.ok("verify").text.splitlines()
    assert first == f"clean  {len(NAMES)} events, 29 payloads, 337.9 kB: every byte is as it was recorded"
    assert facts == ["  erased         2", "  not turnlog's  notes"]
    report = rich.ok("verify", "--json").json
    assert (report["clean"], report["erased"], report["others"]) == (True, 2, ["notes"])
    assert (report["requests"], report["replies"], report["damage"]) == (4, 3, [])


def test_damaged_index_tables_are_mended_where_they_are(rich: Command) -> None:
    """With the option the command ends with status 0 and names what it built anew; without it with 1."""
    before = rich.ok("log", "--json").text
    run_sql(rich.store, "DELETE FROM bookmarks")
    run_sql_as_it_is(rich.store, "DROP TABLE turn_links")
    assert rich("verify").status == 1
    assert rich("log").status == 2
    mended = rich.ok("verify", "--repair-projections")
    assert mended.text.splitlines()[-1].split("  ")[-1] == "turn index, bookmark heads, schema"
    assert rich.ok("verify", "--repair-projections", "--json").json["repaired"] == []
    assert rich.ok("log", "--json").text == before


def test_each_damage_is_a_line(rich: Command) -> None:
    """On standard error, with place and id of the event where there is one, and without control characters."""
    run_sql(
        rich.store,
        "UPDATE stored_events SET arrival = 9 WHERE notification_id = 3",
        "UPDATE bookmarks SET turn_id = 'x' || char(27) WHERE name = 'main'",
    )
    outcome = rich("verify")
    assert outcome.status == 1
    assert outcome.text.startswith("2 damages  found in ")
    one, other = outcome.stderr.splitlines()
    assert one.startswith("turnlog: damage at global position 3, event ")
    assert one.endswith(": its arrival is 9, which means nothing")
    assert other.startswith("turnlog: damage: the bookmark heads differs from its rebuild")
    assert "\x1b" not in outcome.stderr


@pytest.mark.parametrize("kind", sorted({edit.kind for edit in FOUND}))
def test_status_is_1_or_2_for_each_kind_of_edit(rich: Command, kind: str) -> None:
    """A damaged log ends with 1, one that cannot be opened with 1 or 2, and neither with a traceback."""
    edit = next(edit for edit in FOUND if edit.kind == kind)
    edit.apply(rich.store)
    outcome = rich("verify")
    assert outcome.status in (1, 2)
    assert str(edit.finds) in outcome.stderr
    assert "Traceback" not in outcome.stderr
