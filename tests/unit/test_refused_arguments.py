"""What each part of a log refuses of a caller, by one line that names the argument; nothing is recorded then."""

import asyncio
from collections.abc import Callable, Mapping
from math import inf, nan
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnlog import AsyncTurnLog, TurnLog
from turnlog.audit import KeptCheckpoint, Signer, Verifier, parse_place
from turnlog.errors import InputError, StoreOpenError
from turnlog.ids import new_id
from turnlog.model import (
    AddedMessage,
    CallError,
    LossEntry,
    LossReport,
    Origin,
    Response,
    Text,
    Tool,
    ToolCallMeta,
    ToolEndMeta,
    TurnMeta,
    WindowChange,
)
from turnlog.providers import get
from turnlog.record import Note, TurnDraft

Refused = Mapping[str, tuple[Callable[[TurnLog], object], str]]
NONE: Any = None
FIVE: Any = 5
TEXT: Any = "text"
LIST: Any = ["text"]
SIGNER = Signer.generate("example.org/log")
KEPT = KeptCheckpoint(size=1, origin="log", root=bytes(32), signatures=(), note="")
REPLY = Response(content=(Text(text="ok"),), model="m", provider="anthropic", api="messages", stop_reason="end_turn")


class _More(Origin, frozen=True, kw_only=True):
    page: int = 1


def _asked(log: TurnLog, **changed: Any) -> str:
    """Record a call whose request is changed; `servers` and `window` are given beside it."""
    beside = {name: changed.pop(name) for name in ("servers", "window") if name in changed}
    request = get("anthropic").prepare_request(log.context("main"), model="m")
    return log.calls.record("main", msgspec.structs.replace(request, **changed), **beside)


def _replied(log: TurnLog, events: Any = (b"{}",), **changed: Any) -> object:
    return log.calls.record_reply(_asked(log), events, msgspec.structs.replace(REPLY, **changed))


def _called(log: TurnLog, **changed: Any) -> ToolCallMeta:
    given: dict[str, Any] = {"turn": log.turn("called").id, "block": 0, "attempt": 1, "approved": "auto"}
    return ToolCallMeta(**given | changed)


def _ended(log: TurnLog, **changed: Any) -> ToolEndMeta:
    given: dict[str, Any] = {"turn": log.turn("called").id, "block": 0, "attempt": 1, "ending": "result"}
    return ToolEndMeta(**given | changed)


def _draft(**changed: Any) -> TurnDraft:
    given: dict[str, Any] = {"payload": b'[{"type":"text","text":"x"}]', "meta": TurnMeta(role="user")}
    return TurnDraft(**given | changed)


def _note(**changed: Any) -> Note:
    given: dict[str, Any] = {"topic": "gmi.input", "payload": b"{}"}
    return Note(**given | changed)


def _grouped(log: TurnLog, **given: Any) -> None:
    with log.group() as group:
        group.add_turn("x", **given)


def _window(**changed: Any) -> WindowChange:
    return WindowChange(**changed)


