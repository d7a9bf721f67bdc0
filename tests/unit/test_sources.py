"""Where ids, the time and randomness come from."""

import time
from itertools import count

from turnlog import TurnLog
from turnlog.events import flaw
from turnlog.ids import is_id
from turnlog.projections import synchronous
from turnlog.sources import Sources
from turnlog.store import open_store


def test_sources_are_fresh_by_default() -> None:
    """Ids and salts never come twice, and the time is now."""
    sources = Sources()
    assert len({sources.new_id() for _ in range(1000)}) == 1000
    assert len({sources.salt() for _ in range(1000)}) == 1000
    assert all(is_id(sources.new_id()) for _ in range(10))
    assert {len(sources.salt()) for _ in range(10)} == {16}
    before = time.time_ns() // 1_000_000
    assert before <= sources.time_ms() <= time.time_ns() // 1_000_000


def test_genesis_is_of_the_sources() -> None:
    """The first event of a log gets an id and the time, and needs no salt."""
    sources = Sources(new_id=lambda: "0" * 25, time_ms=lambda: 7)
    genesis = sources.genesis()
    assert (genesis.header.id, genesis.header.time, genesis.private) == ("0" * 25, 7, None)
    assert flaw(genesis) is None


def _log() -> list[tuple[bytes, bytes | None]]:
    numbers, times, salts = count(1), count(1000), count(1)
    sources = Sources(
        new_id=lambda: f"{next(numbers):025}",
        time_ms=lambda: next(times),
        salt=lambda: next(salts).to_bytes(16),
    )
    with TurnLog(open_store("memory://", projections=synchronous()), sources=sources) as log:
        log.add_turn("a", bookmark="main")
        log.add_turn("b", continues="main", inherited={"x": 1})
        log.bookmarks.set("other", "main")
        log.add_event("acme.review", b"payload", private={"by": "Ada"})
        log.pointers.set("nano", "p", "m")
        return [(recorded.state, recorded.private_state) for recorded in log.events()]


def test_same_sources_give_the_same_log() -> None:
    """Nothing in an event comes from elsewhere: with the same sources the same calls record the same bytes."""
    first, second = _log(), _log()
    assert first == second
    assert len(first) == 6
    states = b"".join(state for state, _ in first)
    assert all(b"%025d" % number in states for number in range(1, 7))
