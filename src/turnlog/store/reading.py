"""Reading a log on and on, for one follower."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from time import sleep
from typing import TypeVar

from turnlog.errors import StoreBusyError, StoreLostError
from turnlog.events import Recorded
from turnlog.store.interface import Store
from turnlog.store.pages import Page, Seen, check_dense, read_page

T = TypeVar("T")

AGAIN_MAX = 4
"""How often something is read again after the connection to a server was lost."""

SETTLED_TRIES_MAX = 250
SETTLED_WAIT_S = 0.02
"""How often, and after how long, the log is read again where events that are committed have no place in it yet."""

NOT_SETTLED = (
    "events are recorded that have no place in the log yet: another writer neither goes on nor ends, or this is a "
    "standby or a read-only session that cannot give them one; read the log on the primary, and try again"
)


def settled_end(store: Store) -> int:
    """Return the global position of the end of a log, once it has all that is committed when this begins.

    Raises:
        StoreBusyError: it does not get its place within 5 seconds, as on a standby.
    """
    waiting: set[str] | None = None
    for tried in range(SETTLED_TRIES_MAX):
        sleep(SETTLED_WAIT_S if tried else 0)
        with store.read() as transaction:
            unsettled = set(transaction.unsettled())
            waiting = unsettled if waiting is None else waiting & unsettled
            if not waiting:
                return transaction.log_end()
    raise StoreBusyError(NOT_SETTLED)


def read_again(read: Callable[[], T]) -> T:
    """Read something that is read from the beginning where the connection to a server was lost on the way.

    Raises:
        StoreLostError: that happened again and again, or there is no server.
    """
    for _ in range(AGAIN_MAX):
        with suppress(StoreLostError):
            return read()
    return read()


class Reader:
    """Reads a log on and on, for one follower: a page at a time, and at its end what is kept for all.

    Attributes:
        position: the global position up to which it has read.
        has_caught_up: whether it has once come to where the log then ended.
    """

    def __init__(
        self,
        store: Store,
        after: int,
        topics: Sequence[str] = (),
        *,
        after_id: str | None = None,
        is_dense: bool = True,
    ) -> None:
        """Begin.

        Args:
            store: the store.
            after: a global position.
            topics: only events of these; empty for all.
            after_id: the id of the event at that position, which has to be there.
            is_dense: do not pass over an event that is missing.
        """
        self.position = after
        self.has_caught_up = False
        self._store = store
        self._topics = tuple(topics)
        self._is_dense = is_dense and not topics
        self._seen = None if after_id is None else Seen(after, after_id)
        """The event at `position`, wanted or not. It has to be there still when this reads on."""

    def read(self) -> list[Recorded] | None:
        """Read on, and return what came, of the topics that are wanted; None where there is no more now.

        Raises:
            StoreCutError: the log was cut or rolled back since it was read.
            CorruptionError: a stored event is damaged, or one is missing.
        """
        return self._accept(read_again(self._page))

    def read_kept(self) -> list[Recorded] | None:
        """Return what came, if that is in memory; None if it is not. It waits for nothing."""
        page = self._store.tail.kept(self.position, self._seen) if self.has_caught_up else None
        return None if page is None else self._accept(page)

    def _page(self) -> Page:
        page = self._store.tail.page(self.position, self._seen) if self.has_caught_up else None
        if page is None:
            with self._store.read() as transaction:
                page = read_page(transaction, self.position, topics=self._topics, seen=self._seen)
            if self._is_dense:
                check_dense(page.events, self.position)
        return page

    def _accept(self, page: Page) -> list[Recorded] | None:
        events, position, self._seen = page
        if position == self.position:
            self.has_caught_up = True
            return None
        self.position = position
        return [event for event in events if event.header.topic in self._topics] if self._topics else events
