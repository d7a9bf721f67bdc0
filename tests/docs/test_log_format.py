"""The log format is enough to read a store: the programs of its page find, without turnlog, all that turnlog finds."""

import hmac
import inspect
import json
import re
import shutil
import sqlite3
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw
from tests import sealed_log
from tests.docs import random_logs
from tests.docs.pages import ROOT, blocks
from tests.docs.readers import PAGE, Readers, readers
from tests.faults import rich_store
from tests.faults.tampering import FOUND, OUT_OF_REACH, Edit
from tests.golden import generate, tamper_table
from tests.soak import SOAK

from turnlog import Text, ToolResult, ToolUse, TurnLog, projections
from turnlog.audit.masters import FileMaster
from turnlog.audit.notes import NOTE_BYTES_MAX, SIGNATURES_MAX
from turnlog.audit.proofs import PART_BYTES_MAX, PROOF_BYTES_MAX
from turnlog.audit.seals import SealFolder
from turnlog.digest import payload_hash
from turnlog.errors import TurnlogError
from turnlog.events import FORMATS, SEAL, SHAPES, Arrival, DataKey, build, decode, flaw, private_part
from turnlog.events.flaws import TIME_MS_MAX
from turnlog.events.form import DEPTH_MAX, meta_text
from turnlog.events.sealing import open_private, read_sealed, sealed_pieces
from turnlog.ids import new_id
from turnlog.interop.claude_code.report import LineMeta
from turnlog.interop.transcripts import PieceMeta
from turnlog.model import CallError, ToolCallMeta, ToolEndMeta
from turnlog.model.blocks import BLOCK_TYPES
from turnlog.model.depth import JSON_DEPTH_MAX
from turnlog.providers import get_as
from turnlog.record.append import META_BYTES_MAX
from turnlog.record.fields import NAME_CHARACTERS_MAX
from turnlog.sources import Sources
from turnlog.store import Placement, SyncProjection
from turnlog.store.frames import WINDOW_BYTES_MAX
from turnlog.store.payloads import PAYLOAD_BYTES_MAX
from turnlog.store.sqlite import schema
from turnlog.testing.strategies import json_objects

TEXT = PAGE.read_text(encoding="utf-8")
SEEDS = range(1000 if SOAK else 12)
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Readers]:
    """Give the programs of the page: the one that reads stores, and the one that reads exports."""
    with readers(tmp_path_factory.mktemp("programs")) as found:
        yield found


