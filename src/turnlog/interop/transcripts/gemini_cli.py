"""Gemini CLI: recorded sessions, and chats that were saved.

A session (`chats/session-….json`) is one document with `messages`. What of a message comes at different times (its
thoughts, its text, its tokens, each call, what a call gave) is a piece each, so that a session that was written again
adds only what is new. A saved chat (`checkpoint-….json`) is the list of contents that goes to the model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec import Raw

from turnlog.errors import FormatError
from turnlog.events.times import parse_time
from turnlog.interop.texts import file_bytes
from turnlog.interop.transcripts.blocks import (
    native_block,
    text_block,
    thinking_block,
    tool_result_block,
    tool_use_block,
)
from turnlog.interop.transcripts.documents import Chain, data_block, made_of
from turnlog.interop.transcripts.fields import fields, items, part_of, rest_of
from turnlog.interop.transcripts.lines import TranscriptImporter, count, name_of, text_of
from turnlog.interop.transcripts.transcript import Builder, Entry, Given, Role, Transcript, without
from turnlog.model import Usage

PROVIDER = "gemini"
API = "generate_content"

_session = re.compile(rb'"sessionId"\s*:\s*"')
_project = re.compile(rb'"(?:projectHash|messages)"\s*:')
_saved = re.compile(rb'(?:\[|\{\s*"(?:history|clientHistory)"\s*:\s*\[)\s*\{\s*"(?:role|parts)"\s*:')
_APART = {"toolCalls": b"[", "thoughts": b"[", "tokens": b"{"}
"""What of a message is pieces of its own, and how that begins."""

_CALL = ("id", "name", "args")
_encoder = msgspec.json.Encoder()

Fields = dict[str, Raw]


class GeminiCli(TranscriptImporter):
    """Sessions and saved chats of Gemini CLI."""

    name = "gemini-cli"
    summary = "sessions and saved chats of Gemini CLI (session-….json, checkpoint-….json)"

    def recognizes(self, path: Path, beginning: bytes) -> bool:  # noqa: ARG002 - others look at the path
        """Tell whether a file is one of this format: it begins as a session or a saved chat does."""
        beginning = beginning.removeprefix(b"\xef\xbb\xbf").lstrip()
        if _saved.match(beginning):
            return b'"parts"' in beginning and b'"role"' in beginning
        head = beginning[:2000]
        return head[:1] == b"{" and _session.search(head) is not None and len(set(_project.findall(head))) > 1

    def build(self, path: Path, builder: Builder) -> Transcript:
        """Read a file."""
        given = builder.text(0, file_bytes(path).removeprefix(b"\xef\xbb\xbf"))
        if given is None:
            what = builder.done(places=0).problems[-1].what.partition(";")[0]
            raise FormatError(f"{str(path)!r} is {what}; nothing was imported")
        record = given.record()
        if bytes(record.get("messages", b""))[:1] == b"[" and "sessionId" in record:
            reader = _Session(builder, record)
            reader.whole(given)
            return builder.done(places=reader.places)
        at = next((name for name in ("clientHistory", "history") if _is_chat(record.get(name))), None)
        chat = Raw(given.text) if not record else None if at is None else record[at]
        if not _is_chat(chat):
            raise FormatError(
                f"{str(path)!r} is not a file of gemini-cli: it has no messages of it; nothing was imported"
            )
        saved = _Saved(builder)
        return builder.done(places=saved.whole(given, chat, at))


class _Session:
    """Reads the document of a session."""

    def __init__(self, builder: Builder, record: Fields) -> None:
        self._builder = builder
        self._session = name_of(record.get("sessionId"))
        self._sidechain = text_of(record.get("kind")) == "subagent"
        self._last: int | None = None
        self.places = 0

    def whole(self, given: Given) -> None:
        """Take all messages, and then what the session has beside them."""
        for index, raw in enumerate(items(given.record()["messages"])):
            self.places += 1
            part = part_of(given, f"messages[{index}]", bytes(raw))
            self._message(Given(place=self.places, text=part.text, findings=part.findings))
        rest = without(given.text, [("messages",)])
        first = next((index for index, entry in enumerate(self._builder.entries) if entry.parts), None)
        self._builder.piece(
            rest_of(given, rest, apart="messages"), "session", turn=first, id=self._session, session=self._session
        )

    def _message(self, given: Given) -> None:
        message = given.record()
        kind = text_of(message.get("type"))
        timestamp = text_of(message.get("timestamp"))
        if kind not in ("user", "gemini"):
            if kind not in ("info", "error", "warning"):
                self._builder.problem(given.place, f"a message of the unknown type {kind!r}: kept as an event")
            self._piece(given, kind or "unknown", timestamp, self._last)
            return
        turn = self._turn(message, "user" if kind == "user" else "assistant", "said")
        for index, raw in enumerate(items(message.get("thoughts"))):
            part = part_of(given, f"thoughts[{index}]", bytes(raw))
            told = _thought(fields(raw))
            moved = [("subject",), ("description",)] if told else []
            when = text_of(fields(raw).get("timestamp")) or timestamp
            self._piece(part, "thought", when, turn, [thinking_block(told)] if told else None, moved)
        blocks = _content(message.get("content"))
        apart = [name for name, begins in _APART.items() if bytes(message.get(name, b""))[:1] == begins]
        shown = made_of(given, message, [name for name in message if name not in apart])
        if _encoder.encode(message) != given.text:
            self._builder.problem(given.place, "a key that comes twice or is escaped: the last one counts, spelled out")
        self._piece(shown, kind, timestamp, turn, blocks, [("content",)] if blocks else [], text_of(message.get("id")))
        if "tokens" in apart:
            tokens = made_of(given, message, ["id", "tokens"])
            self._piece(tokens, "tokens", timestamp, turn)
        self._calls(given, message, turn)

    def _calls(self, given: Given, message: Fields, turn: int) -> None:
        """Take the calls of a message, and then what they gave, which is one turn."""
        timestamp = text_of(message.get("timestamp"))
        parts = [
            part_of(given, f"toolCalls[{index}]", bytes(raw))
            for index, raw in enumerate(items(message.get("toolCalls")))
        ]
        calls = [(part, part.record()) for part in parts]
        for part, call in calls:
            name = call.get("name")
            if name is None or not text_of(name):
                self._builder.problem(given.place, "a tool call without a name: kept as an event")
                continue
            block = tool_use_block(name, _arguments(call.get("args")), id=_string(call.get("id")))
            moved = [("args",)] if "args" in call else []
            own = made_of(part, call, _CALL)
            self._piece(own, "tool_call", timestamp, turn, [block], moved, text_of(call.get("id")))
        answers: int | None = None
        for part, call in calls:
            when = text_of(call.get("timestamp")) or timestamp
            if not text_of(call.get("name")):
                self._piece(part, "tool_call", when, turn)
                continue
            shown = made_of(part, call, [key for key in call if key != "args"])
            block = _result(call)
            if block is None:
                self._piece(shown, "tool_state", when, turn)
                continue
            if answers is None:
                answers = self._turn(message, "user", "results")
            self._piece(shown, "tool_result", when, answers, [block], [("result",)])

    def _turn(self, message: Fields, role: Role, part: str) -> int:
        timestamp = text_of(message.get("timestamp"))
        is_model = role == "assistant"
        self._last = self._builder.entry(
            Entry(
                role=role,
                parents=() if self._last is None else (self._last,),
                key=(self._session or "", text_of(message.get("id")) or "", part),
                time=parse_time(timestamp),
                timestamp=timestamp,
                session=self._session,
                sidechain=self._sidechain,
                model=name_of(message.get("model")) if is_model else None,
                provider=PROVIDER if is_model else None,
                api=API if is_model else None,
                usage=_usage(fields(message.get("tokens"))) if is_model else None,
            )
        )
        return self._last

    def _piece(
        self,
        given: Given,
        kind: str,
        timestamp: str | None,
        turn: int | None,
        blocks: Sequence[bytes] | None = None,
        moved: Sequence[tuple[str, ...]] = (),
        id: str | None = None,
    ) -> None:
        self._builder.piece(
            given,
            kind,
            turn=turn,
            blocks=blocks or None,
            moved=moved,
            id=id,
            time=parse_time(timestamp),
            session=self._session,
        )


@dataclass(slots=True)
class _Saved:
    """Reads a chat that was saved: neither ids nor times, and calls mostly without ids."""

    builder: Builder
    last: int | None = None
    open: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Name and id of each call without an answer."""

    def whole(self, given: Given, chat: Raw | None, at: str | None) -> int:
        """Take all contents. Return how many there are."""
        chain = Chain()
        contents = items(chat)
        for index, raw in enumerate(contents):
            part = part_of(given, f"{at or ''}[{index}]", bytes(raw))
            self._content(Given(place=index + 1, text=part.text, findings=part.findings), chain)
        if at is not None:
            rest = without(given.text, [(at,)])
            first = 0 if self.builder.entries else None
            self.builder.piece(rest_of(given, rest, apart=at), "chat", turn=first)
        return len(contents)

    def _content(self, given: Given, chain: Chain) -> None:
        content = given.record()
        role = {"user": "user", "model": "assistant"}.get(text_of(content.get("role")) or "")
        if role is None or bytes(content.get("parts", b""))[:1] != b"[":
            self.builder.problem(given.place, "a content of no known role or parts: kept as an event")
            self.builder.piece(chain.take(given), "content", turn=self.last)
            return
        is_model = role == "assistant"
        shown = chain.take(made_of(given, content, [name for name in content if name != "parts"]))
        self.last = self.builder.entry(
            Entry(
                role="assistant" if is_model else "user",
                parents=() if self.last is None else (self.last,),
                provider=PROVIDER if is_model else None,
                api=API if is_model else None,
            )
        )
        self.builder.piece(shown, "content", turn=self.last)
        for index, raw in enumerate(items(content["parts"])):
            part = part_of(given, f"parts[{index}]", bytes(raw))
            block, moved = self._part(fields(raw), raw, f"{given.place}-{index + 1}")
            kind = "part"
            self.builder.piece(chain.take(part), kind, turn=self.last, blocks=[block], moved=[("item", *moved)])

    def _part(self, part: Fields, raw: Raw, number: str) -> tuple[bytes, tuple[str, ...]]:
        """Return the block of a part, and where in it that stands."""
        called, answered = fields(part.get("functionCall")), fields(part.get("functionResponse"))
        name = text_of(called.get("name"))
        if name:
            id = text_of(called.get("id")) or f"{name}-{number}"
            self.open.append((name, id))
            return tool_use_block(name, _arguments(called.get("args")), id=id), ("functionCall", "args")
        name = text_of(answered.get("name")) or ""
        id = text_of(answered.get("id"))
        own = next((each for each in self.open if (each[1] == id if id is not None else each[0] == name)), None)
        if answered and (own is not None or id is not None):
            if own is not None:
                self.open.remove(own)
            told, is_error = _response(answered.get("response"))
            block = tool_result_block(told, id=own[1] if own is not None else id, is_error=is_error)
            return block, ("functionResponse", "response")
        block, where = _plain(part, raw)
        return block, where