TURNS: Refused = {
    **{
        f"origin {type(given).__name__}": (
            lambda log, given=given: log.add_turn("x", origin=given),
            f"origin: expected Origin, got {type(given).__name__}",
        )
        for given in (TEXT, FIVE, LIST, {"format": "f", "ids": []})
    },
    "origin with more": (lambda log: log.add_turn("x", origin=_More(format="f", ids=[])), "origin: _More has other"),
    "origin ids": (lambda log: log.add_turn("x", origin=Origin(format="f", ids=FIVE)), r"origin\.ids: expected"),
    "origin in a group": (lambda log: _grouped(log, origin=TEXT), "origin: expected Origin, got str"),
    "api_key": (lambda log: log.add_turn("x", api_key=LIST), "api_key: expected str, got list"),
    "api_key number": (lambda log: log.add_turn("x", api_key=FIVE), "api_key: expected str, got int"),
    "api_key no UTF-8": (lambda log: log.add_turn("x", api_key="\ud800" * 9), "api_key: not valid UTF-8"),
    "api_key in a group": (lambda log: _grouped(log, api_key=LIST), "api_key: expected str, got list"),
    "bytes_max": (lambda log: log.add_document(__file__, bytes_max=NONE), "bytes_max: expected int, got NoneType"),
    "bytes_max -1": (lambda log: log.add_document(__file__, bytes_max=-1), "bytes_max: expected at least 0, got -1"),
    "bytes_max 1.5": (lambda log: log.add_document(__file__, bytes_max=1.5), "bytes_max: expected int"),
    "cites": (lambda log: log.add_event("acme.x", cites=["abc"]), "cites: expected a list of pairs"),
    "cites text": (lambda log: log.add_event("acme.x", cites=TEXT), "cites: expected a list of pairs of a word"),
    "cites three": (lambda log: log.add_event("acme.x", cites=[("a", "b", "c")]), "cites: .* got 3 in one"),
    "group": (lambda log: log.add_group(NONE), "items: expected a list of turn drafts and notes, got NoneType"),
    "draft origin": (
        lambda log: log.add_group([_draft(meta=TurnMeta(role="user", origin=TEXT))]),
        r"meta\.origin: expected",
    ),
    "draft meta": (lambda log: log.add_group([_draft(meta=TEXT)]), "meta: expected TurnMeta, got str"),
    "draft payload": (lambda log: log.add_group([_draft(payload=TEXT)]), "payload: expected bytes, got str"),
    "draft content": (lambda log: log.add_group([_draft(payload=b"no")]), "content: not valid JSON"),
    "draft spelling": (lambda log: log.add_group([_draft(payload=b"[ ]")]), "content: it is not in the form"),
    "draft id": (lambda log: log.add_group([_draft(id="x")]), "id: 'x' is not a SCRU128 id"),
    "draft bookmark": (lambda log: log.add_group([_draft(bookmark=FIVE)]), "bookmark: expected str, got int"),
    "draft respond": (lambda log: log.add_group([_draft(respond=FIVE)]), "respond: expected bool, got int"),
    "note topic": (lambda log: log.add_group([_note(topic="gpt.call")]), "topic: 'gpt.call' is one of turnlog's own"),
    "note payload": (lambda log: log.add_group([_note(payload=TEXT)]), "payload: expected bytes, got str"),
    "note meta": (lambda log: log.add_group([_note(meta={"a": nan})]), r"meta\.a: JSON has no NaN"),
    "note id": (lambda log: log.add_group([_note(id="x")]), "id: 'x' is not a SCRU128 id"),
    "note turn": (lambda log: log.add_group([_note(turn=FIVE)]), "turn: expected str, got int"),
}
LOG: Refused = {
    "store": (lambda _: TurnLog(NONE), "of type NoneType, and no store: open it with"),
    "log": (lambda log: AsyncTurnLog(log.store), "of type SQLiteStore, and no log: open it with"),
    "redact": (lambda _: TurnLog.open("memory://", redact=FIVE), "redact: expected a list of hooks, got int"),
    "redact of a store": (lambda log: TurnLog(log.store, redact=FIVE), "redact: expected a list of hooks, got int"),
    "seals": (
        lambda _: TurnLog.open("memory://", seals=FIVE),
        "seals: expected the keys of what is sealed, .* got int",
    ),
    "on_busy": (lambda _: TurnLog.open("memory://", on_busy=FIVE), "on_busy: expected a function, got int"),
    "bookmark": (lambda log: log.threads(bookmark=LIST), "bookmark: expected str, got list"),
    "topics": (lambda log: log.events(topics=NONE), "topics: expected a list of texts, .* got NoneType"),
    "topic": (lambda log: log.events(topics=[FIVE]), r"topics\[0\]: expected str, got int"),
    "wait": (lambda log: log.wait(TEXT, 0), "after: expected int, got str"),
    "wait nan": (lambda log: log.wait(nan, 0), "after: expected int, got float"),
    "wait -1": (lambda log: log.wait(-1, 0), "after: expected at least 0, got -1"),
    "wait timeout": (lambda log: log.wait(0, TEXT), "timeout_s is 'text': give seconds, from 0, or None"),
    "wait nan s": (lambda log: log.wait(0, nan), "timeout_s is nan: give seconds"),
    "await": (lambda log: asyncio.run(AsyncTurnLog(log).wait(TEXT, 0)), "after: expected int, got str"),
    "keep_first": (
        lambda log: log.compact("main", text="x", keep_first=NONE),
        "keep_first: expected int, got NoneType",
    ),
    "keep_last": (lambda log: log.compact("main", text="x", keep_last=1.5), "keep_last: expected int, got float"),
    "min_turns": (lambda log: log.compact("main", text="x", min_turns=nan), "min_turns: expected int, got float"),
    "max_turns": (lambda log: log.compact("main", text="x", max_turns=nan), "max_turns: expected int, got float"),
    "format": (lambda log: log.import_transcript(LIST, "x"), "format: expected str, got list"),
    "path": (lambda log: log.import_transcript("claude-code", NONE), "path: expected the path of a file, got NoneType"),
    "checkpoints": (lambda log: log.verify(checkpoints=LIST), r"checkpoints\[0\]: expected Anchor, got str"),
    "since": (lambda log: log.verify(since=NONE), "since: expected int, got NoneType"),
    "names": (lambda log: log.rebuild_projections("turns"), "names: expected a list of texts, .* got str"),
}
REGISTERS: Refused = {
    "bookmarks.delete": (lambda log: log.bookmarks.delete(NONE), "name: expected str, got NoneType"),
    "bookmarks.rename": (lambda log: log.bookmarks.rename(NONE, "x"), "name: expected str, got NoneType"),
    "pointers.set": (lambda log: log.pointers.set("p", FIVE, "m"), "provider: expected str, got int"),
    "pointers.set params": (
        lambda log: log.pointers.set("p", "p", "m", params=FIVE),
        "params: expected Mapping, got int",
    ),
    "pointers.get": (lambda log: log.pointers.get(LIST), "name: expected str, got list"),
    "providers.set": (lambda log: log.providers.set(LIST), "name: expected str, got list"),
    "providers.set url": (lambda log: log.providers.set("p", base_url=FIVE), "base_url: expected str, got int"),
    "providers.disable": (lambda log: log.providers.disable(LIST), "name: expected str, got list"),
    "providers.get": (lambda log: log.providers.get(LIST), "name: expected str, got list"),
    "servers.set": (lambda log: log.servers.set("s", ["x"], env_values="A=B"), "env_values: expected Mapping, got str"),
    "servers.set headers": (
        lambda log: log.servers.set("s", url="http://x", header_values=LIST),
        "header_values: expected Mapping, got list",
    ),
    "servers.set header_env": (
        lambda log: log.servers.set("s", url="http://x", header_env=FIVE),
        "header_env: expected Mapping, got int",
    ),
    "servers.set_all": (lambda log: log.servers.set_all(TEXT), "servers: expected a list of servers, .* got str"),
    "servers.set_all one": (lambda log: log.servers.set_all(LIST), r"servers\[0\]: expected ServerMeta, got str"),
    "servers.get": (lambda log: log.servers.get(LIST), "name: expected str, got list"),
    "registers.trust": (lambda log: log.registers.trust(TEXT), "ids: expected a list of texts, .* got str"),
    "holds.get": (lambda log: log.holds.get(LIST), "name: expected str, got list"),
    "holds.release": (lambda log: log.holds.release(LIST), "name: expected str, got list"),
}
CALLS: Refused = {
    "request": (lambda log: log.calls.record("main", TEXT), "request: expected PreparedRequest, got str"),
    "params": (lambda log: _asked(log, params=None), "params: expected Mapping, got NoneType"),
    "head": (lambda log: _asked(log, head="{"), "head: expected bytes, got str"),
    "messages": (lambda log: _asked(log, messages=["{}"]), r"messages\[0\]: expected bytes, got str"),
    "tools": (lambda log: _asked(log, tools=(1,)), r"tools\[0\]: expected Tool, got int"),
    "tool": (lambda log: _asked(log, tools=(Tool(name=FIVE),)), r"tools\[0\]\.name: expected str, got int"),
    "tool title": (lambda log: _asked(log, tools=(Tool(name="x", title=FIVE),)), r"tools\[0\]\.title: expected"),
    "tool schema": (
        lambda log: _asked(log, tools=(Tool(name="x", input_schema=msgspec.Raw(b"{")),)),
        r"tools\[0\]\.input_schema: not valid JSON",
    ),
    "on_loss": (lambda log: _asked(log, on_loss="nope"), "on_loss: 'nope' is unknown"),
    "erasure": (lambda log: _asked(log, erasure="x"), "erasure: expected int, got str"),
    "loss_report": (lambda log: _asked(log, loss_report=None), "loss_report: expected LossReport, got NoneType"),
    "loss": (
        lambda log: _asked(log, loss_report=LossReport(entries=(LossEntry(kind=TEXT, turn="", block="", why=""),))),
        r"loss_report\.entries\[0\]\.kind: invalid enum value 'text'",
    ),
    "model": (lambda log: _asked(log, model=None), r"meta\.model: expected"),
    "servers": (lambda log: _asked(log, servers="abc"), "servers: expected a list of texts, .* got str"),
    "window": (lambda log: _asked(log, window="x"), "window: expected WindowChange, got str"),
    "window at": (lambda log: _asked(log, window=_window(at="x")), "window: it cannot be recorded: Expected `int`"),
    "window options": (lambda log: _asked(log, window=_window(options={"a": nan})), r"window\.options\.a: JSON has no"),
    "window content": (
        lambda log: _asked(log, window=_window(added=(AddedMessage(role="user", content=msgspec.Raw(b"[")),))),
        r"window\.added\[0\]\.content: not valid JSON",
    ),
    "response": (
        lambda log: log.calls.record_reply(_asked(log), [b"{}"], TEXT),
        "response: expected Response, got str",
    ),
    "events": (lambda log: _replied(log, "abc"), "events: expected a list of raw events, got str"),
    "event": (lambda log: _replied(log, ["{}"]), r"events\[0\]: expected bytes, got str"),
    "error": (lambda log: _replied(log, error="boom"), "error: expected CallError, got str"),
    "error message": (lambda log: _replied(log, error=CallError(message=FIVE)), r"error\.message: expected"),
    "api_key": (
        lambda log: log.calls.record_reply(_asked(log), [b"{}"], REPLY, api_key=FIVE),
        "api_key: expected str, got int",
    ),
    "begin an end": (
        lambda log: log.tool_calls.begin([_ended(log)]),
        "tool_call: expected ToolCallMeta, got ToolEndMeta",
    ),
    "begin": (lambda log: log.tool_calls.begin([_called(log, block="0")]), r"tool_call\.block: expected"),
    "begin ends": (lambda log: log.tool_calls.begin([], [_ended(log)]), "ends: expected a list of pairs"),
    "end a call": (
        lambda log: log.tool_calls.end(_called(log), []),
        "tool_end: expected ToolEndMeta, got ToolCallMeta",
    ),
    "end content": (lambda log: log.tool_calls.end(_ended(log), FIVE), "content: expected text or a list of blocks"),
    "end api_key": (lambda log: log.tool_calls.end(_ended(log), [], api_key=FIVE), "api_key: expected str, got int"),
    "results ends": (
        lambda log: log.tool_calls.record_results([], turn="called", ends=[_called(log)]),
        "tool_end: expected ToolEndMeta, got ToolCallMeta",
    ),
    "results known": (
        lambda log: log.tool_calls.record_results([], turn="called", known=["\ud800"]),
        r"known\[0\]: not valid UTF-8",
    ),
    "results content": (
        lambda log: log.tool_calls.record_results(FIVE, turn="called"),
        "content: expected text or a list of blocks, got int",
    ),
}
BESIDE: Refused = {
    "feeds.run": (lambda log: log.feeds.run("search"), "names: expected a list of texts, .* got str"),
    "feeds.rebuild": (lambda log: log.feeds.rebuild(LIST), r"names\[0\]: expected str, got list"),
    "feeds.skip": (lambda log: log.feeds.skip(LIST, "why"), r"names\[0\]: expected str, got list"),
    "feeds.runner": (lambda log: log.feeds.runner(FIVE), "projections: expected a list of projections, got int"),
    "feeds.delivered_to": (lambda log: log.feeds.delivered_to(TEXT), "events: expected a list of texts, .* got str"),
    "consistency_proof": (lambda log: log.audit.consistency_proof("1", 2), "size1: expected int, got str"),
    "consistency_proof 2": (lambda log: log.audit.consistency_proof(1, inf), "size2: expected int, got float"),
    "checkpoint": (lambda log: log.audit.checkpoint(TEXT), "signer: expected Signer, got str"),
    "checkpoint origin": (lambda log: log.audit.checkpoint(SIGNER, origin=FIVE), "origin: expected str, got int"),
    "checkpoint to": (
        lambda log: log.audit.checkpoint(SIGNER, to=LIST),
        r"to\[0\]: expected a place, such as turnlog\.audit\.parse_",
    ),
    "checkpoint to one": (
        lambda log: log.audit.checkpoint(SIGNER, to=TEXT),
        "to: expected a list of places, .* got str",
    ),
    "checkpoint known": (
        lambda log: log.audit.checkpoint(SIGNER, known=[SIGNER]),
        r"known\[0\]: expected Verifier, got Signer",
    ),
    "checkpoint cosigned": (
        lambda log: log.audit.checkpoint(SIGNER, cosigned=FIVE),
        "cosigned: expected a function, got int",
    ),
    "checkpoint lines": (
        lambda log: log.audit.checkpoint(SIGNER, cosigned=lambda _: TEXT),
        "cosigned: expected a list of texts, such as the signature lines of a witness, got str",
    ),
    "checkpoint heads": (lambda log: log.audit.checkpoint(SIGNER, heads=TEXT), "heads: expected SignedHeads, got str"),
    "keep_checkpoints": (
        lambda log: log.audit.keep_checkpoints(TEXT, every_events=1),
        "signer: expected Signer, got str",
    ),
    "keep_checkpoints to": (
        lambda log: log.audit.keep_checkpoints(SIGNER, every_events=1, to=TEXT),
        "to: expected a list of places, .* got str",
    ),
    "keep_checkpoints on_error": (
        lambda log: log.audit.keep_checkpoints(SIGNER, every_events=1, on_error=FIVE),
        "on_error: expected a function, got int",
    ),
    "cosigned": (lambda log: log.audit.cosigned(TEXT, [], []), "checkpoint: expected KeptCheckpoint, got str"),
    "cosigned lines": (lambda log: log.audit.cosigned(KEPT, TEXT, []), "lines: expected a list of texts, .* got str"),
    "cosigned witnesses": (
        lambda log: log.audit.cosigned(KEPT, [], SIGNER.verifier),
        "witnesses: expected a list of verifiers, got Verifier",
    ),
    "publish": (lambda log: log.audit.publish(TEXT, []), "checkpoint: expected KeptCheckpoint, got str"),
    "publish places": (lambda log: log.audit.publish(KEPT, LIST), r"places\[0\]: expected a place, .* got str"),
    "prove note": (lambda log: log.audit.prove("main", note=FIVE), "note: expected str, got int"),
    "prove withheld": (lambda log: log.audit.prove("main", withheld=NONE), "withheld: expected a function, got None"),
    "parse_place": (lambda _: parse_place(FIVE), "place: expected str, got int"),
    "signer": (lambda _: Signer.parse(FIVE), "skey_line: expected str, got int"),
    "verifier": (lambda _: Verifier.parse(FIVE), "vkey_line: expected str, got int"),
    "prove_consistency": (lambda log: log.audit.prove_consistency(NONE, ""), "old_note: expected str, got NoneType"),
}
FACADES = {"turns": TURNS, "log": LOG, "registers": REGISTERS, "calls": CALLS, "beside": BESIDE}


