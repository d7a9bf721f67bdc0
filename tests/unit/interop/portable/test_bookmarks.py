"""Bookmarks of an imported log: set where they are new, kept or taken where they are elsewhere, never twice."""

import io
from typing import Any

import pytest
from tests.forging import Forgery, exported

from turnlog import TurnLog
from turnlog.events import Arrival
from turnlog.interop.portable import KeptBookmark, RestoreReport
from turnlog.projections import MovedBookmark


def _import(log: TurnLog, content: bytes, **options: Any) -> RestoreReport:
    return log.import_turnlog(io.BytesIO(content), **options)


def _heads(log: TurnLog) -> dict[str, str]:
    return {bookmark.name: bookmark.turn for bookmark in log.bookmarks.all()}


def _own_bookmark_events(log: TurnLog) -> int:
    return sum(recorded.arrival == Arrival.RECORDED for recorded in log.events(topics=["gpt.bookmark"]))


def test_new_ones_are_set_in_the_order_of_the_export(source: TurnLog, log: TurnLog) -> None:
    """By events of this log, one each, though guests themselves move none."""
    log.add_turn("mine", bookmark=False)
    report = _import(log, exported(source))
    assert _heads(log) == _heads(source)
    assert [moved.name for moved in report.set_bookmarks] == ["main", "other", "aside"]
    assert _own_bookmark_events(log) == 3
    assert log.verify().clean


def test_those_that_stand_elsewhere_are_kept(source: TurnLog, log: TurnLog) -> None:
    """By default nobody's import moves a bookmark of this log, and the report says which it would have."""
    mine = log.add_turn("mine", bookmark="main")
    theirs = source.turn("main").id
    report = _import(log, exported(source))
    assert log.turn("main") == mine
    assert report.kept_bookmarks == (KeptBookmark(name="main", here=mine.id, theirs=theirs),)
    assert {moved.name for moved in report.set_bookmarks} == {"aside", "other"}
    assert report.moved_bookmarks == ()


def test_none_comes_before_what_a_name_means_here(source: TurnLog, log: TurnLog) -> None:
    """`main~1` and beginnings of ids mean what they meant, or what they come to mean, unless all are to be taken."""
    asked = log.add_turn("mine", bookmark="main")
    log.add_turn("mine too", continues="main")
    theirs = source.turn("main").id
    beginning = asked.id[:-1]
    names = ["main~1", "later~2", beginning, beginning.upper(), "0abc", "5abc", "v1~x"]
    for name in names:
        source.bookmarks.set(name, theirs)
    report = _import(log, exported(source))
    kept = [*names[:5], "main"]
    assert sorted((each.name, each.here is None) for each in report.kept_bookmarks) == sorted(
        (name, name != "main") for name in kept
    )
    assert set(_heads(log)) == {"main", "other", "aside", "5abc", "v1~x"}
    assert log.turn("main~1").id == log.turn(beginning).id == asked.id
    with TurnLog.open("memory://") as other:
        _import(other, exported(source), bookmarks="take")
        assert _heads(other) == _heads(source)


def test_those_that_stand_elsewhere_are_taken_on_demand(source: TurnLog, log: TurnLog) -> None:
    """With the turn that each was at, so that it can be put back."""
    mine = log.add_turn("mine", bookmark="main")
    report = _import(log, exported(source), bookmarks="take")
    assert _heads(log) == _heads(source)
    assert report.moved_bookmarks == (MovedBookmark(name="main", before=mine.id, after=source.turn("main").id),)
    assert report.kept_bookmarks == ()


@pytest.mark.parametrize("bookmarks", ["keep", "take"])
def test_importing_twice_sets_nothing(source: TurnLog, log: TurnLog, bookmarks: str) -> None:
    """Whatever became of them here since."""
    log.add_turn("mine", bookmark="main")
    content = exported(source)
    _import(log, content, bookmarks=bookmarks)
    log.bookmarks.delete("other")
    log.add_turn("on", continues="aside")
    heads, events = _heads(log), len(list(log.events()))
    assert _import(log, content, bookmarks=bookmarks) == RestoreReport(added=0, known=11)
    assert (_heads(log), len(list(log.events()))) == (heads, events)


