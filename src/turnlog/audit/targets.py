"""What goes with a turn that is erased: all events of the log that carry its content.

- The **requests** of model calls whose context window has it: calls that go on from the turn, or from what grows from
  it; and calls that are built on the bytes of such a call.
- The **replies** to these calls. A provider may repeat parts of a request in its reply (the instructions, a passage
  that it quotes), and no rule tells what it repeats. What the model itself said is in its turn, which stays.
- The **reply** that the turn came of, whose raw events say what the turn says.
- How its **tool calls** went: their beginnings and ends, which may have a result; and of a turn that has results, how
  these calls ended.
- The **summaries** that were written from it: those of runs that end with the turn or with what grows from it; and the
  turns of models that these summaries are the text of.
- The **lines** of an imported transcript that became the turn or belong to it, those that name one of its lines, and
  those of the same session that say again what the turn says, or what the session is about: its title, its summary.
- Where all of a thread or of a subject goes, the **bookmark events** that name its bookmarks.
- Where all of a subject goes, the **holds** that were set on it, and what released them.

Results of tools are turns of their own, and so is what the model answered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Literal
from unicodedata import normalize

import msgspec
from msgspec import Raw, Struct

from turnlog.errors import CorruptionError, SealError
from turnlog.events import (
    BOOKMARK,
    CALL,
    FREQUENT_TOPICS,
    HOLD,
    REPLY,
    SHAPES,
    SUMMARY,
    TARGET,
    TOOL_CALL,
    TOOL_END,
    TURN,
    Arrival,
    Recorded,
    format_of,
    is_of_format,
    meta_of,
    named_head,
    named_subject,
)
from turnlog.events.meta import turn_meta
from turnlog.model import HoldMeta
from turnlog.model.json_strings import json_strings
from turnlog.projections.moves import said_move
from turnlog.projections.threads import POSITION_MAX, thread_runs
from turnlog.projections.turns import find_links
from turnlog.record import head_before
from turnlog.store import ReadTransaction
from turnlog.store.sealing import has_keys

Scope = Literal["turn", "thread", "subject"]

_TEXT_MIN = 8
"""A text of fewer characters is repeated only by what is the same."""

_NO_TEXT = frozenset(
    (
        *("type", "subtype", "operation", "role", "name", "id", "tool_use_id", "uuid", "sessionId", "timestamp"),
        *("provider", "api", "model", "signature", "media_type"),
    )
)
"""Fields of content and of lines whose values name things, and say nothing."""

_OF_A_SESSION = frozenset(
    ("session", "conversation", "conversations", "update", "summary", "title", "ai-title", "custom-title")
)
"""Kinds of lines that say something of a session as a whole."""

_ABOUT = ("title", "summary", "name", "aiTitle", "customTitle")
"""Fields of such a line that say what the session is about."""

_BLANKS = {point: " " for point in range(0x3001) if chr(point).isspace()}

_fields = msgspec.json.Decoder(dict[str, Raw])
_UUID = re.compile(rb"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Wanted(Struct, frozen=True, kw_only=True):
    """What is to be erased, or held.

    Attributes:
        scope: the turns themselves, all turns of their threads, or all turns of a subject.
        turns: the turns.
        subject: the subject.
        carrying: other events that are wanted too.
    """

    scope: Scope
    turns: Sequence[Recorded] = ()
    subject: str | None = None
    carrying: Sequence[Recorded] = ()


class Targets:
    """Finds the events that carry what is wanted, first up to some global position and then, later, what came since.

    Attributes:
        turns: the turns themselves, by id; erased ones too.
        carrying: the other events, by id; erased ones too.
        others: ids of events of other people's topics that cite one of the turns. They are told, and stay.
        unseen: sealed turns of which nobody can tell without keys whether they are of the subject, by id.
        damaged: events of which nobody can tell whether they go, for their private parts are damaged, by id: turns that
            may be of the subject, holds that may be on it, and what may have renamed or deleted one of the bookmarks.
            They are told, and stay.
        alike: other subjects that differ from the wanted one by case, blanks or how Unicode composes characters.
        undecided: lines of transcripts that may say something of the turns, by id. They are told, and stay. One kind
            belongs to no turn and to no session, each with the lines that it names, of which none is in the log. Of
            the others the private part or the payload is damaged, or that of a turn of their session.
    """

    def __init__(self, wanted: Wanted) -> None:
        """Begin with nothing found."""
        self._wanted = wanted
        self.turns: dict[str, Recorded] = {turn.header.id: turn for turn in wanted.turns}
        self.carrying: dict[str, Recorded] = {event.header.id: event for event in wanted.carrying}
        self.others: list[str] = []
        self.unseen: dict[str, Recorded] = {}
        self.damaged: dict[str, Recorded] = {}
        self.alike: set[str] = set()
        self.undecided: dict[str, set[bytes]] = {}
        self._below: dict[str, int] = {}
        """The streams that grow from the turns, each with the first position that does."""
        self._replies: set[str] = set()
        self._tool_ends: set[str] = set()
        self._names: set[str] = set()
        self._before: set[str] = set()
        """The turns that the turns continue: what says one of these for the screen may come before it."""
        self._uuids: set[bytes] = set()
        self._sessions: set[str] = set()
        self._formats: set[str] = set()
        """Those of the turns: lines of them may be another package's."""
        self._texts: set[str] = set()
        """What the turns that came from transcripts say, with even blanks."""
        self._is_unread = False
        """Whether what one of these says is damaged, so that nobody can tell what repeats it."""
        self._in_thread: dict[str, int] = {}
        """The streams of the threads that are wanted, each with the first position that is of them."""

    def find(self, transaction: ReadTransaction, after: int = 0) -> int:
        """Find what there is above a global position, and return the end of the log. Events never change."""
        end = transaction.log_end()
        self._find_turns(transaction, after)
        for turn in self.turns.values():
            self._note(transaction, turn)
        self._below = _grown_from(transaction, self.turns.values())
        self._find_carrying(transaction, after)
        for reply in self._replies - self.carrying.keys():
            # A turn that came since may name a reply of before.
            if (recorded := transaction.event(reply)) is not None:
                self.carrying[reply] = recorded
        return end

    @property
    def all(self) -> list[Recorded]:
        """All that was found and is not erased, in global order."""
        found = [*self.turns.values(), *self.carrying.values()]
        return sorted(
            (event for event in found if not event.erased and event.header.private is not None),
            key=lambda event: event.global_position,
        )

    # The turns

    def _find_turns(self, transaction: ReadTransaction, after: int) -> None:
        match self._wanted.scope:
            case "turn":
                return
            case "thread" if after:
                self._find_threads(transaction)
                for turn in transaction.log(after, topics=[TURN]):
                    header = turn.header
                    if header.position >= self._in_thread.get(header.stream, header.position + 1):
                        self._add_turn(turn)
            case "thread":
                self._find_threads(transaction)
                for stream, first in self._in_thread.items():
                    for turn in transaction.stream(stream, first, POSITION_MAX):
                        self._add_turn(turn)
            case "subject":
                self._find_of_subject(transaction, after)

    def _find_of_subject(self, transaction: ReadTransaction, after: int) -> None:
        subject = self._wanted.subject or ""
        closed: list[Recorded] = []
        differ: set[str] = set()
        for turn in transaction.log(after, topics=[TURN]):
            if turn.sealed is not None and turn.private is None:
                closed.append(turn)
            elif turn.damaged:
                self.damaged[turn.header.id] = turn
            elif (named := named_subject(turn)) == subject:
                self._add_turn(turn)
            elif named is not None and named not in differ:
                differ.add(named)
                if _folded(named) == _folded(subject):
                    self.alike.add(named)
        if not closed:
            return
        # Where a key is not here, a tag still stands for the subject.
        tag = _tag_of(transaction, subject)
        if tag is None:
            self.unseen.update((turn.header.id, turn) for turn in closed)
            return
        for turn in closed:
            if turn.sealed is not None and turn.sealed.tags.get("subject") == tag:
                self._add_turn(turn)

    def _find_threads(self, transaction: ReadTransaction) -> None:
        for turn in self._wanted.turns:
            for stream, first in thread_runs(transaction, turn.header.stream, turn.header.position).items():
                self._in_thread[stream] = min(first, self._in_thread.get(stream, first))

    def _add_turn(self, turn: Recorded) -> None:
        self.turns[turn.header.id] = turn

    def _note(self, transaction: ReadTransaction, turn: Recorded) -> None:
        """Note by what other events belong to a turn."""
        self._note_cited(transaction, turn, "reply", self._replies)
        self._note_cited(transaction, turn, "tool_end", self._tool_ends)
        self._before.update(parent.id for parent in turn.header.parents)
        if turn.unreadable:
            return
        if (name := named_head(turn)) is not None:
            self._names.add(name)
        try:
            origin = turn_meta(turn).origin
        except CorruptionError:
            return  # it says of no file that it came from one; its lines cite it
        if origin is not None:
            self._formats.add(origin.format)
            self._uuids.update(uuid.encode() for uuid in origin.ids if uuid)
            if isinstance(origin.session, str):
                self._sessions.add(origin.session)
            said = _payload(transaction, turn)
            self._is_unread |= said is None
            self._texts.update(map(_even, json_strings(said or b"", without=_NO_TEXT)))
            self._texts.discard("")

    def _note_cited(self, transaction: ReadTransaction, turn: Recorded, relation: str, noted: set[str]) -> None:
        for citation in turn.header.citations:
            if citation.relation == relation and not _is_claim(turn, transaction.event(citation.id)):
                noted.add(citation.id)

    # What carries them

    def _find_carrying(self, transaction: ReadTransaction, after: int) -> None:
        known = (CALL, REPLY, BOOKMARK, SUMMARY, TOOL_CALL, TOOL_END) if self.turns else ()
        if self._wanted.scope == "subject":
            known = (*known, HOLD)
        there_are = (*FREQUENT_TOPICS, *transaction.rare_topics())
        topics = [topic for topic in there_are if topic in known or (self.turns and topic not in SHAPES)]
        if not topics:
            return
        self._note_lines_of_damaged(transaction, [topic for topic in topics if is_of_format(topic)])
        lines = [topic for topic in topics if format_of(topic) in self._formats]
        for line in transaction.log(after, topics=lines) if lines else ():
            if line.header.cited("turn") in self.turns and (name := _name_of(line)) is not None:
                self._uuids.add(name)
        for recorded in transaction.log(after, topics=topics):
            if self._goes(transaction, recorded):
                self.carrying[recorded.header.id] = recorded
            elif recorded.header.topic in SHAPES or is_of_format(recorded.header.topic, self._formats):
                continue
            elif any(citation.id in self.turns for citation in recorded.header.citations):
                self.others.append(recorded.header.id)
        if named := {uuid for uuids in self.undecided.values() for uuid in uuids}:
            known = named.intersection(map(_name_of, transaction.log(topics=lines)))
            self.undecided = {line: uuids for line, uuids in self.undecided.items() if uuids.isdisjoint(known)}

    def _note_lines_of_damaged(self, transaction: ReadTransaction, topics: Sequence[str]) -> None:
        """Note of what format and session damaged turns are, as the lines that belong to them say."""
        damaged = {turn.header.id for turn in self.turns.values() if turn.damaged}
        for line in transaction.log(topics=topics) if damaged and topics else ():
            if line.header.cited("turn") in damaged:
                self._formats.add(format_of(line.header.topic))
                if (session := _session(_line(line))) is not None:
                    self._sessions.add(session)
                    self._is_unread = True

    def _goes(self, transaction: ReadTransaction, recorded: Recorded) -> bool:
        """Tell whether an event goes with the turns."""
        header = recorded.header
        match header.topic:
            case "gpt.call":
                return self._call_goes(transaction, recorded)
            case "gpt.reply":
                return header.id in self._replies or header.cited("call") in self.carrying
            case "gpt.tool_call" | "gpt.tool_end":
                return header.id in self._tool_ends or header.cited("turn") in self.turns
            case "gpt.bookmark":
                return self._wanted.scope != "turn" and self._bookmark_goes(transaction, recorded)
            case "gpt.summary":
                return self._summary_goes(transaction, recorded)
            case "gpt.hold":
                return self._hold_goes(recorded)
            case topic:
                return is_of_format(topic, self._formats) and self._line_goes(transaction, recorded)

    def _call_goes(self, transaction: ReadTransaction, call: Recorded) -> bool:
        if call.header.cited("base") in self.carrying:
            return True
        return self._grows(transaction, call.header.cited("turn"))

    def _grows(self, transaction: ReadTransaction, turn: str | None) -> bool:
        """Tell whether a turn is one of the turns, or grows from one."""
        place = None if turn is None else transaction.place(turn)
        return place is not None and place[1] >= self._below.get(place[0], place[1] + 1)

    def _summary_goes(self, transaction: ReadTransaction, summary: Recorded) -> bool:
        if not self._grows(transaction, summary.header.cited("to")):
            return False
        writer = summary.header.cited("turn")
        said = None if writer is None or writer in self.turns else transaction.event(writer)
        if said is not None and not _is_claim(summary, said):
            self.carrying[said.header.id] = said
            self._note_cited(transaction, said, "reply", self._replies)
        return True

    def _bookmark_goes(self, transaction: ReadTransaction, recorded: Recorded) -> bool:
        if recorded.damaged:
            turn = recorded.header.cited("turn")
            if turn is None:  # it renames or deletes one, and its name is not readable
                self.damaged[recorded.header.id] = recorded
            return turn in self.turns
        move = said_move(recorded, guests=True)
        if move is None:
            return False
        if move.turn is not None:
            goes = move.turn in self.turns
        else:
            # Where it stood says whose it was: the same name may be in use elsewhere.
            goes = move.name in self._names and self._stood_here(transaction, move.name, recorded.global_position)
        if goes:
            self._names.update(name for name in (move.name, move.to) if name is not None)
        return goes

    def _stood_here(self, transaction: ReadTransaction, name: str, before: int) -> bool:
        return head_before(transaction, name, before) in self.turns

    def _hold_goes(self, recorded: Recorded) -> bool:
        if any(citation.id in self.carrying for citation in recorded.header.citations):
            return True
        if recorded.damaged and not recorded.header.citations:  # those on turns and on threads cite them
            self.damaged[recorded.header.id] = recorded
        return not recorded.unreadable and meta_of(recorded, HoldMeta).subject == self._wanted.subject

    def _line_goes(self, transaction: ReadTransaction, line: Recorded) -> bool:
        turn = line.header.cited("turn")
        if turn in self.turns:
            return True
        if line.unreadable:
            if line.damaged and (turn is None or turn in self._before or _is_about_session(line)):
                self.undecided[line.header.id] = set()
            return False
        is_of_session = _session(_line(line)) in self._sessions
        if is_of_session and _says_what_about(transaction, line):
            return True
        if turn is not None and turn not in self._before:
            return False
        if turn is None and is_of_session and self._wanted.scope != "turn":
            return True
        return self._says_of_them(transaction, line, is_of_session=is_of_session)

    def _says_of_them(self, transaction: ReadTransaction, line: Recorded, *, is_of_session: bool) -> bool:
        """Tell by what a line says whether it names or repeats one of the turns; note where nobody can tell."""
        payload = _payload(transaction, line)
        # Some lines belong to no turn, and repeat what was said in one: they name its line, or only its session.
        may_name = line.header.cited("turn") is None
        is_of_any = may_name and "session" not in _line(line) and format_of(line.header.topic) in self._formats
        named = {*_UUID.findall(payload or b"")} - {_name_of(line)} if may_name else set[bytes]()
        if not self._uuids.isdisjoint(named):
            return True
        if is_of_any and (named or payload is None):
            self.undecided[line.header.id] = named
        if not is_of_session:
            return False
        if any(map(self._repeats, map(_even, json_strings(payload or b"", without=_NO_TEXT)))):
            return True
        if self._is_unread or payload is None:
            self.undecided[line.header.id] = set()
        return False

    def _repeats(self, said: str) -> bool:
        """Tell whether something that is said, with even blanks, repeats a text of the turns, or its beginning."""
        if said in self._texts:
            return True
        beginning = said.rstrip(".… ")
        return any(
            (len(text) >= _TEXT_MIN and text in said) or (len(beginning) >= _TEXT_MIN and text.startswith(beginning))
            for text in self._texts
        )


