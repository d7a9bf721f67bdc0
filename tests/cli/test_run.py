"""`turnlog run`: the real command against a server on loopback."""

import os
import re
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.agent import running
from tests.agent.servers import COMMAND
from tests.agent.wires import KEY, OpenAI, set_up
from tests.cli.command import Command, Outcome
from tests.cli.terminal import CTRL_C, CTRL_D, Terminal
from tests.wires.server import WireServer, stream, whole

from turnlog import TurnLog
from turnlog.agent.recording import Recording
from turnlog.cli import main
from turnlog.errors import StoreFullError
from turnlog.model import ToolCallMeta

WIRE = OpenAI()
ECHO = (("id_1", "s___echo", '{"text":"one\\ntwo"}'),)


@pytest.fixture
def server(turnlog: Command) -> Iterator[WireServer]:
    """Give a server that pointer `kilo` points at, and a log with an MCP server `s`."""
    with WireServer() as server, TurnLog.open(turnlog.url) as log:
        set_up(log, WIRE, server.url)
        log.servers.set("s", COMMAND)
        yield server


def run(turnlog: Command, *arguments: str, stdin: bytes = b"", **environment: str) -> Outcome:
    """Run the command with a key."""
    return turnlog("run", *arguments, stdin=stdin, OPENAI_API_KEY=KEY, **environment)


def results(turnlog: Command) -> list[tuple[str, bool]]:
    """Return the texts of the last tool results, and whether they are errors."""
    with TurnLog.open(turnlog.url, create=False) as log:
        return [(text, is_error) for _, text, is_error in running.results(log, "main")]


def head(turnlog: Command, headish: str = "main") -> str:
    """Return the id of the turn that a bookmark is at."""
    with TurnLog.open(turnlog.url, create=False) as log:
        return log.turn(headish).id


def test_a_thread_of_system_turns_alone_is_not_sent(turnlog: Command) -> None:
    """Where the wire has them at the top nothing is left to ask: it is said in a line, and nothing is recorded."""
    with WireServer() as server, TurnLog.open(turnlog.url) as log:
        log.providers.set("anthropic", base_url=server.url)
        log.add_turn("Be brief.", role="system", bookmark="main")
        before = log.turn("main")
        outcome = turnlog(
            "run", "-c", "main", "--provider", "anthropic", "--model", "m", ANTHROPIC_API_KEY="sk-ant-of-a-test1"
        )
        assert (outcome.status, server.received) == (2, [])
        assert outcome.stderr == (
            "turnlog: there is nothing to ask: to anthropic the thread has no message beside system turns: "
            "give content too\n"
        )
        assert log.turn("main") == before
        assert log.calls.of("main") == []


def test_a_thread_of_which_nothing_is_sent_says_what_is_left_out(turnlog: Command) -> None:
    """There is a turn to answer, and the wire takes none of it: the first of what it does not take is named."""
    with TurnLog.open(turnlog.url) as log:
        turn = log.add_turn([{"type": "tool_result", "tool_use_id": "q", "content": "late"}], bookmark="main")
        said = turnlog.refused(
            "run", "-c", "main", "--provider", "anthropic", "--model", "m", ANTHROPIC_API_KEY="sk-ant-of-a-test1"
        )
        assert said == (
            "there is nothing to ask: to anthropic the thread has no message that it takes: "
            f"content[0] of turn {turn.id!r} is left out (there is no call 'q' that it answers)"
        )
        assert log.calls.of("main") == []


def test_run_says_which_turn_its_new_bookmark_hides(turnlog: Command, server: WireServer) -> None:
    """Also where the call fails: the question is recorded, and has moved the bookmark."""
    first = turnlog.ok("add", "one", "-b", "ferry", "--json").json["id"]
    turnlog.ok("add", "two", "-c", "ferry")
    told = f"turnlog: 'ferry~1' means this bookmark from now on, and not turn {first} any more\n"
    server.answers += [whole(b"{}", status=400), WIRE.reply("Hello")]
    assert [told in run(turnlog, "Hi", "-p", "kilo", "-b", "ferry~1").stderr for _ in range(2)] == [True, False]


def test_run_streams_text_to_stdout_and_says_where_it_is_on_stderr(turnlog: Command, server: WireServer) -> None:
    """The text is as it came, with a line feed at its end."""
    server.answers.append(WIRE.reply("Hello,\r\n\x1bworld"))
    outcome = run(turnlog, "Hi", "-p", "kilo", "-b", "main")
    assert (outcome.status, outcome.stdout) == (0, b"Hello,\r\n\x1bworld\n")
    assert outcome.stderr == f"turnlog: {head(turnlog)} on main (1 call, 30 tokens)\n"
    assert server.received[0].headers["authorization"] == f"Bearer {KEY}"


