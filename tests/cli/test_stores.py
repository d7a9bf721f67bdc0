"""`turnlog stores`: which store is used, and what others there are."""

import os
import sqlite3
from pathlib import Path

import pytest
from platformdirs import user_data_path
from tests.cli.command import STAMP, TIME, Command, Outcome, clocked_log
from tests.cli.test_starting import CALLING, loaded

from turnlog import TurnLog
from turnlog.cli import stores

PASSWORD = "t0p-s3cret"
ANOTHER = "another  --store sqlite:///PATH or postgresql://HOST/DATABASE, or TURNLOG_STORE\n"


def data_folder(command: Command) -> Path:
    """Return the data folder of a command, and make it."""
    folder = command.store.parent / "data" / "turnlog"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def make_store(path: Path, *texts: str) -> None:
    """Make a store with turns."""
    with clocked_log(f"sqlite:///{path}") as log:
        for text in texts:
            log.add_turn(text)


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return all files in a folder, with their bytes and the time of their last change."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def unreadable(turnlog: Command, *arguments: str, **environment: str) -> Outcome:
    """Look where the store that is used cannot be read: all is printed, and a script sees it by the exit status."""
    outcome = turnlog("stores", *arguments, **environment)
    assert (outcome.status, outcome.stderr) == (1, "")
    return outcome


@pytest.mark.parametrize(
    ("arguments", "environment", "name", "chosen_by"),
    [
        ((), "", "data/turnlog/log.db", "default"),
        ((), "named.db", "named.db", "environment"),
        (("--store", "said.db"), "named.db", "said.db", "option"),
    ],
)
def test_stores_says_which_store_is_used_and_why(
    turnlog: Command, arguments: tuple[str, ...], environment: str, name: str, chosen_by: str
) -> None:
    """The option before the environment before the default, whether it is there or not. None is made."""
    root = turnlog.store.parent
    given = [argument if argument.startswith("-") else f"sqlite:///{root / argument}" for argument in arguments]
    named = f"sqlite:///{root / environment}" if environment else ""
    told = turnlog.ok(*given, "stores", "--json", TURNLOG_STORE=named).json
    assert told == {
        "store": {
            "url": f"sqlite:///{root / name}",
            "path": str(root / name),
            "engine": "sqlite",
            "exists": False,
            "turns": None,
            "disk_bytes": None,
            "last_recorded": None,
            "problem": None,
        },
        "chosen_by": chosen_by,
        "data_folder": str(root / "data" / "turnlog"),
        "others": [],
    }
    why = {
        "default": "the default: neither --store nor TURNLOG_STORE says another",
        "environment": "TURNLOG_STORE says so",
        "option": "--store says so",
    }[chosen_by]
    assert turnlog.ok(*given, "stores", TURNLOG_STORE=named).text == (
        f"store   {root / name}\n"
        f"why     {why}\n"
        "engine  SQLite\n"
        "there   not yet: `turnlog add TEXT` makes it\n"
        f"\n{ANOTHER}"
    )
    assert [*root.iterdir()] == []
    make_store(root / name, "one")
    assert turnlog.ok(*given, "stores", "--json", TURNLOG_STORE=named).json["store"]["turns"] == 1


def test_stores_measures_what_is_there(turnlog: Command) -> None:
    """Turns, the time of the last event, all bytes on disk; then the other stores of the data folder, by name."""
    make_store(turnlog.store, "one", "two")
    make_store(data_folder(turnlog) / "b.db", "x" * 100_000)
    with TurnLog.open(f"sqlite:///{data_folder(turnlog) / 'a.db'}"):
        pass
    told = turnlog.ok("stores", "--json").json
    assert told["store"] == {
        "url": turnlog.url,
        "path": str(turnlog.store),
        "engine": "sqlite",
        "exists": True,
        "turns": 2,
        "disk_bytes": turnlog.store.stat().st_size,
        "last_recorded": TIME.isoformat(),
        "problem": None,
    }
    a, b = told["others"]
    assert (a["path"], a["turns"], a["last_recorded"]) == (str(data_folder(turnlog) / "a.db"), 0, None)
    assert (b["url"], b["turns"], b["problem"]) == (f"sqlite:///{data_folder(turnlog) / 'b.db'}", 1, None)
    of_b = [path.stat().st_size for path in data_folder(turnlog).rglob("*") if "b.db" in str(path) and path.is_file()]
    assert len(of_b) > 1
    assert b["disk_bytes"] == sum(of_b)
    lines = turnlog.ok("stores").text.splitlines()
    assert [line.split()[0] for line in lines[:6] if line] == ["store", "why", "engine", "turns", "last", "on"]
    assert lines[4].split() == ["last", "event", STAMP]
    assert lines[7] == f"also in {data_folder(turnlog)}"
    assert [line.split()[:3] for line in lines[8:10]] == [["a.db", "0", "turns"], ["b.db", "1", "turn"]]
    assert lines[9].split()[-1] == STAMP
    assert f"{lines[-1]}\n" == ANOTHER


