"""Large payloads as objects, in a real S3-compatible server and in a folder: written, read, erased, checked, missed."""

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from tests.sealed_log import SealsInMemory
from tests.servers.objects import BUCKET, ObjectServer, missing
from tests.servers.postgres import Postgres

from turnlog import CorruptionError, StorageError, StoreError, StoreOpenError, TurnLog
from turnlog.events import Event
from turnlog.events.form import build, meta_text, private_part
from turnlog.ids import new_id
from turnlog.model import content_bytes
from turnlog.record import turn_draft
from turnlog.store import NewPayload, WriteTransaction, objects
from turnlog.store.objects import Objects, checked_url
from turnlog.store.payloads import FILE_BYTES_MIN

pytest.importorskip("obstore", reason="the extra s3 is not installed (`make install`)")

NOISE = random.Random(3).randbytes(80_000)
TEXT = "all the same " * 9000


@pytest.fixture(scope="module")
def object_server() -> Iterator[ObjectServer]:
    """Give a running S3-compatible server."""
    if reason := missing():
        pytest.skip(reason)
    with ObjectServer() as server:
        yield server


@pytest.fixture(params=["s3", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give a place for payloads that has none yet."""
    if request.param == "file":
        return f"file://{tmp_path}/objects"
    server: ObjectServer = request.getfixturevalue("object_server")
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{tmp_path.name}"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Give a folder for payloads."""
    return f"file://{tmp_path}/objects"


def at(url: str, place: str) -> str:
    """Return the URL of a store with its payloads at a place."""
    return f"{url}{'&' if '?' in url else '?'}payloads={place}"


def paths(place: str) -> list[str]:
    """Return the paths of all objects at a place."""
    return sorted(found.path for found in Objects(place).listed())


def files(folder: str) -> list[Path]:
    """Return the files of a place that is a folder, but for the one with the mark of the log."""
    place = Path(folder.removeprefix("file://"))
    return sorted(path for path in place.rglob("*") if path.is_file() and path != place / "log")


def age(folder: str) -> None:
    """Let all objects of a place that is a folder be older than a day."""
    before = (datetime.now(UTC) - timedelta(days=2)).timestamp()
    for path in files(folder):
        os.utime(path, (before, before))


def fill(log: TurnLog, tmp_path: Path) -> None:
    """Record a small turn, a large text and a document."""
    log.add_turn("small", bookmark="main")
    log.add_turn(TEXT, continues="main")
    document = tmp_path / "noise.bin"
    document.write_bytes(NOISE)
    log.add_document(document, continues="main")


def test_large_payloads_are_objects(tmp_path: Path, kept_postgres_url: str, place: str) -> None:
    """From 64 KiB on, compressed where that pays; others stand beside their events. They come back as they were."""
    with TurnLog.open(at(kept_postgres_url, place)) as log:
        fill(log, tmp_path)
        assert log.payload("main") == NOISE
        log.add_turn("x" * (FILE_BYTES_MIN - 50), continues="main")
        assert [path.endswith(".zst") for path in paths(place)].count(True) == 1
        assert len(paths(place)) == log.stats().file_count == 2
        assert log.stats().stored_payload_bytes < 1000
        assert log.verify().damage == ()
    with TurnLog.open(at(kept_postgres_url, place)) as log:
        text = log.ancestry("main")[1]
        assert log.payload(text.id) == content_bytes(TEXT)
        assert log.verify().damage == ()


def test_what_stands_in_an_object_is_not_counted_as_stored_in_the_table(kept_postgres_url: str, place: str) -> None:
    """It has bytes of its own in the measures of a store."""
    with TurnLog.open(at(kept_postgres_url, place)) as log:
        log.add_turn("small")
        small = log.stats()
        log.add_turn(TEXT)
        large = log.stats()
    assert (small.file_count, large.file_count, small.stored_payload_bytes > 0) == (0, 1, True)
    assert large.stored_payload_bytes == small.stored_payload_bytes


def test_same_payload_is_one_object(tmp_path: Path, kept_postgres_url: str, place: str) -> None:
    """Erasing one of its events keeps it, erasing the last one removes it."""
    with TurnLog.open(at(kept_postgres_url, place)) as log:
        first, second = log.add_turn(TEXT), log.add_turn(TEXT)
        assert len(paths(place)) == 1
        kept = log.erase(turn=first.id, reason="asked")
        assert (len(paths(place)), kept.files_removed, kept.files_shared) == (1, 0, 1)
        gone = log.erase(turn=second.id, reason="asked")
        assert (paths(place), gone.files_removed) == ([], 1)
        assert "a bucket that keeps versions" in (gone.remains or "")
        assert log.verify().damage == ()


def test_nothing_is_there_plain_of_what_a_group_seals(kept_postgres_url: str, folder: str) -> None:
    """An object that no event has would stay, and be read by whoever reads that place."""
    with TurnLog.open(at(kept_postgres_url, folder), seals=SealsInMemory()) as log:
        log.seal()
        log.add_group([turn_draft(TEXT), turn_draft(NOISE.hex())])
        [file] = files(folder)
        assert (file.suffix, NOISE.hex()[:80].encode() in file.read_bytes()) == ("", False)
        assert log.verify().damage == ()


def test_sealed_payload_is_sealed_there(kept_postgres_url: str, folder: str, tmp_path: Path) -> None:
    """Nothing of the content is in the storage."""
    document = tmp_path / "noise.bin"
    document.write_bytes(NOISE)
    with TurnLog.open(at(kept_postgres_url, folder), seals=SealsInMemory()) as log:
        log.seal()
        turn = log.add_document(document)
        [file] = files(folder)
        assert NOISE[:20] not in file.read_bytes()
        assert log.payload(turn.id) == NOISE


def test_place_is_remembered(kept_postgres_url: str, folder: str, tmp_path: Path) -> None:
    """Without it what is there cannot be read, which is said; elsewhere is refused; what is new stands in the table."""
    with TurnLog.open(at(kept_postgres_url, folder)) as log:
        turn = log.add_turn(TEXT, bookmark="main")
    with TurnLog.open(kept_postgres_url) as log:
        with pytest.raises(StoreError, match=f"objects in '{folder}': add payloads={folder} to the store's URL"):
            log.payload(turn.id)
        [damage] = log.verify().damage
        assert f"add payloads={folder}" in damage.what
        more = log.add_turn(TEXT + "more", continues="main")
        assert b"more" in log.payload(more.id)
    with pytest.raises(StoreOpenError, match=f"has its large payloads at '{folder}' and not at"):
        TurnLog.open(at(kept_postgres_url, f"file://{tmp_path}/other"))
    with TurnLog.open(at(kept_postgres_url, folder + "/")) as log:
        assert log.verify().damage == ()


def test_store_that_had_none_gets_one(kept_postgres_url: str, folder: str) -> None:
    """What was recorded before stays beside its event."""
    with TurnLog.open(kept_postgres_url) as log:
        before = log.add_turn(TEXT)
    with TurnLog.open(at(kept_postgres_url, folder)) as log:
        after = log.add_turn(TEXT)
        assert log.payload(before.id) == log.payload(after.id)
        assert len(files(folder)) == 1
        assert log.verify().damage == ()


@pytest.mark.parametrize("change", ["gone", "cut", "changed"])
def test_damage_is_found(kept_postgres_url: str, folder: str, change: str) -> None:
    """By who reads it and by verification."""
    with TurnLog.open(at(kept_postgres_url, folder)) as log:
        turn = log.add_turn(NOISE.hex())
        [file] = files(folder)
        content = file.read_bytes()
        match change:
            case "gone":
                file.unlink()
            case "cut":
                file.write_bytes(content[:-1])
            case _:
                file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(CorruptionError, match="cannot be read"):
            log.payload(turn.id)
        [damage] = log.verify().damage
        assert damage.event_id == turn.id


def test_what_is_gone_is_written_again(kept_postgres_url: str, folder: str) -> None:
    """An object that somebody removed after it was placed is there when its event is."""
    with TurnLog.open(at(kept_postgres_url, folder)) as log:
        log.add_turn("before")
        placed = log.store.place(TEXT.encode())
        [file] = files(folder)
        file.unlink()

        def plan(transaction: WriteTransaction) -> None:
            transaction.append(_event(placed), placed)

        log.store.write(plan)
        assert files(folder) == [file]
        assert log.verify().damage == ()


def _event(placed: NewPayload) -> Event:
    private = private_part({}, hash=placed.hash, size=placed.size, salt=b"0" * 16)
    return build(topic="acme.large", id=new_id(), time=1, meta=meta_text({}), private=private)


def test_orphans_are_collected_after_a_day(kept_postgres_url: str, folder: str) -> None:
    """Of an append that failed. A younger one may be on its way: it is left, and is no damage."""
    with TurnLog.open(at(kept_postgres_url, folder)) as log:
        kept = log.add_turn(TEXT)
        log.store.place(NOISE)
        assert len(files(folder)) == 2
        log.store.scrub()
        assert len(files(folder)) == 2
        assert log.verify().damage == ()
        age(folder)
        [damage] = log.verify().damage
        assert "belongs to no event" in damage.what
        assert log.finish_erasing() is None
        assert len(files(folder)) == 1
        assert log.payload(kept.id)
        assert log.verify().damage == ()


def test_place_is_of_one_log(postgres: Postgres, kept_postgres_url: str, place: str) -> None:
    """Another log writes and removes nothing there, also one that has had the place since before there were marks."""
    other_url = postgres.create_database()
    with TurnLog.open(at(kept_postgres_url, place)) as log, TurnLog.open(at(other_url, place)) as other:
        other.add_turn(TEXT)
        before = paths(place)
        with pytest.raises(StoreError, match="is where another log has its large payloads"):
            log.add_turn(TEXT)
        assert log.add_turn("small")
    with psycopg.connect(kept_postgres_url) as connection:
        connection.execute("DELETE FROM turnlog.payload_storage WHERE one = 2")
    with TurnLog.open(at(kept_postgres_url, place)) as log, TurnLog.open(at(other_url, place)) as other:
        turn = log.add_turn(TEXT)
        assert "is where another log has its large payloads" in str(log.erase(turn=turn.id, reason="asked").remains)
        assert "is where another log has its large payloads" in str(log.finish_erasing())
        assert [damage.what.partition(" are ")[2] for damage in log.verify().damage] == [
            "of more than one log: give each a prefix of its own"
        ]
        assert (other.verify().damage, paths(place)) == ((), before)
    postgres.drop_database(other_url)


def test_strange_object_is_found_and_left(kept_postgres_url: str, folder: str, tmp_path: Path) -> None:
    """It is none of turnlog's to remove."""
    with TurnLog.open(at(kept_postgres_url, folder)) as log:
        log.add_turn(TEXT)
        (tmp_path / "objects" / "strange.txt").write_text("hello")
        [damage] = log.verify().damage
        assert "strange.txt" in damage.what
        age(folder)
        log.finish_erasing()
        assert len(files(folder)) == 2


def test_erasure_that_cannot_remove_goes_on_later(
    kept_postgres_url: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The payload is erased, what is left is told, and finishing removes it whatever its age."""
    with TurnLog.open(at(kept_postgres_url, folder)) as log:
        turn = log.add_turn(TEXT)
    with TurnLog.open(kept_postgres_url) as log:
        report = log.erase(turn=turn.id, reason="asked")
        assert f"still objects in '{folder}': add payloads={folder}" in (report.remains or "")
        assert "still objects" in (log.finish_erasing() or "")
    assert len(files(folder)) == 1
    with TurnLog.open(at(kept_postgres_url, folder)) as log:
        [damage] = log.verify().damage
        assert "belongs to no event" in damage.what
        assert log.finish_erasing() is None
        assert files(folder) == []
        assert log.verify().damage == ()


def test_condemned_object_that_is_needed_again_stays(kept_postgres_url: str, folder: str) -> None:
    """Somebody has recorded the same payload since."""
    with TurnLog.open(at(kept_postgres_url, folder)) as log:
        turn = log.add_turn(TEXT)
        with TurnLog.open(kept_postgres_url) as other:
            other.erase(turn=turn.id, reason="asked")
        again = log.add_turn(TEXT)
        assert log.finish_erasing() is None
        assert b"all the same" in log.payload(again.id)
        assert log.verify().damage == ()


def test_names_that_no_payload_has_are_forgotten(kept_postgres_url: str, folder: str) -> None:
    """Somebody put them among those of objects to be removed: what else is there is removed all the same."""
    with TurnLog.open(at(kept_postgres_url, folder)) as log:
        turn = log.add_turn(TEXT)
        with TurnLog.open(kept_postgres_url) as other:
            other.erase(turn=turn.id, reason="asked")
        strange = ["../x", "zz", "", "A" * 64, "a" * 65, "a" * 64 + ".gz", "a" * 64 + "\n"]
        with psycopg.connect(kept_postgres_url) as connection:
            for name in strange:
                connection.execute("INSERT INTO turnlog.payloads_condemned VALUES (%s)", (name,))
        found = [damage.what for damage in log.verify().damage]
        assert [what for what in found if "can be the name of no payload" in what] == [
            f"{name!r} is to be removed from the payload storage, and can be the name of no payload"
            for name in sorted(strange)
        ]
        assert log.finish_erasing() is None
        assert files(folder) == []
        assert log.verify().damage == ()


def test_names_that_no_payload_has_are_forgotten_without_a_storage(kept_postgres_url: str) -> None:
    """There is nothing to be removed, and nothing is left."""
    with TurnLog.open(kept_postgres_url) as log:
        log.add_turn(TEXT)
        with psycopg.connect(kept_postgres_url) as connection:
            connection.execute("INSERT INTO turnlog.payloads_condemned VALUES ('zz')")
        [damage] = log.verify().damage
        assert damage.what.startswith("'zz' is to be removed")
        assert log.finish_erasing() is None
        assert log.verify().damage == ()


def test_storage_that_does_not_answer_is_told(
    kept_postgres_url: str, monkeypatch: pytest.MonkeyPatch, object_server: ObjectServer
) -> None:
    """In one line, and nothing is recorded."""
    monkeypatch.setattr(objects, "TIMEOUT_S", 1)
    for name, value in object_server.variables.items():
        monkeypatch.setenv(name, value)
    with TurnLog.open(at(kept_postgres_url, "s3://no-such-bucket/x")) as log:
        log.add_turn("small", bookmark="main")
        with pytest.raises(StoreError, match="storage 's3://no-such-bucket/x' does not do its work") as told:
            log.add_turn(TEXT, continues="main")
        assert "\n" not in str(told.value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with TurnLog.open(at(kept_postgres_url, "s3://no-such-bucket/x")) as log:
        with pytest.raises(StoreError, match="does not do its work"):
            log.add_turn(TEXT, continues="main")
        assert log.turn("main").global_position == 2


def test_storage_that_does_not_answer_is_no_damage(
    kept_postgres_url: str, monkeypatch: pytest.MonkeyPatch, object_server: ObjectServer
) -> None:
    """Verification ends at the first object, or, where no event has one, with what else would be there."""
    monkeypatch.setattr(objects, "TIMEOUT_S", 1)
    for name, value in object_server.variables.items():
        monkeypatch.setenv(name, value)
    url = at(kept_postgres_url, f"s3://{BUCKET}/away")
    with TurnLog.open(url) as log:
        log.add_turn("small", bookmark="main")
    for _ in range(2):
        with monkeypatch.context() as away:
            away.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
            with TurnLog.open(url) as log, pytest.raises(StorageError, match="does not do its work"):
                log.verify()
        with TurnLog.open(url) as log:
            assert log.verify().clean
            for number in range(2):
                log.add_turn(f"{TEXT}{number}", continues="main")


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3://key:secret@bucket/prefix",
        "s3://bucket/prefix?region=here",
        "s3://Bucket",
        "s3://bucket/../other",
        "file://",
        "file:///",
        "file://host/folder",
        "https://bucket/prefix",
        "folder",
        "",
    ],
)
def test_wrong_place_is_refused(url: str) -> None:
    """What is none, and what has credentials in it, which are not shown."""
    with pytest.raises(StoreOpenError) as refused:
        checked_url(url)
    assert "secret" not in str(refused.value)


def test_copies_change_the_place(tmp_path: Path, kept_postgres_url: str, place: str) -> None:
    """From files beside SQLite to objects and back: the bytes are the same."""
    source, back = f"sqlite:///{tmp_path}/log.db", f"sqlite:///{tmp_path}/back.db"
    with TurnLog.open(source) as log:
        fill(log, tmp_path)
        log.copy_to(at(kept_postgres_url, place))
    assert len(paths(place)) == 2
    with TurnLog.open(at(kept_postgres_url, place)) as log:
        assert log.verify().damage == ()
        log.copy_to(back)
    with TurnLog.open(back) as log:
        assert (log.payload("main"), log.stats().file_count, log.verify().damage) == (NOISE, 2, ())


def test_folder_is_for_its_owner_alone(folder: str, tmp_path: Path) -> None:
    """Whatever the umask."""
    Objects(folder)
    assert (tmp_path / "objects").stat().st_mode & 0o777 == 0o700


def test_removal_takes_nothing_that_an_append_rests_on(kept_postgres_url: str, folder: str) -> None:
    """While one records and erases a payload, others that record the same one have it each time."""
    rounds = 8

    def record_and_erase() -> None:
        with TurnLog.open(at(kept_postgres_url, folder)) as log:
            for _ in range(rounds):
                log.erase(turn=log.add_turn(TEXT).id, reason="asked")

    def record() -> list[str]:
        with TurnLog.open(at(kept_postgres_url, folder)) as log:
            return [log.add_turn(TEXT).id for _ in range(2 * rounds)]

    TurnLog.open(at(kept_postgres_url, folder)).close()
    with ThreadPoolExecutor(2) as pool:
        erasing, recording = pool.submit(record_and_erase), pool.submit(record)
        erasing.result()
        kept = recording.result()
    with TurnLog.open(at(kept_postgres_url, folder)) as log:
        assert {log.payload(turn) for turn in kept} == {content_bytes(TEXT)}
        report = log.verify()
        assert (report.damage, report.erased) == ((), rounds)
        assert len(files(folder)) == 1
