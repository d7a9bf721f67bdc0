"""Inputs that real SDK clients ask a server on loopback to answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.agent.wires import Anthropic, OpenAI, Wire, set_up
from tests.unit.interop.gmi import made
from tests.wires.server import WireServer, stream, whole

from turnlog import Policy, TurnLog
from turnlog.interop import gmi
from turnlog.interop.gmi import FinishReason, GMIOutputChunk
from turnlog.providers.anthropic.request import SYSTEM_SEPARATOR

T = gmi.GMIOutputChunkType

each_wire = pytest.mark.parametrize(
    "wire",
    [Anthropic(), Anthropic(streamed=False), OpenAI(), OpenAI(streamed=False)],
    ids=lambda wire: f"{wire.provider}-{'stream' if wire.streamed else 'whole'}",
)
both = pytest.mark.parametrize("wire", [Anthropic(), OpenAI()], ids=lambda wire: wire.provider)


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the keys away that are in the environment."""
    for wire in (Anthropic, OpenAI):
        monkeypatch.delenv(wire.key_variable, raising=False)


def look(where: str) -> str:
    """Look somewhere."""
    return f"nothing {where}"


def options(wire: Wire, **more: Any) -> dict[str, Any]:
    """Return metadata that prefers the model of a wire and has a key for it."""
    preferred = {"preferredProviderId": wire.provider, "preferredModelId": wire.model, "stream": wire.streamed}
    return {"options": preferred | more, "userApiKeys": {wire.provider: made.KEY, "other": "another-key-of-nobody"}}


def system_texts(wire: Wire, body: Any) -> list[str]:
    """Return the texts of the system prompt of a request."""
    if wire.provider == "anthropic":
        return body["system"].split(SYSTEM_SEPARATOR)
    return [message["content"] for message in body["messages"] if message["role"] == "system"]


@each_wire
def test_loop_of_tools_has_the_prompt_of_its_input(log: TurnLog, wire: Wire) -> None:
    """Each request does, and can be made again byte for byte; the reply comes in chunks."""
    calls = [((f"id_{n}", "look", f'{{"where":"{n}"}}'),) for n in (1, 2)]
    metadata = made.full()["metadata"] | options(wire, temperature=0.5, maxTokens=99)
    del metadata["executionPolicy"]
    given = made.full() | {"metadata": metadata}
    gmi.record(log, made.text("i0", "You are kind.", kind="system_message", sessionId="chat-1"))
    gmi.record(log, made.text("i1", "Before.", sessionId="chat-1"))
    chunks: list[GMIOutputChunk] = []
    with WireServer(wire.reply("One.", calls[0]), wire.reply("Two.", calls[1]), wire.reply("Done.")) as server:
        log.providers.set(wire.provider, base_url=wire.base_url(server.url))
        output = gmi.run(log, given, tools=look, on_chunk=chunks.append, policy=Policy(approve="auto"))
        received = list(server.received)
    assert (output.response_text, output.finish_reason) == ("Done.", FinishReason.STOP)
    assert ["".join(chunk.content for chunk in chunks if chunk.type == T.TEXT_DELTA)] == ["One.Two.Done."]  # pyright: ignore[reportArgumentType]
    assert [chunk.content for chunk in chunks if chunk.type == T.TOOL_CALL_REQUEST] == [
        [{"id": f"id_{n}", "name": "look", "arguments": {"where": str(n)}}] for n in (1, 2)
    ]
    assert output.usage.total_tokens == 90
    for number, request in enumerate(received):
        body = msgspec.json.decode(request.body)
        texts = system_texts(wire, body)
        assert [text.partition("\n")[0] for text in texts] == [
            "You are kind.",
            "Be brief.",
            "User context (JSON):",
            "Task context (JSON):",
            "You can add.",
            "Summary of the conversation so far:",
            "Summary of the conversation so far (JSON):",
        ]
        assert "Before." not in request.body.decode()
        assert body["temperature"] == 0.5
        assert 99 in (body.get("max_tokens"), body.get("max_completion_tokens"))
        talk = [message for message in body["messages"] if message["role"] != "system"]
        assert len(talk) == 3 + 2 * number
    checks = list(log.calls.check("chat-1"))
    assert [(check.difference, check.reply_difference) for check in checks] == [(None, None)] * 3
    assert not log.verify().damage


