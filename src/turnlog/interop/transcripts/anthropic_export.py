"""claude.ai's data export: a list of messages for each conversation.

A message of a model has its calls and their results among its texts: it becomes a turn up to the first result, a turn
of what answers, and so on. Each block is a piece of its own, so that what is said of it (times, citations) is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import Raw

from turnlog.events.times import parse_time
from turnlog.interop.marked import begins, digest_of, is_text, json_as_text, says, text_of, text_pieces
from turnlog.interop.transcripts.archives import Export, ExportImporter, parents_first
from turnlog.interop.transcripts.blocks import (
    document_block,
    native_block,
    text_block,
    thinking_block,
    tool_result_block,
    tool_use_block,
)
from turnlog.interop.transcripts.fields import Fields, fields, items, part_of, rest_of
from turnlog.interop.transcripts.lines import name_of
from turnlog.interop.transcripts.transcript import Builder, Entry, Given, Path, Role, without

PROVIDER = "anthropic"

_NO_PARENT = "00000000-0000-4000-8000-000000000000"
_JOINTS = ("", "\n", "\n\n", " ")

_encoder = msgspec.json.Encoder()


class AnthropicExport(ExportImporter):
    """Data exports of claude.ai."""

    name = "anthropic-export"
    summary = "data exports of claude.ai (zip, folder or conversations.json)"
    marker = "chat_messages"

    def conversation(self, given: Given, builder: Builder, export: Export) -> None:  # noqa: ARG002 - has no other files
        """Make pieces and turns of a conversation."""
        record = given.record()
        id = name_of(record.get("uuid"))
        model = name_of(record.get("model"))
        reader = _Reader(builder=builder, conversation=id, model=model)
        messages: dict[str, tuple[Given, Fields]] = {}
        parents: dict[str, str | None] = {}
        before: str | None = None
        for index, raw in enumerate(items(record.get("chat_messages"))):
            message = fields(raw)
            name = name_of(message.get("uuid")) or str(index)
            if not message or name in messages:
                what = "comes twice" if message else "is no object"
                builder.problem(given.place, f"message {index + 1} {what}: kept as an event, it became no turn")
                part = part_of(given, f"chat_messages[{index}]", bytes(raw))
                builder.piece(part, "message", turn=reader.turns.get(name), session=id)
                continue
            messages[name] = part_of(given, f"chat_messages[{index}]", bytes(raw)), message
            # Exports of older versions do not say what a message answers: they are one behind the other.
            told = message.get("parent_message_uuid")
            parents[name] = before if told is None else name_of(told)
            before = name
        order, cut = parents_first(parents)
        for name in order:
            parent = parents[name]
            if name in cut or (parent is not None and parent not in parents):
                if parent != _NO_PARENT:
                    what = "is its own ancestor" if name in cut else f"answers {parent!r}, which is not there"
                    builder.problem(given.place, f"the message {name!r} {what}: it became the first of a thread")
                parent = None
            reader.take(name, parent, *messages.pop(name))
        rest = rest_of(given, without(given.text, [("chat_messages",)] if parents else []), apart="chat_messages")
        first = next((turn for turn in reader.made if builder.entries[turn].parts), None)
        time = parse_time(text_of(record.get("created_at")))
        builder.piece(rest, "conversation", turn=first, time=time, id=id, session=id)


@dataclass(kw_only=True, slots=True)
class _Reader:
    """Takes the messages of a conversation."""

    builder: Builder
    conversation: str | None
    model: str | None
    turns: dict[str, int] = field(default_factory=dict[str, int])
    """The last turn of each message."""
    made: list[int] = field(default_factory=list[int])

    def take(self, name: str, parent: str | None, given: Given, message: Fields) -> None:
        """Take a message behind the one that it answers."""
        sender = text_of(message.get("sender"))
        role: Role = "assistant" if sender == "assistant" else "user"
        if sender not in ("assistant", "human"):
            self.builder.problem(given.place, f"a message of the unknown sender {sender!r}: taken for a user's")
        before = None if parent is None else self.turns.get(parent)
        content = items(message.get("content"))
        opened = self._turn(role, name, 0, message, before)
        moved, blocks = self._own(message, content)
        rest = rest_of(given, without(given.text, [("content",)]) if content else given.text, apart="content")
        time = self.builder.entries[opened].time
        self.builder.piece(
            rest,
            "message",
            turn=opened,
            blocks=blocks or None,
            moved=moved,
            time=time,
            id=name,
            session=self.conversation,
        )
        for index, attachment in enumerate(items(message.get("attachments"))):
            self._attachment(part_of(given, f"attachments[{index}]", bytes(attachment)), opened)
        self._content(name, message, role, opened, given, content)

    def _own(self, message: Fields, content: Sequence[Raw]) -> tuple[list[Path], list[bytes]]:
        """Return what of the message itself is in its turn. Its text says the content again, or is all that it has."""
        moved: list[Path] = [("attachments",)] if items(message.get("attachments")) else []
        text = message.get("text")
        if not says(text):
            return moved, []
        if not content:
            return [*moved, ("text",)], [text_block(text)]
        texts = [fields(block).get("text") for block in content if _kind(fields(block)) == "text"]
        return ([*moved, ("text",)] if texts == [text] or _says_again(text, texts) else moved), []

    def _attachment(self, given: Given, turn: int) -> None:
        """Take a file that was pasted: its text was given to the model."""
        told = given.record().get("extracted_content")
        blocks = [text_block(told)] if says(told) else []
        moved = [("extracted_content",)] if blocks else []
        time = self.builder.entries[turn].time
        self.builder.piece(
            given, "attachment", turn=turn, blocks=blocks or None, moved=moved, time=time, session=self.conversation
        )

    def _content(self, name: str, message: Fields, role: Role, turn: int, given: Given, content: Sequence[Raw]) -> None:
        """Take the blocks of a message. Results among what a model says are a turn of their own."""
        part, speaks = 0, role
        waiting: list[tuple[str, str | None]] = []
        for index, raw in enumerate(content):
            block = fields(raw)
            kind = _kind(block)
            wanted: Role = "user" if kind == "tool_result" else role
            if wanted != speaks:
                part, speaks = part + 1, wanted
                turn = self._turn(wanted, name, part, message, turn)
            id = text_of(block.get("id" if kind == "tool_use" else "tool_use_id"))
            if kind == "tool_use":
                id = id or f"{name}:{index}"
                waiting.append((id, text_of(block.get("name"))))
            elif kind == "tool_result":
                id = _answered(waiting, id, text_of(block.get("name")))
            blocks, moved = self._block(block, kind, id, given.place)
            times = parse_time(text_of(block.get("start_timestamp"))) or self.builder.entries[turn].time
            self.builder.piece(
                part_of(given, f"content[{index}]", bytes(raw)),
                kind,
                turn=turn,
                blocks=blocks or None,
                moved=moved,
                time=times,
                session=self.conversation,
            )
            if kind == "tool_result":
                self._nested(part_of(given, f"content[{index}]", bytes(raw)), block, turn)

    def _nested(self, given: Given, block: Fields, turn: int) -> None:
        """Keep what is said of the texts of a result."""
        for index, raw in enumerate(items(block.get("content"))):
            if _kind(nested := fields(raw)) == "text" and says(nested.get("text")) and len(nested) > 2:
                part = part_of(given, f"content[{index}]", bytes(raw))
                self.builder.piece(part, "tool_result_part", turn=turn, moved=[("text",)], session=self.conversation)

    def _turn(self, role: Role, name: str, part: int, message: Fields, before: int | None) -> int:
        timestamp = text_of(message.get("created_at"))
        is_model = role == "assistant"
        turn = self.builder.entry(
            Entry(
                role=role,
                parents=() if before is None else (before,),
                key=(self.conversation or "", name, str(part)),
                time=parse_time(timestamp),
                timestamp=timestamp,
                session=self.conversation,
                message_id=name,
                model=self.model if is_model else None,
                provider=PROVIDER if is_model else None,
            )
        )
        self.turns[name] = turn
        self.made.append(turn)
        return turn

    def _block(self, block: Fields, kind: str, id: str | None, place: int) -> tuple[list[bytes], list[Path]]:
        """Return what a block says, and the fields of it that are in that."""
        told = block.get("text" if kind == "text" else "thinking")
        if kind in ("text", "thinking") and is_text(told):
            if not says(told):
                return [], []
            signature = block.get("signature")
            if kind == "text":
                return [text_block(told)], [("text",)]
            signed = signature if says(signature) else None
            signed_by: list[Path] = [] if signed is None else [("signature",)]
            return [thinking_block(told, signature=signed)], [("thinking",), *signed_by]
        name = block.get("name")
        given = block.get("input")
        if kind == "tool_use" and says(name) and given is not None:
            given = given if begins(given, b"{") else Raw(_encoder.encode({"input": given}))
            return [tool_use_block(name, given, id=id)], [("input",)]
        if kind == "tool_result":
            failed = bytes(block.get("is_error", b"")) == b"true"
            named = name if says(name) else None
            content = _result(block.get("content"))
            return [tool_result_block(content, id=id, name=named, is_error=failed)], [("content",)]
        if kind in ("image", "document") and (found := _document(block)) is not None:
            return [found], [("source",)]
        if kind not in ("token_budget", "flag", "image", "document"):
            self.builder.problem(place, f"a block of the unknown type {kind!r}: kept as a native block")
        whole = Raw(_encoder.encode(block))
        return [native_block(PROVIDER, whole)], [(key,) for key in block if key != "type"]


def _says_again(text: Raw, texts: Sequence[Raw | None]) -> bool:
    """Tell whether a text is what some texts are together."""
    told = digest_of(text_pieces(text))
    return any(told == digest_of(_joined(texts, joint)) for joint in _JOINTS)


def _joined(texts: Sequence[Raw | None], joint: str) -> Iterator[str]:
    for index, text in enumerate(texts):
        if index:
            yield joint
        if is_text(text):
            yield from text_pieces(text)


def _kind(block: Fields) -> str:
    return text_of(block.get("type")) or "unknown"


def _answered(waiting: list[tuple[str, str | None]], id: str | None, name: str | None) -> str | None:
    """Return the id of the call that a result is of. Exports of older versions name none: it is the next one of it."""
    found = next((call for call in waiting if call[0] == id), None)
    if found is None and id is None:
        found = next((call for call in waiting if name is None or call[1] == name), None)
    if found is not None:
        waiting.remove(found)
        return found[0]
    return id


def _result(raw: Raw | None) -> Raw | str | list[Raw]:
    """Return what a tool answered. What is no text and no list is kept as JSON text."""
    if raw is None or bytes(raw) == b"null":
        return ""
    if is_text(raw):
        return raw
    if not begins(raw, b"["):
        return json_as_text(raw)
    return [Raw(_nested(each)) for each in items(raw)]


def _nested(raw: Raw) -> bytes:
    block = fields(raw)
    text = block.get("text")
    if _kind(block) == "text" and says(text):
        return text_block(text)
    document = _document(block)
    return (
        native_block(PROVIDER, raw if block else Raw(_encoder.encode({"content": raw})))
        if document is None
        else document
    )


def _document(block: Fields) -> bytes | None:
    """Return a document or an image that is there in base64."""
    source = fields(block.get("source"))
    media_type, data = source.get("media_type"), source.get("data")
    if text_of(source.get("type")) != "base64" or media_type is None or data is None:
        return None
    return document_block(media_type, data) if says(media_type) and says(data) else None
