"""What the importer of another package says is to be recorded, checked: no fault of its can damage a log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from turnlog.digest import payload_hash
from turnlog.errors import ContentError, MetaError, PluginError
from turnlog.events import format_of
from turnlog.interop.importing import Added, Place, Source, Step, TranscriptReport, Work
from turnlog.model.blocks import decode_content
from turnlog.record import EventDraft, TurnDraft, check_own_topic
from turnlog.store import NewPayload, ReadTransaction

Blamed = Callable[[], AbstractContextManager[None]]
"""Raises whatever comes out of another package as a `PluginError`."""


class CheckedSource(Source[Any, Any]):
    """A file as the importer of another package has read it.

    All that is recorded of it is a turn with the content that its draft says, or an event of a topic that begins with
    the format's name, each under an id of its own.
    """

    def __init__(self, source: object, format: str, who: str, blamed: Blamed) -> None:
        """Take it.

        Args:
            source: what the importer returned.
            format: the format's name.
            who: what the importer is called in errors.
            blamed: raises what it raises as an error of its package.

        Raises:
            PluginError: it is no source.
        """
        self._format = format
        self._who = who
        self._blamed = blamed
        self._source: Source[Any, Any] = self._of_kind(source, Source, "read")
        with blamed():
            self.lines = int(self._source.lines)
            self.text_bytes = int(self._source.text_bytes)

    def look_up(self, transaction: ReadTransaction) -> Any:
        """Ask it what the log has of the file."""
        with self._blamed():
            return self._source.look_up(transaction)

    def prepare(self, place: Place, known: Any) -> Work[Any]:
        """Ask it what is to be recorded. Its steps are checked one by one, as they are taken."""
        with self._blamed():
            work = self._of_kind(self._source.prepare(place, known), Work, "prepare")
            return Work(steps=self._checked(iter(work.steps)), details=work)

    def report(self, known: Any, works: Sequence[Work[Any]], added: Added) -> TranscriptReport:
        """Ask it for its report."""
        with self._blamed():
            found = self._source.report(known, [work.details for work in works], added)
            return self._of_kind(found, TranscriptReport, "report")

    def _checked(self, steps: Iterator[Step]) -> Iterator[Step]:
        seen: set[str] = set()
        while True:
            with self._blamed():
                step = next(steps, None)
                if step is None:
                    return
                self._check(step)
            id = step.draft.id or ""
            if id in seen:
                raise self._wrong(f"two things to record have the id {id!r}: make ids of all that tells them apart")
            seen.add(id)
            yield step

    def _check(self, step: Step) -> None:
        self._of_kind(step, Step, "a step of prepare")
        self._of_kind(step.payload, NewPayload, "the payload of a step: give what `place` returned")
        draft = step.draft
        if draft.id is None:
            raise self._wrong("something to record has no id: the same file would come in twice")
        if isinstance(draft, EventDraft):
            try:
                check_own_topic(draft.topic)
            except MetaError as error:
                raise self._wrong(str(error)) from error
            if format_of(draft.topic) != self._format:
                raise self._wrong(f"an event has the topic {draft.topic!r}, and must have one of {self._format}.…")
            return
        self._of_kind(draft, TurnDraft, "the draft of a step")
        if payload_hash(draft.payload) != step.payload.content_hash:
            raise self._wrong(f"the payload of turn {draft.id!r} is not that of its draft")
        if draft.meta.type != "document":
            try:
                decode_content(draft.payload)
            except ContentError as error:
                raise self._wrong(f"turn {draft.id!r}: {error}") from error

    def _of_kind(self, value: Any, kind: type[Any], what: str) -> Any:
        if not isinstance(value, kind):
            raise self._wrong(f"{what} is {type(value).__name__}, and must be {kind.__name__}")
        return value

    def _wrong(self, what: str) -> PluginError:
        return PluginError(f"{self._who} cannot be used: {what}")