def test_run_reads_standard_input(turnlog: Command, server: WireServer) -> None:
    """With - and without a text; one line feed at the end is dropped."""
    server.answers += [WIRE.reply("One."), WIRE.reply("Two.")]
    assert run(turnlog, "-", "-p", "kilo", "-b", "main", stdin=b"a\nb\n").status == 0
    assert run(turnlog, "-c", "main", stdin=b"c").status == 0
    with TurnLog.open(turnlog.url) as log:
        said = [message.content_json for message in log.context("main").messages if message.role == "user"]
    assert said == [b'[{"type":"text","text":"a\\nb"}]', b'[{"type":"text","text":"c"}]']


def test_run_says_that_it_leaves_out_what_a_thread_has_come_to(turnlog: Command, server: WireServer) -> None:
    """Where its first turn is named by its id, as listings name threads; not by a bookmark, nor where it is alone."""
    with TurnLog.open(turnlog.url) as log:
        first = log.add_turn("One.", bookmark="at-first")
        log.add_turn("Two.", continues=first.id, bookmark="on")
        alone = log.add_turn("Alone.")
    server.answers += [WIRE.reply("Yes.") for _ in range(3)]
    said = [run(turnlog, "Go.", "-p", "kilo", "-c", at, "--no-bookmark").stderr for at in (first.id, "on~1", alone.id)]
    assert [f"{first.id} is the first of 2 turns of its thread" in told for told in said] == [True, False, False]
    assert all(told.splitlines()[-1].startswith("turnlog: ") for told in said)


def test_run_is_of_a_subject(turnlog: Command, server: WireServer) -> None:
    """So is the reply, and what goes on from it."""
    server.answers += [WIRE.reply("One."), WIRE.reply("Two.")]
    assert run(turnlog, "Hi", "-p", "kilo", "-b", "main", "--subject", "Ada").status == 0
    assert run(turnlog, "And?", "-c", "main").status == 0
    with TurnLog.open(turnlog.url) as log:
        assert [turn.meta.subject for turn in log.ancestry("main")] == ["Ada"] * 4


def test_run_takes_files_and_a_system_prompt(turnlog: Command, server: WireServer, tmp_path: Path) -> None:
    """They go before the question, and to the model; a prompt that holds already is not added again."""
    server.answers += [WIRE.reply("A bolt."), WIRE.reply("Two.")]
    picture, paper = tmp_path / "part.png", tmp_path / "paper.pdf"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    paper.write_bytes(b"%PDF-1.4")
    first = ("What is it?", "-p", "kilo", "-b", "main", "-s", "Be brief.", "-a", str(picture), "-a", str(paper))
    assert run(turnlog, *first).text == "A bolt.\n"
    assert run(turnlog, "How many?", "-c", "main", "-s", "Be brief.").text == "Two.\n"
    with TurnLog.open(turnlog.url) as log:
        turns = [(turn.meta.role, turn.meta.document_name or None) for turn in log.ancestry("main")]
    documents = [("user", "part.png"), ("user", "paper.pdf")]
    exchange = [("user", None), ("assistant", None)]
    assert turns == [("system", None), *documents, *exchange, *exchange]
    body = server.received[0].body
    assert b"Be brief." in body
    assert b"data:image/png;base64,iVBORw0KGgo=" in body


def test_a_file_that_is_not_there_makes_no_store(turnlog: Command, tmp_path: Path) -> None:
    """Nor is anything recorded in one that is there."""
    arguments = ("run", "Hi", "--provider", "openai", "--model", "m", "-a", str(tmp_path / "nix"))
    line = turnlog.refused(*arguments, OPENAI_API_KEY=KEY)
    assert line == f"document {str(tmp_path / 'nix')!r} cannot be read: no such file or directory"
    assert not turnlog.store.exists()
    with TurnLog.open(turnlog.url):
        pass
    assert turnlog.refused(*arguments, OPENAI_API_KEY=KEY) == line
    with TurnLog.open(turnlog.url) as log:
        assert log.threads() == []


DEEP = "[" * 2000 + "]" * 2000
PERSON = '{"title":"person","type":"object","properties":{"age":{"type":"integer"}},"required":["age"]}'


def test_run_comes_to_json_of_a_schema(turnlog: Command, server: WireServer, tmp_path: Path) -> None:
    """The model is held to it, and told once where its reply does not fit; the last line as JSON has the value."""
    (tmp_path / "person.json").write_text(PERSON)
    server.answers += [WIRE.reply('{"age":36}'), WIRE.reply("36"), WIRE.reply('{"age":37}')]
    outcome = run(turnlog, "Ada?", "-p", "kilo", "-b", "main", "--schema", str(tmp_path / "person.json"))
    assert (outcome.status, outcome.text) == (0, '{"age":36}\n')
    assert b'"response_format":{"type":"json_schema","json_schema":{"name":"person",' in server.received[0].body
    outcome = run(turnlog, "And now?", "-c", "main", "--schema", PERSON, "--json")
    assert (outcome.status, outcome.json_lines[-1]["output"]) == (0, {"age": 37})
    assert b"That reply is not what was asked for: 36 is not of type 'object'" in server.received[2].body
    assert next(line for line in outcome.json_lines if line["event"] == "output_refused")["why"].startswith("36 is not")


