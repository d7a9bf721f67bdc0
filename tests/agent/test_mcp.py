"""`McpTools` with real MCP servers in processes of their own, over stdio and over streamable HTTP."""

import asyncio
import json
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from msgspec import Raw
from tests.agent.mcp_server import PDF, PNG, WAV
from tests.agent.servers import COMMAND, HttpServer, odd, stdio
from tests.keyrings import MemoryKeyring

from turnlog.agent.mcp.resources import ServerPrompt, ServerResource, attached, question
from turnlog.agent.mcp.server import tool_name
from turnlog.agent.mcp.signals import MisbehaviourError
from turnlog.agent.mcp.tools import McpTools, Origin
from turnlog.agent.opening import Attached
from turnlog.agent.toolbox import ToolOutcome
from turnlog.errors import RunError, ToolServerError
from turnlog.model import Document, ServerMeta, Source, Text, Tool, parse_tools, tools_bytes


def used(
    servers: ServerMeta | list[ServerMeta], use: Callable[[McpTools], Coroutine[Any, Any, Any]], **options: Any
) -> Any:
    """Return what a use of the tools of servers comes to, in an event loop of its own."""

    async def run() -> Any:
        async with McpTools(servers if isinstance(servers, list) else [servers], **options) as tools:
            return await use(tools)

    return asyncio.run(run())


def called(meta: ServerMeta, name: str, arguments: str = "{}", **options: Any) -> ToolOutcome:
    """Return what one call comes to."""
    return used(meta, lambda tools: tools.call(name, Raw(arguments.encode())), **options)


def listed(servers: ServerMeta | list[ServerMeta], **options: Any) -> list[Tool]:
    """Return the tools of servers."""
    return used(servers, lambda tools: tools.tools(), **options)


def said(*texts: str) -> ToolOutcome:
    """Return the outcome of texts."""
    return ToolOutcome(content=tuple(Text(text=text) for text in texts))


@pytest.fixture(scope="module")
def http() -> Iterator[HttpServer]:
    """Give the server of the SDK over HTTP."""
    with HttpServer() as server:
        yield server


@pytest.fixture(params=["stdio", "http"])
def meta(request: pytest.FixtureRequest) -> ServerMeta:
    """Give the registration of the server of the SDK, over each transport."""
    return stdio() if request.param == "stdio" else request.getfixturevalue("http").meta()


def document(media_type: str, payload: bytes) -> Document:
    """Return a document block."""
    return Document(source=Source(media_type=media_type, data=b64encode(payload).decode()))


def test_results_of_all_kinds_become_blocks(meta: ServerMeta) -> None:
    """Text, image, audio, resources of text and of bytes, a link; the URI of a resource stands before it."""
    assert called(meta, "s___everything") == ToolOutcome(
        content=(
            Text(text="Hello"),
            document("image/png", PNG),
            document("audio/wav", WAV),
            Text(text="Resource file:///notes.md (text/markdown):"),
            Text(text="# Notes"),
            Text(text="Resource file:///paper.pdf (application/pdf):"),
            document("application/pdf", PDF),
            Text(text="Resource link: big.csv <file:///big.csv> (text/csv, 12,345 bytes): All rows"),
        )
    )


