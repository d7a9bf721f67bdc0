"""What is recorded sealed, under which key, and what a log is with its keys and without them."""

import asyncio
import io
import json
import random
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sealed_log import SealsInMemory, seals_in
from tests.talk import Talk, traces

from turnlog import AsyncTurnLog, LossReport, Response, Text, TurnLog
from turnlog.audit.seals import SealFolder
from turnlog.errors import (
    BookmarkExistsError,
    ErasedError,
    HeadConflictError,
    HoldError,
    IdConflictError,
    MetaError,
    NotFoundError,
    SealedError,
    SealError,
    UnknownBookmarkError,
    UnknownTurnError,
)
from turnlog.events import BOOKMARK, CALL, ERASURE, REPLY, SEAL, TURN, Recorded
from turnlog.model import Tool, content_bytes
from turnlog.providers import PreparedRequest
from turnlog.record import turn_draft
from turnlog.store import Placement
from turnlog.store.files import Access, write_file
from turnlog.store.payloads import FILE_BYTES_MIN
from turnlog.testing.faults import run_processes

SIZES = (0, 1, 100, 127, 128, 4000, FILE_BYTES_MIN - 18, FILE_BYTES_MIN - 17, FILE_BYTES_MIN, 200_000, 1_000_000)
"""Bytes of payloads: on both sides of each limit, and sealed they have a byte and a tag more."""


@pytest.fixture
def seals(tmp_path: Path) -> SealFolder:
    """Give keys of sealing in a folder."""
    return seals_in(tmp_path / "keys")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give the place of a store."""
    return tmp_path / "store" / "log.db"


def opened(path: Path, seals: Any = None) -> TurnLog:
    """Open a store with keys, or without."""
    return TurnLog.open(f"sqlite:///{path}", busy_timeout_s=10, seals=seals)


@pytest.fixture
def log(path: Path, seals: SealFolder) -> Iterator[TurnLog]:
    """Give an open log in a file, with keys."""
    with opened(path, seals) as log:
        yield log


def request(messages: list[bytes] | None = None) -> PreparedRequest:
    """Return a request as an adapter prepares it."""
    return PreparedRequest(
        adapter="openai_chat",
        version="1",
        provider="openai",
        api="chat",
        model="m",
        stream=True,
        head=b"{",
        messages=messages or [b'"a message",'],
        closing=b"}",
        loss_report=LossReport(),
    )


def response(text: str) -> Response:
    """Return a response as an adapter puts it together."""
    return Response(content=(Text(text=text),), model="m", stop_reason="stop", provider="openai", api="chat")


def key_of(log: TurnLog, event_id: str) -> str | None:
    """Return the id of the key that an event is sealed under."""
    event = log.event(event_id)
    return None if event.sealed is None else event.sealed.key


def last(log: TurnLog, topic: str) -> Recorded:
    """Return the last event of a topic."""
    return list(log.events(topics=[topic]))[-1]


def unsealed(log: TurnLog) -> list[str]:
    """Return the topics of events after the first `log.seal` event that have a private part which is not sealed."""
    [first, *_] = log.events(topics=[SEAL])
    after = log.events(first.global_position)
    return [event.header.topic for event in after if event.private_state is not None and event.sealed is None]


def tables(path: Path) -> dict[str, list[Any]]:
    """Return what is in the tables beside that of the events."""
    with closing(sqlite3.connect(path)) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            name: sorted(connection.execute(f'SELECT * FROM "{name}"').fetchall(), key=repr)
            for name in names
            if name != "stored_events"
        }


# What is sealed


def test_log_is_sealed_from_then_on(log: TurnLog, seals: SealFolder, tmp_path: Path) -> None:
    """Each event with a private part is, whatever its topic; what was recorded before is as it was, and counted."""
    before = log.add_turn("before", bookmark="main")
    state = log.event(before.id).private_state
    report = log.seal(by="somebody")
    general = seals.of_subject(None)
    assert general is not None
    assert report.to_record() == {
        "scope": "store", "subject": None, "key": general.id, "event": report.event, "before": 1,
    }  # fmt: skip
    assert report.event is not None
    said = log.event(report.event)
    assert json.loads(bytes(said.header.meta)) == {"keys": seals.tag("keys", ""), "scope": "store"}
    assert said.private is not None
    assert json.loads(bytes(said.private.meta)) == {"by": "somebody"}
    Talk(log, tmp_path, 1).fill(subject="Ada")
    (tmp_path / "session.jsonl").write_text(
        '{"type":"user","uuid":"22222222-2222-2222-2222-222222222222","parentUuid":null,'
        '"sessionId":"11111111-1111-1111-1111-111111111111","timestamp":"2026-01-01T00:00:00Z","cwd":"/home",'
        '"message":{"role":"user","content":"an imported text"}}\n{"type":"summary","summary":"of it","leafUuid":"x"}\n'
    )
    log.import_claude_code(tmp_path / "session.jsonl")
    log.providers.set("openai")
    log.pointers.set("fast", "openai", "m-1")
    log.servers.set("files", command=["serve", "files"])
    log.holds.set("case", subject="Ada", reason="court")
    log.holds.release("case")
    tool = Tool(name="look", description="looks")
    log.calls.record(before.id, msgspec.structs.replace(request(), tools=(tool,)))
    log.add_event("acme.review", b"good", private={"by": "me"})
    erased = log.add_turn("to be erased")
    log.erase(turn=erased.id, reason="asked")
    topics = {event.header.topic for event in log.events()}
    assert len(topics) >= 15
    assert unsealed(log) == []
    assert log.event(before.id).private_state == state
    assert log.seal().event is None
    result = log.verify()
    assert (result.clean, result.closed, result.erased) == (True, 0, 1)
    assert result.sealed == sum(event.sealed is not None for event in log.events())


def test_nothing_large_is_ever_written_plain(log: TurnLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even for a moment, where what settles under which key it is sealed is in the transaction."""
    written: list[bytes] = []

    def write(path: Path, content: bytes, access: Access) -> None:
        written.append(bytes(content))
        write_file(path, content, access)

    monkeypatch.setattr("turnlog.store.incoming.write_file", write)
    log.seal(subject="Ada")
    large = random.Random(1).randbytes(FILE_BYTES_MIN).hex()
    (tmp_path / "noise.txt").write_text(large)
    first = log.add_turn("Hi.", subject="Ada", bookmark="main")
    log.add_turn(large, continues="main")
    log.add_document(tmp_path / "noise.txt", continues="main")
    log.add_group([turn_draft(large, subject="Ada"), turn_draft(large, continues="main")])
    with log.group() as group:
        group.add_turn(large, continues=group.add_document(tmp_path / "noise.txt", subject="Ada"))
    log.compact("main", text=large, keep_last=1)
    call = log.calls.record("main", request([b'"' + large.encode() + b'",']))
    log.calls.record_reply(call, [large.encode()], response(large))
    log.add_event("acme.review", large.encode(), cites=[("turn", first.id)])
    assert unsealed(log) == []
    assert len(written) == 10
    frames = [content for content in written if content.startswith(b"\x28\xb5\x2f\xfd")]
    assert (frames, [content for content in written if large[:80].encode() in content]) == ([], [])
    assert log.verify().clean


