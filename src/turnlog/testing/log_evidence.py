"""What `TurnLog` promises about evidence: what is cited, what can be erased, the first event, events of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turnlog import TurnLog
from turnlog.errors import (
    HeadConflictError,
    IdConflictError,
    MetaError,
    NotFoundError,
    UnknownCallError,
    UnknownTurnError,
)
from turnlog.events import Arrival, metadata
from turnlog.ids import new_id
from turnlog.model import ReplyFacts
from turnlog.testing.harness import LogHarness, count, record_call


class LogEvidence(LogHarness):
    """Tests of citations, of where what stands, and of `TurnLog.add_event`."""

    # Citations

    def test_digest_of_a_turn_commits_to_its_call(self, log: TurnLog) -> None:
        """A turn cites the call that it came of with its digest, and the call the turn that it asked from."""
        asked = log.add_turn("x", bookmark="main")
        call = record_call(log, asked)
        turn = log.add_turn("y", role="assistant", continues="main", call=call.header.id)
        cited = [(citation.relation, citation.id, citation.digest) for citation in log.event(turn.id).header.citations]
        assert cited == [("parent", asked.id, asked.digest), ("call", call.header.id, call.digest)]
        [citation] = call.header.citations
        assert (citation.relation, citation.id, citation.digest) == ("turn", asked.id, asked.digest)

    def test_unknown_call_is_refused(self, log: TurnLog) -> None:
        """A turn cannot have come of a call that the log does not have, nor of an event that is no call."""
        turn = log.add_turn("x")
        for call in (new_id(), turn.id):
            with pytest.raises(UnknownCallError) as caught:
                log.add_turn("y", role="assistant", continues=turn.id, call=call)
            assert caught.value.call == call
        assert count(log) == 2

    # The log itself

    def test_first_event_is_the_genesis(self, log: TurnLog) -> None:
        """A log begins with its genesis, whose id is the log's, with the first thing that is recorded in it."""
        assert log.id is None
        turn = log.add_turn("x")
        genesis = log.event(log.id or "")
        assert (genesis.global_position, genesis.header.topic) == (1, "log.genesis")
        assert (genesis.header.citations, genesis.header.private) == ([], None)
        assert turn.global_position == 2
        log.add_turn("y")
        assert log.id == genesis.header.id
        assert [recorded.header.topic for recorded in log.events()] == ["log.genesis", "gpt.turn", "gpt.turn"]

    def test_refused_turn_does_not_begin_the_log(self, log: TurnLog) -> None:
        """A log in which nothing was recorded has no first event."""
        with pytest.raises(UnknownTurnError):
            log.add_turn("x", continues="nowhere")
        with pytest.raises(HeadConflictError):
            log.add_turn("x", bookmark="main", expected_head=new_id())
        assert (count(log), log.id) == (0, None)

    def test_what_is_recorded_here_is_the_logs_own(self, log: TurnLog) -> None:
        """Whatever is recorded through the log counts as its own, its first event too."""
        log.bookmarks.set("main", log.add_turn("x").id)
        assert {recorded.arrival for recorded in log.events()} == {Arrival.RECORDED}

    def test_names_and_texts_stand_where_they_can_be_erased(self, log: TurnLog, tmp_path: Path) -> None:
        """No name, path, option, error or text is in a header, and the same text twice has another commitment."""
        secret = "Ada Lovelace"
        file = tmp_path / f"{secret}.txt"
        file.write_text(secret)
        log.add_turn(secret, bookmark=secret, inherited={"who": secret}, reply=ReplyFacts(error=secret))
        log.add_document(file)
        log.bookmarks.set(secret, secret)
        log.bookmarks.rename(secret, f"{secret} II")
        first, second = log.add_turn(secret), log.add_turn(secret)
        assert first.hash == second.hash
        recorded = list(log.events())
        assert [found.header.topic for found in recorded if secret.encode() in found.state] == []
        assert all(found.hash is None or found.hash.encode() not in found.state for found in recorded)
        commitments = [found.header.private for found in recorded if found.header.private is not None]
        assert len(set(commitments)) == len(commitments) == len(recorded) - 1

    # Events of others

    def test_event_of_a_topic_of_ones_own_is_kept(self, log: TurnLog) -> None:
        """An event of another topic has its metadata, its payload, and what it cites with digests."""
        turn = log.add_turn("x")
        event = log.add_event(
            "acme.review",
            payload=b"\x00\xff",
            private={"by": "Ada"},
            public={"stars": 4},
            cites=[("subject", turn.id.upper())],
        )
        assert log.event(event.header.id) == event
        assert log.payload(event.header.id) == b"\x00\xff"
        assert (event.header.topic, metadata(event)) == ("acme.review", {"by": "Ada", "stars": 4})
        assert b"Ada" not in event.state
        [citation] = event.header.citations
        assert (citation.relation, citation.id, citation.digest) == ("subject", turn.id, turn.digest)
        assert log.threads()[0].turns == 1

    def test_same_event_under_its_id_is_returned(self, log: TurnLog) -> None:
        """Recording an event again under its id returns the stored one; another one under it is refused."""
        given: dict[str, Any] = {"payload": b"x", "private": {"a": 1}, "public": {"b": 2}, "id": new_id()}
        event = log.add_event("acme.review", **given)
        assert log.add_event("acme.review", **given) == event
        turn = log.add_turn("x")
        changes: list[dict[str, Any]] = [
            {"payload": b"y"},
            {"private": {}},
            {"public": {}},
            {"cites": [("subject", turn.id)]},
        ]
        for change in changes:
            with pytest.raises(IdConflictError):
                log.add_event("acme.review", **(given | change))
        with pytest.raises(IdConflictError):
            log.add_event("acme.other", **given)
        assert count(log) == 3

    def test_unknown_event_cannot_be_cited(self, log: TurnLog) -> None:
        """An event that cites what the log does not have is refused: nothing dangles."""
        with pytest.raises(NotFoundError):
            log.add_event("acme.review", cites=[("subject", new_id())])
        assert count(log) == 0

    @pytest.mark.parametrize("topic", ["gpt.turn", "log.genesis", "mcp.x", "claude-code.user", "review", "Acme.x", ""])
    def test_topic_of_turnlogs_own_is_refused(self, log: TurnLog, topic: str) -> None:
        """Topics that turnlog has, or may have, and those of another form cannot be recorded as one's own."""
        with pytest.raises(MetaError) as caught:
            log.add_event(topic)
        assert caught.value.field == "topic"
        assert count(log) == 0
