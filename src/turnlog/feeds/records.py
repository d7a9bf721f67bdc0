"""Events as values for JSON, as `show` and `tail` print them and sinks are given them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from msgspec import Raw

from turnlog.errors import ContentError, CorruptionError
from turnlog.events import TURN, Recorded, metadata, turn_meta
from turnlog.events.times import said_at, time_of
from turnlog.model.depth import JSON_DEPTH_MAX, is_deeper
from turnlog.model.json_text import minify
from turnlog.projections.belonging import ThreadsInOrder, turns_of
from turnlog.store import ReadTransaction


class EventRecords:
    """Makes records of events: quickly of those that are asked for in the order of the log."""

    def __init__(self) -> None:
        """Begin."""
        self._threads = ThreadsInOrder()

    def of(self, transaction: ReadTransaction, recorded: Recorded) -> dict[str, Any]:
        """Return an event without its payload.

        Raises:
            CorruptionError: its metadata cannot be read.
        """
        header = recorded.header
        return {
            "global_position": recorded.global_position,
            "id": header.id,
            "topic": header.topic,
            "time": time_of(header.time).isoformat(),
            "said_at": _said_at(recorded),
            "stream": header.stream,
            "position": header.position,
            "threads": self._threads_of(transaction, recorded),
            "meta": metadata(recorded),
            "citations": header.citations,
            "hash": recorded.hash,
            "size": recorded.size,
            "digest": recorded.digest,
            "format": header.format,
            "arrival": recorded.arrival.name.lower(),
            "erased": recorded.erased,
            "sealed": None if recorded.sealed is None else recorded.sealed.key,
            "closed": recorded.unreadable and not recorded.erased,
        }

    def _threads_of(self, transaction: ReadTransaction, recorded: Recorded) -> list[str] | None:
        """Return the ids of the threads that an event is of, sorted; None where one that it cites is damaged."""
        try:
            turns = [turn.header for turn in turns_of(transaction, recorded)]
        except CorruptionError:
            return None
        return sorted({thread for turn in turns for thread in self._threads.of(transaction, turn)})


def _said_at(recorded: Recorded) -> str | None:
    """Return when a turn was said; None of another event, and where its private part would have to be read for that."""
    if recorded.header.topic != TURN or recorded.unreadable:
        return None
    return said_at(turn_meta(recorded), recorded.header.time).isoformat()


def content_record(recorded: Recorded, payload: bytes) -> object:
    """Return a payload as JSON: as it stands where it is JSON, else what it is."""
    meta = metadata(recorded)
    if recorded.header.topic == TURN and meta.get("type") == "document":
        return {
            "type": "document",
            "name": meta.get("document_name"),
            "media_type": meta.get("content_type"),
            "path": meta.get("original_path"),
            "size": len(payload),
        }
    with suppress(ContentError):
        if not is_deeper(payload, JSON_DEPTH_MAX):
            return Raw(minify(payload, field="payload"))
    # No JSON, or none that all who read it can.
    return {"type": "bytes", "size": len(payload)}
