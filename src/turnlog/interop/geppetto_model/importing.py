"""Files of Geppetto's runs and turns, YAML or JSON, as a format to import.

What is recorded is what `record_run` and `record_turn` record, under the same ids.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import cast

import msgspec
from msgspec import Struct

from turnlog.errors import ContentError, FormatError, SecretError
from turnlog.interop.geppetto_model.documents import read_run, read_turn, yaml_values
from turnlog.interop.geppetto_model.mending import mended_run, mended_turn, plain
from turnlog.interop.geppetto_model.numbers import number, rounded_in
from turnlog.interop.geppetto_model.planning import FORMAT, Plan, SnapshotMeta
from turnlog.interop.geppetto_model.types import BlockKind
from turnlog.interop.importing import Added, Importer, Place, Problem, Source, Step, TranscriptReport, Work
from turnlog.interop.marked import Marks, in_pieces, respelled_text, unmarked, unmarked_value, whole
from turnlog.interop.texts import BOM, file_bytes, opened
from turnlog.model import JSONValue
from turnlog.model.json_values import UniqueMembers
from turnlog.model.pieces import check_utf8, decoded_text
from turnlog.record import EventDraft, Note, Redaction, TurnDraft
from turnlog.record.groups import redacted
from turnlog.store import ReadTransaction

_KINDS = "|".join((*BlockKind, "User", "LLMText", "ToolCall", "ToolUse", "System", "Reasoning", "Other")).encode()
_json_form = (re.compile(rb'"(?:blocks|turns)"\s*:\s*\['), re.compile(rb'"kind"\s*:\s*"(?:' + _KINDS + rb')"'))
_yaml_form = (
    re.compile(rb"^(?:- )?(?:blocks|turns):\s*$", re.MULTILINE),
    re.compile(rb"^ *(?:- )?kind: *[\"']?(?:" + _KINDS + rb")[\"']? *$", re.MULTILINE),
)
_json_begins = (
    re.compile(rb'\A\s*(?:\[\s*)?\{\s*"(?:id|run_id|name|metadata|data|blocks|turns)"\s*:'),
    _json_form[0],
    re.compile(rb'"kind"\s*:\s*"'),
    re.compile(rb'"payload"\s*:\s*\{'),
)
_yaml_begins = (
    _yaml_form[0],
    re.compile(rb"^ *(?:- )?kind: *\S", re.MULTILINE),
    re.compile(rb"^ *(?:- )?payload: *(?:\{|$)", re.MULTILINE),
)
_READ = ("api", "id", "media_type", "model", "name", "provider", "type")
"""Texts of payloads that have no marks: what a block becomes depends on what they say."""

_WHAT_MAX = 1_000
"""So many characters of what is wrong are told: it can name what is long."""

_space = re.compile(r"\s*")
_Record = dict[str, JSONValue]


class Geppetto(Importer):
    """Runs and turns of Geppetto."""

    name = FORMAT
    summary = "runs and turns of Geppetto, YAML or JSON"

    def recognizes(self, path: Path, beginning: bytes) -> bool:  # noqa: ARG002 - others look at the path
        """Tell whether a file is one of this format: it has turns or blocks, and kinds of blocks."""
        text = beginning.removeprefix(BOM)
        is_json = text.lstrip()[:1] in (b"{", b"[")
        forms, begins = (_json_form, _json_begins) if is_json else (_yaml_form, _yaml_begins)
        if all(form.search(text) for form in forms):
            return True
        # Blocks of kinds that nobody knows are blocks, in what else is a run or a turn.
        return all(form.search(text) for form in begins)

    def read(self, path: Path, redaction: Redaction) -> _Documents:
        """Read a file. Each of its documents, or of the items of a list, is a run or a turn.

        Raises:
            FormatError: nothing of it can be read.
            RedactionError: a redaction hook failed.
            MissingPackageError: it is YAML, and PyYAML is not installed.
        """
        documents = _Documents(path)
        for place, value in enumerate(_values(path, documents.marks), 1):
            if isinstance(value, ContentError):
                documents.damage(place, str(value), redaction)
            else:
                documents.add(place, value, redaction)
        if not documents.items:
            why = documents.problems[0].what if documents.problems else "it is empty"
            raise FormatError(f"{str(path)!r} has no run or turn of Geppetto: {why}; nothing was imported")
        return documents


class _Details(Struct, frozen=True, kw_only=True):
    """What the file is in the log: what each of its turns continues."""

    turns: Mapping[str, tuple[str, ...]]


class _Documents(Source[frozenset[str], _Details]):
    """A file that was read.

    Attributes:
        marks: what marks in it stand for.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0
        self.items: dict[str, TurnDraft | Note] = {}
        self.problems: list[Problem] = []
        self._places: dict[str, int] = {}
        self._redacted: Counter[str] = Counter()
        self._sessions: dict[str, None] = {}
        self._damaged = 0
        self.marks = Marks()

    def add(self, place: int, value: JSONValue, redaction: Redaction) -> None:
        """Take a document; one that is no run or turn is a problem."""
        self.lines = place
        try:
            told = _rounded(value)
            text = msgspec.json.encode(plain(value, "document", told.append))
            text, findings = redaction.line(whole(text) if redaction else text, FORMAT)
            self._redacted.update(kind for _, kind in findings)
            value = msgspec.json.decode(text)
            record: _Record = cast("_Record", value) if isinstance(value, dict) else {}
            mends = any(isinstance(record.get(key), list) for key in ("turns", "blocks"))  # else it is something else
            if "turns" in record or ("name" in record and "blocks" not in record):
                run = read_run(mended_run(value, "run", told.append) if mends else value, "run")
                plan = Plan(run.id)
                plan.run(run)
                session = run.id
            else:
                turn = read_turn(mended_turn(value, "turn", told.append) if mends else value, "turn")
                plan = Plan(turn.run_id)
                plan.snapshot(turn, SnapshotMeta(session=turn.run_id))
                session = turn.run_id
        except (ContentError, SecretError) as error:
            self.damage(place, f"{error}: it was left out", redaction)
            return
        for what in told:
            self._problem(place, what, redaction)
        if session:
            self._sessions[session] = None
        for item_id, item in plan.items.items():
            if item_id not in self.items:
                self.items[item_id] = _redacted(item, redaction) if redaction else item
                self._places[item_id] = place

    def damage(self, place: int, what: str, redaction: Redaction) -> None:
        """Say that a document cannot be read."""
        self.lines = place
        self._damaged += 1
        self._problem(place, what, redaction)

    def _problem(self, place: int, what: str, redaction: Redaction) -> None:
        """Say what is wrong, without what hooks take out of it: it can name what stands in the file."""
        what = what if len(what) <= _WHAT_MAX else f"{what[:_WHAT_MAX]}…"
        text, _ = redaction.line(msgspec.json.encode(what), FORMAT)
        self.problems.append(Problem(place=place, what=msgspec.json.decode(text, type=str)))

    def look_up(self, transaction: ReadTransaction) -> frozenset[str]:
        """Return which of it is in the log, erased or not."""
        return frozenset(item for item in self.items if transaction.event(item) is not None)

    def prepare(self, place: Place, known: frozenset[str]) -> Work[_Details]:
        """Say what is to be recorded."""
        steps = (self._step(item_id, item, place) for item_id, item in self.items.items() if item_id not in known)
        turns = {item_id: item.continues for item_id, item in self.items.items() if isinstance(item, TurnDraft)}
        return Work(steps=steps, details=_Details(turns=turns))

    def _step(self, item_id: str, item: TurnDraft | Note, place: Place) -> Step:
        line, payload = self._places[item_id], place(in_pieces(item.payload))
        if isinstance(item, TurnDraft):
            return Step(draft=item, payload=payload, line=line, whole=False)  # the note with its blocks comes next
        draft = EventDraft(topic=item.topic, meta=item.meta, id=item_id)
        return Step(draft=draft, payload=payload, line=line, turn=item.turn)

    def report(self, known: frozenset[str], works: Sequence[Work[_Details]], added: Added) -> TranscriptReport:  # noqa: ARG002
        """Return what the import found and did."""
        turns = works[-1].details.turns
        continued = {parent for parents in turns.values() for parent in parents}
        notes = (item.topic for item in self.items.values() if isinstance(item, Note))
        return TranscriptReport(
            path=str(self.path).encode(errors="backslashreplace").decode(),
            format=FORMAT,
            sessions=tuple(self._sessions),
            places=self.lines,
            blank=0,
            damaged=self._damaged,
            pieces=dict(sorted(Counter(topic.partition(".")[2] for topic in notes).items())),
            events_added=added.events,
            turns_added=added.turns,
            turns_known=len(turns) - added.turns,
            continued=(),
            roots=tuple(turn for turn, parents in turns.items() if not parents),
            heads=tuple(turn for turn in turns if turn not in continued),
            problems=tuple(self.problems),
            redacted=dict(sorted(self._redacted.items())) or None,
        )