def test_only_the_value_goes_to_standard_output(turnlog: Command, server: WireServer) -> None:
    """Not what was said before a tool was called, nor the reply that did not fit."""
    schema = '{"type":"array","items":{"type":"integer"}}'
    server.answers += [WIRE.reply("I look.", ECHO), WIRE.reply("One."), WIRE.reply('{"value": [1,\n 2]}')]
    arguments = ("-p", "kilo", "--servers", "s", "--approve", "auto", "--schema", schema)
    outcome = run(turnlog, "Go", *arguments)
    assert (outcome.status, outcome.text) == (0, "[1,2]\n")
    assert "! the reply is not what was asked for: it is no JSON: " in outcome.stderr


def test_run_says_why_a_reply_is_not_what_was_asked_for(turnlog: Command, server: WireServer) -> None:
    """What was said is recorded, and the status is 1."""
    server.answers += [WIRE.reply("Ada"), WIRE.reply('{"age":"x"}')]
    outcome = run(turnlog, "Ada?", "-p", "kilo", "-b", "main", "--schema", PERSON)
    assert outcome.status == 1
    assert outcome.stderr.splitlines()[-1] == (
        "turnlog: stopped: the reply is not what was asked for: age: 'x' is not of type 'integer'"
    )
    assert len(turnlog.ok("ancestry", "main", "--json").json_lines) == 4


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("nix.json", "--schema 'nix.json': no such file or directory: give a file, or a JSON Schema itself"),
        ("{", "--schema: it is no JSON: Input data was truncated"),
        (
            '{"properties":{"a":{"type":"string","type":"null"}}}',
            "--schema.properties.a: a record has the key 'type' twice",
        ),
        ("true", "--schema: expected a JSON Schema, a JSON object, got bool"),
        ("[]", "--schema: expected a JSON Schema, a JSON object, got list"),
        (f'["{"a" * 300}"]', "--schema: expected a JSON Schema, a JSON object, got list"),
        ("1" * 300, "--schema: expected a JSON Schema, a JSON object, got int"),
        ('{"type":"nix"}', "output: no JSON Schema: type: 'nix' is not valid under any of the given schemas"),
    ],
)
def test_a_schema_that_is_none_makes_no_store(turnlog: Command, given: str, line: str) -> None:
    """One line says what to do."""
    arguments = ("run", "Hi", "--provider", "openai", "--model", "m", "--schema", given)
    assert turnlog.refused(*arguments, OPENAI_API_KEY=KEY) == line
    assert not turnlog.store.exists()


def test_run_calls_tools_and_shows_them_in_short_lines(turnlog: Command, server: WireServer) -> None:
    """Calls and results go to standard error, the text of all replies to standard output."""
    calls = (*ECHO, ("id_2", "nix", "{}"))
    server.answers += [WIRE.reply("I look.", calls), WIRE.reply("Done.")]
    outcome = run(turnlog, "Go", "-p", "kilo", "-b", "main", "--servers", "s", "--allow", "s___e*")
    assert (outcome.status, outcome.text) == (0, "I look.\nDone.\n")
    lines = outcome.stderr.splitlines()
    assert lines[0].startswith("← nix  error: there is no tool 'nix' (one of s___echo, s___arguments, ")
    assert lines[1:] == [
        '→ s___echo {"text":"one\\ntwo"}',
        "← s___echo  one (and 1 more line)",
        f"downgraded tool_result of turn {turnlog.ok('ancestry', 'main', '--json').json_lines[-2]['id']}: "
        "that it is an error stands in its text",
        f"turnlog: {head(turnlog)} on main (2 calls, 60 tokens)",
    ]


def test_run_as_json_lines_tells_all_that_happens(turnlog: Command, server: WireServer) -> None:
    """Each event as it happens, deltas too, and the result at the end."""
    server.answers += [WIRE.reply("I look.", ECHO), WIRE.reply("Done.")]
    arguments = ("-p", "kilo", "-b", "main", "--servers", "s", "--approve", "auto", "--json")
    outcome = run(turnlog, "Go", *arguments)
    records = outcome.json_lines
    assert (outcome.status, outcome.stderr) == (0, "")
    assert [record["event"] for record in records if record["event"] != "delta"] == [
        "turn",
        "call",
        "turn",
        "tool_started",
        "tool_finished",
        "turn",
        "call",
        "turn",
        "result",
    ]
    assert [record["content"] for record in records if record.get("type") == "text"] == ["I look.", "Done."]
    [started] = [record for record in records if record["event"] == "tool_started"]
    assert started == {"event": "tool_started", "name": "s___echo", "id": "id_1", "input": {"text": "one\ntwo"}}
    result = records[-1]
    assert (result["stopped"], result["head"], result["text"]) == ("done", head(turnlog), "Done.")
    assert (result["usage"]["total_tokens"], len(result["turns"]), len(result["calls"])) == (60, 4, 2)


