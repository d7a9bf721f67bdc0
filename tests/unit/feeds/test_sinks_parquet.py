"""Parquet files by day: what is in them, recovery, erasing, and DuckDB."""

import os
import threading
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.agent.running import run
from tests.agent.scripted import Scripted, say
from tests.docs.pages import ROOT

from turnlog import ReplyFacts, TurnLog
from turnlog.errors import MissingPackageError, SinkError
from turnlog.events.times import us_of
from turnlog.feeds.sinks import Batch, ParquetFiles
from turnlog.feeds.sinks.interface import Choice, record_key
from turnlog.feeds.sinks.parquet import columns
from turnlog.feeds.sinks.reading import LogReader
from turnlog.model import Origin
from turnlog.model.pieces import PIECE
from turnlog.projections import synchronous
from turnlog.sources import Sources
from turnlog.store import open_store
from turnlog.store.files import make_file

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give the path of a folder that is not there yet."""
    return tmp_path / "events"


def query(folder: Path, what: str) -> list[tuple[Any, ...]]:
    """Ask DuckDB about the events of a folder."""
    source = f"read_parquet('{folder}/**/*.parquet', hive_partitioning=true)"
    return duckdb.sql(f"SELECT {what.replace('events', source, 1)}").fetchall()


def files(folder: Path) -> list[str]:
    """Return the files, as days and spans of positions."""
    found = sorted(folder.glob("day=*/*.parquet"))
    return [f"{path.parent.name[4:]} {int(path.stem[7:27])}-{int(path.stem[28:])}" for path in found]


def of_two_days(url: str) -> TurnLog:
    """Return a log with a turn on each of two days; the clock then goes back."""
    times = iter([0, 0, DAY_MS, 0, 0, 0, 0, 0])
    start = int(datetime(2026, 1, 2, tzinfo=UTC).timestamp() * 1000)
    sources = Sources(time_ms=lambda: start + next(times))
    log = TurnLog(open_store(url, projections=synchronous()), sources=sources)
    for text in ("one", "two", "three"):
        log.add_turn(text)
    return log


def test_duckdb_reads_it_as_one_table(filed: TurnLog, folder: Path) -> None:
    """With a column for all that is asked for often, and the day."""
    run(filed, Scripted(say("An answer.", tokens=7)), "A question?", bookmark="main")
    filed.feeds.feed(ParquetFiles(folder)).run()
    day = datetime.now(UTC).date()
    assert query(folder, "day, count(*) FROM events GROUP BY day") in ([(day, 5)], [(day, 4), (day, 1)])
    rows = query(
        folder,
        "global_position, idempotency_key, role, model, output_tokens, text FROM events WHERE topic = 'gpt.turn'"
        " ORDER BY 1",
    )
    question, answer = rows
    assert (question[2], question[5]) == ("user", "A question?")
    assert (answer[2], answer[4], answer[5]) == ("assistant", 7, "An answer.")
    assert answer[1] == record_key(filed.id, [*filed.events()][answer[0] - 1])
    [(content, meta, cited)] = query(
        folder, "content, meta, list_transform(citations, lambda c: c['as']) FROM events WHERE role = 'assistant'"
    )
    assert msgspec.json.decode(content) == [{"type": "text", "text": "An answer."}]
    assert msgspec.json.decode(meta)["role"] == "assistant"
    assert cited == ["parent", "call", "reply"]


def test_schema_is_as_documented(folder: Path, filed: TurnLog) -> None:
    """Each column is in the reference, with its type and whether it may be null; and in the files."""
    page = (ROOT / "docs" / "reference" / "feeds.md").read_text(encoding="utf-8")
    filed.feeds.feed(ParquetFiles(folder)).run()
    filed.add_turn("one")
    filed.feeds.feed(ParquetFiles(folder)).run()
    [file] = folder.glob("day=*/*.parquet")
    assert pq.ParquetFile(file).schema_arrow.remove_metadata().equals(columns())
    for field in columns():
        null = "yes" if field.nullable else "no"
        assert f"| `{field.name}` | `{field.type}` | {null} |" in page, field


def test_long_texts_are_columns_too(folder: Path, filed: TurnLog) -> None:
    """And have no dictionary and no statistics, which take five times their size to write; all short columns have."""
    long = 'Less "of" it, 🙂\n' * 40_000
    filed.add_turn([long, {"type": "thinking", "thinking": "Hm."}, "short"])
    filed.feeds.feed(ParquetFiles(folder)).run()
    assert query(folder, "text, content FROM events WHERE role = 'user'") == [
        (f"{long}\nshort", filed.payload(filed.latest(1)[0].id).decode())
    ]
    [file] = folder.glob("day=*/*.parquet")
    group = pq.ParquetFile(file).metadata.row_group(0)
    told = {
        column.path_in_schema: (column.has_dictionary_page, column.is_stats_set)
        for column in map(group.column, range(group.num_columns))
    }
    bare = {name for name, (has_dictionary, has_statistics) in told.items() if not (has_dictionary or has_statistics)}
    assert bare == {"meta", "text", "content"}


def test_each_day_has_its_files(url: str, folder: Path) -> None:
    """A batch of two days is two files of one name."""
    with of_two_days(url) as log:
        log.feeds.feed(ParquetFiles(folder)).run()
        assert files(folder) == ["2026-01-02 1-4", "2026-01-03 1-4"]
        rows = query(
            folder, "CAST(day AS VARCHAR), list(global_position ORDER BY global_position) FROM events GROUP BY 1"
        )
        assert sorted(rows) == [("2026-01-02", [1, 2, 4]), ("2026-01-03", [3])]
        log.add_turn("four")
        log.feeds.feed(ParquetFiles(folder)).run()
        assert files(folder) == ["2026-01-02 1-4", "2026-01-02 5-5", "2026-01-03 1-4"]


@pytest.mark.parametrize("state", ["kept", "lost"])
def test_batch_that_is_not_whole_is_written_again(url: str, folder: Path, state: str) -> None:
    """A process was killed between its files. No event is there twice, whatever came meanwhile."""
    with of_two_days(url) as log:
        log.feeds.feed(ParquetFiles(folder), batch=1).run()
        log.feeds.remove(f"parquet:{folder}")
        for path in folder.glob("day=*/*.parquet"):
            if "-00000000000000000001." not in path.name:
                path.unlink()
        log.feeds.feed(ParquetFiles(folder)).run()
        assert files(folder) == ["2026-01-02 1-1", "2026-01-02 2-4", "2026-01-03 2-4"]
        sorted(folder.glob("day=*/*-00000000000000000004.parquet"))[-1].unlink()
        if state == "lost":
            log.feeds.remove(f"parquet:{folder}")
        else:
            log.feeds.move(f"parquet:{folder}", 1)
        log.add_turn("four")
        log.feeds.feed(ParquetFiles(folder)).run()
        assert files(folder) == ["2026-01-02 1-1", "2026-01-02 2-5", "2026-01-03 2-5"]
    assert query(folder, "list(global_position ORDER BY global_position) FROM events") == [([1, 2, 3, 4, 5],)]


@pytest.mark.parametrize("state", ["kept", "lost"])
@pytest.mark.parametrize("taken", [0, 1])
def test_day_may_be_taken_away(url: str, folder: Path, taken: int, state: str) -> None:
    """The file of the other day of the batch stays, and nothing is delivered again, where it is known that it was."""
    with of_two_days(url) as log:
        log.feeds.feed(ParquetFiles(folder)).run()
        days = ["2026-01-02", "2026-01-03"]
        (folder / f"day={days[taken]}").rename(folder.with_name("archived"))
        if state == "lost":
            log.feeds.remove(f"parquet:{folder}")
        log.feeds.feed(ParquetFiles(folder)).run()
        log.add_turn("four")
        log.feeds.feed(ParquetFiles(folder)).run()
        # A process that was killed between the files leaves what is left of the first day.
        batch = days if (taken, state) == (1, "lost") else [days[1 - taken]]
        assert files(folder) == sorted([*(f"{day} 1-4" for day in batch), "2026-01-02 5-5"])


def test_batch_that_may_be_there_takes_its_own_place(filed: TurnLog, folder: Path) -> None:
    """What the folder has is not delivered again, though the state says nothing of it."""
    filed.add_turn("one")
    sink = ParquetFiles(folder)

    class Killed(ParquetFiles):
        def deliver(self, batch: Batch) -> None:
            super().deliver(batch)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        filed.feeds.feed(Killed(folder)).run()
    filed.add_turn("two")
    filed.feeds.feed(sink).run()
    assert query(folder, "list(global_position ORDER BY global_position) FROM events") == [([1, 2, 3],)]


def test_erasing_rewrites_rows(filed: TurnLog, folder: Path) -> None:
    """Before `erase` returns; the others stay as they are; the erasure comes with the next run."""
    ids = [filed.add_turn(f"a word of theirs {number}").id for number in range(4)]
    filed.feeds.feed(ParquetFiles(folder), batch=2).run()
    before = {path: path.read_bytes() for path in folder.glob("day=*/*.parquet")}
    rows = query(
        folder, "* EXCLUDE (time, said_at), epoch_ms(time), epoch_ms(said_at) FROM events ORDER BY global_position"
    )
    assert filed.erase(turn=ids[0], reason="asked").remains is None
    after = query(
        folder, "* EXCLUDE (time, said_at), epoch_ms(time), epoch_ms(said_at) FROM events ORDER BY global_position"
    )
    assert [row for number, row in enumerate(after) if number != 1] == [
        row for number, row in enumerate(rows) if number != 1
    ]
    assert query(folder, "erased, text, content, hash, meta FROM events WHERE global_position = 2") == [
        (True, None, None, None, '{"role":"user"}')
    ]
    assert sum(path.read_bytes() != content for path, content in before.items()) == 1
    for path in folder.glob("day=*/*.parquet"):
        assert "theirs 0" not in str(pq.ParquetFile(path).read().to_pylist())
        assert b"theirs 0" not in path.read_bytes()
    filed.feeds.feed(ParquetFiles(folder)).run()
    assert query(folder, "topic FROM events ORDER BY global_position DESC LIMIT 1") == [("gpt.erasure",)]


def test_erasing_keeps_the_key_that_a_row_was_delivered_with(filed: TurnLog, folder: Path) -> None:
    """Early versions had another form of keys: who knows events by them has seen this one."""
    ids = [filed.add_turn(f"a word of theirs {number}").id for number in range(2)]
    filed.feeds.feed(ParquetFiles(folder)).run()
    [path] = folder.glob("day=*/*.parquet")
    table = pq.ParquetFile(path).read()
    early = [key.rpartition(":")[0] for key in table["idempotency_key"].to_pylist()]
    pq.write_table(table.set_column(0, table.schema.field(0), pa.array(early)), path)
    assert filed.erase(turn=ids, reason="asked").remains is None
    assert query(folder, "idempotency_key FROM events ORDER BY global_position") == [(key,) for key in early]
    assert "theirs" not in str(pq.ParquetFile(path).read().to_pylist())


@pytest.mark.parametrize("with_statistics", [True, False])
def test_erasing_reaches_rows_that_are_in_a_file_of_another_name(
    filed: TurnLog, folder: Path, with_statistics: bool
) -> None:
    """Somebody has renamed files, or put all rows into one."""
    ids = [filed.add_turn(f"a word of theirs {number}").id for number in range(4)]
    filed.feeds.feed(ParquetFiles(folder), batch=2).run()
    first, second, third = sorted(folder.glob("day=*/*.parquet"))
    first.rename(first.with_name("events-00000000000000000100-00000000000000000101.parquet"))
    assert filed.erase(turn=ids[0], reason="asked").remains is None
    first = max(folder.glob("day=*/*.parquet"))
    assert "theirs 0" not in str(pq.ParquetFile(first).read().to_pylist())
    tables = [pq.ParquetFile(path).read() for path in (third, second)]
    pq.write_table(
        pa.concat_tables(tables, promote_options="default").replace_schema_metadata(tables[0].schema.metadata),
        third,
        write_statistics=with_statistics,
    )
    second.unlink()
    assert filed.erase(turn=ids[1], reason="asked").remains is None
    assert "theirs 1" not in str(pq.ParquetFile(third).read().to_pylist())
    assert "theirs 2" in str(pq.ParquetFile(third).read().to_pylist())


def test_erasing_names_a_file_that_says_nothing_of_its_batch(filed: TurnLog, folder: Path) -> None:
    """It was written by another program: it is not written anew. All others are reached."""
    ids = [filed.add_turn(f"a word of theirs {number}").id for number in range(4)]
    filed.feeds.feed(ParquetFiles(folder), batch=2).run()
    first, second, third = sorted(folder.glob("day=*/*.parquet"))
    pq.write_table(pq.ParquetFile(first).read().replace_schema_metadata(), first)
    content = bytearray(second.read_bytes())
    content[-12:-8] = b"none"
    second.write_bytes(content)
    remains = str(filed.erase(turn=[ids[0], ids[3]], reason="asked").remains)
    said = [f"{path.name!r} cannot be read as what this sink has written" in remains for path in (first, second, third)]
    assert said == [True, True, False]
    assert "theirs 3" not in str(pq.ParquetFile(third).read().to_pylist())


LONG = 'Less "of" it, \U0001f642\n' * 40_000
TEXTS: list[tuple[Any, str | None]] = [
    ("", ""),
    ([{"type": "thinking", "thinking": "Hm."}], None),
    (LONG, LONG),
    ("é\u2028\U0001f642", "é\u2028\U0001f642"),
    ([LONG, {"type": "thinking", "thinking": LONG}, "", "short"], f"{LONG}\n\nshort"),
    ("x" * (PIECE + 1), "x" * (PIECE + 1)),
    ("last", "last"),
]
"""Contents, and what is text of them."""


def rows_of(folder: Path) -> dict[int, dict[str, Any]]:
    """Return the rows of all files by their global position."""
    found = [row for path in folder.glob("day=*/*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]
    rows = {row["global_position"]: row for row in found}
    assert len(rows) == len(found)
    return rows


@pytest.mark.parametrize("page_bytes", [None, PIECE])
def test_rows_are_what_was_recorded(
    url: str, folder: Path, monkeypatch: pytest.MonkeyPatch, page_bytes: int | None
) -> None:
    """Of texts of any length, on two days, before and after an erasure, whatever pages they are in."""
    if page_bytes is not None:
        monkeypatch.setattr("turnlog.feeds.sinks.parquet._PAGE_BYTES", page_bytes)
    times = count(int(datetime(2026, 1, 2, tzinfo=UTC).timestamp() * 1000), DAY_MS // 4)
    with TurnLog(open_store(url, projections=synchronous()), sources=Sources(time_ms=lambda: next(times))) as log:
        ids = [log.add_turn(content).id for content, _ in TEXTS]
        log.feeds.feed(ParquetFiles(folder)).run()
        before = rows_of(folder)
        assert len({path.parent for path in folder.glob("day=*/*.parquet")}) >= 2
        assert [before[number]["text"] for number in range(2, 2 + len(TEXTS))] == [text for _, text in TEXTS]
        assert [before[number]["content"] for number in range(2, 2 + len(TEXTS))] == [
            log.payload(turn).decode() for turn in ids
        ]
        assert before[1]["content"] is None
        for path in folder.glob("day=*/*.parquet"):
            file = pq.ParquetFile(path)
            assert file.schema_arrow.remove_metadata().equals(columns())
            assert msgspec.json.decode(file.schema_arrow.metadata[b"turnlog"])["last"] == 1 + len(TEXTS)
        query(folder, "text, content FROM events")
        about = {path: pq.read_metadata(path).metadata for path in folder.glob("day=*/*.parquet")}
        log.erase(turn=ids[2], reason="asked")
        after = rows_of(folder)
        assert (after[4]["erased"], after[4]["text"], after[4]["content"], after[4]["hash"]) == (True, None, None, None)
        assert {**after, 4: None} == {**before, 4: None}
        assert {path: pq.read_metadata(path).metadata for path in folder.glob("day=*/*.parquet")} == about
        for path in folder.glob("day=*/*.parquet"):
            assert pq.ParquetFile(path).schema_arrow.remove_metadata().equals(columns())


def test_only_files_with_large_payloads_have_pages_of_version_2(
    filed: TurnLog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not all that reads Parquet knows them. An erasure may make one of version 1 of them again."""
    monkeypatch.setattr("turnlog.feeds.sinks.parquet._PAGE_BYTES", 1000)

    def encodings() -> list[tuple[str, ...]]:
        # Arrow has other encodings for truth values in pages of version 2.
        groups = [pq.read_metadata(path).row_group(0) for path in sorted(folder.glob("day=*/*.parquet"))]
        found = [group.column(at) for group in groups for at in range(group.num_columns)]
        return [column.encodings for column in found if column.path_in_schema == "erased"]

    filed.add_turn("x" * (1000 - len(b'[{"type":"text","text":""}]')))
    filed.feeds.feed(ParquetFiles(folder)).run()
    large = filed.add_turn("x" * 1000)
    filed.feeds.feed(ParquetFiles(folder)).run()
    version_1, version_2 = encodings()
    assert "PLAIN" in version_1
    assert "PLAIN" not in version_2
    filed.erase(turn=large.id, reason="asked")
    assert encodings() == [version_1, version_1]


