"""Runs with an MCP server that misbehaves: what the model is told, what the log has, how long it takes.

The table in `docs/reference/failures.md` is held against what is seen here.
"""

import os
import sys
from pathlib import Path

import pytest
from tests.agent.running import run
from tests.agent.scripted import Scripted, call, say
from tests.agent.servers import OneToolServer
from tests.wires.server import Answer, stream, whole

from turnlog import TurnLog
from turnlog.agent.events import RunEvent, ToolsNoted
from turnlog.model import Text, ToolResult

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "failures.md"
PROGRAM = Path(__file__).parent / "programs" / "misbehaving.py"
SECRET = "tok-1234567890"
TIMEOUT_S = 0.3
LONG_S = 60.0

CASES = {
    "nothing": "answers nothing",
    "late_answer": "answers when the call was given up",
    "progress": "tells of progress for ever",
    "forever": "begins an answer that has no end",
    "wrong_json": "answers with what is not JSON",
    "huge": "answers with 20 MB",
    "secret": "answers with a secret that it was given by `--env`",
    "changing_tools": "answers, and has other tools from then on",
    "crash": "crashes",
}
"""How the server misbehaves, and the first cell of the row in the table."""

GIVEN_UP = {"nothing", "late_answer", "progress", "forever", "wrong_json"}
"""Those that the call is given up of: they get a short time-out."""

PAGE_OF_HTML = Answer(headers={"content-type": "text/html"}, chunks=[b"<html>"])
NOT_NOW = b'{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"not now"}}'

HTTP_CASES = {
    "ends its stream before the result": stream([]),
    "breaks its stream off before the result": stream([], cut=True),
    "breaks off behind the headers": Answer(headers={"content-type": "application/json"}, cut=True),
    "answers with nothing": Answer(headers={"content-type": "application/json"}),
    "answers with no type of content": Answer(status=204),
    "answers with what is not JSON": whole(b"{nope"),
    "answers with what is not JSON, in a stream": stream([b"{nope"]),
    "answers with a page of HTML": PAGE_OF_HTML,
    "answers 202": Answer(status=202),
    "answers 303": Answer(status=303, headers={"location": "http://other.example/"}),
    "answers 307": Answer(status=307, headers={"location": "http://other.example/"}),
    "answers 400": Answer(status=400),
    "answers 401": Answer(status=401),
    "answers 405": Answer(status=405),
    "answers 429": Answer(status=429),
    "answers 500": Answer(status=500),
    "answers 500, with an error of the protocol": whole(NOT_NOW, status=500),
    "answers 504": Answer(status=504),
    "answers with an error of the protocol": whole(NOT_NOW),
}
"""What a server over HTTP answers to a call: the first cell of the row in the table."""


def rows(heading: str) -> dict[str, str]:
    """Return the rows of the table below a heading of the page, by their first cells."""
    _, _, section = PAGE.read_text("utf-8").partition(f"\n## {heading}\n")
    table = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    return {line.split(" | ")[0].removeprefix("| "): line for line in table[1:]}


def row(*cells: str) -> str:
    """Return the row of a table."""
    return f"| {' | '.join(cells)} |"


def test_the_page_has_a_row_for_each_way_to_misbehave() -> None:
    """And no other."""
    assert list(rows("MCP servers")) == list(CASES.values())
    assert list(rows("MCP servers over HTTP")) == list(HTTP_CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_server_that_misbehaves_is_a_result_and_the_run_goes_on(
    log: TurnLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As the page says it: the result, what the log has, the time, the next call. No process is left."""
    monkeypatch.setenv("SERVER_TOKEN", SECRET)
    note = tmp_path / "process"
    log.servers.set("s", [sys.executable, str(PROGRAM), name, str(note)], env=["SERVER_TOKEN"])
    adapter = Scripted(call(("s___go", {})), call(("s___go", {})), say("Done."))
    timeout_s = TIMEOUT_S if name in GIVEN_UP else LONG_S
    told: list[RunEvent] = []
    result = run(log, adapter, servers=["s"], bookmark="main", tool_timeout_s=timeout_s, on_event=told.append)

    assert result.stopped == "done"
    assert [event for event in told if isinstance(event, ToolsNoted)] == []
    assert log.verify().clean
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)
    assert SECRET.encode() not in stored(log)

    asked = [turn.id for turn in result.turns if log.tool_calls.of(turn.id)]
    [first], [second] = (log.tool_calls.of(turn) for turn in asked)
    assert [len(each.attempts) for each in (first, second)] == [1, 1]
    kept, sent = text(first.result), adapter.bodies[1]["messages"][-1]["content"][0]["content"][0]["text"]
    attempt = first.attempts[0]
    assert isinstance(attempt.duration_ms, int)
    assert rows("MCP servers").get(CASES[name]) == row(
        CASES[name],
        quoted(sent if sent == kept else f"… {sent.partition('[')[2].partition('. ')[0]}."),
        f"`{attempt.ending}`" + ("" if sent == kept else f", all {len(kept.encode()):,} bytes"),
        "the time-out" if attempt.duration_ms > timeout_s * 900 else "less than the time-out",
        quoted(text(second.result)),
    )


@pytest.mark.parametrize("name", HTTP_CASES)
def test_a_call_over_http_is_repeated_only_where_the_server_has_refused_it(log: TurnLog, name: str) -> None:
    """As the page says it, in a run that tries tools again: the result, what the log has, how often it was called."""
    with OneToolServer(HTTP_CASES[name]) as server:
        log.servers.set("s", url=f"{server.url}/mcp")
        adapter = Scripted(call(("s___go", {})), say("Done."))
        result = run(log, adapter, servers=["s"], on_tool_error="retry", tool_retry_wait_s=0.01)
        address = f"{server.url}/mcp"

    assert result.stopped == "done"
    [turn] = [turn.id for turn in result.turns if log.tool_calls.of(turn.id)]
    [called] = log.tool_calls.of(turn)
    assert server.calls == len(called.attempts)
    [ending] = {attempt.ending for attempt in called.attempts}
    assert rows("MCP servers over HTTP").get(name) == row(
        name, quoted(text(called.result).replace(address, "ADDRESS")), f"`{ending}`", str(server.calls)
    )


def text(result: ToolResult | None) -> str:
    """Return the one text of a result."""
    assert result is not None
    [block] = result.content
    assert isinstance(block, Text)
    return block.text


def quoted(said: str) -> str:
    """Return a text as a cell has it."""
    return f"`{said.replace(chr(10), ' ')}`"


def stored(log: TurnLog) -> bytes:
    """Return all that a log has."""
    with log.store.read() as transaction:
        return b"".join(
            recorded.state + (recorded.private_state or b"") + (transaction.payload(recorded) or b"")
            for recorded in transaction.log()
        )