def test_what_an_import_seals_is_never_written_plain(
    log: TurnLog, seals: SealFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session goes on in a log that is not sealed itself: what it continues is, and came from another log."""
    noise = random.Random(1)
    session = tmp_path / "session.jsonl"

    def write_session(rows: int) -> None:
        ids = [f"{number}2222222-2222-2222-2222-222222222222" for number in range(rows)]
        with session.open("w") as file:
            for own, parent in zip(ids, [None, *ids[:-1]], strict=True):
                message = {"role": "user", "content": "x" if parent is None else noise.randbytes(FILE_BYTES_MIN).hex()}
                row = {"type": "user", "uuid": own, "parentUuid": parent, "sessionId": "s", "message": message}
                file.write(json.dumps({**row, "timestamp": "2026-01-01T00:00:00Z", "cwd": "/"}) + "\n")

    write_session(1)
    with opened(tmp_path / "sealed.db", seals) as first, (tmp_path / "export").open("wb+") as file:
        first.seal()
        first.import_claude_code(session)
        first.export(file)
        file.seek(0)
        log.add_turn("It begins plain.")
        log.import_turnlog(file)
    write_session(3)
    written: list[bytes] = []
    monkeypatch.setattr(
        "turnlog.store.incoming.write_file",
        lambda path, content, access: (written.append(bytes(content)), write_file(path, content, access))[1],
    )
    assert log.import_claude_code(session).turns_added == 2
    assert [key_of(log, turn.id) is not None for turn in log.latest(2)] == [True, True]
    assert [content[:4] for content in written if content.startswith(b"\x28\xb5\x2f\xfd")] == []
    assert len(written) >= 2
    assert log.verify().clean


def test_subject_is_sealed_from_then_on(log: TurnLog, seals: SealFolder) -> None:
    """The turns of that subject, and what rests on them. The rest of the log stays as it is."""
    early = log.add_turn("early", bookmark="ada", subject="Ada")
    report = log.seal("Ada")
    key = seals.of_subject("Ada")
    assert key is not None
    assert (report.scope, report.subject, report.key, report.before) == ("subject", "Ada", key.id, 1)
    assert report.event is not None
    said = log.event(report.event)
    assert said.sealed is not None
    assert said.sealed.key == key.id
    assert json.loads(bytes(said.header.meta)) == {
        "keys": seals.tag("keys", ""), "scope": "subject", "tag": seals.tag("subject", "Ada"),
    }  # fmt: skip
    assert said.private is not None
    assert json.loads(bytes(said.private.meta)) == {"subject": "Ada"}
    assert b'"Ada' not in said.state
    turn = log.add_turn("hers", continues="ada")
    call = log.calls.record(turn.id, request())
    answer = log.calls.record_reply(call, [b"raw"], response("answer"), continues=turn.id)
    log.bookmarks.set("second", answer.id)
    review = log.add_event("acme.review", b"good", cites=[("reviewed", answer.id)])
    sealed = [turn.id, call, last(log, REPLY).header.id, answer.id, last(log, BOOKMARK).header.id, review.header.id]
    beside = seals.make(None).id  # an event of one's own outlives what it cites
    assert [key_of(log, event) for event in sealed] == [key.id] * (len(sealed) - 1) + [beside]
    plain = [
        log.add_turn("Bob's", subject="Bob", bookmark="bob").id,
        log.add_turn("nobody's").id,
        log.add_event("acme.review", b"good", cites=[("reviewed", early.id)]).header.id,
    ]
    assert [key_of(log, event) for event in [early.id, *plain]] == [None] * 4
    assert log.seal("Ada").event is None
    assert log.seal("Bob").event is not None
    assert key_of(log, log.add_turn("his", continues="bob").id) == log.seal("Bob").key
    assert log.seal().event is not None
    assert key_of(log, log.add_turn("hers", continues="ada").id) == key.id, "a store has a key for each subject too"
    assert log.verify().clean


def test_turn_of_a_sealed_call_is_sealed(log: TurnLog, seals: SealFolder) -> None:
    """What a model answered to a sealed request is not recorded in plain, wherever it is put."""
    beside = seals.make(None).id
    elsewhere = log.add_turn("elsewhere", bookmark="elsewhere")
    log.seal("Ada")
    turn = log.add_turn("hers", subject="Ada")
    call = log.calls.record(turn.id, request())
    for text in ("answer", "answer " * 30_000):
        answer = log.calls.record_reply(call, [b"raw"], response(text), continues=elsewhere.id, bookmark=False)
        assert (answer.sealed, answer.meta.subject) == (beside, None)
        reply = log.event(answer.id).header.cited("reply")
        assert reply is not None
        assert key_of(log, reply) == turn.sealed
    named = log.add_turn("made by hand", call=call)
    assert named.sealed == beside
    assert log.verify().clean


def test_sealing_is_inherited_down_the_thread(log: TurnLog, seals: SealFolder) -> None:
    """Forks and merges too; under the key of the turn's own subject, where that is sealed, else under the general."""
    log.seal("Ada")
    log.seal("Bob")
    ada, bob, beside = (seals.make(subject).id for subject in ("Ada", "Bob", None))
    root = log.add_turn("root", subject="Ada")
    plain = log.add_turn("plain")
    cases = [
        (log.add_turn("next", continues=root.id), ada, "Ada"),
        (log.add_turn("fork", continues=root.id), ada, "Ada"),
        (log.add_turn("no subject", continues=root.id, subject=False), beside, None),
        (log.add_turn("somebody else", continues=root.id, subject="Carol"), beside, "Carol"),
        (log.add_turn("Bob", continues=root.id, subject="Bob"), bob, "Bob"),
        (log.add_turn("merge", continues=[plain.id, root.id]), beside, None),
        (log.add_turn("merge", continues=[root.id, plain.id]), ada, "Ada"),
        (log.add_turn("beside", continues=plain.id), None, None),
    ]
    for turn, key, subject in cases:
        assert (turn.sealed, turn.meta.subject or None) == (key, subject)
    below = log.add_turn("below", continues=cases[2][0].id)
    assert (below.sealed, below.meta.subject or None) == (beside, None)
    # What is of others is there when Ada's is gone.
    log.erase(subject="Ada", reason="asked")
    assert [log.payload(turn.id) for turn, key, _ in cases if key != ada]
    assert log.verify().clean


def test_what_says_something_of_several_subjects_goes_with_any_of_their_keys(
    log: TurnLog, path: Path, seals: SealFolder, tmp_path: Path
) -> None:
    """A request whose window has several, with the reply to it. An event of one's own that cites them stays."""
    ada, bob = log.seal("Ada").key, log.seal("Bob").key
    root = log.add_turn("hers", subject="Ada", bookmark="main")
    alone = log.calls.record("main", request())
    log.add_turn("his", subject="Bob", continues="main")
    both = log.calls.record("main", request())
    answer = log.calls.record_reply(both, [b"raw"], response("ours"))
    review = log.add_event("acme.review", b"x", cites=[("of", root.id), ("of", answer.id)])
    joined = "+".join(sorted((ada, bob)))
    assert (key_of(log, alone), key_of(log, both), answer.sealed) == (ada, joined, bob)
    assert [key_of(log, last(log, topic).header.id) for topic in (REPLY, "acme.review")] == [
        joined,
        seals.make(None).id,
    ]
    assert log.calls.request(both) == request().body
    assert log.verify().clean
    shutil.copytree(path.parent, tmp_path / "copy")
    log.erase(subject="Ada", reason="r")
    with opened(tmp_path / "copy" / path.name, seals_in(tmp_path / "keys")) as copy:
        for call in (alone, both):
            with pytest.raises(SealedError, match=r"is sealed, and its key"):
                copy.calls.request(call)
        assert copy.payload(review.header.id) == b"x"
        assert copy.payload(answer.id) == content_bytes("ours")
        assert copy.verify().clean
        # What goes on from there says nothing of hers.
        copy.add_turn("more", continues=answer.id)
        assert key_of(copy, copy.calls.record(last(copy, TURN).header.id, request())) == bob


def test_subjects_of_a_sealed_store_have_keys_of_their_own(log: TurnLog, seals: SealFolder) -> None:
    """And there is one for what is of no subject; a turn without subject that continues somebody's has that one."""
    log.seal()
    ada, bob, nobody = (seals.make(subject).id for subject in ("Ada", "Bob", None))
    root = log.add_turn("root", subject="Ada", bookmark="main")
    assert root.sealed == ada
    assert log.add_turn("next", continues="main").sealed == ada
    assert log.add_turn("Bob", continues="main", subject="Bob", bookmark=False).sealed == bob
    assert log.add_turn("nobody", continues="main", subject=False, bookmark=False).sealed == nobody
    assert log.add_turn("nobody").sealed == nobody
    log.bookmarks.rename("main", "other")
    log.bookmarks.delete("other")
    named = [event for event in log.events(topics=[BOOKMARK]) if event.sealed is not None]
    assert [event.sealed.key for event in named if event.sealed] == [ada, ada], "its names go with its subject's key"


@pytest.mark.parametrize("subject", ["", " x", "a\nb", "x" * 201, 5])
def test_malformed_subjects_are_refused(log: TurnLog, subject: Any, tmp_path: Path) -> None:
    """Nothing is recorded then, and no key is made."""
    with pytest.raises(MetaError):
        log.seal(subject)
    assert log.stats().events == 0
    assert not (tmp_path / "keys").exists()


def test_sealing_needs_keys(path: Path) -> None:
    """A log that is opened without any cannot be sealed."""
    with opened(path) as log:
        for subject in (None, "Ada"):
            with pytest.raises(SealError, match="seals="):
                log.seal(subject)
        assert log.stats().events == 0


def test_first_event_of_a_log_can_be_that_it_is_sealed(log: TurnLog) -> None:
    """Its genesis goes before it."""
    log.seal()
    assert [event.header.topic for event in log.events()] == ["log.genesis", SEAL]
    log.add_turn("sealed")
    assert unsealed(log) == []


# Payloads


@pytest.mark.parametrize("compressible", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_payloads_of_any_size_come_back(
    log: TurnLog, path: Path, tmp_path: Path, seals: SealFolder, size: int, *, compressible: bool
) -> None:
    """Inline and as files, compressed before they are sealed; what is on disk is what the event commits to."""
    log.seal()
    content = (b"ab" * size)[:size] if compressible else bytes(sha256(b"%d" % at).digest()[0] for at in range(size))
    (tmp_path / "document").write_bytes(content)
    document = log.add_document(tmp_path / "document")
    event = log.add_event("acme.file", content)
    text = log.add_turn(content.hex())
    (tmp_path / "document").unlink()
    for reader in (log, opened(path, seals)):
        assert reader.payload(document.id) == reader.payload(event.header.id) == content
        assert reader.payload(text.id) == content_bytes(content.hex())
        assert (reader.turn(document.id).size, reader.turn(document.id).hash) == (size, document.hash)
        assert reader.verify().clean
    sealed = log.event(event.header.id).sealed
    assert sealed is not None
    assert sealed.size is not None
    if compressible and size >= 4000:
        assert sealed.size < size / 10
    else:
        assert sealed.size >= min(size, 128) - 100
    with closing(sqlite3.connect(path)) as connection:
        statement = "SELECT payload_placement FROM stored_events WHERE event_id = ?"
        [(placement,)] = connection.execute(statement, (event.header.id,))
    assert (placement == Placement.FILE) == (sealed.size >= FILE_BYTES_MIN)
    if size >= 100:
        assert traces(tmp_path, [content[:64]]) == set()
    with opened(path) as closed:
        with closed.store.read() as transaction:
            stored = transaction.stored_payload(closed.event(event.header.id))
        assert stored is not None
        assert len(stored) == sealed.size
        assert closed.verify().clean


def test_same_payload_twice_is_sealed_twice(log: TurnLog) -> None:
    """Nobody can see that two turns say the same: not by hashes, and not by what is kept."""
    log.seal()
    turns = [log.add_turn("the same " * 40_000, subject="Ada") for _ in range(2)]
    sealed = [log.event(turn.id).sealed for turn in turns]
    assert turns[0].hash == turns[1].hash
    assert sealed[0] is not None
    assert sealed[1] is not None
    assert sealed[0].key == sealed[1].key
    for field in ("hash", "nonce", "secret_hash", "sealed"):
        assert getattr(sealed[0], field) != getattr(sealed[1], field)


@pytest.mark.parametrize("text", ["short", "long " * 40_000])
def test_same_id_again_returns_the_stored_turn(log: TurnLog, path: Path, text: str) -> None:
    """As in a plain log, also after its bookmark has gone; other content is a conflict, and so is what is closed."""
    plain = log.add_turn(text, bookmark="plain")
    log.seal()
    root = log.add_turn("root", bookmark="main", subject="Ada")
    turn = log.add_turn(text, continues="main", id="0" * 25)
    assert log.add_turn(text, continues="main", id=turn.id) == turn
    log.bookmarks.delete("main")
    end = log.stats().events
    assert log.add_turn(text, continues="main", id=turn.id) == turn
    assert log.add_turn(text, continues=root.id, id=turn.id) == turn
    assert log.add_turn(text, bookmark="plain", id=plain.id) == plain
    for other in ("other", "other " * 40_000):
        with pytest.raises(IdConflictError, match="content"):
            log.add_turn(other, continues=root.id, id=turn.id)
    event = log.add_event("acme.note", text.encode(), private={"by": "me"}, id="1" * 25)
    again = log.add_event("acme.note", text.encode(), private={"by": "me"}, id="1" * 25)
    assert (again.state, again.private_state) == (event.state, event.private_state)
    assert log.stats().events == end + 1
    with opened(path) as closed, pytest.raises(IdConflictError, match="sealed, and its key is not here"):
        closed.add_turn(text, continues=root.id, id=turn.id)
    log.erase(turn=turn.id, reason="asked")
    with pytest.raises(IdConflictError, match="erased"):
        log.add_turn(text, continues=root.id, id=turn.id)
    assert log.verify().clean


# Bookmarks


def names(log: TurnLog) -> dict[str, str]:
    """Return the bookmarks, and check that there is none twice."""
    found = log.bookmarks.all()
    assert len({bookmark.name for bookmark in found}) == len(found)
    return {bookmark.name: bookmark.turn for bookmark in found}


def test_bookmark_moves_between_sealed_and_plain_turns(log: TurnLog, path: Path) -> None:
    """It is one bookmark all the time, found by its name; in the tables it is a name or a tag."""

    def kept() -> list[str]:
        with closing(sqlite3.connect(path)) as connection:
            return [row[0] for row in connection.execute("SELECT name FROM bookmarks")]

    plain = log.add_turn("plain", bookmark="main")
    log.seal("Ada")
    sealed = log.add_turn("sealed", bookmark="main", subject="Ada", expected_head=plain.id)
    assert names(log) == {"main": sealed.id}
    assert kept() != ["main"]
    with pytest.raises(HeadConflictError):
        log.add_turn("late", bookmark="main", expected_head=plain.id)
    back = log.add_turn("back", bookmark="main", expected_head=sealed.id)
    assert (names(log), kept()) == ({"main": back.id}, ["main"])
    log.bookmarks.set("main", sealed.id, expected_head=back.id)
    assert names(log) == {"main": sealed.id}
    assert kept() != ["main"]
    after = log.add_turn("after", continues="main")
    assert (after.meta.head, after.sealed, names(log)) == ("main", sealed.sealed, {"main": after.id})
    log.bookmarks.rename("main", "other")
    assert names(log) == {"other": after.id}
    log.bookmarks.rename("other", "main")
    with pytest.raises(BookmarkExistsError):
        log.bookmarks.rename("main", "main")
    log.bookmarks.set("main", plain.id)
    assert (names(log), kept()) == ({"main": plain.id}, ["main"])
    log.bookmarks.delete("main")
    assert names(log) == {}
    with pytest.raises(UnknownBookmarkError):
        log.bookmarks.delete("main")
    assert log.verify().clean


def test_plain_bookmarks_of_a_store_that_was_sealed_later(log: TurnLog) -> None:
    """They can be continued, renamed, taken and deleted; the new names are not in the files."""
    first = log.add_turn("first", bookmark="one")
    second = log.add_turn("second", bookmark="two")
    log.add_turn("third", bookmark="three")
    log.seal()
    after = log.add_turn("after", continues="one")
    assert after.meta.head == "one"
    log.bookmarks.rename("two", "zwei")
    with pytest.raises(BookmarkExistsError):
        log.bookmarks.rename("zwei", "three")
    with pytest.raises(BookmarkExistsError):
        log.bookmarks.rename("three", "zwei")
    log.bookmarks.delete("three")
    assert names(log) == {"one": after.id, "zwei": second.id}
    log.bookmarks.set("one", first.id)
    assert names(log) == {"one": first.id, "zwei": second.id}
    assert log.verify().clean


def test_large_turn_does_not_duplicate_a_bookmark_that_moves_meanwhile(
    log: TurnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its payload was sealed for where the bookmark was; it is recorded sealed, and the name is there once."""
    plain = log.add_turn("plain", bookmark="main")
    log.seal("Ada")
    log.add_turn("sealed", subject="Ada", bookmark="side")
    place = log.store.place

    def move_and_place(payload: bytes | None, seal: Any = None) -> Any:
        placed = place(payload, seal)
        if seal is not None:
            monkeypatch.undo()
            log.bookmarks.set("side", plain.id)
        return placed

    monkeypatch.setattr(log.store, "place", move_and_place)
    turn = log.add_turn("large " * 40_000, continues="side")
    assert turn.sealed is not None
    assert names(log) == {"main": plain.id, "side": turn.id}
    log.add_turn("plain again", bookmark="side")
    assert set(names(log)) == {"main", "side"}
    assert log.verify().clean


def test_names_that_look_like_tags_are_names(log: TurnLog, path: Path) -> None:
    """What stands for a sealed name cannot be given as one."""
    log.seal("Ada")
    turn = log.add_turn("sealed", subject="Ada", bookmark="main")
    with opened(path) as closed:
        [shown] = [bookmark.name for bookmark in closed.bookmarks.all()]
    assert shown.startswith("sealed:")
    tag = shown.removeprefix("sealed:")
    for name in (shown, tag):
        with pytest.raises(UnknownTurnError):
            log.turn(name)
    other = log.add_turn("other", bookmark=tag)
    third = log.add_turn("third", bookmark=shown)
    assert names(log) == {"main": turn.id, tag: other.id, shown: third.id}
    for name in ("\x1f" + tag, "\x1f"):
        for use in (log.turn, log.bookmarks.delete, log.context, lambda name: log.bookmarks.set(name, turn.id)):
            with pytest.raises((UnknownTurnError, UnknownBookmarkError, MetaError)):
                use(name)
        with pytest.raises(MetaError):
            log.add_turn("x", bookmark=name)
    assert log.verify().clean


def test_bookmark_is_inherited_from_a_sealed_turn(log: TurnLog) -> None:
    """A turn that continues one by its id moves the bookmark that stands there."""
    log.seal()
    root = log.add_turn("root", bookmark="main")
    log.bookmarks.set("second", root.id)
    log.bookmarks.rename("second", "third")
    assert log.add_turn("next", continues=root.id).meta.head == "main"
    assert log.add_turn("by name", continues="third").meta.head == "third"
    side = log.add_turn("side")
    log.bookmarks.set("aside", side.id)
    assert log.add_turn("next", continues=side.id).meta.head == "aside"


# Without keys


@pytest.fixture
def closed(path: Path, seals: SealFolder, tmp_path: Path) -> Iterator[TurnLog]:
    """Give a sealed log with one of everything, opened without keys."""
    (tmp_path / "file").write_text("of a document")
    (tmp_path / "session.jsonl").write_text('{"type":"summary","summary":"of it","leafUuid":"x"}\n')
    with opened(path, seals) as log:
        log.add_turn("plain before", bookmark="plain", id="a" * 25)
        log.seal()
        log.add_turn("said", bookmark="main", subject="Ada", id="b" * 25)
        call = log.calls.record(
            "main", msgspec.structs.replace(request(), tools=(Tool(name="look", description="looks"),))
        )
        log.calls.record_reply(call, [b"raw"], response("answered"), continues="main")
        log.add_document(tmp_path / "file", continues="main")
        log.add_event("acme.review", b"good", id="c" * 25, cites=[("reviewed", "b" * 25)])
        log.pointers.set("fast", "openai", "m-1")
        log.holds.set("case", turn="main")
        log.add_turn("Bob's", bookmark="bob", subject="Bob", id="d" * 25)
    with opened(path) as log:
        yield log


ADA, REVIEW = "b" * 25, "c" * 25


def _call(log: TurnLog) -> str:
    return last(log, CALL).header.id


READS: dict[str, tuple[type[Exception] | None, Callable[[TurnLog], Any]]] = {
    "payload": (SealedError, lambda log: log.payload(ADA)),
    "payload of an own event": (SealedError, lambda log: log.payload(REVIEW)),
    "bookmark": (UnknownTurnError, lambda log: log.turn("main")),
    "window by bookmark": (UnknownTurnError, lambda log: log.context("main")),
    "call": (SealedError, lambda log: log.calls.get(_call(log))),
    "request": (SealedError, lambda log: log.calls.request(_call(log))),
    "events": (SealedError, lambda log: log.calls.events(log.children(ADA)[0].id)),
    "tools": (SealedError, lambda log: log.calls.tools(_call(log))),
    "calls of a turn": (None, lambda log: [call.unreadable for call in log.calls.of(log.children(ADA)[0].id)]),
    "replies": (None, lambda log: log.calls.replies() == {}),
    "check": (None, lambda log: [check.difference for check in log.calls.check(log.children(ADA)[0].id)]),
    "holds": (SealedError, lambda log: log.holds.all()),
    "register": (NotFoundError, lambda log: log.pointers.get("fast")),
    "dry run": (SealedError, lambda log: log.erase(subject="Ada", reason="r", dry_run=True)),
    "dry run of a turn": (SealedError, lambda log: log.erase(turn=ADA, reason="r", dry_run=True)),
    "events of the log": (None, lambda log: list(log.events())),
    "wait": (None, lambda log: log.wait(0, 0)),
    "stats": (None, lambda log: log.stats()),
    "threads": (None, lambda log: log.threads()),
    "thread": (None, lambda log: log.thread(ADA)),
    "ancestry": (None, lambda log: log.ancestry(log.children(ADA)[0].id)),
    "export": (None, lambda log: log.export(io.BytesIO())),
    "export of a thread": (None, lambda log: log.export(io.BytesIO(), ADA)),
    "rebuild": (None, lambda log: log.rebuild_projections()),
    "finish": (None, lambda log: log.finish_erasing()),
}

WRITES: dict[str, Callable[[TurnLog, Path], Any]] = {
    "turn": lambda log, _: log.add_turn("x"),
    "large turn": lambda log, _: log.add_turn("x" * 300_000),
    "turn that continues a plain one": lambda log, _: log.add_turn("x", continues="plain"),
    "turn that continues a sealed one": lambda log, _: log.add_turn("x", continues=ADA),
    "turn of a subject": lambda log, _: log.add_turn("x", continues=ADA, subject="Ada"),
    "turn of no subject": lambda log, _: log.add_turn("x", continues=ADA, subject=False),
    "response": lambda log, _: log.add_turn("x", respond=True),
    "document": lambda log, folder: log.add_document(folder / "file"),
    "event": lambda log, _: log.add_event("acme.review", b"x"),
    "event that cites": lambda log, _: log.add_event("acme.review", b"x" * 300_000, cites=[("c", ADA)]),
    "bookmark": lambda log, _: log.bookmarks.set("new", ADA),
    "bookmark on a plain turn": lambda log, _: log.bookmarks.set("new", "plain"),
    "rename": lambda log, _: log.bookmarks.rename("plain", "new"),
    "call": lambda log, _: log.calls.record("plain", request()),
    "call on a sealed turn": lambda log, _: log.calls.record(ADA, request()),
    "reply": lambda log, _: log.calls.record_reply(_call(log), [b"x"], response("x"), continues="plain"),
    "hold": lambda log, _: log.holds.set("new", turn="plain"),
    "release": lambda log, _: log.holds.release("case"),
    "provider": lambda log, _: log.providers.set("openai"),
    "pointer": lambda log, _: log.pointers.set("slow", "openai", "m-2"),
    "server": lambda log, _: log.servers.set("files", command=["serve", "files"]),
    "erase": lambda log, _: log.erase(turn=ADA, reason="r"),
    "erase a plain turn": lambda log, _: log.erase(turn="plain", reason="r"),
    "erase a thread": lambda log, _: log.erase(thread=ADA, reason="r"),
    "erase a subject": lambda log, _: log.erase(subject="Ada", reason="r"),
    "seal": lambda log, _: log.seal(),
    "seal a subject": lambda log, _: log.seal("Carol"),
    "import": lambda log, folder: log.import_claude_code(folder / "session.jsonl"),
}


@pytest.mark.parametrize("case", READS)
def test_what_can_be_read_without_keys(closed: TurnLog, case: str) -> None:
    """Headers, and where there is something; what it says is a `SealedError`, or is passed over."""
    error, read = READS[case]
    if error is None:
        assert read(closed) is not False
    else:
        with pytest.raises(error):
            read(closed)


@pytest.mark.parametrize("case", WRITES)
def test_nothing_is_recorded_without_keys(closed: TurnLog, tmp_path: Path, case: str) -> None:
    """What would have to be sealed is refused, and nothing is written: no event, no file."""
    before, files = closed.stats().events, sorted((tmp_path / "store").rglob("*/*"))
    with pytest.raises((SealError, SealedError)):
        WRITES[case](closed, tmp_path)
    assert closed.stats().events == before
    assert sorted((tmp_path / "store").rglob("*/*")) == files
    assert closed.verify().clean


def test_windows_show_that_something_is_sealed(closed: TurnLog) -> None:
    """In its place stands a block as for an erased turn, which says that the content is there."""
    children = closed.children(ADA)
    window = closed.context(children[0].id)
    assert [message.erased for message in window.messages] == [True, True]
    assert json.loads(window.messages[0].content_json) == [
        {"type": "erased", "turn": ADA, "time": closed.turn(ADA).time_ms, "sealed": True}
    ]
    turn = closed.turn(ADA)
    assert (turn.closed, turn.erased, turn.hash, turn.size, turn.meta.subject) == (True, False, "", 0, None)
    assert turn.meta.role == "user"
    with pytest.raises(ErasedError, match="sealed, and its key"):
        closed.payload(ADA)
    assert [bookmark.name[:7] for bookmark in closed.bookmarks.all()] == ["plain", "sealed:", "sealed:"]
    assert closed.payload("plain") == content_bytes("plain before")


def test_keys_that_are_not_those_of_the_log_open_nothing(closed: TurnLog, path: Path, tmp_path: Path) -> None:
    """The log is closed to them, and verifies; nothing is sealed with them, and none of them is destroyed."""
    others = seals_in(tmp_path / "other keys")
    made = [others.make(subject) for subject in (None, "Ada")]
    events = closed.stats().events
    with opened(path, others) as log:
        assert log.turn(ADA).closed
        with pytest.raises(SealedError):
            log.payload(ADA)
        report = log.verify()
        assert (report.clean, report.events, report.closed) == (True, events, report.sealed)
        assert report == closed.verify()
        for case in WRITES.values():
            with pytest.raises((SealError, SealedError)):
                case(log, tmp_path)
        assert log.stats().events == events
    assert [others.of_subject(subject) for subject in (None, "Ada")] == made


def test_subject_is_not_erased_with_keys_that_are_not_those_of_the_log(
    path: Path, seals: SealFolder, tmp_path: Path
) -> None:
    """Whose the turns are cannot be seen with them: neither is anything erased, nor the other key destroyed."""
    others = seals_in(tmp_path / "other keys")
    other = others.make("Ada")
    with opened(path, seals) as log:
        log.seal("Ada")
        ada = log.add_turn("hers", subject="Ada")
        log.holds.set("case", subject="Bob")
    with opened(path, others) as log:
        for dry_run in (True, False):
            for asked in ({"subject": "Ada"}, {"turn": ada.id}):
                with pytest.raises((SealError, SealedError)):
                    log.erase(reason="asked", dry_run=dry_run, **asked)
    assert others.of_subject("Ada") == other
    with opened(path, seals) as log:
        assert log.payload(ada.id)
        assert log.erase(subject="Ada", reason="asked").keys == (ada.sealed,)


def test_verification_counts_what_it_could_not_look_into(closed: TurnLog, path: Path, seals: SealFolder) -> None:
    """With keys everything is looked into; without them every byte is hashed nonetheless."""
    sealed = sum(event.sealed is not None for event in closed.events())
    without = closed.verify()
    with opened(path, seals) as log:
        report = log.verify()
    assert (report.clean, report.sealed, report.closed, report.requests, report.replies) == (True, sealed, 0, 1, 1)
    assert (without.clean, without.sealed, without.closed) == (True, sealed, sealed)
    assert (without.payloads, without.citations) == (report.payloads, report.citations)
    assert (without.requests, without.replies) == (0, 0)


def test_projections_are_the_same_without_keys(closed: TurnLog, path: Path, seals: SealFolder) -> None:
    """Whoever builds them anew: tables hold what is shown, never what is sealed."""
    before = tables(path)
    assert before["bookmarks"]
    assert closed.rebuild_projections()
    assert tables(path) == before
    with opened(path, seals) as log:
        assert set(names(log)) == {"plain", "main", "bob"}
        log.rebuild_projections()
    assert tables(path) == before


def test_plain_part_of_a_log_can_be_used_without_keys(path: Path, seals: SealFolder) -> None:
    """Where a subject is sealed, turns of no subject can be recorded. Of others nobody can tell who they are."""
    with opened(path, seals) as log:
        log.add_turn("plain", bookmark="plain")
        log.seal("Ada")
        ada = log.add_turn("hers", subject="Ada", bookmark="main").id
    with opened(path) as log:
        log.add_turn("and on", continues="plain", expected_head=log.turn("plain").id)
        log.add_turn("no bookmark", bookmark=False)
        end = log.stats().events
        writes: list[Callable[[], Any]] = [
            lambda: log.add_turn("Bob's", subject="Bob"),
            lambda: log.add_turn("x", bookmark="main"),
            lambda: log.bookmarks.set("main", "plain"),
            lambda: log.bookmarks.rename("plain", "main"),
            lambda: log.add_turn("x", continues=ada, subject=False),
            lambda: log.erase(subject="Ada", reason="r"),
            lambda: log.erase(subject="Bob", reason="r"),
        ]
        for write in writes:
            with pytest.raises(SealError):
                write()
        assert log.stats().events == end
        assert [bookmark.name[:7] for bookmark in log.bookmarks.all()] == ["plain", "sealed:"]
        assert log.erase(turn="plain", reason="asked").turns
    with opened(path, seals) as log:
        assert names(log)["main"] == ada
        assert log.verify().clean


def test_hold_on_a_subject_cannot_be_passed_by_without_keys(path: Path, seals: SealFolder) -> None:
    """What it holds cannot be seen then: nothing is erased."""
    with opened(path, seals) as log:
        plain = log.add_turn("plain")
        log.seal("Ada")
        ada = log.add_turn("hers", subject="Ada")
        log.holds.set("case", subject="Ada")
        with pytest.raises(HoldError):
            log.erase(subject="Ada", reason="asked")
        assert seals.of_subject("Ada") is not None
    with opened(path) as log:
        for asked in ({"turn": ada.id}, {"thread": ada.id}, {"turn": plain.id}, {"subject": "Ada"}):
            with pytest.raises(SealedError, match="a legal hold"):
                log.erase(reason="asked", **asked)
    with opened(path, seals) as log:
        assert log.payload(ada.id)


# Keys that go


def test_subject_whose_key_was_lost_is_erased_and_held_by_its_tag(log: TurnLog, path: Path, tmp_path: Path) -> None:
    """Turns that cannot be read are still of their subject: a hold holds them, and erasing takes them away."""
    log.seal("Ada")
    ada = log.add_turn("hers", subject="Ada", bookmark="main")
    bob = log.add_turn("his", subject="Bob")
    log.holds.set("case", subject="Ada")
    seals_in(tmp_path / "keys").destroy("Ada")
    for asked in ({"turn": ada.id}, {"subject": "Ada"}):
        with pytest.raises(HoldError, match="'case'"):
            log.erase(reason="asked", **asked)
    log.holds.release("case")
    again = log.add_turn("hers again", subject="Ada")
    report = log.erase(subject="Ada", reason="asked")
    assert (report.turns, report.keys) == ((ada.id, again.id), (again.sealed,))
    assert log.payload(bob.id)
    report = log.verify()
    assert (report.clean, report.erased, report.closed) == (True, 4, 1)


def test_key_without_any_turn_is_destroyed_on_record(log: TurnLog, seals: SealFolder) -> None:
    """Another log may have had what it sealed: who asked for it and why is told, and a hold refuses it."""
    said = log.seal("Ada")
    log.holds.set("case", subject="Ada")
    with pytest.raises(HoldError, match="'case'"):
        log.erase(subject="Ada", reason="asked")
    assert seals.of_subject("Ada") is not None
    log.holds.release("case")
    report = log.erase(subject="Ada", reason="asked", by="somebody")
    assert (report.events, len(report.holds), report.keys, len(report.erasures)) == (2, 2, (said.key,), 1)
    [erasure] = log.events(topics=[ERASURE])
    assert [citation.id for citation in erasure.header.citations] == [*report.holds]


def test_key_of_which_nothing_is_in_the_log_is_destroyed_on_record(log: TurnLog) -> None:
    """The event cites the one that says what is sealed."""
    said = log.seal("Ada")
    report = log.erase(subject="Ada", reason="asked", by="somebody")
    assert (report.events, report.keys, len(report.erasures)) == (0, (said.key,), 1)
    [erasure] = log.events(topics=[ERASURE])
    assert [citation.id for citation in erasure.header.citations] == [said.event]
    assert log.verify().clean


def test_reasons_that_concern_what_is_sealed_are_sealed(log: TurnLog, path: Path) -> None:
    """Names of holds, whom they are on, and why something is held or erased. (Base64 may have any three letters.)"""
    log.seal("Adelaide")
    ada = log.add_turn("hers", subject="Adelaide")
    log.holds.set("hold of Adelaide", subject="Adelaide", reason="Adelaide said so", by="Adelaide's lawyer")
    log.holds.set("hold of a turn", turn=ada.id, reason="Adelaide said so")
    log.holds.release("hold of Adelaide", reason="Adelaide was right")
    log.holds.release("hold of a turn")
    log.erase(turn=ada.id, reason="Adelaide asked")
    log.store.scrub()
    log.close()
    raw = b"".join(file.read_bytes() for file in path.parent.rglob("*") if file.is_file())
    assert not [word for word in (b"Adelaide", b"hold of") if word in raw]


def test_registers_that_cannot_be_read_are_not_passed_over(path: Path, seals: SealFolder) -> None:
    """What holds without them may be the opposite."""
    with opened(path, seals) as log:
        log.seal()
        log.providers.disable("anthropic")
    with opened(path) as log, pytest.raises(SealedError, match="its key"):
        log.providers.all()


def test_nothing_is_recorded_in_a_sealed_log_without_its_keys(path: Path, seals: SealFolder) -> None:
    """Not even that a bookmark goes whose name stands in plain."""
    with opened(path, seals) as log:
        log.add_turn("before", bookmark="plain")
        log.seal()
    with opened(path) as log, pytest.raises(SealError):
        log.bookmarks.delete("plain")


def test_log_goes_on_after_a_subject_was_erased(log: TurnLog, path: Path, seals: SealFolder) -> None:
    """Other threads and subjects are as they were; what continues the erased turns says whose it is; so does a name."""
    log.seal()
    ada = log.add_turn("hers", subject="Ada", bookmark="main")
    bob = log.add_turn("his", subject="Bob", bookmark="bob")
    log.holds.set("old", turn=ada.id)
    log.holds.release("old")
    report = log.erase(subject="Ada", reason="asked")
    assert (report.turns, report.keys) == ((ada.id,), (ada.sealed,))
    assert log.payload(bob.id) == content_bytes("his")
    assert log.add_turn("and on", continues=ada.id, subject=False).sealed == seals.make(None).id
    assert log.holds.all() == []
    new = log.add_turn("again", subject="Ada", bookmark="main")
    assert new.sealed not in {ada.sealed, None}
    assert log.payload(new.id) == content_bytes("again")
    assert log.erase(subject="Ada", reason="asked").keys == (new.sealed,)
    assert log.verify().clean
    with opened(path, seals_in(path.parent.parent / "keys")) as again:
        assert again.verify() == log.verify()


def test_key_that_another_process_destroyed_is_noticed(log: TurnLog, path: Path, tmp_path: Path) -> None:
    """A log that had the key in memory does not give the content any more, nor seal with it."""
    log.seal("Ada")
    ada = log.add_turn("hers", subject="Ada", bookmark="main")
    large = log.add_turn("hers " * 50_000, continues="main")
    assert log.context("main").messages
    assert seals_in(tmp_path / "keys").destroy("Ada") == (ada.sealed,)
    for turn in (ada, large):
        with pytest.raises(SealedError):
            log.payload(turn.id)
        assert log.turn(turn.id).closed
    for text in ("next", "next " * 50_000):
        assert log.add_turn(text, continues=large.id, subject=False, bookmark=False).sealed not in {ada.sealed, None}
    new = log.add_turn("a new one", subject="Ada")
    assert new.sealed not in {ada.sealed, None}
    with opened(path, seals_in(tmp_path / "keys")) as other:
        other.erase(thread=ada.id, reason="asked")
    assert all(message.erased for message in log.context(large.id).messages)
    report = log.verify()
    assert (report.clean, report.erased) == (True, 4)


def test_key_that_cannot_be_destroyed_is_told_and_tried_again(
    log: TurnLog, seals: SealFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is erased then."""
    log.seal("Ada")
    ada = log.add_turn("hers", subject="Ada", bookmark="main")
    assert not log.context("main").messages[0].erased

    def fail(subject: str) -> tuple[str, ...]:
        raise SealError(f"the key of {subject!r} cannot be removed")

    monkeypatch.setattr(seals, "destroy", fail)
    with pytest.raises(SealError, match="cannot be removed"):
        log.erase(subject="Ada", reason="asked")
    monkeypatch.undo()
    assert not log.context(ada.id).messages[0].erased
    assert log.verify().erased == 0
    report = log.erase(subject="Ada", reason="asked")
    assert (report.events, report.keys) == (1, (ada.sealed,))


def test_subject_that_another_process_erased_is_closed_at_once(log: TurnLog, path: Path, tmp_path: Path) -> None:
    """Windows that were kept are not given any more."""
    log.seal()
    ada = log.add_turn("hers", subject="Ada", bookmark="main")
    assert not log.context("main").messages[0].erased
    with opened(path, seals_in(tmp_path / "keys")) as other:
        assert other.erase(subject="Ada", reason="asked").keys
    assert log.context(ada.id).messages[0].erased
    assert log.add_turn("and on", continues=ada.id, subject=False).meta.head is None
    assert log.verify().clean


# Many at once


def test_threads_that_record_for_different_subjects_at_once(log: TurnLog, seals: SealFolder) -> None:
    """Group commit: each turn is sealed under the key of its subject, and says what it was given."""
    log.seal("subject 1")
    log.seal("subject 2")
    errors: list[BaseException] = []
    found: dict[int, list[str]] = {}

    def work(number: int) -> None:
        try:
            subject = f"subject {number % 4}" if number % 4 else None
            found[number] = [
                log.add_turn(
                    f"{number} {at} " * (1 if at % 5 else 30_000),
                    **({"continues": f"b{number}"} if at else {"bookmark": f"b{number}", "subject": subject}),
                ).id
                for at in range(25)
            ]
        except BaseException as error:  # noqa: BLE001 - told by the test
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    expected = {1: seals.make("subject 1").id, 2: seals.make("subject 2").id}
    for number, ids in found.items():
        assert {log.turn(turn).sealed for turn in ids} == {expected.get(number % 4)}
        for at, turn in enumerate(ids):
            assert log.payload(turn) == content_bytes(f"{number} {at} " * (1 if at % 5 else 30_000))
    assert len(names(log)) == 8
    assert log.verify().clean


def test_nothing_plain_follows_in_the_same_commit(log: TurnLog) -> None:
    """Where others record at the same time as the log is sealed, they are before it or sealed."""
    log.add_turn("first")
    barrier = threading.Barrier(9)
    errors: list[BaseException] = []

    def record(number: int) -> None:
        try:
            barrier.wait()
            for at in range(20):
                log.add_turn(f"{number} {at}", bookmark=f"b{number}")
        except BaseException as error:  # noqa: BLE001 - told by the test
            errors.append(error)

    def seal() -> None:
        barrier.wait()
        log.seal()

    threads = [threading.Thread(target=record, args=(number,)) for number in range(8)]
    threads.append(threading.Thread(target=seal))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    topics = unsealed(log)
    assert set(topics) <= {BOOKMARK}, "a plain name is given up in plain"
    assert log.verify().clean


def test_requests_of_one_commit_see_what_was_sealed_before_them(log: TurnLog) -> None:
    """A commit takes requests of many threads: those behind the one that seals are sealed."""
    log.add_turn("first")
    inside, waiting = threading.Event(), threading.Event()

    def hold(_: Any) -> None:
        inside.set()
        assert waiting.wait(30)

    def later(action: Callable[[], Any]) -> threading.Thread:
        thread = threading.Thread(target=action)
        thread.start()
        return thread

    threads = [later(lambda: log.store.write(hold))]
    assert inside.wait(30)
    group = log.store._appender._group  # who waits for the next commit, in their order
    for count, action in enumerate([log.seal, lambda: log.add_turn("behind"), lambda: log.seal("Ada")], 1):
        threads.append(later(action))
        while len(group._waiting) < count:
            threading.Event().wait(0.001)
    waiting.set()
    for thread in threads:
        thread.join()
    assert [event.header.topic for event in log.events()][2:] == [SEAL, TURN, SEAL]
    assert unsealed(log) == []


def test_seal_that_fails_leaves_the_others_of_its_commit_plain(log: TurnLog) -> None:
    """A commit that is rolled back takes what it said of sealing with it."""
    log.add_turn("first")
    write = log.store.write

    def fail_after(plan: Callable[[Any], Any]) -> Any:
        def failing(transaction: Any) -> Any:
            plan(transaction)
            raise SealError("it fails after it was appended")

        return write(failing)

    log.store.write = fail_after
    with pytest.raises(SealError, match="it fails"):
        log.seal()
    log.store.write = write
    assert log.add_turn("second").sealed is None
    assert log.seal().event is not None
    assert log.add_turn("third").sealed is not None


def _append(path: Path, folder: Path) -> list[tuple[int, bool]]:
    """Append until some turns were sealed, and return where each is and whether it is sealed."""
    turns: list[tuple[int, bool]] = []
    with opened(path, seals_in(folder)) as log:
        while sum(sealed for _, sealed in turns) < 20:
            turn = log.add_turn("said " * 20, bookmark="appended")
            turns.append((turn.global_position, turn.sealed is not None))
    return turns


def _seal(path: Path, folder: Path, after: int) -> int:
    with opened(path, seals_in(folder)) as log:
        log.wait(after, 30)
        log.seal()
        return log.stats().events


@pytest.mark.timeout(120)
def test_processes_notice_that_another_one_has_sealed_the_log(path: Path, tmp_path: Path) -> None:
    """No turn behind the `log.seal` event is plain, in whatever process it was recorded."""
    folder = tmp_path / "keys"
    with opened(path, seals_in(folder)) as log:
        log.add_turn("first")
        [one, other, _] = run_processes(
            [(_append, (path, folder)), (_append, (path, folder)), (_seal, (path, folder, 40))]
        )
        [said] = log.events(topics=[SEAL])
        turns = [*one, *other]
        assert [sealed for position, sealed in turns if position < said.global_position].count(True) == 0
        assert {sealed for position, sealed in turns if position > said.global_position} == {True}
        assert log.add_turn("last").sealed is not None, "a process that had the log open all the time too"
        assert len(names(log)) == 1
        assert log.verify().clean


def test_open_log_notices_at_its_next_append(log: TurnLog, path: Path, tmp_path: Path) -> None:
    """Without a moment in between, small or large."""
    for text, other_text in (("x", "y"), ("x" * 200_000, "y" * 200_000)):
        log.add_turn(text, subject=text[:1])
        with opened(path, seals_in(tmp_path / "keys")) as other:
            other.seal(text[:1])
        assert log.add_turn(other_text, subject=text[:1]).sealed is not None


# Export and import


def exported(log: TurnLog, headish: str | None = None) -> io.BytesIO:
    """Return an export, to be read from its beginning."""
    file = io.BytesIO()
    log.export(file, headish)
    file.seek(0)
    return file


@pytest.mark.parametrize("importer_has_keys", [True, False])
@pytest.mark.parametrize("exporter_has_keys", [True, False])
def test_whole_log_is_restored(
    closed: TurnLog, path: Path, seals: SealFolder, tmp_path: Path, *, exporter_has_keys: bool, importer_has_keys: bool
) -> None:
    """An export is the same with keys and without, and so is what it restores: sealed as it was."""
    with opened(path, seals) as log:
        assert exported(log).getvalue() == exported(closed).getvalue()
        file = exported(log if exporter_has_keys else closed)
    for secret in (b"answered", b"of a document"):
        assert secret not in file.getvalue()
    copy = tmp_path / "copy.db"
    with opened(copy, seals if importer_has_keys else None) as log:
        report = log.import_turnlog(file)
        assert report.added == closed.stats().events
        assert log.verify().clean
        assert [(event.state, event.private_state) for event in log.events()] == [
            (event.state, event.private_state) for event in closed.events()
        ]
        assert log.turn(ADA).closed is not importer_has_keys
        file.seek(0)
        assert log.import_turnlog(file).added == 0
        if not importer_has_keys:
            with pytest.raises(SealError):
                log.add_turn("x")
    assert tables(copy)["bookmarks"] == tables(path)["bookmarks"]
    with opened(copy, seals) as log:
        assert log.payload("main") == b"of a document"
        assert set(names(log)) == {"plain", "main", "bob"}
        assert log.add_turn("it is sealed here too", continues="main").sealed is not None
        assert log.verify().clean


@pytest.mark.parametrize("headish", [None, ADA])
def test_sealed_events_are_guests_of_another_log(
    closed: TurnLog, path: Path, seals: SealFolder, tmp_path: Path, headish: str | None
) -> None:
    """With keys their bookmarks are set, sealed; without keys none are. The other log is not sealed by it."""
    with opened(path, seals) as log:
        file = exported(log, headish)
    copy = tmp_path / "copy.db"
    with opened(copy) as log:
        log.add_turn("mine", bookmark="mine")
        log.import_turnlog(file)
        assert names(log).keys() <= {"mine", "plain"}
        assert log.turn(ADA).closed
        assert log.verify().clean
        assert log.add_turn("still plain", continues="mine").sealed is None
    other = tmp_path / "other.db"
    with opened(other, seals) as log:
        log.add_turn("mine", bookmark="mine")
        file.seek(0)
        log.import_turnlog(file)
        expected = {"mine", "main"} | ({"plain", "bob"} if headish is None else set())
        assert set(names(log)) == expected
        assert log.payload(ADA) == content_bytes("said")
        assert log.add_turn("still plain", continues="mine").sealed is None
        on = log.add_turn("and on", continues=ADA, bookmark="on")
        assert on.sealed == log.turn(ADA).sealed
        # A plain turn that takes a bookmark from a sealed guest takes its name over.
        here = log.add_turn("here", bookmark="main")
        assert (here.sealed, names(log)["main"]) == (None, here.id)
        assert log.verify().clean
    with opened(other) as log, pytest.raises(SealError):
        log.add_turn("may be that one", bookmark="on")


@pytest.mark.parametrize("has_folder", [False, True])
def test_sealed_guests_keep_no_subject_from_being_erased(closed: TurnLog, tmp_path: Path, *, has_folder: bool) -> None:
    """Whose they are cannot be seen without their keys, and is told; a hold on a subject holds each of them."""
    file = exported(closed)
    keys = seals_in(tmp_path / "none") if has_folder else None
    with opened(tmp_path / "other.db", keys) as other:
        turn = other.add_turn("mine", subject="Ben")
        held = other.add_turn("held", subject="Cat")
        other.import_turnlog(file)
        sealed = [event.header.id for event in other.events(topics=TURN) if event.sealed]
        assert ADA in sealed
        other.holds.set("case", subject="Cat")
        report = other.erase(subject="Ben", reason="asked")
        assert (report.turns, report.unseen) == ((turn.id,), tuple(sealed))
        with pytest.raises(SealError, match="'case'"):
            other.erase(turn=sealed[0], reason="asked")
        other.holds.release("case")
        assert other.erase(turn=sealed[0], reason="asked").turns == (sealed[0],)
        assert other.verify().clean
        assert not other.turn(held.id).erased


def test_plain_log_is_imported_into_a_sealed_one(log: TurnLog, tmp_path: Path) -> None:
    """Its events are what they are; what is recorded here for it is sealed."""
    with opened(tmp_path / "plain.db") as plain:
        plain.add_turn("plain", bookmark="theirs")
        file = exported(plain)
    log.seal()
    log.import_turnlog(file)
    assert log.payload("theirs") == content_bytes("plain")
    assert last(log, BOOKMARK).sealed is not None
    assert log.verify().clean


def test_part_of_a_log_that_was_erased_and_sealed(log: TurnLog) -> None:
    """Both come over as what they are."""
    log.seal()
    root = log.add_turn("root", bookmark="main")
    log.add_turn("next", continues="main")
    log.erase(turn=root.id, reason="asked")
    with TurnLog.open("memory://") as other:
        other.import_turnlog(exported(log, "main"))
        report = other.verify()
        assert (report.clean, report.erased) == (True, 1)


# Other ways in


def test_log_in_memory_can_be_sealed(seals: SealFolder) -> None:
    """All is the same without files."""
    with TurnLog.open("memory://", seals=seals) as log:
        plain = log.add_turn("plain", bookmark="main")
        log.seal()
        ada = log.add_turn("hers " * 40_000, continues="main", subject="Ada")
        assert log.payload("main") == content_bytes("hers " * 40_000)
        assert log.erase(subject="Ada", reason="asked").keys == (ada.sealed,)
        assert log.verify().clean
        assert log.add_turn("and on", continues=plain.id).sealed is not None


def test_async_log_can_be_sealed(seals: SealFolder, path: Path) -> None:
    """It waits for the same."""

    async def run() -> None:
        async with await AsyncTurnLog.open(f"sqlite:///{path}", seals=seals) as log:
            await log.seal("Ada", by="me")
            turns = await asyncio.gather(*(log.add_turn(f"{number}", subject="Ada") for number in range(10)))
            assert {turn.sealed for turn in turns} == {seals.make("Ada").id}
            assert await log.payload(turns[3].id) == content_bytes("3")
            assert len((await log.erase(subject="Ada", reason="asked")).keys) == 1
            assert (await log.verify()).clean

    asyncio.run(run())


# Any log


class _Step(msgspec.Struct, frozen=True):
    """A step of a random log: numbers choose among the turns that there are."""

    kind: str
    first: int
    second: int
    subject: str | None
    text: str


_steps = st.lists(
    st.builds(
        _Step,
        kind=st.sampled_from(
            ["turn", "turn", "turn", "next", "next", "merge", "set", "rename", "delete", "event", "call"]
        ),
        first=st.integers(0, 50),
        second=st.integers(0, 50),
        subject=st.sampled_from([None, "Ada", "Bob", "Carol"]),
        text=st.text(max_size=20) | st.sampled_from(["long " * 40, "large " * 12_000]),
    ),
    max_size=25,
)


def _play(log: TurnLog, steps: list[_Step], sealings: dict[int, str | None]) -> list[str]:
    ids: list[str] = []
    for at, step in enumerate(steps):
        if at in sealings:
            log.seal(sealings[at])
        name = f"b{step.second % 4}"
        if step.kind != "turn" and not ids:
            continue
        one, other = (ids[number % len(ids)] if ids else "" for number in (step.first, step.second))
        turn_id = f"{at:025d}"
        with suppress(UnknownBookmarkError, BookmarkExistsError):
            match step.kind:
                case "turn":
                    ids.append(log.add_turn(step.text, subject=step.subject, bookmark=name, id=turn_id).id)
                case "next":
                    ids.append(log.add_turn(step.text, continues=one, inherited={step.text[:3]: 1}, id=turn_id).id)
                case "merge":
                    merged = log.add_turn(step.text, continues=[one, other], subject=step.subject, id=turn_id)
                    ids.append(merged.id)
                case "set":
                    log.bookmarks.set(name, one)
                case "rename":
                    log.bookmarks.rename(name, f"b{step.first % 4}")
                case "delete":
                    log.bookmarks.delete(name)
                case "event":
                    log.add_event("acme.note", step.text.encode(), private={"x": step.text}, cites=[("of", one)])
                case _:
                    call = log.calls.record(
                        one, request([message.content_json for message in log.context(one).messages])
                    )
                    assert log.calls.request(call)
    return ids


def _seen(log: TurnLog, ids: list[str]) -> list[Any]:
    windows = [
        [(message.turn, message.role, message.content_json) for message in log.context(turn).messages] for turn in ids
    ]
    turns = [(turn.hash, turn.size, turn.meta.head, turn.meta.subject) for turn in map(log.turn, ids)]
    options = [log.context(turn).options for turn in ids]
    return [windows, turns, options, names(log), [log.payload(turn) for turn in ids]]


@settings(max_examples=60)
@given(steps=_steps, sealings=st.dictionaries(st.integers(0, 20), st.sampled_from([None, "Ada", "Bob"]), max_size=3))
def test_sealed_log_says_what_a_plain_one_says(steps: list[_Step], sealings: dict[int, str | None]) -> None:
    """Windows, turns and bookmarks are the same with the keys; without them it verifies."""
    seals = SealsInMemory()
    with TurnLog.open("memory://") as plain, TurnLog.open("memory://", seals=seals) as sealed:
        ids = _play(plain, steps, {})
        assert _play(sealed, steps, sealings) == ids
        assert _seen(sealed, ids) == _seen(plain, ids)
        assert sealed.verify().clean
        with TurnLog.open("memory://") as without, TurnLog.open("memory://", seals=seals) as restored:
            if sealed.stats().events:
                without.import_turnlog(exported(sealed))
                restored.import_turnlog(exported(without))
                assert without.verify().clean
                assert _seen(restored, ids) == _seen(plain, ids)
                assert len(without.bookmarks.all()) == len(plain.bookmarks.all())
