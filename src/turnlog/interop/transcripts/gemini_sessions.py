"""Recorded sessions of Gemini CLI: one document with `messages`, or a log of JSON lines, as newer versions write it.

A line is a message, which replaces the one of the same id; `$rewindTo` takes a message and all behind it back; `$set`
changes what is known of the session, its messages too. So what of a message comes at different times (its thoughts,
its text, its tokens, each call, what a call gave) is a piece each, and only what is new of a message makes pieces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec
from msgspec import Raw

from turnlog.events.times import parse_time
from turnlog.interop.marked import begins, is_text, says, text_of
from turnlog.interop.transcripts.blocks import beyond, text_block, thinking_block, tool_result_block, tool_use_block
from turnlog.interop.transcripts.documents import made_of
from turnlog.interop.transcripts.fields import Fields, fields, items, part_of, rest_of
from turnlog.interop.transcripts.gemini_parts import (
    API,
    PROVIDER,
    arguments_of,
    is_whole,
    plain_block,
    response_text,
    result_block,
    string_of,
    thought_text,
    usage_of,
)
from turnlog.interop.transcripts.lines import name_of
from turnlog.interop.transcripts.transcript import Builder, Entry, Given, Role, without

_APART = {"toolCalls": b"[", "thoughts": b"[", "tokens": b"{"}
"""What of a message is pieces of its own, and how that begins."""

_CALL = ("id", "name", "args")
_SPOKEN = ("user", "gemini")
_NOTES = ("info", "error", "warning")
_encoder = msgspec.json.Encoder()

Where = tuple[Literal["calls", "content"], int]
"""Which message tells of a call first, or of what it gave, and in which of its fields."""


@dataclass(kw_only=True, slots=True)
class _Message:
    """A message, as often as it was written.

    Attributes:
        id: its id; None where it has none.
        kind: its type.
        parent: the message before it, None at the beginning.
        versions: what was written, in order, each once.
        said: the turn that it is; None before it is made, and where it is none.
        last: the turn that what follows it continues.
    """

    id: str | None
    kind: str | None
    parent: int | None
    versions: dict[bytes, Given] = field(default_factory=dict[bytes, Given])
    said: int | None = None
    last: int | None = None


@dataclass(kw_only=True, slots=True)
class SessionReader:
    """Reads a session: first all that its file has, then pieces and turns are made of it.

    Attributes:
        builder: gathers pieces and turns.
        session: the id of the session.
        sidechain: whether it is that of a sub-agent.
        started: the turn of the call that started each sub-agent, by the sub-agent's id. Sessions can share it.
    """

    builder: Builder
    session: str | None = None
    sidechain: bool = False
    started: dict[str, int] = field(default_factory=dict[str, int])
    _messages: list[_Message] = field(default_factory=list[_Message])
    _active: list[int] = field(default_factory=list[int])
    _known: dict[str, dict[str | None, int]] = field(default_factory=dict[str, dict[str | None, int]])
    """The messages that were not taken back, by id and type."""
    _extras: list[tuple[Given, str, int | None]] = field(default_factory=list[tuple[Given, str, int | None]])
    _called: dict[str, Where] = field(default_factory=dict[str, Where])
    _answered: dict[str, Where] = field(default_factory=dict[str, Where])
    _open: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    # What a file has

    def document(self, given: Given) -> int:
        """Take a session that is one document. Return how many messages it has."""
        self._know(given.record())
        messages = items(given.record()["messages"])
        written: dict[tuple[str | None, str | None], bytes] = {}
        for index, raw in enumerate(messages):
            part = part_of(given, f"messages[{index}]", bytes(raw))
            message = part.record()
            id, kind = text_of(message.get("id")), text_of(message.get("type"))
            if id is not None and written.setdefault((id, kind), part.text) != part.text:
                self.builder.problem(index + 1, f"the message {id!r} is there twice: one turn has what both say")
            self._write(Given(place=index + 1, text=part.text, findings=part.findings))
        rest = without(given.text, [("messages",)])
        self._extras.append((rest_of(given, rest, apart="messages"), "session", None))
        return len(messages)

    def line(self, given: Given) -> None:
        """Take a line of a session: an object."""
        record = given.record()
        back, id = text_of(record.get("$rewindTo")), text_of(record.get("id"))
        if back is not None:
            self._rewind(given, back)
        elif id is not None:
            self._write(given)
        elif "$set" in record:
            change = fields(record["$set"])
            self._replace(given, change.get("messages"), "$set.messages")
            self._other(given, "update", ("$set", "messages") if items(change.get("messages")) else ())
        elif "sessionId" in record:
            self._know(record)
            self._replace(given, record.get("messages"), "messages")
            self._other(given, "session", ("messages",) if items(record.get("messages")) else ())
        else:
            self.builder.problem(given.place, "a line of no known shape: kept as an event")
            self._other(given, "unknown")

    def _know(self, record: Fields) -> None:
        self.session = name_of(record.get("sessionId")) or self.session
        self.sidechain = self.sidechain or text_of(record.get("kind")) == "subagent"

    def _other(self, given: Given, kind: str, apart: tuple[str, ...] = ()) -> None:
        """Keep what is no message as an event of the last one before it. `apart` is where messages in it stand."""
        rest = without(given.text, [apart]) if apart else given.text
        shown = rest_of(given, rest, apart=".".join(apart)) if apart else given
        self._extras.append((shown, kind, self._active[-1] if self._active else None))

    def _rewind(self, given: Given, id: str) -> None:
        index = self._first_of(id)
        if index is None:
            self.builder.problem(given.place, f"a rewind to {id!r}, which is not here: what follows begins a thread")
        self._take_back(0 if index is None else self._active.index(index))
        self._other(given, "rewind")

    def _replace(self, given: Given, raw: Raw | None, at: str) -> None:
        """Take the whole list of messages: those that are known stay where they are, the others follow the last one.

        Where it only leaves out the last ones, these were taken back.
        """
        if not begins(raw, b"["):
            return
        parts = [part_of(given, f"{at}[{index}]", bytes(each)) for index, each in enumerate(items(raw))]
        listed = [text_of(part.record().get("id")) for part in parts]
        spoken = [at for at, index in enumerate(self._active) if self._messages[index].kind in _SPOKEN]
        known = [self._messages[self._active[at]].id for at in spoken]
        if len(listed) < len(known) and known[: len(listed)] == listed:
            self._take_back(spoken[len(listed)])
        for part in parts:
            self._write(part)

    def _take_back(self, at: int) -> None:
        """Take back the messages from a place on. They stay in the log, as a branch."""
        for index in self._active[at:]:
            self._known.get(self._messages[index].id or "", {}).pop(self._messages[index].kind, None)
        del self._active[at:]

    def _first_of(self, id: str) -> int | None:
        """Return the first message of an id that was not taken back; None where there is none."""
        return min(self._known.get(id, {}).values(), default=None)

    def _write(self, given: Given) -> None:
        """Take a message, or what is written anew of one."""
        message = given.record()
        id = text_of(message.get("id"))
        kind = text_of(message.get("type"))
        index = None if id is None else self._known.get(id, {}).get(kind)
        if index is None:
            if id is not None and self._first_of(id) is not None:
                what = f"a message of the type {kind!r} has the id {id!r} of one of another type"
                self.builder.problem(given.place, f"{what}: taken for a message of its own")
            index = len(self._messages)
            parent = self._active[-1] if self._active else None
            self._messages.append(_Message(id=id, kind=kind, parent=parent))
            self._active.append(index)
            if id is not None:
                self._known.setdefault(id, {})[kind] = index
        if given.text in self._messages[index].versions:
            return
        self._messages[index].versions[given.text] = given
        for each in items(message.get("toolCalls")):
            call = fields(each)
            if (call_id := text_of(call.get("id"))) is not None and text_of(call.get("name")):
                self._called.setdefault(call_id, ("calls", index))
                if result_block(call) is not None:
                    self._answered.setdefault(call_id, ("calls", index))
        for each in items(message.get("content")):
            part = fields(each)
            if (call_id := text_of(fields(part.get("functionCall")).get("id"))) is not None:
                self._called.setdefault(call_id, ("content", index))
            if (call_id := text_of(fields(part.get("functionResponse")).get("id"))) is not None:
                self._answered.setdefault(call_id, ("content", index))

    # What becomes of it

    def make(self, start: int | None = None) -> None:
        """Make pieces and turns of all. `start` is the turn that the first message continues, for a sub-agent."""
        first = len(self.builder.entries)
        for index, message in enumerate(self._messages):
            message.last = start if message.parent is None else self._messages[message.parent].last
            if message.kind in _SPOKEN:
                _MessageReader(self, index, message).make()
                continue
            if message.kind not in _NOTES:
                place = next(iter(message.versions.values())).place
                self.builder.problem(place, f"a message of the unknown type {message.kind!r}: kept as an event")
            for given in message.versions.values():
                self.piece(given, message.kind or "unknown", text_of(given.record().get("timestamp")), message.last)
        own = range(first, len(self.builder.entries))
        turn = next((index for index in own if self.builder.entries[index].parts), None)
        for given, kind, at in self._extras:
            last = None if at is None else self._messages[at].last
            self.piece(
                given, kind, None, turn if last is None else last, id=self.session if kind == "session" else None
            )

    def piece(
        self,
        given: Given,
        kind: str,
        timestamp: str | None,
        turn: int | None,
        blocks: Sequence[bytes] | None = None,
        moved: Sequence[tuple[str, ...]] = (),
        id: str | None = None,
    ) -> int:
        """Add a piece. Return its index."""
        return self.builder.piece(
            given,
            kind,
            turn=turn,
            blocks=blocks,
            moved=moved,
            id=id,
            time=parse_time(timestamp),
            session=self.session,
        )

    def calls_here(self, id: str | None, where: Where) -> bool:
        """Tell whether a call is told of for the first time in a field of a message: once it is, it is not again."""
        return _is_first(self._called, id, where)

    def answers_here(self, id: str | None, where: Where) -> bool:
        """Tell the same of what a call gave."""
        return _is_first(self._answered, id, where)

    def leave_open(self, name: str, id: str) -> None:
        """Wait for what a call without an id of its own gave."""
        self._open.append((name, id))

    def take_open(self, name: str) -> str | None:
        """Return the id that the oldest call of a name was given which waits for what it gave."""
        waiting = next((each for each in self._open if each[0] == name), None)
        if waiting is None:
            return None
        self._open.remove(waiting)
        return waiting[1]


@dataclass(slots=True)
class _MessageReader:
    """Makes pieces of a message of a user or a model, and its turns: what it says, and what its calls gave."""

    reader: SessionReader
    index: int
    message: _Message
    seen: set[tuple[str, bytes]] = field(default_factory=set[tuple[str, bytes]])
    spoken: Counter[bytes] = field(default_factory=Counter[bytes])
    answers: int | None = None

    def make(self) -> None:
        """Take all that was written of it."""
        versions = [(given, given.record()) for given in self.message.versions.values()]
        records = [record for _, record in versions]
        self.message.said = self._turn(records, "user" if self.message.kind == "user" else "assistant", "said")
        for given, record in versions:
            self._speak(given, record)
            self._calls(given, record)
        for given, record in versions:
            self._results(given, record, records)

    def _speak(self, given: Given, message: Fields) -> None:
        timestamp, turn = text_of(message.get("timestamp")), self.message.said
        for index, raw in enumerate(items(message.get("thoughts"))):
            part = part_of(given, f"thoughts[{index}]", bytes(raw))
            told = thought_text(fields(raw))
            moved = [(name,) for name in ("subject", "description") if says(fields(raw).get(name))]
            when = text_of(fields(raw).get("timestamp")) or timestamp
            self._piece(part, "thought", when, turn, [thinking_block(told)] if told else None, moved)
        apart = [name for name, byte in _APART.items() if begins(message.get(name), byte)]
        if _encoder.encode(message) != given.text:
            what = "a key that comes twice or is escaped: the last one counts, spelled out"
            self.reader.builder.problem(given.place, what)
        shown = made_of(given, message, [name for name in message if name not in apart])
        if ("said", shown.text) not in self.seen:
            self.seen.add(("said", shown.text))
            blocks, is_all = self._content(message.get("content"))
            moved = [("content",)] if is_all else []
            kind = self.message.kind or ""
            self.reader.piece(shown, kind, timestamp, turn, blocks or None, moved, text_of(message.get("id")))
        if "tokens" in apart:
            is_counted = turn is not None and self.reader.builder.entries[turn].usage is not None
            blocks: list[bytes] | None = [] if is_counted else None  # a reply that says nothing is a turn
            told = self._piece(made_of(given, message, ["id", "tokens"]), "tokens", timestamp, turn, blocks)
            if told is not None and turn is not None:
                self.reader.builder.entries[turn].counted = told

    def _content(self, content: Raw | None) -> tuple[list[bytes], bool]:
        """Return what content says that was not said yet, and whether all of it stands in turns."""
        if content is None or bytes(content) == b"null" or bytes(content) == b'""':
            return [], False
        blocks: list[bytes] = []
        is_all = True
        for place, raw in enumerate(items(content) if begins(content, b"[") else [content]):
            block, is_whole = self._part(raw, place)
            is_all = is_all and is_whole
            if block is not None:
                blocks.append(block)
        fresh = beyond(blocks, self.spoken.copy())
        self.spoken += Counter(fresh)
        return fresh, is_all

    def _part(self, raw: Raw, place: int) -> tuple[bytes | None, bool]:
        """Return the block of a part, none where it says again what was said, and whether the block has all of it."""
        if is_text(raw):
            return text_block(raw), True
        part = fields(raw)
        here: Where = ("content", self.index)
        called, answered = fields(part.get("functionCall")), fields(part.get("functionResponse"))
        if name := text_of(called.get("name")):
            id = text_of(called.get("id"))
            if id is not None and not self.reader.calls_here(id, here):
                return None, False
            if id is None:
                id = f"{name}-{self.message.id or self.index}-{place + 1}"
                self.reader.leave_open(name, id)
            is_whole = part.keys() == {"functionCall"} and called.keys() <= {"id", "name", "args"}
            return tool_use_block(name, arguments_of(called.get("args")), id=id), is_whole
        if answered:
            id = text_of(answered.get("id"))
            if id is not None and not self.reader.answers_here(id, here):
                return None, False
            id = self.reader.take_open(text_of(answered.get("name")) or "") if id is None else id
            if id is not None:
                told, is_error = response_text(answered.get("response"))
                return tool_result_block(told, id=id, is_error=is_error), False
        block, where = plain_block(part, raw)
        return block, not where or (part.keys() == {where[0]} and _is_alone(part, where))

    def _calls(self, given: Given, message: Fields) -> None:
        timestamp, turn = text_of(message.get("timestamp")), self.message.said
        for index, raw in enumerate(items(message.get("toolCalls"))):
            part = part_of(given, f"toolCalls[{index}]", bytes(raw))
            call = part.record()
            name, id = call.get("name"), text_of(call.get("id"))
            if name is None or not text_of(name):
                self.reader.builder.problem(given.place, "a tool call without a name: kept as an event")
                self._piece(part, "tool_call", text_of(call.get("timestamp")) or timestamp, turn)
                continue
            if turn is not None and (agent := text_of(call.get("agentId"))) is not None:
                self.reader.started.setdefault(agent, turn)
            if id is not None and not self.reader.calls_here(id, ("calls", self.index)):
                self._piece(made_of(part, call, _CALL), "tool_call", timestamp, turn)
                continue
            block = tool_use_block(name, arguments_of(call.get("args")), id=string_of(call.get("id")))
            moved = [("args",)] if "args" in call else []
            self._piece(made_of(part, call, _CALL), "tool_call", timestamp, turn, [block], moved, id)

    def _results(self, given: Given, message: Fields, records: Sequence[Fields]) -> None:
        """Take what calls gave, which is one turn behind the message."""
        timestamp = text_of(message.get("timestamp"))
        for index, raw in enumerate(items(message.get("toolCalls"))):
            part = part_of(given, f"toolCalls[{index}]", bytes(raw))
            call = part.record()
            if not text_of(call.get("name")):
                continue
            id, when = text_of(call.get("id")), text_of(call.get("timestamp")) or timestamp
            shown = made_of(part, call, [key for key in call if key != "args"])
            block = result_block(call)
            if ("tool_result", shown.text) in self.seen:
                continue
            if block is None or (id is not None and not self.reader.answers_here(id, ("calls", self.index))):
                self._piece(shown, "tool_state", when, self.message.said)
                continue
            if self.answers is None:
                self.answers = self._turn(records, "user", "results")
            moved = [("result",)] if is_whole(call) else []
            self._piece(shown, "tool_result", when, self.answers, [block], moved)

    def _turn(self, records: Sequence[Fields], role: Role, part: str) -> int:
        timestamp = text_of(records[0].get("timestamp"))
        is_model = role == "assistant"
        models = [model for record in records if (model := name_of(record.get("model"))) is not None]
        tokens = [usage for record in records if (usage := usage_of(fields(record.get("tokens")))) is not None]
        last = self.message.last
        self.message.last = self.reader.builder.entry(
            Entry(
                role=role,
                parents=() if last is None else (last,),
                key=(self.reader.session or "", self.message.id or "", part),
                time=parse_time(timestamp),
                timestamp=timestamp,
                session=self.reader.session,
                sidechain=self.reader.sidechain,
                model=models[-1] if is_model and models else None,
                provider=PROVIDER if is_model else None,
                api=API if is_model else None,
                usage=tokens[-1] if is_model and tokens else None,
            )
        )
        return self.message.last

    def _piece(
        self,
        given: Given,
        kind: str,
        timestamp: str | None,
        turn: int | None,
        blocks: Sequence[bytes] | None = None,
        moved: Sequence[tuple[str, ...]] = (),
        id: str | None = None,
    ) -> int | None:
        """Add a piece, unless the message had it before. Return its index."""
        if (kind, given.text) in self.seen:
            return None
        self.seen.add((kind, given.text))
        return self.reader.piece(given, kind, timestamp, turn, blocks, moved, id)


def _is_first(firsts: dict[str, Where], id: str | None, where: Where) -> bool:
    """Tell whether something is at the place where it comes first, and take it from there."""
    if id is None:
        return True
    if firsts.get(id) != where:
        return False
    del firsts[id]
    return True


def _is_alone(part: Fields, where: tuple[str, ...]) -> bool:
    """Tell whether there is nothing beside what stands in a block."""
    return len(where) == 1 or fields(part[where[0]]).keys() <= {"mimeType", where[1]}
