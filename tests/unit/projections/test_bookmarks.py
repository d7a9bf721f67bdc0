"""Bookmark heads."""

import random

import msgspec
from msgspec import Raw

from turnlog import TurnLog
from turnlog.events import BOOKMARK, Event, encode, encode_meta
from turnlog.ids import new_id
from turnlog.model import BookmarkMeta
from turnlog.projections import Bookmark


def _append(log: TurnLog, meta: BookmarkMeta) -> None:
    """Record a bookmark event as an import would: without the rules of the API."""
    own = new_id()
    event = Event(
        format=1,
        id=own,
        topic=BOOKMARK,
        stream=own,
        position=0,
        hash=None,
        size=None,
        parents=[],
        meta=encode_meta(meta),
    )
    log.store.write(lambda transaction: transaction.append(encode(event), event, log.store.place(None)))


def test_bookmarks_are_listed_by_name(log: TurnLog) -> None:
    """Names are in order of their code points."""
    turn = log.add_turn("x").id
    for name in ("b", "B", "a", "é", "10", "9"):
        log.set_bookmark(name, turn)
    assert log.bookmarks() == [Bookmark(name=name, turn=turn) for name in ("10", "9", "B", "a", "b", "é")]


def test_heads_mirror_a_plain_model(log: TurnLog) -> None:
    """Two hundred random moves, sets, renames and deletes give what a dictionary gives."""
    generator = random.Random(2)
    model: dict[str, str] = {}
    names = list("abcde")
    turns = [log.add_turn("x").id]
    for number in range(200):
        name, to = generator.sample(names, 2)
        match generator.randrange(4):
            case 0:
                turns.append(log.add_turn(str(number), bookmark=name).id)
                model[name] = turns[-1]
            case 1:
                model[name] = generator.choice(turns)
                log.set_bookmark(name, model[name])
            case 2 if name in model and to not in model:
                log.rename_bookmark(name, to)
                model[to] = model.pop(name)
            case 3 if name in model:
                log.delete_bookmark(name)
                del model[name]
            case _:
                pass
        assert {bookmark.name: bookmark.turn for bookmark in log.bookmarks()} == model
    assert log.verify().clean


def test_imported_rename_takes_the_name_over(log: TurnLog) -> None:
    """A rename from elsewhere onto a name that is taken here moves the name; one of an unknown name does nothing."""
    a, b = log.add_turn("a", bookmark="a").id, log.add_turn("b", bookmark="b").id
    _append(log, BookmarkMeta(action="rename", name="nope", to="b"))
    assert log.bookmarks() == [Bookmark(name="a", turn=a), Bookmark(name="b", turn=b)]
    _append(log, BookmarkMeta(action="rename", name="a", to="b"))
    assert log.bookmarks() == [Bookmark(name="b", turn=a)]
    _append(log, BookmarkMeta(action="delete", name="nope"))
    assert log.bookmarks() == [Bookmark(name="b", turn=a)]
    assert log.verify().clean


def test_bookmark_metadata_is_minimal(log: TurnLog) -> None:
    """A bookmark event says what it does and nothing else."""
    turn = log.add_turn("x").id
    log.set_bookmark("n", turn)
    log.delete_bookmark("n")
    metas = [bytes(recorded.event.meta) for recorded in log.events(topics=[BOOKMARK])]
    assert metas == [
        msgspec.json.encode({"action": "set", "name": "n", "turn": turn}),
        bytes(Raw(b'{"action":"delete","name":"n"}')),
    ]