def test_stores_lists_each_store_once_and_nothing_else(turnlog: Command) -> None:
    """Not the one that is used, whatever leads there, no file of another kind, and nothing that has to be awaited."""
    folder = data_folder(turnlog)
    make_store(folder / "log.db", "one")
    (folder / "notes.txt").write_text("SQLite format 3, not")
    (folder / "empty.db").touch()
    (folder / "folder.db").mkdir()
    os.mkfifo(folder / "fifo.db")
    (folder / "nowhere.db").symlink_to(folder / "gone")
    (turnlog.store.parent / "link.db").symlink_to(folder / "log.db")
    with sqlite3.connect(folder / "other.db") as other:
        other.execute("CREATE TABLE stored_events (x)")
    other.close()
    told = turnlog.ok("stores", "--json").json
    assert [Path(store["path"]).name for store in told["others"]] == ["log.db"]
    for used in (folder / "log.db", turnlog.store.parent / "link.db"):
        assert turnlog.ok("stores", "--json", TURNLOG_STORE=f"sqlite:///{used}").json["others"] == []


def test_stores_changes_nothing(turnlog: Command) -> None:
    """Not even a store that other commands would bring up to date, and nothing is left beside it."""
    old = data_folder(turnlog) / "old.db"
    make_store(old, "one")
    with sqlite3.connect(old) as store:
        store.execute("DELETE FROM store_projections WHERE name = 'thread index'")
    store.close()
    make_store(turnlog.store, "two")
    before = files(turnlog.store.parent)
    told = turnlog.ok("stores", "--json").json
    assert [told["store"]["turns"], *(other["turns"] for other in told["others"])] == [1, 1]
    assert files(turnlog.store.parent) == before
    turnlog.ok("--store", f"sqlite:///{old}", "log")
    assert files(turnlog.store.parent) != before


def test_stores_sees_what_a_process_that_has_the_store_open_recorded(turnlog: Command) -> None:
    """What stands in the write-ahead log is counted."""
    with clocked_log(turnlog.url) as log:
        log.add_turn("one")
        log.add_turn("two")
        assert turnlog.store.with_name("log.db-wal").stat().st_size > 0
        assert turnlog.ok("stores", "--json").json["store"]["turns"] == 2


def test_stores_says_what_keeps_a_store_from_being_read(turnlog: Command) -> None:
    """A store of a newer version, and one that is damaged, are listed; of the one that is used the reason is told."""
    newer = data_folder(turnlog) / "newer.db"
    make_store(newer, "one")
    with sqlite3.connect(newer) as store:
        store.execute("PRAGMA user_version = 99")
    store.close()
    lost = data_folder(turnlog) / "lost.db"
    make_store(lost, "one")
    with sqlite3.connect(lost) as store:
        store.execute("DROP TABLE stored_events")
        store.execute(
            "CREATE VIEW stored_events AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT * FROM n"
        )
    store.close()
    assert turnlog.ok("stores", "--json").json["store"]["problem"] is None
    turnlog.store.write_text("This is no store.")
    told = unreadable(turnlog, "--json").json
    assert (told["store"]["exists"], told["store"]["turns"]) == (False, None)
    assert told["store"]["problem"] == f"{str(turnlog.store)!r} is not a turnlog store, nor any SQLite database"
    problems = {Path(other["path"]).name: (other["exists"], other["problem"]) for other in told["others"]}
    assert problems["lost.db"] == (True, f"store {str(lost)!r} has lost its table of events: restore a backup")
    assert problems["newer.db"][0]
    assert "is of version 99, this turnlog knows" in problems["newer.db"][1]
    assert len(problems) == 2
    text = unreadable(turnlog).text
    assert "there    no\n" in text
    assert "is of version 99, this turnlog knows" in text


@pytest.mark.parametrize(
    ("url", "exists"),
    [
        ("postgresql://ann:{}@localhost:1/logs", None),
        ("postgresql://localhost:1/logs?user=ann&password={}", None),
        ("postgresql://ann:{}@@localhost:1/logs", None),
    ],
)
def test_stores_prints_no_password(turnlog: Command, url: str, exists: bool | None) -> None:
    """Nor where the server cannot be reached, or the URL is malformed: then that is the problem, and no error."""
    text = unreadable(turnlog, TURNLOG_STORE=url.format(PASSWORD)).text
    printed = unreadable(turnlog, "--json", TURNLOG_STORE=url.format(PASSWORD))
    assert PASSWORD not in text + printed.text
    told = printed.json
    assert (told["store"]["engine"], told["store"]["exists"]) == ("postgresql", exists)
    assert told["store"]["problem"]
    assert "there    cannot be told\n" in text