def _tag_of(transaction: ReadTransaction, subject: str) -> str | None:
    """Return what stands for a subject in what is sealed; None where the keys are not here."""
    if transaction.seals is None or not has_keys(transaction):
        return None
    with suppress(SealError):  # there are none, and of this log nothing is sealed
        return transaction.seals.tag("subject", subject)
    return None


def _is_claim(by: Recorded, of: Recorded | None) -> bool:
    """Tell whether it is somebody else who says something of an event of this log: that takes nothing away here."""
    return by.arrival == Arrival.GUEST and of is not None and of.arrival != Arrival.GUEST


def _is_about_session(line: Recorded) -> bool:
    """Tell whether a line is of a kind that says something of a session as a whole."""
    return line.header.topic.partition(".")[2] in _OF_A_SESSION


def _says_what_about(transaction: ReadTransaction, line: Recorded) -> bool:
    """Tell whether a line of a session says what all of it is about, in whatever turn that was said."""
    if not _is_about_session(line):
        return False
    payload = _payload(transaction, line)
    if payload is None:
        return True  # it may
    try:
        said = _fields.decode(payload)
        changed = said.get("$set")  # as Gemini CLI writes it
        told = said if changed is None else _fields.decode(changed)
    except msgspec.DecodeError:
        return False
    return any(bytes(told.get(name, b""))[:1] == b'"' and bytes(told[name]) != b'""' for name in _ABOUT)


