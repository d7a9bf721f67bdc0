"""Connections to PostgreSQL on which a projection need not wait for each thing that it writes."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Never, Self

import psycopg
from psycopg.sql import SQL, Composed

_WRITES = re.compile(rb"\s*(INSERT|UPDATE|DELETE|MERGE)\b(?!.*\bRETURNING\b)", re.IGNORECASE | re.DOTALL)
_ANSWERS = re.compile(rb"\s*(SELECT|WITH|VALUES|TABLE|INSERT|UPDATE|DELETE|MERGE)\b", re.IGNORECASE)


class NotAheadError(Exception):
    """What is to be done cannot be done ahead."""


class AheadConnection(psycopg.Connection[Any]):
    """A connection that can write ahead."""

    _sender: psycopg.Pipeline | None = None
    _is_refused = False

    @contextmanager
    def ahead(self) -> Generator[None]:
        """Write ahead in a transaction: what only writes is sent, and its end is not waited for.

        An error of it is raised later, by whatever comes then, or on leaving. Nothing in here can end the transaction
        or go back in it, so that it then fails as a whole.

        Raises:
            NotAheadError: something was tried that cannot be done ahead, whoever has swallowed the error.
        """
        self._is_refused = False
        with self.pipeline() as sender:
            self._sender = sender
            try:
                yield
            finally:
                self._sender = None
        if self._is_refused:
            raise NotAheadError

    @property
    def is_ahead(self) -> bool:
        """Whether it writes ahead."""
        return self._sender is not None

    def come_up(self) -> None:
        """Wait for all that was sent."""
        if self._sender is not None:
            self._sender.sync()

    def refuse(self) -> Never:
        """Refuse what cannot be done ahead."""
        self._is_refused = True
        raise NotAheadError

    def commit(self) -> None:
        """Commit."""
        if self.is_ahead:
            self.refuse()
        super().commit()

    def rollback(self) -> None:
        """Roll back."""
        if self.is_ahead:
            self.refuse()
        super().rollback()

    @contextmanager
    def transaction(self, *arguments: Any, **options: Any) -> Generator[psycopg.Transaction]:
        """Open a transaction, or a savepoint in one."""
        if self.is_ahead:
            self.refuse()
        with super().transaction(*arguments, **options) as transaction:
            yield transaction


class AheadCursor(psycopg.Cursor[Any]):
    """A cursor of such a connection. Whoever asks for what a statement did waits for it."""

    @property
    def ahead(self) -> AheadConnection | None:
        """Its connection, while that writes ahead."""
        connection = self.connection
        return connection if isinstance(connection, AheadConnection) and connection.is_ahead else None

    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        """Run a statement."""
        connection = self.ahead
        if connection is None:
            return super().execute(query, params, **options)
        text = query.as_bytes(connection) if isinstance(query, SQL | Composed) else query
        if only_writes(text):
            return super().execute(query, params, **options)
        if not answers(text):
            connection.refuse()
        super().execute(query, params, **options)
        # What was sent before has answers too, and this cursor is to have the last of them.
        connection.come_up()
        return self

    def executemany(self, query: Any, params_seq: Iterable[Any], **options: Any) -> None:
        """Run a statement with each of some values."""
        connection = self.ahead
        if connection is not None:
            if not only_writes(query):
                connection.refuse()
            # It counts the rows of all answers that come.
            connection.come_up()
        super().executemany(query, params_seq, **options)

    @property
    def rowcount(self) -> int:
        """Number of rows that the last statement has changed, or returned."""
        self._come_up()
        return super().rowcount

    @property
    def statusmessage(self) -> str | None:
        """What the server says that the last statement did."""
        self._come_up()
        return super().statusmessage

    @contextmanager
    def copy(self, *arguments: Any, **options: Any) -> Generator[psycopg.Copy]:
        """Copy rows."""
        if self.ahead is not None:
            self.ahead.refuse()
        with super().copy(*arguments, **options) as copy:
            yield copy

    def stream(self, *arguments: Any, **options: Any) -> Any:
        """Iterate over rows as they come."""
        if self.ahead is not None:
            self.ahead.refuse()
        return super().stream(*arguments, **options)

    def _come_up(self) -> None:
        if self.ahead is not None:
            self.ahead.come_up()


@lru_cache(maxsize=256)
def only_writes(query: object) -> bool:
    """Tell whether a statement writes, and has no rows for an answer."""
    return _WRITES.match(_text(query)) is not None


@lru_cache(maxsize=256)
def answers(query: object) -> bool:
    """Tell whether it is a statement that can neither end a transaction nor go back in it."""
    return _ANSWERS.match(_text(query)) is not None


def _text(query: object) -> bytes:
    if isinstance(query, str):
        return query.encode()
    # Of anything else it is not known.
    return query if isinstance(query, bytes) else b""
