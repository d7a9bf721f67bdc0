"""Records of `logging`, under the name `turnlog`: what matters to who runs a program, and nothing of what was said."""

import logging
import subprocess
import sys

import pytest
from tests.agent.running import run
from tests.agent.scripted import Scripted, call, say

from turnlog import TurnLog
from turnlog.errors import ProviderError, StoreCutError
from turnlog.feeds import LiveDelta, Runner, SQLiteTarget, projection
from turnlog.feeds.live import DELTAS_MAX
from turnlog.model import Delta
from turnlog.providers import Connection
from turnlog.store.pages import check_seen

SAID = "Zebulon's secret"
PASSES = ProviderError(f"Slow down, {SAID}.", provider="scripted", retryable=True, status=429, retry_after_s=0.0)


def told(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[tuple[str, str, str]]:
    """Return the records: logger, level and text."""
    found = [record for record in caplog.records if record.name.startswith("turnlog") and record.levelno >= level]
    return [(record.name, record.levelname, record.getMessage()) for record in found]


def test_a_retry_is_a_warning_without_content(log: TurnLog, caplog: pytest.LogCaptureFixture) -> None:
    """With the id of the call, and the status; not with what was asked or what the provider said."""
    caplog.set_level(logging.DEBUG, logger="turnlog")
    result = run(log, Scripted([PASSES], say(SAID)), SAID, bookmark=SAID, connection=Connection(retries_max=1))
    assert told(caplog) == [
        (
            "turnlog.runs",
            "WARNING",
            f"call {result.calls[0]} failed (status 429): trying again in 0.0 s, after 1 tries",
        )
    ]
    assert {record.levelname for record in caplog.records if record.name == "turnlog.runs"} == {"DEBUG", "WARNING"}
    assert SAID not in caplog.text


def test_a_failing_tool_is_told_by_its_name(log: TurnLog, caplog: pytest.LogCaptureFixture) -> None:
    """Each further try is a warning; what the tool was given and what it said are in no record."""
    caplog.set_level(logging.DEBUG, logger="turnlog")

    def look(what: str) -> str:
        raise ValueError(what)

    settings = {"on_tool_error": "retry", "tool_retries_max": 1, "tool_retry_wait_s": 0.0}
    run(log, Scripted(call(("look", {"what": SAID})), say("Well.")), tools=look, **settings)
    assert told(caplog) == [
        ("turnlog.runs", "WARNING", "tool look failed: trying again in 0.0 s, after 1 tries"),
        ("turnlog.runs", "INFO", "tool look failed"),
    ]
    assert SAID not in caplog.text


def test_a_bookmark_that_was_left_is_a_warning_without_its_name(log: TurnLog, caplog: pytest.LogCaptureFixture) -> None:
    """The turn that the branch goes on at is named."""

    def move() -> str:
        log.bookmarks.set(SAID, log.add_turn("Other.").id)
        return "moved"

    result = run(log, Scripted(call(("move", {})), say("Well.")), bookmark=SAID, tools=move)
    [(name, level, text)] = told(caplog, logging.WARNING)
    assert (name, level) == ("turnlog.runs", "WARNING")
    assert text.startswith("somebody else moved the bookmark: ")
    assert any(turn.id in text for turn in result.turns)
    assert SAID not in caplog.text


def test_a_paused_projection_is_a_warning(log: TurnLog, caplog: pytest.LogCaptureFixture) -> None:
    """With the event that it cannot fold."""

    @projection("counted", version=1, schema=["CREATE TABLE counted (id TEXT)"], tables=["counted"])
    def counted(*_: object) -> None:
        raise ValueError(SAID)

    log.add_turn("x")
    Runner(log.store, SQLiteTarget(":memory:"), [counted]).run()
    assert told(caplog) == [
        ("turnlog.feeds", "WARNING", f"projection counted is paused at event {log.id}: it cannot be folded")
    ]


def test_a_lost_follower_is_an_error(log: TurnLog, caplog: pytest.LogCaptureFixture) -> None:
    """What it had read is not there any more."""
    turn = log.add_turn("x")
    with log.store.read() as transaction, pytest.raises(StoreCutError):
        check_seen(transaction, 9, turn.id)
    assert told(caplog) == [
        (
            "turnlog.store",
            "ERROR",
            f"who follows the log has read event {turn.id} at 9, which is not there any more",
        )
    ]


def test_building_a_projection_anew_is_told(file_log: TurnLog, caplog: pytest.LogCaptureFixture) -> None:
    """By its name."""
    caplog.set_level(logging.INFO, logger="turnlog")
    file_log.rebuild_projections(["bookmark heads"])
    assert told(caplog) == [("turnlog.store", "INFO", "building bookmark heads anew from the log")]


def test_a_follower_that_falls_behind_is_a_warning_until_it_takes_a_piece(
    log: TurnLog, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, however many pieces of replies are dropped; with the call, and not with what was said."""
    caplog.set_level(logging.DEBUG, logger="turnlog")
    inbox = log.feeds.streams.join(lambda: None)
    piece = LiveDelta(call="c1", turn="t1", after=0, number=1, delta=Delta(content=SAID))
    for _ in range(DELTAS_MAX):
        inbox.put(piece)
    assert told(caplog) == []
    inbox.put(piece)
    inbox.put(piece)
    line = "a follower is slow: of 10000 pieces of replies that wait for it the oldest are dropped, now of call c1"
    assert told(caplog) == [("turnlog.feeds", "WARNING", line)]
    taken = inbox.take(0)
    assert taken is not None
    assert taken.missed == 2
    inbox.put(piece)
    inbox.put(piece)
    assert told(caplog) == [("turnlog.feeds", "WARNING", line)] * 2


def test_an_append_makes_no_record(log: TurnLog, caplog: pytest.LogCaptureFixture) -> None:
    """It would cost each one of them."""
    caplog.set_level(logging.DEBUG, logger="turnlog")
    log.add_turn("x", bookmark="main")
    log.context("main")
    assert told(caplog, logging.DEBUG) == []


def test_nothing_is_printed_where_logging_is_not_set_up() -> None:
    """What stands on standard error is the program's to say; opening a log does not load logging."""
    program = """
import sys, turnlog
from turnlog.store.telling import Teller
turnlog.TurnLog.open("memory://").close()
assert "logging" not in sys.modules
Teller("turnlog.store").error("not to be seen")
import logging
logging.getLogger("turnlog.runs").warning("nor this")
assert len(logging.getLogger("turnlog").handlers) == 1
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("", "")
