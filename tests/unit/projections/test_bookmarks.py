"""Bookmark heads."""

import random
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from msgspec import Raw, Struct
from tests.sealed_log import SealsInMemory

from turnlog import TurnLog
from turnlog.events import BOOKMARK, TURN, Arrival, Citation, Recorded, build, cite, meta_text, parts_of, private_part
from turnlog.ids import new_id
from turnlog.model import BookmarkMeta, TurnMeta
from turnlog.projections import Bookmark
from turnlog.projections.bookmarks import all_bookmarks, bookmarks_beginning, bookmarks_like
from turnlog.record import plan_turn, turn_draft
from turnlog.record.bookmarks import plan_bookmark_set
from turnlog.sources import Sources
from turnlog.store import WriteTransaction
from turnlog.testing.harness import append, erased, folded_anew, projected


def _append(
    log: TurnLog,
    meta: Struct,
    *,
    topic: str = BOOKMARK,
    citations: tuple[Citation, ...] = (),
    arrival: Arrival = Arrival.RESTORED,
    erase: bool = False,
) -> Recorded:
    """Record an event as an import would: without the rules of the API."""
    public, private = parts_of(topic, meta)
    event = build(
        topic=topic,
        id=new_id(),
        time=0,
        meta=meta_text(public),
        private=private_part(private, hash=None, size=None, salt=bytes(16)),
        citations=citations,
    )
    [recorded] = append(log.store, erased(event) if erase else event, arrival=arrival)
    return recorded


def _heads(log: TurnLog) -> dict[str, str]:
    return {bookmark.name: bookmark.turn for bookmark in log.bookmarks.all()}


def test_bookmarks_are_listed_by_name(log: TurnLog) -> None:
    """Names are in order of their code points."""
    turn = log.add_turn("x").id
    for name in ("b", "B", "a", "é", "10", "9"):
        log.bookmarks.set(name, turn)
    assert log.bookmarks.all() == [Bookmark(name=name, turn=turn) for name in ("10", "9", "B", "a", "b", "é")]


@pytest.mark.parametrize("is_sealed", [False, True])
def test_bookmarks_are_found_by_beginning_and_pattern(tmp_path: Path, is_sealed: bool) -> None:
    """As among all of them, whether their names are sealed or not, and opened or not."""
    seals, url = SealsInMemory(), f"sqlite:///{tmp_path}/log.db"
    with TurnLog.open(url, seals=seals) as log:
        if is_sealed:
            log.seal()
        turn = log.add_turn("x").id
        for name in ("tri", "trip 1", "trip 2", "trip[3]", "Trip", "trip\U0001f98a", "é"):
            log.bookmarks.set(name, turn)
    for keys in (seals, None):
        with TurnLog.open(url, seals=keys) as log, log.store.read() as transaction:
            every = all_bookmarks(transaction)
            shown = every[0].name
            for pattern in (
                "tri",
                "trip 1",
                "trip[3]",
                "trip[[]3]",
                "tri*",
                "*",
                "",
                "sealed:*",
                "none",
                shown,
                "a\x1f",
            ):
                assert bookmarks_like(transaction, pattern) == [
                    each for each in every if fnmatchcase(each.name, pattern)
                ]
            for start in ("", "tri", "trip ", "é", "z", "sealed:"):
                begun = [each for each in every if each.name.startswith(start)]
                assert bookmarks_beginning(transaction, start, 100) == begun
                assert bookmarks_beginning(transaction, start, 2) == begun[:2]


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
                log.bookmarks.set(name, model[name])
            case 2 if name in model and to not in model:
                log.bookmarks.rename(name, to)
                model[to] = model.pop(name)
            case 3 if name in model:
                log.bookmarks.delete(name)
                del model[name]
            case _:
                pass
        assert {bookmark.name: bookmark.turn for bookmark in log.bookmarks.all()} == model
    assert log.verify().clean


