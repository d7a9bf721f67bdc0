"""`McpTools` when servers crash, hang, vanish, refuse or talk nonsense."""

import asyncio
import html
import json
import logging
import os
import re
import sys
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import cast
from urllib.parse import quote, quote_plus

import httpx2
import msgspec
import pytest
from msgspec import Raw
from tests.agent.servers import HttpServer, JsonServer, odd, stdio
from tests.agent.test_mcp import called, listed, said, used
from tests.wires.server import Answer, WireServer, whole

from turnlog.agent.mcp.failures import StderrTail, reason
from turnlog.agent.mcp.launch import Launch
from turnlog.agent.mcp.server import STARTS_MAX
from turnlog.agent.mcp.tools import McpTools
from turnlog.agent.toolbox import ToolOutcome
from turnlog.errors import ToolServerError
from turnlog.model import Document, ServerMeta, Source, Text, Tool

NOTHING = Raw(b"{}")
NOT_REPEATED = "The call was not repeated, for it may have had effects."


def text_of(outcome: ToolOutcome) -> str:
    """Return the one text of an outcome."""
    [block] = outcome.content
    assert isinstance(block, Text)
    return block.text


def failure(meta: ServerMeta, **options: object) -> str:
    """Return why the tools of a server cannot be listed."""
    with pytest.raises(ToolServerError) as caught:
        listed(meta, **options)
    assert caught.value.server == meta.name
    return str(caught.value)


def program(*command: str) -> ServerMeta:
    """Return the registration of a program."""
    return ServerMeta(action="register", name="x", command=command)


@pytest.fixture
def http() -> Iterator[HttpServer]:
    """Give a server over HTTP that a test may kill."""
    with HttpServer() as server:
        yield server


def test_a_call_whose_server_crashes_is_an_error_and_the_next_one_starts_it_anew() -> None:
    """The error says what the server said last, and that the call was not repeated."""

    async def use(tools: McpTools) -> None:
        before = text_of(await tools.call("s___process", NOTHING))
        crashed = await tools.call("s___crash", Raw(b'{"message":"out of\\nmemory"}'))
        assert crashed == ToolOutcome.error(
            "MCP server 's' ended during the call; the last it said: out of\nmemory\n"
            "The call was not repeated, for it may have had effects.",
            may_have_had_effects=True,
        )
        assert len(await tools.tools()) > 10
        after = await tools.call("s___process", NOTHING)
        assert not after.is_error
        assert text_of(after) != before

    used(stdio(), use)


def test_a_server_that_has_to_be_terminated_is_in_the_records(caplog: pytest.LogCaptureFixture) -> None:
    """Under `turnlog`, without its command, which may have a secret in it."""
    failure(program(sys.executable, "-c", "import time; time.sleep(60)"), start_timeout_s=0.2)
    said = next(record.getMessage() for record in caplog.records if record.name == "turnlog.mcp")
    assert re.fullmatch(r"process \d+ of an MCP server went on when its input had ended: it is terminated", said)


@pytest.mark.parametrize("given_up", [False, True])
def test_a_server_that_is_given_up_while_it_starts_is_none_that_fails(
    caplog: pytest.LogCaptureFixture, *, given_up: bool
) -> None:
    """Whoever cancels a run then has no fault of the server's in the records."""

    silent = program(sys.executable, "-c", "import time; time.sleep(60)")

    async def start() -> None:
        async with asyncio.timeout(0.3 if given_up else 60):
            async with McpTools([silent], start_timeout_s=60 if given_up else 0.2) as tools:
                await tools.tools()

    with pytest.raises(TimeoutError if given_up else ToolServerError):
        asyncio.run(start())
    said = [record.getMessage() for record in caplog.records if record.name == "turnlog.mcp"]
    assert any("could not be started" in each for each in said) is not given_up


