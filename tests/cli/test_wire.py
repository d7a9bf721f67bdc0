"""`turnlog wire`: windows and replies through an adapter, JSON in and JSON out."""

import json
from pathlib import Path

import pytest
from tests.cli.command import Command

from turnlog import TurnLog

WINDOW = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}], "options": {}}
TOOLS = [{"name": "fs___read", "description": "Read a file.", "inputSchema": {"type": "object", "properties": {}}}]
CHUNKS = [
    {"id": "c1", "model": "m-1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hi"}}]},
    {"id": "c1", "model": "m-1", "choices": [{"index": 0, "delta": {"content": " there"}}]},
    {"id": "c1", "model": "m-1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
]
WHOLE = {
    "id": "c1",
    "object": "chat.completion",
    "model": "m-1",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi there"}, "finish_reason": "stop"}],
}


def lines(values: list[object]) -> bytes:
    """Return values as JSON lines."""
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


@pytest.fixture
def window(tmp_path: Path) -> Path:
    """Give a file with a window."""
    path = tmp_path / "window.json"
    path.write_text(json.dumps(WINDOW))
    return path


def test_prepare_prints_the_request_body(turnlog: Command, window: Path, tmp_path: Path) -> None:
    """With tools and parameters; no store is needed or made."""
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps(TOOLS))
    arguments = (
        "--provider",
        "openai_chat",
        "--model",
        "m",
        "--tools",
        tools,
        "--param",
        "max_tokens=5",
        "--no-stream",
    )
    body = turnlog.ok("wire", "prepare", window, *arguments).json
    assert body["messages"] == [{"role": "user", "content": "Hello"}]
    assert (body["model"], body["stream"], body["max_completion_tokens"]) == ("m", False, 5)
    assert body["tools"][0]["function"]["name"] == "fs___read"
    assert turnlog.ok("wire", "prepare", "-", *arguments, stdin=window.read_bytes()).json == body
    assert not turnlog.store.exists()


def test_window_of_the_log_goes_in_as_it_is_printed(turnlog: Command) -> None:
    """`context --json` prints what `wire prepare` reads."""
    with TurnLog.open(turnlog.url) as log:
        log.add_turn("Hello", bookmark="main")
    printed = turnlog.ok("context", "main", "--json").stdout
    body = turnlog.ok("wire", "prepare", "-", "--provider", "anthropic", "--model", "m", stdin=printed).json
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]


def test_report_says_what_was_lost_and_where(turnlog: Command, tmp_path: Path) -> None:
    """Each entry names the turn and the block."""
    window = tmp_path / "window.json"
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    said = {"role": "assistant", "content": [thinking, {"type": "text", "text": "Hi"}]}
    window.write_text(json.dumps({"messages": [*WINDOW["messages"], said], "options": {}}))
    report = tmp_path / "report.json"
    arguments = ("wire", "prepare", window, "--provider", "cohere", "--model", "m")
    turnlog.ok(*arguments, "--report", report)
    [entry] = json.loads(report.read_bytes())["entries"]
    assert (entry["kind"], entry["turn"], entry["block"], entry["index"]) == ("dropped", "messages[1]", "thinking", 0)
    refusal = turnlog.refused(*arguments, "--on-loss", "error")
    assert refusal.startswith("cohere cannot carry turn 'messages[1]', block 0: thinking")


def test_refusal_is_one_line_and_status_2(turnlog: Command, window: Path, tmp_path: Path) -> None:
    """Whether the wire, the window or the command line is at fault; nothing is printed."""
    searching = tmp_path / "search.json"
    searching.write_text(json.dumps({**WINDOW, "options": {"search": True}}))
    model = ("--model", "m")
    assert "search" in turnlog.refused("wire", "prepare", searching, "--provider", "openai_chat", *model)
    assert turnlog.refused("wire", "prepare", window, "--provider", "nobody", *model).startswith("no provider 'nobody'")
    cohere = ("wire", "prepare", "-", "--provider", "cohere", *model)
    message = turnlog.refused(*cohere, stdin=b'{"messages":[{}]}')
    assert message == "window.messages[0]: object missing required field 'role'"
    assert "not valid JSON" in turnlog.refused(*cohere, stdin=b"{")
    missing = tmp_path / "none.json"
    assert str(missing) in turnlog.refused("wire", "prepare", missing, "--provider", "cohere", *model)
    bad = ("--param", "x")
    assert "NAME=VALUE" in turnlog.refused("wire", "prepare", window, "--provider", "cohere", *model, *bad)
    taken = ("--param", "messages=[]")
    assert "params.messages" in turnlog.refused("wire", "prepare", window, "--provider", "cohere", *model, *taken)


