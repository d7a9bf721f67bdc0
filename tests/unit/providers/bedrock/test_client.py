"""Calls of Bedrock's Converse API, to a server that speaks its wire: what is its own, beside what all wires do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.providers.bedrock.wire import MODEL, STREAM, add_up
from tests.unit.providers.carrying import message
from tests.wires import server
from tests.wires.eventstream import event, eventstream
from tests.wires.server import Answer, WireServer

from turnlog import ProviderError
from turnlog.model import ContextWindow
from turnlog.providers import Connection, PreparedRequest, Reply, get
from turnlog.providers.bedrock import client

KEY = "bedrock-api-key-1234567890"
TYPE = {"content-type": "application/vnd.amazon.eventstream"}
Caller = Callable[..., Reply]


def _acall(*arguments: Any, **keywords: Any) -> Reply:
    return asyncio.run(get("bedrock").acall(*arguments, **keywords))


@pytest.fixture(params=[pytest.param(get("bedrock").call, id="sync"), pytest.param(_acall, id="async")])
def call(request: pytest.FixtureRequest) -> Caller:
    """Give both ways to call."""
    return request.param


@pytest.fixture(autouse=True)
def without_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away the regions of whoever runs the tests."""
    for name in client.REGION_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def prepared(model: str = MODEL) -> PreparedRequest:
    """Return a request."""
    window = ContextWindow(messages=[message("user", "caf\u00e9 \u2028")], options={})
    return get("bedrock").prepare_request(window, model=model)


def to(found: WireServer, **fields: Any) -> Connection:
    """Return the connection to a server."""
    return Connection(**{"api_key": KEY, "base_url": f"{found.url}/", "timeout_s": 20.0, "retries_max": 0} | fields)


@pytest.mark.parametrize(
    ("model", "path"),
    [
        (
            "arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.x-v1:0",
            "arn%3Aaws%3Abedrock%3Aeu-west-1%3A123456789012%3Ainference-profile%2Feu.x-v1%3A0",
        ),
        ("../x?y#z", "..%2Fx%3Fy%23z"),
    ],
)
def test_name_of_a_model_is_one_segment_of_the_path(model: str, path: str) -> None:
    """Whatever stands in it."""
    with WireServer(eventstream(STREAM)) as found:
        reply = get("bedrock").call(prepared(model), to(found))
    [received] = found.received
    assert received.path == f"/model/{path}/converse-stream"
    assert reply.response == add_up(*STREAM, model=model)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (b"<html>no stream</html>", "the lengths of a message do not have their checksum"),
        (event(STREAM[0])[:-1] + b"?", "a message does not have its checksum"),
        (event(STREAM[0])[:-1], "the stream ended within a message"),
    ],
    ids=["html", "changed", "cut"],
)
def test_damaged_stream_is_an_error_with_what_had_come(call: Caller, damage: bytes, said: str) -> None:
    """The same call may succeed later."""
    come = STREAM[:7]
    with WireServer(Answer(headers=TYPE, chunks=[*map(event, come), damage])) as found:
        response = call(prepared(), to(found)).response
    assert response.error is not None
    line = f"bedrock at {found.url} broke off: {said} (DamagedStream) (retryable)"
    assert response.error.line() == line
    assert response.content == add_up(*come).content


# Regions


def test_region_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`AWS_REGION` goes before `AWS_DEFAULT_REGION`, and a base URL before both."""
    connection = Connection(api_key=KEY)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert client.base_url("bedrock", "bedrock", connection) == "https://bedrock.eu-west-1.amazonaws.com"
    monkeypatch.setenv("AWS_REGION", " us-gov-east-1 ")
    runtime = "https://bedrock-runtime.us-gov-east-1.amazonaws.com"
    assert client.base_url("bedrock", "bedrock-runtime", connection) == runtime
    proxy = Connection(api_key=KEY, base_url="https://proxy.example/aws/")
    assert client.base_url("bedrock", "bedrock-runtime", proxy) == "https://proxy.example/aws"


@pytest.mark.parametrize(
    ("region", "said"),
    [
        (None, "bedrock: no region: set AWS_REGION or AWS_DEFAULT_REGION, or give a base URL"),
        ("evil.example/", "bedrock: 'evil.example/' is not a region: set it as in 'us-east-1'"),
    ],
)
def test_call_without_a_region_is_an_error(
    call: Caller, monkeypatch: pytest.MonkeyPatch, region: str | None, said: str
) -> None:
    """It says what to set, and nothing is sent, not the key either."""
    if region is not None:
        monkeypatch.setenv("AWS_REGION", region)
    response = call(prepared(), Connection(api_key=KEY)).response
    assert response.error is not None
    assert (response.error.message, response.error.retryable) == (said, False)
    with pytest.raises(ProviderError) as caught:
        get("bedrock").models(Connection(api_key=KEY))
    assert str(caught.value) == said


# Models


def test_models_are_those_on_demand_and_all_profiles() -> None:
    """From all pages, sorted, each once; a page that leads to itself is the last."""
    answers = [
        b'{"modelSummaries":[{"modelId":"z.z","inferenceTypesSupported":["ON_DEMAND"]},{"modelId":"y.y"},'
        b'{"modelId":"x.x","inferenceTypesSupported":["INFERENCE_PROFILE"]}]}',
        b'{"inferenceProfileSummaries":[{"inferenceProfileId":"eu.x.x"}],"nextToken":"t/2"}',
        b'{"inferenceProfileSummaries":[{"inferenceProfileId":"eu.x.x"}],"nextToken":"t/2"}',
    ]
    with WireServer(*map(server.whole, answers)) as found:
        assert get("bedrock").models(to(found)) == ["eu.x.x", "y.y", "z.z"]
    assert [received.path for received in found.received] == [
        "/foundation-models?byOutputModality=TEXT",
        "/inference-profiles?maxResults=1000",
        "/inference-profiles?maxResults=1000&nextToken=t%2F2",
    ]
    assert {received.headers["authorization"] for received in found.received} == {f"Bearer {KEY}"}
