"""The loop that runs importers, with a format that is easy to read: one turn a line."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest
from tests import packages

from turnlog import TurnLog
from turnlog.errors import (
    ErasedError,
    FormatError,
    MissingPackageError,
    NotFoundError,
    PluginError,
    StoreFullError,
)
from turnlog.events import FORMATS, TURN
from turnlog.ids import derived_id
from turnlog.interop import formats, importing
from turnlog.interop.claude_code import ClaudeCode
from turnlog.interop.finding import find, formats_of
from turnlog.interop.importing import Added, Importer, Place, Source, Step, TranscriptReport, Work, run_import
from turnlog.model import Origin, TurnMeta
from turnlog.record import EventDraft, Redaction, TurnDraft, turn_draft
from turnlog.sources import Sources
from turnlog.store import ReadTransaction


class Report(TranscriptReport, frozen=True, kw_only=True):
    """What an import did, and what it did that from."""

    known: frozenset[str]
    prepared: int
    added: Added


@dataclass(eq=False)
class Lines(Source[frozenset[str], int]):
    """Each line is a turn and an event; turns of a line that begins with `+` continue the line above, in one step."""

    texts: Sequence[str]
    on_look_up: Callable[[], None] = field(default=lambda: None)
    format: str = "lines"

    @property
    def lines(self) -> int:  # type: ignore[override]
        """How many lines there are."""
        return len(self.texts)

    def id(self, number: int) -> str:
        """Return the id of the turn of a line."""
        return derived_id(None, "lines", str(number), self.texts[number])

    def look_up(self, transaction: ReadTransaction) -> frozenset[str]:
        """Return the ids of the turns that the log has."""
        return frozenset(
            self.id(number) for number in range(len(self.texts)) if transaction.event(self.id(number)) is not None
        )

    def prepare(self, place: Place, known: frozenset[str]) -> Work[int]:
        """Say which lines are new."""
        self.on_look_up()
        steps: list[Step] = []
        for number, text in enumerate(self.texts):
            if self.id(number) in known:
                continue
            follows = text.startswith("+")
            draft = turn_draft(
                text,
                id=self.id(number),
                continues=self.id(number - 1) if follows else None,
                origin=Origin(format=self.format, ids=[str(number)]),
            )
            steps.append(Step(draft=draft, payload=place(draft.payload), line=number + 1, whole=False))
            event_id = derived_id(None, "line", str(number), text)
            event = EventDraft(topic=f"{self.format}.line", meta={"n": number}, id=event_id)
            last = number + 1 == len(self.texts) or not self.texts[number + 1].startswith("+")
            steps.append(Step(draft=event, payload=place(b"x"), line=number + 1, turn=self.id(number), whole=last))
        return Work(steps=steps, details=len(steps))

    def report(self, known: frozenset[str], works: Sequence[Work[int]], added: Added) -> Report:
        """Return what was done."""
        return Report(
            path="",
            format="lines",
            sessions=(),
            places=self.lines,
            blank=0,
            damaged=0,
            pieces={},
            events_added=added.events,
            turns_added=added.turns,
            turns_known=self.lines - added.turns,
            continued=(),
            roots=(),
            heads=(),
            problems=(),
            known=known,
            prepared=len(works),
            added=added,
        )


def _run(log: TurnLog, source: Lines, **arguments: Any) -> Report:
    report = run_import(log.store, source, Sources(), **arguments)
    assert isinstance(report, Report)
    return report


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record two steps a group."""
    monkeypatch.setattr(importing, "GROUP_STEPS_MAX", 2)


def _went_in(events: int) -> str:
    return f"at least {events} events of the file are in: the same import again adds the rest"


def test_steps_are_recorded_in_order_with_what_they_cite() -> None:
    """Turns and events come in their order, and each event cites its turn."""
    with TurnLog.open("memory://") as log:
        source = Lines(["a", "+b", "c"])
        assert _run(log, source).added == Added(turns=3, events=3)
        events = list(log.events(1))
        assert [recorded.header.topic for recorded in events] == [TURN, "lines.line"] * 3
        cited = [recorded.header.cited("turn") for recorded in events if recorded.header.topic != TURN]
        assert cited == [source.id(number) for number in range(3)]
        assert log.turn(source.id(1)).continues == (source.id(0),)
        assert log.verify().clean


