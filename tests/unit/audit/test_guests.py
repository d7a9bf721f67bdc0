"""What another log says of events of this one takes nothing away here."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from turnlog import TurnLog
from turnlog.audit.anchors import read_anchors
from turnlog.audit.notes import Signer
from turnlog.audit.places import Folder
from turnlog.feeds.sinks import JSONLines
from turnlog.model import SummaryMeta
from turnlog.providers import get
from turnlog.record.compaction import SummaryDraft, plan_summary, summary_content
from turnlog.sources import Sources

SIGNER = Signer.generate("example.com/log")


@pytest.fixture
def log(file_log: TurnLog) -> TurnLog:
    """Give a log with a thread that somebody else has too."""
    file_log.add_turn("The contract says 100.", bookmark="deal", subject="contract")
    file_log.add_turn("Agreed, 100 it is.", role="assistant", continues="deal")
    return file_log


def answered(log: TurnLog, act: Callable[[TurnLog], object]) -> None:
    """Let somebody else take in an export of the log, do something, and send one back, which is taken in."""
    sent, back = io.BytesIO(), io.BytesIO()
    log.export(sent)
    sent.seek(0)
    with TurnLog.open("memory://") as theirs:
        theirs.add_turn("of their own")
        theirs.import_turnlog(sent)
        act(theirs)
        theirs.add_turn("Please read this.", continues=theirs.turn("deal").id, bookmark="reply")
        theirs.export(back)
    back.seek(0)
    assert log.import_turnlog(back).not_erased == ()


def erase(theirs: TurnLog) -> None:
    """Erase a turn."""
    assert theirs.erase(turn="deal~1", reason="theirs").turns


@pytest.fixture
def erased(log: TurnLog) -> TurnLog:
    """Give the log after somebody else has erased a turn of it in theirs."""
    assert len(log.feeds.search("contract")) == 1
    answered(log, erase)
    return log


def test_what_others_erase_is_found_here(erased: TurnLog) -> None:
    """By the index of words as it was, and as it is made anew."""
    assert [each.turn for each in erased.feeds.search("contract")] == [erased.turn("deal~1").id]
    erased.feeds.rebuild("search")
    assert [each.turn for each in erased.feeds.search("contract")] == [erased.turn("deal~1").id]
    assert erased.verify().clean


def test_what_others_erase_stays_in_folders(log: TurnLog, tmp_path: Path) -> None:
    """A feed's lines have it as before."""
    feed = log.feeds.feed(JSONLines(tmp_path / "lines"))
    feed.run()
    answered(log, erase)
    feed.run()
    assert any(b"The contract says 100." in file.read_bytes() for file in (tmp_path / "lines").glob("*.jsonl"))


def test_what_others_erase_may_be_asked_with(log: TurnLog) -> None:
    """A request whose window was read before their erasure came is recorded."""
    request = get("anthropic").prepare_request(log.context("deal"), model="model-1")
    answered(log, erase)
    assert log.calls.record(log.turn("deal").id, request)


def test_others_word_is_none_for_what_is_gone_here(erased: TurnLog, tmp_path: Path, poke: Callable[..., None]) -> None:
    """Who takes content away by hand has not erased it; also where a checkpoint was signed behind their erasure."""
    erased.audit.checkpoint(SIGNER, to=[Folder(tmp_path / "signed")])
    turn = erased.turn("deal~1").id
    poke(f"UPDATE stored_events SET private = NULL, payload_placement = 5, payload = NULL WHERE event_id = '{turn}'")
    report = erased.verify(checkpoints=read_anchors([tmp_path / "signed"], [SIGNER.verifier]))
    assert "its private part and payload are gone, and no gpt.erasure event names it" in [
        damage.what for damage in report.damage if damage.event_id == turn
    ]


def test_who_wrote_a_summary_is_no_word_of_others(log: TurnLog) -> None:
    """An erasure here takes no other turn of this log along because they say that it is the text of a summary."""
    other = log.add_turn("of something else", bookmark="other").id
    asked = log.turn("deal~1").id

    def sum_up(theirs: TurnLog) -> None:
        draft = SummaryDraft(
            payload=summary_content("All of it."),
            meta=SummaryMeta(first=asked, last=asked, kind="model", turns=1, turn=other),
            head=asked,
            seen=[],
            keys=frozenset(),
            erasure=0,
        )
        theirs.store.write(lambda transaction: plan_summary(transaction, draft, Sources()))

    answered(log, sum_up)
    report = log.erase(turn=asked, reason="asked")
    assert (report.turns, len(report.summaries)) == ((asked,), 1)
    assert log.text(other) == "of something else"