def test_a_message_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is ended, so that it takes no more memory, and started anew for the next call."""
    monkeypatch.setattr("turnlog.agent.mcp.program.LINE_BYTES_MAX", 1_000_000)

    async def use(tools: McpTools) -> None:
        assert text_of(await tools.call("s___huge", Raw(b'{"characters":900000}'))) == "x" * 900_000
        given_up = await tools.call("s___huge", Raw(b'{"characters":5000000}'))
        assert given_up == ToolOutcome.error(
            "MCP server 's' wrote a message of more than 1,000,000 bytes\n"
            "The call was not repeated, for it may have had effects.",
            may_have_had_effects=True,
        )
        assert await tools.call("s___echo", Raw(b'{"text":"x"}')) == said("x")

    used(stdio(), use)


def test_calls_under_way_when_the_server_crashes_are_errors() -> None:
    """All of them, and none hangs."""

    async def use(tools: McpTools) -> None:
        others = [asyncio.create_task(tools.call("s___wait", NOTHING)) for _ in range(3)]
        assert await tools.call("s___echo", Raw(b'{"text":"x"}')) == said("x")
        crash = await tools.call("s___crash", Raw(b'{"message":"bye"}'))
        assert {text_of(outcome) for outcome in await asyncio.gather(*others)} == {text_of(crash)}

    used(stdio(), use)


def runs(process: int) -> bool:
    """Return whether there is a process of this id."""
    with suppress(ProcessLookupError):
        os.kill(process, 0)
        return True
    return False


async def ended(process: int) -> None:
    """Wait until a process is gone, and until that was noticed."""
    for _ in iter(partial(runs, process), False):
        await asyncio.sleep(0)
    for _ in range(100):
        await asyncio.sleep(0)


def test_a_server_that_ended_between_calls_is_started_anew_and_the_call_succeeds() -> None:
    """Nothing was sent to the one that ended, so the call is made."""

    async def use(tools: McpTools) -> None:
        first = int(text_of(await tools.call("odd___go", NOTHING)))
        await ended(first)
        assert int(text_of(await tools.call("odd___go", NOTHING))) != first

    used(odd("leaves"), use)


def test_a_server_is_not_started_for_ever() -> None:
    """After so many starts in one run calls are errors; the tools stay known."""

    async def use(tools: McpTools) -> ToolOutcome:
        for _ in range(STARTS_MAX):
            await ended(int(text_of(await tools.call("odd___go", NOTHING))))
        assert [tool.name for tool in await tools.tools()] == ["odd___go"]
        return await tools.call("odd___go", NOTHING)

    assert used(odd("leaves"), use) == ToolOutcome.error(
        f"MCP server 'odd' was started {STARTS_MAX} times in this run, and is not started again"
    )


def test_a_call_that_takes_too_long_is_given_up() -> None:
    """The result says how long it was waited. A server that still answers goes on."""

    async def use(tools: McpTools) -> None:
        before = await tools.call("s___process", NOTHING)
        assert text_of(await tools.call("s___wait", NOTHING)) == (
            "MCP server 's': 'wait' did not answer within 0.3 s; the call was given up, and may have had effects"
        )
        assert await tools.call("s___process", NOTHING) == before

    used(stdio(timeout_s=0.3), use)


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_server_that_hangs_is_left_and_started_anew(transport: str, http: HttpServer) -> None:
    """The call times out; the next one finds that nothing is answered, and gets a new server, or session."""
    meta = stdio() if transport == "stdio" else http.meta()

    async def use(tools: McpTools) -> None:
        assert await tools.call("s___echo", Raw(b'{"text":"x"}')) == said("x")
        assert "did not answer within 0.5 s" in text_of(await tools.call("s___hang", NOTHING))
        again = await tools.call("s___echo", Raw(b'{"text":"y"}'))
        # Over HTTP turnlog cannot end the server: it is asked once more, and still hangs.
        assert again == said("y") if transport == "stdio" else "did not answer within 1 s" in text_of(again)

    used(meta, use, call_timeout_s=0.5, start_timeout_s=1.0 if transport == "http" else 30.0)


def test_a_server_that_answers_with_nonsense_is_given_up() -> None:
    """What is no JSON cannot be the answer to a call; it is not called silence."""
    outcome = called(odd("garbled"), "odd___go", call_timeout_s=0.3)
    assert "answered with what cannot be read, and with nothing else within 0.3 s" in text_of(outcome)


def test_an_error_of_the_protocol_is_a_result() -> None:
    """Also when its code is the one that the SDK has for a connection that was closed."""

    async def use(tools: McpTools) -> list[ToolOutcome]:
        return [await tools.call("odd___go", NOTHING) for _ in range(2)]

    assert (
        used(odd("refuses"), use)
        == [ToolOutcome.error("MCP server 'odd' answered with an error: out of paper (code -32000)")] * 2
    )


@pytest.mark.parametrize("length", [1, 100_000])
def test_a_number_that_json_has_not_stands_in_structured_content(length: int) -> None:
    """Programs in Python write NaN into JSON."""
    text = "x" * length
    result = f'{{"content":[],"structuredContent":{{"a":[NaN,-Infinity,1e400,1.5],"b":"{text}"}}}}'
    assert called(odd("answers", result), "odd___go") == said(f'{{"a":[NaN,-Infinity,Infinity,1.5],"b":"{text}"}}')


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        (
            program("no-such-program", "-y"),
            "MCP server 'x' cannot be started: there is no program 'no-such-program'",
        ),
        (
            stdio(cwd="/no/such/folder"),
            "MCP server 's' cannot be started: there is no folder '/no/such/folder' to run it in",
        ),
        (
            program(__file__),
            f"MCP server 'x' cannot be started: {__file__!r}: permission denied",
        ),
        (
            program(sys.executable, "-c", "print('hello'); raise SystemExit(1)"),
            "MCP server 'x' ended before it answered (1 of its messages could not be read)",
        ),
        (
            stdio(env=("NO_SUCH_VARIABLE",)),
            "MCP server 's' needs the environment variable 'NO_SUCH_VARIABLE', which is not set: set it, or"
            " `keyring set turnlog NO_SUCH_VARIABLE`, and try again",
        ),
        (
            ServerMeta(action="register", name="x", url="http://127.0.0.1:1/mcp"),
            "MCP server 'x' at http://127.0.0.1:1/mcp cannot be reached: All connection attempts failed",
        ),
        (odd("silent"), "MCP server 'odd' did not answer within 0.5 s"),
        (odd("old"), "MCP server 'odd' cannot be understood: Unsupported protocol version from the server: 1999-01-01"),
        (
            odd("malformed"),
            "MCP server 'odd' does not answer as the protocol has it (tools.0.name: input should be a valid string)",
        ),
        (odd("pages", "endless"), "MCP server 'odd' lists its tools without an end"),
    ],
)
def test_a_server_that_cannot_be_used_is_an_error_that_says_why(meta: ServerMeta, message: str) -> None:
    """Listing raises, and a call is a result that says the same."""
    start_timeout_s = 0.5 if "silent" in meta.command else 30.0
    assert failure(meta, start_timeout_s=start_timeout_s) == message
    outcome = called(meta, f"{meta.name}___go", start_timeout_s=start_timeout_s)
    assert outcome == ToolOutcome.error(f"there is no tool '{meta.name}___go'; {message}")


def test_a_folder_that_cannot_be_entered_is_named(tmp_path: Path) -> None:
    """And not the program, which is there."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert failure(stdio(cwd=str(loop))) == (
        f"MCP server 's' cannot be started: in the folder {str(loop)!r}: too many levels of symbolic links"
    )


