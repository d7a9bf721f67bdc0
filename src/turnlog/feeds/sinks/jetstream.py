"""NATS JetStream: one message an event, which the stream takes once. Needs the extra `nats`.

`Nats-Msg-Id` is the idempotency key of the event: what is delivered again within the stream's duplicate window is not
stored again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from turnlog.errors import MetaError, MissingPackageError, SinkError
from turnlog.feeds.sinks.interface import Batch, Place, Sink, SinkRecord
from turnlog.feeds.sinks.loop import Loop
from turnlog.feeds.sinks.seconds import check_seconds
from turnlog.store import Store
from turnlog.store.telling import logger
from turnlog.web_address import parsed, shown_server, shown_text

_log = logger("turnlog.feeds")

STREAM = "TURNLOG"
PREFIX = "turnlog"
DUPLICATE_WINDOW_S = 24 * 3600.0
"""For how long a stream that turnlog makes knows a message again."""

_TIMEOUT_S = 10.0
_ACKS_MAX = 256
"""How many messages are on their way at most before their acknowledgements are waited for."""
_TOO_LARGE = 10054
"""What a stream's answer has as its number where a message is larger than its `max_msg_size`."""

_LOGIN = "log in with a token, which is taken from TURNLOG_NATS_TOKEN, or with --credentials FILE"
_CREDENTIALS = (b"BEGIN NATS USER JWT", b"BEGIN USER NKEY SEED")
"""What a credentials file has in it. The client looks for the first without an end."""

_SCHEMES = ("nats", "tls", "ws", "wss")
_STREAM = re.compile(r"[^\s.*>/\\]+")
_PREFIX = re.compile(r"[^\s.*>]+(?:\.[^\s.*>]+)*")
_NO_SUBJECT = re.compile(r"[\s*>]|^\.|\.$|\.(?=\.)")

T = TypeVar("T")


class _Limit(Struct, frozen=True, kw_only=True):
    """How large a message may be with its headers, in bytes; by whom that is said, and with which setting."""

    size: int
    whose: str
    setting: str


