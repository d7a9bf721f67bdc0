"""OpenTelemetry: a GenAI span for each model call and each execution of a tool. Needs the extra `otel`.

Source: OpenTelemetry semantic conventions for generative AI (`gen_ai.*`, 1.44), OTLP/HTTP with binary protobuf.

The spans are made of turns: a reply with the call that it came of is one, a result of a tool with the turn that asked
for it is another. Their ids are made of those of the events, so that a span that is sent again is equal. A trace is
what follows one question: all calls until a model does not ask for a tool any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from turnlog.errors import MetaError, MissingPackageError
from turnlog.events import TURN
from turnlog.feeds.sinks.interface import Batch, Place, Sink
from turnlog.feeds.sinks.posting import TIMEOUT_S, Answer, Poster, in_short, parse_endpoint
from turnlog.feeds.sinks.spans import SpanData, Spans
from turnlog.store import Store
from turnlog.store.telling import logger
from turnlog.web_address import shown

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
PATH = "/v1/traces"

_log = logger("turnlog.feeds")
_JSON = "application/json"
_LOGIN = "log in with a header: OTEL_EXPORTER_OTLP_HEADERS, such as Authorization=Basic%20…"

_SPANS_BYTES_MAX = 4 * 1024 * 1024
"""Spans are posted when they have so many bytes of texts; a single one may have more. See `PARTS_BYTES_MAX`."""


class OpenTelemetry(Sink):
    """A collector that takes spans by OTLP/HTTP. See `turnlog.feeds.sinks.otel`."""

    kind = "otel"
    reads_content = False
    keeps_batches = True
    topics = (TURN,)

    def __init__(
        self,
        endpoint: str,
        *,
        content: bool = False,
        headers: Mapping[str, str] | None = None,
        service: str | None = None,
        timeout_s: float = TIMEOUT_S,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        """Take the collector.

        Args:
            endpoint: its URL, as `OTEL_EXPORTER_OTLP_ENDPOINT` has it: `/v1/traces` is added where it does not end so.
            content: with what was said: messages, arguments and results of tools, and error texts.
            headers: headers to send, such as a key.
            service: the service's name; by default what `OTEL_SERVICE_NAME` says, else `turnlog`.
            timeout_s: how long it may take until an answer is there, in seconds: up to a day.
            on_warning: told, on one line, what a collector warns of that has taken all spans.

        Raises:
            MetaError: the URL is none, or has a password in it; or `timeout_s` is out of bounds.
        """
        parts = parse_endpoint(endpoint, "endpoint", instead=_LOGIN)
        if not parts.path.endswith(PATH):
            parts = parts._replace(path=parts.path.rstrip("/") + PATH)
        self._destination = shown(parts)
        self._content = content
        self._headers = dict(headers or {})
        self._service = service
        self._poster = Poster(self, parts.geturl(), timeout_s=timeout_s)
        self._on_warning = on_warning
        self._spans: Spans | None = None
        self._spans_sent = 0
        self._resource: Any = None

    @property
    def destination(self) -> str:
        """The URL without its query."""
        return self._destination

    @property
    def spans_sent(self) -> int:
        """Number of spans that the collector has taken from this one: none where no turn came of a call."""
        return self._spans_sent

    def open(self, store: Store) -> Place | None:
        """Do nothing but look for the packages: a connection is made with the first batch."""
        self._resource = _resource(self._service)
        self._spans = Spans(store, content=self._content)
        return None

    def deliver(self, batch: Batch) -> None:
        """Post the spans of a batch. A collector's answer of status 2xx that rejects none says that it has them."""
        assert self._spans is not None
        spans = list(self._spans.of(batch))  # nothing is being read while the collector is waited for
        for posted in _posts(spans):
            self._post(posted)
        self._spans_sent += len(spans)

    def _post(self, spans: Sequence[SpanData]) -> None:
        encoder = _module("opentelemetry.exporter.otlp.proto.common.trace_encoder")
        body: bytes = encoder.encode_spans([_readable(span, self._resource) for span in spans]).SerializeToString()
        headers = {**self._headers, "content-type": "application/x-protobuf", "user-agent": "turnlog"}
        self._check(self._poster.post((body,), headers))

    def close(self) -> None:
        """Close the connection."""
        self._poster.close()

    def _check(self, answer: Answer) -> None:
        partial = self._partial_success(answer)
        said = " ".join(partial.error_message.split())
        if partial.rejected_spans:
            raise self.failed(f"rejected {partial.rejected_spans:,} spans: {said}")
        if said:  # OTLP: it is a warning then
            _log.warning("collector %s took all spans, and warns of something", self.destination)
            if self._on_warning is not None:
                self._on_warning(f"{self.kind} {self.destination!r} took all spans, and warns: {said}")

    def _partial_success(self, answer: Answer) -> Any:
        """Return what an answer says of the spans. An empty one says that all were taken.

        Raises:
            SinkError: it is no collector's, as the page of a proxy.
        """
        found = _module("opentelemetry.proto.collector.trace.v1.trace_service_pb2").ExportTraceServiceResponse()
        json = _module("google.protobuf.json_format")
        try:
            if answer.content_type == _JSON and answer.body.strip():
                json.Parse(answer.body, found, ignore_unknown_fields=True)
            elif answer.content_type != _JSON:
                found.ParseFromString(answer.body)
        except (_module("google.protobuf.message").DecodeError, json.ParseError, UnicodeDecodeError) as error:
            kind = f" ({answer.content_type})" if answer.content_type else ""
            raise self.failed(f"its answer is no collector's{kind}: {in_short(answer.body)}") from error
        return found.partial_success


