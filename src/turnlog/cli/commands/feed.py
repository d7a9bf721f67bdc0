"""`turnlog feed`: deliver the events of the log to other systems, from where it left off."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter

from turnlog.cli.failures import UsageError
from turnlog.cli.feed_rows import feed_row
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, note, telling, write_json
from turnlog.cli.progress import progress_bar
from turnlog.cli.sealing import has_keys
from turnlog.cli.targets import check_folder
from turnlog.cli.text import count, one_line
from turnlog.cli.topics import topics_of
from turnlog.cli.usage import options
from turnlog.errors import TurnlogError
from turnlog.feeds.sinks import FeedStatus, JetStream, JSONLines, OpenTelemetry, ParquetFiles, Sink, Webhook
from turnlog.feeds.sinks.jetstream import PREFIX, STREAM
from turnlog.feeds.sinks.jsonl import FILE_BYTES_MAX
from turnlog.feeds.sinks.otel import parse_headers
from turnlog.feeds.sinks.parquet import LINGER_S
from turnlog.feeds.sinks.seconds import SECONDS_MAX
from turnlog.feeds.sinks.webhook import Form
from turnlog.providers.keys import find_key, into_keyring

_SECRET = "TURNLOG_WEBHOOK_SECRET"
_TOKEN = "TURNLOG_NATS_TOKEN"
_HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")

app = App(
    name="feed",
    group_commands="Commands",
    help="Deliver the events of the log to other systems, from where it left off: each at least once, in order.",
)


@options
class FeedOptions:
    """What every feed takes."""

    follow: Annotated[
        bool, Parameter(alias="-f", negative=(), help="Go on with what is recorded, until it is interrupted.")
    ] = False
    name: Annotated[
        str | None, Parameter(help="The feed's name, if not what it delivers to. How far it is is kept under it.")
    ] = None
    topic: Annotated[
        tuple[str, ...],
        Parameter(
            negative=(),
            consume_multiple=False,
            help="Only events of this topic; may be repeated. Webhooks and NATS get erasures, too.",
        ),
    ] = ()
    after: Annotated[int, Parameter(help="Where a new feed begins: above this global position.")] = 0
    batch: Annotated[int | None, Parameter(help="How many events to deliver together at most.")] = None
    public: Annotated[bool, Parameter(negative=(), help="Deliver no content and no private metadata.")] = False
    unseal: Annotated[bool, Parameter(negative=(), help="Deliver what is sealed, too, where its key is here.")] = False
    attempts: Annotated[
        int | None,
        Parameter(help="How often to try what may succeed later: 8 times, and with --follow for as long as it takes."),
    ] = None


OPTIONS = FeedOptions()


@app.command
def jsonl(
    folder: str,
    /,
    *,
    file_mb: Annotated[int, Parameter(help="Begin a new file when one has so many MB.")] = FILE_BYTES_MAX // 1024**2,
    by_day: Annotated[bool, Parameter(negative=(), help="Begin a new file with each day (UTC), too.")] = False,
    options: FeedOptions = OPTIONS,
    common: Common = COMMON,
) -> None:
    """Fill a folder with JSON lines, one event a line. Lines of events that are erased are written anew.

    Parameters
    ----------
    folder
        The folder, which is made where there is none.
    """
    if file_mb < 1:
        raise UsageError(f"feed: --file-mb must be at least 1, got {file_mb}")
    check_folder(folder, common)
    _run(JSONLines(folder, file_bytes_max=file_mb * 1024**2, by_day=by_day), options, common)


@app.command
def parquet(
    folder: str,
    /,
    *,
    linger: Annotated[float, Parameter(help="With --follow: how many seconds to wait for a file to fill.")] = LINGER_S,
    options: FeedOptions = OPTIONS,
    common: Common = COMMON,
) -> None:
    """Fill a folder with Parquet files by day, which DuckDB reads as one table. Erased events are written anew.

    Parameters
    ----------
    folder
        The folder, which is made where there is none.
    """
    if not 0 <= linger <= SECONDS_MAX:
        raise UsageError(f"feed: --linger is seconds, from 0 up to {SECONDS_MAX:,.0f}, got {linger:g}")
    check_folder(folder, common)
    _run(ParquetFiles(folder, linger_s=linger), options, common)


@app.command
def webhook(
    url: str,
    /,
    *,
    secret: Annotated[
        tuple[str, ...],
        Parameter(
            negative=(),
            consume_multiple=False,
            help="The variable, or else the entry of the keyring, that has the signing secret (whsec_…). By default "
            "TURNLOG_WEBHOOK_SECRET. Give it again while secrets are changed.",
        ),
    ] = (),
    unsigned: Annotated[bool, Parameter(negative=(), help="Do not sign.")] = False,
    form: Annotated[Form, Parameter(help="One JSON object for a batch, or one event a line.")] = "json",
    timeout: Annotated[float, Parameter(help="How many seconds it may take until an answer is there.")] = 30.0,
    options: FeedOptions = OPTIONS,
    common: Common = COMMON,
) -> None:
    """Post batches of events to an HTTP endpoint, signed (Standard Webhooks), and again if it does not take them.

    Parameters
    ----------
    url
        The endpoint.
    """
    if unsigned and secret:
        raise UsageError("feed: --secret and --unsigned contradict each other: give one of them")
    secrets = () if unsigned else [_secret(name) for name in secret or (_SECRET,)]
    _run(Webhook(url, secrets=secrets, form=form, timeout_s=_seconds(timeout)), options, common)


@app.command
def nats(
    url: str,
    /,
    *,
    prefix: Annotated[str, Parameter(help="What subjects begin with, before the topic.")] = PREFIX,
    stream: Annotated[str, Parameter(help="The name of the stream, with --create-stream.")] = STREAM,
    create_stream: Annotated[
        bool, Parameter(negative=(), help="Make the stream if none takes these subjects.")
    ] = False,
    credentials: Annotated[Path | None, Parameter(help="A credentials file.")] = None,
    timeout: Annotated[float, Parameter(help="How many seconds an acknowledgement may take.")] = 10.0,
    options: FeedOptions = OPTIONS,
    common: Common = COMMON,
) -> None:
    """Publish each event to NATS JetStream, with its idempotency key as Nats-Msg-Id, and wait until the stream has it.

    A token is taken from TURNLOG_NATS_TOKEN, or from the keyring under this name.

    Parameters
    ----------
    url
        The server, such as nats://localhost:4222.
    """
    token, _ = find_key(_TOKEN, _TOKEN)
    sink = JetStream(
        url,
        prefix=prefix,
        stream=stream,
        create_stream=create_stream,
        credentials=credentials,
        token=token,
        timeout_s=_seconds(timeout),
        on_warning=_note_said,
    )
    _run(sink, options, common)


@app.command
def otel(
    endpoint: str,
    /,
    *,
    content: Annotated[
        bool, Parameter(negative=(), help="With what was said: messages, arguments and results of tools.")
    ] = False,
    service: Annotated[
        str | None, Parameter(help="The service's name, by default what OTEL_SERVICE_NAME says, else turnlog.")
    ] = None,
    timeout: Annotated[float, Parameter(help="How many seconds it may take until an answer is there.")] = 30.0,
    options: FeedOptions = OPTIONS,
    common: Common = COMMON,
) -> None:
    """Send a GenAI span for each model call and each execution of a tool, by OTLP over HTTP.

    Headers, such as a key, are taken from OTEL_EXPORTER_OTLP_TRACES_HEADERS or OTEL_EXPORTER_OTLP_HEADERS.

    Parameters
    ----------
    endpoint
        The collector, such as http://localhost:4318.
    """
    given = next((os.environ[name] for name in _HEADERS if os.environ.get(name)), "")
    headers = parse_headers(given) if given else {}
    sink = OpenTelemetry(
        endpoint,
        content=content,
        headers=headers,
        service=service,
        timeout_s=_seconds(timeout),
        on_warning=_note_said,
    )
    _run(sink, options, common)


def _secret(name: str) -> str:
    value, _ = find_key(name, name)
    if value is None:
        raise UsageError(
            f"feed: no signing secret: set {name} in the environment, or {into_keyring(name)}; or give --unsigned"
        )
    return value


def _seconds(timeout: float) -> float:
    if not 0 < timeout <= SECONDS_MAX:
        raise UsageError(f"feed: --timeout is seconds, above 0 and up to {SECONDS_MAX:,.0f}, got {timeout:g}")
    return timeout


def _run(sink: Sink, options: FeedOptions, common: Common) -> None:
    with common.open() as log:
        feed = log.feeds.feed(
            sink,
            name=options.name,
            topics=topics_of(options.topic, log),
            after=options.after,
            public=options.public,
            unseal=options.unseal,
            batch=options.batch,
            attempts=options.attempts,
        )
        if options.unseal and not has_keys(os.environ):
            note("--unseal: there is no key of sealing here, and what is sealed is delivered as without --unseal")
        if options.follow:
            feed.follow(told=_Told(sink, common), on_retry=_note_retry, on_back=_note_said)
            return
        with progress_bar("delivering") as progress:
            status = feed.run(progress=progress, on_retry=_note_retry, on_back=_note_said)
    _write(status, sink, common)


class _Told:
    """Tells how a feed that follows is doing: programs each time, people once."""

    def __init__(self, sink: Sink, common: Common) -> None:
        self._sink = sink
        self._common = common
        self._said = False

    def __call__(self, status: FeedStatus) -> None:
        if self._common.json or not self._said:
            _write(status, self._sink, self._common)
        self._said = True


def _note_retry(error: TurnlogError, seconds: float) -> None:
    note(f"{one_line(str(error))}; again in {seconds:.1f} s")


def _note_said(said: str) -> None:
    note(said)


def _write(status: FeedStatus, sink: Sink, common: Common) -> None:
    """Print how it went. Of turns that are delivered as spans there are others than turns: their number is told too."""
    sent = sink.spans_sent if isinstance(sink, OpenTelemetry) else None
    done = f"feed {status.name!r} has delivered up to global position {status.position:,}, and that is recorded"
    with telling(f"{done}, but it could not be printed"):
        if common.json:
            record: dict[str, Any] = msgspec.to_builtins(status)
            write_json(record if sent is None else {**record, "spans_sent": sent})
            return
        row = feed_row(status)
        if sent is not None:
            row.insert(-1, f"{count(sent, 'span')} sent")
        Screen.of_stdout().table([row])
