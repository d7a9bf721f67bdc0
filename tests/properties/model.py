"""A log as plain dictionaries and lists: what `TurnLog` is compared with. Slow, small, and written from DESIGN.md."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ModelTurn:
    """One turn: what was asked for, with parents and bookmark resolved."""

    id: str
    text: str
    role: str
    parents: list[str]
    head: str | None
    inherited: dict[str, Any]
    failed: bool
    threads: frozenset[str]


class ConflictError(Exception):
    """Say that the model refuses what the log must refuse with `HeadConflictError`."""


@dataclass
class Model:
    """All turns by id, in the order in which they were recorded; and each bookmark with the turn it is at."""

    turns: dict[str, ModelTurn] = field(default_factory=dict)
    bookmarks: dict[str, str] = field(default_factory=dict)
    """In the order in which they were last moved, set or renamed."""
    topics: dict[str, int] = field(default_factory=dict)
    """The number of events of each topic."""

    # Recording

    @property
    def events(self) -> int:
        """The number of events."""
        return sum(self.topics.values())

    def record(self, topic: str) -> None:
        """Count an event. The first one of a log has its genesis before it."""
        if not self.topics:
            self.topics["log.genesis"] = 1
        self.topics[topic] = self.topics.get(topic, 0) + 1

    def resolve(self, headish: str) -> str:
        """Return the id of the turn that a headish means."""
        return self.bookmarks[headish] if headish in self.bookmarks else headish.lower()

    def moved_bookmark(self, continues: Sequence[str], bookmark: Any, respond: bool) -> str | None:
        """Return the bookmark that a turn will move."""
        if bookmark is not None:
            return bookmark or None
        if respond:
            continues = [self.last_turn()]
        if not continues:
            return None
        parent = self.resolve(continues[0])
        there = [name for name, head in self.bookmarks.items() if head == parent]
        if continues[0] in there:
            return continues[0]
        own = self.turns[parent].head
        if own in there:
            return own
        return there[-1] if there else None

    def last_turn(self) -> str:
        """Return the id of the turn that was recorded last."""
        return next(reversed(self.turns))

    def add(
        self,
        turn_id: str,
        text: str,
        *,
        role: str = "user",
        continues: Sequence[str] = (),
        respond: bool = False,
        bookmark: Any = None,
        expected_head: Any = None,
        inherited: dict[str, Any] | None = None,
        failed: bool = False,
    ) -> ModelTurn:
        """Record a turn, or raise `ConflictError` and change nothing."""
        head = self.moved_bookmark(continues, bookmark, respond)
        if expected_head is not None and (head is None or self.bookmarks.get(head) != (expected_head or None)):
            raise ConflictError
        parents = [self.last_turn()] if respond else list(dict.fromkeys(self.resolve(h) for h in continues))
        turn = ModelTurn(
            id=turn_id,
            text=text,
            role=role,
            parents=parents,
            head=head,
            inherited=inherited or {},
            failed=failed,
            threads=frozenset().union(*(self.turns[parent].threads for parent in parents)) or frozenset([turn_id]),
        )
        self.turns[turn_id] = turn
        self.record("gpt.turn")
        if head is not None:
            self.point(head, turn_id)
        return turn

    def point(self, name: str, turn_id: str) -> None:
        """Put a bookmark on a turn, as the one that was moved last."""
        self.bookmarks.pop(name, None)
        self.bookmarks[name] = turn_id

    # Reading

    def ancestry(self, turn_id: str) -> list[str]:
        """Return the ids of a turn's ancestry and the turn: depth first, post-order, each once."""
        found: dict[str, None] = {}

        def visit(at: str) -> None:
            if at not in found:
                for parent in self.turns[at].parents:
                    visit(parent)
                found[at] = None

        visit(turn_id)
        return list(found)

    def children(self, turn_id: str) -> list[str]:
        """Return the ids of the turns that continue a turn."""
        return [turn.id for turn in self.turns.values() if turn_id in turn.parents]

    def window(self, turn_id: str, *, include_failed: bool = False) -> list[tuple[str, str, str]]:
        """Return id, role and text of each message of a window."""
        turns = [self.turns[at] for at in self.ancestry(turn_id)]
        return [(turn.id, turn.role, turn.text) for turn in turns if include_failed or not turn.failed]

    def options(self, turn_id: str) -> dict[str, Any]:
        """Return the merged options of a window."""
        merged: Any = {}
        for at in self.ancestry(turn_id):
            merged = _patched(merged, self.turns[at].inherited)
        return merged

    def threads(self) -> list[dict[str, Any]]:
        """Return every thread, the one with the latest activity last."""
        order = list(self.turns)
        found: list[dict[str, Any]] = []
        for root in (turn.id for turn in self.turns.values() if not turn.parents):
            turns = [turn.id for turn in self.turns.values() if root in turn.threads]
            found.append(
                {
                    "id": root,
                    "turns": turns,
                    "heads": [at for at in turns if not self.children(at)],
                    "bookmarks": sorted(name for name, at in self.bookmarks.items() if at in turns),
                }
            )
        return sorted(found, key=lambda thread: order.index(thread["turns"][-1]))

    def thread(self, turn_id: str) -> list[str]:
        """Return the ids of all turns of the threads that a turn belongs to."""
        return [turn.id for turn in self.turns.values() if turn.threads & self.turns[turn_id].threads]


def _patched(target: Any, patch: Any) -> Any:
    """Merge as RFC 7396, section 2, says."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _patched(result.get(name), value)
    return result