def test_imported_rename_takes_the_name_over(log: TurnLog) -> None:
    """A rename from elsewhere onto a name that is taken here moves the name; one of an unknown name does nothing."""
    a, b = log.add_turn("a", bookmark="a").id, log.add_turn("b", bookmark="b").id
    _append(log, BookmarkMeta(action="rename", name="nope", to="b"))
    assert log.bookmarks.all() == [Bookmark(name="a", turn=a), Bookmark(name="b", turn=b)]
    _append(log, BookmarkMeta(action="rename", name="a", to="b"))
    assert log.bookmarks.all() == [Bookmark(name="b", turn=a)]
    _append(log, BookmarkMeta(action="delete", name="nope"))
    assert log.bookmarks.all() == [Bookmark(name="b", turn=a)]
    assert log.verify().clean


def test_rename_to_its_own_name_changes_nothing(log: TurnLog) -> None:
    """A rename of a bookmark to the name that it has leaves it, and when it was moved, as they are."""
    turn = log.add_turn("a", bookmark="a").id
    before = projected(log.store)["bookmarks"]
    _append(log, BookmarkMeta(action="rename", name="a", to="a"))
    assert projected(log.store)["bookmarks"] == before
    assert _heads(log) == {"a": turn}
    assert log.verify().clean


@pytest.mark.parametrize("arrival", Arrival)
@pytest.mark.parametrize("erase", [False, True])
def test_guests_and_erased_events_move_nothing(log: TurnLog, arrival: Arrival, erase: bool) -> None:
    """Only events of this log move bookmarks, and only as long as they say which: turns as well as bookmark events."""
    a = log.add_turn("a", bookmark="a")
    target = log.event(log.add_turn("b").id)
    given = {"arrival": arrival, "erase": erase}
    turn = _append(log, TurnMeta(role="user", head="by turn"), topic=TURN, **given)
    _append(log, BookmarkMeta(action="set", name="by event"), citations=(cite(target, "turn"),), **given)
    _append(log, BookmarkMeta(action="rename", name="a", to="renamed"), **given)
    moved = {"renamed": a.id, "by turn": turn.header.id, "by event": target.header.id}
    kept = {"a": a.id}
    assert _heads(log) == (kept if erase or arrival is Arrival.GUEST else moved)
    assert projected(log.store) == folded_anew(log.store)


@pytest.mark.parametrize("arrival", [Arrival.RECORDED, Arrival.RESTORED])
def test_event_that_says_too_little_moves_nothing(log: TurnLog, arrival: Arrival) -> None:
    """A bookmark event without what its action needs, as nobody records it, changes nothing and stops nobody."""
    turn = log.add_turn("a", bookmark="a").id
    _append(log, BookmarkMeta(action="rename", name="nope"), arrival=arrival)
    assert _heads(log) == {"a": turn}


def test_bookmark_event_says_what_it_does_and_nothing_else(log: TurnLog) -> None:
    """What is done stands in the header, the name where it can be erased, and the turn is cited with its digest."""
    turn = log.add_turn("x")
    log.bookmarks.set("n", turn.id)
    log.bookmarks.delete("n")
    set_, delete = log.events(topics=[BOOKMARK])
    assert [bytes(event.header.meta) for event in (set_, delete)] == [b'{"action":"set"}', b'{"action":"delete"}']
    for event in (set_, delete):
        assert event.private is not None
        assert bytes(event.private.meta) == bytes(Raw(b'{"name":"n"}'))
    assert [(cited.relation, cited.id, cited.digest) for cited in set_.header.citations] == [
        ("turn", turn.id, turn.digest)
    ]
    assert delete.header.citations == []


def _by_the_log(log: TurnLog, turn: str) -> None:
    log.bookmarks.set("x", turn)


def _by_another(log: TurnLog, turn: str) -> None:
    with TurnLog.open(log.store.url) as other:
        other.bookmarks.set("x", turn)