class JetStream(Sink):
    """A stream of NATS JetStream. See `turnlog.feeds.sinks.jetstream`."""

    kind = "nats"
    wants_erasures = True
    keeps_batches = True

    def __init__(
        self,
        url: str,
        *,
        prefix: str = PREFIX,
        stream: str = STREAM,
        create_stream: bool = False,
        credentials: str | Path | None = None,
        token: str | None = None,
        timeout_s: float = _TIMEOUT_S,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        """Take the server.

        Args:
            url: `nats://HOST:PORT`, or `tls://`, `ws://`, `wss://`.
            prefix: what subjects begin with: an event of topic `gpt.turn` goes to `PREFIX.gpt.turn`.
            stream: the stream's name, for one that is made.
            create_stream: make the stream if no stream takes these subjects.
            credentials: path of a credentials file, which must be there, with a user's JWT and seed.
            token: a token to log in with.
            timeout_s: how long an acknowledgement may take, in seconds: up to a day.
            on_warning: told, on one line, which event went without its content, as the server or the stream takes less;
                and that the stream knew events, which it does not store again: with the first batch that has such, and
                when the sink is closed.

        Raises:
            MetaError: one of them is not what it should be.
        """
        parts = parsed(url, _SCHEMES)
        if parts is None:
            raise MetaError(f"{shown_text(url)!r} is not a URL of the form nats://HOST:PORT", field="url")
        if "@" in parts.netloc:
            raise MetaError(
                f"the URL has a user or a token in it, which would be kept: leave them out, and {_LOGIN}", field="url"
            )
        if not _PREFIX.fullmatch(prefix):
            raise MetaError(f"prefix {prefix!r} cannot be that of a subject", field="prefix")
        if not _STREAM.fullmatch(stream):
            raise MetaError(f"{stream!r} cannot be the name of a stream", field="stream")
        if credentials is not None:
            _check_credentials(Path(credentials))
        self._url = url
        self._destination = f"{shown_server(parts)}/{prefix}"
        self._prefix = prefix
        self._stream = stream
        self._create_stream = create_stream
        self._credentials = credentials
        self._token = token
        self._timeout_s = check_seconds(timeout_s, "timeout_s")
        self._on_warning = on_warning
        self._loop: Loop | None = None
        self._client: Any = None
        self._jetstream: Any = None
        self._why: Exception | None = None
        """What the connection has failed with."""
        self._refused: asyncio.Future[Exception] | None = None
        """What the server says against what is waited for."""
        self._limits: dict[str, _Limit] = {}
        """By subject, as long as the connection is there."""
        self._unread: Exception | None = None
        """Why it is not known how much streams take."""
        self._acknowledged = 0
        """How many events of the batch the stream has."""
        self._known = self._known_told = 0
        """How many events the stream has known, and of how many that was told."""

    @property
    def destination(self) -> str:
        """The server, and what subjects begin with."""
        return self._destination

    def open(self, store: Store) -> Place | None:  # noqa: ARG002 - the stream knows nothing of it
        """Do nothing but look for the package: a connection is made with the first batch."""
        _nats()
        self._loop = Loop("turnlog-nats")
        return None

    def deliver(self, batch: Batch) -> None:
        """Publish each event, and wait until the stream has acknowledged all of them."""
        assert self._loop is not None
        self._loop.run(self._deliver(batch))

    def close(self) -> None:
        """Close the connection."""
        self._tell_known("in all")
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.run(self._disconnect())
            loop.close()

    async def _deliver(self, batch: Batch) -> None:
        nats = _nats()
        self._acknowledged = 0
        try:
            if self._client is None or not self._client.is_connected:
                await self._disconnect()
                await self._connect()
            for start in range(0, len(batch.records), _ACKS_MAX):
                await self._publish(batch.records[start : start + _ACKS_MAX])
        except (nats.errors.Error, TimeoutError, OSError, ValueError) as error:
            # What the connection is good for is not known any more.
            await self._disconnect()
            raise self._error(error, len(batch.records)) from error

    async def _publish(self, records: Sequence[SinkRecord]) -> None:
        for record in records:
            await self._find_limit(self._subject(record))
        await self._answered(self._publish_all(records))

    async def _publish_all(self, records: Sequence[SinkRecord]) -> None:
        waiting: list[asyncio.Future[Any]] = []
        try:
            for record in records:
                subject, headers = self._subject(record), _headers(record)
                payload = self._payload(record, self._limits[subject], _header_bytes(headers))
                waiting.append(await self._jetstream.publish_async(subject, payload, headers=headers))
            async with asyncio.timeout(self._timeout_s):
                for acknowledged in waiting:
                    await acknowledged
        finally:
            for left in waiting:
                left.cancel()
            # What was raised for them is the same as for the first.
            ended = await asyncio.gather(*waiting, return_exceptions=True)
            acknowledged = [each for each in ended if not isinstance(each, BaseException)]
            self._acknowledged += len(acknowledged)
            self._known += sum(bool(each.duplicate) for each in acknowledged)
        if not self._known_told:
            self._tell_known(f"of {len(records):,}")

    def _tell_known(self, among: str) -> None:
        """Tell how many events the stream has not stored again, where more are than was told."""
        if self._known > self._known_told and self._on_warning is not None:
            self._known_told = self._known
            self._on_warning(
                f"{self.kind} {self.destination!r}: {self._known:,} {among} events were known to the stream by their "
                "ids (Nats-Msg-Id, within its duplicate window): it has what it was given first, and stored no more"
            )

    async def _answered(self, asked: Awaitable[T]) -> T:
        """Return the answer to what is asked; raise what the server says against it.

        The client tells that to `_note` alone, and lets who asked wait on: so it does with a right that is missing, and
        with what a stream refuses (nats-py 2.16, `APIError.from_error`).
        """
        refused = self._refused = asyncio.get_running_loop().create_future()
        answer = asyncio.ensure_future(asked)
        try:
            await asyncio.wait((answer, refused), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise refused.result()
            return answer.result()
        finally:
            self._refused = None
            answer.cancel()
            await asyncio.gather(answer, return_exceptions=True)

    async def _find_limit(self, subject: str) -> None:
        """Find how large a message may be: for the server, and for the stream where its configuration can be read."""
        if subject in self._limits:
            return
        limit = _Limit(size=self._client.max_payload, whose="the server", setting="max_payload")
        if self._unread is None:
            try:
                size = await self._answered(self._stream_size_max(subject))
            except (_nats().errors.Error, TimeoutError) as error:
                self._unread = error
            else:
                # A stream without a limit says -1.
                if 0 <= size < limit.size:
                    limit = _Limit(size=size, whose="the stream", setting="max_msg_size")
        self._limits[subject] = limit

    async def _stream_size_max(self, subject: str) -> int:
        try:
            stream = await self._jetstream.find_stream_name_by_subject(subject)
        except _nats().js.errors.NotFoundError:
            return -1  # who publishes is told so
        size = (await self._jetstream.stream_info(stream)).config.max_msg_size
        return -1 if size is None else size

    async def _connect(self) -> None:
        nats = _nats()
        self._why, self._unread, self._limits = None, None, {}
        self._client = nats.aio.client.Client()
        async with asyncio.timeout(self._timeout_s):
            await self._client.connect(
                self._url,
                name="turnlog",
                # A connection that is lost is made anew with the next attempt, and that waits as all do.
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=self._timeout_s,
                token=self._token,
                user_credentials=None if self._credentials is None else str(self._credentials),
                error_cb=self._note,
            )
        self._jetstream = self._client.jetstream(timeout=self._timeout_s)
        if self._create_stream:
            await self._answered(self._make_stream())

    async def _make_stream(self) -> None:
        subjects = f"{self._prefix}.>"
        try:
            await self._jetstream.find_stream_name_by_subject(subjects)
        except _nats().js.errors.NotFoundError:
            await self._jetstream.add_stream(
                name=self._stream, subjects=[subjects], duplicate_window=DUPLICATE_WINDOW_S
            )

    async def _disconnect(self) -> None:
        client, self._client, self._jetstream = self._client, None, None
        if client is not None:
            try:
                async with asyncio.timeout(self._timeout_s):
                    await client.close()
            except (TimeoutError, OSError, _nats().errors.Error):
                pass  # it is gone, whatever it said last

    def _subject(self, record: SinkRecord) -> str:
        return f"{self._prefix}.{_NO_SUBJECT.sub('_', record.recorded.header.topic) or '_'}"

    def _payload(self, record: SinkRecord, limit: _Limit, header_bytes: int) -> bytes:
        """Return the message; without its content, and its metadata, where that is more than is taken.

        Raises:
            SinkError: it is more even so.
        """
        payload, size_max = record.to_json(), limit.size - header_bytes
        whole = len(payload)
        if whole <= size_max:
            return payload
        sizes = {"content": record.recorded.size, "meta": len(msgspec.json.encode(record.fields.get("meta")))}
        fields = dict(record.fields)
        for name, size in sizes.items():
            fields[name] = {"type": "too_large", "size": size}
            payload = msgspec.json.encode(fields)
            if len(payload) <= size_max:
                lost = "content" if name == "content" else "content and metadata"
                self._warn(
                    f"event {record.id} at {record.position:,} goes without its {lost}: with it the message is "
                    f"{whole:,} bytes, and {limit.whose} takes {size_max:,}"
                )
                return payload
        raise self.failed(
            f"event {record.id!r} is {len(payload):,} bytes without content and metadata, and {limit.whose} takes "
            f"{size_max:,}: give it a larger {limit.setting}"
        )

    def _warn(self, what: str) -> None:
        _log.warning("%s", what)
        if self._on_warning is not None:
            self._on_warning(f"{self.kind} {self.destination!r}: {what}")

    async def _note(self, error: Exception) -> None:
        self._why = error
        if self._refused is not None and not self._refused.done():
            self._refused.set_result(error)

    def _error(self, error: BaseException, events: int) -> SinkError:
        nats = _nats()
        if isinstance(error, nats.errors.NoServersError) and self._why is not None:
            error = self._why
        said = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, nats.js.errors.NoStreamResponseError | nats.errors.NoRespondersError):
            return self.failed(f"no stream takes subjects {self._prefix}.>: make one, or give --create-stream")
        answer: Any = error if isinstance(error, nats.js.errors.APIError) else None
        if answer is not None and answer.description:
            said = f"the server answers {answer.description!r}"
            if answer.err_code == _TOO_LARGE and self._unread is not None:
                said += (
                    ": an event is larger than the stream's max_msg_size. It goes without its content where that can "
                    f"be asked of $JS.API.STREAM.NAMES and $JS.API.STREAM.INFO.*, which gave {str(self._unread)!r}"
                )
        is_login = (
            isinstance(error, nats.errors.AuthorizationError | nats.errors.InvalidUserCredentialsError)
            or "authorization" in said.lower()
        )
        if is_login:
            said += f": {_LOGIN}, as the server knows it"
        if self._acknowledged:
            said += f"; the stream has {self._acknowledged:,} of the {events:,} events of this batch"
        is_refused = (
            isinstance(
                error,
                nats.errors.MaxPayloadError | nats.js.errors.BadRequestError | FileNotFoundError | ValueError,
            )
            or is_login
            or "permissions violation" in said.lower()
        )
        return self.failed(said, retryable=not is_refused)


def _headers(record: SinkRecord) -> Mapping[str, str]:
    return {
        "Nats-Msg-Id": record.key,
        "Content-Type": "application/json",
    }


def _check_credentials(path: Path) -> None:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MetaError(f"the credentials file cannot be read: {error}", field="credentials") from error
    if not all(each in content for each in _CREDENTIALS):
        raise MetaError(f"{str(path)!r} is no credentials file: it lacks a user's JWT or seed", field="credentials")


def _header_bytes(headers: Mapping[str, str]) -> int:
    """Return how many bytes headers are on the wire, with the line that begins them and the one that ends them."""
    return len("NATS/1.0\r\n\r\n") + sum(len(f"{name}: {value}\r\n") for name, value in headers.items())


def _nats() -> Any:
    try:
        return import_module("nats")
    except ImportError as error:
        raise MissingPackageError(
            "NATS needs the package nats-py: pip install 'turnlog[nats]'", provider="nats"
        ) from error