def test_erasing_reads_files_of_other_columns(filed: TurnLog, folder: Path) -> None:
    """Columns may be added: a file with others has those of this version when it is rewritten."""
    turn = filed.add_turn("one")
    filed.add_turn("two")
    filed.feeds.feed(ParquetFiles(folder)).run()
    [path] = folder.glob("day=*/*.parquet")
    table = pq.ParquetFile(path).read()
    pq.write_table(table.drop_columns(["api", "said_at", "threads"]).append_column("other", table["id"]), path)
    filed.erase(turn=turn.id, reason="asked")
    file = pq.ParquetFile(path)
    assert file.schema_arrow.remove_metadata().equals(columns())
    assert file.read()["text"].to_pylist() == [None, None, "two"]
    assert file.read()["threads"].to_pylist() == [None, [turn.id], None]


def test_turns_have_columns_of_their_thread_and_of_when_they_were_said(filed: TurnLog, folder: Path) -> None:
    """To the microsecond, as sources say it."""
    said = Origin(format="codex", ids=["x"], timestamp="2025-03-04T05:06:07.000008Z")
    first = filed.add_turn("one", origin=said).id
    filed.add_turn("two", continues=first)
    filed.feeds.feed(ParquetFiles(folder)).run()
    assert query(folder, "thread, count(*) FROM (SELECT unnest(threads) AS thread FROM events) GROUP BY thread") == [
        (first, 2)
    ]
    assert query(folder, "epoch_us(said_at) - epoch_us(time) FROM events WHERE role = 'user' ORDER BY position") == [
        (us_of(datetime(2025, 3, 4, 5, 6, 7, 8, UTC)) - filed.turn(first).time_ms * 1000,),
        (0,),
    ]


