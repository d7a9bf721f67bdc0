"""OpenCode: its stored JSON documents, one after the other in a file, or in the folders that it keeps them in.

What `opencode export` writes has them too: a session as `info`, and under `messages` each message as `info` with its
`parts`. Newer versions keep them in a database, and write them so.

A message is a document, and so is each part of it. Messages of a session follow each other in the order of their ids.
A step of a model is a turn, and what its calls gave is the one behind it. A session that has a parent is a sub-agent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Raw

from turnlog.errors import FormatError
from turnlog.events.times import time_of
from turnlog.interop.folders import files_in, told
from turnlog.interop.marked import begins, is_text, json_as_text, says, text_of, whole
from turnlog.interop.sqlite_files import no_transcript, tables_of
from turnlog.interop.texts import BOM, file_bytes
from turnlog.interop.transcripts.archives import parents_first
from turnlog.interop.transcripts.blocks import (
    native_block,
    native_part,
    text_block,
    thinking_block,
    tool_result_block,
    tool_use_block,
)
from turnlog.interop.transcripts.documents import documents_of, made_of, url_block
from turnlog.interop.transcripts.fields import fields, items, part_of, rest_of
from turnlog.interop.transcripts.lines import TranscriptImporter, count, name_of
from turnlog.interop.transcripts.transcript import Builder, Entry, Given, Role, Transcript, without
from turnlog.model import Usage
from turnlog.model.names import HOME_APIS, provider_name

PROVIDER = "opencode"

_STOPS = {"stop": "stop", "tool-calls": "tool_use", "length": "length", "content-filter": "refusal", "error": "error"}
_ids = re.compile(rb'"(?:sessionID|messageID)"\s*:\s*"(?:ses|msg)_|"id"\s*:\s*"ses_[^"]*"\s*,\s*"(?:slug|version)"')
_MILLISECONDS_MAX = 1 << 42
_MILLISECONDS_DIGITS_MAX = 13
_encoder = msgspec.json.Encoder()

Fields = dict[str, Raw]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Document:
    """A document, and where it was found."""

    given: Given
    record: Fields
    name: str
    """The path of its file in the folder; empty in a file of many."""

    def text(self, key: str) -> str | None:
        return text_of(self.record.get(key))


@dataclass(kw_only=True, slots=True)
class _Message:
    """A message and its parts."""

    id: str
    session: str
    document: _Document | None = None
    parts: list[_Document] = field(default_factory=list[_Document])


class OpenCode(TranscriptImporter):
    """Sessions of OpenCode."""

    name = "opencode"
    summary = "sessions of OpenCode (its storage folder, or its documents in one file)"

    def recognizes(self, path: Path, beginning: bytes) -> bool:
        """Tell whether a file or folder is one of this format."""
        if path.is_dir():
            return (path / "message").is_dir() and (path / "session").is_dir()
        begins = beginning.removeprefix(BOM).lstrip()[:1] in (b"{", b"[")
        return begins and _ids.search(beginning) is not None

    def build(self, path: Path, builder: Builder) -> Transcript:
        """Read a file or folder."""
        if path.is_file() and tables_of(path):
            raise FormatError(f"{str(path)!r} {no_transcript(path)}; nothing was imported")
        reader = _Reader(builder)
        place = 0
        files, links = files_in(path) if path.is_dir() else ([], [])
        for link in told(links, path):
            builder.problem(0, link)
        for name, raw in _texts(path, files):
            place += 1
            given = builder.text(place, raw)
            if given is not None:
                for each in _exported(given):
                    reader.sort(_Document(given=each, record=each.record(), name=name))
            elif name:
                builder.problem(place, f"the damaged document is {name!r}")
        if not reader.messages and not reader.sessions:
            left_out = f" ({told(links, path)[0]})" if links else ""
            raise FormatError(
                f"{str(path)!r} is not a file of opencode: it has no session or message{left_out}; nothing was imported"
            )
        reader.read()
        return builder.done(places=place)


def _exported(given: Given) -> Iterator[Given]:
    """Give the documents in what `opencode export` wrote, and what it has beside them; any other text as it is."""
    record = given.record()
    if not (begins(record.get("info"), b"{") and begins(record.get("messages"), b"[")):
        yield given
        return
    yield part_of(given, "info", bytes(record["info"]))
    if len(record) > len(("info", "messages")):
        rest = without(given.text, [("info",), ("messages",)])
        yield rest_of(rest_of(given, rest, apart="info"), rest, apart="messages")
    for index, raw in enumerate(items(record["messages"])):
        at = f"messages[{index}]"
        message = fields(raw)
        own = part_of(given, at, bytes(raw))
        if message.keys() != {"info", "parts"} or not begins(message["parts"], b"["):
            yield own
            continue
        yield part_of(own, "info", bytes(message["info"]))
        for number, part in enumerate(items(message["parts"])):
            yield part_of(own, f"parts[{number}]", bytes(part))


def _texts(path: Path, files: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
    if not path.is_dir():
        yield from (("", raw) for raw in documents_of(path))
        return
    for each in files:
        if each.name.endswith(".json"):
            yield each.relative_to(path).as_posix(), file_bytes(each)


class _Reader:
    """Sorts documents by what they are of, and makes turns of them."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self.sessions: dict[str, _Document] = {}
        self.messages: dict[str, _Message] = {}
        self._others: list[tuple[_Document, str | None]] = []
        self._earlier: list[tuple[_Document, str]] = []
        """Messages and sessions that came again, each with the session that it is or is of."""
        self._session: str | None = None
        """The session of the document before."""
        self._started: dict[str, int] = {}
        """The turn of the call that started a session."""
        self._first: dict[str, int] = {}

    def sort(self, document: _Document) -> None:
        """Take a document."""
        id, session, message = (document.text(key) for key in ("id", "sessionID", "messageID"))
        if session is not None and message is not None and document.text("type") is not None:
            self._message(message, session).parts.append(document)
        elif session is not None and id is not None and document.text("role") is not None:
            own = self._message(id, session)
            if own.document is not None:
                self._earlier.append((own.document, session))
                self._builder.problem(document.given.place, f"message {id!r} comes twice: the last one counts")
            own.document = document
        elif id is not None and (id.startswith("ses_") or "projectID" in document.record):
            if id in self.sessions:
                self._earlier.append((self.sessions[id], id))
                self._builder.problem(document.given.place, f"session {id!r} comes twice: the last one counts")
            self.sessions[id] = document
            session = id
        else:
            stem = document.name.rpartition("/")[2].removesuffix(".json")
            own = session or (stem if stem.startswith("ses_") else None if document.name else self._session)
            self._others.append((document, own))
            return
        self._session = session

    def _message(self, id: str, session: str) -> _Message:
        return self.messages.setdefault(id, _Message(id=id, session=session))

    def read(self) -> None:
        """Make turns: sessions behind the one that started them."""
        names = dict.fromkeys([*self.sessions, *(message.session for message in self.messages.values())])
        parents = {name: self._parent(name) for name in names}
        order, cut = parents_first(parents)
        for name in order:
            start = self._started.get(name)
            document = self.sessions.get(name)
            place = document.given.place if document else 0
            if name in cut:
                self._builder.problem(place, f"session {name!r} is its own ancestor: it became a thread")
            elif parents[name] is not None and start is None:
                self._builder.problem(place, f"no call names the sub-agent {name!r}: it became a thread")
            self._take_session(name, start, sidechain=parents[name] is not None)
            if document is not None:
                self._event(document, "session", self._first.get(name), name)
        for document, session in self._earlier:
            kind = "session" if document.text("role") is None else "message"
            self._event(document, kind, self._first.get(session), session)
        for document, session in self._others:
            self._other(document, session)

    def _parent(self, name: str) -> str | None:
        document = self.sessions.get(name)
        return None if document is None else document.text("parentID")

    def _take_session(self, name: str, start: int | None, *, sidechain: bool) -> None:
        own = sorted((each for each in self.messages.values() if each.session == name), key=lambda each: each.id)
        last = start
        for message in own:
            reader = _MessageReader(self._builder, message, last, sidechain=sidechain)
            reader.read()
            message.parts.clear()  # pieces have them now, and they can be large
            last = reader.last
            if reader.first is not None:
                self._first.setdefault(name, reader.first)
            for session, turn in reader.started:
                self._started.setdefault(session, turn)

    def _other(self, document: _Document, session: str | None) -> None:
        """Take what is neither a session nor of a message."""
        record = document.record
        kind = document.name.partition("/")[0] if "/" in document.name else None
        if {"secret", "url"} <= record.keys():
            id = document.text("id") or (document.text("url") or "").rpartition("/")[2]
            stem = document.name.rpartition("/")[2].removesuffix(".json")
            session = next((each for each in self._first if each == stem or (id and each.endswith(id))), session)
            shown = made_of(document.given, record, [key for key in record if key != "secret"])
            self._builder.problem(document.given.place, "the secret of a shared session was left out")
            document = _Document(given=shown, record=record, name=document.name)
            kind = kind or "share"
        elif "worktree" in record:
            kind, session = kind or "project", None
        elif kind is None:
            listed = items(Raw(document.given.text))
            kind = "session_diff" if listed and "file" in fields(listed[0]) else "document"
            if kind == "document":
                self._builder.problem(document.given.place, "a document of no known kind: kept as an event")
        self._event(document, kind, self._first.get(session or ""), session)

    def _event(self, document: _Document, kind: str, turn: int | None, session: str | None) -> None:
        self._builder.piece(
            document.given, kind, turn=turn, time=_time(document.record), id=document.text("id"), session=session
        )


