"""What an event rests on: every citation, and its place in its stream."""

from __future__ import annotations

from collections.abc import Mapping

from turnlog.audit.known import Known
from turnlog.audit.report import Findings
from turnlog.digest import sri
from turnlog.errors import CorruptionError
from turnlog.events import (
    CALL,
    GENESIS,
    HOLD,
    PARENT,
    REGISTERS,
    REPLY,
    SHAPES,
    SUMMARY,
    TOOL_CALL,
    TOOL_END,
    TOOLS,
    TRUST,
    TURN,
    Arrival,
    Citation,
    Recorded,
    is_of_format,
)
from turnlog.store import ReadTransaction

_TOPICS: Mapping[str, tuple[str, ...]] = {
    PARENT: (TURN,),
    "turn": (TURN,),
    "call": (CALL,),
    "base": (CALL,),
    "reply": (REPLY,),
    "tools": (TOOLS,),
    "summary": (SUMMARY,),
    "tool_call": (TOOL_CALL,),
    "tool_end": (TOOL_END,),
    "from": (TURN,),
    "to": (TURN,),
}
"""What is cited as something, by topic. What is not here can be of any topic."""


class Citations:
    """Checks citations and places in streams against the events read before."""

    def __init__(self, known: Known, findings: Findings) -> None:
        """Take what is known of the log so far."""
        self._known = known
        self._findings = findings

    def check(self, transaction: ReadTransaction, recorded: Recorded) -> bool:
        """Check what an event cites, and where it stands. Return whether all that it cites is what it says."""
        sound = True
        header = recorded.header
        if self._known.event(header.id) is not None:
            self._findings.add("an event before it has the same id")
        for citation in header.citations:
            sound &= self._citation(recorded, citation)
        if header.topic == TURN:
            self._place(recorded)
            if sound and header.citations and header.citations[-1].relation != PARENT:
                self._reply(transaction, recorded)
        return sound

    def goes_on(self, recorded: Recorded) -> bool:
        """Tell whether a turn goes on where its stream ends: a short way to say so of most. False says nothing."""
        header = recorded.header
        citations = header.citations
        if len(citations) != 1 or header.topic != TURN:
            return False
        cited = citations[0]
        parent = self._known.event(cited.id)
        if parent is None:
            return False
        _, stream, position, leaf_hash, topic, _ = parent
        return (
            stream == header.stream
            and position == header.position - 1
            and topic == TURN
            and cited.relation == PARENT
            and sri(leaf_hash) == cited.digest
            and self._known.end(stream) == position
            and self._known.event(header.id) is None
        )

    def _citation(self, recorded: Recorded, citation: Citation) -> bool:
        self._findings.citations += 1
        cited = self._known.event(citation.id)
        if cited is None:
            self._findings.add(
                f"it cites {citation.id!r} as its {citation.relation}, which is not among the events before it"
            )
            return False
        if sri(cited.leaf_hash) != citation.digest:
            self._findings.add(
                f"it cites {citation.id!r} as its {citation.relation} with another digest than that event has"
            )
            return False
        topic = recorded.header.topic
        if topic == TRUST:
            wanted: tuple[str, ...] = REGISTERS
        elif topic == HOLD:
            wanted = (TURN, HOLD)
        elif topic in SHAPES or is_of_format(topic):
            wanted = _TOPICS.get(citation.relation, ())
        else:
            return True
        if wanted and cited.topic not in wanted:
            self._findings.add(
                f"it cites {citation.id!r} as its {citation.relation}, which is no {' or '.join(wanted)} event"
            )
            return False
        return True

    def _place(self, recorded: Recorded) -> None:
        """Check that a turn follows the last one of its stream, which is its first parent."""
        header = recorded.header
        if header.position == 0:
            return
        end = self._known.end(header.stream)
        if end is None:
            self._findings.add(f"nothing before it is in its stream {header.stream!r}, and its position is not 0")
        elif header.position <= end:
            self._findings.add(f"a turn before it is at position {header.position} of its stream {header.stream!r}")
        elif header.position > end + 1:
            self._findings.add(f"it does not follow in its stream {header.stream!r}, which ends at position {end}")
        first = next((citation for citation in header.citations if citation.relation == PARENT), None)
        parent = None if first is None else self._known.event(first.id)
        if parent is not None and (parent.stream, parent.position) != (header.stream, header.position - 1):
            self._findings.add("its first parent is not the turn before it in its stream")

    def _reply(self, transaction: ReadTransaction, recorded: Recorded) -> None:
        """Check that a turn that came of a reply names the call that the reply answers."""
        header = recorded.header
        reply = header.cited("reply")
        if reply is None:
            return
        try:
            call = self._known.rests_on(transaction, reply)
        except CorruptionError:
            return  # which was found where the reply is
        if call is not None and header.cited("call") != call:
            self._findings.add(f"it came of reply {reply!r}, and does not cite the call {call!r} that this answers")


def check_genesis(recorded: Recorded, findings: Findings) -> None:
    """Check that the first event is the beginning of this log, and no other is."""
    begins = recorded.header.topic == GENESIS and recorded.arrival != Arrival.GUEST
    if recorded.global_position == 1 and not begins:
        findings.add(f"the log does not begin with a {GENESIS} event of its own")
    elif recorded.global_position != 1 and begins:
        findings.add(f"a {GENESIS} event of this log stands within it")
