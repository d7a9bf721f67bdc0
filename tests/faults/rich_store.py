"""A store that has one of everything, for those who tamper with it."""

from __future__ import annotations

import random
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Raw
from tests.facts import with_facts
from tests.faults.hostile import payload_file, run_sql_as_it_is

from turnlog import LossEntry, LossReport, Response, Text, Tool, TurnLog, projections
from turnlog.events import ERASURE, TARGET, Arrival, cite
from turnlog.ids import derived_id
from turnlog.model import AddedMessage, CallError, ErasureMeta, WindowChange
from turnlog.providers import PreparedRequest
from turnlog.record import EventDraft, plan_event
from turnlog.sources import Sources
from turnlog.store import NO_PAYLOAD, open_store

NAMES = (
    "genesis",
    "root",
    "second",
    "third",
    "fork",
    "merge",
    "document",
    "noise",
    "table",
    "noise again",
    "story",
    "asked",
    "tools",
    "call",
    "reply",
    "answered",
    "asked again",
    "call again",
    "reply again",
    "answered again",
    "call failed",
    "reply failed",
    "failed",
    "asked aside",
    "call aside",
    "bookmark set",
    "bookmark renamed",
    "bookmark deleted",
    "pointer",
    "provider",
    "server",
    "review",
    "grade",
    "line",
    "guest genesis",
    "guest root",
    "guest second",
    "guest pointer",
    "trust",
    "secret",
    "secret document",
    "after the secret",
    "erasure",
    "lonely",
    "last",
)
"""What each event of the store is, in the order of the log."""

AT = {name: at for at, name in enumerate(NAMES, 1)}
"""The global position of each."""

_TIME_MS = 1_773_599_999_000
NOISE = random.Random(1).randbytes(70_000)
_TABLE = b"all the same " * 7000
_STORY = "once upon a time " * 6000
_SECRET = random.Random(2).randbytes(80_000)


