"""Chat messages as the Chat Completions API takes them, or Anthropic's: what applications keep of their own.

A file is JSON, or JSON lines: a list of messages, an object with `messages`, or several of these. A message is a turn.
Messages need neither ids nor times: what tells them apart is what comes before them in their conversation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path as FilePath

import msgspec
from msgspec import Raw

from turnlog.digest import pieces_digest
from turnlog.errors import FormatError
from turnlog.events.times import parse_time
from turnlog.interop.marked import begins, in_pieces, is_text, json_in, marked_text, says, text_of
from turnlog.interop.texts import BOM, RECOGNIZED_LINES, split_lines
from turnlog.interop.transcripts.blocks import (
    arguments_in,
    content_blocks,
    native_block,
    text_block,
    thinking_block,
    tool_result_block,
    tool_use_block,
)
from turnlog.interop.transcripts.documents import Chain, documents_of, made_of, url_block
from turnlog.interop.transcripts.fields import Fields, fields, items, part_of, record_in, rest_of
from turnlog.interop.transcripts.lines import TranscriptImporter, name_of, time_in_seconds
from turnlog.interop.transcripts.message_blocks import block_of, is_whole
from turnlog.interop.transcripts.transcript import Builder, Entry, Given, Path, Role, Transcript, without

PROVIDER, API = "openai", "chat_completions"
"""Whose native blocks parts are that no content block is made of."""

_ROLES: dict[str | None, Role] = {
    "assistant": "assistant",
    "developer": "system",
    "function": "user",
    "system": "system",
    "tool": "user",
    "user": "user",
}
_TOOLS = ("tool", "function")
_PARTS_OF_PROVIDER = ("image_url", "input_audio", "file")
_PARTS_OF_ANTHROPIC = frozenset(
    {"document", "image", "redacted_thinking", "search_result", "server_tool_use", "web_search_tool_result"}
)
"""Parts that no content block is made of where they have no bytes, or never, and that Anthropic takes back."""
_REASONING = ("reasoning_content", "reasoning")
"""Where compatible servers have what a model thought."""

_TIMES = ("timestamp", "created_at", "time")
_SESSIONS = ("session_id", "conversation_id", "thread_id", "id")
_CALL = frozenset({"type", "id", "index", "function"})
_FUNCTION = frozenset({"name", "arguments"})

_first_message = re.compile(
    rb'\s*(?:\[\s*)?(?:\{(?>(?:[^{}]|\{[^{}]*\})*?"messages"\s*:\s*\[\s*))?\{(?![^{}]*"type"\s*:)(?:'
    rb'(?>[^{}]*?"role"\s*:\s*"(?:assistant|developer|system|user)")[^{}]*?"content"\s*:|'
    rb'(?>[^{}]*?"content"\s*:)[^{}]*?"role"\s*:\s*"(?:assistant|developer|system|user)")'
)
"""How a document with messages begins, whichever of its role and its content comes first."""

_encoder = msgspec.json.Encoder()


class ChatMessages(TranscriptImporter):
    """Chat messages of an application of one's own."""

    name = "chat-messages"
    summary = "chat messages as the Chat Completions or the Messages API takes them (JSON, or JSON lines)"

    def recognizes(self, path: FilePath, beginning: bytes) -> bool:  # noqa: ARG002 - others look at the path
        """Tell whether a file is one of this format: one of its first lines is, or its document begins as one does."""
        beginning = beginning.removeprefix(BOM)
        records = map(record_in, split_lines(beginning)[:RECOGNIZED_LINES])
        if any(_is_plain(record) or any(map(_is_plain, _within(record))) for record in records if record):
            return True
        return _first_message.match(beginning) is not None

    def build(self, path: FilePath, builder: Builder) -> Transcript:
        """Read a file."""
        reader = _Reader(builder)
        number = 0
        for number, document in enumerate(documents_of(path), 1):
            given = builder.text(number, document.removeprefix(BOM))
            if given is not None:
                reader.take(given)
        reader.end()
        if not reader.there_are:
            what = "is not a file of messages: there is none in it" if number else "is empty"
            if damaged := builder.done(places=number).damaged:
                what = f"has no message that can be read, and {damaged:,} of {number:,} documents are damaged"
            raise FormatError(f"{str(path)!r} {what}; nothing was imported")
        return builder.done(places=number)


