"""How a run is shown while it goes on: what is waited for, and what tools return."""

import re
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import Any

import msgspec
import pytest
from rich.console import Console
from tests.agent.servers import COMMAND
from tests.agent.wires import KEY, OpenAI, set_up
from tests.cli.command import Command
from tests.cli.terminal import CTRL_C, CTRL_D, Terminal
from tests.wires.server import Answer, WireServer, stream

from turnlog import TurnLog
from turnlog.cli.json_text import on_one_line, shortened, value_of
from turnlog.cli.shown_text import ShownText
from turnlog.cli.waiting import Waiting

WIRE = OpenAI()
PATIENCE_S = 5


@pytest.fixture
def server(turnlog: Command) -> Iterator[WireServer]:
    """Give a server that pointer `kilo` points at, and a log with an MCP server `s`."""
    with WireServer() as server, TurnLog.open(turnlog.url) as log:
        set_up(log, WIRE, server.url)
        log.servers.set("s", COMMAND)
        yield server


class _Screen(StringIO):
    """A file that tells when something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def write(self, text: str) -> int:
        done = super().write(text)
        self.written.set()
        return done


def screen(*, term: str = "xterm", file: _Screen | None = None) -> tuple[_Screen, Console]:
    """Return what is written to a terminal of 40 columns, and the terminal."""
    file = file or _Screen()
    return file, Console(file=file, width=40, force_terminal=True, _environ={"TERM": term})


def test_waiting_is_said_on_a_line_that_goes_again() -> None:
    """With the time that it took and how much has come; the line is erased at the end."""
    file, console = screen()
    waiting = Waiting(console, every_s=0.001)
    waiting.begin("thinking")
    waiting.count(1200)
    while "1,200" not in file.getvalue():
        file.written.clear()
        assert file.written.wait(PATIENCE_S)
    assert waiting.end()
    last = file.getvalue().removesuffix("\r\x1b[K").split("\r\x1b[K")[-1]
    assert re.fullmatch("\x1b\\[2mthinking … [0-9]+ s, 1,200 characters\x1b\\[0m", last)
    assert file.getvalue().endswith("\r\x1b[K")
    assert not waiting.end()


def test_what_is_waited_for_is_cut_to_the_terminal_and_cannot_command_it() -> None:
    """It may be a tool's name, which anybody has given."""
    file, console = screen()
    waiting = Waiting(console, every_s=0.001)
    waiting.begin("a\x1b[2Jb\n" + "c" * 100)
    assert file.written.wait(PATIENCE_S)
    waiting.end()
    assert file.getvalue().split("\r\x1b[K")[1] == "\x1b[2ma\\x1b[2Jb " + "c" * 28 + "…\x1b[0m"


@pytest.mark.parametrize("terminal", [True, False])
def test_what_cannot_erase_is_told_of_waiting_on_lines(terminal: bool) -> None:
    """A terminal that is too plain for it, and anything that is no terminal; there is nothing to erase."""
    file = _Screen()
    console = screen(term="dumb", file=file)[1] if terminal else Console(file=file)
    waiting = Waiting(console, every_s=60, lines_every_s=0.001)
    waiting.begin("waiting for model-1")
    assert file.written.wait(PATIENCE_S)
    assert not waiting.end()
    assert set(file.getvalue().splitlines()) == {"waiting for model-1 … 0 s"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{\n  "name": "a b",\n  "n": 1.50,\n  "ok": [true, null]\n}', '{name: "a b", n: 1.5, ok: [true, null]}'),
        ('["say \\"hi\\"\\nand \\u00e9", {}]', '["say "hi" and é", {}]'),
        ('["\\u001b[2J"]', '["\\x1b[2J"]'),
        ('{"a": "' + "x" * 2000 + '"}', '{a: "' + "x" * 995 + "…"),
        ("[" + "1," * 600 + "1]", "[" + "1, " * 333 + "…"),
        ('"text"', None),
        ("[see below]", None),
        ("", None),
        ('["\ud800"]', None),
        ("[" * 2000 + "]" * 2000, None),
    ],
)
def test_json_is_one_line_without_escapes(text: str, line: str | None) -> None:
    """Objects and arrays; cut where they are longer than any terminal is wide."""
    assert on_one_line(text) == line


@pytest.mark.parametrize("levels", [500, 501, 5000, 100_000])
def test_json_that_is_given_has_a_depth_that_no_version_of_python_says(levels: int) -> None:
    """It is nested 500 levels deep at most."""
    text = "[" * levels + "]" * levels
    if levels == 500:
        assert msgspec.json.encode(value_of(text, "--schema")).decode() == text
    else:
        with pytest.raises(RecursionError):
            value_of(text, "--schema")


def test_long_strings_of_json_are_cut() -> None:
    """However deep they stand; nothing else changes, and the order stays."""
    text = b'{"b":["' + b"x" * 1001 + b'"],"a":{"c":1}}'
    cut = "x" * 1000 + "… (and 1 more character)"
    assert shortened(text) == f'{{\n  "b": [\n    "{cut}"\n  ],\n  "a": {{\n    "c": 1\n  }}\n}}'


