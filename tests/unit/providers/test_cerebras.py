"""Cerebras: where it differs from Chat Completions."""

import json

from tests.unit.providers.carrying import message
from tests.wires.server import WireServer, stream

from turnlog.model import ContextWindow, Text, Thinking, Usage, parse_tools
from turnlog.providers import Connection, get
from turnlog.providers.cerebras import Cerebras

WINDOW = ContextWindow(messages=(message("user", "hello"),), options={})


def test_cerebras_is_found_by_its_name() -> None:
    """The adapter has its own names, key and endpoint."""
    adapter = get("cerebras")
    assert isinstance(adapter, Cerebras)
    assert (adapter.name, adapter.provider, adapter.api) == ("cerebras", "cerebras", "chat_completions")
    assert (adapter.key_variable, dict(adapter.call_params)) == ("CEREBRAS_API_KEY", {})
    assert adapter._at_endpoint(Connection()).base_url == "https://api.cerebras.ai/v1"
    assert adapter._at_endpoint(Connection(base_url="http://here")).base_url == "http://here"


def test_schema_keywords_that_it_refuses_are_dropped_and_reported() -> None:
    """Keywords go, a property that is called like one stays, and the report names the tool."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"format": {"type": "string", "format": "date"}, "n": {"type": "integer", "minimum": 1}},
        "required": ["format"],
    }
    tools = parse_tools(json.dumps([{"name": "t", "inputSchema": schema}, {"name": "u"}]))
    request = Cerebras().prepare_request(WINDOW, tools, model="m")
    assert json.loads(request.body)["tools"][0]["function"]["parameters"] == {
        "type": "object",
        "properties": {"format": {"type": "string"}, "n": {"type": "integer", "minimum": 1}},
        "required": ["format"],
    }
    [entry] = request.loss_report.entries
    assert (entry.kind, entry.block, entry.turn) == ("downgraded", "tool", "")
    assert entry.why == "the schema of 't' without the keywords $schema, format"


def test_limit_has_the_newer_name() -> None:
    """It knows `max_completion_tokens`."""
    body = json.loads(Cerebras().prepare_request(WINDOW, model="m", params={"max_tokens": 9}).body)
    assert body["max_completion_tokens"] == 9


def test_call_goes_through_with_thinking_and_usage() -> None:
    """Reasoning comes in a field of its own, usage with the last chunk, and timings are kept."""
    events = [
        b'{"id":"r","model":"gpt-oss-120b","choices":[{"delta":{"role":"assistant","reasoning":"hm"},"index":0}]}',
        b'{"id":"r","model":"gpt-oss-120b","choices":[{"delta":{"content":"hi"},"index":0}]}',
        b'{"id":"r","model":"gpt-oss-120b","choices":[{"delta":{},"finish_reason":"stop","index":0}],'
        b'"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10,"prompt_tokens_details":'
        b'{"cached_tokens":5}},"time_info":{"queue_time":0.00036142}}',
    ]
    adapter = Cerebras()
    request = adapter.prepare_request(WINDOW, model="gpt-oss-120b")
    with WireServer(stream(events, done=True)) as server:
        response = adapter.call(request, Connection(api_key="k", base_url=server.url)).response
    assert server.received[0].body == request.body
    assert response.content == (
        Thinking(thinking="hm", provider="cerebras", api="chat_completions", model="gpt-oss-120b"),
        Text(text="hi"),
    )
    assert response.usage == Usage(input_tokens=2, output_tokens=3, cache_read_input_tokens=5)
    assert bytes(response.extra["time_info"]) == b'{"queue_time":0.00036142}'
    assert response.provider == "cerebras"