def test_an_address_that_is_no_endpoint_is_told_so(http: HttpServer) -> None:
    """404, with a hint."""
    meta = ServerMeta(action="register", name="x", url=f"http://127.0.0.1:{http.port}/other")
    assert failure(meta) == (
        f"MCP server 'x' at {meta.url} answered with HTTP 404 (Not Found): is it the address of a streamable HTTP"
        " endpoint?"
    )


def test_all_servers_that_fail_are_named() -> None:
    """One message, and the servers that did start are ended."""
    servers = [odd("malformed", name="a"), odd("plain", name="b"), odd("old", name="c")]
    with pytest.raises(ToolServerError, match=r"MCP server 'a' does not .*; and MCP server 'c' cannot be understood"):
        listed(servers)


PAGE = {"content-type": "text/html; charset=utf-8"}
STREAM = {"content-type": "text/event-stream"}
UNREADABLE = "answered with what cannot be read: is it the address of a streamable HTTP endpoint?"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (whole(b"{nope"), UNREADABLE),
        (whole(b" "), UNREADABLE),
        (whole(b'{"hello": 1}'), UNREADABLE),
        (Answer(headers=STREAM, chunks=[b"data: {nope\n\n"]), UNREADABLE),
        (Answer(headers=STREAM, chunks=[b": nothing\n\n"]), "ended its answer before the result"),
        (
            Answer(headers=PAGE, chunks=[b"<html>"]),
            "answered with text/html, which is none of MCP: is it the address of a streamable HTTP endpoint?",
        ),
        (
            whole(b"", status=307, headers={"location": "http://other.example/mcp"}),
            "redirects to http://other.example/mcp, which is not followed: is that its address?",
        ),
    ],
)
def test_an_answer_over_http_that_is_none_of_the_protocol_is_told_in_our_words(answer: Answer, why: str) -> None:
    """And not as an error that the server had answered with, nor with the names of types."""
    with WireServer(*[answer] * 9) as server:
        meta = ServerMeta(action="register", name="h", url=f"{server.url}/mcp")
        assert failure(meta) == f"MCP server 'h' at {server.url}/mcp {why}"