def test_many_calls_of_one_connection(meta: ServerMeta) -> None:
    """Structured results, errors of a tool, of its arguments, unknown tools, exact arguments, and 5 MB of text."""

    async def use(tools: McpTools) -> None:
        async def call(name: str, arguments: str) -> ToolOutcome:
            return await tools.call(f"s___{name}", Raw(arguments.encode()))

        assert await call("add", '{"a":1,"b":2}') == said("3")
        assert await call("words", '{"text":"a b"}') == ToolOutcome(content=(Text(text="a"), Text(text="b")))
        assert await call("weather", '{"city":"X"}') == said('{\n  "city": "X",\n  "degrees": 21.5\n}')
        assert await call("only_structured", "{}") == said('{"b":1,"a":[1.5,null,"é"]}')
        assert await call("fail", '{"message":"no paper"}') == ToolOutcome.error("Error executing tool fail: no paper")
        assert await call("echo", '{"text":"é\\u2028\\"\\\\ 😀"}') == said('é\u2028"\\ 😀')
        given = '{"z":null,"a":[1.0,{"k":null}],"n":123456789012345678901234567890}'
        assert await call("arguments", f'{{"given":{given}}}') == said(
            "{'z': None, 'a': [1.0, {'k': None}], 'n': 123456789012345678901234567890}"
        )
        wrong = await call("add", '{"a":"x","b":2}')
        assert wrong.is_error
        assert "valid integer" in str(wrong)
        assert await call("ech", "{}") == ToolOutcome.error(
            "there is no tool 's___ech', did you mean 's___echo' or 's___crash' or 's___weather'"
        )
        large = await call("arguments", '{"given":{"n":1e400}}')
        assert large == ToolOutcome.error("the arguments cannot be read: 1e400 is too large")
        numbers = "[0.1,1e2,9007199254740993,9007199254740993.0,1e-400,12345678901234567890.5,0.30000000000000000001]"
        assert await call("arguments", f'{{"given":{{"n":{numbers}}}}}') == said(
            "{'n': [0.1, 100.0, 9007199254740993, 9007199254740992.0, 0.0, 1.2345678901234567e+19, 0.3]}",
            "(numbers of the arguments were rounded: 9007199254740993.0 as 9007199254740992.0, 1e-400 as 0.0,"
            " 12345678901234567890.5 as 1.2345678901234567e+19 and 1 more)",
        )
        long = await call("arguments", f'{{"given":{{"n":0.{"3" * 50}}}}}')
        assert long == said(
            "{'n': 0.3333333333333333}", f"(numbers of the arguments were rounded: 0.{'3' * 38}… as 0.{'3' * 16})"
        )
        assert await call("arguments", '{"given":{"n":0e-9999999999999999999999}}') == said("{'n': 0.0}")
        digits = await call("arguments", f'{{"given":{{"n":-{"1" * 5000}}}}}')
        assert digits == ToolOutcome.error("the arguments cannot be read: an integer of 5,000 digits is too long")
        for twice in ('{"given":{"x":2.123456789012345678901,"x":1}}', '{"given":{},"x":1.5,"x":1}'):
            assert await call("arguments", twice) == ToolOutcome.error("the arguments have the key 'x' twice")
        assert await call("echo", "[1]") == ToolOutcome.error("the arguments are list and not a JSON object")
        assert await call("huge", '{"characters":5000000}') == said("x" * 5_000_000)

    used(meta, use)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ('{"a":"\\ud800"}', "a text has half of a surrogate pair, which is no Unicode"),
        ('{"\\udfff":1}', "a text has half of a surrogate pair, which is no Unicode"),
        ('{"a":NaN}', "NaN and Infinity are no numbers of JSON"),
        ('{"a":-Infinity}', "NaN and Infinity are no numbers of JSON"),
        (f'{{"a":{"[" * 300}{"]" * 300}}}', "they are nested too deeply"),
    ],
)
def test_arguments_that_cannot_be_sent_are_not_and_other_calls_go_on(meta: ServerMeta, given: str, why: str) -> None:
    """The call had no effects, and the connection is still there."""
    meeting = Raw(json.dumps({"place": f"{given[:20]} {why}", "people": 2}).encode())

    async def use(tools: McpTools) -> tuple[list[ToolOutcome], ToolOutcome]:
        await tools.tools()
        under_way = asyncio.create_task(tools.call("s___meet", meeting))
        refused = await tools.call("s___arguments", Raw(f'{{"given":{given}}}'.encode()))
        other = await tools.call("s___meet", meeting)
        return [await under_way, other], refused

    met, refused = used(meta, use)
    assert met == [said("met")] * 2
    assert (refused.is_error, refused.may_have_had_effects) == (True, False)
    [text] = refused.content
    assert str(getattr(text, "text", "")).endswith(f": the arguments cannot be sent: {why}")


