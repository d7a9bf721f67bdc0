"""From a headish to a turn."""

from pathlib import Path

import pytest
from tests.rewriting import erase

from turnlog import TurnLog
from turnlog.errors import AmbiguousTurnError, IdConflictError, UnknownTurnError
from turnlog.events import Arrival
from turnlog.ids import new_id
from turnlog.record import find_turn, head_before
from turnlog.record.lookup import short_ids
from turnlog.store import NO_PAYLOAD


def test_turn_is_found_by_id_in_either_case_and_by_bookmark(log: TurnLog) -> None:
    """A headish is a turn id or the name of a bookmark; names are exact."""
    turn = log.add_turn("x", bookmark="Main")
    with log.store.read() as transaction:
        for headish in (turn.id, turn.id.upper(), "Main"):
            assert find_turn(transaction, headish).header.id == turn.id
        for headish in ("main", "Main ", "Mai", "%", "M*"):
            with pytest.raises(UnknownTurnError) as caught:
                find_turn(transaction, headish)
            assert caught.value.headish == headish


@pytest.mark.parametrize(
    "headish", ["", " ", "\ud800", "\x00", "a\nb", "nope", "036z951mhjikzik2gsl81gr7l", "z" * 25, "x" * 100_000]
)
def test_unknown_headish_is_one_kind_of_error(log: TurnLog, headish: str) -> None:
    """Whatever is asked for and is not there, the same error is raised, with what was asked for."""
    log.add_turn("x")
    with log.store.read() as transaction, pytest.raises(UnknownTurnError) as caught:
        find_turn(transaction, headish)
    assert caught.value.headish == headish


def test_event_that_is_no_turn_is_not_found(log: TurnLog) -> None:
    """The id of another event is no turn, and the message says what it is."""
    turn = log.add_turn("x")
    log.bookmarks.set("main", turn.id)
    *_, event = log.events()
    with log.store.read() as transaction, pytest.raises(UnknownTurnError, match=r"gpt\.bookmark event, not a turn"):
        find_turn(transaction, event.header.id)


def test_head_before_follows_the_whole_history_of_a_name(log: TurnLog) -> None:
    """At each point of the log a name is where it was then: moved, set, renamed and deleted."""
    expected: list[dict[str, str]] = [{}, {}]  # before the genesis, and after it

    def note() -> None:
        expected.append({bookmark.name: bookmark.turn for bookmark in log.bookmarks.all()})

    a = log.add_turn("a", bookmark="x")
    note()
    b = log.add_turn("b")
    note()
    log.bookmarks.set("y", b.id)
    note()
    log.bookmarks.rename("x", "z")
    note()
    log.bookmarks.rename("y", "x")
    note()
    log.add_turn("c", continues=a.id)
    note()
    log.bookmarks.delete("x")
    note()
    log.add_turn("d", bookmark="x")
    note()
    log.bookmarks.set("x", a.id)
    note()
    log.bookmarks.rename("x", "y")
    note()
    log.add_turn("e", continues="y", bookmark=False)
    note()
    last = len(expected)
    with log.store.read() as transaction:
        for at in range(1, last + 1):
            then = expected[at - 1]
            assert {name: head_before(transaction, name, at) for name in "xyz"} == {
                name: then.get(name) for name in "xyz"
            }


@pytest.mark.parametrize(("arrival", "counts"), [(Arrival.GUEST, False), (Arrival.RESTORED, True)])
def test_bookmarks_of_guests_are_none_of_this_logs(log: TurnLog, arrival: Arrival, counts: bool) -> None:
    """Turns and bookmark events of another log move no bookmark here, now or in the past; those of this log do."""
    own = log.add_turn("own", bookmark="x")
    with TurnLog.open("memory://") as other:
        theirs = other.add_turn("theirs", bookmark="x")
        other.bookmarks.set("y", theirs.id)
        other.bookmarks.rename("x", "z")
        events = list(other.events(1))
        payload = other.store.place(other.payload(theirs.id))
    for event in events:
        kept = payload if event.header.topic == "gpt.turn" else NO_PAYLOAD
        log.store.write(lambda transaction, event=event, kept=kept: transaction.append(event, kept, arrival))
    now = {bookmark.name: bookmark.turn for bookmark in log.bookmarks.all()}
    assert now == ({"y": theirs.id, "z": theirs.id} if counts else {"x": own.id})
    with log.store.read() as transaction:
        assert {name: head_before(transaction, name, 100) for name in "xyz"} == {name: now.get(name) for name in "xyz"}
    assert log.turn(theirs.id).meta.head == "x"