def test_second_import_adds_nothing() -> None:
    """What the log has is not recorded again; a longer file adds what is new."""
    with TurnLog.open("memory://") as log:
        _run(log, Lines(["a", "b"]))
        before = list(log.events())
        assert _run(log, Lines(["a", "b"])).added == Added()
        assert list(log.events()) == before
        assert _run(log, Lines(["a", "b", "c"])).added == Added(turns=1, events=1)


@pytest.mark.usefixtures("small_groups")
def test_progress_goes_on_group_by_group() -> None:
    """Progress is told after each group, and ends with all lines."""
    told: list[tuple[int, int]] = []
    with TurnLog.open("memory://") as log:
        _run(log, Lines(["a", "b", "c"]), progress=lambda done, count: told.append((done, count)))
    assert told == [(1, 3), (2, 3), (3, 3), (3, 3)]


@pytest.mark.usefixtures("small_groups")
def test_groups_end_only_where_the_import_may_be_left() -> None:
    """What belongs together is recorded in one transaction, however small the groups are to be."""
    told: list[int] = []
    with TurnLog.open("memory://") as log:
        _run(log, Lines(["a", "+b", "+c", "d"]), progress=lambda done, _: told.append(done))
    assert told == [3, 4, 4]


@pytest.mark.usefixtures("small_groups")
def test_others_may_append_between_groups() -> None:
    """An append of somebody else's in between leaves the import to go on from where it is."""
    with TurnLog.open("memory://") as log:
        told: list[int] = []

        def progress(done: int, _: int) -> None:
            told.append(done)
            if len(told) < 3:
                log.add_turn("somebody else")

        assert _run(log, Lines(["a", "b", "c"]), progress=progress).added == Added(turns=3, events=3)
        assert log.stats().turns == 5
        assert log.verify().clean


@pytest.mark.usefixtures("small_groups")
def test_same_file_from_two_sides_is_recorded_once() -> None:
    """Where another import brought some of the file since it was looked up, all starts over from what is there."""
    with TurnLog.open("memory://") as log:
        others = iter([lambda: _run(log, Lines(["a", "b"]))])
        source = Lines(["a", "b", "c"], on_look_up=lambda: next(others, lambda: None)() and None)
        report = _run(log, source)
        assert (report.added, report.prepared) == (Added(turns=1, events=1), 2)
        assert log.stats().turns == 3


@pytest.mark.usefixtures("small_groups")
def test_import_that_stops_in_the_middle_is_completed_by_the_same_import() -> None:
    """What is recorded stays, and the next import records the rest: together as if it had not stopped."""
    with TurnLog.open("memory://") as log, TurnLog.open("memory://") as other:

        def stop(done: int, _: int) -> None:
            if done == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt) as caught:
            _run(log, Lines(["a", "b", "c", "d"]), progress=stop)
        assert caught.value.__notes__ == [_went_in(4)]
        assert log.stats().turns == 2
        assert _run(log, Lines(["a", "b", "c", "d"])).added == Added(turns=2, events=2)
        _run(other, Lines(["a", "b", "c", "d"]))
        ids = [[recorded.header.id for recorded in each.events(1)] for each in (log, other)]
        assert ids[0] == ids[1]


@pytest.mark.usefixtures("small_groups")
def test_an_error_says_how_much_went_in_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not that nothing was recorded, which is true of its transaction alone."""
    with TurnLog.open("memory://") as log:
        write = log.store.write
        left = [write, write]

        def fill(plan: Any) -> Any:
            if not left:
                raise StoreFullError("no space left for store 'x': free some; nothing was recorded")
            return left.pop()(plan)

        monkeypatch.setattr(log.store, "write", fill)
        with pytest.raises(StoreFullError) as caught:
            _run(log, Lines(["a", "b", "c"]))
        assert (str(caught.value), caught.value.__notes__) == ("no space left for store 'x': free some", [_went_in(4)])
        with pytest.raises(StoreFullError, match=r"; nothing was recorded$") as caught:
            _run(log, Lines(["a", "b", "c"]))
        assert not hasattr(caught.value, "__notes__")
        assert len(list(log.events(1))) == 4


def test_formats_are_found_by_name() -> None:
    """Claude Code's is one; the name is that of the command line."""
    assert isinstance(formats.get("claude-code"), ClaudeCode)
    assert "claude-code" in formats.names()
    assert formats.get("claude-code").name == "claude-code"