def test_calls_go_on_at_the_same_time(meta: ServerMeta) -> None:
    """Four calls wait for each other, and all return."""

    async def use(tools: McpTools) -> list[ToolOutcome]:
        return await asyncio.gather(
            *(tools.call("s___meet", Raw(b'{"place":"%s","people":4}' % place)) for place in [b"here"] * 4)
        )

    assert used(meta, use) == [said("met")] * 4


def test_a_server_that_says_so_has_its_tools_listed_again(meta: ServerMeta) -> None:
    """A tool that is added during a run is there the next time, and can be called."""

    async def use(tools: McpTools) -> tuple[list[str], list[str], ToolOutcome]:
        before = after = [tool.name for tool in await tools.tools()]
        await tools.call("s___learn", Raw(b'{"name":"dance"}'))
        while after == before:  # over HTTP the news comes by a stream of its own, and may come a little later
            await tools.call("s___echo", Raw(b'{"text":"x"}'))
            after = [tool.name for tool in await tools.tools()]
        return before, after, await tools.call("s___dance", Raw(b'{"text":"tango"}'))

    before, after, outcome = used(meta, use)
    assert set(after) - set(before) == {"s___dance"}
    assert outcome == said("tango")


def test_a_tool_can_be_called_without_listing_first(meta: ServerMeta) -> None:
    """A run that resumes with unanswered calls has not asked for the tools."""
    assert called(meta, "s___echo", '{"text":"x"}') == said("x")


def test_a_cancelled_call_leaves_the_others_alone(meta: ServerMeta) -> None:
    """Cancellation is raised in the task that waits, and the server goes on."""

    async def use(tools: McpTools) -> tuple[ToolOutcome, ToolOutcome]:
        before = await tools.call("s___process", Raw(b"{}"))
        waiting = asyncio.create_task(tools.call("s___wait", Raw(b"{}")))
        other = asyncio.create_task(tools.call("s___meet", Raw(b'{"place":"cancel","people":2}')))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await tools.call("s___meet", Raw(b'{"place":"cancel","people":2}')) == said("met")
        assert await other == said("met")
        return before, await tools.call("s___process", Raw(b"{}"))

    before, after = used(meta, use)
    assert before == after


def test_schemas_are_kept_as_the_server_wrote_them() -> None:
    """Order of keys, null, 1.0 and letters outside ASCII included; a tool without a description has none."""
    go, bare = listed(odd("schemas"))
    assert msgspec.json.encode(go) == (
        b'{"name":"odd___go","description":"Goes.",'
        b'"inputSchema":{"type":"object","properties":{"z":{"const":1.0},"\xc3\xa9":{"enum":[null,true]}}},'
        b'"outputSchema":{"type":"object","required":[]},"title":"Go!",'
        b'"annotations":{"readOnlyHint":true,"destructiveHint":null}}'
    )
    assert (bare.description, bytes(bare.input_schema), bytes(bare.output_schema)) == ("", b'{"type":"object"}', b"")
    assert parse_tools(tools_bytes([go, bare])) == (go, bare)


def test_all_pages_of_a_listing_are_read() -> None:
    """The cursor is followed to the end."""
    for pages in (odd("pages"), odd("pages", "empty")):
        assert [tool.name for tool in listed(pages)] == ["odd___t0", "odd___t1", "odd___t2"]


def test_names_that_providers_refuse_are_mapped() -> None:
    """Always in the same way; the server gets its own name, and the title says it."""
    long = "x" * 70
    plain, dotted, cut = listed(odd("names", "read-file_2", "files.read", long))
    assert (plain.name, plain.title) == ("odd___read-file_2", None)
    assert (dotted.name, dotted.title) == ("odd___files_read_a5021576", "files.read")
    assert (cut.name, cut.title) == ("odd___" + "x" * 49 + "_b4510c41", long)
    assert called(odd("names", "files.read"), dotted.name) == said("files.read")
    assert tool_name("a", "b") == "a___b"


