"""The facade: every public method, and every error that its docstring names."""

import asyncio
import inspect
import io
import itertools
import json
import pickle
import re
import time
from base64 import b64decode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import Raw
from tests.rewriting import erase
from tests.sealed_log import SealsInMemory

import turnlog
from turnlog import Ask, AsyncTurnLog, Bookmark, Document, Origin, Text, Thread, ToolUse, TurnLog, Usage, errors
from turnlog.audit.holding import Holds
from turnlog.context import Projector
from turnlog.digest import payload_hash
from turnlog.errors import (
    BookmarkExistsError,
    ContentError,
    CorruptionError,
    DocumentError,
    ErasedError,
    FormatError,
    HeadConflictError,
    HoldError,
    IdConflictError,
    InputError,
    MetaError,
    NotFoundError,
    SchemaError,
    SealError,
    SecretError,
    StoreClosedError,
    StoreOpenError,
    TurnlogError,
    UnknownBookmarkError,
    UnknownCallError,
    UnknownTurnError,
)
from turnlog.events import Arrival, metadata
from turnlog.feeds.sinks import JSONLines
from turnlog.ids import new_id
from turnlog.log import LogStats
from turnlog.model import ReplyFacts
from turnlog.projections import synchronous
from turnlog.providers import Connection, get
from turnlog.record import Note, turn_draft
from turnlog.registers import Bookmarks
from turnlog.sources import Sources
from turnlog.store import open_store
from turnlog.turn import Turn

PARTS: dict[str, type] = {"bookmarks": Bookmarks, "holds": Holds}
OTHERS = {"audit", "calls", "executors", "feeds", "pointers", "providers", "registers", "servers", "tool_calls"}
"""Parts that have tests of their own elsewhere."""

METHODS: dict[str, object] = {
    **{
        name: member
        for name, member in vars(TurnLog).items()
        if not name.startswith("_") and name not in PARTS and name not in OTHERS
    },
    **{
        f"{part}.{name}": member
        for part, kind in PARTS.items()
        for name, member in vars(kind).items()
        if not name.startswith("_")
    },
}
"""What can be asked of a log, with what is asked of its parts that have no page of tests of their own."""


@pytest.fixture
def story(log: TurnLog) -> TurnLog:
    """Give a log with a bookmarked run of two turns and a fork."""
    root = log.add_turn("hello", bookmark="main", servers=["fs"])
    log.add_turn("hi", role="assistant", continues="main")
    log.add_turn("again", continues=root.id, bookmark="fork")
    return log


def test_public_names_exist_and_are_sorted() -> None:
    """Everything that the package promises is there, once each, and every error with its root."""
    assert len(set(turnlog.__all__)) == len(turnlog.__all__)
    assert all(hasattr(turnlog, name) for name in turnlog.__all__)
    assert {"TurnLog", "Turn", "TurnlogError"} <= set(turnlog.__all__)


def test_log_is_put_together_from_parts() -> None:
    """Store, sources and projector are given, so that a test or a host can choose them."""
    ids, times, salts = (itertools.count() for _ in range(3))
    sources = Sources(
        new_id=lambda: f"{next(ids):025d}",
        time_ms=lambda: 1_700_000_000_000 + next(times),
        salt=lambda: next(salts).to_bytes(16, "big"),
    )
    with TurnLog(
        open_store("memory://", projections=synchronous()),
        sources=sources,
        projector=Projector(cache_bytes_max=0),
    ) as log:
        turn = log.add_turn("x")
        assert turn.id == f"{0:025d}"
        log.bookmarks.set("main", turn.id)
        recorded = list(log.events())
        assert {event.header.id for event in recorded} == {f"{number:025d}" for number in range(3)}
        assert {event.header.time for event in recorded} == {1_700_000_000_000 + number for number in range(3)}
        assert [event.private.salt[-1] for event in recorded if event.private is not None] == [0, 1]
        assert len(log.context("main").messages) == 1


@pytest.mark.parametrize("kind", [TurnLog, AsyncTurnLog])
def test_a_log_is_not_made_of_where_its_store_is(kind: Any, tmp_path: Path) -> None:
    """What a newcomer may write says at once how it is meant."""
    for place in ("log.db", f"sqlite:///{tmp_path}/log.db", tmp_path / "log.db"):
        with pytest.raises(StoreOpenError, match=rf"open it with {kind.__name__}\.open"):
            kind(place)


async def _wanted(_turn: Turn) -> bool:
    return True


async def _among(_thread: Thread) -> bool:
    return True