def _by_another_and_more(log: TurnLog, turn: str) -> None:
    _by_another(log, turn)
    log.add_turn("elsewhere")


def _by_a_rename(log: TurnLog, turn: str) -> None:
    log.bookmarks.set("y", turn)
    log.bookmarks.rename("y", "x")


def _after_an_erasure(log: TurnLog, turn: str) -> None:
    other = log.add_turn("goes")
    _by_another(log, turn)
    log.erase(turn=other.id, reason="test")


@pytest.mark.parametrize(
    "put",
    [_by_the_log, _by_another, _by_another_and_more, _by_a_rename, _after_an_erasure],
    ids=lambda put: put.__name__,
)
def test_bookmark_that_an_event_put_on_a_turn_moves_on(tmp_path: Path, put: Callable[[TurnLog, str], None]) -> None:
    """What continues a turn moves the bookmark that was put on it since, by whomever, and only then."""
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        turn = log.add_turn("one")
        for number in range(3):
            turn = log.add_turn(str(number), continues=turn.id)
        assert _heads(log) == {}
        put(log, turn.id)
        after = log.add_turn("after", continues=turn.id)
        assert _heads(log) == {"x": after.id}


def test_bookmark_whose_setting_failed_does_not_move_on(tmp_path: Path) -> None:
    """A bookmark that was put on a turn in a transaction that failed is none."""
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        turn = log.add_turn("one")

        def fail(transaction: WriteTransaction) -> None:
            plan_bookmark_set(transaction, "x", turn.id, None, Sources())
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            log.store.write(fail)
        after = log.add_turn("after", continues=turn.id)
        log.add_turn("and", continues=after.id)
        assert _heads(log) == {}


def _moved_by_another(log: TurnLog, turn: str) -> None:
    with TurnLog.open(log.store.url) as other:
        other.add_turn("theirs", continues="main")


def _set_by_the_log(log: TurnLog, turn: str) -> None:
    log.bookmarks.set("main", turn)


def _deleted(log: TurnLog, turn: str) -> None:
    log.bookmarks.delete("main")
    log.bookmarks.set("main", turn)


def _renamed(log: TurnLog, turn: str) -> None:
    log.bookmarks.set("other", turn)
    log.bookmarks.delete("main")
    log.bookmarks.rename("other", "main")


def _moved_by_a_restored_turn(log: TurnLog, turn: str) -> None:
    with log.store.read() as transaction:
        parent = transaction.event(turn)
    assert parent is not None
    _append(log, TurnMeta(role="user", head="main"), topic=TURN, citations=(cite(parent, "parent"),))


def _erased(log: TurnLog, turn: str) -> None:
    log.erase(turn=log.turn("main").id, reason="test")


def _failed(log: TurnLog, turn: str) -> None:
    def fail(transaction: WriteTransaction) -> None:
        plan_turn(transaction, turn_draft("x", continues="main"), transaction.placed(b"[]"), Sources())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        log.store.write(fail)


_MOVES = [_set_by_the_log, _deleted, _renamed, _moved_by_a_restored_turn, _erased, _failed]


@pytest.mark.parametrize(
    ("place", "move"),
    [(place, move) for place in ("memory", "file") for move in _MOVES] + [("file", _moved_by_another)],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_turn_continues_a_bookmark_where_it_is(
    tmp_path: Path, place: str, move: Callable[[TurnLog, str], None]
) -> None:
    """Whoever moved it since this process last did, and however."""
    with TurnLog.open("memory://" if place == "memory" else f"sqlite:///{tmp_path}/log.db") as log:
        first = log.add_turn("first", bookmark="main")
        for number in range(3):
            log.add_turn(str(number), continues="main")
        move(log, first.id)
        head = _heads(log)["main"]
        after = log.add_turn("after", continues="main")
        assert after.continues == (head,)
        assert _heads(log)["main"] == after.id
        assert log.add_turn("and on", continues="main").continues == (after.id,)