def test_erasing_again_writes_nothing(filed: TurnLog, folder: Path) -> None:
    """Rows that are as they should be stay where they are: the file is not made anew."""
    turn = filed.add_turn([LONG, "two"])
    filed.add_turn("three")
    filed.feeds.feed(ParquetFiles(folder)).run()
    filed.erase(turn=turn.id, reason="asked")
    [path] = folder.glob("day=*/*.parquet")
    before = path.stat()
    sink = ParquetFiles(folder)
    sink.open(filed.store)
    reader = LogReader(filed.store, Choice())
    try:
        for records in reader.erased(0, 3):
            sink.forget(records)
    finally:
        sink.close()
    after = path.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_content_of_others_is_told(filed: TurnLog, folder: Path) -> None:
    """Documents are described; a file that is none of turnlog's is refused where it stands in for one."""
    (folder.parent / "notes.txt").write_text("two")
    filed.add_document(folder.parent / "notes.txt")
    filed.feeds.feed(ParquetFiles(folder)).run()
    [(content, text)] = query(folder, "content, text FROM events WHERE topic = 'gpt.turn'")
    assert (msgspec.json.decode(content)["name"], text) == ("notes.txt", None)
    day = next(folder.glob("day=*"))
    (day / "events-00000000000000000003-00000000000000000003.parquet").write_bytes(b"nothing")
    with pytest.raises(SinkError, match="cannot be read as what this sink has written"):
        filed.feeds.feed(ParquetFiles(folder)).run()