def test_the_origin_of_a_tool_is_known() -> None:
    """By the name that a model sees."""

    async def use(tools: McpTools) -> list[Origin | None]:
        await tools.tools()
        return [tools.origin("odd___files_read_a5021576"), tools.origin("odd___files.read")]

    assert used(odd("names", "files.read"), use) == [Origin(server="odd", tool="files.read"), None]


def test_two_tools_of_one_name_are_an_error() -> None:
    """Of one server, and of two."""
    with pytest.raises(ToolServerError, match=r"^MCP server 'odd' lists two tools that are called 'a'$"):
        listed(odd("names", "a", "a"))
    with pytest.raises(ToolServerError, match="has a tool that another one has too, 'a____b'"):
        listed([odd("names", "_b", name="a"), odd("names", "b", name="a_")])


def test_servers_are_listed_in_the_order_given() -> None:
    """Whichever is ready first. One that is given twice is one; two of one name are refused."""
    servers = [odd("plain", name="b"), odd("pages", name="a"), odd("plain", name="b")]
    assert [tool.name for tool in listed(servers)] == ["b___go", "a___t0", "a___t1", "a___t2"]
    with pytest.raises(ToolServerError, match=r"^two MCP servers are called 'b'$"):
        McpTools([odd("plain", name="b"), odd("pages", name="b")])


def test_a_server_without_tools_has_none() -> None:
    """It refuses to list any, which is no error."""
    assert listed(odd("toolless")) == []
    assert listed([]) == []


def test_a_server_of_the_protocol_without_a_handshake_is_spoken_to() -> None:
    """2026-07-28 has no `initialize`: its refusal leads to `server/discover`."""
    assert called(odd("modern"), "odd___go") == said("gone")


def test_a_call_that_asks_for_input_is_an_error() -> None:
    """Nobody is there to give it."""
    outcome = called(odd("modern", "asks"), "odd___go")
    assert outcome == ToolOutcome.error(
        "the tool did not finish but answered 'input_required', which turnlog cannot give it"
    )


def test_what_is_not_of_the_protocol_is_passed_over(capfd: pytest.CaptureFixture[str]) -> None:
    """Lines that are no JSON, before each answer. Nothing is printed."""
    assert called(odd("babbles"), "odd___go") == said("gone")
    assert capfd.readouterr() == ("", "")