def _ended(turn: str, block: int) -> ToolEndMeta:
    return ToolEndMeta(turn=turn, block=block, attempt=1, ending="result", duration_ms=7)


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder of a store that has one of everything, and payloads of every placement."""
    folder = tmp_path_factory.mktemp("rich")
    path = folder / "log.db"
    generate.fill(path)
    (folder / "noise.bin").write_bytes(Random(1).randbytes(70_000))
    (folder / "table.json").write_bytes(b'{"b":1.50,"a":"\\u00e9"}')
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.add_document(folder / "noise.bin", continues="both")
        log.add_document(folder / "table.json", continues="both")
        for number in range(50):
            log.add_turn(f"{number} " * 100, continues="away", inherited={"count": number})
        log.compact("away", text="They counted.", reason="it is long")
        log.add_turn("behind a summary", continues="away")
        log.add_turn("a diamond", continues=["main", "away", "both"], subject="somebody")
        calls = [ToolUse(id=f"c{number}", name="files___read", input=Raw(b"{}")) for number in range(2)]
        asked = log.add_turn(calls, role="assistant", continues="both", bookmark=False).id
        begun = ToolCallMeta(turn=asked, block=0, attempt=1, approved="asked", server="files")
        log.tool_calls.begin([begun, msgspec.structs.replace(begun, block=1)])
        log.tool_calls.end(_ended(asked, 0), [Text(text="read")])
        results = [ToolResult(tool_use_id=call.id, content="read") for call in calls]
        known = [log.tool_calls.of(asked)[0].last_end]
        log.tool_calls.record_results(results, turn=asked, ends=[_ended(asked, 1)], known=known)
        log.holds.set("a hold", turn="both", reason="a court said so")
        adapter = get_as("anthropic", "anthropic")
        call = log.calls.record("away", adapter.prepare_request(log.context("away"), model="m-1"))
        broken = adapter.aggregate([]).failed(CallError(message="it sent what it should not"))
        log.calls.record_reply(call, [b'{"a":"\x1e"}', b"", b"\n\x1e"], broken, bookmark=False)
    return folder


@pytest.fixture
def store(rich: Path, tmp_path: Path) -> Path:
    """Give a copy of the rich store."""
    return shutil.copytree(rich, tmp_path / "rich") / "log.db"


@pytest.fixture
def export(store: Path, tmp_path: Path) -> Path:
    """Give an export of the rich store."""
    path = tmp_path / "log.jsonl"
    with TurnLog.open(f"sqlite:///{store}") as log, path.open("wb") as file:
        log.export(file)
    return path


@pytest.mark.parametrize("projection", projections.synchronous(), ids=lambda projection: projection.name)
def test_projection_is_described(programs: Readers, projection: SyncProjection) -> None:
    """A projection in the transaction of appends is a part of every store: the page and its program tell of it."""
    [_, shown, *_] = [block.text for block in blocks(PAGE) if block.language == "sql"]
    folds = inspect.getsource(programs.store.Store.check_projections)
    statements = [f"{sql};" for sql in schema.projection_statements(projection)]
    version = f"`{projection.name}` {projection.version}"
    lacking = {
        "the second block of SQL": [sql for sql in statements if sql not in shown],
        "the table below ## Projections": [name for name in projection.tables if f"\n| `{name}` | " not in TEXT],
        "the row of store_projections": [] if version in TEXT else [version],
        "SCHEMA of the program": [sql for sql in statements if sql not in programs.store.SCHEMA],
        "PROJECTIONS of the program": {(projection.name, projection.version)} - set(programs.store.PROJECTIONS),
        "check_projections of the program": [name for name in projection.tables if f'"{name}": ' not in folds],
    }
    told = "".join(f"\n- {place} lacks {each}" for place, found in lacking.items() for each in found)
    if told:
        pytest.fail(f"docs/reference/log-format.md does not have all of the {projection.name}: {told}")


def verified(path: Path) -> list[str]:
    """Return what `verify` finds wrong with a store."""
    try:
        with TurnLog.open(f"sqlite:///{path}", create=False) as log:
            return [damage.what for damage in log.verify().damage]
    except TurnlogError as error:
        return [str(error)]


# Reading


def test_reader_recomputes_what_turnlog_reads(programs: Readers, store: Path) -> None:
    """The page's reader finds every hash right, and gives the bookmarks, windows and requests that turnlog gives."""
    done = programs.run("read_log", store)
    assert (done.returncode, done.stderr) == (0, "")
    summary: dict[str, Any] = json.loads(done.stdout)
    with TurnLog.open(f"sqlite:///{store}") as log:
        _check_summary(summary, log)
        report = log.verify()
    assert (report.events, report.payloads, report.erased) == (112, 92, 1)
    assert len(summary["windows"]["main"]["messages"]) > 50
    assert len(summary["requests"]) == 4


def _check_summary(summary: dict[str, Any], log: TurnLog) -> None:
    heads = {bookmark.name: bookmark.turn for bookmark in log.bookmarks.all()}
    assert summary["bookmarks"] == heads
    windows = {name: json.loads(log.context(turn).to_json()) for name, turn in heads.items()}
    assert summary["windows"] == windows
    report = log.verify()
    assert report.damage == ()
    counts = (summary["events"], summary["payloads"], summary["erased"])
    assert counts == (report.events, report.payloads, report.erased)
    found = {call: body for call, body in summary["requests"].items() if body is not None}
    assert found == {call: log.calls.request(call).decode() for call in found}
    assert len(found) == report.requests
    assert summary["parents"] == sum(len(recorded.header.parents) for recorded in log.events())


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """Give a store that is sealed but for its beginning."""
    path = tmp_path / "sealed.db"
    sealed_log.fill(path, sealed_log.SealsInMemory())
    return path


def test_reader_takes_a_sealed_store_without_its_keys(programs: Readers, sealed: Path, tmp_path: Path) -> None:
    """It finds nothing wrong with it, and reads the same in it as turnlog without keys; so with an export of it."""
    done = programs.run("read_log", sealed)
    assert (done.returncode, done.stderr) == (0, "")
    summary = json.loads(done.stdout)
    with TurnLog.open(f"sqlite:///{sealed}") as log:
        _check_summary(summary, log)
        with (tmp_path / "sealed.jsonl").open("wb") as file:
            log.export(file)
        assert log.verify().closed > 10
    assert sum(name.startswith("sealed:") for name in summary["bookmarks"]) == len(summary["bookmarks"]) > 3
    assert programs.export_damage(tmp_path / "sealed.jsonl") == []


