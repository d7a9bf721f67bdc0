"""ChatGPT's data export: a tree of messages for each conversation.

A message is a turn that continues the one that it stands under; what a message is not, such as the tree itself and the
title, is an event beside it. A message that a model writes to a tool is a call of it, and the tool's first answer under
it is its result.
"""

from __future__ import annotations

import mimetypes
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from msgspec import Raw

from turnlog.errors import FormatError
from turnlog.interop.marked import is_text, marked_text, says, text_of, whole
from turnlog.interop.transcripts.archives import Export, ExportImporter, parents_first
from turnlog.interop.transcripts.blocks import (
    arguments_in,
    document_block,
    native_block,
    native_part,
    text_block,
    tool_result_block,
    tool_use_block,
)
from turnlog.interop.transcripts.fields import Fields, fields, items, part_of, rest_of
from turnlog.interop.transcripts.lines import name_of, time_in_seconds
from turnlog.interop.transcripts.transcript import Builder, Entry, Given, Part, Path, Role, without
from turnlog.model import normal_stop_reason

PROVIDER = "openai"

_CONTENT: Path = ("content",)
_TEXTS = {
    "code": ("text",),
    "execution_output": ("text",),
    "computer_output": ("text",),
    "system_error": ("text",),
    "tether_quote": ("text",),
    "tether_browsing_display": ("result",),
    "tether_browsing_code": ("result",),
    "user_editable_context": ("user_profile", "user_instructions"),
    "model_editable_context": ("model_set_context",),
}
"""The fields of a content that have its texts, by its type."""

_ROLES: Mapping[str | None, Role] = {
    "assistant": "assistant",
    "developer": "system",
    "system": "system",
    "tool": "user",
    "user": "user",
}
_CONTEXTS = ("user_editable_context", "model_editable_context")
_THINKING_KEYS = frozenset({"type", "thinking", "signature", "redacted", "provider", "api", "model", "$extra"})
_ASSETS = ("file-service://", "sediment://")

_encoder = msgspec.json.Encoder()


@dataclass(kw_only=True, slots=True)
class _Call:
    """A call of a tool that can still be answered."""

    id: str
    name: str
    answered: bool = False


@dataclass(kw_only=True, slots=True)
class _Conversation:
    """What is known of a conversation while it is read."""

    given: Given
    id: str | None
    turns: dict[str, int] = field(default_factory=dict[str, int])
    """The turn of each node, or the one that its own children continue."""
    calls: dict[str, _Call] = field(default_factory=dict[str, _Call])
    """The call that an answer under a node is of."""


class OpenAIExport(ExportImporter):
    """Data exports of ChatGPT."""

    name = "openai-export"
    summary = "data exports of ChatGPT (zip, folder or conversations.json)"
    marker = "mapping"

    def conversation(self, given: Given, builder: Builder, export: Export) -> None:
        """Make pieces and turns of a conversation."""
        record = given.record()
        mapping = {name: fields(raw) for name, raw in fields(record.get("mapping")).items()}
        id = name_of(record.get("conversation_id")) or name_of(record.get("id"))
        conversation = _Conversation(given=given, id=id)
        parents = {name: name_of(node.get("parent")) for name, node in mapping.items()}
        order, cut = parents_first(parents)
        for name in order:
            parent = parents[name]
            if name in cut or (parent is not None and parent not in parents):
                what = "is its own ancestor" if name in cut else f"stands under {parent!r}, which is not there"
                builder.problem(given.place, f"the message {name!r} {what}: it became the first of a thread")
                parent = None
            _Node(builder, conversation, export, name, parent, mapping[name]).take()
        told = [("mapping", name, "message") for name, node in mapping.items() if fields(node.get("message"))]
        rest = rest_of(given, without(given.text, told), apart="mapping")
        first = next((turn for turn in conversation.turns.values() if builder.entries[turn].parts), None)
        builder.piece(
            rest, "conversation", turn=first, time=time_in_seconds(record.get("create_time")), id=id, session=id
        )


