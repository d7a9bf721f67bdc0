"""Summaries in the log: what they cite, and which turn cites them."""

import pytest

from turnlog import TurnLog
from turnlog.errors import MetaError
from turnlog.events import SUMMARY, TURN, Citation, Recorded, cite
from turnlog.model import ContextWindow, SummaryMeta, Text, TurnMeta
from turnlog.record import EventDraft, plan_event
from turnlog.record.compaction import first_parent_runs, pending_summary, summary_content
from turnlog.sources import Sources
from turnlog.store import WriteTransaction


def grow(log: TurnLog, count: int, continues: str | None = None) -> list[str]:
    """Record turns one after the other, and return their ids."""
    ids: list[str] = []
    for number in range(count):
        ids.append(log.add_turn(str(number), continues=ids[-1] if ids else continues).id)
    return ids


def forge(log: TurnLog, first: str, last: str) -> str:
    """Record a summary of a run, whether it is one or not."""
    citations = [cite(log.event(first), "from"), cite(log.event(last), "to")]
    meta = SummaryMeta(first=first, last=last, kind="given", turns=1)
    return record(log, EventDraft(topic=SUMMARY, meta=meta), summary_content("Forged."), citations)


def record(log: TurnLog, draft: EventDraft, payload: bytes, citations: list[Citation]) -> str:
    """Record an event as it is given, and return its id."""

    def plan(transaction: WriteTransaction) -> Recorded:
        return plan_event(transaction, draft, transaction.placed(payload), Sources(), citations)

    return log.store.write(plan).header.id


def pending(log: TurnLog, turn: str) -> str | None:
    """Return the summary that a turn would cite that continues another one."""
    parent = log.event(turn)
    with log.store.read() as transaction:
        found = pending_summary(transaction, parent)
    return None if found is None else found.header.id


def cited(recorded: Recorded) -> list[tuple[str, str]]:
    return [(citation.relation, citation.id) for citation in recorded.header.citations]


def said(window: ContextWindow) -> list[str]:
    return [block.text for message in window.messages for block in message.content[-1:] if isinstance(block, Text)]


def test_summary_cites_the_ends_of_its_run(log: TurnLog) -> None:
    """With their digests, so that it commits to all that it stands for."""
    ids = grow(log, 12)
    report = log.compact(ids[-1], text="In short.", keep_last=4)
    assert report.summary is not None
    summary = log.event(report.summary)
    assert summary.header.citations == [
        Citation(relation="from", digest=log.turn(ids[1]).digest, id=ids[1]),
        Citation(relation="to", digest=log.turn(ids[7]).digest, id=ids[7]),
    ]
    assert log.payload(report.summary) == summary_content("In short.")


def test_only_the_next_turn_cites_the_summary(log: TurnLog) -> None:
    """Those behind it grow from it. Each fork has a turn of its own that does."""
    ids = grow(log, 12)
    summary = log.compact(ids[-1], text="In short.", keep_last=4).summary
    first = log.add_turn("next", continues=ids[-1])
    second = log.add_turn("and next", continues=first.id)
    fork = log.add_turn("fork", continues=ids[-2])
    assert [turn.meta.summary for turn in (first, fork)] == [summary, summary]
    assert cited(log.event(second.id)) == [("parent", first.id)]
    assert cited(log.event(first.id)) == [("parent", ids[-1]), ("summary", summary)]
    assert first.to_record()["meta"]["summary"] == summary


def test_same_turn_again_is_the_stored_one(log: TurnLog) -> None:
    """Whatever was summarized before or since."""
    ids = grow(log, 12)
    log.compact(ids[-1], text="One.", keep_last=4)
    turn = log.add_turn("next", continues=ids[-1], id="0" * 24 + "1")
    log.compact(ids[-1], text="Two.", keep_last=2, min_turns=1)
    assert log.add_turn("next", continues=ids[-1], id=turn.id) == turn


def test_last_summary_counts(log: TurnLog) -> None:
    """Where several were recorded since the turn."""
    ids = grow(log, 6)
    first = forge(log, ids[1], ids[2])
    last = forge(log, ids[1], ids[3])
    assert pending(log, ids[5]) == last
    assert pending(log, ids[2]) == first
    assert pending(log, ids[1]) is None
    assert log.add_turn("next", continues=ids[5]).meta.summary == last


@pytest.mark.parametrize("ends", [(3, 1), (1, 7), (6, 7)], ids=["backwards", "to another fork", "of another fork"])
def test_summary_of_what_is_no_run_of_the_path_is_not_cited(log: TurnLog, ends: tuple[int, int]) -> None:
    """Its turns are not on the path, or not in this order."""
    ids = grow(log, 6)
    ids += grow(log, 2, continues=ids[2])
    forge(log, ids[ends[0]], ids[ends[1]])
    assert pending(log, ids[5]) is None


def test_cited_summary_of_no_run_of_the_path_is_passed_over(log: TurnLog) -> None:
    """The window shows all turns, and says so when it is asked."""
    ids = grow(log, 4)
    other = grow(log, 2)
    forged = forge(log, other[0], other[1])

    citations = [cite(log.event(ids[3]), "parent"), cite(log.event(forged), "summary")]
    turn = record(log, EventDraft(topic=TURN, meta=TurnMeta(role="user")), b'[{"type":"text","text":"x"}]', citations)
    window = log.context(turn, explain=True)
    assert said(window) == ["0", "1", "2", "3", "x"]
    assert window.explanation is not None
    [left_out] = window.explanation.left_out
    assert (left_out.turn, left_out.reason) == (forged, "what the summary covers is not on the path of first parents")


def test_path_goes_through_forks(log: TurnLog) -> None:
    """Each stream has the last position that is on it."""
    ids = grow(log, 4)
    fork = grow(log, 2, continues=ids[1])
    merge = log.add_turn("merge", continues=[fork[1], ids[3]]).id
    heads = log.event(merge), log.event(ids[0])
    with log.store.read() as transaction:
        assert first_parent_runs(transaction, heads[0]) == {fork[0]: 2, ids[0]: 1}
        assert first_parent_runs(transaction, heads[1]) == {ids[0]: 0}


def test_verify_reads_what_summaries_say(log: TurnLog) -> None:
    """A payload that is no content is damage."""
    ids = grow(log, 3)
    meta = SummaryMeta(first=ids[0], last=ids[1], kind="given", turns=2)
    citations = [cite(log.event(ids[0]), "from"), cite(log.event(ids[1]), "to")]
    record(log, EventDraft(topic=SUMMARY, meta=meta), b"{}", citations)
    [damage] = log.verify().damage
    assert "its content is malformed" in damage.what


def test_verify_finds_a_summary_of_what_are_no_turns(log: TurnLog) -> None:
    """What it cites as its first and last turn is one."""
    [turn] = grow(log, 1)
    forge(log, turn, log.add_event("acme.x", b"1").header.id)
    [damage] = log.verify().damage
    assert "as its to, which is no gpt.turn event" in damage.what


def test_summary_is_no_topic_of_others(log: TurnLog) -> None:
    """Nobody records one by another way."""
    with pytest.raises(MetaError, match="one of turnlog's own"):
        log.add_event(SUMMARY, b"[]")