def test_a_program_gets_the_variables_that_are_named_and_a_few_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those that are not named, and their values from the environment that was given."""
    monkeypatch.setenv("OTHER_TOKEN", "other")
    outcome = called(stdio(env=("MY_TOKEN",)), "s___variables", environment={"MY_TOKEN": "mine"})
    assert isinstance(outcome.content[0], Text)
    names = outcome.content[0].text.split()
    assert "MY_TOKEN" in names
    assert "PATH" in names
    assert "OTHER_TOKEN" not in names


def test_a_program_runs_in_its_folder(tmp_path: Path) -> None:
    """The one that it was registered with, else where turnlog runs."""
    assert called(stdio(cwd=str(tmp_path)), "s___folder") == said(str(tmp_path.resolve()))
    assert called(stdio(), "s___folder") == said(str(Path.cwd()))


def test_headers_come_from_the_environment() -> None:
    """The server answers only those who have the token."""
    with HttpServer(MCP_TEST_TOKEN="Bearer of-a-token") as server:
        meta = server.meta(header_env={"Authorization": "MY_TOKEN"})
        environment = {"MY_TOKEN": "Bearer of-a-token"}
        assert called(meta, "s___echo", '{"text":"in"}', environment=environment) == said("in")
        with pytest.raises(ToolServerError) as caught:
            listed(server.meta())
    assert str(caught.value) == (
        f"MCP server 's' at {server.url} answered with HTTP 401 (Server returned an error response):"
        " `turnlog mcp login s`, or register it with --header NAME=VARIABLE for what it asks for"
    )


def test_variables_in_a_registration_are_replaced_at_the_start() -> None:
    """In arguments, in values of variables, in the folder; those that the environment does not have by the default."""
    meta = msgspec.structs.replace(
        stdio(cwd="${MY_ROOT:-/}"),
        command=("${PYTHON}", *COMMAND[1:]),
        env_values={"OTHER_TOKEN": "t-${MY_TOKEN}", "LEVEL": "${LEVEL:-debug}"},
        expands=True,
    )
    environment = {"PYTHON": COMMAND[0], "MY_TOKEN": "abc-123"}

    async def use(tools: McpTools) -> list[ToolOutcome]:
        asked = [("variables", "{}"), ("folder", "{}"), ("echo", '{"text":"abc-123 t-abc-123 debug"}')]
        return [await tools.call(f"s___{name}", Raw(given.encode())) for name, given in asked]

    variables, folder, echoed = used(meta, use, environment=environment)
    assert isinstance(variables.content[0], Text)
    assert {"OTHER_TOKEN", "LEVEL"} < set(variables.content[0].text.split())
    assert folder == said("/")
    assert echoed == said("[redacted: MY_TOKEN] [redacted: OTHER_TOKEN] debug")
    with pytest.raises(ToolServerError) as caught:
        listed(meta, environment={"PYTHON": COMMAND[0]})
    assert str(caught.value) == (
        "MCP server 's' needs the environment variable 'MY_TOKEN', which is not set: set it, or"
        " `keyring set turnlog MY_TOKEN`, and try again"
    )


def test_a_variable_that_the_environment_does_not_have_is_in_the_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name; a header is made of it."""
    kept = MemoryKeyring()
    kept.set_password("turnlog", "MY_TOKEN", "of-a-token")
    monkeypatch.setattr("keyring.core._keyring_backend", kept)
    with HttpServer(MCP_TEST_TOKEN="Bearer of-a-token") as server:
        meta = msgspec.structs.replace(
            server.meta(), url=f"http://${{HOST}}:{server.port}/mcp", expands=True,
            header_values={"Authorization": "Bearer ${MY_TOKEN}"},
        )  # fmt: skip
        given = {"environment": {"HOST": "127.0.0.1"}}
        assert called(meta, "s___echo", '{"text":"in of-a-token"}', **given) == said("in [redacted: MY_TOKEN]")
    with pytest.raises(ToolServerError) as caught:
        listed(msgspec.structs.replace(meta, url="${HOST}/x"), environment={"HOST": "secret"})
    assert str(caught.value) == (
        "MCP server 's': what the environment has for its address is none, such as https://example.org/mcp"
    )


def test_what_servers_ask_for_is_refused() -> None:
    """Nothing of it is advertised, and one that asks all the same is told so."""
    outcome = called(odd("asks"), "odd___go")
    assert isinstance(outcome.content[0], Text)
    assert json.loads(outcome.content[0].text) == {
        "capabilities": {},
        "sampling/createMessage": "Sampling not supported",
        "elicitation/create": "Elicitation not supported",
        "roots/list": "List roots not supported",
    }


def test_roots_are_told_where_they_are_registered() -> None:
    """As URIs; then they are advertised."""
    outcome = called(msgspec.structs.replace(odd("asks"), roots=("/srv/a b", "/tmp")), "odd___go")
    assert isinstance(outcome.content[0], Text)
    told = json.loads(outcome.content[0].text)
    assert list(told["capabilities"]) == ["roots"]
    assert told["roots/list"] == {"roots": [{"uri": "file:///srv/a%20b"}, {"uri": "file:///tmp"}]}


