"""The log format is enough to read a store: the programs of its page do, without turnlog, what turnlog does."""

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.docs.pages import ROOT, blocks
from tests.golden import generate

from turnlog import TurnLog, projections
from turnlog.providers import get
from turnlog.store import Placement
from turnlog.store.sqlite import schema

PAGE = ROOT / "docs" / "reference" / "log-format.md"
TEXT = PAGE.read_text(encoding="utf-8")


@pytest.fixture
def programs(tmp_path: Path) -> tuple[Path, Path]:
    """Give the programs of the page as files: the one that reads stores, the one that reads exports."""
    sources = [block.text for block in blocks(PAGE) if block.language == "python"]
    assert len(sources) == 2
    assert not any(re.search(r"^\s*(?:import|from) turnlog", source, re.MULTILINE) for source in sources)
    files = tmp_path / "read_log.py", tmp_path / "read_export.py"
    for file, source in zip(files, sources, strict=True):
        file.write_text(source, encoding="utf-8")
    return files


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Give a store with turns, forks, merges, bookmarks, and documents beside the event and in files."""
    path = tmp_path / "log.db"
    generate.fill(path)
    (tmp_path / "noise.bin").write_bytes(Random(1).randbytes(70_000))
    (tmp_path / "table.json").write_bytes(b'{"b":1.50,"a":"\\u00e9"}')
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.add_document(tmp_path / "noise.bin", continues="both")
        log.add_document(tmp_path / "table.json", continues="both")
        for number in range(50):
            log.add_turn(f"{number} " * 100, continues="away", inherited={"count": number})
        log.add_turn("a diamond", continues=["main", "away", "both"])
        _call(log, "noon")
    return path


def _call(log: TurnLog, bookmark: str) -> None:
    """Record three calls of a conversation, so that the requests have parts of each other."""
    adapter = get("openai_chat")
    reply = b'{"id":"c","model":"m","choices":[{"index":0,"message":{"content":"Yes."},"finish_reason":"stop"}]}'
    for _ in range(3):
        known = any(one.name == bookmark for one in log.bookmarks())
        turn = log.add_turn("Go on?", continues=bookmark if known else None, bookmark=bookmark)
        call = log.calls.record(turn.id, adapter.prepare_request(log.context(bookmark), model="m"))
        log.calls.record_reply(call, [reply], adapter.aggregate([reply]))


def run(program: Path, *arguments: Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    # -I: nothing but what is installed, so that no file beside the program is imported by its name.
    return subprocess.run([sys.executable, "-I", program, *arguments], input=given, capture_output=True, check=False)


def test_reader_recomputes_what_turnlog_reads(programs: tuple[Path, Path], store: Path) -> None:
    """The page's reader finds every hash right, and gives the bookmarks and windows that turnlog gives."""
    done = run(programs[0], store)
    assert done.returncode == 0, done.stderr.decode()
    summary: dict[str, Any] = json.loads(done.stdout)
    with TurnLog.open(f"sqlite:///{store}") as log:
        heads = {bookmark.name: bookmark.turn for bookmark in log.bookmarks()}
        assert summary["bookmarks"] == heads
        assert summary["windows"] == {name: json.loads(log.context(name).to_json()) for name in heads}
        report = log.verify()
        assert (summary["events"], summary["payloads"]) == (report.events, report.payloads) == (81, 77)
        calls = [call.id for name in heads for call in log.calls.of(name)]
        assert len(calls) == 3
        assert summary["requests"] == {call: log.calls.request(call).decode() for call in calls}
        assert summary["parents"] == sum(len(recorded.event.parents) for recorded in log.events())
    assert len(summary["windows"]["main"]["messages"]) > 50


def test_reader_sees_every_placement(store: Path) -> None:
    """The store that the reader is tried on has payloads of every placement that is in use."""
    with sqlite3.connect(store) as database:
        rows = database.execute("SELECT DISTINCT payload_placement FROM stored_events")
        assert {Placement(placement) for (placement,) in rows} == set(Placement)
    database.close()