@pytest.mark.parametrize("column", ["private", "payload"])
@pytest.mark.parametrize("byte", [0, 30, 100, -3])
def test_reader_finds_each_changed_byte_of_what_is_sealed(
    programs: Readers, sealed: Path, column: str, byte: int
) -> None:
    """No key is needed for that, and `verify` says the same."""
    database = sqlite3.connect(sealed)
    database.execute("DROP TRIGGER stored_events_no_private_update")
    chosen = "SELECT max(notification_id) FROM stored_events WHERE length(payload) > 110"
    [[at]] = database.execute(chosen).fetchall()
    [[value]] = database.execute(f"SELECT {column} FROM stored_events WHERE notification_id = {at}").fetchall()
    changed = bytearray(value)
    changed[byte] ^= 1
    database.execute(f"UPDATE stored_events SET {column} = ? WHERE notification_id = ?", (bytes(changed), at))
    database.commit()
    database.close()
    assert [line for line in programs.store_damage(sealed) if line.startswith(f"event {at}: ")]
    with TurnLog.open(f"sqlite:///{sealed}") as log:
        assert at in [damage.global_position for damage in log.verify().damage]


def test_example_of_a_sealed_event_is_right() -> None:
    """The values on the page follow from its data key, its nonce and its plain private part, and open again."""
    start = TEXT.index("**An example.** The root turn of the example above, sealed")
    example = TEXT[start : TEXT.index("\n## ", start)]
    secret, private, payload = (
        text.replace("\n", "") for text in re.findall(r"^```text\n(.*?)^```$", example, re.MULTILINE | re.DOTALL)
    )
    plain = next(line for line in TEXT.splitlines() if line.startswith('{"hash":"sha256-NUZRywJ'))
    content = re.findall(r"Its payload is `(.*)`\.", TEXT)[0].encode()
    key, nonce = bytes(range(32)), b"\xa0" * 16
    key_id = urlsafe_b64encode(sha256(b"turnlog data key\x00" + key).digest()[:16]).decode().rstrip("=")
    event_secret = hmac.digest(key, b"turnlog sealed-1\x00" + nonce, "sha256")
    cipher = AESGCM(event_secret)
    sealed_payload = cipher.encrypt(bytes(11) + b"\x01", b"\x00" + content, b"payload")
    part = {
        "form": "sealed-1",
        "hash": payload_hash(sealed_payload),
        "key": key_id,
        "nonce": b64encode(nonce).decode(),
        "sealed": b64encode(cipher.encrypt(bytes(12), plain.encode(), b"private part")).decode(),
        "secret_hash": payload_hash(event_secret),
        "size": len(sealed_payload),
    }
    assert (secret, payload) == (event_secret.hex(), sealed_payload.hex())
    assert private == json.dumps(part, separators=(",", ":"))
    assert f"`{key_id}`" in example
    assert f"`{payload_hash(private.encode())}`" in example
    sealed = read_sealed(private.encode(), "an id", None)
    assert open_private(sealed, bytes.fromhex(secret)) == plain.encode()
    assert DataKey.of(key).id == sealed.key
    assert DataKey.of(key).event_secret(sealed.nonce) == event_secret


def test_files_of_keys_are_as_the_page_says(tmp_path: Path) -> None:
    """With the master key, the bytes of each file and the page, every key is opened, and every owner is known."""
    seals = SealFolder(tmp_path, FileMaster(tmp_path / "master"))
    made = {None: seals.make(None), "patient 17": seals.make("patient 17")}
    master = AESGCM(b64decode((tmp_path / "master").read_text().strip(), validate=True))
    opened: dict[str, bytes] = {}
    for file in tmp_path.glob("*.key"):
        record = json.loads(file.read_bytes())
        assert (record.keys(), record["form"]) == ({"form", "id", "made", "master", "wrapped"}, "seal-key-1")
        owner = file.name.removesuffix(".key").removesuffix("." + record["id"])
        wrapped = b64decode(record["wrapped"], validate=True)
        opened[owner] = master.decrypt(
            wrapped[:12], wrapped[12:], f"turnlog seal-key-1 {owner} {record['id']}".encode()
        )
        of_id = sha256(b"turnlog data key\x00" + opened[owner]).digest()[:16]
        assert record["id"] == urlsafe_b64encode(of_id).decode().rstrip("=")
    tag = hmac.digest(opened["names"], b"subject\x00patient 17", "sha256")[:16]
    subject = "subject." + urlsafe_b64encode(tag).decode().rstrip("=")
    assert opened == {"names": opened["names"], "general": made[None].secret, subject: made["patient 17"].secret}


def test_reader_sees_every_placement_and_arrival(store: Path) -> None:
    """The store that the reader is tried on has every placement, every topic and every arrival but one each."""
    database = sqlite3.connect(store)
    placements, arrivals, topics = (
        {value for (value,) in database.execute(f"SELECT DISTINCT {column} FROM stored_events")}
        for column in ("payload_placement", "arrival", "topic")
    )
    database.close()
    assert {Placement(placement) for placement in placements} == set(Placement)
    assert arrivals == {Arrival.RECORDED, Arrival.GUEST}
    assert set(SHAPES) - {SEAL} <= topics


