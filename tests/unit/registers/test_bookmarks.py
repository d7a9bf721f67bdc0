"""Bookmarks: names for turns, reached as registers are."""

from pathlib import Path

import pytest
from tests.sealed_log import SealsInMemory

from turnlog import Bookmark, SealError, TurnLog, UnknownBookmarkError


def test_bookmark_is_set_moved_renamed_and_deleted(log: TurnLog) -> None:
    """Each change is an event; reading folds them, by name."""
    first, second = log.add_turn("x"), log.add_turn("y")
    assert log.bookmarks.set("main", first.id) == Bookmark(name="main", turn=first.id)
    log.bookmarks.set("aside", first.id)
    log.bookmarks.set("main", second.id, expected_head=first.id)
    assert log.bookmarks.get("main") == Bookmark(name="main", turn=second.id)
    log.bookmarks.rename("main", "trunk")
    assert log.bookmarks.all() == [Bookmark(name="aside", turn=first.id), Bookmark(name="trunk", turn=second.id)]
    log.bookmarks.delete("aside")
    assert [bookmark.name for bookmark in log.bookmarks.all()] == ["trunk"]


@pytest.mark.parametrize("name", ["nope", "", "\x1fx", "main~1"])
def test_unknown_bookmark_says_so(log: TurnLog, name: str) -> None:
    """What is no bookmark's name is none, whatever else it means."""
    log.add_turn("y", continues=log.add_turn("x", bookmark="main").id)
    with pytest.raises(UnknownBookmarkError) as caught:
        log.bookmarks.get(name)
    assert caught.value.name == name


def test_sealed_bookmark_is_found_by_its_name_with_keys(tmp_path: Path) -> None:
    """Without them it is not seen, and cannot be set."""
    url = f"sqlite:///{tmp_path}/log.db"
    seals = SealsInMemory()
    with TurnLog.open(url, seals=seals) as log:
        log.seal()
        turn = log.add_turn("x", bookmark="main")
        assert log.bookmarks.get("main").turn == turn.id
    with TurnLog.open(url) as log:
        with pytest.raises(UnknownBookmarkError):
            log.bookmarks.get("main")
        with pytest.raises(SealError):
            log.bookmarks.set("main", turn.id)