def _is_chat(raw: Raw | None) -> bool:
    found = items(raw)
    return bool(found) and any({"role", "parts"} <= fields(each).keys() for each in found)


def _plain(part: Fields, raw: Raw) -> tuple[bytes, tuple[str, ...]]:
    """Return the block of a part that is no call and no result, and where in the part it stands."""
    text = part.get("text")
    if text is not None and text_of(text) is not None:
        is_thought = part.get("thought") == Raw(b"true")
        return (thinking_block(text) if is_thought else text_block(text)), ("text",)
    inline = fields(part.get("inlineData"))
    document = data_block(text_of(inline.get("mimeType")), text_of(inline.get("data")))
    if document is not None:
        return document, ("inlineData", "data")
    return native_block(PROVIDER, raw if part else Raw(_encoder.encode({"part": raw})), api=API), ()


def _content(content: Raw | None) -> list[bytes]:
    """Return what a message says: a text, a part, or a list of both."""
    if content is None or bytes(content) == b"null":
        return []
    if text_of(content) is not None:
        return [text_block(content)] if text_of(content) else []
    found = items(content) if bytes(content)[:1] == b"[" else [content]
    return [text_block(each) if text_of(each) is not None else _plain(fields(each), each)[0] for each in found]


def _thought(thought: Fields) -> str:
    """Return a thought as the model is shown to have had it: the subject in a line of its own."""
    subject, description = text_of(thought.get("subject")), text_of(thought.get("description"))
    return "\n\n".join(each for each in (subject and f"**{subject}**", description) if each)