def _posts(spans: Sequence[SpanData]) -> Iterator[list[SpanData]]:
    """Iterate over spans, so many at a time as are posted together."""
    found: list[SpanData] = []
    size = 0
    for span in spans:
        span_bytes = sum(len(value.encode()) for value in span.attributes.values() if isinstance(value, str))
        if found and size + span_bytes > _SPANS_BYTES_MAX:
            yield found
            found, size = [], 0
        found.append(span)
        size += span_bytes
    if found:
        yield found


def parse_headers(text: str) -> dict[str, str]:
    """Return headers of the form that `OTEL_EXPORTER_OTLP_HEADERS` has: `NAME=VALUE,NAME=VALUE`, percent-encoded.

    Raises:
        MetaError: it is another one. It is not repeated.
    """
    with _unlogged("opentelemetry.util.re"):  # what it logs has the headers in it
        found = dict(_module("opentelemetry.util.re").parse_env_headers(text, liberal=True))
    if len(found) < len([part for part in text.split(",") if part.strip()]):
        raise MetaError("the headers are not of the form NAME=VALUE,NAME=VALUE", field="headers")
    return found


@contextmanager
def _unlogged(name: str) -> Generator[None]:
    """Let a module log nothing."""

    def drop(_record: logging.LogRecord) -> bool:
        return False

    logger = logging.getLogger(name)
    logger.addFilter(drop)
    try:
        yield
    finally:
        logger.removeFilter(drop)


def _resource(service: str | None) -> Any:
    resources = _module("opentelemetry.sdk.resources")
    _module("opentelemetry.exporter.otlp.proto.common.trace_encoder")
    given = {} if service is None else {resources.SERVICE_NAME: service}
    found = resources.Resource.create(given)
    if str(found.attributes.get(resources.SERVICE_NAME, "")).startswith("unknown_service"):
        found = found.merge(resources.Resource({resources.SERVICE_NAME: "turnlog"}))
    return found


def _readable(span: SpanData, resource: Any) -> Any:
    sdk = _module("opentelemetry.sdk.trace")
    trace = _module("opentelemetry.trace")
    scopes = _module("opentelemetry.sdk.util.instrumentation")

    def context(span_id: int) -> Any:
        return trace.SpanContext(
            trace_id=span.trace_id,
            span_id=span_id,
            is_remote=False,
            trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
        )

    status = trace.Status() if span.error is None else trace.Status(trace.StatusCode.ERROR, span.error or None)
    return sdk.ReadableSpan(
        name=span.name,
        context=context(span.span_id),
        parent=None if span.parent_id is None else context(span.parent_id),
        resource=resource,
        attributes=span.attributes,
        kind=trace.SpanKind.CLIENT if span.is_call else trace.SpanKind.INTERNAL,
        status=status,
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=scopes.InstrumentationScope("turnlog", schema_url=SCHEMA_URL),
    )


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            "OpenTelemetry needs its packages: pip install 'turnlog[otel]'", provider="otel"
        ) from error
