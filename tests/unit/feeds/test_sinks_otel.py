"""OpenTelemetry: spans of model calls and tools, as a collector gets them."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from tests.agent.running import run
from tests.agent.scripted import MODEL, Scripted, call, say
from tests.sealed_log import seals_in
from tests.servers.receiver import Answer, Receiver
from tests.servers.tedious import TediousServer, Way

from turnlog import TurnLog
from turnlog.errors import MetaError, MissingPackageError, ProviderError, SinkError
from turnlog.events import metadata
from turnlog.feeds.sinks import OpenTelemetry
from turnlog.feeds.sinks.interface import record_key
from turnlog.feeds.sinks.otel import parse_headers
from turnlog.feeds.sinks.span_content import TEXT_BYTES_MAX
from turnlog.projections import synchronous
from turnlog.sources import Sources
from turnlog.store import open_store


def value(any_value: Any) -> Any:
    """Return the value of an attribute."""
    kind = any_value.WhichOneof("value")
    if kind == "array_value":
        return [value(each) for each in any_value.array_value.values]
    return getattr(any_value, kind)


def attributes(of: Any) -> dict[str, Any]:
    """Return attributes by name."""
    return {each.key: value(each.value) for each in of.attributes}


def requests(receiver: Receiver) -> list[ExportTraceServiceRequest]:
    """Return what was sent."""
    return [ExportTraceServiceRequest.FromString(each.body) for each in receiver.received]


def spans(receiver: Receiver) -> list[Span]:
    """Return the spans that were sent, in order."""
    return [
        span
        for request in requests(receiver)
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def add(first: int, second: int) -> int:
    """Add two numbers."""
    return first + second


def fail() -> str:
    """Fail."""
    raise RuntimeError("broken")


def with_tools(log: TurnLog) -> None:
    """Record a question that takes two calls and two tools, and one more question."""
    adapter = Scripted(
        call(("add", {"first": 1, "second": 2}), ("fail", {}), tokens=5), say("Three.", tokens=7), say("Bye.")
    )
    run(log, adapter, "What is 1 + 2?", bookmark="main", tools=[add, fail], params={"temperature": 0.5})
    run(log, adapter, "Thanks.", continues="main")


def test_calls_and_tools_are_spans(filed: TurnLog, receiver: Receiver) -> None:
    """With the attributes of the conventions; one question is one trace; tools are within the call that asked."""
    with_tools(filed)
    status = filed.feeds.feed(OpenTelemetry(receiver.url)).run()
    assert status.name == f"otel:{receiver.url}/v1/traces"
    assert receiver.received[0].headers["content-type"] == "application/x-protobuf"
    asked, added, failed, told, bye = spans(receiver)
    assert [span.name for span in (asked, added, failed, told, bye)] == [
        f"chat {MODEL}",
        "execute_tool add",
        "execute_tool fail",
        f"chat {MODEL}",
        f"chat {MODEL}",
    ]
    assert len({span.trace_id for span in (asked, added, failed, told)}) == 1
    assert bye.trace_id != asked.trace_id
    assert (added.parent_span_id, failed.parent_span_id) == (asked.span_id, asked.span_id)
    assert (asked.parent_span_id, told.parent_span_id) == (b"", b"")
    assert len({span.span_id for span in (asked, added, failed, told, bye)}) == 5
    assert (asked.kind, added.kind) == (Span.SPAN_KIND_CLIENT, Span.SPAN_KIND_INTERNAL)
    of_call = attributes(asked)
    events = {event.header.id: event for event in filed.events()}
    turn = events[of_call["turnlog.turn.id"]]
    recorded = events[of_call["turnlog.call.id"]]
    assert (asked.start_time_unix_nano, asked.end_time_unix_nano) == (
        recorded.header.time * 1_000_000,
        turn.header.time * 1_000_000,
    )
    ends = [event for event in events.values() if event.header.topic == "gpt.tool_end"]
    assert sorted((span.start_time_unix_nano, span.end_time_unix_nano) for span in (added, failed)) == sorted(
        ((end.header.time - metadata(end)["duration_ms"]) * 1_000_000, end.header.time * 1_000_000) for end in ends
    )
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": MODEL,
        "gen_ai.response.model": MODEL,
        "gen_ai.response.finish_reasons": ["tool_use"],
        "gen_ai.request.temperature": 0.5,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.conversation.id": turn.header.stream,
        "turnlog.log.id": filed.id,
        "turnlog.idempotency_key": record_key(filed.id, turn),
    }
    assert {name: of_call.get(name) for name in expected} == expected
    of_tool = attributes(added)
    assert (of_tool["gen_ai.operation.name"], of_tool["gen_ai.tool.name"], of_tool["gen_ai.tool.call.id"]) == (
        "execute_tool",
        "add",
        "c1",
    )
    assert (failed.status.code, attributes(failed)["error.type"]) == (Status.STATUS_CODE_ERROR, "tool_error")
    assert (added.status.code, "error.type" in of_tool) == (Status.STATUS_CODE_UNSET, False)
    [resource] = requests(receiver)[0].resource_spans
    assert attributes(resource.resource)["service.name"] == "turnlog"
    assert resource.scope_spans[0].scope.name == "turnlog"


def test_spans_say_nothing_of_content(filed: TurnLog, receiver: Receiver) -> None:
    """Unless it is asked for: then messages, arguments and results are there, by the schema of the conventions."""
    with_tools(filed)
    filed.feeds.feed(OpenTelemetry(receiver.url)).run()
    for word in (b"What is", b"Three", b"messages", b"arguments", b"broken"):
        assert word not in receiver.received[0].body
    receiver.received.clear()
    filed.feeds.feed(OpenTelemetry(receiver.url, content=True), name="with content").run()
    asked, added, _, told, _ = spans(receiver)
    assert json.loads(attributes(asked)["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "What is 1 + 2?"}]}
    ]
    [output] = json.loads(attributes(asked)["gen_ai.output.messages"])
    assert (output["role"], output["finish_reason"]) == ("assistant", "tool_call")
    assert output["parts"][0] == {
        "type": "tool_call",
        "id": "c1",
        "name": "add",
        "arguments": {"first": 1, "second": 2},
    }
    assert json.loads(attributes(added)["gen_ai.tool.call.arguments"]) == {"first": 1, "second": 2}
    assert attributes(added)["gen_ai.tool.call.result"] == "3"
    messages = json.loads(attributes(told)["gen_ai.input.messages"])
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[2]["parts"][0] == {"type": "tool_call_response", "id": "c1", "response": "3"}


def echo(text: str) -> str:
    """Say it again, twice."""
    return text * 2


def test_long_content_is_cut_and_told(filed: TurnLog, receiver: Receiver) -> None:
    """No collector takes a span of any size: what is left out of each is an attribute of it, in bytes."""
    question, said, answer = "q" * (TEXT_BYTES_MAX + 1), "é" * TEXT_BYTES_MAX, "a" * (TEXT_BYTES_MAX + 3)
    arguments = json.dumps({"text": said}, ensure_ascii=False, separators=(",", ":"))
    adapter = Scripted(call(("echo", {"text": said})), say(answer))
    run(filed, adapter, question, bookmark="main", tools=[echo])
    filed.feeds.feed(OpenTelemetry(receiver.url, content=True)).run()
    asked, echoed, told = map(attributes, spans(receiver))
    assert json.loads(asked["gen_ai.input.messages"])[0]["parts"] == [{"type": "text", "content": question[:-1]}]
    assert json.loads(asked["gen_ai.output.messages"])[0]["parts"] == [
        {"type": "tool_call", "id": "c1", "name": "echo"}
    ]
    assert asked["turnlog.content.bytes_left_out"] == 1 + len(arguments.encode())
    cut = arguments.encode()[:TEXT_BYTES_MAX].decode(errors="ignore")
    assert echoed["gen_ai.tool.call.arguments"] == cut
    assert echoed["gen_ai.tool.call.result"] == "é" * (TEXT_BYTES_MAX // 2)
    left_out = len(arguments.encode()) - len(cut.encode()) + 3 * TEXT_BYTES_MAX
    assert echoed["turnlog.content.bytes_left_out"] == left_out
    assert json.loads(told["gen_ai.output.messages"])[0]["parts"] == [{"type": "text", "content": answer[:-3]}]
    assert max(len(each.body) for each in receiver.received) < 8 * 1024**2
    receiver.received.clear()
    filed.feeds.feed(OpenTelemetry(receiver.url), name="without").run()
    assert not any("turnlog.content.bytes_left_out" in attributes(span) for span in spans(receiver))


def test_spans_are_posted_as_many_as_a_collector_takes(filed: TurnLog, receiver: Receiver) -> None:
    """One batch may be several requests; spans that come after a refused one are sent with it again."""
    for letter in "abcdef":
        run(filed, Scripted(say(letter * TEXT_BYTES_MAX)), "Go.")
    receiver.answers += [Answer(keep=True), Answer(status=503, headers={"retry-after": "0"})]
    sink = OpenTelemetry(receiver.url, content=True)
    filed.feeds.feed(sink).run()
    outputs = [
        json.loads(attributes(span)["gen_ai.output.messages"])[0]["parts"][0]["content"][0] for span in spans(receiver)
    ]
    assert [len(request.resource_spans[0].scope_spans[0].spans) for request in requests(receiver)] == [3, 3, 3]
    assert outputs == [*"abc", *"abc", *"def"]
    assert sink.spans_sent == 6
    assert all(TEXT_BYTES_MAX < len(each.body) < 5 * TEXT_BYTES_MAX for each in receiver.received)


def test_what_is_sent_again_is_equal(filed: TurnLog, receiver: Receiver) -> None:
    """Byte for byte: ids are made of those of the events, whatever batches they come in."""
    with_tools(filed)
    filed.feeds.feed(OpenTelemetry(receiver.url)).run()
    first = spans(receiver)
    receiver.received.clear()
    filed.feeds.move(f"otel:{receiver.url}/v1/traces", 0)
    filed.feeds.feed(OpenTelemetry(receiver.url), batch=1).run()
    assert len(receiver.received) == 4
    assert spans(receiver) == first


def test_failed_call_is_an_error(filed: TurnLog, receiver: Receiver) -> None:
    """With the status; what was said only with content."""
    refused = ProviderError("scripted answered 400: no such thing", provider="scripted", status=400)
    run(filed, Scripted([refused]), "Go.", bookmark="main")
    filed.feeds.feed(OpenTelemetry(receiver.url)).run()
    filed.feeds.feed(OpenTelemetry(receiver.url, content=True), name="with content").run()
    plain, full = spans(receiver)
    assert (plain.status.code, plain.status.message) == (Status.STATUS_CODE_ERROR, "")
    assert attributes(plain)["error.type"] == "400"
    assert "no such thing" in full.status.message


def test_what_is_erased_or_sealed_is_not_told(url: str, receiver: Receiver, tmp_path: Path) -> None:
    """Names of tools and parameters are private; what is public stays: model and tokens."""
    with TurnLog.open(url, seals=seals_in(tmp_path / "keys")) as log:
        log.seal()
        with_tools(log)
        log.feeds.feed(OpenTelemetry(receiver.url, content=True)).run()
        assert [span.name for span in spans(receiver)] == [f"chat {MODEL}"] * 3
        assert not any(
            name in attributes(span)
            for span in spans(receiver)
            for name in ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.request.temperature")
        )
        assert attributes(spans(receiver)[0])["gen_ai.usage.output_tokens"] == 5
        receiver.received.clear()
        log.feeds.feed(OpenTelemetry(receiver.url, content=True), name="opened", unseal=True).run()
        assert len(spans(receiver)) == 5
        receiver.received.clear()
        log.erase(thread="main", reason="asked")
        log.feeds.feed(OpenTelemetry(receiver.url, content=True), name="later", unseal=True).run()
        assert [span.name for span in spans(receiver)] == [f"chat {MODEL}"] * 3
        assert not any("gen_ai.output.messages" in attributes(span) for span in spans(receiver))


def test_rejected_spans_stop_the_feed(filed: TurnLog, receiver: Receiver) -> None:
    """A collector may take a part; and it may be busy."""
    with_tools(filed)
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 2
    answer.partial_success.error_message = "too old"
    receiver.answers.append(Answer(body=answer.SerializeToString()))
    with pytest.raises(SinkError, match="rejected 2 spans: too old"):
        filed.feeds.feed(OpenTelemetry(receiver.url)).run()
    receiver.answers.append(Answer(status=503, headers={"retry-after": "0"}))
    sink = OpenTelemetry(receiver.url)
    assert filed.feeds.feed(sink).run().error is None
    assert (len(spans(receiver)), sink.spans_sent) == (5, 5)


PAGE = b"<html>hello\n proxy</html>"
REJECTED = b'{"partialSuccess": {"rejectedSpans": "1", "errorMessage": "too old"}, "more": 1}'


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("text/html", PAGE, r"its answer is no collector's \(text/html\): <html>hello proxy</html>"),
        ("application/json; charset=utf-8", PAGE, r"its answer is no collector's \(application/json\): <html>"),
        ("application/json", REJECTED, "rejected 1 spans: too old"),
        ("Application/JSON", b"\xff", "its answer is no collector's"),
    ],
)
def test_answer_that_does_not_say_that_all_were_taken_stops_the_feed(
    filed: TurnLog, receiver: Receiver, kind: str, body: bytes, said: str
) -> None:
    """A page of a proxy is none of a collector, and one in JSON is read as that."""
    with_tools(filed)
    receiver.answers.append(Answer(body=body, headers={"content-type": kind}))
    sink = OpenTelemetry(receiver.url)
    with pytest.raises(SinkError, match=said) as raised:
        filed.feeds.feed(sink).run()
    assert not raised.value.retryable
    assert sink.spans_sent == 0


@pytest.mark.parametrize(
    ("kind", "body"),
    [("application/json", b""), ("application/json", b"{}"), ("text/html", b""), ("application/x-protobuf", b"\n\0")],
)
def test_empty_answer_says_that_all_were_taken(filed: TurnLog, receiver: Receiver, kind: str, body: bytes) -> None:
    """Of whatever kind."""
    with_tools(filed)
    receiver.answers.append(Answer(body=body, headers={"content-type": kind}))
    sink = OpenTelemetry(receiver.url)
    assert filed.feeds.feed(sink).run().error is None
    assert sink.spans_sent == 5


def test_warning_of_a_collector_is_told(filed: TurnLog, receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """It has taken all spans, and the feed goes on."""
    with_tools(filed)
    answer = ExportTraceServiceResponse()
    answer.partial_success.error_message = "please\nupgrade"
    receiver.answers.append(Answer(body=answer.SerializeToString()))
    told: list[str] = []
    sink = OpenTelemetry(receiver.url, on_warning=told.append)
    assert filed.feeds.feed(sink).run().error is None
    assert sink.spans_sent == 5
    assert told == [f"otel '{receiver.url}/v1/traces' took all spans, and warns: please upgrade"]
    assert [record.getMessage() for record in caplog.records if record.name == "turnlog.feeds"] == [
        f"collector {receiver.url}/v1/traces took all spans, and warns of something"
    ]


@pytest.mark.parametrize("way", ["header", "body"])
def test_answer_has_a_deadline(filed: TurnLog, way: Way) -> None:
    """As that of a webhook has."""
    with_tools(filed)
    with TediousServer(way) as server, pytest.raises(SinkError, match=r"no answer within 0\.3 s"):
        filed.feeds.feed(OpenTelemetry(server.url, timeout_s=0.3), attempts=1).run()


def test_answer_is_read_in_part(filed: TurnLog) -> None:
    """As that of a webhook is."""
    with_tools(filed)
    with TediousServer("endless") as server:
        with pytest.raises(SinkError, match="its answer is no collector's"):
            filed.feeds.feed(OpenTelemetry(server.url), attempts=1).run()
        assert server.gone.wait(10)
    assert server.sent < 32 * 1024**2


def test_endpoint_and_service_are_taken(
    filed: TurnLog, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The path is added where it is not there; headers go along; the service is named by the variable too."""
    caplog.set_level(logging.WARNING)  # whatever level the tests before it left to the root
    with_tools(filed)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "desk")
    headers = parse_headers("x-key=a%20b,x-team=c")
    filed.feeds.feed(OpenTelemetry(f"{receiver.url}/base/v1/traces", headers=headers)).run()
    filed.feeds.feed(OpenTelemetry(f"{receiver.url}/base/", service="mine")).run()
    filed.feeds.feed(OpenTelemetry(f"{receiver.url}/base/", service="mine"), name="again").run()
    first, second = receiver.received
    assert (first.path, second.path) == ("/base/v1/traces", "/base/v1/traces")
    assert (first.headers["x-key"], first.headers["x-team"]) == ("a b", "c")
    services = [attributes(request.resource_spans[0].resource)["service.name"] for request in requests(receiver)]
    assert services == ["desk", "mine"]
    with pytest.raises(MetaError):
        OpenTelemetry("localhost:4318")
    with pytest.raises(MetaError, match=r"leave them out, and log in with a header: OTEL_EXPORTER_OTLP_HEADERS"):
        OpenTelemetry("http://ann:secret@localhost:4318")
    with pytest.raises(MetaError, match="timeout_s"):
        OpenTelemetry("http://localhost:4318", timeout_s=float("inf"))
    with pytest.raises(MetaError) as caught:
        parse_headers("secret")
    assert "secret" not in str(caught.value)
    assert caplog.records == []


def test_missing_package_is_one_line(filed: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to install."""
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'turnlog\[otel\]'"):
        filed.feeds.feed(OpenTelemetry("http://localhost:4318")).run()


def test_what_a_span_cannot_hold_is_spelled_or_bounded(
    tmp_path: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """An integer of more than 64 bits is text, and a time behind the last one is that: neither stops a feed."""
    sources = Sources(time_ms=lambda: 32_503_680_000_000)  # the year 3000
    store = open_store(f"sqlite:///{tmp_path}/log.db", projections=synchronous())
    with TurnLog(store, sources=sources) as log:
        run(log, Scripted(say("Yes.")), "Now?", bookmark="main", params={"seed": 2**63})
        assert log.feeds.feed(OpenTelemetry(receiver.url)).run().lag == 0
    [span] = spans(receiver)
    assert span.start_time_unix_nano == span.end_time_unix_nano == 2**64 - 1
    assert attributes(span)["gen_ai.request.seed"] == str(2**63)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