def test_run_stops_where_nobody_can_be_asked_and_goes_on_from_there(turnlog: Command, server: WireServer) -> None:
    """Exit status 1, and a line that says how."""
    server.answers += [WIRE.reply("I look.", ECHO), WIRE.reply("Done.")]
    stopped = run(turnlog, "Go", "-p", "kilo", "-b", "main", "--servers", "s")
    assert (stopped.status, stopped.text) == (1, "I look.\n")
    assert stopped.stderr.splitlines()[1] == (
        "turnlog: stopped: a tool call needs approval, and nobody gave it (waiting: s___echo): "
        "`turnlog run -c main` goes on"
    )
    server.answers.appendleft(WIRE.reply("I look again.", ECHO))
    again = run(turnlog, "-c", "main", "--allow", "s___*", "--max-iterations", "1", "--json")
    assert (again.status, again.json_lines[-1]["unanswered"][0]["input"]) == (1, {"text": "one\ntwo"})
    resumed = run(turnlog, "-c", "main", "--approve", "auto")
    assert (resumed.status, resumed.text) == (0, "Done.\n")


@pytest.mark.parametrize(
    ("option", "why"),
    [("--max-iterations=1", "the limit of model calls is reached"), ("--max-total-tokens=5", "the limit of tokens")],
)
def test_run_stops_at_its_limits(turnlog: Command, server: WireServer, option: str, why: str) -> None:
    """With exit status 1."""
    server.answers.append(WIRE.reply("I look.", ECHO))
    outcome = run(turnlog, "Go", "-p", "kilo", "-b", "main", "--servers", "s", "--approve", "auto", option)
    assert outcome.status == 1
    assert f"turnlog: stopped: {why}" in outcome.stderr


@pytest.mark.parametrize(("option", "sent"), [("30", b"[Cut here: this is the first 30 of "), ("0", b"b" * 600)])
def test_a_long_result_is_cut_where_it_is_said(turnlog: Command, server: WireServer, option: str, sent: bytes) -> None:
    """`--max-result-bytes 0` sets no bound."""
    server.answers += [WIRE.reply("I look.", (("id_1", "s___echo", f'{{"text":"{"b" * 600}"}}'),)), WIRE.reply("Done.")]
    options = ("--servers", "s", "--approve", "auto", "--max-result-bytes", option)
    assert run(turnlog, "Go", "-p", "kilo", *options).text == "I look.\nDone.\n"
    assert sent in server.received[1].body.partition(b'"role":"tool"')[2]
    assert (b"read_result" in server.received[1].body) == (option == "30")


def test_a_failed_call_is_one_line_and_can_be_made_again(turnlog: Command, server: WireServer) -> None:
    """Exit status 2; what had arrived was printed and is recorded."""
    server.answers += [stream(WIRE.events("Half")[:-2], cut=True), WIRE.reply("Whole.")]
    failed = run(turnlog, "Go", "-p", "kilo", "-b", "main")
    assert (failed.status, failed.text) == (2, "Half\n")
    [line] = failed.stderr.splitlines()
    assert line.endswith(f"(retryable); recorded as {head(turnlog)}: `turnlog run -c main` tries again")
    again = run(turnlog, "-r")
    assert (again.status, again.text) == (0, "Whole.\n")
    assert server.received[0].body == server.received[1].body


def test_a_provider_that_asks_for_a_long_wait_is_told_when_to_come_back(turnlog: Command, server: WireServer) -> None:
    """As a time, not only as so many seconds; a wait that ends in no year of ours is left alone."""
    for wait in ("3600", "1e18"):
        server.answers.append(whole(b'{"error":{"message":"Slow."}}', status=429, headers={"retry-after": wait}))
    earliest = datetime.now(UTC) + timedelta(hours=1)
    failed = run(turnlog, "Go", "-p", "kilo", "-b", "main")
    found = re.search(r"\(retryable after 3600 s\); .*`turnlog run -c main` tries again, from (\S+) on$", failed.stderr)
    assert found is not None
    assert -1 < (datetime.fromisoformat(found[1]) - earliest).total_seconds() < 120
    assert run(turnlog, "-c", "main").stderr.endswith("`turnlog run -c main` tries again\n")