class _WithErasing(Command):
    """The command on a terminal that can erase a line."""

    def environment(self, **changes: str) -> dict[str, str]:
        return super().environment(**changes) | {"TERM": "xterm"}


def test_a_run_says_what_it_waits_for(turnlog: Command, server: WireServer) -> None:
    """The model, and a call that is being written; on standard error, so that the text alone is on standard output."""
    call = b'{"id":"r","model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","type":"function",'
    call += b'"function":{"name":"s___echo","arguments":"{\\"text\\":"}}]}}]}'
    command = _WithErasing(store=turnlog.store)
    for events, said, came in (
        ([], "waiting for model-1 … ", " s\x1b"),
        ([call], "writing a call of s___echo … ", " s, 8 characters"),
    ):
        server.answers = deque([stream(events, hang=True)])
        with Terminal(command, "run", "Go", "-p", "kilo", "--servers", "s", OPENAI_API_KEY=KEY) as terminal:
            terminal.expect(said)
            assert terminal.expect(came).isdecimal()  # however busy the machine is
            terminal.send(CTRL_C)
            shown, status = terminal.end()
        assert (status, "interrupted; what there was is recorded as" in shown) == (130, True)


def test_a_run_shows_at_once_that_it_works_until_it_waits_for_the_model(turnlog: Command, server: WireServer) -> None:
    """On a line that goes again; files and programs see nothing of it."""
    server.answers.append(stream([], hang=True))
    arguments = ("run", "Go", "-p", "kilo")
    with Terminal(turnlog, *arguments, colour=True, OPENAI_API_KEY=KEY) as terminal:
        assert terminal.expect("starting …") == "\x1b[2m"
        assert set(terminal.expect("waiting for model-1 … ").split("\x1b")) == {"", "[0m\r", "[K\r", "[K", "[2m"}
        terminal.send(CTRL_C)
        shown, status = terminal.end()
    assert (status, "starting" in shown) == (130, False)
    server.answers = deque([WIRE.reply("Hello")] * 3)
    with Terminal(turnlog, *arguments, colour=True, OPENAI_API_KEY=KEY) as terminal:
        terminal.expect("starting …")
        shown, status = terminal.end()
    assert (status, "\r\x1b[KHello\n" in shown) == (0, True)
    assert "starting" not in turnlog(*arguments, OPENAI_API_KEY=KEY).stderr
    with Terminal(turnlog, *arguments, "--json", colour=True, OPENAI_API_KEY=KEY) as terminal:
        shown, _ = terminal.end()
    assert "starting" not in shown


@pytest.mark.parametrize("arguments", [("--nix",), ("-p", "nix"), ("--provider", "openai", "--max-time", "x")])
def test_what_is_refused_stands_in_the_place_of_the_first_sign(turnlog: Command, arguments: tuple[str, ...]) -> None:
    """Whether it is refused when the command line is read, or after."""
    with Terminal(turnlog, "run", "Go", *arguments, colour=True) as terminal:
        shown, status = terminal.end()
    assert shown.startswith("\x1b[2mstarting …\x1b[0m\r\x1b[Kturnlog: ")
    assert (status, shown.count("\n")) == (2, 1)


def test_a_run_says_how_far_a_tool_has_come(turnlog: Command, server: WireServer) -> None:
    """In the line that says what is waited for."""
    server.answers += [WIRE.reply("I walk.", (("id_1", "s___steps", '{"count": 3, "ends": false}'),))]
    arguments = ("run", "Go", "-p", "kilo", "--servers", "s", "--approve", "auto")
    with Terminal(_WithErasing(store=turnlog.store), *arguments, OPENAI_API_KEY=KEY) as terminal:
        terminal.expect("s___steps 3/3 step 3 … ")
        terminal.send(CTRL_C)
        _, status = terminal.end()
    assert status == 130


def test_a_session_says_that_it_starts_a_server(turnlog: Command, server: WireServer) -> None:
    """Which may take long; Ctrl-C gives it up and stays, and nothing is recorded."""
    with TurnLog.open(turnlog.url) as log:
        log.servers.set("slow", ["sleep", "60"])
    command = _WithErasing(store=turnlog.store)
    with Terminal(command, "chat", "-p", "kilo", "--servers", "slow", OPENAI_API_KEY=KEY) as terminal:
        terminal.expect("you > ")
        terminal.send("Go\r")
        terminal.expect("starting slow … ")
        terminal.send(CTRL_C)
        terminal.expect("you > ")
        terminal.send(CTRL_D)
        _, status = terminal.end()
    with TurnLog.open(turnlog.url) as log:
        assert (status, log.threads()) == (0, [])