MISTAKES: dict[str, tuple[Callable[[TurnLog, Turn], object], str]] = {
    "context": (lambda log, turn: log.context(cast("Any", turn)), r"got Turn: of a turn give turn\.id"),
    "bookmark": (lambda log, turn: log.bookmarks.set("a", cast("Any", turn)), r"got Turn: of a turn give turn\.id"),
    "run": (lambda log, turn: log.run("x", continues=cast("Any", turn), pointer="p"), r"continues: .* turn\.id"),
    "continues": (lambda log, turn: log.add_turn("x", continues=cast("Any", [turn])), r"continues: .* give turn\.id"),
    "erase": (lambda log, turn: log.erase(turn=cast("Any", turn), reason="x"), r"turn: .* of a turn give turn\.id"),
    "events": (lambda log, turn: list(log.events(thread=cast("Any", turn))), r"thread: .* of a turn give turn\.id"),
    "search": (lambda log, turn: log.feeds.search("x", thread=cast("Any", turn)), r"thread: .* give turn\.id"),
    "text": (lambda log, _: log.text(cast("Any", None)), "expected an id or a name, got NoneType"),
    "export": (lambda log, _: log.export(cast("Any", "out.jsonl")), "file: expected a file that is open for bytes"),
    "export to text": (lambda log, _: log.export(cast("Any", io.StringIO())), "file: .* open for bytes.* got StringIO"),
    "export turn": (lambda log, turn: log.export(io.BytesIO(), cast("Any", turn)), r"of a turn give turn\.id"),
    "export limit": (lambda log, _: log.export(io.BytesIO(), limit=cast("Any", "3")), "limit: expected int, got str"),
    "import": (lambda log, _: log.import_turnlog(cast("Any", "x.jsonl")), r"open for bytes, as of open\(…, 'rb'\)"),
    "retain": (lambda log, _: log.retain(cast("Any", "7d")), "older_than: expected timedelta, got str"),
    "wanted": (lambda log, _: log.latest(3, wanted=cast("Any", _wanted)), "wanted: expected a plain function"),
    "among": (lambda log, _: log.threads(3, among=cast("Any", _among)), "among: .* which is given a thread"),
    "latest": (lambda log, _: log.latest(cast("Any", "3")), "limit: expected int, got str"),
    "threads": (lambda log, _: log.threads(cast("Any", "3")), "limit: expected int, got str"),
    "document": (lambda log, _: log.add_document(cast("Any", None)), "path: expected the path of a file, got NoneType"),
    "bookmark name": (lambda log, _: log.bookmarks.get(cast("Any", None)), "name: expected str, got NoneType"),
    "timeout": (
        lambda _log, _: TurnLog.open("memory://", busy_timeout_s=cast("Any", None)),
        "busy_timeout_s: expected",
    ),
    "pickle": (lambda log, _: pickle.dumps(log), "in another process, open it again with TurnLog.open"),
    "event": (lambda log, _: log.add_event("acme.x", cast("Any", "text")), "payload: expected bytes, got str"),
    "group": (lambda log, _: log.add_group(cast("Any", ["x"])), "a group is of turn drafts and notes, got str"),
    "on_event": (lambda log, _: log.run("x", pointer="p", on_event=cast("Any", 5)), "on_event: expected a function"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_a_caller_is_told_before_anything_is_recorded(mistake: str) -> None:
    """By one line, and by no error from the depths."""
    call, told = MISTAKES[mistake]
    with TurnLog.open("memory://") as log:
        turn = log.add_turn("Hi.")
        with pytest.raises(TurnlogError, match=told):
            call(log, turn)
        assert [each.id for each in log.latest(9)] == [turn.id]


def test_opening_nothing_is_refused(tmp_path: Path) -> None:
    """A malformed URL, or no store where one must be, is a store error."""
    with pytest.raises(StoreOpenError):
        TurnLog.open("nonsense")
    with pytest.raises(StoreOpenError):
        TurnLog.open(f"sqlite:///{tmp_path}/absent.db", create=False)


def test_leaving_the_context_closes_the_log() -> None:
    """The log is closed after `with`, also when the block raises, and the error passes."""
    with pytest.raises(ZeroDivisionError), TurnLog.open("memory://") as log:
        raise ZeroDivisionError
    with pytest.raises(StoreClosedError):
        log.threads()


def grouped(log: TurnLog) -> None:
    """Record a group."""
    with log.group() as group:
        group.add_turn("x")


def test_every_method_of_a_closed_log_says_so(tmp_path: Path) -> None:
    """After closing, each method but `close` raises the same error."""
    (tmp_path / "a").write_bytes(b"x")
    log = TurnLog.open("memory://")
    turn = log.add_turn("x", bookmark="main").id
    exported = io.BytesIO()
    log.export(exported)
    log.close()
    log.close()
    calls: dict[str, Callable[[], object]] = {
        "add_turn": lambda: log.add_turn("x"),
        "add_document": lambda: log.add_document(tmp_path / "a"),
        "add_event": lambda: log.add_event("acme.note", b"x"),
        "add_group": lambda: log.add_group([turn_draft("x")]),
        "group": lambda: grouped(log),
        "event": lambda: log.event(turn),
        "id": lambda: log.id,
        "wait": lambda: log.wait(0, 0),
        "turn": lambda: log.turn(turn),
        "ancestry": lambda: log.ancestry(turn),
        "children": lambda: log.children(turn),
        "compare": lambda: log.compare(turn, turn),
        "latest": lambda: log.latest(1),
        "turn_count": log.turn_count,
        "thread": lambda: log.thread(turn),
        "threads": log.threads,
        "content": lambda: log.content(turn),
        "text": lambda: log.text(turn),
        "payload": lambda: log.payload(turn),
        "events": lambda: list(log.events()),
        "context": lambda: log.context(turn),
        "compact": lambda: log.compact(turn, text="x"),
        "bookmarks.all": log.bookmarks.all,
        "bookmarks.get": lambda: log.bookmarks.get("main"),
        "bookmarks.check_name": lambda: log.bookmarks.check_name("x"),
        "bookmarks.set": lambda: log.bookmarks.set("x", turn),
        "bookmarks.rename": lambda: log.bookmarks.rename("main", "x"),
        "bookmarks.delete": lambda: log.bookmarks.delete("main"),
        "import_claude_code": lambda: log.import_claude_code(tmp_path / "session.jsonl"),
        "import_transcript": lambda: log.import_transcript("claude-code", tmp_path / "session.jsonl"),
        "export": lambda: log.export(io.BytesIO()),
        "copy_to": lambda: log.copy_to(f"sqlite:///{tmp_path}/copy.db"),
        "import_turnlog": lambda: log.import_turnlog(io.BytesIO(exported.getvalue())),
        "run": lambda: log.run("x", provider="anthropic", model="m", ask=Ask(connection=Connection(api_key="k"))),
        "arun": lambda: asyncio.run(
            log.arun("x", provider="anthropic", model="m", ask=Ask(connection=Connection(api_key="k")))
        ),
        "run_events": lambda: asyncio.run(
            log.run_events(
                "x", provider="anthropic", model="m", ask=Ask(connection=Connection(api_key="k"))
            ).__anext__()
        ),
        "verify": log.verify,
        "rebuild_projections": log.rebuild_projections,
        "stats": log.stats,
        "seal": log.seal,
        "erase": lambda: log.erase(turn=turn, reason="r"),
        "finish_erasing": log.finish_erasing,
        "retain": lambda: log.retain(timedelta(days=1)),
        "holds.all": log.holds.all,
        "holds.get": lambda: log.holds.get("h"),
        "holds.set": lambda: log.holds.set("h", turn=turn),
        "holds.release": lambda: log.holds.release("h"),
    }
    (tmp_path / "session.jsonl").write_text(
        '{"type":"user","uuid":"u","parentUuid":null,"sessionId":"s","timestamp":"2025-01-01T00:00:00Z",'
        '"message":{"role":"user","content":"x"}}\n'
    )
    assert calls.keys() == METHODS.keys() - {"open", "close"}
    for call in calls.values():
        with pytest.raises(StoreClosedError):
            call()


OF_PARTS: dict[str, Callable[[TurnLog], object]] = {
    "calls.forget": lambda log: log.calls.forget(),
    "feeds.all": lambda log: log.feeds.all(),
    "feeds.get": lambda log: log.feeds.get("x"),
    "feeds.remove": lambda log: log.feeds.remove("x"),
    "feeds.move": lambda log: log.feeds.move("x", 0),
    "feeds.delivered_to": lambda log: log.feeds.delivered_to([]),
    "feeds.forget_erased": lambda log: log.feeds.forget_erased(),
    "feeds.feed": lambda log: log.feeds.feed(JSONLines("x")),
    "feeds.runner": lambda log: log.feeds.runner(),
    "feeds.run": lambda log: log.feeds.run(),
    "feeds.built": lambda log: log.feeds.built(),
    "feeds.rebuild": lambda log: log.feeds.rebuild("x"),
    "feeds.skip": lambda log: log.feeds.skip("x", "why"),
    "feeds.unsearchable": lambda log: log.feeds.unsearchable(),
}
"""What parts of a log could do without asking its store anything."""


def test_parts_of_a_closed_log_say_so_too(tmp_path: Path) -> None:
    """Whatever they would have answered without their store, which a log that is closed has no more."""
    log = TurnLog.open(f"sqlite:///{tmp_path}/log.db")
    log.add_turn("x")
    log.close()
    for call in OF_PARTS.values():
        with pytest.raises(StoreClosedError):
            call(log)


class TestTurn:
    """Recorded turns as values."""

    def test_record_has_id_hash_and_resolved_metadata(self, story: TurnLog) -> None:
        """`to_record` gives `{id, hash, meta, …}` as plain values that JSON carries."""
        root, reply = story.ancestry("main")
        record = reply.to_record()
        assert record["id"] == reply.id
        assert record["hash"] == payload_hash(story.payload(reply.id))
        assert {**record["meta"], "continues": tuple(record["meta"]["continues"])} == {
            "role": "assistant",
            "content_type": "application/json",
            "head": "main",
            "cache": False,
            "continues": (root.id,),
        }
        assert root.to_record()["meta"]["inherited"] == {"servers": ["fs"]}
        assert json.loads(json.dumps(record))["time"].endswith("+00:00")

    def test_every_field_of_a_turn_is_kept(self, log: TurnLog) -> None:
        """What was given is what is read back."""
        asked = log.add_turn("Hello")
        request = get("anthropic").prepare_request(log.context(asked.id), model="m")
        call = log.calls.record(asked.id, request)
        origin = Origin(format="f", ids=["1", "2"], session="s", timestamp="t", message_id="m", request_id="r")
        turn = log.add_turn(
            "x",
            role="assistant",
            cache=True,
            reply=ReplyFacts(
                model="m",
                provider="p",
                api="a",
                stop_reason="end_turn",
                usage=Usage(input_tokens=1, cache_read_input_tokens=2),
                error="e",
            ),
            call=call.upper(),
            origin=origin,
            provider_ptr="nano",
            search=False,
            tool_mode="auto",
            inherited={"further": None},
        )
        meta = log.turn(turn.id).meta
        assert log.turn(turn.id) == turn
        assert (meta.role, meta.cache, meta.model, meta.provider, meta.api) == ("assistant", True, "m", "p", "a")
        assert (meta.stop_reason, meta.call, meta.error, meta.origin) == ("end_turn", call, "e", origin)
        assert meta.usage == Usage(input_tokens=1, cache_read_input_tokens=2)
        assert meta.inherited == {"provider_ptr": "nano", "search": False, "tool_mode": "auto", "further": None}
        assert meta.head is None

    def test_content_forms_are_one_payload(self, log: TurnLog) -> None:
        """Text, a list of texts, blocks, mappings and JSON of the same content have the same hash."""
        forms: list[Any] = [
            log.add_turn("x"),
            log.add_turn(["x"]),
            log.add_turn([turnlog.Text(text="x")]),
            log.add_turn([{"type": "text", "text": "x"}]),
            log.add_turn('"x"', json=True),
            log.add_turn('[ {"type": "text", "text": "x"} ]', json=True),
        ]
        assert {turn.hash for turn in forms} == {forms[0].hash}
        assert log.payload(forms[0].id) == b'[{"type":"text","text":"x"}]'


def _erase_without_keys(path: Path) -> None:
    url = f"sqlite:///{path}/sealed.db"
    with TurnLog.open(url, seals=SealsInMemory()) as log:
        log.seal("Ada")
    with TurnLog.open(url) as closed:
        closed.erase(subject="Ada", reason="r")


CASES: dict[str, tuple[type[TurnlogError], Callable[[TurnLog, Path], object]]] = {
    "add_turn ContentError": (ContentError, lambda log, _: log.add_turn([{"type": "x"}])),
    "add_turn MetaError": (MetaError, lambda log, _: log.add_turn("x", role="x")),
    "add_turn SecretError": (SecretError, lambda log, _: log.add_turn("x", inherited={"api_key": "x"})),
    "add_turn UnknownTurnError": (UnknownTurnError, lambda log, _: log.add_turn("x", continues="x")),
    "add_turn HeadConflictError": (
        HeadConflictError,
        lambda log, _: log.add_turn("x", continues="main", expected_head=False),
    ),
    "add_turn IdConflictError": (IdConflictError, lambda log, _: log.add_turn("x", id=log.turn("main").id)),
    "add_turn UnknownCallError": (UnknownCallError, lambda log, _: log.add_turn("x", call=new_id())),
    "add_document DocumentError": (DocumentError, lambda log, path: log.add_document(path / "absent")),
    "add_document DocumentError ": (DocumentError, lambda log, path: log.add_document(path / "a", bytes_max=0)),
    "add_document MetaError": (MetaError, lambda log, path: log.add_document(path / "a", content_type="x")),
    "add_document SecretError": (
        SecretError,
        lambda log, path: log.add_document(path / "a", inherited={"password": "x"}),
    ),
    "add_document UnknownTurnError": (
        UnknownTurnError,
        lambda log, path: log.add_document(path / "a", continues="x"),
    ),
    "add_document HeadConflictError": (
        HeadConflictError,
        lambda log, path: log.add_document(path / "a", bookmark="main", expected_head=False),
    ),
    "add_document IdConflictError": (
        IdConflictError,
        lambda log, path: log.add_document(path / "a", id=log.turn("main").id),
    ),
    "add_event MetaError": (MetaError, lambda log, _: log.add_event("gpt.note")),
    "add_event SecretError": (SecretError, lambda log, _: log.add_event("acme.note", private={"api_key": "x"})),
    "add_event NotFoundError": (NotFoundError, lambda log, _: log.add_event("acme.note", cites=[("of", new_id())])),
    "add_event IdConflictError": (
        IdConflictError,
        lambda log, _: log.add_event("acme.note", id=log.turn("main").id),
    ),
    "add_group NotFoundError": (
        NotFoundError,
        lambda log, _: log.add_group([turn_draft("x"), Note(topic="gmi.input", payload=b"{}", turn=new_id())]),
    ),
    "add_group UnknownTurnError": (
        UnknownTurnError,
        lambda log, _: log.add_group([turn_draft("x", continues="nobody")]),
    ),
    "add_group InputError": (InputError, lambda log, _: log.add_group(cast("Any", ["x"]))),
    "event NotFoundError": (NotFoundError, lambda log, _: log.event(new_id())),
    "event MetaError": (MetaError, lambda log, _: log.event("main")),
    "turn UnknownTurnError": (UnknownTurnError, lambda log, _: log.turn("x")),
    "ancestry UnknownTurnError": (UnknownTurnError, lambda log, _: log.ancestry(new_id())),
    "children UnknownTurnError": (UnknownTurnError, lambda log, _: log.children("x")),
    "compare UnknownTurnError": (UnknownTurnError, lambda log, _: log.compare("main", "x")),
    "ancestry MetaError": (MetaError, lambda log, _: log.ancestry("main", cast("Any", "1"))),
    "children MetaError": (MetaError, lambda log, _: log.children("main", wanted=cast("Any", "user"))),
    "latest UnknownTurnError": (UnknownTurnError, lambda log, _: log.latest(1, "x")),
    "latest MetaError": (MetaError, lambda log, _: log.latest(1, which=cast("Any", "user"))),
    "threads MetaError": (MetaError, lambda log, _: log.threads(which=cast("Any", "user"))),
    "turn_count UnknownTurnError": (UnknownTurnError, lambda log, _: log.turn_count("x")),
    "thread UnknownTurnError": (UnknownTurnError, lambda log, _: log.thread("x")),
    "content UnknownTurnError": (UnknownTurnError, lambda log, _: log.content("x")),
    "text UnknownTurnError": (UnknownTurnError, lambda log, _: log.text("x")),
    "payload UnknownTurnError": (UnknownTurnError, lambda log, _: log.payload("x")),
    "context UnknownTurnError": (UnknownTurnError, lambda log, _: log.context("x")),
    "compact UnknownTurnError": (UnknownTurnError, lambda log, _: log.compact("x", text="x")),
    "compact MetaError": (MetaError, lambda log, _: log.compact("main")),
    "compact ContentError": (
        ContentError,
        lambda log, _: log.compact("main", text=" ", keep_first=0, keep_last=0, min_turns=1),
    ),
    "bookmarks.check_name MetaError": (MetaError, lambda log, _: log.bookmarks.check_name("")),
    "bookmarks.set MetaError": (MetaError, lambda log, _: log.bookmarks.set("", "main")),
    "bookmarks.set MetaError ": (MetaError, lambda log, _: log.bookmarks.set("x", "main", expected_head="main")),
    "bookmarks.set UnknownTurnError": (UnknownTurnError, lambda log, _: log.bookmarks.set("x", "y")),
    "bookmarks.set HeadConflictError": (
        HeadConflictError,
        lambda log, _: log.bookmarks.set("main", "fork", expected_head=False),
    ),
    "bookmarks.rename MetaError": (MetaError, lambda log, _: log.bookmarks.rename("main", new_id())),
    "bookmarks.rename UnknownBookmarkError": (UnknownBookmarkError, lambda log, _: log.bookmarks.rename("x", "y")),
    "bookmarks.rename BookmarkExistsError": (
        BookmarkExistsError,
        lambda log, _: log.bookmarks.rename("main", "fork"),
    ),
    "bookmarks.get MetaError": (MetaError, lambda log, _: log.bookmarks.get(cast("Any", None))),
    "open MetaError": (MetaError, lambda *_: TurnLog.open("memory://", busy_timeout_s=cast("Any", "5"))),
    "open MetaError, above its bound": (
        MetaError,
        lambda *_: TurnLog.open("memory://", busy_timeout_s=float("inf")),
    ),
    "open MetaError, no number": (MetaError, lambda *_: TurnLog.open("memory://", busy_timeout_s=float("nan"))),
    "bookmarks.delete MetaError": (MetaError, lambda log, _: log.bookmarks.delete(cast("Any", None))),
    "bookmarks.get UnknownBookmarkError": (UnknownBookmarkError, lambda log, _: log.bookmarks.get("x")),
    "bookmarks.delete UnknownBookmarkError": (UnknownBookmarkError, lambda log, _: log.bookmarks.delete("x")),
    "import_claude_code FormatError": (FormatError, lambda log, path: log.import_claude_code(path / "absent")),
    "import_transcript MetaError": (
        MetaError,
        lambda log, _: log.import_transcript("claude-code", cast("Any", None)),
    ),
    "import_transcript NotFoundError": (
        NotFoundError,
        lambda log, path: log.import_transcript("nonesuch", path / "a"),
    ),
    "import_transcript FormatError": (
        FormatError,
        lambda log, path: log.import_transcript("claude-code", path / "absent"),
    ),
    "export UnknownTurnError": (UnknownTurnError, lambda log, _: log.export(io.BytesIO(), "x")),
    "export NotFoundError": (NotFoundError, lambda log, _: log.export(io.BytesIO(), wanted=lambda _: False)),
    "export MetaError": (MetaError, lambda log, _: log.export(io.BytesIO(), ancestry=True)),
    "rebuild_projections MetaError": (MetaError, lambda log, _: log.rebuild_projections("turns")),
    "verify MetaError": (MetaError, lambda log, _: log.verify(since=-1)),
    "wait MetaError": (MetaError, lambda log, _: log.wait(-1, 0)),
    "rebuild_projections SchemaError": (SchemaError, lambda log, _: log.rebuild_projections(["nonesuch"])),
    "erase MetaError": (MetaError, lambda log, _: log.erase(turn="main", reason="")),
    "erase UnknownTurnError": (UnknownTurnError, lambda log, _: log.erase(turn="x", reason="r")),
    "erase SealError": (SealError, lambda _, path: _erase_without_keys(path)),
    "retain MetaError": (MetaError, lambda log, _: log.retain(timedelta(0))),
    "seal MetaError": (MetaError, lambda log, _: log.seal("")),
    "seal SealError": (SealError, lambda log, _: log.seal()),
    "holds.set MetaError": (MetaError, lambda log, _: log.holds.set("", turn="main")),
    "holds.set UnknownTurnError": (UnknownTurnError, lambda log, _: log.holds.set("h", turn="x")),
    "holds.get MetaError": (MetaError, lambda log, _: log.holds.get(cast("Any", None))),
    "holds.get HoldError": (HoldError, lambda log, _: log.holds.get("h")),
    "holds.release MetaError": (MetaError, lambda log, _: log.holds.release("h", reason=cast("str", 1))),
    "holds.release HoldError": (HoldError, lambda log, _: log.holds.release("h")),
    "import_turnlog MetaError": (
        MetaError,
        lambda log, _: log.import_turnlog(io.BytesIO(), bookmarks=cast("Any", "tkae")),
    ),
    "import_turnlog FormatError": (FormatError, lambda log, _: log.import_turnlog(io.BytesIO(b"x"))),
}


class TestErrors:
    """Every error that a docstring names is raised, and nothing is written then."""

    @pytest.mark.parametrize(("error", "call"), CASES.values(), ids=CASES)
    def test_named_error_is_raised_and_nothing_is_written(
        self, story: TurnLog, tmp_path: Path, error: type[TurnlogError], call: Callable[[TurnLog, Path], object]
    ) -> None:
        """Each error is of exactly the kind that the docstring names; messages are lower case and have no full stop."""
        (tmp_path / "a").write_bytes(b"x")
        before = [recorded.state for recorded in story.events()]
        with pytest.raises(error) as caught:
            call(story, tmp_path)
        assert type(caught.value) is error
        message = str(caught.value)
        assert message
        assert not message.endswith(".")
        assert "\n" not in message
        assert message[0] == message[0].lower()
        assert [recorded.state for recorded in story.events()] == before

    def test_every_named_error_has_a_case(self) -> None:
        """A docstring that names an error has a test that raises it, here or in the tests of damage and conflicts."""
        known = {name for name, value in vars(errors).items() if inspect.isclass(value)}
        elsewhere = {
            "open StoreOpenError",
            *(f"{method} RedactionError" for method in ("open", "add_turn", "add_document", "add_event", "add_group")),
            "import_transcript RedactionError",
            "import_transcript PluginError",
            "close StoreClosedError",
            *(f"{method} CorruptionError" for method in ("payload", "content", "text")),
            # tests/unit/context/test_compaction.py
            *(f"compact {error}" for error in ("ErasedSinceError", "RedactionError", "SecretError")),
            *(f"{method} ErasedError" for method in ("payload", "content", "text")),
            "context CorruptionError",
            "export CorruptionError",
            "export StoreBusyError",
            "import_turnlog ConflictError",
            "import_turnlog IdConflictError",
            "verify StoreReadOnlyError",
            # tests/unit/record/test_redaction.py
            *(
                f"{method} {error}"
                for method in (
                    "bookmarks.check_name",
                    "bookmarks.set",
                    "bookmarks.rename",
                    "holds.set",
                    "holds.release",
                )
                for error in ("SecretError", "RedactionError")
            ),
            # tests/unit/audit/test_erasing.py
            *(f"{method} HoldError" for method in ("erase", "retain", "holds.set")),
            "erase ConflictError",
            # tests/unit/audit/test_erasing_damaged.py
            *(f"{method} CorruptionError" for method in ("erase", "retain")),
            # tests/unit/audit/test_unerased.py
            "finish_erasing HoldError",
            # tests/unit/audit/test_copying.py
            *(f"copy_to {error}" for error in ("ConflictError", "CorruptionError", "StoreOpenError")),
            # tests/unit/store/test_postgres_sessions.py
            "copy_to StoreBusyError",
            # tests/unit/audit/test_sealing.py
            "erase SealError",
            # tests/unit/feeds/test_following.py
            *(f"events {error}" for error in ("CorruptionError", "MetaError", "StoreClosedError", "StoreCutError")),
            "events UnknownTurnError",
        }
        named = {
            f"{method} {error}"
            for method, member in METHODS.items()
            for error in known
            if re.search(rf"\b{error}\b", inspect.getdoc(member) or "")
            and method not in ("run", "arun")  # tests/agent has theirs
        }
        covered = {case.strip() for case in CASES} | elsewhere
        assert named - covered == set()

    def test_damaged_payload_is_corruption(self, file_log: TurnLog, poke: Any) -> None:
        """Neither the payload nor a window is given from bytes that do not hash."""
        turn = file_log.add_turn("x")
        poke("UPDATE stored_events SET payload = x'00'")
        for call in (file_log.payload, file_log.content, file_log.text, file_log.context):
            with pytest.raises(CorruptionError) as caught:
                call(turn.id)
            assert caught.value.global_position == 2

    def test_damaged_event_is_corruption(self, file_log: TurnLog, poke: Any) -> None:
        """No turn is given from bytes that are no event, or from a format that is not known."""
        turn = file_log.add_turn("x")
        for change in ("x'00'", "'text'", "CAST(replace(state, '\"format\":2', '\"format\":9') AS BLOB)"):
            poke(f"UPDATE stored_events SET state = {change}")
            with pytest.raises(CorruptionError):
                file_log.turn(turn.id)


class TestDocuments:
    """Files as turns."""

    def test_document_is_its_file(self, log: TurnLog, tmp_path: Path) -> None:
        """The payload is the file's exact bytes, under its hash."""
        path = tmp_path / "a.md"
        path.write_bytes(b"# \xff\x00\r\n")
        turn = log.add_document(str(path), bookmark="main", inherited={"search": True}, cache=True)
        assert log.payload("main") == path.read_bytes()
        assert turn.size == turn.meta.file_size == 6
        assert (turn.meta.type, turn.meta.document_name, turn.meta.original_path) == ("document", "a.md", str(path))
        assert (turn.meta.content_type, turn.meta.cache, turn.meta.head) == ("text/markdown", True, "main")
        assert log.context("main").options == {"search": True}

    def test_same_document_again_is_the_stored_one(self, log: TurnLog, tmp_path: Path) -> None:
        """Documents are idempotent by id: the same file again is the same turn, a changed one is refused."""
        path = tmp_path / "a.md"
        path.write_bytes(b"x")
        own = new_id()
        first = log.add_document(path, id=own)
        assert log.add_document(path, id=own) == first
        path.write_bytes(b"y")
        with pytest.raises(IdConflictError, match="content"):
            log.add_document(path, id=own)

    def test_document_continues_and_responds(self, log: TurnLog, tmp_path: Path) -> None:
        """A document has parents as any turn."""
        (tmp_path / "a").write_bytes(b"x")
        a, b = log.add_turn("a"), log.add_turn("b")
        assert log.add_document(tmp_path / "a", continues=[a.id, b.id]).continues == (a.id, b.id)
        assert log.add_document(tmp_path / "a", respond=True).global_position == 5


class TestReading:
    """Reading turns, payloads and events."""

    def test_turn_says_who_said_what(self, log: TurnLog, tmp_path: Path) -> None:
        """In one step each, whatever it is: text, calls, a document."""
        said = ["One.", ToolUse(name="go", input=Raw(b"{}"), id="t"), "Two."]
        turn = log.add_turn(said, role="assistant", bookmark="a")
        assert (turn.role, turn.head, turn.model) == ("assistant", "a", None)
        assert log.text("a") == log.text(turn) == "One.\n\nTwo."
        assert [type(block) for block in log.content(turn)] == [Text, ToolUse, Text]
        (tmp_path / "a.txt").write_text("all of it")
        document = log.add_document(tmp_path / "a.txt", continues="a")
        [block] = log.content(document)
        assert isinstance(block, Document)
        assert (b64decode(block.source.data), block.source.media_type) == (b"all of it", "text/plain")
        assert (log.text(document), document.head) == ("", "a")

    def test_payload_of_another_event_is_found_by_id(self, story: TurnLog) -> None:
        """A bookmark event has no payload, which is not the same as an unknown one."""
        turn = story.turn("main")
        assert story.payload("main") == story.payload(turn.id) == story.payload(turn.id.upper())
        story.bookmarks.set("x", "main")
        *_, event = story.events()
        with pytest.raises(UnknownTurnError, match="no payload"):
            story.payload(event.header.id)

    def test_events_come_after_a_position_and_by_topic(self, story: TurnLog) -> None:
        """Events are in global order, above a position, of chosen topics."""
        story.bookmarks.set("x", "main")
        assert [r.global_position for r in story.events()] == [1, 2, 3, 4, 5]
        assert [r.global_position for r in story.events(3)] == [4, 5]
        assert [r.global_position for r in story.events(topics=["gpt.bookmark"])] == [5]
        assert list(story.events(5)) == []

    def test_latest_turns_are_in_global_order(self, story: TurnLog) -> None:
        """Of all threads; as many as are asked for, or as there are."""
        turns = sorted(
            (turn for thread in story.threads() for turn in story.thread(thread.id)), key=attrgetter("global_position")
        )
        assert story.latest(2) == turns[-2:]
        assert story.latest(99) == turns
        assert story.latest(0) == []
        assert story.turn_count() == len(turns)

    def test_latest_turns_of_a_thread(self, story: TurnLog) -> None:
        """Those of its branches, of merged threads too, and of no other thread."""
        story.add_turn("elsewhere", bookmark="other")
        story.add_turn("both", continues=["main", "other"], bookmark=False)
        story.add_turn("alone", bookmark=False)
        for headish in ("main", "fork", "other"):
            turns = story.thread(headish)
            assert story.turn_count(headish) == len(turns)
            for limit in range(len(turns) + 2):
                assert story.latest(limit, headish) == turns[len(turns) - min(limit, len(turns)) :]

    def test_latest_turns_that_are_wanted(self, story: TurnLog) -> None:
        """Of the log and of a thread; the log is read from its end, and not further than it takes."""
        story.add_turn("elsewhere", bookmark="other")
        of_users = [turn for turn in story.latest(None) if turn.role == "user"]
        for headish, turns in ((None, of_users), ("main", [turn for turn in of_users if turn.head != "other"])):
            for limit in (None, 0, 1, 2, 9):
                last = turns[-limit:] if limit else [] if limit == 0 else turns
                assert story.latest(limit, headish, wanted=lambda turn: turn.role == "user") == last
        seen: list[Turn] = []
        story.latest(1, wanted=lambda turn: not seen.append(turn))
        assert seen == story.latest(1)

    def test_any_number_is_a_limit(self, story: TurnLog) -> None:
        """Also one that Python has no index for."""
        for headish in (None, "main"):
            assert story.latest(10**20, headish) == story.latest(None, headish)
            assert story.latest(-(10**20), headish) == []

    def test_bookmarks_children_and_thread(self, story: TurnLog) -> None:
        """The reading methods agree with each other."""
        root, reply = story.ancestry("main")
        fork = story.turn("fork")
        assert story.bookmarks.all() == [Bookmark(name="fork", turn=fork.id), Bookmark(name="main", turn=reply.id)]
        assert story.children(root.id) == [reply, fork]
        assert story.thread("fork") == [root, reply, fork]
        [thread] = story.threads()
        assert thread.heads == (reply.id, fork.id)

    def test_returned_metadata_does_not_reach_the_log(self, story: TurnLog) -> None:
        """What a caller does to the options of a turn stays with that value."""
        turn: Any = story.ancestry("main")[0]
        turn.meta.inherited["servers"].append("forged")
        assert story.turn(turn.id).meta.inherited == {"servers": ["fs"]}
        assert story.context(turn.id).options == {"servers": ["fs"]}


class TestTime:
    """When turns were recorded, and when they were said."""

    def test_time_is_that_of_the_sources(self) -> None:
        """In milliseconds, in UTC, and on the turn as on the event."""
        sources = Sources(time_ms=lambda: 1_700_000_000_123)
        with TurnLog(open_store("memory://", projections=synchronous()), sources=sources) as log:
            turn = log.add_turn("x")
            assert turn.time_ms == log.event(turn.id).header.time == 1_700_000_000_123
            assert turn.time == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
            assert turn.to_record()["time"] == "2023-11-14T22:13:20.123000+00:00"

    def test_no_caller_sets_the_time(self, log: TurnLog) -> None:
        """Neither by an argument, nor by an id that was made at another time, nor by what an import says of itself."""
        before = time.time_ns() // 1_000_000
        origin = Origin(format="f", ids=["1"], timestamp="2001-02-03T04:05:06Z")
        turn = log.add_turn("x", id="0" * 25, origin=origin)
        assert before <= turn.time_ms <= time.time_ns() // 1_000_000
        assert not {"time", "time_ms"} & inspect.signature(log.add_turn).parameters.keys()

    def test_turn_was_said_when_its_source_says(self, log: TurnLog) -> None:
        """And where it says nothing, or nothing that is a time, when it was recorded."""
        origin = Origin(format="f", ids=["1"], timestamp="2001-02-03T04:05:06.5+02:00")
        said = log.add_turn("x", origin=origin)
        assert said.said_at == datetime(2001, 2, 3, 2, 5, 6, 500_000, tzinfo=UTC)
        assert said.to_record()["said_at"] == "2001-02-03T02:05:06.500000+00:00"
        for timestamp in ("soon", "9999-12-31T23:59:59-01:00", ""):
            turn = log.add_turn("x", origin=Origin(format="f", ids=["1"], timestamp=timestamp))
            assert turn.said_at == turn.time
        plain = log.add_turn("x")
        assert plain.said_at == plain.time


class TestEvents:
    """Events of one's own topics, and waiting for events."""

    def test_turns_events_and_pointers_can_be_in_sets(self, log: TurnLog) -> None:
        """Whatever metadata they have; what is equal is there once. After an erasure a turn is another value."""
        turn = log.add_turn("hello", bookmark="main", inherited={"provider_ptr": "milli", "more": {"list": [1]}})
        pointer = log.pointers.set("milli", "anthropic", "some-model", params={"stop": ["."]})
        assert {turn, log.turn("main"), log.latest(1)[0]} == {turn}
        assert len({*log.events(), *log.events()}) == 3
        assert {pointer, log.pointers.get("milli")} == {pointer}
        log.erase(turn=turn.id, reason="asked")
        assert len({turn, log.turn(turn.id)}) == 2

    def test_event_is_read_back_as_it_was_recorded(self, story: TurnLog) -> None:
        """With its payload, both halves of its metadata, and the digests of what it cites."""
        turn = story.turn("main")
        recorded = story.add_event(
            "acme.review", b"\x00 fine", private={"by": "Anna"}, public={"stars": 3}, cites=[("of", turn.id)]
        )
        assert story.event(recorded.header.id.upper()) == recorded
        assert (recorded.header.topic, recorded.arrival) == ("acme.review", Arrival.RECORDED)
        assert story.payload(recorded.header.id) == b"\x00 fine"
        assert metadata(recorded) == {"by": "Anna", "stars": 3}
        assert bytes(recorded.header.meta) == b'{"stars":3}'
        assert [(one.relation, one.id, one.digest) for one in recorded.header.citations] == [
            ("of", turn.id, turn.digest)
        ]
        assert list(story.events(topics=["acme.review"])) == [recorded]
        assert story.threads()[0].turns == 3

    def test_log_has_an_identity_from_its_first_event_on(self, log: TurnLog) -> None:
        """It is the id of the genesis, and stays what it is."""
        assert log.id is None
        log.add_turn("x")
        genesis, _ = log.events()
        assert (genesis.header.topic, genesis.header.id, genesis.global_position) == ("log.genesis", log.id, 1)
        log.add_turn("y")
        assert log.id == genesis.header.id

    def test_whatever_comes_first_the_genesis_comes_before_it(self) -> None:
        """A register, an event of one's own: all begin a log alike."""
        begin: list[Callable[[TurnLog], object]] = [
            lambda log: log.pointers.set("a", "p", "m"),
            lambda log: log.providers.disable("p"),
            lambda log: log.servers.set("s", ["run"]),
            lambda log: log.add_event("acme.note"),
        ]
        for act in begin:
            with TurnLog.open("memory://") as log:
                act(log)
                assert next(log.events()).header.topic == "log.genesis"
                assert len(list(log.events())) == 2

    def test_wait_returns_the_end_at_once_where_it_lies_beyond(self, story: TurnLog) -> None:
        """There is nothing to wait for."""
        assert story.wait(0) == story.wait(3, 60) == 4

    def test_wait_ends_with_its_time(self, story: TurnLog) -> None:
        """And returns the end that it did not see move."""
        assert story.wait(4, 0) == story.wait(4, 0.01) == 4

    def test_wait_ends_when_something_is_appended(self, file_log: TurnLog) -> None:
        """From whichever thread it comes."""
        file_log.add_turn("x")
        with ThreadPoolExecutor() as threads:
            waiting = threads.submit(file_log.wait, 2, 60)
            file_log.add_turn("y")
            assert waiting.result() == 3


class TestErased:
    """What is left of an erased turn."""

    def test_erased_turn_is_a_turn_without_content(self, file_log: TurnLog, store_path: Path) -> None:
        """Its place, its parents and its digest stay; it has no hash, and no option of it holds."""
        root = file_log.add_turn("Secret words", inherited={"search": True}, bookmark="main", role="system")
        reply = file_log.add_turn("hi", role="assistant", continues="main")
        file_log.close()
        erase(store_path, root.id)
        with TurnLog.open(f"sqlite:///{store_path}") as log:
            erased = log.turn(root.id)
            assert (erased.erased, erased.hash, erased.size) == (True, "", 0)
            assert (erased.digest, erased.meta.role, erased.meta.inherited) == (root.digest, "system", None)
            assert [turn.id for turn in log.ancestry("main")] == [root.id, reply.id]
            window = log.context("main", explain=True)
            assert [(message.turn, message.erased) for message in window.messages] == [
                (root.id, True),
                (reply.id, False),
            ]
            assert window.options == {}
            assert window.explanation is not None
            assert window.explanation.left_out == ()
            with pytest.raises(ErasedError) as caught:
                log.payload(root.id)
            assert caught.value.event_id == root.id
            again = log.add_turn("more", continues=root.id, subject=False)
            assert [message.turn for message in log.context(again.id).messages] == [root.id, again.id]

    def test_id_of_an_erased_turn_is_taken(self, file_log: TurnLog, store_path: Path) -> None:
        """Nobody can tell any more whether it is the same turn."""
        turn = file_log.add_turn("x")
        file_log.close()
        erase(store_path, turn.id)
        with TurnLog.open(f"sqlite:///{store_path}") as log, pytest.raises(IdConflictError, match="erased"):
            log.add_turn("x", id=turn.id)


def test_set_bookmark_returns_where_it_is(story: TurnLog) -> None:
    """The bookmark that was set is returned with the id that the headish meant."""
    assert story.bookmarks.set("new", "main") == Bookmark(name="new", turn=story.turn("main").id)


def test_stats_count_everything(story: TurnLog) -> None:
    """Events, turns, threads, bookmarks and topics are counted."""
    story.add_turn("another")
    story.bookmarks.set("x", "main")
    stats = story.stats()
    assert isinstance(stats, LogStats)
    assert (stats.events, stats.turns, stats.threads, stats.bookmarks) == (6, 4, 2, 3)
    assert stats.topics == {"gpt.bookmark": 1, "gpt.turn": 4, "log.genesis": 1}
    assert stats.payload_bytes == sum(len(story.payload(turn.header.id)) for turn in story.events(topics=["gpt.turn"]))


def test_empty_log_has_stats(log: TurnLog) -> None:
    """Before the first event all counts are 0."""
    stats = log.stats()
    assert (stats.events, stats.turns, stats.threads, stats.bookmarks, stats.topics) == (0, 0, 0, 0, {})


def test_export_and_import_are_reachable(story: TurnLog) -> None:
    """The facade hands export and import through, with their counts."""
    file = io.BytesIO()
    assert story.export(file) == 4
    file.seek(0)
    with TurnLog.open("memory://") as other:
        assert other.import_turnlog(file).added == 4
        assert other.verify().clean


def test_claude_code_session_is_imported(log: TurnLog, tmp_path: Path) -> None:
    """The facade hands a session file to its importer."""
    path = tmp_path / "session.jsonl"
    path.write_text(
        '{"type":"user","uuid":"u1","parentUuid":null,"sessionId":"s","timestamp":"2025-01-01T00:00:00.000Z",'
        '"message":{"role":"user","content":"hello"}}\n'
    )
    log.import_claude_code(path)
    [thread] = log.threads()
    assert thread.turns == 1
    assert log.payload(thread.id) == b'[{"type":"text","text":"hello"}]'


def test_what_a_reply_says_of_itself_is_a_value_or_arguments(log: TurnLog) -> None:
    """The same turn, and not both at once; in a group too."""
    facts = ReplyFacts(model="m", provider="p", stop_reason="stop", usage={"input_tokens": 3})
    first = log.add_turn("Hi.", role="assistant", reply=facts)
    second = log.add_turn(
        "Hi.", role="assistant", model="m", provider="p", stop_reason="stop", usage={"input_tokens": 3}
    )
    with log.group() as group:
        third = group.add_turn("Hi.", role="assistant", model="m")
    assert (first.meta.usage, first.model, first.meta.provider) == (second.meta.usage, second.model, "p")
    assert log.turn(third).model == "m"
    with pytest.raises(MetaError, match="reply: it is given, and model too: leave one of them out"):
        log.add_turn("Hi.", role="assistant", reply=facts, model="m")
    with pytest.raises(TypeError, match="unexpected keyword argument 'modell'"):
        log.add_turn("Hi.", modell="m")  # pyright: ignore[reportCallIssue]