def test_full_disk_is_waited_for(filed: TurnLog, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left of what could not be written; it goes on when there is space."""
    for number in range(3):
        filed.add_turn(f"turn {number}")
    is_full = [True]
    told: list[str] = []

    def make(path: Path) -> int:
        handle = make_file(path)
        if is_full[0]:
            os.close(handle)
            handle = os.open("/dev/full", os.O_WRONLY | os.O_CLOEXEC)
        return handle

    def free(error: Exception, _seconds: float) -> None:
        told.append(str(error))
        assert not [path for path in folder.rglob("*") if path.suffix != ".lock" and path.is_file()]
        is_full[0] = len(told) < 2

    monkeypatch.setattr("turnlog.feeds.sinks.parquet.make_file", make)
    assert filed.feeds.feed(ParquetFiles(folder)).run(on_retry=free).position == 4
    assert told == [f"parquet '{folder}': the folder cannot be written: no space left on device"] * 2
    assert query(folder, "list(global_position ORDER BY global_position) FROM events") == [([1, 2, 3, 4],)]


def test_folder_may_be_taken_away_while_it_follows(filed: TurnLog, folder: Path) -> None:
    """It is made anew, and locked: no other feed fills it."""
    filed.add_turn("one")
    caught_up = threading.Semaphore(0)
    feed = filed.feeds.feed(ParquetFiles(folder, linger_s=0))
    thread = threading.Thread(target=feed.follow, kwargs={"told": lambda _: caught_up.release()})
    thread.start()
    try:
        assert caught_up.acquire(timeout=30)
        folder.rename(folder.with_name("away"))
        filed.add_turn("two")
        assert caught_up.acquire(timeout=30)
        with (
            TurnLog.open(f"sqlite:///{folder}.db") as other,
            pytest.raises(SinkError, match="another feed fills this folder"),
        ):
            other.feeds.feed(ParquetFiles(folder)).run()
    finally:
        feed.stop()
        thread.join(30)
    assert query(folder, "list(global_position) FROM events") == [([3],)]


def test_missing_package_is_one_line(filed: TurnLog, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to install."""
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'turnlog\[parquet\]'"):
        filed.feeds.feed(ParquetFiles(folder)).run()


def test_erasing_leaves_rows_of_another_log(filed: TurnLog, folder: Path) -> None:
    """They may have the same position: it is the idempotency key that tells."""
    filed.add_turn("one")
    filed.feeds.feed(ParquetFiles(folder)).run()
    [path] = folder.glob("day=*/*.parquet")
    before = path.stat()
    sink = ParquetFiles(folder)
    sink.open(filed.store)
    with TurnLog.open("memory://") as other:
        other.erase(turn=other.add_turn("one").id, reason="asked")
        try:
            for records in LogReader(other.store, Choice()).erased(0, 3):
                assert [record.position for record in records] == [2]
                sink.forget(records)
        finally:
            sink.close()
    assert query(folder, "text FROM events ORDER BY global_position") == [(None,), ("one",)]
    assert path.stat().st_ino == before.st_ino


def test_a_count_that_no_column_holds_is_in_the_metadata_alone(filed: TurnLog, folder: Path) -> None:
    """It stops no feed: somebody else's log may have it."""
    usage = {"input_tokens": 2**63, "output_tokens": 2**63 - 1}
    filed.add_turn("one", role="assistant", reply=ReplyFacts(model="m", usage=usage))
    assert filed.feeds.feed(ParquetFiles(folder)).run().lag == 0
    [(inside, outside, meta)] = query(folder, "input_tokens, output_tokens, meta FROM events WHERE role = 'assistant'")
    assert (inside, outside) == (None, 2**63 - 1)
    assert f'"input_tokens":{2**63}' in meta


def test_a_count_that_a_reply_has_not_is_zero_and_one_that_nobody_made_is_null(filed: TurnLog, folder: Path) -> None:
    """So a sum over the columns of a reply is a number, and a mean is over all that say what they took."""
    filed.add_turn("one", role="assistant", reply=ReplyFacts(model="m", usage={"input_tokens": 3}))
    filed.add_turn("two", role="assistant", reply=ReplyFacts(model="m", usage={}))
    filed.add_turn("three", role="assistant", reply=ReplyFacts(model="m"))
    filed.feeds.feed(ParquetFiles(folder)).run()
    counts = "input_tokens, output_tokens, cache_creation_input_tokens, cache_read_input_tokens, reasoning_tokens"
    assert query(folder, f"{counts} FROM events WHERE role = 'assistant' ORDER BY global_position") == [
        (3, 0, 0, 0, 0),
        (0, 0, 0, 0, 0),
        (None,) * 5,
    ]