class _MessageReader:
    """Makes turns of a message: one for each step of a model, and one behind it for what its calls gave."""

    def __init__(self, builder: Builder, message: _Message, last: int | None, *, sidechain: bool) -> None:
        self._builder = builder
        self._message = message
        self._sidechain = sidechain
        self._record: Fields = {} if message.document is None else message.document.record
        self._role: Role = self._role_of()
        self._model = self._model_of()
        self.last = last
        self.first: int | None = None
        self.started: list[tuple[str, int]] = []

    def _role_of(self) -> Role:
        message = self._message
        if message.document is not None:
            told = message.document.text("role")
            if told not in ("assistant", "user"):
                what = f"message {message.id!r} is of the unknown role {told!r}: taken for a user's"
                self._builder.problem(message.document.given.place, what)
            return "assistant" if told == "assistant" else "user"
        made = any(part.text("type") in ("step-start", "tool", "reasoning") for part in message.parts)
        role: Role = "assistant" if made else "user"
        place = message.parts[0].given.place if message.parts else 0
        self._builder.problem(place, f"message {message.id!r} has parts only: taken for one of role {role!r}")
        return role

    def _model_of(self) -> tuple[str | None, str | None]:
        if self._role != "assistant":
            return None, None
        return name_of(self._record.get("modelID")), name_of(self._record.get("providerID"))

    def read(self) -> None:
        """Take the parts in the order of their ids, and the message."""
        steps: list[list[_Document]] = [[]]
        parts, earlier = _last_ones(self._message.parts)
        for part in parts:
            if part.text("type") == "step-start" and any(each.text("type") == "step-finish" for each in steps[-1]):
                steps.append([])
            steps[-1].append(part)
        for number, step in enumerate(steps):
            turn = self._turn(self._role, number, "said")
            self.first = turn if self.first is None else self.first
            if self._role == "assistant":
                self._settle(turn, step, is_last=number == len(steps) - 1, is_only=len(steps) == 1)
            for part in step:
                self._part(part, turn)
            self._results([part for part in step if part.text("type") == "tool"], turn, number)
        for part in earlier:
            self._builder.problem(part.given.place, f"part {part.text('id')!r} comes twice: the last one counts")
            self._piece(part.given, part.text("type") or "unknown", part, self.first)
        document = self._message.document
        if document is not None:
            self._builder.piece(
                document.given,
                "message",
                turn=self.first,
                time=_time(self._record),
                id=self._message.id,
                session=self._message.session,
            )

    def _turn(self, role: Role, number: int, part: str) -> int:
        model, provider = self._model if role == "assistant" else (None, None)
        time = _time(self._record)
        self.last = self._builder.entry(
            Entry(
                role=role,
                parents=() if self.last is None else (self.last,),
                key=(self._message.id, str(number), part),
                time=time,
                timestamp=None if time is None else whole(fields(self._record["time"])["created"]).decode(),
                session=self._message.session,
                message_id=self._message.id,
                sidechain=self._sidechain,
                model=model,
                provider=provider,
                api=HOME_APIS.get(str(provider_name(provider))),
            )
        )
        return self.last

    def _settle(self, turn: int, step: Sequence[_Document], *, is_last: bool, is_only: bool) -> None:
        """Set what is known of the model's reply."""
        entry = self._builder.entries[turn]
        finished = [part.record for part in step if part.text("type") == "step-finish"]
        finish: Fields = finished[-1] if finished else {}
        told = finish.get("tokens") or (self._record.get("tokens") if is_only else None)
        entry.usage = _usage(fields(told))
        reason = text_of(finish.get("reason")) or (text_of(self._record.get("finish")) if is_last else None)
        if reason is not None:
            entry.stop_reason, entry.raw_stop_reason = _STOPS.get(reason), reason
        error = fields(self._record.get("error")) if is_last else {}
        if error:
            name = text_of(error.get("name")) or "error"
            said = text_of(fields(error.get("data")).get("message")) or text_of(error.get("message"))
            entry.error = f"{name}: {said}" if said else name
            entry.stop_reason = "aborted" if name == "MessageAbortedError" else "error"

    def _part(self, part: _Document, turn: int) -> None:
        """Take a part. What a model or a person says is content; all else is an event of the turn."""
        kind = part.text("type") or "unknown"
        blocks: list[bytes] | None = None
        moved: list[tuple[str, ...]] = []
        said = part.record.get("text")
        if kind == "tool":
            self._call(part, turn)
            return
        if kind in ("text", "reasoning"):
            if not is_text(said):
                self._builder.problem(part.given.place, f"a part of type {kind!r} without a text: kept as an event")
            elif says(said) and part.record.get("ignored") != Raw(b"true"):
                blocks, moved = [text_block(said) if kind == "text" else self._thought(part, said)], [("text",)]
        elif kind == "file":
            document = url_block(part.record.get("url"))
            moved = [("url",)] if document is not None else []
            blocks = [document or native_block(PROVIDER, Raw(part.given.text))]
        elif kind not in _EVENTS:
            self._builder.problem(part.given.place, f"a part of the unknown type {kind!r}: kept as an event")
        if kind == "file" and not moved:
            # All of it is in the turn, so that nothing of it stays here.
            moved = [(name,) for name in part.record if name not in ("id", "sessionID", "messageID", "type")]
        piece = self._piece(part.given, kind, part, turn, blocks, moved)
        if kind == "step-finish":
            self._builder.entries[turn].counted = piece

    def _thought(self, part: _Document, said: Raw) -> bytes:
        """Return a thought. Anthropic's has a signature, in what the SDK says of the provider."""
        signature = fields(fields(part.record.get("metadata")).get("anthropic")).get("signature")
        return thinking_block(said, signature=signature if says(signature) else None)

    def _call(self, part: _Document, turn: int) -> None:
        """Take a call without what it gave."""
        state = fields(part.record.get("state"))
        name = part.record.get("tool")
        if not says(name) or text_of(state.get("status")) == "pending":
            what = "a tool call that did not begin" if name is not None else "a tool call without a name"
            self._builder.problem(part.given.place, f"{what}: kept as an event")
            return
        given = state.get("input", Raw(b"{}"))
        given = given if begins(given, b"{") else Raw(_encoder.encode({"input": given}))
        named = made_of(part.given, part.record, ["id", "callID", "tool"])
        inner = made_of(part_of(part.given, "state", bytes(part.record.get("state", b"{}"))), state, ["input"])
        text = _encoder.encode({**named.record(), "state": Raw(inner.text)})
        findings = [*named.findings, *((f"state.{at}", kind) for at, kind in inner.findings)]
        own = Given(place=part.given.place, text=text, findings=sorted(findings))
        call = tool_use_block(name, given, id=self._call_id(part))
        self._piece(own, "tool_call", part, turn, [call], [("state", "input")])
        metadata = fields(state.get("metadata"))
        child = text_of(metadata.get("sessionId")) or text_of(metadata.get("sessionID"))
        if child is not None:
            self.started.append((child, turn))

    def _call_id(self, part: _Document) -> str:
        return part.text("callID") or part.text("id") or ""

    def _results(self, parts: Sequence[_Document], turn: int, number: int) -> None:
        """Take what the calls of a step gave, which is one turn."""
        answers: int | None = None
        for part in parts:
            state = fields(part.record.get("state"))
            status = text_of(state.get("status"))
            is_call = text_of(part.record.get("tool")) and status != "pending"
            content = state.get("error" if status == "error" else "output") if is_call else None
            given = part.given
            if is_call:
                text = without(given.text, [("state", "input")])
                given = rest_of(given, text, apart="state.input")
            if content is not None and status not in ("completed", "error", "running"):
                what = f"a tool call of the unknown status {status!r}: what it gave is kept as an event"
                self._builder.problem(given.place, what)
            if content is None or status not in ("completed", "error"):
                self._piece(given, "tool_state", part, turn)
                continue
            attached = [self._attachment(each) for each in items(state.get("attachments"))]
            told: Raw | str = content if is_text(content) else json_as_text(content)
            nested = [Raw(text_block(told)), *map(Raw, attached)] if attached else told
            block = tool_result_block(nested, id=self._call_id(part), is_error=status == "error")
            if answers is None:
                answers = self._turn("user", number, "results")
            moved = [("state", "error" if status == "error" else "output")]
            moved += [("state", "attachments")] if attached else []
            self._piece(given, "tool_result", part, answers, [block], moved)

    def _attachment(self, raw: Raw) -> bytes:
        return url_block(fields(raw).get("url")) or native_part(PROVIDER, raw)

    def _piece(
        self,
        given: Given,
        kind: str,
        part: _Document,
        turn: int | None,
        blocks: Sequence[bytes] | None = None,
        moved: Sequence[tuple[str, ...]] = (),
    ) -> int:
        return self._builder.piece(
            given,
            kind,
            turn=turn,
            blocks=blocks,
            moved=moved,
            id=part.text("id"),
            session=self._message.session,
        )


