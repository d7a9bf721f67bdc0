"""The `llm` tool's logs.db, an SQLite database: both generations of its tables.

The older one has a row of `responses` for each call, with what was asked and answered. The newer one has messages that
name their parent, with parts, and a row of `turns` for each call. A row is a piece; what it names in other tables
(fragments, attachments) is read with it, so that it is in the turn. The database is never written to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec import Raw

from turnlog.events.times import parse_time
from turnlog.interop.marked import begins, is_text, json_as_text, json_in, marked_text, says, text_of, unmarked
from turnlog.interop.transcripts.archives import parents_first
from turnlog.interop.transcripts.blocks import (
    document_block,
    native_block,
    text_block,
    thinking_block,
    tool_result_block,
    tool_use_block,
)
from turnlog.interop.transcripts.fields import Fields, fields, items
from turnlog.interop.transcripts.lines import TranscriptImporter, name_of
from turnlog.interop.transcripts.llm_database import (
    NEWER,
    Database,
    Row,
    Stored,
    Value,
    is_database,
    json_of,
    read,
    usage_of,
)
from turnlog.interop.transcripts.llm_database import name as name_in
from turnlog.interop.transcripts.llm_database import number as number_in
from turnlog.interop.transcripts.llm_database import text as text_in
from turnlog.interop.transcripts.llm_threads import Node, threads_of
from turnlog.interop.transcripts.transcript import Builder, Entry, Given, Role, Transcript
from turnlog.store.sqlite.opening import SQLITE_MAGIC

PROVIDER = "llm"
"""Whose blocks attachments are that the database has no bytes of."""

Said = str | Raw
"""What is said, as text or as JSON of a string."""

_OLDER = ("responses", "logs")

_encoder = msgspec.json.Encoder()


class LlmLogs(TranscriptImporter):
    """Databases of the `llm` tool."""

    name = "llm"
    summary = "the log database of llm (logs.db)"

    @property
    def prefix(self) -> str:
        """What the topics of its pieces begin with."""
        return "llm-logs"

    def recognizes(self, path: Path, beginning: bytes) -> bool:
        """Tell whether a file is one of this format: it has its tables."""
        return beginning.startswith(SQLITE_MAGIC) and is_database(path)

    def build(self, path: Path, builder: Builder) -> Transcript:
        """Read a database."""
        database = read(path)
        for place in database.misspelled:
            builder.problem(place, "the row has text that is not UTF-8: it was replaced by U+FFFD")
        for place, table, column in database.no_text:
            builder.problem(place, f"{column!r} of {table!r} is bytes, and no text: kept in base64, it is in no turn")
        reader = Reader(builder=builder, database=database)
        reader.newer()
        for table in _OLDER:
            reader.older(table)
        reader.rest()
        return builder.done(places=sum(map(len, database.tables.values())))


# Turns


@dataclass(kw_only=True, slots=True)
class Reader:
    """Makes pieces and turns of rows."""

    builder: Builder
    database: Database
    turns: dict[Value, int] = field(default_factory=dict[Value, int])
    """The turn of what a model answered, by id of the call; and of others, by id of the message, part or thread."""
    used: dict[tuple[str, Value], int] = field(default_factory=dict[tuple[str, Value], int])
    """The first turn that has the content of a fragment or an attachment, by table and id."""
    contents: dict[str, Raw] = field(default_factory=dict[str, Raw])
    """The bytes of each attachment that a turn has, in base64, by its id: as they are in the turn."""
    taken: set[int] = field(default_factory=set[int])
    """Places of the rows of calls that were taken as replies that say nothing."""
    has_messages: bool = False
    """Whether messages and parts were taken."""

    # ---- the newer generation

    def newer(self) -> None:
        """Take messages with their parts."""
        if not all(name in self.database.tables for name in NEWER):
            return
        if any("message_hash" not in stored.row for stored in self.database.rows("parts")):
            return
        self.has_messages = True
        messages = {name_in(stored.row.get("hash")): stored for stored in self.database.rows("messages")}
        parts: dict[str, list[Stored]] = {}
        for stored in sorted(self.database.rows("parts"), key=lambda each: number_in(each.row.get("position"))):
            parts.setdefault(name_in(stored.row.get("message_hash")), []).append(stored)
        calls = sorted(self.database.rows("turns"), key=lambda each: name_in(each.row.get("id")))
        threads = threads_of(self._parents(messages), calls, self.database.rows("threads"))
        last: list[int] = []
        for node in threads.nodes:
            row = None if node.call is None else node.call.row
            entry = Entry(role="user", parents=() if node.parent is None else (last[node.parent],))
            _tell(self.builder, entry, row, "thread_id")
            if node.is_reply:
                _answered_by(self.builder, entry, row, row if node.is_last else None)
            if node.hash is not None:
                last.append(self._message(node, messages[node.hash], parts.get(node.hash, ()), entry))
                self.turns.setdefault(node.hash, last[-1])
            elif node.call is not None:
                last.append(self._empty(node.call, entry))
        for stored in [each for hash, rest in parts.items() if hash not in messages for each in rest]:
            self.builder.problem(stored.place, "a part of no message: kept as an event, it became no turn")
            self._plain("parts", stored)
        for id, end in threads.ends.items():
            self.turns.setdefault(id, last[end])

    def _parents(self, messages: Mapping[str, Stored]) -> dict[str, str | None]:
        """Return the parent of each message, parents first. One that is not known is none."""
        told = {hash: name_in(stored.row.get("parent_hash")) or None for hash, stored in messages.items()}
        order, cut = parents_first(told)
        parents: dict[str, str | None] = {}
        for hash in order:
            parents[hash] = told[hash]
            if hash in cut or (parents[hash] is not None and parents[hash] not in told):
                self.builder.problem(
                    messages[hash].place, f"the message {hash!r} has no known parent: it became the first of a thread"
                )
                parents[hash] = None
        return parents

    def _empty(self, call: Stored, entry: Entry) -> int:
        """Take the reply of a call that said nothing: the row of the call is all there is of it."""
        entry.role, entry.key = "assistant", (self.builder.clean(name_in(call.row.get("id"))), "empty")
        turn = self.builder.entry(entry)
        self._plain("turns", call, turn, blocks=[])
        self.taken.add(call.place)
        return turn

    def _message(self, node: Node, stored: Stored, parts: Sequence[Stored], entry: Entry) -> int:
        """Take a message. What a server's own tool answered in a model's message is a turn that answers it."""
        told = stored.row.get("role")
        own: Role = "assistant" if told == "assistant" else "system" if told == "system" else "user"
        if told not in ("assistant", "system", "user", "tool"):
            self.builder.problem(stored.place, f"a message of the unknown role {told!r}: taken for a user's")
        entry.key = [
            self.builder.clean(each) for each in (name_in(stored.row.get("hash")), *(told for _, told in node.again))
        ]
        spoken, speaks, number = entry, own, 0
        turn = self.builder.entry(_spoken(entry, own, 0, entry.parents))
        given = self._given(stored.place, {**stored.row, **dict(node.again)})
        if given is not None:
            # A reply that says nothing is a turn.
            blocks: list[bytes] | None = [] if own == "assistant" and node.is_reply else None
            self.builder.piece(given, "messages", turn=turn, blocks=blocks, time=entry.time, session=entry.session)
        for part in parts:
            wanted: Role = "user" if own == "assistant" and part.row.get("type") == "tool_result" else own
            if wanted != speaks:
                number, speaks = number + 1, wanted
                turn = self.builder.entry(_spoken(spoken, wanted, number, (turn,)))
            self.turns.setdefault(f"part:{part.row.get('id')}", turn)
            self._part(part, turn, dict(node.again))
        return turn

    def _part(self, stored: Stored, turn: int, again: Mapping[str, str]) -> None:
        payload = json_of(stored.row.get("payload"))
        record: dict[str, object] = {**stored.row, **again}
        if payload is not None:
            known = fields(payload)
            pieces = items(known.get("text_ref"))
            if pieces:
                if record.get("text") is not None:
                    record["own_text"] = record["text"]
                record["text"], known["text_ref"] = self._resolved(stored.place, pieces, turn)
            named = [known["attachment"]] if "attachment" in known else items(known.get("attachments"))
            record["payload"] = Raw(_encoder.encode(known))
            if named:
                ids = [text_of(fields(each).get("id")) for each in named]
                record["attachments"] = [self.attachment(stored.place, id, turn) for id in ids]
        given = self._given(stored.place, record)
        if given is None:
            return
        blocks, moved = self._part_blocks(given, text_of(given.record().get("type")) or "unknown")
        entry = self.builder.entries[turn]
        self.builder.piece(
            given, "parts", turn=turn, blocks=blocks or None, moved=moved, time=entry.time, session=entry.session
        )

    def _part_blocks(self, given: Given, kind: str) -> tuple[list[bytes], list[tuple[str, ...]]]:
        """Return what a part says, and the fields that it is made of."""
        record = given.record()
        payload = fields(record.get("payload"))
        text = record.get("text")
        told = text if says(text) else None
        attached = self.attached(items(record.get("attachments")))
        name = payload.get("name") or record.get("tool_name")
        id = text_of(payload.get("tool_call_id")) or text_of(payload.get("id")) or text_of(payload.get("call_id"))
        if kind in ("text", "reasoning"):
            block = text_block if kind == "text" else thinking_block
            said = [] if told is None else [block(told)]
            return said + attached, [*([("text",)] if said else []), ("attachments",)]
        if kind == "tool_call" and says(name):
            return [tool_use_block(name, _arguments(payload.get("arguments")), id=id)], [("payload", "arguments")]
        if kind == "tool_result":
            output = payload.get("output", told or Raw(b'""'))
            failed = text_of(payload.get("exception")) is not None or bytes(payload.get("is_error", b"")) == b"true"
            block = _result(output, attached, id=id, name=name, failed=failed)
            told_in = ("payload", "output") if "output" in payload else ("text",)
            return [block], [*([told_in] if told is not None or "output" in payload else []), ("attachments",)]
        if kind == "attachment" and attached:
            return attached, [("attachments",)]
        self.builder.problem(given.place, f"a part of the unknown type {kind!r}: kept as a native block")
        whole = {"type": kind, "text": record.get("text"), "payload": record.get("payload")}
        return [native_block(PROVIDER, Raw(_encoder.encode(whole)))], [("text",), ("payload",)]

    def _resolved(self, place: int, pieces: Sequence[Raw], turn: int) -> tuple[str, Raw]:
        """Return the text that references and literals make, and the references without the literals."""
        texts: list[str] = []
        kept: list[object] = []
        for each in pieces:
            piece = fields(each)
            if "fragment" in piece:
                id = bytes(piece["fragment"])
                texts.append(text_in(self.fragment(place, int(id) if id.isdigit() else id.decode(), turn)) or "")
                kept.append(piece)
            else:
                texts.append(text_of(piece.get("literal")) or "")
                kept.append({"literal": None})
        return "".join(texts), Raw(_encoder.encode(kept))

    # ---- the older generation

    def older(self, table: str) -> None:
        """Take responses, each behind the last one of its conversation."""
        last: dict[Value, int] = {}
        systems: dict[Value, str] = {}
        calls: dict[Value, list[tuple[str, str | None]]] = {}
        made = {name: self._of_response(name) for name in ("tool_calls", "tool_results")}
        names = ("prompt_fragments", "system_fragments", "prompt_attachments")
        joined = {name: self.database.by(name, "response_id") for name in names}
        copied = {each.row.get("id") for each in self.database.rows("threads")}
        for stored in self.database.rows(table):
            id = stored.row.get("id")
            if table == "responses" and id in self.turns:
                # The newer tables have it too.
                self._plain(table, stored, self.turns[id])
                for name, rows in made.items():
                    for row in rows.pop(id, []):
                        self._plain(name, row, self.turns[id])
                continue
            told = stored.row.get("chat_id" if table == "logs" else "conversation_id")
            thread = f"{table}:{told or id}" if table == "logs" or told is None else told
            if thread in copied and thread not in last:
                what = "comes in twice: llm has copied it into its newer tables, where it went on with it"
                self.builder.problem(stored.place, f"the conversation {name_in(thread)!r} {what}")
            response = _Response(
                reader=self,
                table=table,
                stored=stored,
                thread=thread,
                last=last.get(thread),
                calls=calls.setdefault(thread, []),
            )
            response.system(self._fragments(stored.place, joined[names[1]].get(id, ())), systems)
            fragments = self._fragments(stored.place, joined[names[0]].get(id, ()))
            attached = [
                self.attachment(stored.place, name_in(row.get("attachment_id")), len(self.builder.entries))
                for row in joined[names[2]].get(id, ())
            ]
            results = made["tool_results"].pop(id, []) if table == "responses" else []
            response.asked(fragments, attached, results)
            response.answered(made["tool_calls"].pop(id, []) if table == "responses" else [])
            stored.row.clear()  # pieces have it now, and it can be large
            if response.last is not None:
                last[thread] = response.last
                self.turns[id if table == "responses" else f"logs:{id}"] = response.last
                self.turns.setdefault(thread, response.last)
        if table == "responses":
            for name, rows in made.items():
                for stored in [each for rest in rows.values() for each in rest]:
                    self.builder.problem(stored.place, f"a row of {name} of no response: kept as an event")
                    self._plain(name, stored)

    def _of_response(self, table: str) -> dict[Value, list[Stored]]:
        found: dict[Value, list[Stored]] = {}
        for stored in self.database.rows(table):
            found.setdefault(stored.row.get("response_id"), []).append(stored)
        return found

    # ---- what both name

    def rest(self) -> None:
        """Take all other rows, each with the turn that it is of."""
        taken = {"tool_calls", "tool_results", *_OLDER}
        if self.has_messages:
            taken |= {"messages", "parts"}
        for table in self.database.tables:
            for stored in () if table in taken else self.database.rows(table):
                if stored.place in self.taken:
                    continue
                row = stored.row
                names = [row.get("turn_id"), row.get("response_id"), row.get("message_hash"), row.get("thread_id")]
                names += [row.get("conversation_id"), f"part:{row.get('part_id')}"]
                if table in ("turns", "threads", "conversations"):
                    names.insert(0, row.get("id"))
                turn = next((self.turns[name] for name in names if name is not None and name in self.turns), None)
                used = self.used.get((table, row.get("id")))
                if table == "attachments" and (content := self.contents.get(name_in(row.get("id")))) is not None:
                    row["content"] = content  # the same, and held once
                self._plain(table, stored, turn if used is None else used, () if used is None else [("content",)])

    def _plain(
        self,
        table: str,
        stored: Stored,
        turn: int | None = None,
        moved: Sequence[tuple[str, ...]] = (),
        blocks: Sequence[bytes] | None = None,
    ) -> None:
        given = self._given(stored.place, stored.row)
        if given is not None:
            time = parse_time(text_in(stored.row.get("datetime_utc")))
            self.builder.piece(given, table, turn=turn, blocks=blocks, moved=moved, time=time)

    def _given(self, place: int, record: Mapping[str, object]) -> Given | None:
        return self.builder.text(place, _encoder.encode(record))

    def _fragments(self, place: int, rows: Sequence[Row]) -> list[Said]:
        """Return the texts of fragments that are to be in the next turn."""
        return [self.fragment(place, row.get("fragment_id"), len(self.builder.entries)) for row in rows]

    def fragment(self, place: int, id: Value, turn: int) -> Said:
        """Return the text of a fragment that is to be in a turn."""
        row = self.database.one("fragments", id)
        if row is not None:
            content = row.get("content")
            if content is None or isinstance(content, str | Raw):
                self.used.setdefault(("fragments", id), turn)
                return content or ""
            self.builder.problem(place, f"the fragment {id!r} is no text: it is in no turn")
            return ""
        self.builder.problem(place, f"the fragment {id!r} is not in the database: left out")
        return ""

    def attachment(self, place: int, id: str | None, turn: int) -> Row:
        """Return an attachment that is to be in a turn, with its bytes in base64."""
        row = self.database.one("attachments", id)
        if row is not None:
            self.used.setdefault(("attachments", id), turn)
            if row.get("content") is None:
                self.builder.problem(place, f"the bytes of attachment {id!r} are not in the database")
            return row
        self.builder.problem(place, f"the attachment {id!r} is not in the database")
        return {"id": id}

    def attached(self, raws: Sequence[Raw]) -> list[bytes]:
        """Return attachments as documents, or as what each is where its bytes or their type are not there."""
        blocks: list[bytes] = []
        for raw in raws:
            record: Fields = fields(raw)
            id, media_type, data = (record.get(name) for name in ("id", "type", "content"))
            if says(data) and is_text(id):
                self.contents.setdefault(text_of(id) or "", data)
            if says(media_type) and says(data):
                blocks.append(document_block(media_type, data))
            else:
                blocks.append(native_block(PROVIDER, Raw(_encoder.encode({"attachment": raw}))))
        return blocks


@dataclass(kw_only=True, slots=True)
class _Response:
    """Makes turns of a row of the older generation."""

    reader: Reader
    table: str
    stored: Stored
    thread: Value
    last: int | None
    calls: list[tuple[str, str | None]]
    """Calls of the conversation that nothing has answered yet: id and name."""
    is_told_again: bool = False
    """Whether the system prompt is the one that the conversation had before."""

    def system(self, fragments: Sequence[Said], told: dict[Value, str]) -> None:
        """Take the system prompt, where it is another than before."""
        texts = _said((*fragments, self.stored.row.get("system")))
        joined = "\n".join(text_in(text) or "" for text in texts)
        self.is_told_again = bool(texts) and told.get(self.thread) == joined
        if not texts or self.is_told_again:
            return
        told[self.thread] = joined
        self._add("system", "system", {"id": self.stored.row.get("id"), "texts": texts}, ("texts",))

    def asked(self, fragments: Sequence[Said], attached: Sequence[Row], results: Sequence[Stored]) -> None:
        """Take what was asked: results of tools, fragments, the prompt, attachments."""
        row = self.stored.row
        turn = self._turn("user")
        for result in results:
            self._result(result, turn)
        texts = _said((*fragments, row.get("prompt")))
        record: dict[str, object] = {"id": row.get("id"), "texts": texts, "attachments": attached}
        record["prompt_json"] = row.get("prompt_json")
        record |= {name: row[name] for name in ("prompt", "system") if not isinstance(row.get(name), str | Raw | None)}
        self._add("user", "prompt", record, ("texts", "attachments"), turn=turn)

    def answered(self, calls: Sequence[Stored]) -> None:
        """Take what the model answered, with its calls."""
        row = self.stored.row
        turn = self._turn("assistant")
        entry = self.reader.builder.entries[turn]
        _answered_by(self.reader.builder, entry, row, row)
        left_out = ("prompt", "prompt_json", "system")
        record: dict[str, object] = {name: value for name, value in row.items() if name not in left_out}
        if self.is_told_again:
            record["same_system"] = True
        self._add("assistant", self.table, record, ("reasoning", "response"), turn=turn)
        for index, stored in enumerate(calls):
            given = self.reader.builder.text(stored.place, _encoder.encode(stored.row))
            stored.row.clear()  # as that of the response is
            if given is None:
                continue
            call = given.record()
            id = text_of(call.get("tool_call_id")) or f"{row.get('id')}:{index}"
            name = call.get("name", Raw(b'""'))
            self.calls.append((id, text_of(name)))
            block = tool_use_block(name, _arguments(call.get("arguments")), id=id)
            self._piece(given, "tool_calls", turn, [block], ["arguments"])

    def _result(self, stored: Stored, turn: int) -> None:
        reader = self.reader
        joined = reader.database.by("tool_results_attachments", "tool_result_id").get(stored.row.get("id"), ())
        attached = [reader.attachment(stored.place, name_in(row.get("attachment_id")), turn) for row in joined]
        given = reader.builder.text(stored.place, _encoder.encode({**stored.row, "attachments": attached}))
        if given is None:
            return
        row = given.record()
        id, name = text_of(row.get("tool_call_id")), text_of(row.get("name"))
        call = next((each for each in self.calls if each[0] == id or (id is None and each[1] == name)), None)
        if call is not None:
            self.calls.remove(call)
            id = call[0]
        blocks = reader.attached(items(row.get("attachments")))
        failed = text_of(row.get("exception")) is not None
        block = _result(row.get("output"), blocks, id=id, name=row.get("name"), failed=failed)
        self._piece(given, "tool_results", turn, [block], ["output", "attachments"])

    def _add(
        self, role: Role, kind: str, record: Mapping[str, object], moved: Sequence[str], *, turn: int | None = None
    ) -> None:
        given = self.reader.builder.text(self.stored.place, _encoder.encode(record))
        if given is None:
            return
        turn = self._turn(role) if turn is None else turn
        row = given.record()
        blocks: list[bytes] = []
        for name in moved:
            value = row.get(name)
            if name == "reasoning" and says(value):
                blocks.append(thinking_block(value))
            elif name == "response" and says(value):
                blocks.append(text_block(value))
            elif name in ("reasoning", "response") and not is_text(value):
                moved = [each for each in moved if each != name]
            elif name == "texts":
                blocks += [text_block(text) for text in items(value)]
            elif name == "attachments":
                blocks += self.reader.attached(items(value))
        self._piece(given, kind, turn, blocks, moved)

    def _piece(self, given: Given, kind: str, turn: int, blocks: Sequence[bytes], moved: Sequence[str]) -> None:
        entry = self.reader.builder.entries[turn]
        paths = [(name,) for name in moved]
        said = blocks if blocks or entry.role == "assistant" else None  # a reply that says nothing is a turn
        self.reader.builder.piece(
            given, kind, turn=turn, blocks=said, moved=paths, time=entry.time, session=entry.session
        )

    def _turn(self, role: Role) -> int:
        entry = Entry(role=role, parents=() if self.last is None else (self.last,))
        entry.key = (self.table, self.reader.builder.clean(str(self.stored.row.get("id"))), role)
        _tell(self.reader.builder, entry, self.stored.row, "chat_id" if self.table == "logs" else "conversation_id")
        self.last = self.reader.builder.entry(entry)
        return self.last


# Values


def _said(values: Sequence[Value]) -> list[Said]:
    """Return those of some values that are text, and not empty."""
    return [value for value in values if (isinstance(value, str) and value) or (isinstance(value, Raw) and says(value))]


def _spoken(entry: Entry, role: Role, number: int, parents: Sequence[int]) -> Entry:
    """Return a turn of a message: one of a model has what is known of the call, others have not."""
    made = Entry(role=role, parents=parents, key=(*entry.key, str(number)), time=entry.time)
    made.timestamp, made.session = entry.timestamp, entry.session
    if role == "assistant":
        made.model, made.provider, made.usage = entry.model, entry.provider, entry.usage if number == 0 else None
    return made


def _tell(builder: Builder, entry: Entry, row: Row | None, thread: str) -> None:
    if row is not None:
        told = row.get("datetime_utc")
        entry.timestamp = builder.clean(str(told)) if isinstance(told, str | int | float) else None
        entry.time = parse_time(entry.timestamp)
        session = row.get(thread)
        entry.session = None if session is None else builder.clean(str(session))


def _answered_by(builder: Builder, entry: Entry, row: Row | None, counted: Row | None) -> None:
    """Say which model answered, and how many tokens it took."""
    if row is not None:
        model = text_in(row.get("resolved_model")) or text_in(row.get("model"))
        entry.model = None if model is None else builder.clean(model)
        entry.usage = None if counted is None else usage_of(counted)


def _arguments(raw: Raw | None) -> Raw:
    """Return the arguments of a call as a JSON object; they may be written as text."""
    found = raw
    if (text := marked_text(raw)) is not None:
        long = json_in(text)
        found = json_of(unmarked(text)) if long is None else Raw(long[0])
    if begins(found, b"{"):
        return found
    return Raw(b"{}") if raw is None or bytes(raw) in (b"null", b'""') else Raw(_encoder.encode({"input": raw}))


def _result(output: Raw | None, attached: Sequence[bytes], *, id: str | None, name: Raw | None, failed: bool) -> bytes:
    """Return what a tool answered. What is no text is kept as JSON text."""
    is_none = output is None or bytes(output) == b"null"
    text = "" if output is None or is_none else output if is_text(output) else json_as_text(output)
    said = [] if text in ("", Raw(b'""')) else [Raw(text_block(text))]
    content = [*said, *map(Raw, attached)] if attached else text
    return tool_result_block(content, id=id, name=name if name_of(name) else None, is_error=failed)
