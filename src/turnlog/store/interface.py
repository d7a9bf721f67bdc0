"""The contract between turnlog and a store engine.

One log, in one total order. An engine MUST keep these promises:

- A write is one transaction: events, payloads, leaf hashes and synchronous projections become visible together or
  not at all. On return from `Store.write` it is durable: a crash of the process, the system or the power does not
  lose it.
- The global position of events counts from 1 without gaps, in the order in which readers see them, and is never
  given twice.
- A read never gives an event whose header does not have the leaf hash, or whose private part does not have the hash,
  that was stored: it raises `CorruptionError`. Who erases asks for transactions that read past damaged private parts:
  see `past_damage`.
- No statement of an append fails inside its transaction. That an id or a position is taken is an outcome.
- Writes are serial, across threads and processes. A plan sees everything that was written before it.
- A read transaction is one snapshot. In a persistent store readers do not wait for writers, nor writers for readers. In
  memory they take turns: a thread that holds a read transaction there must not write, nor open another one.
- Bytes come back as they were given.

An engine MAY run the plans of concurrent callers in one transaction (group commit), and MAY run a plan more than once:
plans must have no effect but on their transaction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from turnlog.events import Recorded, Seal
from turnlog.store.locks import Locks
from turnlog.store.pages import Tail
from turnlog.store.transactions import ReadTransaction, ScratchTransaction, SideTables, SyncProjection, WriteTransaction
from turnlog.store.values import ErasedFiles, NewPayload, Payload, StoreStats
from turnlog.store.waiting import Watch

if TYPE_CHECKING:
    from eventsourcing.persistence import InfrastructureFactory

T = TypeVar("T")


class Store(ABC):
    """One open log. Safe to use from many threads; other processes may have the same log open."""

    url: str
    file: Path | None = None
    """The file that the log is, wherever the process goes: what is made beside it is beside this. None for no file."""
    locks: Locks
    """Locks of those who work on the log, by name: a run has one for the turn that it is at work on."""
    factory: InfrastructureFactory[Any]
    """eventsourcing's way to the same log: recorders for its projections and followers."""
    tail: Tail
    """The last events, for all who follow the log."""
    on_busy: Callable[[float], None] | None = None
    """Called now and then while another process is waited for, with the seconds; also of files beside the store."""

    def unsettled(self) -> int:
        """Return how many recorded events no reader is shown yet, because who reads here cannot settle them.

        See `ReadTransaction.unsettled`.
        """
        return 0

    @abstractmethod
    def place(self, payload: Payload | None, seal: Seal | None = None, *, is_written: bool = True) -> NewPayload:
        """Make a payload ready to be appended: hash and compress it, and write it to disk where it becomes a file.

        With a seal it is sealed before it is written anywhere. What may be sealed later is not to be written: it is
        when it is appended.

        A file that is not appended goes when the returned value does.
        """

    @abstractmethod
    def write(self, plan: Callable[[WriteTransaction], T]) -> T:
        """Run a plan in a write transaction and return what it returned, once that is durable.

        So is what it found recorded then: a plan that appends nothing waits for it as one that appends.

        What the plan raises is raised here, and nothing of what it appended is kept.

        Raises:
            StoreReadOnlyError: the store cannot be written.
            StoreFullError: there is no space left.
            StoreBusyError: another process held the write lock for too long.
            StoreClosedError: the store was closed, or was opened before this process was forked.
            SchemaError: its tables are not what they should be, or a newer turnlog has changed them.
            UncertainError: the disk failed at the end: it may be recorded or not.
        """

    def confirm(self) -> None:  # noqa: B027 - there is nothing to wait for where what is seen is durable
        """Return once all that is recorded is as durable as what `write` appends: for who says that it is there.

        Raises:
            As `write` does.
        """

    @abstractmethod
    def gain(self, side: SideTables) -> None:
        """Make side tables, durably. Does nothing where they are.

        Raises:
            As `write` does.
        """

    @abstractmethod
    def erase(
        self,
        plan: Callable[[WriteTransaction], Sequence[Recorded]],
        *,
        foreseen: Sequence[Recorded] = (),
        until: int = 0,
    ) -> ErasedFiles:
        """Take private parts and payloads of events away, for good, in one transaction, and then out of the files.

        Others can append meanwhile. Projections are as if the events had never had a private part.

        Args:
            plan: appends the `gpt.erasure` events that say so, and returns the events to erase. It is run once.
            foreseen: the events up to the global position `until` that it will return: much of the work is done before
                the write lock is taken.
            until: a global position.

        On return the erasure is durable. What is left in files then, because somebody reads an older state or the
        disk is full, is told, and `scrub` goes on with it, as opening the store does.

        A damaged private part, or one that is missing, is no hindrance: neither to erase the event, nor others.

        Raises:
            ConflictError: an event has nothing to erase.
            As `write` does, and what the plan raises; then nothing was erased.
        """

    @abstractmethod
    def scrub(self) -> str | None:
        """Remove what is left of erased events in the files of the store.

        Returns:
            Why something is still left, one line; None if nothing is.
        """

    @abstractmethod
    def read(self) -> AbstractContextManager[ReadTransaction]:
        """Open one snapshot. It is released on leaving the context."""

    @abstractmethod
    def wait(self, after: int, timeout_s: float | None = None) -> int:
        """Wait until the log has events above a global position, and return the position of its end.

        Args:
            after: a global position.
            timeout_s: how long to wait at most, in seconds; None for as long as it takes.

        Any number of threads may wait: one waker serves them all. Appends of this process wake them at once, those of
        others within a few hundredths of a second.

        Raises:
            StoreClosedError: the store is closed, or was closed meanwhile.
        """

    @abstractmethod
    def watch(self, after: int, tell: Callable[[], None], *, backwards: bool = False) -> Watch:
        """Have a function called once, when the log goes beyond a global position; see `Waker.watch`."""

    @abstractmethod
    def unwatch(self, watch: Watch) -> None:
        """Forget a watch. Nothing happens if it was told, or is forgotten already."""

    @abstractmethod
    def check(self) -> Iterator[tuple[int | None, str]]:
        """Iterate over damage that only the engine can see: global position (None: not of one event) and what it is."""

    @abstractmethod
    def check_schema(self) -> list[str]:
        """Return what is not as it should be of tables, indexes, triggers, version and settings, one line each."""

    @abstractmethod
    def unread(self) -> list[str]:
        """Return the names of tables in the store that are none of turnlog's."""

    @abstractmethod
    def stats(self) -> StoreStats:
        """Measure the store."""

    @abstractmethod
    def scratch(self) -> AbstractContextManager[ScratchTransaction]:
        """Open an empty database with the tables of the projections, to rebuild them in. It is gone on leaving."""

    @abstractmethod
    def rebuild(self, names: Sequence[str] = (), *, progress: Callable[[int, int], None] | None = None) -> list[str]:
        """Build projections anew from the log, in place, and return their names. Others can append meanwhile.

        Args:
            names: which; empty for all.
            progress: called with events done and events in all.

        Raises:
            SchemaError: there is no projection of a name.
        """

    @property
    @abstractmethod
    def projections(self) -> Sequence[SyncProjection]:
        """The synchronous projections, in the order in which they fold."""

    @abstractmethod
    def check_open(self) -> None:
        """Raise where the store cannot be used any more. It waits for nothing.

        Raises:
            StoreClosedError: the store was closed, or was opened before this process was forked.
        """

    @abstractmethod
    def close(self) -> None:
        """Release everything, once what other threads are at has come to an end.

        Closing twice is allowed; other calls raise `StoreClosedError`.
        """