@pytest.mark.parametrize("became", ["nothing", "a link", "a file"])
def test_roots_stay_what_they_were_registered_as(tmp_path: Path, became: str) -> None:
    """Whatever becomes of the folders while the server is at work: what is there now is for the server to look at."""
    root = tmp_path / "project"
    root.mkdir()
    tools = McpTools([msgspec.structs.replace(odd("asks"), roots=(str(root),))])

    async def told() -> list[object]:
        async with tools:
            before = await tools.call("odd___go", Raw(b"{}"))
            root.rename(tmp_path / "moved")
            if became == "a link":
                root.symlink_to(tmp_path)
            elif became == "a file":
                root.write_text("")
            after = await tools.call("odd___go", Raw(b"{}"))
        return [
            json.loads(block.text)
            for outcome in (before, after)
            for block in outcome.content
            if isinstance(block, Text)
        ]

    before, after = asyncio.run(told())
    assert before == after
    assert cast("dict[str, object]", after)["roots/list"] == {"roots": [{"uri": root.as_uri()}]}


def test_resources_are_listed_and_read(meta: ServerMeta) -> None:
    """Text and bytes, those of templates too; each says where it is from."""

    async def use(tools: McpTools) -> tuple[list[ServerResource], list[Attached]]:
        names = ("todo.md", "logo", "Monday/diary")
        read = [document for name in names for document in await tools.read_resource("s", f"notes://{name}")]
        for uri, why in (("notes://none", "answered with an error: .*notes://none"), ("\ud800", "cannot be sent")):
            with pytest.raises(ToolServerError, match=why):
                await tools.read_resource("s", uri)
        return await tools.resources("s"), read

    resources, read = used(meta, use)
    assert resources == [
        ServerResource(
            uri="notes://todo.md", name="todo", description="What is to do.", media_type="text/markdown"
        ),
        ServerResource(uri="notes://logo", name="logo", description="Return bytes.", media_type="image/png"),
        ServerResource(
            uri="notes://{day}/diary", name="diary", description="Return text of a template.", media_type="text/plain",
            is_template=True,
        ),
    ]  # fmt: skip
    assert read == [
        Attached(name="todo.md", payload=b"# Milk", media_type="text/markdown", origin="s/notes://todo.md"),
        Attached(name="logo", payload=PNG, media_type="image/png", origin="s/notes://logo"),
        Attached(
            name="diary", payload=b"On Monday it rained.", media_type="text/plain", origin="s/notes://Monday/diary"
        ),
    ]


def test_a_model_reads_resources_with_a_tool(meta: ServerMeta) -> None:
    """It is behind the server's own tools, says what there is, and runs like those."""

    async def use(tools: McpTools) -> tuple[Tool, list[ToolOutcome]]:
        listed = (await tools.tools())[-1]
        given = (b'{"uri":"notes://todo.md"}', b'{"uri":"notes://logo"}', b"{}", b'{"uri":"\\ud800"}', b'{"uri":"no"}')
        return listed, [await tools.call(listed.name, Raw(arguments)) for arguments in given]

    tool, (text, image, nothing, torn, unknown) = used(meta, use)
    assert (tool.name, tool.annotations) == ("s___read_resource", Raw(b'{"readOnlyHint":true}'))
    assert tool.description.splitlines() == [
        "Read a resource of the server 's' by its address. It lists these:",
        "- notes://todo.md: todo (text/markdown) What is to do.",
        "- notes://logo: logo (image/png) Return bytes.",
        "- notes://{day}/diary, to fill in: diary (text/plain) Return text of a template.",
    ]
    assert [block.text for block in text.content if isinstance(block, Text)][-1].endswith("# Milk")
    (document,) = (block for block in image.content if isinstance(block, Document))
    assert b64decode(document.source.data) == PNG
    for outcome, why in ((nothing, "give the address"), (torn, "cannot be sent"), (unknown, "answered with an error")):
        (said,) = outcome.content
        assert isinstance(said, Text)
        assert outcome.is_error
        assert why in said.text


def test_resources_that_cannot_be_listed_are_told_and_the_tools_are_there() -> None:
    """The model is offered no tool that reads them."""

    async def use(tools: McpTools) -> tuple[list[str], list[str]]:
        return [tool.name for tool in await tools.tools()], list(tools.notes())

    assert used(odd("unlisted"), use) == (
        ["odd___go"],
        ["MCP server 'odd' answered with an error: no (code -32000): the model is offered no tool that reads them"],
    )