_EVENTS = ("step-start", "step-finish", "snapshot", "patch", "agent", "subtask", "compaction", "retry")
"""Parts that say nothing to a model by themselves."""


def _last_ones(parts: Sequence[_Document]) -> tuple[list[_Document], list[_Document]]:
    """Return parts in the order of their ids; of those that have the same, the last one, and apart the ones before."""
    last = {part.text("id"): part for part in parts}
    found: tuple[list[_Document], list[_Document]] = [], []
    for part in sorted(parts, key=lambda each: each.text("id") or ""):
        id = part.text("id")
        found[id is not None and last[id] is not part].append(part)
    return found


def _time(record: Fields) -> datetime | None:
    """Return when a document was made."""
    raw = bytes(fields(record.get("time")).get("created", b""))
    milliseconds = int(raw) if raw.isdigit() and len(raw) <= _MILLISECONDS_DIGITS_MAX else 0
    return time_of(milliseconds) if 0 < milliseconds < _MILLISECONDS_MAX else None


def _usage(tokens: Fields) -> Usage | None:
    """Return the tokens of a step. OpenCode counts none of them twice."""
    if not tokens:
        return None
    cache = fields(tokens.get("cache"))
    return Usage(
        input_tokens=count(tokens, "input"),
        output_tokens=count(tokens, "output"),
        cache_read_input_tokens=count(cache, "read"),
        cache_creation_input_tokens=count(cache, "write"),
        reasoning_tokens=count(tokens, "reasoning"),
    )
