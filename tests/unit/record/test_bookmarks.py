"""Setting, renaming and deleting bookmarks."""

import pytest

from turnlog import TurnLog
from turnlog.errors import BookmarkExistsError, HeadConflictError, UnknownBookmarkError, UnknownTurnError
from turnlog.events import BOOKMARK, meta_of
from turnlog.model import BookmarkMeta
from turnlog.projections import Bookmark


def _heads(log: TurnLog) -> dict[str, str]:
    return {bookmark.name: bookmark.turn for bookmark in log.bookmarks.all()}


def _recorded(log: TurnLog) -> list[BookmarkMeta]:
    return [meta_of(recorded, BookmarkMeta) for recorded in log.events(topics=[BOOKMARK])]


def test_set_makes_and_moves_a_bookmark(log: TurnLog) -> None:
    """A bookmark is set to any turn, by id or by the name of another bookmark, as an event each."""
    a, b = log.add_turn("a", bookmark="first"), log.add_turn("b")
    log.bookmarks.set("x", b.id.upper())
    assert _heads(log) == {"first": a.id, "x": b.id}
    assert log.bookmarks.set("x", "first").turn == a.id
    assert _heads(log) == {"first": a.id, "x": a.id}
    assert _recorded(log) == [
        BookmarkMeta(action="set", name="x", turn=b.id),
        BookmarkMeta(action="set", name="x", turn=a.id),
    ]


@pytest.mark.parametrize("headish", ["nope", "036z951mhjikzik2gsl81gr7l"])
def test_set_to_an_unknown_turn_is_refused(log: TurnLog, headish: str) -> None:
    """A bookmark cannot point at nothing, and nothing is written."""
    with pytest.raises(UnknownTurnError):
        log.bookmarks.set("x", headish)
    assert list(log.events()) == []


def test_set_compares_with_the_expected_head(log: TurnLog) -> None:
    """A stale expectation raises and writes nothing; a right one, in either case, is met."""
    a, b = log.add_turn("a"), log.add_turn("b")
    log.bookmarks.set("x", a.id, expected_head=False)
    for expected in (False, b.id):
        with pytest.raises(HeadConflictError) as caught:
            log.bookmarks.set("x", b.id, expected_head=expected)
        assert (caught.value.bookmark, caught.value.expected, caught.value.actual) == ("x", expected or None, a.id)
    with pytest.raises(HeadConflictError) as caught:
        log.bookmarks.set("y", b.id, expected_head=a.id)
    assert caught.value.actual is None
    log.bookmarks.set("x", b.id, expected_head=a.id.upper())
    assert _heads(log) == {"x": b.id}
    assert len(_recorded(log)) == 2


def test_rename_keeps_the_head(log: TurnLog) -> None:
    """A renamed bookmark is where it was, under its new name only."""
    a = log.add_turn("a", bookmark="old")
    log.bookmarks.rename("old", "new")
    assert _heads(log) == {"new": a.id}
    assert _recorded(log) == [BookmarkMeta(action="rename", name="old", to="new")]


def test_rename_onto_an_existing_name_is_refused(log: TurnLog) -> None:
    """No bookmark is overwritten by a rename, not even by itself."""
    a, b = log.add_turn("a", bookmark="a"), log.add_turn("b", bookmark="b")
    for name in ("b", "a"):
        with pytest.raises(BookmarkExistsError) as caught:
            log.bookmarks.rename("a", name)
        assert caught.value.name == name
    assert _heads(log) == {"a": a.id, "b": b.id}
    assert _recorded(log) == []


def test_delete_leaves_the_turns(log: TurnLog) -> None:
    """A deleted bookmark is gone, its turn is not, and the name is free."""
    a = log.add_turn("a", bookmark="x")
    log.bookmarks.delete("x")
    assert _heads(log) == {}
    assert log.turn(a.id) == a
    with pytest.raises(UnknownTurnError):
        log.turn("x")
    assert _recorded(log) == [BookmarkMeta(action="delete", name="x")]
    assert _heads(log) == {}
    b = log.add_turn("b", bookmark="x", expected_head=False)
    assert _heads(log) == {"x": b.id}


@pytest.mark.parametrize("name", ["nope", "", "\ud800", "a" * 10_000])
def test_unknown_bookmark_cannot_be_renamed_or_deleted(log: TurnLog, name: str) -> None:
    """What does not exist is neither renamed nor deleted, whatever its name."""
    for act in (lambda: log.bookmarks.rename(name, "to"), lambda: log.bookmarks.delete(name)):
        with pytest.raises(UnknownBookmarkError) as caught:
            act()
        assert caught.value.name == name
    assert list(log.events()) == []


def test_swap_by_renames(log: TurnLog) -> None:
    """Three renames swap two bookmarks."""
    a, b = log.add_turn("a", bookmark="a"), log.add_turn("b", bookmark="b")
    for name, to in (("a", "t"), ("b", "a"), ("t", "b")):
        log.bookmarks.rename(name, to)
    assert _heads(log) == {"a": b.id, "b": a.id}


def test_rename_returns_the_bookmark_as_it_is_then(log: TurnLog) -> None:
    """In the transaction that renames it: a moment later somebody else may have moved it, or taken it away."""
    turn = log.add_turn("a", bookmark="x")
    assert log.bookmarks.rename("x", "y") == Bookmark(name="y", turn=turn.id)