@pytest.mark.timeout(7200 if SOAK else 120)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_store_is_clean_for_both(programs: Readers, tmp_path: Path, seed: int) -> None:
    """The readers and `verify` find nothing wrong with a log made at random, and read the same in it."""
    path = tmp_path / "log.db"
    random_logs.fill(path, seed)
    summary = programs.summary(path)
    with TurnLog.open(f"sqlite:///{path}") as log:
        _check_summary(summary, log)
        with (tmp_path / "log.jsonl").open("wb") as file:
            log.export(file)
    assert programs.export_damage(tmp_path / "log.jsonl") == []


def test_reader_takes_a_restored_store(programs: Readers, export: Path, tmp_path: Path) -> None:
    """The page's reader finds a store sound that was restored from an export, and one that took it in as guests."""
    for name in ("restored", "host"):
        path = tmp_path / f"{name}.db"
        with TurnLog.open(f"sqlite:///{path}") as log, export.open("rb") as file:
            if name == "host":
                log.add_turn("Here first.", bookmark="main")
            report = log.import_turnlog(file)
            assert report.whole == (name == "restored")
        assert programs.store_damage(path) == verified(path) == []


def test_reader_reads_while_others_write(programs: Readers, store: Path, tmp_path: Path) -> None:
    """The page's reader takes no file that is just coming in for a stray one."""
    with TurnLog.open(f"sqlite:///{store}") as log:
        placed = log.store.place(Random(2).randbytes(80_000))
        assert placed.file is not None
        assert list(Path(f"{store}-payloads", ".incoming").glob("*/*-*"))
        assert programs.store_damage(store) == []
        (tmp_path / "more.bin").write_bytes(Random(3).randbytes(80_000))
        log.add_document(tmp_path / "more.bin")
        assert programs.store_damage(store) == []


# Damage


