"""SCRU128 ids."""

import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
import scru128

from turnlog import ids
from turnlog.errors import MetaError, StoreError
from turnlog.ids import ID_LAST, derived_id, is_id, new_id, parse_id, starts_at, time_of_id
from turnlog.sources import Sources

KNOWN = "036z951mhjikzik2gsl81gr7l"


def test_fresh_ids_have_the_stored_form_and_differ() -> None:
    """A fresh id has 25 lower-case characters, is an id, and no two are the same."""
    fresh = {new_id() for _ in range(1000)}
    assert len(fresh) == 1000
    assert all(len(i) == 25 and i == i.lower() and is_id(i) for i in fresh)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x" * 25, "above 'f5lxx1zz5pnorynqglhzmsp33', the last one"),
        ("x" * 24, "25 characters, 0-9 and a-z"),
        ("-" * 25, "25 characters, 0-9 and a-z"),
    ],
)
def test_what_is_no_id_is_told_why(text: str, why: str) -> None:
    """Also where it has the form of one."""
    with pytest.raises(MetaError) as raised:
        parse_id(text, field="expected_head")
    assert str(raised.value) == f"expected_head: {text!r} is not a SCRU128 id ({why})"


def test_fresh_ids_ascend() -> None:
    """Ids of one process are in the order in which they were made."""
    fresh = [new_id() for _ in range(1000)]
    assert fresh == sorted(fresh)


def test_ids_are_fresh_whenever_they_are_asked_for() -> None:
    """The time in an id is that of the call, in quick succession and after a pause."""
    for pause_s in (0, 0, 0.001, 0.03, 0, 0, 0.03, 0, 0.003, 0):
        time.sleep(pause_s)
        before = datetime.now(UTC)
        made = time_of_id(new_id())
        assert before - timedelta(milliseconds=2) <= made <= datetime.now(UTC)


def test_ids_that_are_asked_for_now_and_then_differ_early() -> None:
    """Twelve characters tell ids of different milliseconds apart, so that people can be shown short ones."""
    made: set[str] = set()
    for _ in range(20):
        made.add(new_id()[:12])
        time.sleep(0.002)
    assert len(made) == 20


def test_ids_of_many_threads_differ() -> None:
    """Threads that ask at the same time are given ids of their own, each thread's in their order."""
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: [new_id() for _ in range(500)], range(8)))
    assert all(each == sorted(each) for each in made)
    assert len({one for each in made for one in each}) == 8 * 500


def test_forked_process_makes_ids_whoever_was_making_one() -> None:
    """A fork in the middle of another thread's id leaves the child with ids of its own."""
    read, write = os.pipe()
    with ids._generating:  # pyright: ignore[reportPrivateUsage]
        child = os.fork()
        if child == 0:
            os.write(write, "".join(new_id() for _ in range(100)).encode())
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as made:
        text = made.read()
    os.waitpid(child, 0)
    theirs = {text[at : at + 25] for at in range(0, len(text), 25)}
    assert len(theirs) == 100
    assert theirs.isdisjoint(new_id() for _ in range(100))


@pytest.mark.parametrize("text", [KNOWN, KNOWN.upper(), "0" * 25, "f5lxx1zz5pnorynqglhzmsp33"])
def test_ids_of_either_case_are_ids(text: str) -> None:
    """The smallest id, the largest and one between are ids, in either case."""
    assert is_id(text)
    assert parse_id(text) == text.lower()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "main",
        KNOWN[:-1],
        KNOWN + "0",
        KNOWN[:-1] + "-",
        KNOWN[:-1] + " ",
        KNOWN[:-1] + "\u212a",
        "\u0663" * 25,
        "f5lxx1zz5pnorynqglhzmsp34",
        "z" * 25,
    ],
)
def test_other_texts_are_not_ids(text: str) -> None:
    """Another length, another character, or a number above 128 bits is no id; the error names the field."""
    assert not is_id(text)
    with pytest.raises(MetaError, match=r"^call: ") as caught:
        parse_id(text, field="call")
    assert caught.value.field == "call"


def test_derived_id_depends_on_every_name_and_the_time() -> None:
    """The same names give the same id; another name, another split or another time gives another."""
    moment = datetime(2025, 1, 1, tzinfo=UTC)
    first = derived_id(moment, "a", "b")
    assert derived_id(moment, "a", "b") == first
    others = {
        derived_id(moment, "a", "c"),
        derived_id(moment, "ab"),
        derived_id(moment, "b", "a"),
        derived_id(moment, "a", "b", ""),
        derived_id(None, "a", "b"),
        derived_id(datetime(2025, 1, 2, tzinfo=UTC), "a", "b"),
    }
    assert len(others | {first}) == 7


def test_a_clock_before_1970_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """No id and no event is of such a time."""
    monkeypatch.setattr(time, "time_ns", lambda: -86_400_000_000_000)
    for source in (new_id, Sources().time_ms):
        with pytest.raises(StoreError, match="shows a time before 1970: set it; nothing was recorded"):
            source()


def test_a_clock_that_python_cannot_tell_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """As beyond April 2262, when there are more nanoseconds since 1970 than it counts."""

    def overflow() -> int:
        raise OverflowError

    monkeypatch.setattr(time, "time_ns", overflow)
    for source in (new_id, Sources().time_ms):
        with pytest.raises(StoreError, match="shows a time after 2262: set it; nothing was recorded"):
            source()


def test_derived_id_is_the_documented_one() -> None:
    """48 bits of time, then 80 bits of the SHA-256 of the length-prefixed names; time before 1970 counts as 0."""

    tail = hashlib.sha256(b"\x00" * 7 + b"\x01a").digest()[:10]
    number = int.from_bytes(b"\x00" * 6 + tail)
    digits = ""
    for _ in range(25):
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    assert derived_id(None, "a") == digits
    assert derived_id(datetime(1960, 1, 1, tzinfo=UTC), "a") == digits


def test_time_of_a_derived_id_is_its_first_48_bits() -> None:
    """Ids that are derived for later times are greater; time beyond what 48 bits hold counts as the last."""
    earlier, later = datetime(2025, 3, 4, tzinfo=UTC), datetime(2025, 3, 5, tzinfo=UTC)
    assert derived_id(earlier, "x") < derived_id(later, "x") < derived_id(datetime.max.replace(tzinfo=UTC), "x")
    for ms in (0, 1, 1_741_064_767_089):
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
        assert int(derived_id(time, "x"), 36) >> 80 == ms


def test_last_id_is_the_largest_number() -> None:
    """Of 128 bits."""
    assert str(scru128.Scru128Id((1 << 128) - 1)).lower() == ID_LAST
    assert int(ID_LAST, 36) == (1 << 128) - 1


@pytest.mark.parametrize("ms", [0, 1, 1_770_738_110_049, 1_770_738_110_050, 9_000_000_000_000])
def test_derived_ids_begin_as_their_time_says(ms: int) -> None:
    """With one of two texts at most, whatever they stand for."""
    said = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    starts = starts_at(said)
    assert len(starts) in (1, 2)
    assert all(derived_id(said, str(name)).startswith(tuple(starts)) for name in range(100))
