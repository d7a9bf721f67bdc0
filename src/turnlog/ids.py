"""SCRU128 ids: 25 characters of base 36, stored lower case, accepted in either case.

An id is identity and nothing else: callers may choose it, so it is neither time nor order. Time is in the header, order
is the global position. Format: the SCRU128 specification, "SCRU128: Sortable, Clock and Random
number-based Unique identifier".
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import SupportsInt

from turnlog.errors import MetaError, StoreError

_FORM = re.compile(r"[0-9A-Za-z]{25}", re.ASCII)
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_PAIRS = [first + second for first in _DIGITS for second in _DIGITS]
"""All pairs of digits. An id is written from parts of four digits: to divide long numbers takes time."""
_PAIR, _FOUR, _TWELVE = 36**2, 36**4, 36**12
_ROLLBACK_MS = 10_000
"""How far the clock may go back before ids no longer ascend. Up to there they go on from the last one."""

ID_CHARACTERS = 25
_TIME_CHARACTERS = 9
"""Ids of one millisecond begin with at most two texts of so many characters."""
ID_LAST = "f5lxx1zz5pnorynqglhzmsp33"
"""The last id of all, in stored form: 2**128 - 1."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS_MAX = (1 << 48) - 1


class _Random:
    """Random bits, with nothing on the way: what runs between two appends runs cold, so that every call is dear."""

    @staticmethod
    def getrandbits(bits: int) -> int:
        """Return a random number of 32 bits or fewer."""
        return int.from_bytes(os.urandom(4)) >> (32 - bits)


def _first(ms: int, rollback_ms: int) -> SupportsInt:
    """Make the generator, which most processes that only read never need, and give its first number."""
    from scru128 import Scru128Generator  # noqa: PLC0415 - see above

    global _generate  # noqa: PLW0603 - once in a process
    _generate = Scru128Generator(rng=_Random()).generate_or_reset_core
    return _generate(ms, rollback_ms)


_generate: Callable[[int, int], SupportsInt] = _first
_generating = Lock()


def _after_fork() -> None:
    """Begin anew: another thread of the process that was forked may hold the lock."""
    global _generate, _generating
    _generate, _generating = _first, Lock()


os.register_at_fork(after_in_child=_after_fork)


def now_ms() -> int:
    """Return the time, in milliseconds since 1970 UTC.

    Raises:
        StoreError: the clock of this machine shows one before, or one beyond April 2262.
    """
    try:
        ms = time.time_ns() // 1_000_000
    except OverflowError as error:
        raise StoreError("the clock of this machine shows a time after 2262: set it; nothing was recorded") from error
    if ms < 1:
        raise StoreError("the clock of this machine shows a time before 1970: set it; nothing was recorded")
    return ms


def new_id() -> str:
    """Return a fresh id. Safe to call from many threads, and in a forked process.

    Raises:
        StoreError: as `now_ms` does.
    """
    with _generating:
        value = _generate(now_ms(), _ROLLBACK_MS)
    high, low = divmod(int(value), _TWELVE)
    high, c = divmod(high, _FOUR)
    high, b = divmod(high, _FOUR)
    first, a = divmod(high, _FOUR)
    low, f = divmod(low, _FOUR)
    d, e = divmod(low, _FOUR)
    return (
        f"{_DIGITS[first]}{_PAIRS[a // _PAIR]}{_PAIRS[a % _PAIR]}{_PAIRS[b // _PAIR]}{_PAIRS[b % _PAIR]}"
        f"{_PAIRS[c // _PAIR]}{_PAIRS[c % _PAIR]}{_PAIRS[d // _PAIR]}{_PAIRS[d % _PAIR]}"
        f"{_PAIRS[e // _PAIR]}{_PAIRS[e % _PAIR]}{_PAIRS[f // _PAIR]}{_PAIRS[f % _PAIR]}"
    )


def no_name(given: object, field: str | None = None) -> MetaError:
    """Return the error for what was given in place of an id or a name, as a turn itself.

    Args:
        given: what that is.
        field: the name of the argument, if there are others.
    """
    expected = f"expected an id or a name, got {type(given).__name__}: of a turn give turn.id"
    return MetaError(expected if field is None else f"{field}: {expected}", field=field or "id")


def is_id(text: str) -> bool:
    """Tell whether a text has the form of an id, in either case.

    Raises:
        MetaError: it is no text.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - what callers give comes here first
        raise no_name(text)
    return _FORM.fullmatch(text) is not None and text.lower() <= ID_LAST


def parse_id(text: str, *, field: str = "id") -> str:
    """Return an id in its stored, lower-case form.

    Raises:
        MetaError: the text is not a SCRU128 id.
    """
    if not is_id(text):
        why = (
            f"above {ID_LAST!r}, the last one" if _FORM.fullmatch(text) else f"{ID_CHARACTERS} characters, 0-9 and a-z"
        )
        raise MetaError(f"{field}: {text!r} is not a SCRU128 id ({why})", field=field)
    return text.lower()


def time_of_id(own_id: str) -> datetime:
    """Return the time that an id says that it was made at, in UTC. Whoever chose the id chose the time."""
    from scru128 import Scru128Id  # noqa: PLC0415 - few ask an id

    return _EPOCH + timedelta(milliseconds=Scru128Id.from_str(own_id).timestamp)


def derived_id(time: datetime | None, *names: str | Iterable[bytes | memoryview]) -> str:
    """Return the id that stands for something that has a name elsewhere: the same names give the same id.

    The first 48 bits are `time` (0 when there is none), the other 80 are the first bits of the SHA-256 of the names,
    each preceded by its length. A long name may be given in pieces of UTF-8 that can be iterated over again.
    """
    from scru128 import Scru128Id  # noqa: PLC0415 - only imports need it

    digest = hashlib.sha256()
    for name in names:
        pieces = (name.encode(),) if isinstance(name, str) else name
        digest.update(sum(map(len, pieces)).to_bytes(8))
        for piece in pieces:
            digest.update(piece)
    tail = int.from_bytes(digest.digest()[:10])
    return str(Scru128Id(_ms_of(time) << 80 | tail))


def starts_at(time: datetime) -> list[str]:
    """Return what ids that were derived for a time begin with, one or two texts; those of some milliseconds do."""
    from scru128 import Scru128Id  # noqa: PLC0415 - as above

    first = _ms_of(time) << 80
    both = (str(Scru128Id(each))[:_TIME_CHARACTERS] for each in (first, first | (1 << 80) - 1))
    return list(dict.fromkeys(both))


def _ms_of(time: datetime | None) -> int:
    return min(max((time - _EPOCH) // timedelta(milliseconds=1), 0), _MS_MAX) if time else 0
