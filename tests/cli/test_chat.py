"""`turnlog chat`: the real command at a terminal, and with lines piped in."""

from collections.abc import Iterator

import pytest
from tests.agent.running import results
from tests.agent.servers import COMMAND
from tests.agent.wires import KEY, Anthropic, OpenAI, set_up
from tests.cli.command import Command, Outcome
from tests.cli.terminal import CTRL_C, CTRL_D, Terminal
from tests.wires.server import WireServer, stream, whole

from turnlog import TurnLog

WIRE = OpenAI()


@pytest.fixture
def server(turnlog: Command) -> Iterator[WireServer]:
    """Give a server that pointer `kilo` points at, and a log with an MCP server `s`."""
    with WireServer() as server, TurnLog.open(turnlog.url) as log:
        set_up(log, WIRE, server.url)
        log.servers.register("s", COMMAND)
        yield server


def chat(turnlog: Command, *lines: str, arguments: tuple[str, ...] = ("-p", "kilo", "-b", "main")) -> Outcome:
    """Run a session with lines from a pipe."""
    stdin = "".join(f"{line}\n" for line in lines).encode()
    return turnlog("chat", *arguments, stdin=stdin, OPENAI_API_KEY=KEY, ANTHROPIC_API_KEY=KEY)


def said(turnlog: Command, headish: str = "main") -> list[str]:
    """Return the texts of a window."""
    with TurnLog.open(turnlog.url, create=False) as log:
        return [getattr(message.content[0], "text", "") for message in log.context(headish).messages]


def test_each_message_is_a_run_that_goes_on_from_the_last(turnlog: Command, server: WireServer) -> None:
    """Text goes to standard output; the pointer is written once, and the bookmark moves along."""
    server.answers += [WIRE.reply("One."), WIRE.reply("Two.")]
    outcome = chat(turnlog, "First", "", "Second")
    assert (outcome.status, outcome.text) == (0, "One.\nTwo.\n")
    assert said(turnlog) == ["First", "One.", "Second", "Two."]
    with TurnLog.open(turnlog.url) as log:
        assert [turn.meta.delta for turn in log.ancestry("main")] == [{"provider_ptr": "kilo"}, {}, {}, {}]
    assert outcome.stderr.splitlines()[-1] == "turnlog: `turnlog chat -c main` goes on from here"


def test_undo_goes_back_before_the_last_message(turnlog: Command, server: WireServer) -> None:
    """What came of it stays in the log, and so does its bookmark; the new branch can have one of its own."""
    server.answers += [WIRE.reply("One."), WIRE.reply("Two."), WIRE.reply("Other."), WIRE.reply("More.")]
    chat(turnlog, "First", "Second", "/undo", "Instead", "/bookmark other", "Third")
    assert said(turnlog, "main") == ["First", "One.", "Second", "Two."]
    assert said(turnlog, "other") == ["First", "One.", "Instead", "Other.", "Third", "More."]


def test_undo_of_the_first_message_starts_anew(turnlog: Command, server: WireServer) -> None:
    """With the options of the session."""
    server.answers += [WIRE.reply("One."), WIRE.reply("Other.")]
    outcome = chat(turnlog, "First", "/undo", "/undo", "/bookmark other", "Instead")
    assert said(turnlog, "other") == ["Instead", "Other."]
    assert "the next message starts a thread\nthere is nothing to undo\n" in outcome.stderr


def test_fork_goes_on_from_another_turn(turnlog: Command, server: WireServer) -> None:
    """By its id or by a bookmark, which then moves along."""
    with TurnLog.open(turnlog.url) as log:
        log.add_turn("Elsewhere.", bookmark="other")
    server.answers += [WIRE.reply("One."), WIRE.reply("Two.")]
    outcome = chat(turnlog, "First", "/fork other", "Second", "/fork nix", "/fork")
    assert (said(turnlog, "main"), said(turnlog, "other")) == (["First", "One."], ["Elsewhere.", "Second", "Two."])
    assert "turnlog: no turn or bookmark 'nix'\n/fork needs a turn: its id, or a bookmark\n" in outcome.stderr


def test_show_prints_a_turn_whole(turnlog: Command, server: WireServer) -> None:
    """The last one, or another."""
    with TurnLog.open(turnlog.url) as log:
        log.add_turn("Elsewhere.", bookmark="other")
    server.answers.append(WIRE.reply("One."))
    outcome = chat(turnlog, "/show", "First", "/show", "/show other")
    assert outcome.text == "One.\nOne.\nElsewhere.\n"
    assert "nothing was said yet\n" in outcome.stderr