def _values(path: Path, marks: Marks) -> Iterator[JSONValue | ContentError]:
    """Give the documents of a file, and the items of those that are lists. What cannot be read is an error."""
    text = file_bytes(path).removeprefix(BOM)
    try:
        check_utf8(text)
    except UnicodeDecodeError as error:
        yield ContentError(f"it is not UTF-8 (byte {error.start})")
        return
    begins = next((said for piece in decoded_text(text) if (said := piece.lstrip())), "")
    documents = _json_documents(text, marks) if begins[:1] in ("{", "[") else _yaml_documents(path, marks)
    del text
    while True:
        try:
            value = next(documents)
        except StopIteration:
            return
        except ContentError as error:
            yield ContentError(f"{error}: from there on nothing was read")
            return
        if isinstance(value, list):
            yield from cast("list[JSONValue]", value)
        elif value is not None:
            yield value


def _json_documents(text: bytes, marks: Marks) -> Iterator[JSONValue | ContentError]:
    """Give what `_json_values` gives, with marks for long texts that blocks say.

    Raises:
        ContentError: what follows is no JSON.
    """
    given = 0
    marked = marks.of_texts(text)
    if marked is not None:
        with suppress(ContentError, RecursionError):  # what is wrong is told of what the file has
            for value in _json_values(marked.decode()):
                yield value if isinstance(value, ContentError) else _in_payloads(value)
                given += 1
            return
    yield from islice(_json_values(text.decode()), given, None)