def test_unknown_format_raises() -> None:
    """The error names those that there are."""
    with pytest.raises(NotFoundError, match=r"no format 'nope' to import \(one of .*claude-code"):
        formats.get("nope")
    with TurnLog.open("memory://") as log, pytest.raises(NotFoundError):
        log.import_transcript("nope", Path("x"))


class Install(Protocol):
    """Installs a package that registers the format `acme`, with this class of its module."""

    def __call__(self, value: str, source: str = "") -> None:
        """Install it."""
        ...


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Give a way to install a package that registers a format."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def run(value: str, source: str = "") -> None:
        packages.install(tmp_path, "acme_of_test", source, formats.GROUP, acme=value)
        monkeypatch.delitem(sys.modules, "acme_of_test", raising=False)

    return run


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, install: Install) -> Path:
    """Install the format of this module, and give a file of it."""
    install("acme_of_test:Acme")
    monkeypatch.setitem(sys.modules, "acme_of_test", sys.modules[__name__])
    (tmp_path / "file").write_text("a\nb\n")
    return tmp_path / "file"


class Acme(Importer):
    """A format of another package."""

    name = "acme"
    summary = "lines"

    def read(self, path: Path, redaction: Redaction) -> Lines:
        """Read lines."""
        return Lines(path.read_text().splitlines(), format="acme")


def test_formats_of_other_packages_are_found(acme: Path) -> None:
    """An entry point of the group adds a format."""
    assert "acme" in formats.names()
    with TurnLog.open("memory://") as log:
        report = log.import_transcript("acme", acme)
        assert report.turns_added == 2
        assert log.import_transcript("acme", acme).turns_known == 2


def _step(source: Lines, place: Place, **changes: Any) -> Step:
    draft = turn_draft("a", id=source.id(0))
    return msgspec.structs.replace(Step(draft=draft, payload=place(draft.payload), line=1), **changes)


def _event(topic: str, id: str | None = "x") -> EventDraft:
    return EventDraft(topic=topic, meta={"role": "user"}, id=id and derived_id(None, id))


Steps = Callable[[Lines, Place], Any]


def _with(draft: Any) -> Steps:
    return lambda source, place: [_step(source, place, draft=draft)]


def _no_content(source: Lines, place: Place) -> list[Step]:
    draft = TurnDraft(payload=b"no", meta=TurnMeta(role="user"), id=source.id(0))
    return [_step(source, place, draft=draft, payload=place(b"no"))]


REFUSED: dict[str, Steps] = {
    "topic: 'gpt.turn' is one of turnlog's own": _with(_event(TURN)),
    "topic: 'log.genesis' is one of turnlog's own": _with(_event("log.genesis")),
    "topic: 'codex.line' is one of turnlog's own": _with(_event("codex.line")),
    "topic: 'acme.Line' is not of the form": _with(_event("acme.Line")),
    "an event has the topic 'other.line', and must have one of acme": _with(_event("other.line")),
    "something to record has no id": _with(_event("acme.line", None)),
    "AttributeError: 'str' object has no attribute 'id'": _with("a"),
    "the payload of turn '.*' is not that of its draft": lambda source, place: [
        _step(source, place, payload=place(b"[]"))
    ],
    "give what `place` returned is bytes": lambda source, place: [_step(source, place, payload=b"[]")],
    "two things to record have the id '.*'": lambda source, place: [_step(source, place), _step(source, place)],
    "a step of prepare is str, and must be Step": lambda _source, _place: ["a"],
    "TypeError: 'NoneType' object is not iterable": lambda _source, _place: None,
    "turn '.*': content: input data was truncated": _no_content,
}
"""What is said of steps that no importer of another package may give."""