@pytest.mark.parametrize("column", ["state", "leaf_hash", "payload", "originator_version", "event_id"])
def test_reader_finds_a_changed_byte(programs: tuple[Path, Path], store: Path, column: str) -> None:
    """The page's reader stops when anything that it reads was changed."""
    database = sqlite3.connect(store)
    database.execute("DROP TRIGGER stored_events_no_update")
    [(value,)] = database.execute(f"SELECT {column} FROM stored_events WHERE notification_id = 2")
    changed = {
        bytes: lambda: value[:-9] + bytes([value[-9] ^ 1]) + value[-8:],
        str: lambda: "1" + value[1:],
        int: lambda: value + 100,
    }[type(value)]()
    database.execute(f"UPDATE stored_events SET {column} = ? WHERE notification_id = 2", (changed,))
    database.commit()
    database.close()
    done = run(programs[0], store)
    assert done.returncode == 1
    assert b"AssertionError" in done.stderr


def test_reader_finds_a_changed_payload_file(programs: tuple[Path, Path], store: Path) -> None:
    """The page's reader stops when a payload file was changed."""
    [file] = [path for path in Path(f"{store}-payloads").glob("??/*") if path.suffix != ".zst"]
    file.write_bytes(b"!" + file.read_bytes()[1:])
    done = run(programs[0], store)
    assert done.returncode == 1
    assert b"differs" in done.stderr


def test_portable_form_is_as_described(programs: tuple[Path, Path], store: Path, tmp_path: Path) -> None:
    """The page's second program recomputes every hash of an export, and finds a changed byte in it."""
    with TurnLog.open(f"sqlite:///{store}") as log, (tmp_path / "log.jsonl").open("wb") as file:
        count = log.export(file)
    exported = (tmp_path / "log.jsonl").read_bytes()
    done = run(programs[1], given=exported)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode() == f"{count} events, every hash as it should be\n"
    for old, new in ((b"a diamond", b"a Diamond"), (b'"b":1.50', b'"b":1.5'), (b'"position":1,', b'"position":2,')):
        assert exported.count(old) >= 1
        assert run(programs[1], given=exported.replace(old, new, 1)).returncode == 1


def test_example_event_is_what_turnlog_stores() -> None:
    """The event that the page shows is, unwrapped, what recording its payload stores, with the digest shown."""
    shown = next(block.text for block in blocks(PAGE) if block.language == "text")
    with TurnLog.open("memory://") as log:
        turn = log.add_turn("Name a river.", id=json.loads(shown)["id"])
        [recorded] = log.events()
        assert recorded.state.decode() == shown.replace("\n", "")
        assert f"`{log.payload(turn.id).decode()}`" in TEXT
        assert f"`{turn.digest}`" in TEXT


def test_table_of_the_log_is_as_described() -> None:
    """The statement that the page shows is the one that makes the table."""
    [shown] = [block.text for block in blocks(PAGE) if block.language == "sql"]
    assert shown.strip().removesuffix(";") == schema.EVENTS.replace("IF NOT EXISTS ", "")
    assert f"0x{schema.APPLICATION_ID:X}" in TEXT
    assert str(schema.APPLICATION_ID) in TEXT


def test_tables_of_a_store_are_those_described(store: Path) -> None:
    """A store has the tables that the page names, with the columns that it names, and no other."""
    described = {
        table: re.findall(r"`(\w+)`", columns) for table, columns in re.findall(r"^\| `(\w+)` \| (`.*?) \|", TEXT, re.M)
    }
    names = {name for projection in projections.synchronous() for name in projection.tables}
    database = sqlite3.connect(store)
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    actual = {name: [row[1] for row in database.execute(f"PRAGMA table_info({name})")] for name in names}
    database.close()
    assert tables == names | {"stored_events"}
    assert {name: described.get(name) for name in names} == actual


def test_payload_files_are_named_as_described(store: Path, tmp_path: Path) -> None:
    """A large payload is a file whose folder and name are its SHA-256."""
    noise = (tmp_path / "noise.bin").read_bytes()
    name = sha256(noise).hexdigest()
    assert (Path(f"{store}-payloads") / name[:2] / name[2:]).read_bytes() == noise


def test_a_copy_without_the_payload_folder_is_noticed(programs: tuple[Path, Path], store: Path, tmp_path: Path) -> None:
    """The page's reader does not take a store without its payload folder for whole."""
    (tmp_path / "copy").mkdir()
    done = run(programs[0], Path(shutil.copy(store, tmp_path / "copy")))
    assert done.returncode == 1
    assert b"FileNotFoundError" in done.stderr
