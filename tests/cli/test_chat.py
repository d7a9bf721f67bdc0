"""`turnlog chat`: the real command at a terminal, and with lines piped in."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.agent.running import results
from tests.agent.servers import COMMAND, odd
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
        log.servers.set("s", COMMAND)
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


@pytest.mark.parametrize("closed", ["<&-", "<&- >&- 2>&-"])
def test_standard_input_that_is_closed_is_at_its_end(turnlog: Command, server: WireServer, closed: str) -> None:
    """Nothing is said, and nothing recorded."""
    end = TurnLog.open(turnlog.url).stats().turns
    command = f'exec "$0" -m turnlog chat -p kilo {closed}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable], capture_output=True, env=turnlog.environment(), timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"")
    assert TurnLog.open(turnlog.url).stats().turns == end


def test_undo_goes_back_before_the_last_message(turnlog: Command, server: WireServer) -> None:
    """What came of it stays in the log, and so does its bookmark; the new branch can have one of its own."""
    server.answers += [WIRE.reply("One."), WIRE.reply("Two."), WIRE.reply("Other."), WIRE.reply("More.")]
    chat(turnlog, "First", "Second", "/undo", "Instead", "/bookmark other", "Third")
    assert said(turnlog, "main") == ["First", "One.", "Second", "Two."]
    assert said(turnlog, "other") == ["First", "One.", "Instead", "Other.", "Third", "More."]


def test_undo_takes_the_files_of_a_message_back_too(turnlog: Command, server: WireServer, tmp_path: Path) -> None:
    """And once more the message before; a system prompt stays."""
    (tmp_path / "a.txt").write_text("Milk.")
    server.answers += [WIRE.reply("One."), WIRE.reply("Two.")]
    lines = ("First", f"/attach {tmp_path / 'a.txt'}", "Second", "/undo", "/undo", "/undo")
    outcome = chat(turnlog, *lines, arguments=("-p", "kilo", "-b", "main", "-s", "Be brief."))
    where = [line for line in outcome.stderr.splitlines() if line.startswith(("the next message", "there is nothing"))]
    assert [line.rpartition("  ")[2] for line in where] == ["One.", "Be brief.", "there is nothing to undo"]


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


def test_back_forks_some_turns_ago(turnlog: Command, server: WireServer) -> None:
    """By one turn without a number: at a question, `/resume` asks it again. The bookmark stays where it was."""
    server.answers += [WIRE.reply(text) for text in ("One.", "Two.", "Again.")]
    lines = (
        "First",
        "Second",
        "/back",
        "/resume",
        "/bookmark a",
        "/back 3",
        "/show",
        "/back 0",
        f"/back {'1' * 5000}",
        "/back 9",
    )
    outcome = chat(turnlog, *lines)
    assert said(turnlog) == ["First", "One.", "Second", "Two."]
    assert said(turnlog, "a") == ["First", "One.", "Second", "Again."]
    assert outcome.text == "One.\nTwo.\nAgain.\nFirst\n"
    refused = outcome.stderr.splitlines()[-4:-1]
    assert refused[:2] == ["/back needs a number of turns: 1 or more, in 18 digits at most"] * 2
    assert refused[2].startswith("turnlog: ")
    assert chat(turnlog, "/back").stderr.splitlines()[1] == "there is nothing to go back from"


def test_files_and_a_system_prompt_go_before_the_next_message(
    turnlog: Command, server: WireServer, tmp_path: Path
) -> None:
    """Those of the command line before the first one, others as they are named; each goes there once."""
    server.answers += [WIRE.reply(text) for text in ("One.", "Two.", "Three.")]
    for name in ("a.png", "b c.png", "d.png"):
        (tmp_path / name).write_bytes(b"\x89PNG\r\n\x1a\n")
    lines = [f"/attach '{tmp_path}/b c.png'", "First", "/attach", f"/attach {tmp_path}/d.png", "/detach", "Second"]
    lines += [f"/attach {tmp_path}/nix", f"/attach {tmp_path}/d.png", "/system Be kind.", "Third"]
    arguments = ("-p", "kilo", "-b", "main", "-s", "Be brief.", "-a", str(tmp_path / "a.png"))
    outcome = chat(turnlog, *lines, arguments=arguments)
    with TurnLog.open(turnlog.url) as log:
        turns = [turn.meta.document_name or turn.meta.role for turn in log.ancestry("main")]
    exchange = ["user", "assistant"]
    assert turns == ["system", "a.png", "b c.png", *exchange, *exchange, "system", "d.png", *exchange]
    assert b"Be kind." in server.received[-1].body
    assert "goes before the next message: a.png (8 B)\ngoes before the next message: b c.png (8 B)\n" in outcome.stderr
    assert f"turnlog: document '{tmp_path}/nix' cannot be read: no such file or directory\n" in outcome.stderr


def test_a_file_that_cannot_be_attached_ends_no_chat(turnlog: Command, server: WireServer, tmp_path: Path) -> None:
    """Whatever is wrong with its name, and when it goes away after it was named: one line, and the session goes on."""
    server.answers.append(WIRE.reply("One."))
    gone, long = tmp_path / "gone.txt", "a" * 300
    gone.write_text("Milk.")
    steps = {
        "/attach ~nobody-of-this-name/x": "'~nobody-of-this-name/x': nobody of that name has a home folder here\n",
        f"/attach {long}": f"document '{long}' cannot be read: file name too long\n",
        f"/attach {gone}": "gone.txt (5 B)\n",
        "/attach": "gone.txt cannot be read any more (no such file or directory): /detach, or put it back\n",
        "First": f"turnlog: document '{gone}' cannot be read: no such file or directory\n",
        "/detach": "no file goes before the next message\n",
        "Second": "One.\n",
    }
    with Terminal(turnlog, "chat", "-p", "kilo", OPENAI_API_KEY=KEY) as terminal:
        for line, answer in steps.items():
            terminal.expect(" > ")
            if line == "/attach":
                gone.unlink()
            terminal.send(f"{line}\n")
            terminal.expect(answer)
        terminal.expect(" > ")
        terminal.send(CTRL_D)
        _, status = terminal.end()
    assert status == 0
    with TurnLog.open(turnlog.url) as log:
        assert [turn.meta.role for turn in log.latest(9)] == ["user", "assistant"]


def test_request_shows_what_was_sent(turnlog: Command, server: WireServer, tmp_path: Path) -> None:
    """Of the last call, indented; long strings are cut, which they say."""
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(3000))
    server.answers.append(WIRE.reply("One."))
    outcome = chat(turnlog, "/request", f"/attach {tmp_path}/a.png", "First", "/request")
    assert "nothing was sent yet\n" in outcome.stderr
    sent = msgspec.json.decode(outcome.text.removeprefix("One.\n"))
    assert (sent["model"], sent["messages"][-1]["content"]) == (WIRE.model, "First")
    [url] = re.findall('"(data:image/png[^"]*)"', outcome.text)
    assert url.endswith("… (and 3,034 more characters)")
    assert chat(turnlog, "/request", arguments=("-c", "main", "--json")).json["provider"] == WIRE.provider


def test_model_asks_another_model_in_this_session(turnlog: Command, server: WireServer) -> None:
    """Of the same provider, or of another one; nothing of it is written, and a pointer takes its place again."""
    server.answers += [WIRE.reply("One."), WIRE.reply("Two.")]
    wrong = ("/model nix m", "/model a b c")
    outcome = chat(turnlog, "/model", "/model other", "First", *wrong, "/pointer kilo", "Second", "/model")
    assert [msgspec.json.decode(received.body)["model"] for received in server.received] == ["other", WIRE.model]
    with TurnLog.open(turnlog.url) as log:
        assert [turn.meta.delta for turn in log.ancestry("main")] == [{}, {}, {"provider_ptr": "kilo"}, {}]
    asked = [line for line in outcome.stderr.splitlines() if line.startswith("from the next message on: ")]
    now, other = (f"from the next message on: {WIRE.provider} {model}" for model in (WIRE.model, "other"))
    assert asked == [now, other, now, now]
    assert "turnlog: no provider 'nix'" in outcome.stderr
    assert "/model needs a model, or a provider and a model\n" in outcome.stderr


def test_a_session_without_a_model_says_how_to_name_one(turnlog: Command, server: WireServer) -> None:
    """Where neither the thread nor the command line does."""
    with TurnLog.open(turnlog.url) as log:
        log.add_turn("Hm.", bookmark="bare")
    lines = chat(turnlog, "/model", "/model m", arguments=("-c", "bare")).stderr.splitlines()
    assert lines[-3:-1] == [
        "nothing says which model to ask: /pointer NAME does",
        "/model needs a model, or a provider and a model",
    ]


def test_a_session_asks_the_pointer_named_default(turnlog: Command, server: WireServer) -> None:
    """And says so, as of any other."""
    with TurnLog.open(turnlog.url) as log:
        log.add_turn("Hm.", bookmark="bare")
        kilo = log.pointers.get("kilo")
        log.pointers.set("default", kilo.provider, "other")
    lines = chat(turnlog, "/model", arguments=("-c", "bare")).stderr.splitlines()
    assert f"from the next message on: {kilo.provider} other" in lines


def test_a_session_says_which_bookmark_it_is_on(turnlog: Command, server: WireServer) -> None:
    """When it goes on from a turn, and when it is asked."""
    with TurnLog.open(turnlog.url) as log:
        first = log.add_turn("First", bookmark="main")
        log.add_turn("Second", continues="main")
        log.bookmarks.set("same", "main")
    lines = chat(turnlog, "/back", "/bookmark", arguments=("-c", "main")).stderr.splitlines()
    assert lines[1] == "on main, same"
    assert lines[2].endswith("  Second")
    named = chat(turnlog, "/bookmark", arguments=("-c", "main", "-b", "new")).stderr.splitlines()
    assert named[3] == "on new"
    assert lines[4:6] == ["on no bookmark", f"the next message continues {first.id}  First"]


def test_a_session_moves_no_bookmark_of_another_branch(turnlog: Command, server: WireServer) -> None:
    """It says where the bookmark is and what to do; one on the way here moves along."""
    with TurnLog.open(turnlog.url) as log:
        first = log.add_turn("First", bookmark="way")
        other = log.add_turn("Other", bookmark="two words")
        log.add_turn("Second", continues=first.id, bookmark="main")
        here = log.turn("main").id
    lines = chat(turnlog, "/bookmark two words", "/bookmark way", arguments=("-c", "main")).stderr.splitlines()
    assert lines[3] == (
        f"bookmark two words is on another branch, at {other.id}: choose another name, or move it here with "
        "`turnlog bookmarks set 'two words' main`"
    )
    with TurnLog.open(turnlog.url) as log:
        assert (log.turn("two words").id, log.turn("way").id) == (other.id, here)
    named = chat(turnlog, "/show", arguments=("-c", "two words")).stderr.splitlines()
    assert named[-1] == "turnlog: `turnlog chat -c 'two words'` goes on from here"


def test_a_session_says_which_turn_a_bookmark_hides(turnlog: Command, server: WireServer) -> None:
    """Whether it is set by the first message, or afterwards."""
    server.answers.append(WIRE.reply("Well."))
    with TurnLog.open(turnlog.url) as log:
        first = log.add_turn("First", bookmark="ferry")
        second = log.add_turn("Second", continues="ferry")
        log.add_turn("Third", continues="ferry")
    arguments = ("-p", "kilo", "-c", "ferry", "-b", "ferry~1")
    lines = chat(turnlog, "Fourth", "/bookmark ferry~2", arguments=arguments).stderr.splitlines()
    hidden = {"ferry~1": second.id, "ferry~2": first.id}
    told = [
        f"turnlog: {name!r} means this bookmark from now on, and not turn {id} any more" for name, id in hidden.items()
    ]
    assert [line for line in lines if "any more" in line] == told


def test_a_session_refuses_a_bookmark_that_can_be_none(turnlog: Command, server: WireServer) -> None:
    """As it begins, and where the next message is to have it; nothing is asked nor recorded."""
    for option, name in (("-b", "a\x1bb"), ("--subject", " ")):
        line = turnlog.refused("chat", "-p", "kilo", "--system", "Be brief.", option, name)
        assert "printable characters" in line
    lines = chat(turnlog, "/bookmark " + "x" * 201, arguments=("-p", "kilo", "--system", "Be brief.")).stderr
    assert "cannot be a bookmark" in lines
    assert server.received == []
    with TurnLog.open(turnlog.url) as log:
        assert log.threads() == []


def test_an_error_in_a_session_is_shown_whole(turnlog: Command, server: WireServer) -> None:
    """What to do stands at its end, however wide the terminal is."""
    with Terminal(turnlog, "chat", "-p", "kilo", OPENAI_API_KEY=KEY) as terminal:
        terminal.expect("you > ")
        terminal.send(f"/pointer {'x' * 130}\n")
        assert "`turnlog pointer set" in terminal.expect("you > ").replace("\n", "")
        terminal.send(CTRL_D)
        terminal.end()


def test_a_session_refuses_a_file_that_is_not_there(turnlog: Command, tmp_path: Path) -> None:
    """Before anything is asked of the person, and before a store is made."""
    line = turnlog.refused("chat", "-a", tmp_path / "nix")
    assert line == f"document {str(tmp_path / 'nix')!r} cannot be read: no such file or directory"
    assert not turnlog.store.exists()


def test_a_failed_call_keeps_the_session_and_can_be_made_again(turnlog: Command, server: WireServer) -> None:
    """`/resume` makes it again."""
    server.answers += [whole(b'{"error":{"message":"no"}}', status=400), WIRE.reply("One.")]
    outcome = chat(turnlog, "First", "/resume")
    assert (outcome.status, outcome.text) == (0, "One.\n")
    assert "`/resume` tries again" in outcome.stderr
    assert said(turnlog) == ["First", "One."]


def test_the_status_of_a_session_by_pipe_is_that_of_the_last_message(turnlog: Command, server: WireServer) -> None:
    """As that of a shell is; leaving changes nothing about it."""
    refused = whole(b'{"error":{"message":"no"}}', status=400)
    for lines, status in ((("First",), 2), (("First", "/exit"), 2), (("First", "/help"), 0), (("/nix",), 2)):
        server.answers.append(refused)
        assert chat(turnlog, *lines).status == status, lines
    server.answers.clear()
    server.answers += [refused, WIRE.reply("One.")]
    assert chat(turnlog, "First", "Second").status == 0


def test_a_message_by_pipe_that_is_interrupted_is_a_status_too(turnlog: Command, server: WireServer) -> None:
    """As of `run`; the session goes on, and the next message has its own."""
    for lines, status in ((b"", 130), (b"Second\n", 0)):
        server.answers += [stream(WIRE.events("Half")[:-2], hang=True), WIRE.reply("One.")]
        with turnlog.begin("chat", "-p", "kilo", is_fed=True, OPENAI_API_KEY=KEY) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"First\n")
            process.stdin.flush()
            assert process.stdout.read(4) == b"Half"
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(lines, timeout=60)
        server.answers.clear()
        assert (process.returncode, stderr.count(b"interrupted: what there was is recorded")) == (status, 1)


def test_a_thread_that_is_too_large_offers_the_way_out_of_a_session(turnlog: Command, server: WireServer) -> None:
    """What can be typed there, and what can be typed behind it."""
    body = b'{"error":{"message":"This model\'s maximum context length is 8 tokens.","code":"context_length_exceeded"}}'
    server.answers += [WIRE.reply("Yes."), whole(body, status=400)]
    outcome = chat(turnlog, "Go", "On")
    [line] = [line for line in outcome.stderr.splitlines() if "too large for this model" in line]
    assert (
        "/back N goes on from N turns before, /pointer and /model ask another one; /exit, `turnlog compact main`"
        in line
    )
    assert "turnlog run" not in line


def test_commands_that_do_not_exist_are_no_messages(turnlog: Command, server: WireServer) -> None:
    """A text that begins with a slash is given with two."""
    server.answers.append(WIRE.reply("One."))
    outcome = chat(turnlog, "/nix", "/system", "//etc/hosts", "/exit", "not reached")
    assert said(turnlog) == ["/etc/hosts", "One."]
    assert "no command /nix: /help lists them; put // for a text with a slash\n/system needs a text\n" in outcome.stderr


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
        "/attach",
        "/detach",
        "/system",
        "/show",
        "/request",
        "/undo",
        "/back",
        "/fork",
        "/bookmark",
        "/pointer",
        "/model",
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
    assert turnlog.refused("chat", "-c", "nix") == turnlog.absent("nix")
    assert turnlog.refused("chat", "-r") == "there is no turn yet to respond to"
    assert turnlog.refused("chat", "-p", "nope") == turnlog.refused("run", "Hi", "-p", "nope")
    assert turnlog.refused("chat", "--provider", "openai") == turnlog.refused("run", "Hi", "--provider", "openai")
    assert turnlog.refused("chat", "--servers", "nope").startswith("no MCP server 'nope'")


def test_a_session_that_cannot_begin_makes_no_store(turnlog: Command) -> None:
    """As a run makes none."""
    model = ("--provider", "openai", "--model", "m")
    for arguments in (
        ("-c", "nix"),
        ("-p", "nope"),
        ("--provider", "nope", "--model", "m"),
        (*model, "--servers", "s"),
    ):
        assert turnlog.refused("chat", *arguments) == turnlog.refused("run", "Hi", *arguments)
    assert not turnlog.store.exists()


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


def test_what_was_allowed_is_not_for_a_server_that_takes_the_name(turnlog: Command, server: WireServer) -> None:
    """It is registered anew meanwhile, and its tools may be described alike."""
    calls = [WIRE.reply("I look.", ((f"id_{n}", "s___process", "{}"),)) for n in range(3)]
    server.answers += [calls[0], WIRE.reply("One."), calls[1], WIRE.reply("Two."), calls[2], WIRE.reply("Three.")]
    arguments = ("chat", "-p", "kilo", "-b", "main", "--servers", "s")
    with Terminal(turnlog, *arguments, OPENAI_API_KEY=KEY) as terminal:
        terminal.expect("you > ")
        terminal.send("First\n")
        terminal.expect("run it? ")
        terminal.send("a\n")
        assert "One.\n" in terminal.expect("main > ")
        terminal.send("Second\n")
        assert "Two.\n" in terminal.expect("main > ")
        with TurnLog.open(turnlog.url) as log:
            log.servers.set("s", COMMAND, env_values={"OTHER": "1"})
        terminal.send("Third\n")
        terminal.expect("run it? ")
        terminal.send("y\n")
        assert "Three.\n" in terminal.expect("main > ")
        terminal.send(CTRL_D)
        assert terminal.end()[1] == 0


class _WithEditing(Command):
    """The command on a terminal that can do more than write lines."""

    def environment(self, **changes: str) -> dict[str, str]:
        return super().environment(**changes) | {"TERM": "xterm"}


def test_a_paste_of_several_lines_is_one_message(turnlog: Command, server: WireServer) -> None:
    """Whatever it begins with, and without the line feeds at its end; Alt-Enter types one."""
    server.answers += [WIRE.reply("One."), WIRE.reply("Two.")]
    command = _WithEditing(store=turnlog.store)
    with Terminal(command, "chat", "-p", "kilo", "-b", "main", OPENAI_API_KEY=KEY) as terminal:
        terminal.expect("you > ")
        terminal.send("\x1b[200~// a\r  b\r\x1b[201~")
        terminal.send("\r")
        terminal.expect("main > ")
        terminal.send("c\x1b\rd\r")
        terminal.expect("Two.\n")
        terminal.expect("main > ")
        terminal.send(CTRL_D)
        _, status = terminal.end()
    assert status == 0
    assert said(turnlog) == ["// a\n  b", "One.", "c\nd", "Two."]


@pytest.mark.parametrize("how", ["rename", "delete", "move"])
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "second"])
def test_a_message_goes_on_from_what_was_told_where_somebody_else_has_its_bookmark(
    turnlog: Command, server: WireServer, how: str, is_first: bool
) -> None:
    """It is told that the bookmark does not move along, and the next prompt names none."""
    server.answers += [WIRE.reply("One."), WIRE.reply("Two.")]
    other = "other" if how == "rename" else "you"
    with TurnLog.open(turnlog.url) as log:
        begun = log.add_turn("Begin", bookmark="main")
    with Terminal(turnlog, "chat", "-p", "kilo", "-c", "main", OPENAI_API_KEY=KEY) as terminal:
        terminal.expect("main > ")
        if not is_first:
            terminal.send("First\r")
            terminal.expect("main > ")
        with TurnLog.open(turnlog.url) as log:
            at = log.turn("main").id
            match how:
                case "rename":
                    log.bookmarks.rename("main", "other")
                case "delete":
                    log.bookmarks.delete("main")
                case _:
                    log.add_turn("Theirs", continues="main")
        terminal.send("Mine\r")
        told = terminal.expect(f"{other} > ")
        terminal.send(CTRL_D)
        written, status = terminal.end()
    place = "other" if how == "rename" else "a branch of its own"
    assert told.count(f"! bookmark main was moved or deleted meanwhile: this goes on on {place}\n") == 1
    assert status == 0, written
    with TurnLog.open(turnlog.url) as log:
        [mine] = [turn for turn in log.children(at) if log.text(turn) == "Mine"]
        assert begun.id in [turn.id for turn in log.ancestry(mine.id)]
        assert len(log.children(mine.id)) == 1


def test_a_server_that_is_withdrawn_or_registered_anew_is_not_called_by_an_open_session(
    turnlog: Command, server: WireServer
) -> None:
    """The next message is refused, or goes to the server that is registered now."""
    server.answers += [WIRE.reply("One."), WIRE.reply("Two.")]
    with Terminal(
        turnlog, "chat", "-p", "kilo", "-b", "main", "--servers", "s", "--approve", "auto", OPENAI_API_KEY=KEY
    ) as terminal:
        terminal.expect("you > ")
        terminal.send("First\r")
        terminal.expect("main > ")
        with TurnLog.open(turnlog.url) as log:
            log.servers.delete("s")
        terminal.send("Second\r")
        assert "no MCP server 's'" in terminal.expect("main > ")
        with TurnLog.open(turnlog.url) as log:
            log.servers.set("s", odd("starts", "true").command or ())
        terminal.send("Third\r")
        terminal.expect("main > ")
        terminal.send(CTRL_D)
        terminal.end()
    offered = [
        [tool["function"]["name"] for tool in msgspec.json.decode(asked.body)["tools"]] for asked in server.received
    ]
    assert ["s___echo" in names for names in offered] == [True, False]
    assert "s___go" in offered[-1]
