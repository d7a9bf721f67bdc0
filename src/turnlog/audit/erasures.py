"""Whether what was erased was erased on somebody's word, a `gpt.erasure` event that cites it, and whether that is gone.

The word is one of this log. What is of another log may have been erased on that log's word, before it came here; and
what another log has erased may be here.
"""

from __future__ import annotations

from turnlog.audit.known import Known
from turnlog.audit.report import Findings
from turnlog.audit.targets import cited_targets
from turnlog.audit.unerased import is_there
from turnlog.errors import CorruptionError
from turnlog.events import ERASURE, Arrival, Recorded
from turnlog.store import ReadTransaction, ScratchTransaction


class Erasures:
    """Keeps in mind which events are erased, and which of the others an erasure names, in the scratch database."""

    def __init__(self, scratch: ScratchTransaction, known: Known, findings: Findings) -> None:
        """Take the scratch database to keep them in, and what is known of the log so far."""
        self._scratch = scratch
        self._known = known
        self._findings = findings
        scratch.run(
            "CREATE TABLE verified_erased (event_id TEXT PRIMARY KEY, global_position BIGINT NOT NULL,"
            " is_guest INTEGER NOT NULL, is_named INTEGER NOT NULL)"
        )
        scratch.run("CREATE TABLE verified_there (global_position BIGINT PRIMARY KEY)")

    def note(self, recorded: Recorded, *, erased: bool, cites: bool) -> None:
        """Take in an event, and whether it is erased. An erasure counts if all that it cites is what it says."""
        header = recorded.header
        is_guest = recorded.arrival == Arrival.GUEST
        if erased:
            self._findings.erased += 1
            self._scratch.run(
                "INSERT INTO verified_erased VALUES (?, ?, ?, 0) ON CONFLICT DO NOTHING",
                (header.id, recorded.global_position, int(is_guest)),
            )
        if header.topic == ERASURE and cites:
            for event_id in cited_targets(recorded):
                self._scratch.run(
                    "UPDATE verified_erased SET is_named = 1 WHERE event_id = ? AND is_guest >= ?",
                    (event_id, int(is_guest)),
                )
                target = self._known.event(event_id)
                if not is_guest and target is not None:
                    self._scratch.run(
                        "INSERT INTO verified_there SELECT ?"
                        " WHERE NOT EXISTS (SELECT 1 FROM verified_erased WHERE event_id = ?) ON CONFLICT DO NOTHING",
                        (target.global_position, event_id),
                    )

    def report(self, transaction: ReadTransaction) -> None:
        """Note the erased events that no erasure names as damage, and what one names and is there.

        What was there when it was read may have been erased since, so it is looked at again.
        """
        for event_id, at in self._scratch.each(
            "SELECT event_id, global_position FROM verified_erased WHERE is_named = 0 ORDER BY global_position"
        ):
            self._findings.at(at, event_id)
            self._findings.add("its private part and payload are gone, and no gpt.erasure event names it")
        for (at,) in self._scratch.each("SELECT global_position FROM verified_there ORDER BY global_position"):
            try:
                target = transaction.at_global(at)
            except CorruptionError:
                continue  # which was found where it is read
            if target is not None and is_there(target):
                self._findings.at(at, target.header.id)
                self._findings.add(
                    "a gpt.erasure event names it, and its content is here: `turnlog erase --finish` takes it away"
                )
        self._findings.at(None)
