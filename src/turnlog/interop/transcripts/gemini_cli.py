"""Gemini CLI: recorded sessions, and chats that were saved.

A session is one document (`session-….json`), or a log of JSON lines in newer versions (`session-….jsonl`), whose
sub-agents have files of their own in a folder of the session's id. A saved chat (`checkpoint-….json`) is the list of
contents that goes to the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from msgspec import Raw

from turnlog.errors import FormatError
from turnlog.interop.folders import leads_out, told
from turnlog.interop.marked import begins, text_of
from turnlog.interop.texts import BOM, RECOGNIZED_LINES, file_bytes, file_lines, split_lines
from turnlog.interop.transcripts.blocks import tool_result_block, tool_use_block
from turnlog.interop.transcripts.documents import Chain, made_of
from turnlog.interop.transcripts.fields import Fields, fields, items, part_of, record_in, rest_of
from turnlog.interop.transcripts.gemini_parts import API, PROVIDER, arguments_of, plain_block, response_text
from turnlog.interop.transcripts.gemini_sessions import SessionReader
from turnlog.interop.transcripts.lines import TranscriptImporter
from turnlog.interop.transcripts.transcript import Builder, Entry, Given, Transcript, without

_session = re.compile(rb'"sessionId"\s*:\s*"')
_project = re.compile(rb'"(?:projectHash|messages)"\s*:')
_saved = re.compile(rb'(?:\[|\{\s*"(?:history|clientHistory)"\s*:\s*\[)\s*\{\s*"(?:role|parts)"\s*:')
_folder = re.compile(r"[\w-][\w.-]*")
"""Session ids that can be the names of folders."""


class GeminiCli(TranscriptImporter):
    """Sessions and saved chats of Gemini CLI."""

    name = "gemini-cli"
    summary = "sessions and saved chats of Gemini CLI (session-….json, session-….jsonl, checkpoint-….json)"

    def recognizes(self, path: Path, beginning: bytes) -> bool:  # noqa: ARG002 - others look at the path
        """Tell whether a file is one of this format: it begins as a session or a saved chat does."""
        beginning = beginning.removeprefix(BOM).lstrip()
        if _saved.match(beginning):
            return b'"parts"' in beginning and b'"role"' in beginning
        if _has_lines(iter(split_lines(beginning))):
            return True
        head = beginning[:2000]
        return head[:1] == b"{" and _session.search(head) is not None and len(set(_project.findall(head))) > 1

    def build(self, path: Path, builder: Builder) -> Transcript:
        """Read a file; one of JSON lines with those of its sub-agents, or of the session that it is a sub-agent of."""
        if _has_lines(file_lines(path)):
            return _Family(builder).whole(path)
        given = builder.text(0, file_bytes(path).removeprefix(BOM))
        if given is None:
            what = builder.done(places=0).problems[-1].what.partition(";")[0]
            raise FormatError(f"{str(path)!r} is {what}; nothing was imported")
        record = given.record()
        if begins(record.get("messages"), b"[") and "sessionId" in record:
            reader = SessionReader(builder=builder)
            places = reader.document(given)
            del given, record  # the reader has all of it, and it can be large
            reader.make()
            return builder.done(places=places)
        at = next((name for name in ("clientHistory", "history") if _is_chat(record.get(name))), None)
        chat = Raw(given.text) if not record else None if at is None else record[at]
        if not _is_chat(chat):
            raise FormatError(
                f"{str(path)!r} is not a file of gemini-cli: it has no messages of it; nothing was imported"
            )
        saved = _Saved(builder)
        return builder.done(places=saved.whole(given, chat, at))


@dataclass(slots=True)
class _Family:
    """Reads a session of JSON lines with its sub-agents, each behind the call that started it."""

    builder: Builder
    places: int = 0
    blank: int = 0

    def whole(self, path: Path) -> Transcript:
        """Take a session, whichever of its files is named."""
        main = _main_file(path) or path
        started: dict[str, int] = {}
        first = self._file(main, started)
        first.make()
        waiting = [
            self._file(each, started, named=True)
            for each in self._sub_files(main, first.session)
            if _has_lines(file_lines(each))
        ]
        while waiting:
            reader = next((each for each in waiting if each.session in started), waiting[0])
            waiting.remove(reader)
            reader.sidechain = True
            start = started.get(reader.session or "")
            if start is None:
                self.builder.problem(0, f"no call names the sub-agent {reader.session!r}: it became a thread")
            reader.make(start)
        return self.builder.done(places=self.places, blank=self.blank)

    def _sub_files(self, main: Path, session: str | None) -> Sequence[Path]:
        """Return the files of the sub-agents of a session."""
        if session is None or _folder.fullmatch(session) is None:
            return []
        folder = main.parent / session
        found = [folder] if leads_out(folder, main.parent) else sorted(folder.glob("*.jsonl"))
        links = [each for each in found if leads_out(each, main.parent)]
        for link in told(links, main.parent):
            self.builder.problem(0, link)
        return [each for each in found if each not in links and each.is_file() and each != main]

    def _file(self, path: Path, started: dict[str, int], *, named: bool = False) -> SessionReader:
        """Take the lines of a file, which are numbered on from those before."""
        reader = SessionReader(builder=self.builder, started=started)
        where = f"{path.name}: " if named else ""
        for line in file_lines(path):
            self.places += 1
            if not line.strip():
                self.blank += 1
                continue
            given = self.builder.text(self.places, line)
            if given is not None and given.text[:1] == b"{":
                reader.line(given)
            elif given is not None:
                self.builder.damaged(self.places, f"{where}not a JSON object; it was left out")
        return reader


def _has_lines(lines: Iterator[bytes]) -> bool:
    """Tell whether a file is a session of JSON lines: one of its first lines is a line of one."""
    for number, line in enumerate(islice(lines, RECOGNIZED_LINES), 1):
        record = record_in(line)
        if "sessionId" in record and "projectHash" in record:
            return "messages" not in record or number > 1 or next(lines, None) is not None
        if "$rewindTo" in record or "$set" in record:
            return True
        if text_of(record.get("type")) == "gemini" and "id" in record:
            return True
    return False


def _main_file(path: Path) -> Path | None:
    """Return the file of the session that a sub-agent's file belongs to; None where there is none, or it is none."""
    header = _header(path)
    if text_of(header.get("kind")) != "subagent":
        return None
    folder = path.absolute().parent
    for each in sorted(folder.parent.glob(f"session-*-{_escaped(folder.name[:8])}.jsonl")):
        if (
            each.is_file()
            and not leads_out(each, folder.parent)
            and text_of(_header(each).get("sessionId")) == folder.name
        ):
            return each
    return None


def _header(path: Path) -> Fields:
    """Return the first line of a session; nothing where it is none."""
    return record_in(next(file_lines(path), b""))


def _escaped(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)


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
        if role is None or not begins(content.get("parts"), b"["):
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
            return tool_use_block(name, arguments_of(called.get("args")), id=id), ("functionCall", "args")
        name = text_of(answered.get("name")) or ""
        id = text_of(answered.get("id"))
        own = next((each for each in self.open if (each[1] == id if id is not None else each[0] == name)), None)
        if answered and (own is not None or id is not None):
            if own is not None:
                self.open.remove(own)
            told, is_error = response_text(answered.get("response"))
            block = tool_result_block(told, id=own[1] if own is not None else id, is_error=is_error)
            return block, ("functionResponse", "response")
        block, where = plain_block(part, raw)
        return block, where


def _is_chat(raw: Raw | None) -> bool:
    found = items(raw)
    return bool(found) and any({"role", "parts"} <= fields(each).keys() for each in found)