@pytest.fixture
def told(log: TurnLog) -> TurnLog:
    """Give a log with a turn, and one that calls a tool."""
    log.add_turn("Hi.", bookmark="main")
    called = {"type": "tool_use", "name": "x", "id": "c", "input": {}}
    log.add_turn([called], role="assistant", continues="main", bookmark="called")
    return log


@pytest.mark.parametrize(("facade", "case"), [(facade, case) for facade, cases in FACADES.items() for case in cases])
def test_what_is_of_another_kind_is_refused(told: TurnLog, facade: str, case: str) -> None:
    """It is named, nothing of it is recorded, and all that is in the log can be read."""
    call, message = FACADES[facade][case]
    with pytest.raises((InputError, StoreOpenError), match=message) as caught:
        call(told)
    assert "\n" not in str(caught.value)
    assert told.turn_count() == 2
    assert told.tool_calls.of("called")[0].attempts == ()
    assert told.verify().clean


def test_a_limit_may_be_as_large_as_one_likes(tmp_path: Path) -> None:
    """No more memory is set aside for a document than it needs, and one that does not say its size is read whole."""
    (tmp_path / "soup.md").write_text("# Soup")
    with TurnLog.open("memory://") as log:
        for limit in (6, 2**40, 2**63, 10**30):
            assert log.payload(log.add_document(tmp_path / "soup.md", bytes_max=limit).id) == b"# Soup"
        system = Path("/proc/version")
        if system.exists():
            assert log.payload(log.add_document(system, bytes_max=2**40).id) == system.read_bytes()


def test_pairs_can_be_lists(told: TurnLog) -> None:
    """As JSON has them."""
    pair: Any = ["of", told.turn("main").id]
    assert told.add_event("acme.x", cites=[pair], id=new_id()).header.cited("of") == pair[1]