@pytest.mark.parametrize("column", ["state", "leaf_hash", "private", "payload", "originator_version", "event_id"])
def test_program_tells_of_damage_in_one_line(programs: Readers, store: Path, column: str) -> None:
    """The page's first program names a changed event on a line, prints nothing else, and ends with status 1."""
    database = sqlite3.connect(store)
    for (trigger,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        database.execute(f"DROP TRIGGER {trigger}")
    [(value,)] = database.execute(f"SELECT {column} FROM stored_events WHERE notification_id = 9")
    changed = {
        bytes: lambda: value[:-9] + bytes([value[-9] ^ 1]) + value[-8:],
        str: lambda: "1" + value[1:],
        int: lambda: value + 100,
    }[type(value)]()
    database.execute(f"UPDATE stored_events SET {column} = ? WHERE notification_id = 9", (changed,))
    database.commit()
    database.close()
    done = programs.run("read_log", store)
    assert (done.returncode, done.stdout) == (1, "")
    lines = done.stderr.splitlines()
    assert any(line.startswith("event 9: ") for line in lines)
    assert len([line for line in lines if "schema: trigger" in line]) == 3


def test_reader_finds_a_changed_payload_file(programs: Readers, store: Path) -> None:
    """The page's reader finds that a payload file was changed."""
    [file] = [path for path in Path(f"{store}-payloads").glob("??/*") if path.suffix != ".zst"]
    file.write_bytes(b"!" + file.read_bytes()[1:])
    [line] = programs.store_damage(store)
    assert line.endswith("its payload has another hash")


def test_copy_without_the_payload_folder_is_noticed(programs: Readers, store: Path, tmp_path: Path) -> None:
    """The page's reader does not take a store without its payload folder for whole."""
    (tmp_path / "copy").mkdir()
    found = programs.store_damage(Path(shutil.copy(store, tmp_path / "copy")))
    assert [line.partition(": ")[2] for line in found] == ["the file of its payload is missing"] * 2


@pytest.mark.parametrize("what", ["nothing", "text", "a folder", "another database"])
def test_program_refuses_what_is_no_store(programs: Readers, tmp_path: Path, what: str) -> None:
    """The page's first program says in lines what is wrong with what is no store at all."""
    path = tmp_path / "log.db"
    make: dict[str, Callable[[], object]] = {
        "nothing": lambda: None,
        "text": lambda: path.write_text("no database\n" * 100),
        "a folder": path.mkdir,
        "another database": lambda: _make_database(path),
    }
    make[what]()
    done = programs.run("read_log", path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr
    assert "Traceback" not in done.stderr


def _make_database(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE stored_events (x)")
    database.close()


# The tamper matrix


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder of the store that the tamper matrix is for."""
    folder = tmp_path_factory.mktemp("sound")
    rich_store.build(folder / "log.db")
    return folder


@pytest.mark.timeout(60)
@pytest.mark.parametrize("edit", [*FOUND, *OUT_OF_REACH], ids=lambda edit: f"{edit.kind}: {edit.name}")
def test_reader_and_verify_agree_on_an_edit(programs: Readers, sound: Path, tmp_path: Path, edit: Edit) -> None:
    """The page's reader finds each edit of the tamper matrix that `verify` finds, and no other."""
    copies = [shutil.copytree(sound, tmp_path / name) / "log.db" for name in ("one", "other")]
    for copy in copies:  # one each, because to open a store changes it
        edit.apply(copy)
    found, said = programs.store_damage(copies[0]), verified(copies[1])
    if found and not said:  # who opens the store to write puts some things in order before anything is verified
        found = programs.store_damage(copies[1])
    assert (bool(found), bool(said)) == (edit.finds is not None,) * 2, (found, said)


def test_table_of_edits_is_that_of_the_matrix() -> None:
    """The page on what verification finds has the edits of the tamper matrix; `make golden` writes them anew."""
    page = tamper_table.PAGE.read_text(encoding="utf-8")
    assert tamper_table.filled(page) == page


# Exports


def test_program_takes_an_export(programs: Readers, export: Path) -> None:
    """The page's second program recomputes every hash of an export, and says how many events it has."""
    done = programs.run("read_export", export)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "112 events, every hash as it should be\n"


@pytest.mark.parametrize("bookmark", ["main", "talk", "theirs"])
@pytest.mark.parametrize("ancestry", [False, True])
def test_program_takes_an_export_of_a_part(
    programs: Readers, store: Path, tmp_path: Path, bookmark: str, ancestry: bool
) -> None:
    """The page's second program finds nothing wrong with an export of threads, nor with one of an ancestry."""
    with TurnLog.open(f"sqlite:///{store}") as log, (tmp_path / "part.jsonl").open("wb") as file:
        log.export(file, bookmark, ancestry=ancestry)
    assert programs.export_damage(tmp_path / "part.jsonl") == []


EDITS: dict[str, tuple[bytes, bytes]] = {
    "text of a turn": (b"a diamond", b"a Diamond"),
    "spelling of a document": (b'"b":1.50', b'"b":1.5'),
    "position": (b'"position":1,', b'"position":2,'),
    "private metadata": (b'"head":"both"', b'"head":"bath"'),
    "base64 payload": (b'"payload_base64":"AAEC', b'"payload_base64":"AAED'),
    "guest": (b'"guest":true,', b""),
    "digest": (b'"digest":"sha256-', b'"digest":"sha256-A'),
    "whitespace": (b',"event":', b', "event":'),
    "number of lines": (b'"events":112', b'"events":100'),
    "size": (b'"payload_bytes":', b'"payload_bytes":1'),
    "identity": (b'"log":"03fr9cxksbd0ufbbn4sb2e', b'"log":"03fr9cxksbd0ufbbn4sb2g'),
    "scope": (b'"of":"log"', b'"of":"threads"'),
}


@pytest.mark.parametrize("name", EDITS)
def test_edited_export_is_refused_by_both(programs: Readers, export: Path, name: str) -> None:
    """An export that was edited is refused by the page's second program, and by turnlog."""
    old, new = EDITS[name]
    text = export.read_bytes()
    assert old in text
    export.write_bytes(text.replace(old, new, 1))
    assert programs.export_damage(export) != []
    with TurnLog.open("memory://") as log, export.open("rb") as file, pytest.raises(TurnlogError):
        log.import_turnlog(file)


@pytest.mark.parametrize("change", ["first", "middle", "last", "swapped", "twice"])
def test_export_with_other_lines_is_refused_by_both(programs: Readers, export: Path, change: str) -> None:
    """An export that lacks a line, has two of them in another order, or one twice is refused by both."""
    lines = export.read_bytes().splitlines(keepends=True)
    if change == "swapped":
        lines[5:7] = lines[6], lines[5]
    elif change == "twice":
        lines.insert(5, lines[5])
    else:
        del lines[{"first": 1, "middle": 40, "last": -1}[change]]
    export.write_bytes(b"".join(lines))
    assert programs.export_damage(export) != []
    with TurnLog.open("memory://") as log, export.open("rb") as file, pytest.raises(TurnlogError):
        log.import_turnlog(file)


HOSTILE = sorted((ROOT / "tests" / "golden" / "hostile" / "exports").glob("*.jsonl"))


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda path: path.stem)
def test_hostile_export_is_refused_by_the_reader(programs: Readers, hostile: Path) -> None:
    """The page's second program finds something wrong with each of the exports that turnlog refuses."""
    assert programs.export_damage(hostile) != []


# Spelling


@given(value=json_objects())
@example({"n": [0.0, -0.0, 1e-5, 9.999e-6, 1e15, 1e16, 5e-324, 1.7976931348623157e308, 2**64 - 1, -(2**63), 1.0, 1]})
@example({"\U0001f33f": 1, "\uffff": 2, "é": 3, "a": {"Z": None, "": '\x00\x1f\x7f\u2028/\\"\b\f\n\r\t'}})
def test_page_spells_as_turnlog_does(programs: Readers, value: dict[str, Any]) -> None:
    """What the page says of spelling gives the very text that turnlog writes, and takes it."""
    written = bytes(meta_text(value))
    assert programs.store.spell(value).encode() == written
    assert programs.store.parse(written, "header") == value


@given(number=st.floats(allow_nan=False, allow_infinity=False))
def test_page_spells_numbers_as_turnlog_does(programs: Readers, number: float) -> None:
    """The page's rule for numbers gives what turnlog writes for every double."""
    assert programs.store.spell(number) == msgspec.json.encode(number).decode()


MISSPELLED = {
    "whitespace": b'{"a": 1}',
    "whitespace behind": b'{"a":1}\n',
    "keys out of order": b'{"b":1,"a":2}',
    "a key twice": b'{"a":1,"a":1}',
    "an escape that is not needed": b'{"a":"\\u00e9"}',
    "an escaped slash": b'{"a":"\\/"}',
    "an escape in capitals": b'{"a":"\\u001F"}',
    "a long escape": b'{"a":"\\u000a"}',
    "a raw control character": b'{"a":"\n"}',
    "an unpaired surrogate": b'{"a":"\\ud800"}',
    "a zero too many": b'{"a":1.50}',
    "an exponent that is not needed": b'{"a":1e5}',
    "an exponent with a plus": b'{"a":1e+16}',
    "an exponent in capitals": b'{"a":1E16}',
    "a large number without an exponent": b'{"a":10000000000000000.0}',
    "more digits than are needed": b'{"a":0.1000000000000000055}',
    "minus zero as an integer": b'{"a":-0}',
    "infinity": b'{"a":1e999}',
    "not a number": b'{"a":NaN}',
    "a byte order mark": b'\xef\xbb\xbf{"a":1}',
    "no UTF-8": b'{"a":"\xff"}',
}


@pytest.mark.parametrize("name", MISSPELLED)
def test_other_spelling_is_found_by_both(programs: Readers, name: str) -> None:
    """A header whose metadata is spelled in any other way is found, by the page's rule and by turnlog."""
    sound = build(topic="acme.review", id=new_id(), time=0, meta=meta_text({"a": 1}), private=None)
    state = sound.state.replace(b'{"a":1}', MISSPELLED[name])
    assert state != sound.state
    with pytest.raises((programs.store.Damage, ValueError)):
        programs.store.parse(state, "header")
    assert _flaw_of(state) is not None


def _flaw_of(state: bytes) -> str | None:
    try:
        return flaw(decode(state, None))
    except TurnlogError as error:
        return str(error)


# What the page says


def table(heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its head."""
    below = TEXT[TEXT.index(f"\n{heading}\n") :]
    found = re.search(r"^\|.*\|\n\|[-|]+\|\n((?:\|.*\|\n)+)", below, re.MULTILINE)
    assert found is not None
    assert "\n#" not in below[1 : found.start()], f"there is no table right below {heading}"
    return [line.removeprefix("| ").removesuffix("|").split(" | ") for line in found[1].splitlines()]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


OTHERS = {"claude-code.<type>": LineMeta, "<format>.<type>": PieceMeta}


@pytest.mark.parametrize("topic", [*SHAPES, *OTHERS])
def test_metadata_is_as_described(programs: Readers, topic: str) -> None:
    """The page lists the fields of each topic, where each stands and whether it is always there; its program too."""
    if topic == "log.genesis":
        assert programs.store.TOPICS[topic] == programs.store.Topic()
        return
    rows = {name: (row[1], row[2], row[3]) for row in table(f"### `{topic}`") for name in names(row[0])}
    described = {place: {name for name, row in rows.items() if row[0] == place} for place in ("public", "private")}
    kind = SHAPES[topic].kind if topic in SHAPES else OTHERS[topic]
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    shape = SHAPES.get(topic)
    cited = dict(shape.cited) if shape else {}
    public = set(shape.public) if shape else set()
    assert described == {"public": public, "private": fields.keys() - public - cited.keys()}
    assert {name: names(row[1])[0] for name, row in rows.items() if row[0] == "cited"} == cited
    required = {name for name, field in fields.items() if field.required}
    required |= {name for name, relation in cited.items() if shape and relation in shape.requires}
    assert {name for name, row in rows.items() if row[2].strip() == "always there"} == required
    if shape:
        program = programs.store.TOPICS[topic]
        assert (program.public.keys(), program.private.keys()) == (public, described["private"])
        assert set(program.needs.split()) == required - cited.keys()
        assert program.payload == shape.payload


def test_citations_are_as_described(programs: Readers) -> None:
    """The page lists what each topic cites, and as what; its program knows the same."""
    described: dict[str, dict[str, tuple[str, list[str]]]] = {}
    for topic, relation, count, cited in table("## Citations"):
        if topic.startswith("`"):
            described.setdefault(names(topic)[0], {})[names(relation)[0]] = (count, names(cited))
    assert {topic: set(shape.cited.values()) for topic, shape in SHAPES.items() if shape.cited} == {
        topic: set(relations) for topic, relations in described.items() if topic in SHAPES
    }
    for topic, shape in SHAPES.items():
        program = programs.store.TOPICS[topic].cites
        assert program.keys() == set(shape.cited.values())
        for relation, cites in program.items():
            count, topics = described[topic][relation]
            assert cites.topics.split() == topics
            assert (cites.least > 0) == (relation in shape.requires) == count.startswith(
                "one"
            ) or topic == "gpt.bookmark"
            assert (cites.most > 1) == ("more" in count or "any" in count)


def test_formats_are_as_described(programs: Readers) -> None:
    """The page names each format; its program knows what their events cite."""
    assert tuple(programs.store.FORMATS) == FORMATS
    below = TEXT.split("### `claude-code.<type>`")[1].split("### Topics of others")[0]
    assert set(FORMATS) <= set(names(below))
    assert programs.store.cited_topics("codex.message", "turn") == ["gpt.turn"]
    assert programs.store.cited_topics("acme.review", "turn") == []


def test_content_blocks_are_as_described(programs: Readers) -> None:
    """The page lists the types of content blocks that there are."""
    found = [names(row[0])[0] for row in table("### What payloads contain")]
    assert tuple(found) == BLOCK_TYPES == tuple(programs.store.BLOCKS)


def test_placements_and_arrivals_are_as_described() -> None:
    """The page lists every number that a placement and an arrival can have."""
    assert [int(row[0]) for row in table("## Payloads")] == list(Placement)
    assert [int(row[0]) for row in table("## Arrival: recorded, restored, guest")] == list(Arrival)


def test_limits_are_as_described(programs: Readers) -> None:
    """The limits that the page names are those that turnlog keeps."""
    limits = [row[1].strip() for row in table("## Limits")]
    noted = ["1,000,000 bytes and 100 signatures", "1 GiB", "16 MiB", "17 bytes more than a payload"]
    assert (PART_BYTES_MAX, len(b"".join(sealed_pieces(bytes(32), [b"\x00"])))) == (16 * MIB, 17)
    assert programs.store.SEALED_BYTES_MORE == 17
    assert limits == [
        "1 MiB",
        f"{DEPTH_MAX} levels",
        f"{JSON_DEPTH_MAX} levels",
        "1 GiB",
        "8 MiB",
        "2⁵³ − 1",
        "200 characters",
        *noted,
    ]
    assert (NOTE_BYTES_MAX, SIGNATURES_MAX, PROOF_BYTES_MAX) == (1_000_000, 100, 1024 * MIB)
    assert [META_BYTES_MAX, PAYLOAD_BYTES_MAX, WINDOW_BYTES_MAX] == [MIB, 1024 * MIB, 8 * MIB]
    assert (TIME_MS_MAX, NAME_CHARACTERS_MAX) == (2**53 - 1, 200)
    assert programs.store.PAYLOAD_BYTES_MAX == PAYLOAD_BYTES_MAX
    assert programs.store.WINDOW_BYTES_MAX == WINDOW_BYTES_MAX


def test_example_events_are_what_turnlog_stores() -> None:
    """The events that the page shows are, unwrapped, what recording their payload stores, with the digest shown."""
    section = TEXT[TEXT.index("### An example") : TEXT.index("\n## Sealed private parts")]
    genesis, header, private = (text.replace("\n", "") for text in re.findall(r"```text\n(.*?)```", section, re.DOTALL))
    time_ms = json.loads(header)["time"]
    ids = iter([json.loads(header)["id"], json.loads(genesis)["id"]])
    sources = Sources(new_id=lambda: next(ids), time_ms=lambda: time_ms, salt=lambda: bytes(range(16)))
    with TurnLog(generate.open_store("memory://", projections=projections.synchronous()), sources=sources) as log:
        log.add_turn("Name a river.")
        first, second = log.events()
        assert (first.state.decode(), second.state.decode()) == (genesis, header)
        assert second.private_state == private.encode()
        assert f"`{log.payload(second.header.id).decode()}`" in section
        assert f"`{second.digest}`" in section


def test_empty_metadata_is_left_out() -> None:
    """A private part without metadata has no `meta`, as the page says."""
    part = private_part({}, hash="sha256-", size=0, salt=bytes(16))
    event = build(topic="acme.review", id=new_id(), time=0, meta=meta_text({}), private=part)
    assert json.loads(event.private_state or b"").keys() == {"hash", "salt", "size"}


def test_tables_of_the_log_are_as_described(programs: Readers) -> None:
    """The statements that the page shows are those that make a store, and those that its program compares with."""
    shown = [block.text for block in blocks(PAGE) if block.language == "sql"]
    assert shown[0].strip() == schema.EVENTS
    statements = [
        *schema.STATEMENTS,
        *(sql for projection in projections.synchronous() for sql in schema.projection_statements(projection)),
    ]
    assert [*re.split(r";\n\s*", shown[1].strip())] == [*statements[1:-1], statements[-1] + ";"]
    assert [*re.split(r";\n\s*", programs.store.SCHEMA.strip())] == [*statements[:-1], statements[-1] + ";"]
    assert f"0x{schema.APPLICATION_ID:X}" in TEXT
    assert str(schema.APPLICATION_ID) in TEXT
    assert programs.store.SETTINGS["user_version"] == schema.VERSION
    built = [(projection.name, projection.version) for projection in projections.synchronous()]
    assert built == programs.store.PROJECTIONS
    assert all(f"`{name}` {version}" in TEXT for name, version in built)


def test_columns_of_a_store_are_those_described(store: Path) -> None:
    """A store has the tables that the page names, with the columns that it names, and no other."""
    described = {names(row[0])[0]: names(row[1]) for row in table("## Projections")}
    log_columns = [name for row in table("## Tables") for name in names(row[0])]
    database = sqlite3.connect(store)
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    actual = {name: [row[1] for row in database.execute(f"PRAGMA table_info({name})")] for name in tables}
    database.close()
    assert actual == described | {"stored_events": log_columns}


def test_header_and_private_part_have_the_keys_described(store: Path) -> None:
    """Headers and private parts have the keys that the page names, and no other."""
    with TurnLog.open(f"sqlite:///{store}") as log:
        recorded = list(log.events())
    header = {names(row[0])[0] for row in table("### The header")}
    private = {names(row[0])[0] for row in table("### The private part")}
    assert {frozenset(json.loads(each.state)) for each in recorded} == {frozenset(header)}
    parts = [json.loads(each.private_state) for each in recorded if each.private_state]
    assert {key for part in parts for key in part} == private
    assert all(part.keys() >= private - {"meta"} for part in parts)


def test_export_has_the_keys_described(store: Path, tmp_path: Path) -> None:
    """The header and the lines of an export have the keys that the page names, in the order that it names them in."""
    headers: list[str] = []
    lines: list[list[str]] = []
    path = tmp_path / "log.jsonl"
    with TurnLog.open(f"sqlite:///{store}") as log:
        for headish in (None, "main"):
            with path.open("wb") as file:
                log.export(file, headish)
            first, *rest = map(json.loads, path.read_bytes().splitlines())
            headers += [key for key in first if key not in headers]
            lines += [list(line) for line in rest]
    below = "## The portable form"
    first_table = [name for row in table(below) for name in names(row[0])]
    assert sorted(headers) == sorted(first_table)
    second = re.findall(
        r"^\| `(\w+)` \|", TEXT[TEXT.index("Each further line") : TEXT.index("One of the last two")], re.M
    )
    assert {key for line in lines for key in line} == set(second)
    assert all(line == [key for key in second if key in line] for line in lines)


def test_payload_files_are_named_as_described(store: Path) -> None:
    """A large payload is a file whose folder and name are its SHA-256."""
    noise = (store.parent / "noise.bin").read_bytes()
    name = sha256(noise).hexdigest()
    assert (Path(f"{store}-payloads") / name[:2] / name[2:]).read_bytes() == noise


def test_permissions_are_as_described(tmp_path: Path) -> None:
    """A new store, its folders and its payload files are its owner's alone."""
    (tmp_path / "noise.bin").write_bytes(Random(1).randbytes(70_000))
    with TurnLog.open(f"sqlite:///{tmp_path}/new/log.db") as log:
        log.add_document(tmp_path / "noise.bin")
    for path in (tmp_path / "new").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