def test_stores_shows_a_url_as_messages_do(turnlog: Command) -> None:
    """Without its user."""
    shown = "postgresql://localhost:1/logs"
    told = unreadable(turnlog, "--json", TURNLOG_STORE="postgresql://ann@localhost:1/logs").json["store"]
    assert told["url"] == shown
    assert shown in told["problem"]


def test_stores_of_a_store_in_memory(turnlog: Command) -> None:
    """It is gone with the command."""
    assert "there   for as long as a command runs\n" in turnlog.ok("stores", "--store", "memory://").text


def test_what_is_recorded_in_memory_is_said_not_to_be_kept(turnlog: Command) -> None:
    """Once; and who only reads loses nothing."""
    gone = "turnlog: memory:// lasts as long as this command: what it records is not kept\n"
    assert turnlog("add", "x", "--store", "memory://").stderr == gone
    assert (
        turnlog("threads", "--store", "memory://").stderr == "turnlog: no threads yet: `turnlog add TEXT` starts one\n"
    )


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("x.db", "'x.db' is not a store URL, did you mean 'sqlite:///x.db'?"),
        ("", "--store is empty: give sqlite:///PATH or postgresql://HOST/DATABASE"),
    ],
)
def test_stores_refuses_what_is_no_url(turnlog: Command, url: str, line: str) -> None:
    """As every command does."""
    assert turnlog.refused("stores", "--store", url) == line


def test_stores_of_a_log_on_a_server(turnlog: Command, kept_postgres_url: str) -> None:
    """Whether it is there, and its turns; large payloads get no place by being looked at."""
    url = f"{kept_postgres_url}{'&' if '?' in kept_postgres_url else '?'}payloads=file://{turnlog.store.parent}/objects"
    assert turnlog.ok("stores", "--json", TURNLOG_STORE=url).json["store"]["exists"] is False
    with clocked_log(kept_postgres_url) as log:
        log.add_turn("one")
    told = turnlog.ok("stores", "--json", TURNLOG_STORE=url).json
    assert [told["store"][name] for name in ("engine", "exists", "turns", "disk_bytes", "last_recorded")] == [
        "postgresql", True, 1, None, TIME.isoformat(),
    ]  # fmt: skip
    assert "on disk     on a server: `turnlog stats` measures it\n" in turnlog.ok("stores", TURNLOG_STORE=url).text
    assert [*turnlog.store.parent.iterdir()] == []


def test_stores_loads_nothing_that_only_runs_need() -> None:
    """No agent, no server of tools, no SDK."""
    names = loaded("from turnlog.cli.app import main\nassert main(['--store', 'memory://', 'stores']) == 0")
    assert "turnlog.cli.commands.stores" in names
    assert [name for name in CALLING if name in names] == []
    assert [name for name in names if name.startswith(("turnlog.agent.", "turnlog.interop."))] == []


@pytest.mark.parametrize(
    "environment",
    [
        {"HOME": "/home/ada"},
        {"HOME": "/home/ada/"},
        {"HOME": "/"},
        {"HOME": "/home/ada", "XDG_DATA_HOME": "/data"},
        {"HOME": "/home/ada", "XDG_DATA_HOME": "data"},
        {"HOME": "/home/ada", "XDG_DATA_HOME": ""},
        {"HOME": "ada"},
        {"HOME": ""},
        {},
    ],
)
def test_data_folder_is_that_of_the_platform(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    """It is found without what takes long to import where that is plain; the answer is the same everywhere."""
    for name in ("HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert stores.data_folder() == user_data_path("turnlog")


def test_folder_whose_name_is_no_utf_8_is_told(turnlog: Command, tmp_path: Path) -> None:
    """Before anything is made in it: the data folder, or that of a path."""
    folder = tmp_path / "n\udcff"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    data = {"TURNLOG_STORE": "", "XDG_DATA_HOME": str(folder)}
    for command in (("add", "hi"), ("stores",), ("log",)):
        assert turnlog.refused(*command, **data) == "the folder in XDG_DATA_HOME is not valid UTF-8"
    said = turnlog.refused("add", "hi", "--store", f"sqlite:///{tmp_path}/link/l.db")
    assert said.startswith(f"there can be no store at '{tmp_path}/link/l.db': the name of a folder in ")
    assert said.endswith("\\udcff/l.db' is not valid UTF-8")
    assert list(folder.iterdir()) == []