def _payload(transaction: ReadTransaction, recorded: Recorded) -> bytes | None:
    """Return what an event says; None where that is damaged: it can be erased nonetheless."""
    try:
        return transaction.payload(recorded) or b""
    except CorruptionError:
        return None


def _even(text: str) -> str:
    """Return a text in which whatever stands between two words is one blank: line breaks differ between its copies."""
    text = text.translate(_BLANKS)
    while "  " in text:
        text = text.replace("  ", " ")
    return text.strip()


def _folded(name: str) -> str:
    return _even(normalize("NFKC", normalize("NFKC", name).casefold()))


def _name_of(line: Recorded) -> bytes | None:
    """Return the id that a line has in its format; None where it has none or cannot be read."""
    if line.unreadable:
        return None
    meta = _line(line)
    name = meta.get("uuid") or meta.get("id")
    return name.encode() if isinstance(name, str) else None


def _session(meta: Mapping[str, object]) -> str | None:
    session = meta.get("session")
    return session if isinstance(session, str) else None


def _line(line: Recorded) -> Mapping[str, object]:
    try:
        return {} if line.private is None else msgspec.json.decode(line.private.meta, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise CorruptionError(
            f"metadata of event {line.header.id!r} cannot be read: {error}", global_position=line.global_position
        ) from error


def _grown_from(transaction: ReadTransaction, turns: Iterable[Recorded]) -> dict[str, int]:
    """Return the streams that grow from turns, the turns included, each with the first position that does."""
    runs: dict[str, int] = {}
    for turn in turns:
        stream, position = turn.header.stream, turn.header.position
        runs[stream] = min(position, runs.get(stream, position))
    waiting = list(runs)
    while waiting:
        stream = waiting.pop()
        for link in find_links(transaction, "parent_stream = ? AND parent_position >= ?", stream, runs[stream]):
            if link.child_position < runs.get(link.child_stream, POSITION_MAX):
                runs[link.child_stream] = link.child_position
                waiting.append(link.child_stream)
    return runs


def cited_targets(recorded: Recorded) -> list[str]:
    """Return the ids of the events that an event cites as targets."""
    return [citation.id for citation in recorded.header.citations if citation.relation == TARGET]
