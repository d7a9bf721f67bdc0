"""Statements to a PostgreSQL server over libpq's pipeline: any number of them in one round trip.

psycopg connects, encodes errors and decodes rows. Its own pipeline mode costs several times as much an append as what
is here, most of it for objects that nobody looks at.
"""

from __future__ import annotations

import select
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple

import psycopg
from psycopg import errors, pq
from psycopg.adapt import Transformer

from turnlog.hurry import HURRY, hurry
from turnlog.store.transactions import SQLRow

LOOK_S = 1.0
"""How often it is said that the server has not answered yet, in seconds."""

NO_ANSWER = "its server does not answer, and is not waited for any longer after an interrupt or a cancellation"
"""Why a connection was given up."""

_BYTEA, _INT8, _INT2, _INT4, _TEXT = 17, 20, 21, 23, 25
"""Type OIDs (PostgreSQL, `pg_type.dat`)."""

_ARRAYS = {_BYTEA: 1001, _INT8: 1016, _INT2: 1005, _TEXT: 1009}
_PACK = {_INT8: struct.Struct("!q").pack, _INT2: struct.Struct("!h").pack}
_int4, _int8, _array_header = struct.Struct("!i").pack, struct.Struct("!q").pack, struct.Struct("!5i").pack
_INT4_MAX = (1 << 31) - 1
_PREPARED_MAX = 512
"""Statements that a connection keeps prepared."""

_TEXTUAL, _BINARY = 0, 1


class Array(NamedTuple):
    """A parameter that is an array: the type of its elements, and these."""

    type: int
    values: Sequence[Any]


class Statement(NamedTuple):
    """SQL with `?` for parameters, and these."""

    sql: str
    parameters: Sequence[object] = ()


class _Sent(NamedTuple):
    """What was sent as one group: whether each answer is to a statement of it, and the statements it prepares."""

    wanted: list[bool]
    prepared: list[_Key]


_Key = tuple[str, tuple[int, ...]]
"""A statement with the types of its parameters."""

_Encoded = tuple[bytes | None, int, int]
"""A parameter as it is sent: its bytes, type and format."""

Rows = list[SQLRow]
Answer = list[Rows] | Exception
"""What became of statements that go together: the rows of each, or the first error. Then the later ones did not run."""


def texts(values: Sequence[str]) -> Array:
    """Return an array of texts."""
    return Array(_TEXT, values)


def blobs(values: Sequence[bytes | None]) -> Array:
    """Return an array of byte strings."""
    return Array(_BYTEA, values)


def bigints(values: Sequence[int]) -> Array:
    """Return an array of whole numbers of 64 bits."""
    return Array(_INT8, values)


def smallints(values: Sequence[int]) -> Array:
    """Return an array of whole numbers of 16 bits."""
    return Array(_INT2, values)


def rows_of(answer: Answer) -> list[Rows]:
    """Return the rows of statements, or raise the error that they ended with."""
    if isinstance(answer, Exception):
        raise answer
    return answer