def test_json_of_a_tool_is_shown_on_one_line(turnlog: Command, server: WireServer) -> None:
    """With nothing escaped, and without the number of lines that it had."""
    said = '{\n  "a": [1, "b"]\n}'
    text = msgspec.json.encode({"text": said}).decode()
    server.answers += [WIRE.reply("I look.", (("id_1", "s___echo", text),)), WIRE.reply("Done.")]
    arguments = ("run", "Go", "-p", "kilo", "--servers", "s", "--approve", "auto")
    outcome = turnlog(*arguments, OPENAI_API_KEY=KEY)
    assert outcome.stderr.splitlines()[1] == '← s___echo  {a: [1, "b"]}'


def test_what_may_have_had_effects_is_not_among_the_lines_left_out(turnlog: Command, server: WireServer) -> None:
    """Of a server that ended during a call."""
    server.answers += [WIRE.reply("", (("id_1", "s___crash", '{"message":"bye"}'),)), WIRE.reply("Done.")]
    arguments = ("run", "Go", "-p", "kilo", "--servers", "s", "--approve", "auto")
    outcome = turnlog(*arguments, OPENAI_API_KEY=KEY)
    assert outcome.stderr.splitlines()[1] == (
        "← s___crash  error: MCP server 's' ended during the call; the last it said: bye"
        " (and 1 more line; it may have had effects)"
    )


def _item(*texts: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "id": "m1", "status": "completed", "role": "assistant", "content": content}


def _responses(*shown: str, recorded: Sequence[str]) -> Answer:
    """Return a reply of the Responses API whose last event has other texts than the pieces before."""
    pieces: list[dict[str, Any]] = [
        {"type": "response.output_text.delta", "item_id": "m1", "output_index": 0, "content_index": 0, "delta": text}
        for text in shown
    ]
    response = {"id": "r", "object": "response", "model": "m", "status": "completed", "output": [_item(*recorded)]}
    pieces.append({"type": "response.completed", "response": response})
    return stream([msgspec.json.encode(piece) for piece in pieces], names=True)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (_responses(recorded=["Hello"]), "Hello\n"),
        (_responses("Hel", "lo", recorded=["Hello world"]), "Hello world\n"),
        (_responses("A", recorded=["A", "é", "b"]), "Aéb\n"),
    ],
    ids=["no piece", "longer", "more texts"],
)
def test_text_that_came_in_no_piece_is_shown_when_it_is_recorded(
    turnlog: Command, server: WireServer, answer: Answer, text: str
) -> None:
    """On the line of what was shown; nothing is said of it."""
    with TurnLog.open(turnlog.url) as log:
        log.providers.set("openai_responses", base_url=f"{server.url}/v1")
    server.answers.append(answer)
    outcome = turnlog("run", "Go", "--provider", "openai_responses", "--model", "m", OPENAI_API_KEY=KEY)
    assert (outcome.status, outcome.text, outcome.stderr.count("\n")) == (0, text, 1)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (_responses("Hello", recorded=["Bye!!"]), "Hello\n"),
        (_responses("Hello more", recorded=["Hello"]), "Hello more\n"),
    ],
    ids=["other", "shorter"],
)
def test_a_reply_that_is_recorded_otherwise_than_it_was_shown_is_told(
    turnlog: Command, server: WireServer, answer: Answer, text: str
) -> None:
    """With the command that shows what is recorded; not the next reply."""
    with TurnLog.open(turnlog.url) as log:
        log.providers.set("openai_responses", base_url=f"{server.url}/v1")
    server.answers += [answer, _responses("Yes", recorded=["Yes"])]
    arguments = ("chat", "--provider", "openai_responses", "--model", "m", "-b", "main")
    outcome = turnlog(*arguments, stdin=b"Go\nAnd?\n", OPENAI_API_KEY=KEY)
    with TurnLog.open(turnlog.url) as log:
        turn = log.ancestry("main")[1].id
    said = f"! what was recorded of this reply differs from what was shown: see turnlog show {turn}"
    assert (outcome.status, outcome.text) == (0, f"{text}Yes\n")
    assert [line for line in outcome.stderr.splitlines() if line.startswith("!")] == [said]


@pytest.mark.parametrize("wanted", [["Hello"], ["Hel", "lo"], ["", "Hello", ""]])
def test_a_text_that_was_shown_is_known_by_its_length_and_digest(wanted: list[str]) -> None:
    """However it is parted, and with half of a surrogate pair."""
    shown = ShownText()
    assert shown.rest_of(wanted) == list(filter(None, wanted))
    for piece in ("H", "", "ello"):
        shown.add(piece)
    assert shown.rest_of(wanted) == []
    assert shown.rest_of([*wanted, "\ud800", " b"]) == ["\ud800", " b"]
    assert (shown.rest_of(["Hell"]), shown.rest_of(["hello"]), shown.rest_of([])) == (None, None, None)
    shown.add("\ud800")
    assert shown.rest_of([*wanted, "\ud800b"]) == ["b"]