class _Reader:
    """Takes the documents of a file. Messages that stand in no object are one conversation."""

    def __init__(self, builder: Builder) -> None:
        self.there_are = False
        self._builder = builder
        self._loose: list[Given] = []

    def take(self, given: Given) -> None:
        """Take a document: messages, conversations, or what is neither, which is kept as an event."""
        listed = [part_of(given, f"[{index}]", bytes(each)) for index, each in enumerate(items(Raw(given.text)))]
        for each in listed if given.text[:1] == b"[" else [given]:
            record = each.record()
            if any(map(_is_message, _within(record))):
                self.there_are = True
                self._conversation(each, record)
            else:
                self.there_are |= _is_message(record)
                self._loose.append(each)

    def end(self) -> None:
        """Take the messages that stand in no object."""
        self._messages(self._loose, Chain(_begin(None, self._loose)), None, None)

    def _conversation(self, given: Given, record: Fields) -> None:
        messages = [
            part_of(given, f"messages[{index}]", bytes(each)) for index, each in enumerate(items(record["messages"]))
        ]
        session = next((name for key in _SESSIONS if (name := name_of(record.get(key)))), None)
        begin = _begin(session, messages)
        before = Chain(begin)
        last = self._system(given, record, before, session)
        rest = without(given.text, [("messages",)] if last is None else [("messages",), ("system",)])
        first = len(self._builder.entries) if last is None else last
        model = name_of(record.get("model"))
        self._messages(messages, before, session, model, last)
        if fields(Raw(rest)):
            turn = first if first < len(self._builder.entries) else None
            part = Chain(begin).take(rest_of(given, rest, apart="messages"))  # the same when there are more messages
            self._builder.piece(part, "conversation", turn=turn, session=session)

    def _system(self, given: Given, record: Fields, before: Chain, session: str | None) -> int | None:
        """Take the system prompt that stands beside the messages, as Anthropic's API has it."""
        said = record.get("system")
        blocks = content_blocks(said, _part)
        if not blocks:
            return None
        part = before.take(made_of(given, record, ["system"]))
        turn = self._builder.entry(Entry(role="system", key=_key(part), session=session))
        moved = [("item", "system")] if _is_all_in_blocks(said) else []
        self._builder.piece(part, "system", turn=turn, blocks=blocks, moved=moved, session=session)
        return turn

    def _messages(
        self, messages: Iterable[Given], before: Chain, session: str | None, model: str | None, last: int | None = None
    ) -> None:
        for given in messages:
            message = given.record()
            part = before.take(given)
            if not _is_message(message):
                what = "a message without a role or content" if message else "a message that is no object"
                self._builder.problem(given.place, f"{what}: kept as an event, it became no turn")
                self._builder.piece(part, "message", turn=last, session=session)
                continue
            last = self._message(part, message, session, model, last)

    def _message(self, given: Given, message: Fields, session: str | None, model: str | None, last: int | None) -> int:
        said = text_of(message.get("role"))
        role = _ROLES.get(said)
        if role is None:
            self._builder.problem(given.place, f"a message of the unknown role {said!r}: taken for a user's")
        stamp = next((message[name] for name in _TIMES if name in message), None)
        timestamp = text_of(stamp)
        time = time_in_seconds(stamp) if timestamp is None else parse_time(timestamp)
        timestamp = time.isoformat() if timestamp is None and time is not None else timestamp
        blocks, moved = _said(message, "user" if role is None else role)
        turn = self._builder.entry(
            Entry(
                role=role or "user",
                parents=() if last is None else (last,),
                key=_key(given),
                time=time,
                timestamp=timestamp,
                session=session,
                model=(name_of(message.get("model")) or model) if role == "assistant" else None,
            )
        )
        self._builder.piece(
            given,
            "message",
            turn=turn,
            blocks=blocks,
            moved=[("item", *path) for path in moved],
            time=time,
            id=name_of(message.get("id")),
            session=session,
        )
        return turn


def _begin(session: str | None, messages: Sequence[Given]) -> str:
    """Return what tells a conversation from others that begin alike: its name, and what a user says first."""
    asked = next((each.text for each in messages if text_of(each.record().get("role")) == "user"), b"")
    return pieces_digest(chain(((session or "").encode(), b"\0"), in_pieces(asked))).hex()