class _Node:
    """Takes one message of a conversation."""

    def __init__(
        self, builder: Builder, conversation: _Conversation, export: Export, name: str, parent: str | None, node: Fields
    ) -> None:
        self._builder = builder
        self._conversation = conversation
        self._export = export
        self._name = name
        self._parent = parent
        self._raw = node.get("message")
        self._message = fields(self._raw)
        self._content = fields(self._message.get("content"))
        self._assets: list[Given] = []
        self._places: list[int] = []
        """Before which block of the content each of these stands."""
        self._transcriptions: list[Given] = []

    def take(self) -> None:
        """Add its pieces and its turn."""
        conversation, parent = self._conversation, self._parent
        before = None if parent is None else conversation.turns.get(parent)
        call = None if parent is None else conversation.calls.get(parent)
        if self._raw is None or not self._message:
            # The root of the tree has no message.
            if before is not None:
                conversation.turns[self._name] = before
            if call is not None:
                conversation.calls[self._name] = call
            return
        author = fields(self._message.get("author"))
        speaker = text_of(author.get("role"))
        kind = text_of(self._content.get("content_type")) or "unknown"
        blocks = self._blocks(kind)
        if speaker not in _ROLES:
            problem = f"a message of the unknown author {speaker!r}: taken for a user's"
            self._builder.problem(conversation.given.place, problem)
        role: Role = _ROLES.get(speaker, "user")
        if kind in _CONTEXTS:
            role = "system"
        self._as_said = blocks
        if speaker == "assistant":
            blocks, call = self._said(kind, blocks)
        elif speaker == "tool" and call is not None and not call.answered and (blocks or self._assets):
            call.answered = True
            blocks = [self._answer(call, author, blocks)]
        if call is not None and (speaker in ("assistant", "tool") or not blocks):
            conversation.calls[self._name] = call
        self._add(role, blocks, () if before is None else (before,))

    def _add(self, role: Role, blocks: list[bytes], parents: tuple[int, ...]) -> None:
        builder, conversation, message = self._builder, self._conversation, self._message
        metadata = fields(message.get("metadata"))
        id = name_of(message.get("id")) or self._name
        told = message.get("create_time")
        time = time_in_seconds(told)
        if told is not None and time is None and bytes(told) != b"null":
            what = f"the time of the message {id!r} is none: the turn is without one"
            builder.problem(conversation.given.place, what)
        is_model = role == "assistant"
        stopped = text_of(fields(metadata.get("finish_details")).get("type")) if is_model else None
        turn = builder.entry(
            Entry(
                role=role,
                parents=parents,
                key=(conversation.id or "", id),
                time=time,
                timestamp=None if time is None else time.isoformat(),
                session=conversation.id,
                message_id=id,
                model=name_of(metadata.get("model_slug")) if is_model else None,
                provider=PROVIDER if is_model else None,
                stop_reason=None if stopped is None else normal_stop_reason(stopped),
                raw_stop_reason=stopped,
            )
        )
        conversation.turns[self._name] = turn
        given = part_of(conversation.given, f"mapping.{self._name}.message", bytes(self._raw or b"{}"))
        moved = [(*_CONTENT, name) for name in self._moved] if blocks or self._assets else []
        builder.piece(
            given, "message", turn=turn, blocks=blocks or None, moved=moved, time=time, id=id, session=conversation.id
        )
        for told in self._transcriptions:
            moved = [("part", "text")]
            builder.piece(told, "transcription", turn=turn, moved=moved, time=time, session=conversation.id)
        for asset in self._assets:
            record = asset.record()
            block = document_block(record["media_type"], record["data"])
            session = conversation.id
            builder.piece(asset, "file", turn=turn, blocks=[block], moved=[("data",)], time=time, session=session)
        if self._assets and blocks and blocks is self._as_said:
            self._put_in_order(builder.entries[turn].parts)

    def _put_in_order(self, parts: list[Part]) -> None:
        """Put each file where it stands in the message, between the blocks that the message has itself."""
        first = len(parts) - len(self._assets)
        said, files = parts[first - 1], parts[first:]
        del parts[first - 1 :]
        at = 0
        for place, file in zip(self._places, files, strict=True):
            if place > at:
                parts.append(Part(piece=said.piece, blocks=said.blocks[at:place]))
                at = place
            parts.append(file)
        if at < len(said.blocks):
            parts.append(Part(piece=said.piece, blocks=said.blocks[at:]))

    def _blocks(self, kind: str) -> list[bytes]:
        """Return what the content says; `_moved` has the fields that it is made of."""
        content = self._content
        self._moved: list[str] = []
        if kind in ("text", "multimodal_text"):
            self._moved = ["parts"]
            said: list[bytes] = []
            for part in items(content.get("parts")):
                block = self._part(part)
                if block is not None:
                    said.append(block)
                elif len(self._places) < len(self._assets):
                    self._places.append(len(said))
            return said
        if kind == "thoughts":
            self._moved = ["thoughts"]
            return [_thought(each) for each in items(content.get("thoughts"))]
        if kind == "reasoning_recap":
            return []  # says for the screen how long the model has thought
        named = [name for name in _TEXTS.get(kind, ()) if name in content]
        self._moved = [name for name in named if says(content[name])]
        if kind in _TEXTS and (self._moved or named):
            return [text_block(content[name]) for name in self._moved]
        if not content or (kind in _TEXTS and len(content) == 1):
            return []
        self._builder.problem(
            self._conversation.given.place, f"a content of the unknown type {kind!r}: kept as a native block"
        )
        self._moved = [name for name in content if name != "content_type"]
        return [native_block(PROVIDER, Raw(_encoder.encode(content)))]

    def _part(self, part: Raw) -> bytes | None:
        if is_text(part):
            return text_block(part) if says(part) else None
        record = fields(part)
        text = record.get("text")
        if text_of(record.get("content_type")) == "audio_transcription" and says(text):
            return self._transcription(part, text)
        pointer = text_of(record.get("asset_pointer"))
        asset = None if pointer is None else self._asset(pointer, part)
        if asset is not None:
            self._assets.append(asset)
            # What describes the file is on its piece, and its bytes are a block of the turn.
            return None
        if pointer is not None and asset is None and self._file_of(pointer) is None:
            self._builder.problem(
                self._conversation.given.place, f"the file {pointer!r} is not in the export: kept as a native block"
            )
        return native_part(PROVIDER, part)

    def _transcription(self, part: Raw, text: Raw) -> bytes:
        """Return what was said aloud as text; what else is known of it is a piece of its own."""
        place = self._conversation.given.place
        told = self._builder.text(place, _encoder.encode({"part": Raw(whole(part))}))
        if told is not None:
            self._transcriptions.append(told)
        return text_block(text)

    def _file_of(self, pointer: str) -> str | None:
        """Return the name of the file that a pointer means; None where it is not in the export."""
        id = next((pointer.removeprefix(scheme) for scheme in _ASSETS if pointer.startswith(scheme)), "")
        return self._export.named(id.partition("#")[0]) if id else None

    def _asset(self, pointer: str, part: Raw) -> Given | None:
        """Return a file of the export with the part that names it, redacted; None where it is not there."""
        name = self._file_of(pointer)
        if name is None:
            return None
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        try:
            data = b64encode(self._export.document(name)).decode()
        except FormatError as error:
            self._builder.problem(self._conversation.given.place, f"{error}: it was left out")
            return None
        record = {"part": Raw(whole(part)), "name": name, "media_type": media_type, "data": data}
        return self._builder.text(self._conversation.given.place, _encoder.encode(record))

    def _said(self, kind: str, blocks: list[bytes]) -> tuple[list[bytes], _Call | None]:
        """Return what a model said, and the call that it is, if it was said to a tool."""
        recipient = name_of(self._message.get("recipient"))
        if recipient in (None, "", "all") or kind == "thoughts" or len(blocks) != 1:
            return blocks, None
        told = fields(Raw(blocks[0])).get("text")
        text = marked_text(told)
        if told is None or text is None:
            return blocks, None
        id = name_of(self._message.get("id")) or self._name
        arguments = arguments_in(text)
        given = Raw(_encoder.encode({"input": told})) if arguments is None else arguments
        return [tool_use_block(recipient, given, id=id)], _Call(id=id, name=recipient)

    def _answer(self, call: _Call, author: Fields, blocks: list[bytes]) -> bytes:
        """Return what a tool answered: one text, or blocks."""
        name = author.get("name")
        name = name if says(name) else None
        text = fields(Raw(blocks[0])).get("text") if len(blocks) == 1 else None
        if not blocks:
            return tool_result_block("", id=call.id, name=name)
        content = text if text is not None else [Raw(block) for block in blocks]
        return tool_result_block(content, id=call.id, name=name)


def _thought(raw: Raw) -> bytes:
    """Return a block of a thought; its summary, which stands for it on the screen, and the like are extra keys."""
    record = fields(raw)
    name = "summary" if bytes(record.get("content", b'""')) == b'""' else "content"
    told = record.get(name)
    if not is_text(told) or not _THINKING_KEYS.isdisjoint(record):
        return native_block(PROVIDER, raw if record else Raw(_encoder.encode({"thought": raw})))
    further = {key: value for key, value in record.items() if key != name}
    return _encoder.encode({"type": "thinking", "thinking": told, **further})