def test_prompts_are_listed_and_become_questions(meta: ServerMeta) -> None:
    """A server that has none lists none."""

    async def use(tools: McpTools) -> tuple[list[ServerPrompt], str]:
        with pytest.raises(ToolServerError, match=r"^MCP server 's'.* answered with an error: "):
            await tools.prompt("s", "none", {})
        with pytest.raises(ToolServerError, match=r"^MCP server 't' is none of these: s$"):
            await tools.prompts("t")
        return await tools.prompts("s"), await tools.prompt("s", "summarize", {"text": "x", "style": "long"})

    prompts, asked = used(meta, use)
    assert prompts == [ServerPrompt(name="summarize", description="Ask for a summary.", arguments=("text", "style?"))]
    assert asked == "Summarize, long: x"
    assert used(odd("plain"), lambda tools: tools.prompts("odd")) == []
    assert used(odd("plain"), lambda tools: tools.resources("odd")) == []


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ({}, "has nothing in 'x://y'"),
        (
            {"contents": [{"uri": "x://y", "blob": "not base64!"}]},
            "answered for 'x://y' with bytes that are not base64",
        ),
        ({"contents": ["bare"]}, "answered for 'x://y' with neither text nor bytes"),
    ],
    ids=str,
)
def test_a_resource_that_is_none_is_an_error(result: dict[str, Any], why: str) -> None:
    """Whatever a server answers."""
    with pytest.raises(MisbehaviourError) as caught:
        attached("s", "x://y", result)
    assert str(caught.value) == why


@pytest.mark.parametrize(
    ("given", "media_type"), [("image/png", "image/png"), ("foo bar \x1b[2J\n", None), ("", None), (7, None)]
)
def test_a_resource_is_taken_as_the_result_of_a_tool_is(given: object, media_type: str | None) -> None:
    """Base64 may have no padding, and be on lines; what can be no media type is none."""
    part = {"uri": "x://y", "blob": "aGVs\nbG8", "mimeType": given}
    [found] = attached("s", "x://y", {"contents": [part]})
    assert (found.payload, found.media_type) == (b"hello", media_type)
    [text] = attached("s", "x://y", {"contents": [{"uri": "x://y", "text": "hello", "mimeType": given}]})
    assert (text.payload, text.media_type) == (b"hello", media_type or "text/plain")


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "has nothing in its prompt 'p'"),
        (
            [{"role": "assistant", "content": {"type": "text", "text": "x"}}],
            "has a message of 'assistant' with 'text' in its prompt 'p', and only text that a user says can be asked",
        ),
        (
            [{"role": "user", "content": {"type": "image", "data": ""}}],
            "has a message of 'user' with 'image' in its prompt 'p', and only text that a user says can be asked",
        ),
    ],
    ids=str,
)
def test_a_prompt_that_is_no_question_is_an_error(messages: list[Any], why: str) -> None:
    """Nothing of it is left out in silence."""
    with pytest.raises(MisbehaviourError) as caught:
        question("p", {"messages": messages})
    assert str(caught.value) == why


def test_no_process_is_left() -> None:
    """On return the server's process is gone, also when the use of its tools failed."""

    async def use(tools: McpTools) -> None:
        outcome = await tools.call("s___process", Raw(b"{}"))
        assert isinstance(outcome.content[0], Text)
        pids.append(int(outcome.content[0].text))
        raise RuntimeError("enough")

    pids: list[int] = []
    with pytest.raises(RuntimeError, match="enough"):
        used(stdio(), use)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_tools_are_used_inside_async_with() -> None:
    """Before and after there is nothing that would end the servers."""

    async def use() -> None:
        tools = McpTools([odd("plain")])
        with pytest.raises(RunError, match="must be entered"):
            await tools.tools()
        async with tools:
            assert len(await tools.tools()) == 1
        with pytest.raises(RunError, match="must be entered"):
            await tools.call("odd___go", Raw(b"{}"))

    asyncio.run(use())