def _key(given: Given) -> tuple[str, ...]:
    return (text_of(given.record()["before"]) or "",)


def _is_message(record: Fields) -> bool:
    is_said = not {"content", "tool_calls", "function_call"}.isdisjoint(record)
    return is_said and is_text(record.get("role")) and "message" not in record and "parts" not in record


def _is_plain(record: Fields) -> bool:
    """Tell whether a message is of this format: those of others, and items of the Responses API, have a type."""
    return _is_message(record) and "type" not in record


def _within(record: Fields) -> list[Fields]:
    return [fields(each) for each in items(record.get("messages"))]


def _said(message: Fields, role: Role) -> tuple[list[bytes], list[Path]]:
    """Return the blocks of a message, and the fields that they are all of."""
    content = message.get("content")
    moved: list[Path] = [("content",)] if _is_all_in_blocks(content) else []
    if text_of(message.get("role")) in _TOOLS:
        return [_result(message, content)], moved
    blocks: list[bytes] = []
    if role == "assistant":
        thought = next((name for name in _REASONING if says(message.get(name))), None)
        if thought is not None:
            blocks.append(thinking_block(message[thought]))
            moved.append((thought,))
    blocks += content_blocks(content, _part)
    if role == "assistant":
        if says(message.get("refusal")):
            blocks.append(text_block(message["refusal"]))
            moved.append(("refusal",))
        old = message.get("function_call")
        for name, calls in (
            ("tool_calls", [fields(each) for each in items(message.get("tool_calls"))]),
            ("function_call", [{"function": old}] if begins(old, b"{") else []),
        ):
            called = [_called(call) for call in calls]
            blocks += [block for block, _ in called]
            if called and all(is_all for _, is_all in called):
                moved.append((name,))
    return blocks, moved


def _is_all_in_blocks(content: Raw | None) -> bool:
    """Tell whether blocks have all that a content says: else it stays in the event too."""
    return all(map(_is_all_in_block, items(content))) if begins(content, b"[") else says(content)


def _is_all_in_block(raw: Raw) -> bool:
    part = fields(raw)
    kind = text_of(part.get("type"))
    if kind == "image_url":
        image = fields(part.get("image_url"))
        return image.keys() == {"url"} and part.keys() == {"type", "image_url"}
    return part.keys() == {"type", "refusal"} if kind == "refusal" else is_whole(Raw(b"[" + bytes(raw) + b"]"))


def _part(raw: Raw) -> bytes:
    """Return a block of a part, of either API."""
    part = fields(raw)
    kind = text_of(part.get("type"))
    if kind in _PARTS_OF_PROVIDER:
        image = url_block(fields(part.get("image_url")).get("url")) if kind == "image_url" else None
        return native_block(PROVIDER, raw, api=API) if image is None else image
    if kind == "refusal" and is_text(part.get("refusal")):
        return text_block(part["refusal"])
    if is_text(raw):
        return text_block(raw)
    return block_of(raw, "anthropic" if kind in _PARTS_OF_ANTHROPIC else ChatMessages.name)


def _result(message: Fields, content: Raw | None) -> bytes:
    """Return what a tool answered."""
    id, name = message.get("tool_call_id"), message.get("name")
    told = content if is_text(content) else [Raw(each) for each in content_blocks(content, _part)]
    return tool_result_block(
        told or "", id=id if is_text(id) else None, name=name if is_text(name) and says(name) else None
    )


def _called(call: Fields) -> tuple[bytes, bool]:
    """Return the block of a call, and whether it says all of it."""
    function = fields(call.get("function"))
    name, told, id = function.get("name"), function.get("arguments"), call.get("id")
    if not says(name):
        return native_block(PROVIDER, Raw(_encoder.encode(call)), api=API), True
    text = marked_text(told)
    if text is None:
        given, is_all = told if begins(told, b"{") else None, True
    elif (long := json_in(text)) is not None:
        given, is_all = Raw(long[0]), long[1]
    else:
        given = arguments_in(text)
        is_all = given is None or bytes(given).decode() == text
    if given is None:
        given = Raw(_encoder.encode({"input": Raw(b"null") if told is None else told}))
    block = tool_use_block(name, given, id=id if is_text(id) else None)
    return block, is_all and call.keys() <= _CALL and function.keys() <= _FUNCTION