def test_name_of_a_bookmark_that_was_none_takes_nothing_away(log: TurnLog) -> None:
    """A restored log may have the rename of a bookmark that this one has not: the other name stays where it was."""
    own = log.add_turn("own", bookmark="x")
    with TurnLog.open("memory://") as other:
        other.add_turn("theirs", bookmark="gone")
        other.bookmarks.rename("gone", "x")
        renamed = list(other.events(1))[-1]
    log.store.write(lambda transaction: transaction.append(renamed, NO_PAYLOAD, Arrival.RESTORED))
    assert log.bookmarks.get("x").turn == own.id
    with log.store.read() as transaction:
        assert {name: head_before(transaction, name, 100) for name in ("x", "gone")} == {"x": own.id, "gone": None}


def test_erased_turn_moved_no_bookmark(file_log: TurnLog, store_path: Path) -> None:
    """Which one it moved is gone with its private part: in the past, the name is where it was put before."""
    first = file_log.add_turn("a", bookmark="x")
    second = file_log.add_turn("b", continues="x")
    file_log.close()
    erase(store_path, second.id)
    with TurnLog.open(f"sqlite:///{store_path}") as log, log.store.read() as transaction:
        assert head_before(transaction, "x", 100) == first.id


def test_first_parents_are_counted_back() -> None:
    """From an id or a bookmark, 0 steps too."""
    with TurnLog.open("memory://") as log:
        root = log.add_turn("a", bookmark="main")
        other = log.add_turn("x")
        merged = log.add_turn("b", continues=["main", other.id], bookmark="main")
        head = log.add_turn("c", continues="main")
        found = {headish: log.turn(headish).id for headish in ("main~0", "main~1", f"{head.id.upper()}~2")}
        assert found == {"main~0": head.id, "main~1": merged.id, f"{head.id.upper()}~2": root.id}
        aside = log.add_turn("d", continues="main~1")
        assert (aside.continues, aside.meta.head, len(log.bookmarks.all())) == ((merged.id,), None, 1)
        log.bookmarks.set("main~1", other.id)
        assert log.turn("main~1").id == other.id


def test_steps_back_add_up() -> None:
    """As in git; a bookmark of the longest name comes first, and what was recorded so is found again."""
    with TurnLog.open("memory://") as log:
        turns = [log.add_turn("a", bookmark="main").id]
        turns += [log.add_turn(text, continues="main").id for text in "bcde"]
        found = {headish: turns.index(log.turn(headish).id) for headish in ("main~1~1", "main~0~2~1", "main~1~0")}
        assert found == {"main~1~1": 2, "main~0~2~1": 1, "main~1~0": 3}
        again = log.add_turn("x", continues="main~1~1", id=IDS[0])
        log.bookmarks.set("main~1", turns[1])
        assert log.turn("main~1~1").id == turns[0]
        assert log.add_turn("x", continues="main~1~1", id=IDS[0]) == again


@pytest.mark.parametrize(
    ("headish", "why"),
    [
        ("main~2", "no turn 'main~2': 'main~1' is the first"),
        ("main~1~2", "no turn 'main~1~2': 'main~1' is the first"),
        ("none~1", "no turn or bookmark 'none'"),
        ("main~", "no turn or bookmark 'main~'"),
        ("main~-1", "no turn or bookmark 'main~-1'"),
        ("none~1~1", "no turn or bookmark 'none'"),
        ("main~1~", "no turn or bookmark 'main~1~'"),
        ("~1", "no turn or bookmark '~1'"),
        (f"main~{'9' * 99}", f"no turn 'main~{'9' * 99}': 'main~1' is the first"),
        (f"main~{'9' * 100}", f"no turn or bookmark 'main~{'9' * 100}'"),
    ],
)
def test_what_goes_back_too_far_is_no_turn(headish: str, why: str) -> None:
    """Nor is what is spelled otherwise."""
    with TurnLog.open("memory://") as log:
        log.add_turn("a", bookmark="main")
        log.add_turn("b", continues="main")
        with pytest.raises(UnknownTurnError) as raised:
            log.turn(headish)
        assert (str(raised.value), raised.value.headish) == (why, headish)