class Wire:
    """One connection. Not safe to use from several threads at once."""

    def __init__(self, connection: psycopg.Connection[Any], on_wait: Callable[[float], None] | None = None) -> None:
        """Take a connection in autocommit mode, which is this one's from now on.

        Args:
            connection: the connection.
            on_wait: called now and then while the server does not answer, with the seconds since it was asked.
        """
        self.connection = connection
        self.on_wait = on_wait
        self._pg = connection.pgconn
        self._pg.nonblocking = 1
        self._pg.enter_pipeline_mode()
        self._rows = Transformer(connection)
        self._prepared: dict[_Key, bytes] = {}
        self._count = 0
        self._sent: deque[_Sent] = deque()
        """Groups of statements whose answers were not read yet."""
        self._poll = select.poll()
        self._poll.register(self._pg.socket, select.POLLIN)

    @property
    def is_broken(self) -> bool:
        """Whether the connection is lost."""
        return self._pg.status != pq.ConnStatus.OK

    def exchange(self, *groups: Sequence[Statement], shielded: bool = False) -> list[Answer]:
        """Send groups of statements in one round trip, and return what became of each group.

        A group whose statements are in no transaction of their own is one: they come into effect together or not at
        all. After an error the rest of its group does not run; the next group does.

        Args:
            groups: the statements.
            shielded: read the answers in spite of an interrupt (Ctrl-C), which is raised then.

        Raises:
            psycopg.OperationalError: the connection was lost, or nothing came in time for who is in a hurry.
        """
        try:
            for group in groups:
                self._send(group)
            self._flush()
            while len(self._sent) > len(groups):
                self._answer()
            return [self._answer_shielded() if shielded else self._answer() for _ in groups]
        except psycopg.Error:
            raise
        except BaseException:
            # What was sent by half would come into effect with the next group.
            self.close()
            raise

    def post(self, *statements: Statement) -> None:
        """Send statements, and do not wait for what becomes of them. An error is nobody's."""
        self._send(statements)
        self._flush()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    # Send

    def _send(self, group: Sequence[Statement]) -> None:
        sent = _Sent([], [])
        for sql, parameters in group:
            values, types, formats = _encoded(parameters)
            name = self._prepared.get((sql, types))
            if name is None:
                name = self._prepare((sql, types), sent)
            self._pg.send_query_prepared(name, values, formats, _BINARY)
            sent.wanted.append(True)
        self._pg.pipeline_sync()
        self._sent.append(sent)

    def _prepare(self, key: _Key, sent: _Sent) -> bytes:
        sql, types = key
        if len(self._prepared) >= _PREPARED_MAX:
            self._prepared.clear()
            self._pg.send_query_params(b"DEALLOCATE ALL", None)
            sent.wanted.append(False)
        name = b""
        # What selects all columns is prepared each time: those of a table may have changed since.
        if "SELECT *" not in sql:
            self._count += 1
            name = self._prepared[key] = b"s%d" % self._count
            sent.prepared.append(key)
        self._pg.send_prepare(name, _numbered(sql), types)
        sent.wanted.append(False)
        return name

    def _flush(self) -> None:
        while self._pg.flush():
            self._poll.modify(self._pg.socket, select.POLLIN | select.POLLOUT)
            since_s = monotonic()
            try:
                while not self._is_ready(since_s):
                    pass
                self._pg.consume_input()
            finally:
                if not self.is_broken:
                    self._poll.modify(self._pg.socket, select.POLLIN)

    # Receive

    def _answer(self) -> Answer:
        """Read the answers to one group."""
        sent = self._sent[0]
        wanted = iter(sent.wanted)
        found: list[Rows] = []
        error: Exception | None = None
        while True:
            result = self._result()
            if result is None:
                if self.is_broken:
                    raise error or psycopg.OperationalError(self._pg.get_error_message())
                continue
            status = result.status
            if status == pq.ExecStatus.PIPELINE_SYNC:
                break
            # A server that ends the connection may say so behind the last answer.
            is_wanted = next(wanted, False)
            if status == pq.ExecStatus.TUPLES_OK:
                self._rows.set_pgresult(result, set_loaders=True, format=pq.Format.BINARY)
                found.append(self._rows.load_rows(0, result.ntuples, tuple))
            elif status == pq.ExecStatus.COMMAND_OK:
                if is_wanted:
                    found.append([])
            elif status != pq.ExecStatus.PIPELINE_ABORTED and error is None:
                error = errors.error_from_result(result)
        self._sent.popleft()
        if error is None:
            return found
        # What was to be prepared behind the error was not.
        for key in [*(self._prepared if isinstance(error, errors.InvalidSqlStatementName) else sent.prepared)]:
            self._prepared.pop(key, None)
        return error

    def _answer_shielded(self) -> Answer:
        try:
            return self._answer()
        except KeyboardInterrupt:
            with suppress(psycopg.Error), HURRY:
                self._drain()
            raise

    def _drain(self) -> None:
        """Wait until the server has answered everything. What of it was read already, an interrupt may have lost."""
        is_between = False
        while not self.is_broken:
            result = self._result()
            if result is None and is_between:
                return  # libpq says so once between statements, and again where no more are waited for
            is_between = result is None

    def _result(self) -> pq.abc.PGresult | None:
        pg = self._pg
        since_s: float | None = None
        while pg.is_busy():
            # Not by `get_result`, which keeps the interpreter while it waits.
            since_s = since_s or monotonic()
            if not self._is_ready(since_s) and self.on_wait is not None:
                self.on_wait(monotonic() - since_s)
            pg.consume_input()
        return pg.get_result()

    def _is_ready(self, since_s: float) -> bool:
        """Wait a while until something comes or can go, and tell whether it does; give up for who is in a hurry."""
        if self._poll.poll(1000 * max(0.0, min(LOOK_S, hurry().left_s(since_s)))):
            return True
        if hurry().left_s(since_s) <= 0:
            hurry().give_up()
            self.close()
            raise psycopg.OperationalError(NO_ANSWER)
        return False


def _numbered(sql: str) -> bytes:
    """Return a statement with PostgreSQL's signs for parameters in the place of `?`."""
    first, *rest = sql.split("?")
    return "".join([first, *(f"${number}{part}" for number, part in enumerate(rest, 1))]).encode()


def _encoded(parameters: Sequence[object]) -> tuple[list[bytes | None], tuple[int, ...], list[int]]:
    """Return parameters as they are sent: their bytes, types and formats."""
    values: list[bytes | None] = []
    types: list[int] = []
    formats: list[int] = []
    for value in parameters:
        data, oid, kind = (_ENCODERS.get(type(value)) or _encoder(value))(value)
        values.append(data)
        types.append(oid)
        formats.append(kind)
    return values, tuple(types), formats


def _encoder(value: object) -> Callable[[Any], _Encoded]:
    """Return what encodes a value that is of a kind of a type."""
    for kind, encoder in _ENCODERS.items():
        if isinstance(value, kind):
            return encoder
    raise TypeError(f"{type(value).__name__} is no type of a parameter")


def _whole(value: int) -> _Encoded:
    if -_INT4_MAX <= value <= _INT4_MAX:
        return _int4(value), _INT4, _BINARY
    return _int8(value), _INT8, _BINARY


def _array(array: Array) -> bytes:
    """Return an array in PostgreSQL's binary form (`array_recv`): one dimension that begins at 1."""
    oid, values = array
    pack = _PACK.get(oid)
    parts = [_array_header(1, int(None in values), oid, len(values), 1) if values else struct.pack("!3i", 0, 0, oid)]
    for value in values:
        if value is None:
            parts.append(_int4(-1))
            continue
        data = pack(value) if pack else value.encode() if oid == _TEXT else value
        parts += (_int4(len(data)), data)
    return b"".join(parts)


_ENCODERS: dict[type, Callable[[Any], _Encoded]] = {
    str: lambda value: (value.encode(), _TEXT, _TEXTUAL),
    int: _whole,
    bytes: lambda value: (value, _BYTEA, _BINARY),
    type(None): lambda _: (None, 0, _BINARY),
    Array: lambda value: (_array(value), _ARRAYS[value.type], _BINARY),
}