def test_a_thread_that_is_too_large_offers_the_way_out(turnlog: Command, server: WireServer) -> None:
    """To compact it, among others, and then it goes on."""
    body = b'{"error":{"message":"This model\'s maximum context length is 8 tokens.","code":"context_length_exceeded"}}'
    server.answers += [WIRE.reply("Yes."), whole(body, status=400), WIRE.reply("Well.")]
    assert run(turnlog, "Go", "-p", "kilo", "-b", "main").status == 0
    failed = run(turnlog, "On", "-c", "main")
    assert failed.status == 2
    [line] = failed.stderr.splitlines()
    assert ": the thread is too large for this model: compact it, go on from an earlier turn, or ask " in line
    assert f"; recorded as {head(turnlog)}: `turnlog compact main`, then `turnlog run TEXT -c main`, goes on " in line
    turnlog.ok("compact", "main", "--text", "All is well.", "--keep-last", "1", "--min-turns", "1")
    assert run(turnlog, "And?", "-c", "main").text == "Well.\n"
    assert b"All is well." in server.received[2].body


def test_parameters_and_options_reach_the_request(turnlog: Command, server: WireServer) -> None:
    """`--param` values are JSON where they read as JSON; a whole reply is shown as a streamed one is."""
    server.answers.append(OpenAI(streamed=False).reply("Done."))
    arguments = (
        "--param",
        "temperature=0.5",
        "--param",
        "user=me",
        "--no-stream",
        "--provider",
        "openai",
        "--model",
        "m",
    )
    outcome = run(turnlog, "Go", *arguments, "-b", "main")
    assert (outcome.status, outcome.text) == (0, "Done.\n")
    body = server.received[0].body
    assert (b'"temperature":0.5' in body, b'"user":"me"' in body, b'"model":"m"' in body) == (True, True, True)
    assert b'"stream":true' not in body


def test_a_recorded_run_is_repeated_from_its_store(turnlog: Command, server: WireServer) -> None:
    """`--replay` asks nobody, and needs no key."""
    server.answers += [WIRE.reply("I look.", (("id_1", "nix", "{}"),)), WIRE.reply("Done.")]
    arguments = ("Go", "-b", "main", "--provider", "openai", "--model", WIRE.model)
    assert run(turnlog, *arguments).status == 0
    other = f"sqlite:///{turnlog.store.parent / 'other.db'}"
    repeated = turnlog("run", *arguments, "--replay", turnlog.url, "--store", other)
    assert (repeated.status, repeated.text, len(server.received)) == (0, "I look.\nDone.\n", 2)
    contexts = [turnlog.ok("context", "main", "--json", "--store", url).stdout for url in (turnlog.url, other)]
    assert contexts[0] == contexts[1]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "there is nothing to say: give TEXT, pipe it in, or go on from a turn with -c"),
        (("", "-p", "kilo"), "there is nothing to say: give TEXT"),
        ((" ", "-p", "kilo"), "there is nothing to say: give TEXT"),
        (("Go", "-p", "kilo", "-a", "-"), "--attach -: standard input cannot be attached: give a file, or pipe it in "),
        (("Go", "-p", "kilo", "--wait", "0"), "--wait: 0 is not more than 0: leave it out for not at all"),
        (("Go", "-p", "kilo", "--max-time", "nan"), "--max-time: nan is not more than 0: leave it out for no limit"),
        (("Go", "-p", "kilo", "--max-parallel", "0"), "--max-parallel: 0 is less than 1"),
        (
            ("Go", "-p", "kilo", "--max-result-bytes", "-1"),
            "--max-result-bytes: -1 is less than 1: give 0 for no limit",
        ),
        (
            ("Go",),
            "nothing says which model to ask: give a pointer (`turnlog pointer` lists them), or provider and model; "
            "`turnlog pointer set default PROVIDER MODEL` says which from now on",
        ),
        (
            ("Go", "-p", "nix"),
            "no pointer 'nix' (one of kilo): set it with `turnlog pointer set nix PROVIDER MODEL`",
        ),
        (("Go", "-p", "kilo", "-c", "nix"), "no turn or bookmark 'nix'"),
        (
            ("Go", "-p", "kilo", "-b", "m", "--no-bookmark"),
            "--bookmark and --no-bookmark contradict each other: give one of them",
        ),
        (("Go", "-p", "kilo", "--param", "x"), "--param 'x' is not of the form NAME=VALUE, such as max_tokens=1000"),
        (("Go", "-p", "kilo", "--param", 'x=[{"a":1,"a":2}]'), "--param x[0]: a record has the key 'a' twice"),
        (("Go", "-p", "kilo", "--param", f"x={DEEP}"), "--param x is nested too deeply"),
        (("Go", "-p", "kilo", "--schema", '{"allOf":' + DEEP + "}"), "--schema: it is nested too deeply"),
        (("Go", "-p", "kilo", "--servers", "nix"), "no MCP server 'nix' (one of s): register it with "),
        (("Go", "-p", "kilo", "--approve", "maybe"), "invalid value 'maybe' for --approve"),
        (("Go", "-p", "kilo", "--replay", "sqlite:////nowhere/x.db"), "there is no store at '/nowhere/x.db'"),
    ],
)
def test_run_refuses_what_it_cannot_begin(
    turnlog: Command, server: WireServer, arguments: tuple[str, ...], line: str
) -> None:
    """Exit status 2, one line, and nothing recorded."""
    assert turnlog.refused("run", *arguments).startswith(line)
    assert turnlog.ok("threads", "--json").stdout == b""


