"""Which turns the messages of the `llm` tool are: its tables have a message once, whichever conversations have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from turnlog.interop.transcripts.llm_database import Stored, Value, name


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A message in a conversation, or the reply of a call that said nothing.

    Attributes:
        hash: the message; None for a reply without one.
        parent: index of the node that it continues; None for the first of a thread.
        again: what tells it from the first node of its message: the conversation, and for a further one in it the call.
        call: the first call of the conversation that it was part of.
        is_reply: that call made it.
        is_last: it is the last that the call made.
    """

    hash: str | None
    parent: int | None
    again: Sequence[tuple[str, str]] = ()
    call: Stored | None = None
    is_reply: bool = False
    is_last: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Threads:
    """The nodes of all conversations.

    Attributes:
        nodes: each behind the one that it continues.
        ends: index of the last node of each call, by its id, and of each thread.
    """

    nodes: Sequence[Node]
    ends: Mapping[Value, int]


def threads_of(parents: Mapping[str, str | None], calls: Sequence[Stored], threads: Sequence[Stored]) -> Threads:
    """Return the nodes of messages and calls.

    A conversation is a thread of its own, and one that was forked from another is of the same. A call makes turns of
    its own, also where another one made the same. The first call that has a message says which conversation has the
    message's first node, so that this stays as it is when others come later.

    Args:
        parents: the parent of each message, parents first; none is its own ancestor.
        calls: rows of `turns`, in their order.
        threads: rows of `threads`.
    """
    planner = _Planner(parents=parents, origins={each.row.get("id"): each.row.get("forked_from") for each in threads})
    for call in calls:
        planner.call(call)
    planner.rest()
    for thread in threads:
        tip = name(thread.row.get("tip_message_hash"))
        end = planner.after.get((planner.conversation(thread.row.get("id")), tip), planner.first.get(tip))
        if end is not None:
            planner.ends.setdefault(thread.row.get("id"), end)
    return Threads(nodes=planner.nodes, ends=planner.ends)


@dataclass(kw_only=True, slots=True)
class _Planner:
    parents: Mapping[str, str | None]
    origins: Mapping[Value, Value]
    nodes: list[Node] = field(default_factory=list[Node])
    ends: dict[Value, int] = field(default_factory=dict[Value, int])
    first: dict[str, int] = field(default_factory=dict[str, int])
    """The first node of each message."""
    here: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """The last node of each message in a conversation."""
    after: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """What follows a message in a conversation continues this: its node, or the empty reply to it."""

    def conversation(self, thread: Value) -> str:
        """Return the conversation that a thread is of: the one that it was forked from."""
        seen: set[Value] = set()
        while (origin := self.origins.get(thread)) is not None and origin in self.origins and origin not in seen:
            seen.add(origin)
            thread = origin
        return name(thread)

    def call(self, call: Stored) -> None:
        """Take a call: what it was asked with and was not taken yet, and what it made."""
        tip, asked = (name(call.row.get(column)) for column in ("tip_message_hash", "parent_message_hash"))
        conversation = self.conversation(call.row.get("thread_id"))
        told: list[str] = []
        for hash in self._ancestry(asked, ""):
            if (conversation, hash) in self.after:
                break
            told.append(hash)
        for hash in reversed(told):
            before = self.parents[hash]
            parent = None if before is None else self.after[conversation, before]
            self._add(hash, conversation, Node(hash=hash, parent=parent, call=call))
        last = self.here.get((conversation, asked))
        for hash in reversed(list(self._ancestry(tip, asked))):
            node = Node(hash=hash, parent=last, call=call, is_reply=True, is_last=hash == tip)
            last = self._add(hash, conversation, node)
        if tip in ("", asked) and (asked in self.parents or not asked):
            last = self._append(Node(hash=None, parent=last, call=call, is_reply=True, is_last=True))
            self.after[conversation, asked] = last
        if last is not None:
            self.ends[call.row.get("id")] = last

    def rest(self) -> None:
        """Take messages that no call has."""
        for hash, parent in self.parents.items():
            if hash not in self.first:
                before = None if parent is None else self.first[parent]
                self.first[hash] = self._append(Node(hash=hash, parent=before))

    def _add(self, hash: str, conversation: str, node: Node) -> int:
        again: list[tuple[str, str]] = []
        if hash in self.first:
            again.append(("thread_id", conversation))
        if (conversation, hash) in self.here and node.call is not None:
            again.append(("turn_id", name(node.call.row.get("id"))))
        index = self._append(replace(node, again=again) if again else node)
        self.first.setdefault(hash, index)
        self.here[conversation, hash] = self.after[conversation, hash] = index
        return index

    def _append(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _ancestry(self, start: str, end: str) -> Iterator[str]:
        """Give a message and its ancestors up to one that is not given."""
        hash: str | None = start
        while hash and hash != end and hash in self.parents:
            yield hash
            hash = self.parents[hash]
