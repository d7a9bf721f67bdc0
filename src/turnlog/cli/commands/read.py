"""`turnlog context`, `show` and `cat`: what a turn says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from cyclopts import Parameter
from msgspec import Raw

from turnlog.cli.blocks import Content
from turnlog.cli.completing import HEADISH
from turnlog.cli.messages import write_message, write_option
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Piece, Screen, binary_output, write_json, write_json_text
from turnlog.cli.paging import paging
from turnlog.cli.preview import of_block
from turnlog.cli.rows import cited_as, names_by_turn, when
from turnlog.cli.text import barred_pieces, count, meta_name, one_line, size, timestamp
from turnlog.errors import ContentError
from turnlog.events import TURN, Arrival, Recorded, turn_meta
from turnlog.events.times import time_of
from turnlog.feeds.records import EventRecords, content_record
from turnlog.log import TurnLog
from turnlog.model import ContextWindow, Message, Sources
from turnlog.model.json_text import minify
from turnlog.projections.turns import Children
from turnlog.record import find_turn
from turnlog.turn import Turn

if TYPE_CHECKING:
    from turnlog.calls import RecordedToolCall, ToolAttempt


def context(
    headish: Annotated[str, HEADISH],
    /,
    *,
    explain: Annotated[
        bool, Parameter(negative=(), help="Add which turn set each option, and which turns were left out and why.")
    ] = False,
    include_failed: Annotated[
        bool, Parameter(negative=(), help="Keep turns that record an error or an aborted reply.")
    ] = False,
    full: Annotated[bool, Parameter(negative=(), help="Show all turns, also those that a summary stands for.")] = False,
    whole: Annotated[
        bool,
        Parameter(negative=(), help="Print tool calls, their results and thinking whole."),
    ] = False,
    common: Common = COMMON,
) -> None:
    r"""Print the context window of a turn: what a model saw, or would see, when asked to go on from there.

    A line of a text that begins as one of turnlog's own (`── user`, `→ tool`) has a backslash before it. One that is
    too wide for the terminal goes on below without. With --json: the window, whole.

    Parameters
    ----------
    headish
        A turn id or bookmark.
    """
    with common.open() as log, paging(json=common.json):
        turn = log.turn(headish).id  # once: a bookmark may move meanwhile
        window = log.context(turn, explain=explain, include_failed=include_failed, summaries=False if full else None)
        if common.json:
            write_json_text(*window.json_pieces())
            return
        screen = Screen.of_stdout()
        now = datetime.now(UTC)
        said = {each.id: each.said_at for each in log.ancestry(turn)}
        for message in window.messages:
            time = said.get(message.turn)
            if time is None:
                _write_summary(screen, message, when(screen, time_of(log.event(message.turn).header.time), now))
            else:
                write_message(screen, message, when(screen, time, now), whole=whole)
        _write_options(screen, window)


def _write_summary(screen: Screen, message: Message, time: str) -> None:
    screen.line(("── summary", "bold magenta"), (f"  {message.turn} · {time}", "dim"))
    Content(message.content_json).write(screen)
    screen.line()


def _write_options(screen: Screen, window: ContextWindow) -> None:
    sources: Sources = window.explanation.options if window.explanation is not None else {}
    screen.line(("── options", "bold"))
    for name, value in window.options.items():
        write_option(screen, name, value, sources.get(name, ""))
    if not window.options:
        screen.line(("none", "dim"))
    if window.explanation is not None:
        summarized = window.explanation.summarized
        if summarized is not None:
            screen.line()
            screen.line(("── summarized", "bold"), (f"  by {summarized.summary}", "dim"))
            for turn in summarized.turns:
                screen.line((turn, "yellow"))
        screen.line()
        screen.line(("── left out", "bold"))
        for left_out in window.explanation.left_out:
            screen.line((left_out.turn, "yellow"), f"  {one_line(left_out.reason)}")
        if not window.explanation.left_out:
            screen.line(("none", "dim"))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


_CHILDREN_SHOWN = 10
"""So many of the turns that continue one are named beside what it says: the latest."""


class _Shown(NamedTuple):
    """An event with what stands around it."""

    recorded: Recorded
    record: dict[str, Any]
    payload: bytes | None
    turn: Turn | None
    children: list[str]
    children_before: int
    bookmarks: list[str]
    tool_calls: list[RecordedToolCall]

    @property
    def is_document(self) -> bool:
        return self.turn is not None and self.turn.meta.type == "document"


def show(headish: Annotated[str, HEADISH], /, *, common: Common = COMMON) -> None:
    """Print all about one turn, or another event: metadata, parents, children, bookmarks, content.

    What whoever recorded it has named stands behind `meta.` and `cites as`, and a payload that is no turn's behind a
    bar: nothing in it can pass for what turnlog says.

    Parameters
    ----------
    headish
        A turn id or bookmark, or the id of any event.
    """
    with common.open() as log:
        shown = _read(log, headish, None if common.json else _CHILDREN_SHOWN)
    if common.json:
        write_json(_record(shown))
        return
    with paging():
        _write_shown(Screen.of_stdout(), shown)


def _read(log: TurnLog, headish: str, children_max: int | None) -> _Shown:
    with log.store.read() as transaction:
        recorded = transaction.event(headish.lower()) or find_turn(transaction, headish)
    event_id, is_turn = recorded.header.id, recorded.header.topic == TURN
    tool_calls = _tool_calls(log, recorded) if is_turn else []
    with log.store.read() as transaction:  # after the tool calls, for which it is read too: it may be large
        recorded = transaction.event(event_id) or recorded
        record = EventRecords().of(transaction, recorded)
        payload = transaction.payload(recorded)
        found = Children(transaction, recorded) if is_turn else None
        children = [] if found is None else [child.header.id for child in islice(found.backwards(), children_max)]
    return _Shown(
        recorded=recorded,
        record=record,
        payload=payload,
        turn=log.turn(event_id) if is_turn else None,
        children=children[::-1],
        children_before=0 if found is None else len(found) - len(children),
        bookmarks=names_by_turn(log).get(event_id, []),
        tool_calls=tool_calls,
    )


def _tool_calls(log: TurnLog, recorded: Recorded) -> list[RecordedToolCall]:
    """Return the tool calls of a turn that something is recorded of. Only turns of the assistant have any."""
    if recorded.unreadable or turn_meta(recorded).role != "assistant":
        return []
    return [call for call in log.tool_calls.of(recorded.header.id) if call.attempts or call.claims]


def _record(shown: _Shown) -> dict[str, Any]:
    record = shown.record
    if shown.turn is not None:
        record |= shown.turn.to_record()
    record |= {"children": shown.children, "bookmarks": shown.bookmarks}
    if shown.tool_calls:
        record["tool_calls"] = [call.to_record() for call in shown.tool_calls]
    if shown.payload is not None:
        record["content"] = content_record(shown.recorded, shown.payload)
    return record


_ARRIVALS = {Arrival.RESTORED: "with an export of this log", Arrival.GUEST: "with an export of another log"}


def _write_shown(screen: Screen, shown: _Shown) -> None:
    recorded, header, turn = shown.recorded, shown.recorded.header, shown.turn
    facts: list[tuple[str, Piece]] = [
        ("topic", one_line(header.topic)),
        ("time", timestamp(time_of(header.time))),
        *((("said", timestamp(turn.said_at)),) if turn is not None and turn.said_at != turn.time else ()),
        (
            "place",
            f"global position {recorded.global_position:,}, position {header.position:,} of stream {header.stream}",
        ),
        *((("thread", (thread, "yellow")) for thread in shown.record["threads"]) if turn is not None else ()),
        ("digest", recorded.digest),
    ]
    if recorded.hash is not None and recorded.size is not None:
        facts.append(("payload", f"{recorded.hash}, {size(recorded.size)}"))
    if recorded.erased:
        facts.append(("erased", "its content and its private metadata are gone"))
    if recorded.sealed is not None:
        closed = ", which is not here: it cannot be read" if recorded.unreadable else ""
        facts.append(("sealed", f"under key {recorded.sealed.key}{closed}"))
    if recorded.arrival != Arrival.RECORDED:
        facts.append(("arrival", _ARRIVALS[recorded.arrival]))
    facts += [("bookmark", (one_line(name), "bold green")) for name in shown.bookmarks]
    facts += [(cited_as(citation), (citation.id, "yellow")) for citation in header.citations]
    if shown.children_before:
        before = f"… {count(shown.children_before, 'earlier one')}: `turnlog children {header.id}` lists all"
        facts.append(("child", (before, "dim")))
    facts += [("child", (child, "yellow")) for child in shown.children]
    names, claims = Counter(call.call.name for call in shown.tool_calls), list[tuple[str, Piece]]()
    for call in shown.tool_calls:
        # Several calls of one tool are told apart by their arguments.
        what = one_line(call.call.name) if names[call.call.name] == 1 else of_block(call.call).removeprefix("→ ")
        facts += [("tool call", _attempt(what, call, attempt)) for attempt in call.attempts]
        claims += [("another log", f"says: {_attempt(what, call, attempt)}") for attempt in call.claims]
    facts += claims
    facts += [
        (meta_name(name), one_line(value if isinstance(value, str) else _json(value)))
        for name, value in shown.record["meta"].items()
    ]
    screen.line((header.id, "bold yellow"))
    screen.table([[(name, "cyan"), value] for name, value in facts], cut=False)
    if shown.payload is None:
        return
    screen.line()
    if shown.is_document:
        screen.line((f"a document of {count(len(shown.payload), 'byte')}: turnlog cat {header.id} writes it", "dim"))
    elif turn is not None:
        Content(shown.payload).write(screen, whole=True)
    else:
        screen.pieces(barred_pieces((shown.payload.decode(errors="backslashreplace"),)))


_APPROVED: Mapping[str, str] = {
    "auto": "by the policy of the run",
    "allowed": "by a pattern",
    "asked": "by whoever was asked",
}
_ENDED: Mapping[str, str] = {
    "result": "returned",
    "error": "failed",
    "given_up": "was given up: it may have had effects",
    "answer": "was answered by a person in its place",
    "denied": "was denied",
    "not_called": "was not called",
    "broken_off": "was at work when the run was stopped: it may have had effects",
    "unknown": "was at work when its run ended: it may have had effects",
}


def _attempt(what: str, call: RecordedToolCall, attempt: ToolAttempt) -> str:
    """Return what became of an attempt to call a tool, in a line."""
    which = f" (attempt {attempt.number})" if len(call.attempts) > 1 else ""
    said = f"{what}{which} "
    if isinstance(attempt.ending, str):
        said += _ENDED[attempt.ending]
        said += f" by the {attempt.by}" if isinstance(attempt.by, str) else ""
    else:
        said += "has no recorded end: it may have had effects, or be at work"
    if isinstance(attempt.duration_ms, int):
        said += f" after {attempt.duration_ms / 1000:.3g} s"
    if isinstance(attempt.approved, str):
        said += f", approved {_APPROVED[attempt.approved]}"
    return said + (f", on {one_line(attempt.server)}" if isinstance(attempt.server, str) else "")


def cat(headish: Annotated[str, HEADISH], /, *, common: Common = COMMON) -> None:
    """Write the exact payload bytes of a turn, or of another event, to standard output.

    Files are as they were recorded. So is the JSON of other turns, but for whitespace outside strings, which is not
    kept. With --json: one JSON value, the payload where it is JSON, else a string of its base64.

    Parameters
    ----------
    headish
        A turn id or bookmark, or the id of any event that has a payload.
    """
    with common.open() as log:
        payload = log.payload(headish)
    if common.json:
        write_json(_as_json(payload))
    else:
        binary_output().write(payload)


def _as_json(payload: bytes) -> object:
    try:
        return Raw(minify(payload, field="payload"))
    except ContentError:
        return payload
