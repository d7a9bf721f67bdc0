"""A turn store: the snapshots of a log's conversations, to list and to load.

Nothing is stored for it. Each model call is a snapshot of what a model was asked with (`pre_inference`), each reply one
of what it answered (`post_inference`), each turn of tool results one of these (`post_tools`); and snapshots that were
recorded (`save`, `record_turn`, `record_run`) have the phase that they were given, or none.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from turnlog.errors import ErasedError, MetaError, NotFoundError
from turnlog.events import CALL, Recorded, turn_meta
from turnlog.events import TURN as LOG_TURN
from turnlog.interop.geppetto.reading import turn_of, turn_of_window
from turnlog.interop.geppetto.recording import load_turn, record_turn, recorded_snapshot, snapshot_meta
from turnlog.interop.geppetto_model.planning import TURN
from turnlog.interop.geppetto_model.types import Turn
from turnlog.log import TurnLog
from turnlog.model import Origin, ToolResult, changed_window, decode_content

_PHASES = ("pre_inference", "post_inference", "post_tools", "final")


class Snapshot(Struct, frozen=True, kw_only=True):
    """A snapshot in a store.

    Attributes:
        id: what to load it by: the id of its event in the log.
        phase: when it was taken: `pre_inference`, `post_inference`, `post_tools`, what it was saved with, or nothing.
        thread: the thread of the log that it is of; empty for a saved one without blocks.
        session: the run that it is of, where that is known; else empty.
        conversation: what it was saved with; else empty.
        head: the turn of the log that it ends with; empty for one without blocks.
        time_ms: when it was recorded, in milliseconds since 1970 UTC.
    """

    id: str
    phase: str
    thread: str
    session: str
    conversation: str
    head: str
    time_ms: int


class TurnStore:
    """The snapshots of a log. It can be thrown away and made anew."""

    def __init__(self, log: TurnLog) -> None:
        """Take a log."""
        self._log = log

    def save(self, turn: Turn, *, conversation: str = "", phase: str = "final") -> str:
        """Record a snapshot, and return the id to load it by. On return it is on disk.

        Raises what `record_turn` raises.
        """
        return record_turn(self._log, turn, conversation=conversation, phase=phase).id

    def load(self, snapshot: str) -> Turn:
        """Return a snapshot.

        Raises:
            NotFoundError: there is none of this id.
            ErasedError: part of it was erased, or is sealed and its key is not here.
            CorruptionError: it cannot be read.
        """
        recorded = recorded_snapshot(self._log, snapshot)
        if recorded.header.topic == TURN:
            return load_turn(self._log, snapshot)
        if recorded.header.topic == LOG_TURN:
            return turn_of(self._log, snapshot)[0]
        if recorded.header.topic != CALL:
            raise NotFoundError(f"event {snapshot!r} is no snapshot of a turn: it is of {recorded.header.topic}")
        call = self._log.calls.get(snapshot)
        window = self._log.context(call.meta.turn)
        if call.window_change is not None:
            window = changed_window(window, call.window_change)
        return turn_of_window(window, id=call.id, run_id=self._log.ancestry(call.meta.turn)[0].id)

    def list(
        self,
        *,
        thread: str | None = None,
        session: str | None = None,
        conversation: str | None = None,
        phase: str | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
        limit: int | None = None,
    ) -> list[Snapshot]:
        """Return snapshots, the newest first. What was erased is left out.

        Args:
            thread: those of the thread of a turn, by id or bookmark.
            session: those of a run, by its id.
            conversation: those that were saved for a conversation.
            phase: those of a phase: `pre_inference`, `post_inference`, `post_tools`, `final`, `""` for those without
                one, or another one that something was saved with.
            since_ms: those recorded at this time or later, in milliseconds since 1970 UTC.
            until_ms: those recorded before this time.
            limit: no more than so many, at least 0; None for all.

        Raises:
            UnknownTurnError: there is no such turn.
            MetaError: an argument is of another type or below 0, or nothing in the log was saved with the phase.
        """
        texts = {"thread": thread, "session": session, "conversation": conversation, "phase": phase}
        for name, text in texts.items():
            _check(name, text, str, "text")
        for name, number in {"since_ms": since_ms, "until_ms": until_ms, "limit": limit}.items():
            _check(name, number, int, "an integer")
            if number is not None and number < 0:
                raise MetaError(f"{name}: {number} is less than 0", field=name)
        wanted: list[Snapshot] = []
        root = None if thread is None else self._log.ancestry(thread)[0].id
        for found in self._all(root):
            matches = (
                root in (None, found.thread)
                and session in (None, found.session)
                and conversation in (None, found.conversation)
                and phase in (None, found.phase)
                and (since_ms is None or found.time_ms >= since_ms)
                and (until_ms is None or found.time_ms < until_ms)
            )
            if matches:
                wanted.append(found)
        if not wanted and phase is not None:
            self._check_phase(phase)
        wanted.reverse()
        return wanted if limit is None else wanted[:limit]

    def _check_phase(self, phase: str) -> None:
        """Check that something could have a phase: else it is misspelled most likely.

        Raises:
            MetaError: it is no usual one, and nothing was saved with it.
        """
        events = self._log.events(topics=TURN)
        saved = {snapshot_meta(recorded).phase for recorded in events if not recorded.unreadable} - {""}
        known = dict.fromkeys((*_PHASES, *sorted(saved)))
        if phase and phase not in known:
            raise MetaError(f"phase: nothing was saved as {phase!r} (one of {', '.join(known)})", field="phase")

    def _all(self, root: str | None) -> Iterator[Snapshot]:
        """Give all snapshots in the order in which they were recorded."""
        threads: dict[str, str] = {}
        sessions: dict[str, str] = {}
        topics = [LOG_TURN, CALL, TURN]
        events = self._log.events(topics=topics) if root is None else self._log.events(topics=topics, thread=root)
        for recorded in events:
            header = recorded.header
            if header.topic == LOG_TURN:
                parent = header.cited("parent")
                threads[header.id] = header.id if parent is None else threads.get(parent, parent)
                if parent is None:
                    sessions[header.id] = _session(recorded)
            head = header.id if header.topic == LOG_TURN else header.cited("turn") or ""
            if recorded.unreadable or (phase := self._phase(recorded)) is None:
                continue
            meta = snapshot_meta(recorded) if header.topic == TURN else None
            thread = threads.get(head, "")
            yield Snapshot(
                id=header.id,
                phase=phase,
                thread=thread,
                session=sessions.get(thread, "") if meta is None else meta.session,
                conversation="" if meta is None else meta.conversation,
                head=head,
                time_ms=header.time,
            )

    def _phase(self, recorded: Recorded) -> str | None:
        """Return the phase of what is a snapshot, None for another turn."""
        if recorded.header.topic == TURN:
            return snapshot_meta(recorded).phase
        if recorded.header.topic == CALL:
            return "pre_inference"
        meta = turn_meta(recorded)
        if meta.role == "assistant":
            return None if recorded.header.cited("call") is None else "post_inference"
        if meta.role != "user" or meta.type == "document" or _is_geppettos(recorded):
            return None
        try:
            content = decode_content(self._log.payload(recorded.header.id))
        except ErasedError:
            return None
        return "post_tools" if any(isinstance(block, ToolResult) for block in content) else None


def _check(name: str, value: object, kind: type, wanted: str) -> None:
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise MetaError(f"{name}: expected {wanted}, got {type(value).__name__}", field=name)


def _session(root: Recorded) -> str:
    """Return the run that a thread is of, by its root."""
    origin = None if root.unreadable else turn_meta(root).origin
    return origin.session if isinstance(origin, Origin) and isinstance(origin.session, str) else ""


def _is_geppettos(recorded: Recorded) -> bool:
    """Tell whether a turn was recorded as part of a snapshot, which is listed itself."""
    origin = turn_meta(recorded).origin
    return isinstance(origin, Origin) and origin.format == "geppetto"
