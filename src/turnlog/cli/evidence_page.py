"""A proof as one HTML page for people: who said what and when, what each model was sent, and what it answered.

Everything that was recorded is escaped, and its control characters are spelled out; JSON is as it is spelled, but for
where its lines end. The page has no scripts and loads nothing: its policy forbids both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from html import escape
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from turnlog.audit.checkpoints import written_hash
from turnlog.audit.proof_events import Part, ShownEvent
from turnlog.audit.proofs import ProofReport
from turnlog.cli.proving import left_open, oldest_first
from turnlog.cli.rows import cited_as
from turnlog.cli.text import count, line_pieces, meta_name, one_line, printable, size, timestamp
from turnlog.errors import ContentError
from turnlog.events.times import time_of
from turnlog.model import (
    Block,
    Document,
    Native,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    decode_content,
    parse_content,
)
from turnlog.model.json_text import UNREADABLE, marked_json
from turnlog.model.long_strings import LongStrings
from turnlog.model.pieces import decoded_pieces

_TEXT_BYTES_MAX = 200_000
"""More of a document is not on the page, but in its file."""

_fields = msgspec.json.Decoder(dict[str, Raw])
_raws = msgspec.json.Decoder(list[Raw])

_STYLE = """\
body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.5rem}
code,pre{font:14px/1.45 ui-monospace,monospace}code{overflow-wrap:anywhere}
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.5rem 0;unicode-bidi:plaintext}
article{border:1px solid #ccc;border-left-width:.4rem;border-radius:.3rem;padding:.6rem 1rem;margin:1rem 0}
article.assistant{border-left-color:#3b6ea8}article.user{border-left-color:#4d8a50}
article.system{border-left-color:#888}article.withheld{background:#f4f4f4;color:#555}
.of{color:#555;font-size:.85rem}.block{border-top:1px dotted #ccc}.wrong{color:#a00}
table{border-collapse:collapse}td,th{text-align:left;vertical-align:top;padding:.15rem .8rem .15rem 0}
"""


class Shown(Struct, frozen=True, kw_only=True):
    """An event that the page may show.

    Attributes:
        event: the event, checked.
        files: by `payload`, `request` and `loss` what is shown of it: the name of its file, and its bytes.
    """

    event: ShownEvent
    files: Mapping[str, tuple[str, Part]]


def page(report: ProofReport, shown: Sequence[Shown]) -> Iterator[str]:
    """Iterate over the page in pieces.

    Args:
        report: what the proof proves.
        shown: its events, the one that was asked for first.
    """
    events = {one.event.id: one for one in shown}
    told = oldest_first(report.events)
    turns, ids = [events[turn.id] for turn in told], {turn.id for turn in told}
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{_line(f'Evidence of turn {shown[0].event.id}')}</title>\n<style>\n{_STYLE}</style>\n</head>\n"
        "<body>\n"
    )
    for part in _head(report, shown[0], turns):
        yield f"{part}\n"
    for turn in turns:
        yield from _turn(turn, events)
    rest = [one for one in shown if one.event.id not in ids]
    if rest:
        yield "<h2>Calls, replies and what else is cited</h2>\n<table>\n"
        for one in rest:
            yield f"{_row(one, events)}\n"
        yield "</table>\n"
    yield "</body>\n</html>\n"


def _head(report: ProofReport, head: Shown, turns: Sequence[Shown]) -> Iterator[str]:
    checkpoint = report.signed.checkpoint
    yield f"<h1>{_line(count(len(turns), 'turn'))} up to <code>{_line(head.event.id)}</code></h1>"
    yield (
        "<p>This page was made from <code>proof.tlog-proof</code>, and shows only what that proof holds for. It is for"
        " reading: what counts are the proof and the exact bytes in the files beside it. <code>README.txt</code> says"
        " how to check them, and what they do not show.</p>"
    )
    yield "<table>"
    yield _pair("Log", checkpoint.origin)
    yield _pair("Covered", f"{count(checkpoint.size, 'event')}, this turn at global position {report.index + 1}")
    yield _pair("Root", written_hash(checkpoint.root))
    for verifier in report.signed.signed_by:
        yield _pair("Signed by", f"{verifier.name}, key id {verifier.key_id.hex()}")
    for name, time_s in report.signed.cosigned_by:
        yield _pair("Witnessed by", f"{name}, {timestamp(time_of(time_s * 1000))}")
    yield "</table>"
    for line in left_open(report):
        yield f'<p class="wrong">{_line(line)}</p>'
    yield "<h2>The conversation, oldest first</h2>"


def _turn(turn: Shown, events: Mapping[str, Shown]) -> Iterator[str]:
    event, header = turn.event, turn.event.event.header
    public, private = record_of(header.meta), _private(turn)
    role = public.get("role")
    kind = role if role in ("assistant", "system", "user") else "other"
    payload = turn.files.get("payload")
    readable = payload is not None and "sealed" not in event.shown
    yield f'<article class="{kind}{"" if readable else " withheld"}" id="{_line(event.id)}">\n'
    who = (public[name] for name in ("role", "provider", "model") if name in public)
    yield f"<strong>{_line(' · '.join(map(_said, who)))}</strong>\n"
    yield f'<span class="of">{_time(event)} <code>{_line(event.id)}</code></span>\n'
    if len(header.parents) > 1:
        yield f"<div class='of'>continues {_line(', '.join(parent.id for parent in header.parents))}</div>\n"
    for missing in _missing(turn, events):
        yield f"{missing}\n"
    if "error" in private:
        yield f'<div class="block wrong">failed: {_line(_said(private["error"]))}</div>\n'
    if event.withheld:
        yield '<div class="block">Its private part and its content are withheld, or were erased.</div>\n'
    elif "sealed" in event.shown:
        sealed = f": {_link(*payload[:1])}" if payload else "."
        yield f'<div class="block">Its private part and its content are sealed{sealed}</div>\n'
    elif payload is None:
        yield '<div class="block">Its content is withheld.</div>\n'
    else:
        yield from _content(public, private, *payload)
    for part in (*_evidence(turn, events), *_details(event, public, private)):
        yield f"{part}\n"
    yield "</article>\n"


def _content(public: Mapping[str, Any], private: Mapping[str, Any], name: str, payload: Part) -> Iterator[str]:
    if public.get("type") == "document":
        kind = _said(public.get("content_type", "?"))
        title = f"document {_said(private.get('document_name', ''))}, {kind}, {size(payload.size)}"
        yield f'<div class="block">{_link(name, title)}</div>\n'
        if kind.startswith("text/"):
            yield from _as_it_is(payload)
        return
    try:
        marked, long = marked_json(payload.whole(), field="content")
        blocks = _raws.decode(marked)
    except (ContentError, *UNREADABLE):
        yield f'<div class="block">{_link(name, "content that cannot be read as a list of blocks")}</div>\n'
        yield from _as_it_is(payload)
        return
    for block in blocks:
        yield from _block(block, long, name)


def _as_it_is(payload: Part) -> Iterator[str]:
    if payload.size <= _TEXT_BYTES_MAX:
        yield from _pre("<pre>", (payload.whole().decode(errors="backslashreplace"),))


def _block(raw: Raw, long: LongStrings, name: str) -> Iterator[str]:
    """Yield a block. What of it has no words here stands there as JSON."""
    block = _typed(raw)
    match block:
        case Text():
            said = ("text",)
            yield from _pre('<pre class="block">', long.said_pieces(block.text))
        case Thinking():
            said = ("thinking",)
            before = '<details class="block"><summary>thinking</summary><pre>'
            yield from _pre(before, long.said_pieces(block.thinking), "</pre></details>")
        case ToolUse():
            said = ("id", "name", "input")
            call = "" if block.id is None else f' <code class="of">{_line(long.into(block.id))}</code>'
            yield f'<div class="block">calls the tool <code>{_line(long.into(block.name))}</code>{call}</div>\n'
            yield from _json(block.input, long)
        case ToolResult():
            said = ("tool_use_id", "is_error", "content")
            yield from _tool_result(block, _fields.decode(raw), long, name)
        case Document():
            said = ("source",)
            kind = long.into(block.source.media_type)
            yield f'<div class="block">{_link(name, f"document, {kind}")}</div>\n'
        case Native() | None:
            yield f'<div class="block">{"a block of another form" if block is None else "native"}</div>'
            yield from _json(raw, long)
            return
    rest = {field: value for field, value in _fields.decode(raw).items() if field not in ("type", *said)}
    if rest:
        yield '<details class="of"><summary>more of this block</summary>'
        yield from _json(Raw(msgspec.json.encode(rest)), long)
        yield "</details>\n"


def _typed(raw: Raw) -> Block | None:
    """Return a block; None for what is none, as what has a key twice: whoever has the key can have signed anything."""
    text = bytes(raw)
    try:
        return decode_content(parse_content(text))[0] if text.startswith(b"{") else None
    except ContentError:
        return None


def _tool_result(block: ToolResult, fields: Mapping[str, Raw], long: LongStrings, name: str) -> Iterator[str]:
    failed = " with an error" if block.is_error is True else ""
    call = "" if block.tool_use_id is None else f" <code>{_line(long.into(block.tool_use_id))}</code>"
    yield f'<div class="block">result{failed} of the tool call{call}</div>\n'
    if isinstance(block.content, str):
        yield from _pre("<pre>", long.said_pieces(block.content))
        return
    for inner in _raws.decode(fields["content"]):
        yield from _block(inner, long, name)


def _pre(before: str, text: Iterable[str], behind: str = "</pre>") -> Iterator[str]:
    yield before
    yield from map(_text, line_pieces(text))
    yield f"{behind}\n"


def _json(raw: Raw, long: LongStrings) -> Iterator[str]:
    """Yield JSON as it is spelled, a line for each value."""
    text = bytes(raw)
    with suppress(RecursionError):
        text = msgspec.json.format(text, indent=2)
    yield from _pre("<pre>", decoded_pieces(long.pieces(text)))


def _missing(one: Shown, events: Mapping[str, Shown]) -> Iterator[str]:
    """Yield what an event continues or cites, and the proof leaves out."""
    for citation in one.event.event.header.citations:
        if citation.id not in events:
            how = _line(cited_as(citation))
            yield f'<div class="wrong">{how} <code>{_line(citation.id)}</code>, which is not shown</div>'


def _evidence(turn: Shown, events: Mapping[str, Shown]) -> Iterator[str]:
    """Yield what a turn came of: what the model was sent, and what it answered."""
    header = turn.event.event.header
    for relation, what in (("call", "the model was sent"), ("reply", "it answered")):
        cited = header.cited(relation)
        if cited is None:
            continue
        one = events.get(cited)
        part = "request" if relation == "call" else "payload"
        if one is None or part not in one.files:
            yield f'<div class="of">what {what}: not shown (<code>{_line(cited)}</code>)</div>'
            continue
        name, content = one.files[part]
        yield f'<div class="of">what {what}: {_link(name, f"{name}, {size(content.size)}")}'
        if "loss" in one.files:
            yield f"; what the request did not carry: {_link(one.files['loss'][0])}"
        yield "</div>"


def _details(event: ShownEvent, public: Mapping[str, Any], private: Mapping[str, Any]) -> Iterator[str]:
    yield '<details class="of"><summary>metadata</summary><table>'
    yield _pair("digest", event.event.digest)
    for citation in event.event.header.citations:
        yield _pair(cited_as(citation), citation.id)
    for name, value in (*public.items(), *private.items()):
        yield f"<tr><th>{_line(meta_name(name))}</th><td><code>{_text(_said(value, indent=2))}</code></td></tr>"
    yield "</table></details>"


def _row(one: Shown, events: Mapping[str, Shown]) -> str:
    event = one.event
    links = ", ".join(_link(name) for name, _ in one.files.values())
    public, private = record_of(event.event.header.meta), _private(one)
    told = " · ".join(_said(public[name]) for name in ("provider", "model") if name in public)
    error = private.get("error")
    if isinstance(error, dict):
        told += f" failed: {_said(cast('dict[str, object]', error).get('message'))}"
    nothing = "withheld, or erased" if event.withheld else "nothing shown"
    if "sealed" in event.shown:
        told = f"{told} sealed".strip()
    return (
        f'<tr id="{_line(event.id)}"><td>{_time(event)}</td>'
        f"<td>{_line(event.topic)}<br><code>{_line(event.id)}</code></td>"
        f"<td>{_line(told)}</td><td>{links or nothing}{''.join(_missing(one, events))}</td></tr>"
    )


def record_of(meta: bytes | msgspec.Raw) -> dict[str, Any]:
    """Return metadata as values; nothing where it cannot be read."""
    try:
        return msgspec.json.decode(meta, type=dict[str, Any])
    except UNREADABLE:
        return {}


def _private(one: Shown) -> dict[str, Any]:
    private = one.event.event.private
    return {} if private is None else record_of(private.meta)


def _pair(name: str, value: str) -> str:
    return f"<tr><th>{_line(name)}</th><td><code>{_line(value)}</code></td></tr>"


def _time(event: ShownEvent) -> str:
    return _line(timestamp(time_of(event.time_ms)))


def _link(name: str, text: str = "") -> str:
    """Return a link to a file of the folder. Names are made of ids, which have no characters that need escaping."""
    return f'<a href="{_line(name)}">{_line(text or name)}</a>'


def _said(value: object, *, indent: int = 0) -> str:
    """Return metadata as text. It is spelled in one way, so no number comes out as another."""
    if isinstance(value, str):
        return value
    encoded = msgspec.json.encode(value)
    return (msgspec.json.format(encoded, indent=indent) if indent else encoded).decode()


def _text(text: str) -> str:
    return escape(printable(text))


def _line(text: str) -> str:
    return escape(one_line(text))