class _Builder:
    """Fills the store. `ids` has the id of each event so far, by its name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path.parent
        self.ids: dict[str, str] = {}
        self.sources = fixed_sources("")
        self.log = TurnLog(open_store(f"sqlite:///{path}", projections=projections.synchronous()), sources=self.sources)

    def note(self) -> None:
        """Give the events that were recorded since the last time their names."""
        for event in self.log.events(len(self.ids)):
            self.ids[NAMES[event.global_position - 1]] = event.header.id

    def turn(self, content: str, *continues: str, **options: Any) -> None:
        """Record a turn that continues others, by their names or by a bookmark."""
        self.log.add_turn(
            content, continues=[self.ids.get(name, name) for name in continues] or None, **with_facts(options)
        )
        self.note()

    def document(self, content: bytes, continues: str, **options: Any) -> None:
        """Record a document."""
        file = self.folder / "document.bin"
        file.write_bytes(content)
        self.log.add_document(file, continues=self.ids.get(continues, continues), **options)
        file.unlink()
        self.note()

    def call(self, turn: str, *, lost: bool = False, tools: bool = False) -> str:
        """Record a call that goes on from a turn, and return its id."""
        turn = self.ids[turn]
        entry = LossEntry(kind="dropped", turn=turn, block="thinking", why="of another provider", index=0)
        request = PreparedRequest(
            adapter="openai_chat",
            version="1",
            provider="openai",
            api="chat",
            model="m",
            stream=True,
            head=b'{"model":"m","stream":true,"messages":[' + b" " * 80,
            messages=[message.content_json + b"," for message in self.log.context(turn).messages],
            closing=b'{}],"max_tokens":100}',
            loss_report=LossReport(entries=(entry, entry) if lost else ()),
            tools=(Tool(name="files___read", description="Read."), Tool(name="files___list")) if tools else (),
            params={"max_tokens": 100},
        )
        other = AddedMessage(role="system", content=Raw(b'[{"type":"text","text":"Answer in verse."}]'))
        call = self.log.calls.record(
            turn,
            request,
            servers=["files"],
            window=WindowChange(at=1, added=(other,)) if lost else None,
        )
        self.note()
        return call

    def reply(self, call: str, text: str, *, failed: bool = False) -> None:
        """Record a reply and the turn that came of it."""
        events = [] if failed else [b'{"delta":"%d"}' % number for number in range(3)]
        response = Response(
            content=(Text(text=text),) if text else (),
            model="m",
            stop_reason="error" if failed else "stop",
            provider="openai",
            api="chat",
            error=CallError(message="overloaded", retryable=True) if failed else None,
        )
        self.log.calls.record_reply(call, events, response)
        self.note()

    def event(self, topic: str, meta: Any, *cited: tuple[str, str]) -> None:
        """Record an event of a topic that there is no method for, and what it cites: as what, and the name of each."""

        def plan(transaction: Any) -> Any:
            citations = [cite(transaction.event(self.ids[name]), relation) for relation, name in cited]
            return plan_event(transaction, EventDraft(topic=topic, meta=meta), NO_PAYLOAD, self.sources, citations)

        self.log.store.write(plan)
        self.note()

    def guests(self) -> None:
        """Take over the events of another log."""
        with TurnLog(
            open_store("memory://", projections=projections.synchronous()), sources=fixed_sources("other ")
        ) as other:
            other.add_turn("from elsewhere", bookmark="elsewhere")
            other.add_turn("and on", continues="elsewhere")
            other.pointers.set("nano", "openai", "m")
            events = list(other.events())
            with other.store.read() as transaction:
                placed = [self.log.store.place(transaction.payload(event)) for event in events]
        both = list(zip(events, placed, strict=True))
        self.log.store.write(lambda t: [t.append(event, payload, Arrival.GUEST) for event, payload in both])
        self.note()


def fixed_sources(prefix: str) -> Sources:
    """Return ids, times and salts that are the same each time."""
    ids, times, salts = (iter(range(1, 1000)) for _ in range(3))
    return Sources(
        new_id=lambda: derived_id(None, f"{prefix}{next(ids)}"),
        time_ms=lambda: _TIME_MS + 1000 * next(times),
        salt=lambda: sha256(f"{prefix}{next(salts)}".encode()).digest()[:16],
    )


def build(path: Path) -> None:
    """Make the store. Ids, times and salts are the same each time."""
    builder = _Builder(path)
    with builder.log as log:
        _conversation(builder)
        _calls(builder)
        _bookmarks_and_registers(builder)
        builder.guests()
        log.registers.trust([builder.ids["guest pointer"]])
        builder.note()
        builder.turn("secret " * 30, "main", bookmark=False)
        builder.document(_SECRET, "secret", bookmark=False)
        builder.turn("after the secret", "secret document", bookmark="after")
        builder.event(ERASURE, ErasureMeta(reason="asked", by="them"), (TARGET, "secret"), (TARGET, "secret document"))
        builder.turn("nothing cites this turn", bookmark=False)
        builder.turn("the last turn", "main")
        assert tuple(builder.ids) == NAMES
    file = payload_file(path, AT["secret document"])
    file.unlink()
    file.parent.rmdir()
    for name in ("secret", "secret document"):
        run_sql_as_it_is(
            path,
            "UPDATE stored_events SET private = NULL, payload_placement = 5, payload = NULL"
            f" WHERE notification_id = {AT[name]}",
        )


def _conversation(builder: _Builder) -> None:
    builder.turn("root " + "x" * 300, bookmark="main", servers=["files"])
    builder.turn("second", "main", role="assistant", model="m", stop_reason="stop", usage={"input_tokens": 3})
    builder.turn("third, and a good deal of text that Zstandard makes smaller " * 9, "main")
    builder.turn("fork", "root", bookmark="fork", search=True)
    builder.turn("merge", "third", "fork", bookmark="main")
    builder.document(b"a small document", "main")
    builder.document(NOISE, "main")
    builder.document(_TABLE, "main")
    builder.document(NOISE, "fork")
    builder.turn(_STORY, "main")


def _calls(builder: _Builder) -> None:
    builder.turn("asked " + "y" * 200, bookmark="talk")
    builder.reply(builder.call("asked", tools=True), "the answer " * 20)
    builder.turn("asked again " + "z" * 200, "talk")
    builder.reply(builder.call("asked again", lost=True), "another answer " * 20)
    builder.reply(builder.call("asked again"), "", failed=True)
    builder.turn("asked aside " + "w" * 200, bookmark="aside")
    builder.call("asked aside")


def _bookmarks_and_registers(builder: _Builder) -> None:
    log = builder.log
    log.bookmarks.set("side", builder.ids["fork"])
    log.bookmarks.rename("side", "other side")
    log.bookmarks.delete("aside")
    log.pointers.set("milli", "openai", "m", params={"max_tokens": 100})
    log.providers.set("openai", key_variable="SOME_KEY")
    log.servers.set("files", ["serve"], env=["HOME"])
    log.add_event("acme.review", b"fine", private={"by": "somebody"}, cites=[("reviewed", builder.ids["second"])])
    log.add_event("acme.grade", public={"grade": 2.5})
    builder.note()
    builder.event("claude-code.line", {"line": "{}"}, ("turn", "root"))
