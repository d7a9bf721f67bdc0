"""Whether what was erased was erased on somebody's word: a `gpt.erasure` event that cites it.

It is one of this log. What is of another log may have been erased on that log's word, before it came here.
"""

from __future__ import annotations

from turnlog.audit.report import Findings
from turnlog.events import ERASURE, TARGET, Arrival, Recorded
from turnlog.store import ScratchTransaction


class Erasures:
    """Keeps in mind which erased events no `gpt.erasure` event was found for, in the scratch database."""

    def __init__(self, scratch: ScratchTransaction, findings: Findings) -> None:
        """Take the scratch database to keep them in."""
        self._scratch = scratch
        self._findings = findings
        scratch.run(
            "CREATE TABLE verified_erased"
            " (event_id TEXT PRIMARY KEY, global_position BIGINT NOT NULL, is_guest INTEGER NOT NULL)"
        )

    def note(self, recorded: Recorded, *, erased: bool, cites: bool) -> None:
        """Take in an event, and whether it is erased. An erasure counts if all that it cites is what it says."""
        header = recorded.header
        is_guest = recorded.arrival == Arrival.GUEST
        if erased:
            self._findings.erased += 1
            self._scratch.run(
                "INSERT INTO verified_erased VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (header.id, recorded.global_position, int(is_guest)),
            )
        if header.topic == ERASURE and cites:
            for citation in header.citations:
                if citation.relation == TARGET:
                    self._scratch.run(
                        "DELETE FROM verified_erased WHERE event_id = ? AND is_guest >= ?", (citation.id, int(is_guest))
                    )

    def report(self) -> None:
        """Note the erased events that no erasure names as damage."""
        for event_id, at in self._scratch.each(
            "SELECT event_id, global_position FROM verified_erased ORDER BY global_position"
        ):
            self._findings.at(at, event_id)
            self._findings.add("its private part and payload are gone, and no gpt.erasure event names it")
        self._findings.at(None)