def _yaml_documents(path: Path, marks: Marks) -> Iterator[JSONValue]:
    """Give the values of YAML documents, with marks for long texts that blocks say. The file is not held for that.

    Raises:
        ContentError: what follows is no YAML.
        FormatError: the file cannot be read.
    """
    with opened(path) as file:
        mark = partial(marks.of_text, size=os.fstat(file.fileno()).st_size)
        yield from map(_in_payloads, yaml_values(file, mark=mark))


def _in_payloads(value: JSONValue, name: str = "") -> JSONValue:
    """Return a document with marks in payloads of blocks alone, of texts as the codec spells them."""
    match value:
        case dict() if name == "payload":
            return _said_in(value, name)
        case dict():
            return {key: _in_payloads(inner, key) for key, inner in cast("_Record", value).items()}
        case list():
            return [_in_payloads(inner, name) for inner in cast("list[JSONValue]", value)]
        case _:
            return unmarked_value(value)


def _said_in(value: JSONValue, name: str) -> JSONValue:
    match value:
        case str():
            return unmarked(value) if name in _READ else respelled_text(value)
        case dict():
            return {key: _said_in(inner, key) for key, inner in cast("_Record", value).items()}
        case list():
            return [_said_in(inner, name) for inner in cast("list[JSONValue]", value)]
        case _:
            return value


def _json_values(text: str) -> Iterator[JSONValue | ContentError]:
    """Give JSON documents one after the other; an error for one that has a key twice.

    Raises:
        ContentError: what follows is none.
    """
    members = UniqueMembers()
    decoder = json.JSONDecoder(object_pairs_hook=members, parse_float=number)
    at = _end_of_space(text, 0)
    line, counted = 1, 0
    while at < len(text):
        try:
            begin = at
            line, counted = line + text.count("\n", counted, begin), begin
            value, at = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError) as error:
            raise ContentError(f"not valid JSON: {error}") from error
        try:
            members.check(value, f"document at line {line}")
        except ContentError as error:
            yield ContentError(f"{error}: it was left out")
        else:
            yield value
        at = _end_of_space(text, at)


def _redacted(item: TurnDraft | Note, redaction: Redaction) -> TurnDraft | Note:
    return redacted(msgspec.structs.replace(item, payload=whole(item.payload)), redaction)


def _rounded(value: object) -> list[str]:
    """Return what is to be said of numbers that are not kept as they are written: the first, and how many there are."""
    found = [*rounded_in(value, "document")]
    if not found:
        return []
    place, first = found[0]
    others = f", and {len(found) - 1} other numbers so" if len(found) > 1 else ""
    return [f"{place}: {first.written} is kept as {float(first)!r}{others}"]


def _end_of_space(text: str, at: int) -> int:
    match = _space.match(text, at)
    return at if match is None else match.end()
