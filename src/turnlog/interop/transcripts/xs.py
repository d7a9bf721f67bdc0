"""cross.stream: a folder that its `.export` wrote, with the turns of gpt2099.

`frames.jsonl` has a frame a line (`id`, `topic`, `hash`, `meta`, …), `cas` a file for each content, named by the base64
form of its hash. Frames of the topic `gpt.turn` become turns under the ids that they have. Every frame is kept, and
what others than turns have for content.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from turnlog.digest import payload_hash
from turnlog.errors import ContentError, FormatError, MetaError
from turnlog.ids import is_id, parse_id, time_of_id
from turnlog.interop.folders import NOT_FOLLOWED, leads_out
from turnlog.interop.marked import begins, text_of, whole
from turnlog.interop.texts import file_bytes, file_lines
from turnlog.interop.transcripts.blocks import checked_block, native_block, text_block
from turnlog.interop.transcripts.fields import fields as fields_of
from turnlog.interop.transcripts.lines import TranscriptImporter, count, name_of
from turnlog.interop.transcripts.transcript import Builder, Entry, Given, Transcript
from turnlog.model import CONTENT_TYPE, ROLES, TurnMeta, Usage
from turnlog.model.plain import plain_json
from turnlog.record.fields import check_bookmark_name
from turnlog.record.lookup import may_mean_a_turn

FRAMES = "frames.jsonl"
CONTENTS = "cas"
TURN = "gpt.turn"
PROVIDER = "gpt2099"
_HASH_CHARACTERS_MAX = 120
"""A longer hash can be none, nor the name of a file."""

_list = msgspec.json.Decoder(list[Raw])
_encoder = msgspec.json.Encoder()


class CrossStream(TranscriptImporter):
    """What cross.stream exports."""

    name = "xs"
    summary = "an export of cross.stream with gpt2099's turns (a folder with frames.jsonl and cas)"

    def recognizes(self, path: Path, beginning: bytes) -> bool:  # noqa: ARG002 - it is a folder
        """Tell whether it is a folder with frames."""
        return (path / FRAMES).is_file() and not leads_out(path / FRAMES, path)

    def build(self, path: Path, builder: Builder) -> Transcript:
        """Read an export."""
        folder = path.parent if path.name == FRAMES else path
        if not (folder / FRAMES).is_file():
            raise FormatError(f"{str(path)!r} is no export of cross.stream: it has no {FRAMES}; nothing was imported")
        if folder == path and leads_out(folder / FRAMES, folder):
            raise FormatError(f"{str(folder / FRAMES)!r} is {NOT_FOLLOWED}: name it; nothing was imported")
        reader = _Reader(builder, folder)
        number = blank = 0
        for number, line in enumerate(file_lines(folder / FRAMES), 1):
            if not line.strip():
                blank += 1
            elif (given := builder.text(number, line)) is not None:
                reader.take(given)
        return builder.done(places=number, blank=blank)


class _Reader:
    """Reads frames in their order."""

    def __init__(self, builder: Builder, folder: Path) -> None:
        self._builder = builder
        self._folder = folder
        self._turns: dict[str, int] = {}
        """The entries of turns that were read, by id."""
        self._heads: dict[str, str] = {}
        """The last turn that named each bookmark."""
        self._kept: set[str] = set()
        """Hashes of the contents that are kept beside frames."""

    def take(self, frame: Given) -> None:
        """Take the next frame."""
        record = frame.record()
        topic, frame_id = text_of(record.get("topic")), text_of(record.get("id"))
        if topic is None or frame_id is None or not is_id(frame_id):
            self._builder.damaged(frame.place, "no frame: it has no topic, or no SCRU128 id; it was left out")
            return
        own_id = parse_id(frame_id)
        turn = self._turn(frame, own_id, record) if topic == TURN else None
        time = _time(own_id)
        self._builder.piece(frame, topic, turn=turn, time=time, id=frame_id)
        if topic != TURN:
            self._content(frame, record, topic, time)

    def _turn(self, frame: Given, own_id: str, record: Mapping[str, Raw]) -> int | None:
        """Add a turn with its content; None where that is not there, or damaged."""
        if own_id in self._turns:
            self._builder.problem(frame.place, f"frame {own_id!r} comes twice: kept as an event, the first one counts")
            return None
        meta = fields_of(record.get("meta"))
        payload = self._read(frame, text_of(record.get("hash")))
        if payload is None:
            return None
        time = _time(own_id)
        head = name_of(meta.get("head"))
        role = text_of(meta.get("role")) or "user"
        if role not in ROLES:
            self._builder.problem(frame.place, f"role {role!r} is unknown: taken as 'user'")
            role = "user"
        entry = Entry(
            role=role,
            id=own_id,
            parents=self._parents(frame, meta),
            ids={text_of(record.get("id")) or own_id: None},
            bookmark=self._bookmark(frame, head),
            model=name_of(meta.get("model")),
            provider=name_of(meta.get("provider")),
            raw_stop_reason=name_of(meta.get("stop_reason")),
            usage=_usage(meta.get("usage")),
            timestamp=None if time is None else time.isoformat(),
        )
        fields: dict[str, Any] = {}
        if bytes(meta.get("cache", b"")) == b"true":
            fields["cache"] = True
        inherited = meta.get("inherited") or meta.get("options")
        if begins(inherited, b"{"):
            try:
                fields["inherited"] = plain_json(msgspec.json.decode(whole(inherited)), "inherited", MetaError)
            except (msgspec.DecodeError, MetaError) as error:
                self._builder.problem(frame.place, f"options cannot be inherited: {error}; they stay in the event")
        if text_of(meta.get("type")) == "document":
            entry.document, fields = self._document(meta, payload, role, fields)
            blocks: list[bytes] = []
        else:
            blocks = self._blocks(frame, meta, payload)
        entry.fields = fields
        turn = self._builder.entry(entry)
        self._turns[own_id] = turn
        if head is not None:
            self._heads[head] = own_id
        # The content stands in a file of its own, and the frame has nothing of it.
        content = Given(place=frame.place, text=_encoder.encode({"hash": text_of(record.get("hash"))}))
        self._builder.piece(content, "content", turn=turn, blocks=blocks)
        return turn

    def _bookmark(self, frame: Given, head: str | None) -> str | None:
        """Return the bookmark that a turn names; None where it names none, or what can be none."""
        try:
            if head is None or not may_mean_a_turn(check_bookmark_name(head)):
                return head
            self._builder.problem(frame.place, f"bookmark {head!r} could mean a turn of yours; it stays in the event")
        except MetaError as error:
            self._builder.problem(frame.place, f"{error}; it stays in the event")
        return None

    def _document(
        self, meta: Mapping[str, Raw], payload: bytes, role: Any, fields: dict[str, Any]
    ) -> tuple[bytes, dict[str, Any]]:
        given = TurnMeta(
            role=role,
            type="document",
            content_type=name_of(meta.get("content_type")) or "application/octet-stream",
            document_name=name_of(meta.get("document_name")) or None,
            original_path=text_of(meta.get("original_path")) or None,
            file_size=len(payload),
        )
        payload, given = self._builder.document(payload, given)
        told = {
            "type": "document",
            "content_type": given.content_type,
            "document_name": given.document_name,
            "original_path": given.original_path,
            "file_size": len(payload),
        }
        return payload, fields | told

    def _blocks(self, frame: Given, meta: Mapping[str, Raw], payload: bytes) -> list[bytes]:
        """Return the content blocks of a payload; text, as older versions stored it, is one."""
        if text_of(meta.get("content_type")) not in (None, CONTENT_TYPE) or payload[:1] not in (b"[", b"{"):
            return [self._redacted_text(frame, payload)]
        given = self._builder.text(frame.place, payload)
        if given is None:
            return [self._redacted_text(frame, payload)]
        raws = _list.decode(given.text) if given.text[:1] == b"[" else [Raw(given.text)]
        return [self._block(frame, bytes(raw)) for raw in raws]

    def _block(self, frame: Given, raw: bytes) -> bytes:
        if raw[:1] == b'"':
            return text_block(Raw(raw))
        try:
            return checked_block(b"[" + raw + b"]")
        except (ContentError, msgspec.DecodeError) as error:
            self._builder.problem(frame.place, f"{error}: kept as a native block")
            return native_block(PROVIDER, Raw(raw))

    def _redacted_text(self, frame: Given, payload: bytes) -> bytes:
        try:
            encoded = _encoder.encode(payload.decode())
        except UnicodeDecodeError:
            self._builder.problem(frame.place, "the content is not UTF-8: kept in base64, as a native block")
            return native_block(PROVIDER, Raw(_encoder.encode({"base64": b64encode(payload).decode()})))
        given = self._builder.text(frame.place, encoded)
        return text_block(Raw(encoded if given is None else given.text))

    def _parents(self, frame: Given, meta: Mapping[str, Raw]) -> list[int]:
        raw = meta.get("continues")
        if raw is None or bytes(raw) == b"null":
            return []
        names = _list.decode(raw) if begins(raw, b"[") else [raw]
        parents: list[int] = []
        for each in names:
            name = text_of(each)
            parent_id = parse_id(name) if name is not None and is_id(name) else self._heads.get(name or "", "")
            parent = self._turns.get(parent_id)
            if parent is None:
                self._builder.problem(
                    frame.place, f"continues {whole(each).decode()[:60]}, which is no turn before it: left out"
                )
            else:
                parents.append(parent)
        return parents

    def _content(self, frame: Given, record: Mapping[str, Raw], topic: str, time: datetime | None) -> None:
        """Keep the content of a frame that is no turn, once."""
        named = text_of(record.get("hash"))
        if named is None or named in self._kept:
            return
        payload = self._read(frame, named)
        if payload is None:
            return
        self._kept.add(named)
        try:
            said: dict[str, str] = {"text": payload.decode()}
        except UnicodeDecodeError:
            said = {"base64": b64encode(payload).decode()}
        given = self._builder.text(frame.place, _encoder.encode({"hash": named, "topic": topic, **said}))
        if given is not None:
            self._builder.piece(given, "content", time=time)

    def _read(self, frame: Given, named: str | None) -> bytes | None:
        """Return the content of a hash, checked; None, and a problem, where it is not there."""
        if named is None:
            self._builder.problem(frame.place, "a turn without content: kept as an event, it became no turn")
            return None
        path = self._folder / CONTENTS / b64encode(named.encode()).decode()
        can_be = len(named) <= _HASH_CHARACTERS_MAX
        is_link = can_be and leads_out(path, self._folder)
        if is_link or not can_be or not path.is_file():
            why = f"{NOT_FOLLOWED}," if is_link else f"not in {CONTENTS}:"
            self._builder.problem(
                frame.place, f"content {named[:_HASH_CHARACTERS_MAX]!r} is {why} kept as an event alone"
            )
            return None
        payload = file_bytes(path)
        if payload_hash(payload) != named:
            self._builder.problem(frame.place, f"content {named!r} has another hash: taken as it is")
        return payload


def _time(own_id: str) -> datetime | None:
    """Return the time of an id; None where it is beyond what a date can be."""
    try:
        return time_of_id(own_id)
    except OverflowError:
        return None


def _usage(raw: Raw | None) -> Usage | None:
    told = fields_of(raw)
    counts = {name: count(told, name) for name in Usage.__struct_fields__ if name in told}
    return Usage(**counts) if counts else None