def _result(call: Fields) -> bytes | None:
    """Return what a call gave, or None where it gave nothing yet."""
    raw = call.get("result")
    if raw is None or bytes(raw) in (b"null", b"[]"):
        return None
    is_error = text_of(call.get("status")) in ("error", "cancelled")
    parts = items(raw) if bytes(raw)[:1] == b"[" else [raw]
    blocks: list[Raw] = []
    texts: list[Raw | str] = []
    for each in parts:
        part = fields(each)
        if "functionResponse" in part:
            answer = fields(part["functionResponse"])
            told, failed = _response(answer.get("response"))
            is_error = is_error or failed
            texts.append(told)
            blocks.append(Raw(text_block(told)))
            blocks.extend(Raw(_plain(fields(more), more)[0]) for more in items(answer.get("parts")))
        elif text_of(each) is not None:
            texts.append(each)
            blocks.append(Raw(text_block(each)))
        else:
            blocks.append(Raw(_plain(part, each)[0]))
    content = texts[0] if len(texts) == len(blocks) == 1 else blocks
    return tool_result_block(content, id=_string(call.get("id")), is_error=is_error)


def _response(response: Raw | None) -> tuple[Raw | str, bool]:
    """Return the text of what a function answered, and whether that is an error. Else it is JSON text."""
    record = fields(response)
    for name in ("output", "error"):
        told = record.get(name)
        if told is not None and len(record) == 1 and text_of(told) is not None:
            return told, name == "error"
    return ("" if response is None else bytes(response).decode()), set(record) == {"error"}


def _usage(tokens: Fields) -> Usage | None:
    """Return the tokens of a reply. Cached ones are counted as input too; those of thoughts and tools are apart."""
    if not tokens:
        return None
    cached = count(tokens, "cached")
    return Usage(
        input_tokens=max(0, count(tokens, "input") - cached) + count(tokens, "tool"),
        cache_read_input_tokens=cached,
        output_tokens=count(tokens, "output"),
        reasoning_tokens=count(tokens, "thoughts"),
    )


def _arguments(raw: Raw | None) -> Raw:
    if raw is None or bytes(raw) == b"null":
        return Raw(b"{}")
    return raw if bytes(raw)[:1] == b"{" else Raw(_encoder.encode({"input": raw}))


def _string(raw: Raw | None) -> Raw | None:
    return raw if text_of(raw) is not None else None