def test_later_export_brings_the_bookmarks_that_moved_since(source: TurnLog, log: TurnLog) -> None:
    """And no others, even with `take`: what did not move there since stays where it is here."""
    log.add_turn("mine", bookmark=False)
    _import(log, exported(source))
    log.add_turn("my own way", continues="aside", bookmark="main")
    new = source.add_turn("new", continues="other")
    report = _import(log, exported(source), bookmarks="take")
    assert [moved.name for moved in report.moved_bookmarks] == ["other"]
    assert log.turn("other").id == new.id
    assert log.turn("main").id not in _heads(source).values()


def test_deleted_and_renamed_ones_are_not_set(log: TurnLog) -> None:
    """Where the export leaves them is what counts, not where they once were."""
    log.add_turn("mine", bookmark="mine")
    with TurnLog.open("memory://") as source:
        first = source.add_turn("a", bookmark="gone").id
        source.bookmarks.delete("gone")
        source.bookmarks.set("old", first)
        source.bookmarks.rename("old", "new")
        source.bookmarks.rename("new", "newest")
        source.bookmarks.set("old", source.add_turn("b", bookmark=False).id)
        source.bookmarks.delete("old")
        report = _import(log, exported(source))
    assert report.set_bookmarks == (MovedBookmark(name="newest", before=None, after=first),)
    assert set(_heads(log)) == {"mine", "newest"}


def test_rename_to_itself_changes_nothing(log: TurnLog) -> None:
    """As a foreign log may have it: the bookmark stays where it is."""
    with TurnLog.open("memory://") as source:
        turn = source.add_turn("a", bookmark="one").id
        source.bookmarks.rename("one", "two")
        forgery = Forgery.of(exported(source))
    private = forgery.lines[-1].private
    assert private is not None
    private["meta"]["to"] = "one"
    content = forgery.content()
    with TurnLog.open("memory://") as restored:
        assert _import(restored, content).whole
        assert _heads(restored) == {"one": turn}
        assert restored.verify().clean
    log.add_turn("mine", bookmark=False)
    _import(log, content)
    assert _heads(log) == {"one": turn}


def test_same_place_is_no_change(source: TurnLog, log: TurnLog) -> None:
    """A bookmark that is already where the export has it is neither set nor kept."""
    log.add_turn("mine", bookmark=False)
    _import(log, exported(source, "other"))
    report = _import(log, exported(source))
    assert {moved.name for moved in report.set_bookmarks} == {"main", "aside"}
    assert (report.moved_bookmarks, report.kept_bookmarks) == ((), ())


def test_guests_of_the_other_log_move_none_either(source: TurnLog, log: TurnLog) -> None:
    """What counts is where the other log has its bookmarks, not where a third one had them."""
    log.add_turn("mine", bookmark=False)
    with TurnLog.open("memory://") as middle:
        kept = middle.add_turn("theirs", bookmark="main")
        _import(middle, exported(source))
        report = _import(log, exported(middle))
        assert _heads(log) == _heads(middle)
    assert log.turn("main").id == kept.id
    assert len(report.set_bookmarks) == 3
    assert log.verify().clean


def test_many_are_settled_once_each(log: TurnLog) -> None:
    """More than a group has, each moved many times over there."""
    log.add_turn("mine", bookmark="5")
    with TurnLog.open("memory://") as source:
        turns = [source.add_turn(str(number), bookmark=False).id for number in range(20)]
        for number in range(1500):
            source.bookmarks.set(str(number % 30), turns[number % 20])
        content, theirs = exported(source), _heads(source)
    report = _import(log, content)
    assert len(report.set_bookmarks) == 29
    assert [kept.name for kept in report.kept_bookmarks] == ["5"]
    assert {name: turn for name, turn in _heads(log).items() if name != "5"} == {
        name: turn for name, turn in theirs.items() if name != "5"
    }
    assert _own_bookmark_events(log) == 29


def test_ancestry_brings_the_bookmarks_that_stood_in_it(source: TurnLog, log: TurnLog) -> None:
    """Where they last were in it; those of the rest of the thread stay away."""
    source.add_turn("beside", continues=source.ancestry("main")[0].id, bookmark="beside")
    reply = source.ancestry("main")[1].id
    _import(log, exported(source, reply, ancestry=True))
    assert _heads(log) == {"main": reply}