def test_pointer_asks_another_model_from_there_on(turnlog: Command, server: WireServer) -> None:
    """Another provider too."""
    with WireServer(Anthropic().reply("Two.")) as other, TurnLog.open(turnlog.url) as log:
        set_up(log, Anthropic(), other.url, "mega")
        server.answers += [WIRE.reply("One.")]
        outcome = chat(turnlog, "First", "/pointer nix", "/pointer mega", "Second")
        assert [turn.meta.delta for turn in log.ancestry("main")][2] == {"provider_ptr": "mega"}
    assert outcome.text == "One.\nTwo.\n"
    assert "turnlog: no pointer 'nix'" in outcome.stderr


def test_a_failed_call_keeps_the_session_and_can_be_made_again(turnlog: Command, server: WireServer) -> None:
    """`/resume` makes it again."""
    server.answers += [whole(b'{"error":{"message":"no"}}', status=400), WIRE.reply("One.")]
    outcome = chat(turnlog, "First", "/resume")
    assert (outcome.status, outcome.text) == (0, "One.\n")
    assert "`/resume` tries again" in outcome.stderr
    assert said(turnlog) == ["First", "One."]


def test_commands_that_do_not_exist_are_no_messages(turnlog: Command, server: WireServer) -> None:
    """A text that begins with a slash is given with two."""
    server.answers.append(WIRE.reply("One."))
    outcome = chat(turnlog, "/nix", "/bookmark", "//etc/hosts", "/exit", "not reached")
    assert said(turnlog) == ["/etc/hosts", "One."]
    assert (
        "no command /nix: /help lists them; put // for a text with a slash\n/bookmark needs a name\n" in outcome.stderr
    )


def test_a_backslash_takes_the_next_line_in(turnlog: Command, server: WireServer) -> None:
    """Also at the end of the input."""
    server.answers += [WIRE.reply("One."), WIRE.reply("Two.")]
    chat(turnlog, "a\\", "b", "c\\")
    assert said(turnlog) == ["a\nb", "One.", "c", "Two."]


def test_help_lists_the_commands(turnlog: Command, server: WireServer) -> None:
    """One a line."""
    lines = chat(turnlog, "/help").stderr.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [
        "/help",
        "/show",
        "/undo",
        "/fork",
        "/bookmark",
        "/pointer",
        "/resume",
        "/exit",
    ]


def test_a_session_as_json_lines(turnlog: Command, server: WireServer) -> None:
    """The events of each run, and its result."""
    server.answers += [WIRE.reply("One."), WIRE.reply("Two.")]
    records = chat(turnlog, "First", "Second", arguments=("-p", "kilo", "--json")).json_lines
    assert [record["text"] for record in records if record["event"] == "result"] == ["One.", "Two."]


def test_a_session_that_cannot_begin_says_so(turnlog: Command, server: WireServer) -> None:
    """Before anything is asked of the person."""
    assert turnlog.refused("chat", "-c", "nix") == "no turn or bookmark 'nix'"
    assert turnlog.refused("chat", "-r") == "there is no turn yet to respond to"


def test_a_session_at_a_terminal(turnlog: Command, server: WireServer) -> None:
    """The prompt names the bookmark; Ctrl-C breaks off and stays, Ctrl-D leaves; MCP servers stay up between runs."""
    process = (("id_1", "s___process", "{}"),)
    again = (("id_2", "s___process", "{}"),)
    server.answers += [
        WIRE.reply("I look.", process),
        WIRE.reply("One."),
        stream(WIRE.events("Half")[:-2], hang=True),
        WIRE.reply("I look.", again),
        WIRE.reply("Two."),
    ]
    arguments = ("chat", "-p", "kilo", "-b", "main", "--servers", "s")
    with Terminal(turnlog, *arguments, OPENAI_API_KEY=KEY) as terminal:
        terminal.expect("you > ")
        terminal.send("First\n")
        terminal.expect("run it? ")
        terminal.send("y\n")
        assert "One.\n" in terminal.expect("main > ")
        terminal.interrupt("(Ctrl-D leaves)\nmain > ")
        terminal.send("Second\n")
        terminal.expect("Half")
        terminal.send(CTRL_C)
        assert "interrupted: what there was is recorded; /resume goes on\n" in terminal.expect("main > ")
        terminal.send("/resume\n")
        terminal.expect("run it? ")
        terminal.interrupt("main > ")
        terminal.send("/resume\n")
        terminal.expect("run it? ")
        terminal.send("a\n")
        assert "Two.\n" in terminal.expect("main > ")
        terminal.send(CTRL_D)
        shown, status = terminal.end()
    assert (status, shown) == (0, "\nturnlog: `turnlog chat -c main` goes on from here\n")
    with TurnLog.open(turnlog.url) as log:
        first, *_, last = log.ancestry("main")[2:-1]
        [(_, one, _)], [(_, two, _)] = results(log, first.id), results(log, last.id)
    assert one == two
    assert one.isdigit()