def test_what_a_provider_cannot_carry_is_said_with_the_turn_that_is_recorded(
    turnlog: Command, server: WireServer
) -> None:
    """The question need not be put again."""
    with TurnLog.open(turnlog.url) as log:
        audio = {"type": "document", "source": {"type": "base64", "media_type": "audio/x-odd", "data": "AAAA"}}
        log.add_turn([audio], bookmark="main")
    outcome = run(turnlog, "What is it?", "-c", "main", "-p", "kilo")
    assert outcome.status == 2
    assert f"recorded as {head(turnlog)}: `turnlog run -c main` tries again\n" in outcome.stderr
    server.answers.append(WIRE.reply("A sound."))
    assert run(turnlog, "-c", "main", "--on-loss", "report").text == "A sound.\n"


def test_a_result_that_cannot_be_recorded_is_not_said_to_be_tried_again(
    turnlog: Command, server: WireServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tool may have had effects: whoever goes on is asked first."""

    async def fill(*_: object, **__: object) -> None:
        raise StoreFullError("no space left for store 'x': free some; nothing was recorded")

    monkeypatch.setattr(Recording, "results", fill)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.answers.append(WIRE.reply("I look.", ECHO))
    arguments = ["run", "Go", "-p", "kilo", "-b", "main", "--servers", "s", "--approve", "auto"]
    assert main([*arguments, "--store", turnlog.url]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"turnlog: no space left for store 'x': free some; what came before is recorded, up to {head(turnlog)}: "
        "`turnlog run -c main` goes on, and asks about tool calls that had begun"
    )


def test_what_may_be_lost_only_where_it_is_said_names_the_option(turnlog: Command, server: WireServer) -> None:
    """The line that is printed goes on, and the message has no argument of Python."""
    outcome = run(turnlog, "What is new?", "-b", "main", "-p", "kilo", "--search")
    assert (outcome.status, server.received) == (2, [])
    assert "allow losses with --on-loss report; what came before is recorded, up to " in outcome.stderr
    assert outcome.stderr.endswith(": `turnlog run -c main --on-loss report` tries again\n")
    refused = run(turnlog, "And now?", "-c", "main", "--on-loss", "error")
    assert refused.stderr.endswith(": `turnlog run -c main` tries again\n")
    server.answers.append(WIRE.reply("Much."))
    assert run(turnlog, "-c", "main", "--on-loss", "report").text == "Much.\n"


def test_a_missing_key_is_said_before_anything_is_recorded(turnlog: Command) -> None:
    """And where it is looked for."""
    turnlog.ok("pointer", "set", "kilo", "openai", "m")
    line = turnlog.refused("run", "Go", "-p", "kilo")
    assert line.startswith("no API key for 'openai': set OPENAI_API_KEY in the environment")
    assert turnlog.ok("threads", "--json").stdout == b""


def test_a_reader_that_has_gone_leaves_an_aborted_turn(turnlog: Command, server: WireServer) -> None:
    """As with every other command there is no traceback; but the model has not finished, which the status says."""
    server.answers.append(WIRE.reply("Hello."))
    reader, writer = os.pipe()
    os.close(reader)
    done = turnlog.writing_to(writer, "run", "Hi", "-p", "kilo", "-b", "main", OPENAI_API_KEY=KEY)
    os.close(writer)
    line = f"what there was is recorded as {head(turnlog)}: `turnlog run -c main` goes on"
    assert done.stderr == f"turnlog: stopped: whoever read the output has closed it; {line}\n"
    assert done.status == 1
    with TurnLog.open(turnlog.url) as log:
        assert log.turn("main").meta.stop_reason == "aborted"


def test_an_interrupt_records_what_had_arrived(turnlog: Command, server: WireServer) -> None:
    """SIGINT without a terminal: exit status 130, and a line that says where it is."""
    server.answers.append(stream(WIRE.events("Half")[:-2], hang=True))
    with turnlog.begin("run", "Hi", "-p", "kilo", "-b", "main", OPENAI_API_KEY=KEY) as process:
        assert process.stdout is not None
        assert process.stdout.read(4) == b"Half"
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (130, b"\n")
    assert stderr.decode() == (
        f"turnlog: interrupted; what there was is recorded as {head(turnlog)}: `turnlog run -c main` goes on\n"
    )
    with TurnLog.open(turnlog.url) as log:
        assert (log.turn("main").meta.stop_reason, log.payload("main")) == (
            "aborted",
            b'[{"type":"text","text":"Half"}]',
        )


# At a terminal


def at_terminal(turnlog: Command, *arguments: str, piped: bytes | None = None) -> Terminal:
    """Return a terminal with the command on it."""
    return Terminal(turnlog, "run", *arguments, "-p", "kilo", "-b", "main", piped=piped, OPENAI_API_KEY=KEY)


def test_a_person_is_asked_before_a_tool_runs(turnlog: Command, server: WireServer) -> None:
    """No, an answer in its place, yes, and yes for good; one letter that means nothing is asked about again."""
    calls = [
        (f"id_{n}", name, f'{{"text":"{n}"}}') for n, name in enumerate(["s___echo"] * 3 + ["s___huge", "s___echo"])
    ]
    server.answers += [WIRE.reply("I look.", calls), WIRE.reply("Done.")]
    with at_terminal(turnlog, "Go", "--servers", "s") as terminal:
        assert '→ s___echo {"text":"0"}' in terminal.expect("run it? ")
        terminal.send("x\n")
        assert "y: run it; n: do not; a: always run this tool" in terminal.expect("run it? ")
        terminal.send("n\n")
        assert '→ s___echo {"text":"1"}' in terminal.expect("run it? ")
        terminal.send("It says one.\n")
        terminal.expect("run it? ")
        terminal.send("a\n")
        assert '→ s___huge {"text":"3"}' in terminal.expect("run it? ")
        terminal.send("no\n")
        shown, status = terminal.end()
    assert (status, shown.splitlines()[-2], "run it?" in shown) == (0, "Done.", False)
    assert results(turnlog) == [
        ("The user did not allow this tool call.", True),
        ("It says one.", False),
        ("2", False),
        ("The user did not allow this tool call.", True),
        ("4", False),
    ]
    told = [line.split(maxsplit=2)[2] for line in turnlog.ok("show", "main~2").text.splitlines() if "tool call" in line]
    assert told[0] == 's___echo {"text":"0"} was denied by the person'
    assert len(set(told)) == 5


def test_a_person_is_asked_again_about_a_tool_that_is_another_one(turnlog: Command, server: WireServer) -> None:
    """Yes for good is for the tool as the server described it."""
    calls = [(name, f'{{"text":"{name}"}}') for name in ("first", "second", "third")]
    learning = ("id_learn", "s___learn", '{"name":"echo"}')
    server.answers += [
        WIRE.reply("I look.", [("id_1", "s___echo", calls[0][1]), ("id_2", "s___echo", calls[1][1])]),
        WIRE.reply("I learn.", [learning]),
        WIRE.reply("I look again.", [("id_3", "s___echo", calls[2][1])]),
        WIRE.reply("Done."),
    ]
    with at_terminal(turnlog, "Go", "--servers", "s") as terminal:
        terminal.expect("run it? ")
        terminal.send("a\n")
        shown = terminal.expect("run it? ")
        assert '→ s___learn {"name":"echo"}' in shown
        assert "otherwise now" not in shown
        terminal.send("y\n")
        assert '! the server describes s___echo otherwise now\n→ s___echo {"text":"third"}' in terminal.expect(
            "run it? "
        )
        terminal.send("n\n")
        shown, status = terminal.end()
    assert (status, shown.splitlines()[-2]) == (0, "Done.")
    assert results(turnlog) == [("The user did not allow this tool call.", True)]


def test_a_person_is_asked_about_each_call_that_a_kill_broke_off(turnlog: Command, server: WireServer) -> None:
    """Yes for good is no answer there, and what was allowed for good before is asked about too."""
    calls = [(f"id_{n}", "s___echo", f'{{"text":"{n}"}}') for n in range(3)]
    server.answers += [WIRE.reply("I look.", calls), WIRE.reply("Done.")]
    assert run(turnlog, "Go", "-p", "kilo", "-b", "main", "--servers", "s").status == 1
    with TurnLog.open(turnlog.url) as log:
        begun = [ToolCallMeta(turn=log.turn("main").id, block=n, attempt=1, approved="auto") for n in (2, 3)]
        log.tool_calls.begin(begun)
    with Terminal(turnlog, "run", "-c", "main", OPENAI_API_KEY=KEY) as terminal:
        assert '→ s___echo {"text":"0"}' in terminal.expect("run it? ")
        terminal.send("a\n")
        assert '→ s___echo {"text":"1"}' in terminal.expect("run it again? [y/n/?, or an answer] ")
        terminal.send("a\n")
        assert "n: do not, the model reads that nobody knows" in terminal.expect("run it again? ")
        terminal.send("y\n")
        assert "may have had effects" in terminal.expect("run it again? ")
        terminal.send("n\n")
        _, status = terminal.end()
    assert status == 0
    assert [text.partition(".")[0] for text, _ in results(turnlog)] == [
        "0",
        "1",
        "An earlier run ended while this tool was at work",
    ]


def test_of_long_arguments_both_ends_are_shown_and_all_on_request(turnlog: Command, server: WireServer) -> None:
    """Nobody approves what could not be seen: neither behind a long text, nor behind what is nested many times."""
    long = "\\u001b[2J" + "long " * 3000 + "; rm -rf /"
    nested = "[" * 100 + "]" * 100
    server.answers += [
        WIRE.reply("I look.", (("id_1", "s___echo", f'{{"text":"{long}"}}'),)),
        WIRE.reply("Again.", (("id_2", "s___echo", f'{{"pad":{nested},"text":"rm -rf /home"}}'),)),
    ]
    with at_terminal(turnlog, "Go", "--servers", "s") as terminal:
        shown = terminal.expect("run it? [y/n/a/v/?, or an answer] ")
        assert '  "text": "\\u001b[2Jlong long' in shown
        assert re.search(r"… 7,\d\d\d characters between, not shown: v shows all", shown)
        assert "; rm -rf /" in shown
        terminal.send("v\n")
        assert terminal.expect("run it? ").count("long") == 3000
        terminal.send("n\n")
        shown = terminal.expect("run it? [y/n/a/?, or an answer] ")
        assert ('"text":"rm -rf /home"' in shown, "not shown" in shown) == (True, False)
        terminal.send(CTRL_D)
        _, status = terminal.end()
    assert status == 1


def test_a_person_is_asked_where_text_was_piped_in(turnlog: Command, server: WireServer) -> None:
    """At the terminal of the process."""
    server.answers += [WIRE.reply("I look.", ECHO), WIRE.reply("Done.")]
    with at_terminal(turnlog, "-", "--servers", "s", piped=b"From a pipe.") as terminal:
        terminal.expect("run it? ")
        terminal.send("y\n")
        shown, status = terminal.end()
    assert (status, "Done." in shown) == (0, True)


def test_ctrl_c_breaks_a_reply_off(turnlog: Command, server: WireServer) -> None:
    """What had arrived is recorded; the line says how to go on."""
    server.answers.append(stream(WIRE.events("Half")[:-2], hang=True))
    with at_terminal(turnlog, "Go") as terminal:
        terminal.expect("Half")
        terminal.send(CTRL_C)
        shown, status = terminal.end()
    assert status == 130
    assert shown.splitlines()[-1].startswith("turnlog: interrupted; what there was is recorded as ")


def test_ctrl_c_at_the_question_leaves_the_call_unanswered(turnlog: Command, server: WireServer) -> None:
    """The tool did not run, and the run can be resumed."""
    server.answers.append(WIRE.reply("I look.", ECHO))
    with at_terminal(turnlog, "Go", "--servers", "s") as terminal:
        terminal.expect("run it? ")
        terminal.interrupt("recorded as ")
        shown, status = terminal.end()
    assert (status, shown.startswith(head(turnlog))) == (130, True)
    with TurnLog.open(turnlog.url) as log:
        assert log.turn("main").meta.stop_reason == "tool_use"


def test_control_characters_of_a_reply_do_not_reach_the_terminal(turnlog: Command, server: WireServer) -> None:
    """They are spelled out, and line ends stay, wherever the pieces of the reply part."""
    server.answers.append(stream([*WIRE.events("a\r")[:1], *WIRE.events("\nb\x1b[2J")], done=True))
    with at_terminal(turnlog, "Go") as terminal:
        shown, status = terminal.end()
    assert (shown.startswith("a\nb\\x1b[2J\n"), status) == (True, 0)


def test_thinking_is_shown_to_people_only(turnlog: Command, server: WireServer) -> None:
    """On standard error, if that is a terminal."""
    thought = b'{"id":"r","model":"m","choices":[{"index":0,"delta":{"reasoning_content":"Hm, well."}}]}'
    for _ in range(2):
        server.answers.append(stream([thought, *WIRE.events("Yes.")], done=True))
    with at_terminal(turnlog, "Go") as terminal:
        shown, _ = terminal.end()
    assert shown.startswith("Hm, well.\nYes.\n")
    piped = run(turnlog, "Go", "-p", "kilo", "--no-bookmark")
    assert (piped.text, "Hm" in piped.stderr) == ("Yes.\n", False)


def test_http_errors_are_one_line(turnlog: Command, server: WireServer) -> None:
    """With what the provider said."""
    server.answers.append(whole(b'{"error":{"message":"no such\\nmodel"}}', status=404))
    outcome = run(turnlog, "Go", "-p", "kilo", "-b", "main")
    [line] = outcome.stderr.splitlines()
    assert (outcome.status, "answered 404: no such model; recorded as " in line) == (2, True)