def test_a_connection_that_broke_off_says_how() -> None:
    """The errors of the HTTP library are empty then: what is behind them is told."""
    error = httpx2.ReadError("")
    error.__cause__ = ConnectionResetError(104, "Connection reset by peer")
    meta = ServerMeta(action="register", name="h", url="http://h.example/mcp")
    told = reason(error, meta, started=True, status=0, timeout_s=1)
    assert told == "cannot be reached: [Errno 104] Connection reset by peer"


def test_a_proxy_that_a_server_is_not_reached_through_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be it of a kind that cannot be used, or not there."""
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    meta = ServerMeta(action="register", name="h", url="http://h.example/mcp")
    monkeypatch.setenv("ALL_PROXY", "foo://127.0.0.1:1")
    assert failure(meta).startswith(
        "MCP server 'h' at http://h.example/mcp cannot be reached: the proxy of ALL_PROXY cannot be used: give http://"
    )
    with WireServer() as gone:
        monkeypatch.setenv("ALL_PROXY", gone.url)
    assert failure(meta).endswith(", through the proxy of ALL_PROXY")


def test_secrets_are_not_repeated() -> None:
    """What a server writes about the token that it was given is shown without it, as is the value of a header."""
    secret = "abc-123-secret"
    message = failure(odd("quits", env=("ODD_TOKEN",)), environment={"ODD_TOKEN": secret})
    assert message == "MCP server 'odd' ended before it answered; the last it said: bad token …"
    meta = ServerMeta(action="register", name="x", url="http://127.0.0.1:1", header_env={"Authorization": "T"})
    for value in (f"{secret}\n", f"é{secret}"):
        message = failure(meta, environment={"T": value})
        assert secret not in message
        assert message.startswith("MCP server 'x': what the environment has for the header 'Authorization' cannot be")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Token: tok-1'234\"5!", "Token: [redacted: MY_TOKEN]"),
        (json.dumps({"env": "tok-1'234\"5!", "é": 1}), '{"env": "[redacted: MY_TOKEN]", "\\u00e9": 1}'),
        ("/home/ada and true", "/home/ada and true"),
    ],
)
def test_a_secret_that_a_tool_prints_is_masked(text: str, expected: str) -> None:
    """Where its server was given it by `--env`, by its name; what is no secret stays, for a tool may speak of it."""
    environment = {"MY_TOKEN": "tok-1'234\"5!", "MY_HOME": "/home/ada", "DEBUG_TOKEN": "true"}
    meta = stdio(env=tuple(environment))
    outcome = called(meta, "s___echo", json.dumps({"text": text}), environment={**os.environ, **environment})
    assert outcome == ToolOutcome(content=(Text(text=expected),))


def test_a_tool_of_a_server_does_not_take_the_place_of_the_one_that_reads_resources(tmp_path: Path) -> None:
    """What was approved is called: a server that is started again may list a tool of that name."""

    async def use(tools: McpTools) -> tuple[ToolOutcome, Sequence[str]]:
        await tools.tools()
        await tools.call("odd___go", NOTHING)
        return await tools.call("odd___read_resource", Raw(b'{"uri":"x://a"}')), tools.notes()

    outcome, notes = used(odd("usurps", str(tmp_path / "again")), use)
    assert outcome == ToolOutcome(content=(Text(text="Resource x://a:"), Text(text="read")))
    assert notes == ["MCP server 'odd': its tool 'read_resource' is new, and turnlog's stays in its place"]


def test_a_secret_is_masked_wherever_a_server_repeats_it() -> None:
    """In what it lists, which is recorded and sent, and in the keys and values of what is no text."""
    secret = "abc-123-secret"

    async def use(tools: McpTools) -> tuple[list[Tool], ToolOutcome]:
        return list(await tools.tools()), await tools.call("odd___go", NOTHING)

    environment = {**os.environ, "ODD_TOKEN": secret}
    offered, outcome = used(odd("leaks", env=("ODD_TOKEN",)), use, environment=environment)
    assert [tool.name.partition("_go_")[0] for tool in offered] == ["odd___go", "odd__", "odd___read_resource"]
    parts = [msgspec.json.encode(part) for part in (*offered, *outcome.content)]
    assert [b"[redacted: ODD_TOKEN]" in part for part in parts] == [True, True, True, False, True, True, True]
    assert not [part for part in parts if secret.encode() in part]


ODD_SECRET = 's3cr3t/K+ey"Zq\\9é7=x'


@pytest.mark.parametrize(
    ("before", "spelled", "after"),
    [
        ("is ", ODD_SECRET, "!"),
        ('{"a": "', json.dumps(ODD_SECRET)[1:-1], '"}'),
        ('{"a": "', json.dumps(json.dumps(json.dumps(ODD_SECRET)[1:-1])[1:-1], ensure_ascii=False)[1:-1], '"}'),
        ('"', json.dumps(ODD_SECRET)[1:-1].replace("/", "\\/"), '"'),
        ('"', json.dumps(ODD_SECRET)[1:-1].replace("=", "\\u003d"), '"'),
        ('"', "".join(f"\\u{ord(character):04X}" for character in ODD_SECRET), '"'),
        ('"', "".join(f"\\u{ord(character):04x}" for character in ODD_SECRET), '"'),
        ("https://host/?q=", quote(ODD_SECRET, safe=""), "&r=1"),
        ("https://host/?q=", quote_plus(ODD_SECRET), "&r=1"),
        ("https://host/", re.sub("%..", lambda byte: byte[0].lower(), quote(ODD_SECRET)), ""),
        ("<b>", html.escape(ODD_SECRET), "</b>"),
        ("", ODD_SECRET.encode().hex(), "0a"),
        ("Basic ", b64encode(ODD_SECRET.encode()).decode(), ""),
        ("Basic ", b64encode(b"u:" + ODD_SECRET.encode()).decode(), ""),
        ("Basic ", b64encode(b"?" + ODD_SECRET.encode() + b"\n").decode(), ""),
        ("", urlsafe_b64encode(ODD_SECRET.encode() + b"~~~").decode(), "."),
    ],
)
def test_a_secret_is_masked_however_it_is_spelled(before: str, spelled: str, after: str) -> None:
    """A program has it in JSON, in a URL, in the header of a request: whoever reads that can turn it back."""
    given = Launch(secrets={"MY_TOKEN": ODD_SECRET})
    text = f"{before}{spelled}{after}"
    masked = re.compile(rf"{re.escape(before)}.{{0,4}}\[redacted: MY_TOKEN\].{{0,5}}{re.escape(after)}")
    assert masked.fullmatch(given.without_secrets(text))
    assert masked.fullmatch(cast("str", given.masked(Raw(msgspec.json.encode(text)))))
    assert masked.fullmatch(given.scrub(text).replace("…", "[redacted: MY_TOKEN]"))


def test_a_secret_of_digits_is_masked_where_it_is_a_number() -> None:
    """In what was read, and in what still is JSON text; other numbers stay numbers."""
    given = Launch(secrets={"PIN_CODE": "48151623"})
    value = {"n": [48151623, -148151623, 48151623.5, 42, 1.5, True, None]}
    mark = "[redacted: PIN_CODE]"
    masked = {"n": [mark, f"-1{mark}", f"{mark}.5", 42, 1.5, True, None]}
    assert given.masked(value) == masked
    assert given.masked(Raw(msgspec.json.encode(value))) == masked
    content = '{"content":[{"type":"odd","n":48151623}],"structuredContent":{"n":48151623}}'
    environment = {**os.environ, "PIN_TOKEN": "48151623"}
    outcome = called(odd("answers", content, env=("PIN_TOKEN",)), "odd___go", environment=environment)
    assert b"48151623" not in msgspec.json.encode(outcome.content)
    assert msgspec.json.encode(outcome.content).count(b"[redacted: PIN_TOKEN]") == 2


def test_what_is_no_secret_stays_as_it_is_spelled() -> None:
    """Also where it is almost one."""
    given = Launch(secrets={"MY_TOKEN": "abc-123-secret", "PIN_CODE": "12345"})
    for text in ("abc-123-secre", b64encode(b"abc-123-sec").decode(), "12345", "%61bc"):
        assert given.without_secrets(text) == text


def test_a_secret_that_is_split_over_texts_is_masked() -> None:
    """A model reads the texts of a result one after the other, whatever stands between them."""
    given = Launch(secrets={"MY_TOKEN": "abc-123-secret"})
    image = Document(source=Source(media_type="image/png", data="aGk="))
    texts = ["is abc-", "123", "", "-secret, and abc-123-", "secret"]
    blocks = [Text(text=text) for text in texts]
    outcome = given.without_split(ToolOutcome(content=(blocks[0], image, *blocks[1:])))
    mark = "[redacted: MY_TOKEN]"
    assert outcome.content == (Text(text=f"is {mark}"), image, Text(text=""), Text(text=f", and {mark}"))
    whole = ToolOutcome(content=(Text(text="abc-"), Text(text="124-secret")))
    assert given.without_split(whole) is whole


def test_a_secret_that_a_tool_splits_is_neither_recorded_nor_sent() -> None:
    """As a server does that cuts what it says into blocks."""
    environment = {**os.environ, "ODD_TOKEN": "abc-123-secret"}
    outcome = called(odd("splits", env=("ODD_TOKEN",)), "odd___go", environment=environment)
    assert outcome == ToolOutcome(content=(Text(text="[redacted: ODD_TOKEN]"), Text(text="!")))


@pytest.mark.parametrize("left", range(1, 14))
def test_a_secret_that_the_last_words_begin_in_is_left_out(left: int) -> None:
    """They are the end of what a server said, cut wherever that may be."""
    tail = StderrTail()
    tail.data_received(b"a line\n" * 100 + "TOKEN=abc-123-secrét".encode() + b"\n" + b"x" * (4095 - left))
    assert tail.last_words(Launch(values={"TOKEN": "abc-123-secrét"})) == f"; the last it said: {'x' * (4095 - left)}"


TRACEBACK = (
    "starting\n╭──── Traceback (most recent call last) ────╮\n│ /a/b.py:9 in call  │\n│                    │\n"
    "│ ╭─ locals ─╮       │\n│ │ x = 1368 │       │\n│ ╰──────────╯       │\n╰────────────────────╯\n"
)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (f"{TRACEBACK}ValueError: no such style\n", "ValueError: no such style"),
        (f"{TRACEBACK}ValueError: no such\nstyle\n", "ValueError: no such\nstyle"),
        ("╭─ Error ──────╮\n│ No such file │\n╰──────────────╯\n", "No such file"),
        ("a\nb │ c\n", "a\nb │ c"),
    ],
)
def test_the_last_words_are_without_frames(written: str, told: str) -> None:
    """A traceback that is drawn would take all the room, and hide what it comes to."""
    tail = StderrTail()
    tail.data_received(written.encode())
    assert tail.last_words(Launch()) == f"; the last it said: {told}"


def test_the_last_words_of_frames_alone_are_none() -> None:
    """There is nothing to tell."""
    tail = StderrTail()
    tail.data_received("╭───╮\n╰───╯\n".encode())
    assert tail.last_words(Launch()) == ""


@pytest.mark.parametrize("broken", [False, True])
def test_a_secret_is_masked_in_documents(broken: bool) -> None:
    """A text may come as base64, with line breaks in it, and is a text again for the model."""
    given = Launch(secrets={"MY_TOKEN": "abc-123-secret"})
    text = b64encode(b"TOKEN=abc-123-secret\n").decode()
    resource = {"uri": "file:///.env", "blob": f"{text[:9]}\n{text[9:].rstrip('=')}" if broken else text}
    expected = b64encode(b"TOKEN=[redacted: MY_TOKEN]\n").decode()
    assert given.masked({"contents": [resource]}) == {"contents": [{**resource, "blob": expected}]}
    assert given.masked({"blob": f"{text}=="}) == {"blob": expected}
    others = {"data": b64encode(b"\x89PNG").decode(), "blob": "abc-123-secret!"}
    assert given.masked(others) == {**others, "blob": "[redacted: MY_TOKEN]!"}


def test_the_value_of_a_header_that_a_tool_prints_is_masked() -> None:
    """With and without the scheme before it."""
    with HttpServer(MCP_TEST_TOKEN="Bearer tok-12345") as server:
        meta = server.meta(header_env={"Authorization": "MY_AUTHORIZATION"})
        given = {"environment": {"MY_AUTHORIZATION": "Bearer tok-12345"}}
        outcome = called(meta, "s___echo", '{"text":"Bearer tok-12345, tok-12345"}', **given)
    mark = "[redacted: MY_AUTHORIZATION]"
    assert outcome == ToolOutcome(content=(Text(text=f"Bearer {mark}, {mark}"),))


def test_a_server_over_http_that_forgot_the_session_gets_the_call_again(http: HttpServer) -> None:
    """It was restarted on the same port: 404 says that nothing was done, so the call is made in a new session."""

    async def use(tools: McpTools) -> tuple[ToolOutcome, ToolOutcome]:
        before = await tools.call("s___process", NOTHING)
        http.kill()
        http.start()
        return before, await tools.call("s___process", NOTHING)

    before, after = used(http.meta(), use)
    assert not after.is_error
    assert text_of(before) != text_of(after)


def test_a_server_over_http_without_streams() -> None:
    """Plain JSON. Errors of the protocol are told from those of HTTP, and a refused session leads to a new one."""

    async def use(tools: McpTools) -> list[str]:
        names = [tool.name for tool in await tools.tools()]
        assert names == ["j___refuse", "j___break", "j___forget", "j___count"]
        calls = ("refuse", "count", "break", "count", "forget", "count", "count")
        return [text_of(await tools.call(f"j___{call}", NOTHING)) for call in calls]

    with JsonServer() as server:
        label = f"MCP server 'j' at {server.meta.url}"
        assert used(server.meta, use) == [
            f"{label} answered with an error: no (code -32602)",
            "1",
            f"{label} answered with HTTP 500 (Server returned an error response)\n{NOT_REPEATED}",
            "1",
            "2",
            f"{label} answered with HTTP 400 (No valid session)",
            "3",
        ]


def test_a_server_over_http_that_is_gone_is_an_error_until_it_is_back(http: HttpServer) -> None:
    """A call that finds nobody there was never sent: once the server is back, calls succeed."""

    async def use(tools: McpTools) -> None:
        assert await tools.call("s___echo", Raw(b'{"text":"x"}')) == said("x")
        http.kill()
        outcome = await tools.call("s___echo", Raw(b'{"text":"x"}'))
        assert text_of(outcome) == f"MCP server 's' at {http.url} cannot be reached: All connection attempts failed"
        http.start()
        assert await tools.call("s___echo", Raw(b'{"text":"y"}')) == said("y")

    used(http.meta(), use)


def test_a_server_over_http_that_crashes_during_a_call_is_an_error(http: HttpServer) -> None:
    """The stream of the answer breaks off."""
    outcome = called(http.meta(), "s___crash", '{"message":"bye"}')
    assert outcome.is_error
    assert outcome.may_have_had_effects
    said = text_of(outcome).removeprefix(f"MCP server 's' at {http.url} ")
    assert re.match("ended its answer before the result|cannot be reached", said)


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_leaving_during_a_call_ends_it(transport: str, http: HttpServer) -> None:
    """Whoever still waits gets an error, soon."""

    async def run() -> ToolOutcome:
        async with McpTools([stdio() if transport == "stdio" else http.meta()]) as tools:
            await tools.tools()
            waiting = asyncio.create_task(tools.call("s___wait", NOTHING))
            assert await tools.call("s___echo", Raw(b'{"text":"x"}')) == said("x")
        return await waiting

    assert asyncio.run(run()).is_error


def test_leaving_while_a_server_starts_ends_it(tmp_path: Path) -> None:
    """A run that is cancelled leaves no process behind, silent as it may be."""
    note = tmp_path / "process"
    os.mkfifo(note)

    async def run() -> int:
        async with McpTools([odd("silent", str(note))], start_timeout_s=600) as tools:
            listing = asyncio.create_task(tools.tools())
            process = int(await asyncio.to_thread(note.read_text))
            listing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await listing
        return process

    assert not runs(asyncio.run(run()))


def test_nothing_is_printed_whatever_goes_wrong(capfd: pytest.CaptureFixture[str]) -> None:
    """The SDK logs; without handlers Python would print its warnings. With handlers they are there."""
    called(odd("garbled"), "odd___go", call_timeout_s=0.1)
    failure(odd("quits"))
    failure(odd("malformed"))
    assert capfd.readouterr() == ("", "")
    assert [type(handler) for handler in logging.getLogger("mcp").handlers] == [logging.NullHandler]
    assert logging.getLogger("mcp").propagate


def test_a_run_that_is_stopped_while_a_server_starts_ends_the_server() -> None:
    """At whichever step of the start that is; and the server is gone on return, though it ignores what it is sent."""

    async def stopped(steps: int) -> None:
        async with McpTools([program("sleep", f"60.{steps}")]) as tools:
            listing = asyncio.create_task(tools.tools())
            for _ in range(steps):
                await asyncio.sleep(0)
            listing.cancel()
            await asyncio.wait({listing})
        assert f"sleep 60.{steps}" not in _commands()

    async def all_of_them() -> None:
        async with asyncio.timeout(30):
            await asyncio.gather(*map(stopped, range(40)))

    asyncio.run(all_of_them())


def _commands() -> set[str]:
    """Return the command lines of all processes."""
    found: set[str] = set()
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # a process that is gone
            found.add(file.read_text().rstrip("\0").replace("\0", " "))
    return found