def test_aggregate_prints_the_normalized_response(turnlog: Command, tmp_path: Path) -> None:
    """The same for a stream, for a whole reply, and for what came over HTTP."""
    stream, whole, http = tmp_path / "stream.jsonl", tmp_path / "whole.json", tmp_path / "http.txt"
    stream.write_bytes(lines(list(CHUNKS)))
    whole.write_text(json.dumps(WHOLE, indent=2))
    http.write_bytes(b"".join(b"data: " + json.dumps(c).encode() + b"\n\n" for c in CHUNKS) + b"data: [DONE]\n\n")
    responses = [turnlog.ok("wire", "aggregate", path, "--provider", "openai").json for path in (stream, whole, http)]
    assert responses[0] == responses[1] == responses[2]
    assert responses[0]["message"] == {
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": [{"type": "text", "text": "Hi there"}],
        "stop_reason": "stop",
    }
    assert (responses[0]["provider"], responses[0]["raw_stop_reason"], responses[0]["id"]) == ("openai", "stop", "c1")


def test_stop_reason_is_said_in_the_words_of_others(turnlog: Command) -> None:
    """Those of gpt2099 and of the canonical types."""
    for spelling, word in (("messages", "end_turn"), ("canonical", "stop"), ("turnlog", "stop")):
        arguments = ("wire", "aggregate", "-", "--provider", "openai", "--stop-reasons", spelling)
        assert turnlog.ok(*arguments, stdin=lines(list(CHUNKS))).json["message"]["stop_reason"] == word


def test_stream_that_was_cut_is_a_response_with_an_error(turnlog: Command) -> None:
    """What had arrived is there."""
    cut = lines(list(CHUNKS[:2]))
    response = turnlog.ok("wire", "aggregate", "-", "--provider", "openai_chat", stdin=cut).json
    assert response["message"]["content"] == [{"type": "text", "text": "Hi there"}]
    assert response["message"]["stop_reason"] == "error"
    assert response["error"]["retryable"] is True


def test_deltas_are_printed_one_a_line(turnlog: Command) -> None:
    """What a terminal would show as it comes."""
    printed = turnlog.ok("wire", "deltas", "-", "--provider", "openai_chat", stdin=lines(list(CHUNKS))).json_lines
    assert printed == [{"type": "text", "content": "Hi"}, {"type": "text", "content": " there"}]


def test_content_of_a_reply_goes_back_as_it_was_printed(turnlog: Command) -> None:
    """What `wire aggregate` prints is what `wire prepare` reads, blocks of the provider's own included."""
    search = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}
    reply = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [search, found, {"type": "text", "text": "It is so."}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    response = turnlog.ok("wire", "aggregate", "-", "--provider", "anthropic", stdin=json.dumps(reply).encode()).json
    said = {"role": "assistant", "content": response["message"]["content"]}
    window = json.dumps({"messages": [*WINDOW["messages"], said, *WINDOW["messages"]], "options": {}}).encode()
    prepare = ("wire", "prepare", "-", "--model", "m")
    body = turnlog.ok(*prepare, "--provider", "anthropic", stdin=window).json
    assert body["messages"][1]["content"] == reply["content"]
    said |= {"provider": "anthropic", "api": "messages", "model": "m"}
    window = json.dumps({"messages": [*WINDOW["messages"], said], "options": {}}).encode()
    body = turnlog.ok(*prepare, "--provider", "gemini", stdin=window).json
    assert body["contents"][1]["parts"] == [{"text": "It is so."}]


def test_deltas_have_characters_whose_halves_are_in_two_events(turnlog: Command) -> None:
    """As what is shown while a run streams."""
    pieces = [r'{"type":"text_delta","text":"Hi \ud83d"}', r'{"type":"text_delta","text":"\ude00!"}']
    events = [f'{{"type":"content_block_delta","index":0,"delta":{piece}}}\n'.encode() for piece in pieces]
    printed = turnlog.ok("wire", "deltas", "-", "--provider", "anthropic", stdin=b"".join(events)).json_lines
    assert [delta["content"] for delta in printed] == ["Hi ", "\U0001f600!"]


@pytest.mark.parametrize("command", ["aggregate", "deltas"])
def test_events_that_are_nested_too_deeply_are_refused(turnlog: Command, command: str) -> None:
    """In one line, and no word of what reads them."""
    events = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n\n"
    line = turnlog.refused("wire", command, "-", "--provider", "openai", stdin=events)
    assert line == "events: nested too deeply"


def test_no_events_are_refused(turnlog: Command) -> None:
    """An empty file is a mistake, and no empty reply."""
    assert turnlog.refused("wire", "aggregate", "-", "--provider", "cohere", stdin=b"\n") == "there are no events in it"