@pytest.mark.parametrize("what", REFUSED)
def test_what_an_importer_of_another_package_may_not_record_is_refused(
    acme: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """With its package; nothing of it is recorded, and what others recorded is whole."""
    monkeypatch.setattr(
        Lines, "prepare", lambda source, place, _known: Work(steps=REFUSED[what](source, place), details=1)
    )
    with TurnLog.open("memory://") as log:
        log.add_turn("Mine.")
        with pytest.raises(PluginError, match=rf"^format 'acme' of package acme_of_test 1\.0 .*{what}"):
            log.import_transcript("acme", acme)
        assert len(list(log.events(1))) == 1
        assert log.verify().clean


@pytest.mark.parametrize("method", ["read", "look_up", "prepare", "report"])
@pytest.mark.parametrize("wrong", ["raises", "returns none"])
def test_importer_of_another_package_that_fails_is_told_with_it(
    acme: Path, monkeypatch: pytest.MonkeyPatch, method: str, wrong: str
) -> None:
    """Whatever it raises, with what is in by then."""

    def fail(*_: object) -> None:
        if wrong == "raises":
            raise KeyError("k")

    monkeypatch.setattr(Acme if method == "read" else Lines, method, fail)
    with TurnLog.open("memory://") as log:
        with pytest.raises(PluginError, match=r"^format 'acme' of package acme_of_test 1\.0 ") as caught:
            log.import_transcript("acme", acme)
        notes = [_went_in(4)] if method == "report" else []
        assert getattr(caught.value, "__notes__", []) == notes
        assert log.verify().clean


def test_lines_of_formats_of_other_packages_go_with_their_turns(tmp_path: Path) -> None:
    """In an export, and in an erasure; what somebody recorded of a turn of theirs under another name does not."""
    with TurnLog.open("memory://") as log:
        run_import(log.store, Lines(["a", "+b", "c"]), Sources())
        first, second, third = log.latest(None)
        review = log.add_event("acme.review", cites=[("turn", first.id)], payload=b"good")
        lines = {line.header.cited("turn"): line.header.id for line in log.events(topics="lines.line")}
        with (tmp_path / "part").open("wb") as file:
            log.export(file, second.id)
        with TurnLog.open("memory://") as other, (tmp_path / "part").open("rb") as file:
            other.import_turnlog(file)
            assert {line.header.id for line in other.events(topics="lines.line")} == {lines[first.id], lines[second.id]}
        report = log.erase(thread=first.id, reason="asked")
        assert {*report.lines} == {lines[first.id], lines[second.id]}
        assert report.others == (review.header.id,)
        assert log.payload(lines[third.id]) == b"x"
        with pytest.raises(ErasedError):
            log.payload(lines[first.id])


def test_formats_are_those_of_the_importers() -> None:
    """What the topics of a built-in format begin with is named in `FORMATS` of `turnlog/events/topics.py`."""
    assert {{"llm": "llm-logs"}.get(name, name) for name in formats.TRANSCRIPTS} <= {*FORMATS}


@pytest.mark.parametrize(
    ("value", "error"),
    [("no_such_module_anywhere:X", MissingPackageError), ("pathlib:Path", PluginError), ("json:no", PluginError)],
)
def test_entry_point_that_is_no_importer_raises(install: Install, value: str, error: type[Exception]) -> None:
    """What cannot be imported, or is no importer, is said to be so."""
    install(value)
    with pytest.raises(error, match=r"^format 'acme' of package acme_of_test 1\.0 "):
        formats.get("acme")


@pytest.mark.parametrize("source", ["import nobody_has_this", "1 / 0", "raise SystemExit(0)", "", "RECOGNIZES"])
def test_format_of_another_package_that_fails_is_passed_over(tmp_path: Path, install: Install, source: str) -> None:
    """Where formats are looked for: files of others go in, and what is wrong is told."""
    recognizes = """
from turnlog.interop.importing import Importer

class Acme(Importer):
    name = "acme"
    summary = "lines"
    def recognizes(self, path, beginning):
        raise KeyError("k")
    def read(self, path, redaction):
        raise NotImplementedError
"""
    install("acme_of_test:Acme", recognizes if source == "RECOGNIZES" else source)
    (tmp_path / "folder").mkdir()
    for name in ("a.jsonl", "folder/b.jsonl"):
        (tmp_path / name).write_text('{"role":"user","message":{"content":[{"type":"text","text":"hi"}]}}\n')
    found = find([tmp_path / "a.jsonl", tmp_path / "folder"])
    assert [each.format for each in found.files] == ["cursor", "cursor"]
    [failed] = found.failed
    assert failed.startswith("format 'acme' of package acme_of_test 1.0 ")
    (tmp_path / "none").write_text("nothing")
    with pytest.raises(FormatError, match="of no known format") as caught:
        find([tmp_path / "none"])
    assert caught.value.__notes__ == [failed]
    with pytest.raises((PluginError, MissingPackageError)):
        formats_of(tmp_path / "a.jsonl")