IDS = [f"03ha{middle}{tail}" for middle, tail in (("0000", "0" * 17), ("0000", "1" * 17), ("1", "0" * 20))]


def test_the_beginning_of_an_id_names_the_one_turn_that_has_it() -> None:
    """In either case, with `~N` too; what is the name of a bookmark means that."""
    with TurnLog.open("memory://") as log:
        for number, own_id in enumerate(IDS):
            log.add_turn("x", id=own_id, continues=IDS[:number][-1:])
        found = {start: log.turn(start).id for start in ("03ha1", "03HA1", IDS[1][:24], "03ha1~2", IDS[0][:9])}
        assert found == {
            "03ha1": IDS[2],
            "03HA1": IDS[2],
            IDS[1][:24]: IDS[1],
            "03ha1~2": IDS[0],
            IDS[0][:9]: IDS[0],
        }
        log.bookmarks.set("03ha1", IDS[0])
        assert log.turn("03ha1").id == IDS[0]


def test_a_beginning_of_several_ids_says_of_which() -> None:
    """Three of them are named; nothing is recorded."""
    with TurnLog.open("memory://") as log:
        for own_id in IDS:
            log.add_turn("x", id=own_id)
        with pytest.raises(AmbiguousTurnError) as raised:
            log.add_turn("y", continues="03ha~1")
        assert (raised.value.headish, raised.value.candidates) == ("03ha~1", tuple(IDS))
        assert str(raised.value) == (f"'03ha' is the beginning of several turn ids ({', '.join(IDS)}): give more of it")
        log.add_turn("x", id="03ha2" + "0" * 20)
        with pytest.raises(AmbiguousTurnError, match=r", …\): give more of it"):
            log.turn("03ha")


@pytest.mark.parametrize("headish", ["03h", "03ha%", "03hb", "_3ha", "03ha000000000000000000001", "03hé"])
def test_what_begins_no_id_of_a_turn_is_no_turn(headish: str) -> None:
    """Less than four characters, others than an id has, or the beginning of an event that is no turn."""
    with TurnLog.open("memory://") as log:
        log.add_turn("x", id=IDS[0])
        log.add_event("x.note", id="03hb" + "0" * 21)
        with pytest.raises(UnknownTurnError) as raised:
            log.turn(headish)
        assert not isinstance(raised.value, AmbiguousTurnError)


def test_ids_are_shortened_as_far_as_all_turns_of_the_log_allow() -> None:
    """All to one length, and to no less than was asked for."""
    with TurnLog.open("memory://") as log:
        for own_id in IDS:
            log.add_turn("x", id=own_id)
        with log.store.read() as transaction:
            assert short_ids(transaction, IDS[2:]) == {IDS[2]: "03ha1"}
            assert short_ids(transaction, IDS[2:], characters_min=8) == {IDS[2]: "03ha1000"}
            assert short_ids(transaction, IDS) == {own_id: own_id[:9] for own_id in IDS}
            assert short_ids(transaction, []) == {}


def test_a_turn_that_continues_what_is_counted_is_found_again_under_its_id() -> None:
    """Also when the bookmark has moved meanwhile, and other ids begin as it was named."""
    with TurnLog.open("memory://") as log:
        root = log.add_turn("a", id=IDS[2], bookmark="main")
        log.add_turn("b", continues="main")
        first = log.add_turn("c", continues="main~1", id=new_id())
        log.add_turn("d", continues="main")
        assert log.add_turn("c", continues="main~1", id=first.id) == first
        second = log.add_turn("e", continues="03ha1", id=new_id(), bookmark=False)
        assert log.add_turn("e", continues="03ha1", id=second.id, bookmark=False) == second
        assert second.continues == (root.id,)
        with pytest.raises(IdConflictError, match="continues"):
            log.add_turn("c", continues="main~2", id=first.id)