@both
def test_key_of_the_user_is_used_and_stored_nowhere(
    file_log: TurnLog, store_path: Path, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither after a run, nor after one whose provider repeats the key that it refuses."""
    monkeypatch.setenv(wire.key_variable, "the-key-of-the-house")
    refused = msgspec.json.encode({"type": "error", "error": {"type": "auth", "message": f"no such key {made.KEY}"}})
    with WireServer(wire.reply("Yes."), whole(refused, status=401)) as server:
        set_up(file_log, wire, server.url)
        for interaction in ("i1", "i2"):
            output = gmi.run(file_log, made.text(interaction, metadata=options(wire)), pointer="kilo")
        headers = [request.headers for request in server.received]
    for sent in headers:
        assert made.KEY in (sent.get("x-api-key"), sent.get("authorization", "").removeprefix("Bearer "))
    assert output.finish_reason == FinishReason.ERROR
    assert made.KEY not in output.model_dump_json()
    assert "no such key" in output.model_dump_json()
    file_log.close()
    stored = b"".join(path.read_bytes() for path in sorted(store_path.parent.rglob("*")) if path.is_file())
    assert b"no such key" in stored
    assert made.KEY.encode() not in stored
    assert b"another-key-of-nobody" not in stored


@both
def test_key_of_the_house_is_used_where_the_user_has_none(
    log: TurnLog, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the names of providers are read in any case."""
    monkeypatch.setenv(wire.key_variable, "the-key-of-the-house")
    with WireServer(wire.reply("Yes."), wire.reply("Yes.")) as server:
        set_up(log, wire, server.url)
        gmi.run(log, made.text("i1", metadata={"userApiKeys": {"other": made.KEY}}), pointer="kilo")
        gmi.run(log, made.text("i2", metadata={"userApiKeys": {wire.provider.upper(): made.KEY}}), pointer="kilo")
        keys = [
            sent.headers.get("x-api-key") or sent.headers.get("authorization", "").removeprefix("Bearer ")
            for sent in server.received
        ]
    assert keys == ["the-key-of-the-house", made.KEY]


def test_options_are_parameters_of_the_wire(log: TurnLog) -> None:
    """Those of OpenAI; custom ones go as they are, and what it has not is told."""
    wire = OpenAI()
    given = options(
        wire,
        topP=0.5,
        presencePenalty=0.25,
        frequencyPenalty=-0.25,
        stopSequences=["END"],
        userId="u-9",
        topK=4,
        toolChoice={"type": "function", "function": {"name": "look"}},
        responseFormat={"type": "json_object"},
        customModelParams={"seed": 7},
    )
    with WireServer(wire.reply("Yes.")) as server:
        log.providers.set(wire.provider, base_url=wire.base_url(server.url))
        output = gmi.run(log, made.text(metadata=given), tools=look)
        body = msgspec.json.decode(server.received[0].body)
    assert {name: body[name] for name in body.keys() - {"messages", "tools", "model", "stream", "stream_options"}} == {
        "top_p": 0.5,
        "presence_penalty": 0.25,
        "frequency_penalty": -0.25,
        "stop": ["END"],
        "user": "u-9",
        "seed": 7,
        "tool_choice": {"type": "function", "function": {"name": "look"}},
        "response_format": {"type": "json_object"},
    }
    assert output.notes == ["options.topK is not carried: the api 'chat_completions' has no such parameter"]


def test_options_are_parameters_of_the_other_wire(log: TurnLog) -> None:
    """Those of Anthropic: what it has not is told in the output and as a chunk, and the call is made without it."""
    wire = Anthropic()
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    given = options(
        wire,
        presencePenalty=0.25,
        stop_sequences="END",
        userId="u-9",
        topK=4,
        toolChoice="any",
        responseFormat={"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": schema}},
    )
    chunks: list[GMIOutputChunk] = []
    with WireServer(wire.reply("Yes.")) as server:
        log.providers.set(wire.provider, base_url=wire.base_url(server.url))
        output = gmi.run(log, made.text(metadata=given), tools=look, on_chunk=chunks.append)
        body = msgspec.json.decode(server.received[0].body)
    assert output.response_text == "Yes."
    names = ("stop_sequences", "metadata", "top_k", "tool_choice", "output_config")
    assert {name: body[name] for name in names} == {
        "stop_sequences": ["END"],
        "metadata": {"user_id": "u-9"},
        "top_k": 4,
        "tool_choice": {"type": "any"},
        "output_config": {"format": {"type": "json_schema", "schema": schema}},
    }
    assert output.notes == ["options.presencePenalty is not carried: the api 'messages' has no such parameter"]
    assert [chunk.content for chunk in chunks if chunk.type == T.SYSTEM_MESSAGE] == output.notes


def test_time_out_of_the_request_is_that_of_the_connection(log: TurnLog) -> None:
    """A provider that hangs is given up after it."""
    wire = OpenAI()
    with WireServer(stream(wire.events("Half")[:1], hang=True)) as server:
        log.providers.set(wire.provider, base_url=wire.base_url(server.url))
        output = gmi.run(log, made.text(metadata=options(wire, requestTimeout=200)))
    assert output.finish_reason == FinishReason.ERROR
    assert output.error is not None
    assert output.error.details is not None
    assert output.error.details["retryable"] is True


@both
def test_stream_of_chunks_comes_from_the_wire(log: TurnLog, wire: Wire) -> None:
    """Text as it is streamed, the thinking of those who think, and the end."""

    async def go() -> list[GMIOutputChunk]:
        return [chunk async for chunk in gmi.stream(log, made.text(sessionId="s"), pointer="kilo")]

    with WireServer(wire.reply("Hello.", thought="Hm.")) as server:
        set_up(log, wire, server.url)
        chunks = asyncio.run(go())
    told = {kind: [chunk.content for chunk in chunks if chunk.type == kind] for kind in T}
    assert told[T.TEXT_DELTA] == ["Hello."]
    assert told[T.REASONING_STATE_UPDATE] == (["Hm."] if wire.provider == "anthropic" else [])
    assert chunks[-1].content == gmi.output_of(log, "s").model_dump(mode="json", by_alias=True)
