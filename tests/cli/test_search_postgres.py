"""`turnlog search`, `usage`, `projections` and `feeds` of a log on PostgreSQL."""

from pathlib import Path

import psycopg
import pytest
from tests.agent.running import run
from tests.agent.scripted import Scripted, say
from tests.cli.command import Command

from turnlog import TurnLog


class PostgresCommand(Command):
    """The command with a store on PostgreSQL; what it has in the user's folders is beside `store`."""

    address: str

    @property
    def url(self) -> str:
        """The URL of the store."""
        return self.address

    def environment(self, **changes: str) -> dict[str, str]:
        """Return an environment without user data."""
        return super().environment(XDG_CACHE_HOME=str(self.store.parent / "cache"), **changes)


@pytest.fixture
def talk(tmp_path: Path, kept_postgres_url: str) -> PostgresCommand:
    """Give a command whose log has two threads and a reply."""
    command = PostgresCommand(store=tmp_path / "log.db")
    object.__setattr__(command, "address", kept_postgres_url)
    with TurnLog.open(kept_postgres_url) as log:
        log.add_turn("What lives in the River?", bookmark="main")
        run(log, Scripted(say("Otters, and a heron\nby the bridge", tokens=7)), continues="main")
        log.add_turn("A river elsewhere", bookmark="other")
    return command


def test_turns_are_found_and_counted(talk: PostgresCommand) -> None:
    """As on SQLite."""
    assert talk.ok("search", "heron", "bridge").text.splitlines()[1] == "  Otters, and a heron by the bridge"
    assert len(talk.ok("search", "river", "--json").json_lines) == 2
    [found] = talk.ok("search", "river", "--thread", "other", "--json").json_lines
    assert found["snippet"] == "A \x02river\x03 elsewhere"
    assert talk("search", "RIVER", "-n", "1", "--newest", "--json").json_lines == [found]
    assert "no word" in talk.refused("search", "!!")
    rows = [line.split() for line in talk.ok("usage", "--by", "model").text.splitlines()]
    assert rows[1][:2] == ["scripted-1", "1"]
    assert talk("usage", "--tools").stderr == "turnlog: no tools were called yet\n"


def test_projections_tell_how_they_are_doing(talk: PostgresCommand) -> None:
    """Not built, behind, up to date, paused; and go on once the event is skipped, or built anew."""
    assert "search_turns, search_sealed" in talk.ok("projections").text
    status = talk.ok("projections", "status").text
    assert status.count("not built yet") == len(status.splitlines()) > 3
    assert talk.ok("projections", "run", "search").text.split()[-3:] == ["up", "to", "date"]
    talk.ok("add", "more")
    assert "1 event behind" in talk.ok("projections", "status").text
    with TurnLog.open(talk.url) as log:
        [*_, last] = log.events()
    # What is in the way of the next turn makes it poison.
    with psycopg.connect(talk.url) as connection:
        connection.execute(
            "INSERT INTO turnlog_projections.search_turns"
            " VALUES (%s, 'x', 'x', 0, 'user', NULL, 0, 'in the way', ' in the way ', '', false)",
            (last.global_position,),
        )
    paused = talk("projections", "run")
    assert paused.status == 1
    assert f"search is paused at global position {last.global_position}" in paused.stderr
    assert "UniqueViolation" in paused.stderr
    assert "is paused" in talk.refused("search", "river")
    assert "passes over" in talk("projections", "skip", "search", "--reason", "x").stderr
    assert len(talk.ok("search", "river", "--json").json_lines) == 2
    talk.ok("projections", "rebuild", "search")
    assert talk("projections", "status").status == 0


def test_erasure_reaches_the_index(talk: PostgresCommand) -> None:
    """Before the command returns."""
    talk.ok("search", "river")
    assert "erased  1 event" in talk("erase", "--turn", "other", "--reason", "asked", "--yes").text
    with psycopg.connect(talk.url) as connection:
        rows = connection.execute("SELECT text FROM turnlog_projections.search_turns").fetchall()
    assert "A river elsewhere" not in [text for (text,) in rows]
    assert len(talk.ok("search", "river", "--json").json_lines) == 1


def test_feeds_are_remembered(talk: PostgresCommand, tmp_path: Path) -> None:
    """From one command to the next, in the user's data folder."""
    talk("feed", "jsonl", str(tmp_path / "events"))
    [feed] = talk.ok("feeds", "--json").json_lines
    assert feed["lag"] == 0
    assert feed["position"] > 3
    assert len(list((tmp_path / "data").rglob("*-feeds"))) == 1
