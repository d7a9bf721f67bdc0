"""What goes wrong around a command: a full disk under its output, a busy store, a store that is not there, bugs."""

import os
import select
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

import msgspec
import pytest
from tests.agent.wires import KEY, OpenAI, set_up
from tests.cli.command import TIMEOUT_S, Command, Outcome, turn_id, write_conversation
from tests.cli.forked import ROOT, Begun
from tests.cli.terminal import CTRL_C, Terminal
from tests.cli.transcripts import claude_code
from tests.packages import install
from tests.wires.server import WireServer, stream

from turnlog import TurnLog

A = turn_id("a")
WIRE = OpenAI()
TRANSCRIPT = b"".join(msgspec.json.encode(row) + b"\n" for row in claude_code(["Hello"]))
WAITING = "turnlog: waiting for another process that writes to the store …\n"
WAITING_TO_FOLD = "turnlog: waiting for another process that writes to the store's file of projections …\n"


THREADLESS = """\
import sys, threading
def start(self):
    raise RuntimeError("can't start new thread")
threading.Thread.start = start
from turnlog.cli import main
sys.exit(main())
"""
"""The command where no thread can be started: root is not held to a limit on processes."""


def test_thread_that_cannot_be_started_is_told_by_any_command(turnlog: Command) -> None:
    """It is no bug; and to verify does without."""
    write_conversation(turnlog.url)
    done = turnlog.within(THREADLESS, "verify")
    assert (done.status, done.stderr, done.text[:5]) == (0, "", "clean"), done
    line = "turnlog: no thread can be started: end some and try again\n"
    for arguments in (("tail", "--follow"), ("feed", "nats", "nats://127.0.0.1:1")):
        done = turnlog.within(THREADLESS, *arguments)
        assert (done.status, done.stderr) == (2, line), done


def into_full(command: Command, *arguments: str, stdin: bytes = b"", **environment: str) -> str:
    """Run a command whose standard output is full, which is to fail with one line; return the line."""
    done = command.into("/dev/full", *arguments, stdin=stdin, **environment)
    line, end, rest = done.stderr.partition("\n")
    assert (done.status, end, rest) == (2, "\n", ""), done.stderr
    assert line.startswith("turnlog: ")
    assert line.endswith("no space left on device)") or "(no space left on device)" in line, line
    return line.removeprefix("turnlog: ")


class TestFullOutput:
    """Standard output that cannot be written, once something is recorded."""

    @pytest.mark.parametrize("more", [(), ("--json",)])
    def test_turn_is_said_to_be_recorded(self, turnlog: Command, more: tuple[str, ...]) -> None:
        """With its id; adding it again with that id records nothing twice."""
        line = into_full(turnlog, "add", "Hello", "-b", "main", *more)
        [recorded] = turnlog.ok("log", "--json").json_lines
        again = f"adding it again with --id {recorded['id']} records nothing twice"
        assert line == f"{recorded['id']} is recorded, but could not be printed; {again} (no space left on device)"
        turnlog.ok("add", "Hello", "-b", "main", "--id", recorded["id"])
        assert turnlog.ok("log", "--json").json_lines == [recorded]

    def test_document_is_said_to_be_recorded(self, turnlog: Command, tmp_path: Path) -> None:
        """As a turn is; and a retry with the id that was asked for is one too."""
        (tmp_path / "a.txt").write_text("x")
        assert into_full(turnlog, "document", str(tmp_path / "a.txt"), "--id", A.upper()).startswith(f"{A} is recorded")
        into_full(turnlog, "document", str(tmp_path / "a.txt"), "--id", A)
        assert turnlog.ok("stats", "--json").json["turns"] == 1

    @pytest.mark.parametrize(
        ("arguments", "done"),
        [
            (("bookmarks", "set", "x", "try"), "bookmark 'x' is set to {c}, and that is recorded"),
            (("bookmarks", "rename", "try", "x"), "bookmark 'x' has its new name, and is at {c}, and that is recorded"),
            (("bookmarks", "delete", "try"), "bookmark 'try' is deleted, and that is recorded"),
            (("pointer", "set", "a", "anthropic", "m"), "pointer 'a' is set, and that is recorded"),
            (("pointer", "delete", "old"), "pointer 'old' is deleted, and that is recorded"),
            (("provider", "enable", "cohere", "--no-check"), "provider 'cohere' is enabled, and that is recorded"),
            (("provider", "disable", "cohere"), "provider 'cohere' is disabled, and that is recorded"),
            (("mcp", "register", "s", "true"), "MCP server 's' is registered, and that is recorded"),
            (("mcp", "unregister", "old"), "MCP server 'old' is unregistered, and that is recorded"),
        ],
    )
    @pytest.mark.parametrize("more", [(), ("--json",)])
    def test_change_is_said_to_be_recorded(
        self, turnlog: Command, arguments: tuple[str, ...], done: str, more: tuple[str, ...]
    ) -> None:
        """Whatever a command changes."""
        ids = write_conversation(turnlog.url)
        with TurnLog.open(turnlog.url) as log:
            log.pointers.set("old", "anthropic", "m")
            log.servers.set("old", ["true"])
        before = turnlog.ok("stats", "--json").json["events"]
        assert into_full(turnlog, *arguments, *more).startswith(done.format(**ids))
        assert turnlog.ok("stats", "--json").json["events"] == before + 1

    @pytest.mark.parametrize("more", [(), ("--json",)])
    def test_import_is_said_to_be_done(self, turnlog: Command, tmp_path: Path, more: tuple[str, ...]) -> None:
        """With the number of turns that it has added."""
        session = tmp_path / "session.jsonl"
        session.write_bytes(TRANSCRIPT)
        line = into_full(turnlog, "import", "claude-code", str(session), *more)
        done = f"{session} is imported, 2 turns added"
        assert line == f"{done}, but that could not be printed (no space left on device)"
        assert turnlog.ok("stats", "--json").json["turns"] == 2

    def test_reader_that_leaves_keeps_no_file_from_being_imported(self, turnlog: Command, tmp_path: Path) -> None:
        """As in `turnlog import FILES | head -1`, whatever the files are."""
        (tmp_path / "session.jsonl").write_bytes(TRANSCRIPT)
        with TurnLog.open("memory://") as log, (tmp_path / "out.jsonl").open("wb") as file:
            log.add_turn("Hello")
            log.export(file)
        files = [str(tmp_path / name) for name in ("session.jsonl", "out.jsonl")]
        for order in (files, files[::-1]):
            command = Command(store=tmp_path / f"{order is files}.db")
            outcome = command.into_closed_pipe("import", *order)
            assert (outcome.status, outcome.stderr) == (0, "")
            assert command.ok("stats", "--json").json["turns"] == 3

    @pytest.mark.parametrize(
        ("arguments", "done"),
        [
            (("feed", "jsonl", "{folder}", "--name", "f"), "feed 'f' has delivered up to global position 6, "),
            (("feeds", "move", "g", "--to", "0"), "feed 'g' is moved to global position 0, "),
            (("feeds", "remove", "g"), "feed 'g' is removed, "),
            (("projections", "rebuild", "search", "usage"), "2 projections built anew from the log, "),
            (("projections", "run"), "projections are brought up to date, as far as they go on, "),
        ],
    )
    @pytest.mark.parametrize("more", [(), ("--json",)])
    def test_what_is_done_beside_the_log_is_said_to_be(
        self, turnlog: Command, tmp_path: Path, arguments: tuple[str, ...], done: str, more: tuple[str, ...]
    ) -> None:
        """Feeds and projections."""
        write_conversation(turnlog.url)
        turnlog.ok("feed", "otel", "http://127.0.0.1:1", "--name", "g", "--topic", "acme.none")
        words = [word.format(folder=tmp_path / "events") for word in arguments]
        assert into_full(turnlog, *words, *more).startswith(done)

    @pytest.mark.parametrize("more", [(), ("--json",)])
    def test_run_says_what_it_has_recorded(self, turnlog: Command, more: tuple[str, ...]) -> None:
        """The last turn, and how to go on from it."""
        with WireServer() as server, TurnLog.open(turnlog.url) as log:
            set_up(log, WIRE, server.url)
            server.answers += [WIRE.reply("Hello"), WIRE.reply("Hello")]
            line = into_full(turnlog, "run", "Hi", "-p", "kilo", "-b", "main", *more, OPENAI_API_KEY=KEY)
            head = log.turn("main")
            assert line == (
                "it could not be printed (no space left on device); "
                f"what there was is recorded as {head.id}: `turnlog run -c main` goes on"
            )

    def test_chat_says_where_it_was(self, turnlog: Command) -> None:
        """And how to go on from there."""
        with WireServer() as server, TurnLog.open(turnlog.url) as log:
            set_up(log, WIRE, server.url)
            server.answers.append(WIRE.reply("Hello"))
            done = turnlog.into("/dev/full", "chat", "-p", "kilo", "-b", "main", stdin=b"Hi\n", OPENAI_API_KEY=KEY)
            assert (done.status, done.stderr.splitlines()[-1]) == (
                2,
                "turnlog: it could not be printed (no space left on device); "
                "what was said is recorded: `turnlog chat -c main` goes on from there",
            )
            assert log.turn("main").meta.role == "assistant"

    def test_reader_that_leaves_is_no_failure(self, turnlog: Command) -> None:
        """As in `turnlog add x | true`: the turn is recorded."""
        outcome = turnlog.into_closed_pipe("add", "Hello")
        assert (outcome.status, outcome.stderr) == (0, "")
        assert turnlog.ok("stats", "--json").json["turns"] == 1


class TestClosedOutput:
    """Standard output that was closed before the command began, as by `>&-`."""

    def closed(self, command: Command, *arguments: str) -> tuple[int, str]:
        """Run a command so, and return its status and what it says."""
        line = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "turnlog", *arguments]
        done = subprocess.run(
            line, stderr=subprocess.PIPE, env=command.environment(), timeout=TIMEOUT_S, check=False, text=True
        )
        return done.returncode, done.stderr

    @pytest.mark.parametrize(
        "arguments",
        [
            ("export",),
            ("export", "main", "--format", "jsonl"),
            ("cat", "main"),
            ("export", "-o", "-"),
            ("log",),
            ("--json", "search", "log"),
            ("stats",),
            ("stores", "--json"),
            ("bookmarks",),
            ("provider", "--json"),
            ("projections", "status"),
            ("retain", "--older-than", "1d"),
            ("erase", "--turn", "main", "--dry-run"),
            ("--help",),
            ("wire", "--help"),
            ("--version",),
        ],
    )
    def test_what_goes_nowhere_is_a_failure(self, read: Command, arguments: tuple[str, ...]) -> None:
        """A backup of nothing is no success, and neither is a list that nobody can have read."""
        said = "turnlog: standard output is closed: there is nowhere to write to\n"
        assert self.closed(read, *arguments) == (2, said)

    def test_tool_whose_answer_goes_nowhere_is_not_called(self, turnlog: Command, tmp_path: Path) -> None:
        """Not even its server is started: the answer is recorded nowhere else."""
        turnlog.ok("mcp", "register", "s", "--", "touch", str(tmp_path / "started"))
        said = "turnlog: standard output is closed: there is nowhere to write to\n"
        assert self.closed(turnlog, "mcp", "call", "s", "echo", "{}") == (2, said)
        assert not (tmp_path / "started").exists()

    def test_what_is_recorded_needs_no_output(self, turnlog: Command, tmp_path: Path) -> None:
        """As in a job that nobody listens to; and a file is written all the same."""
        assert self.closed(turnlog, "add", "Hello") == (0, "")
        assert turnlog.ok("stats", "--json").json["turns"] == 1
        assert self.closed(turnlog, "export", "-o", str(tmp_path / "out.jsonl")) == (0, "")
        assert (tmp_path / "out.jsonl").stat().st_size
        assert self.closed(turnlog, "projections", "run") == (0, "")
        assert self.closed(turnlog, "verify", "--json") == (0, "")


class TestBusyStore:
    """Another process that holds the write lock."""

    @pytest.fixture
    def busy(self, turnlog: Command) -> Iterator[sqlite3.Connection]:
        """Give a connection that holds the write lock of the store."""
        write_conversation(turnlog.url)
        with closing(sqlite3.connect(turnlog.store, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection

    def test_one_that_waits_says_so_once(self, turnlog: Command, busy: sqlite3.Connection) -> None:
        """A line after a second, whatever standard error is; then it goes on."""
        with turnlog.begin("add", "Hello", "-c", "main", "--json") as process:
            assert process.stderr is not None
            assert process.stderr.readline().decode() == WAITING
            # It looks once a second, and has looked again by the time that another one has said that it waits.
            with turnlog.begin("bookmarks", "set", "x", "main") as other:
                assert other.stderr is not None
                assert other.stderr.readline().decode() == WAITING
                busy.execute("ROLLBACK")
                outcomes = [_ended(process), _ended(other)]
        assert [(outcome.status, outcome.stderr) for outcome in outcomes] == [(0, ""), (0, "")]
        assert turnlog.ok("show", outcomes[0].json["id"]).text

    def test_one_that_waits_for_projections_says_so(self, turnlog: Command) -> None:
        """As for the store: another process writes into the file beside it. Then it goes on."""
        turnlog.ok("add", "What lives in the river?")
        turnlog.ok("search", "river")
        with closing(sqlite3.connect(f"{turnlog.store}-projections", isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            with turnlog.begin("search", "river", "--json") as process:
                assert process.stderr is not None
                assert process.stderr.readline().decode() == WAITING_TO_FOLD
                connection.execute("ROLLBACK")
                outcome = _ended(process)
        assert (outcome.status, outcome.stderr) == (0, "")
        assert [found["snippet"] for found in outcome.json_lines] == ["What lives in the \x02river\x03?"]

    def test_one_that_waits_at_a_terminal_says_so(self, turnlog: Command, busy: sqlite3.Connection) -> None:
        """And Ctrl-C ends the wait with one line that has the id, which is not recorded."""
        with Terminal(turnlog, "add", "Hello", "--id", A) as terminal:
            terminal.expect(WAITING)
            terminal.send(CTRL_C)
            shown, status = terminal.end()
        assert (status, shown.replace("^C", "")) == (
            130,
            f"turnlog: interrupted; if it was recorded, its id is {A}, "
            f"and adding it again with --id {A} records nothing twice\n",
        )
        busy.execute("ROLLBACK")
        assert turnlog.ok("stats", "--json").json["turns"] == 5

    def test_readers_do_not_wait(self, turnlog: Command, busy: sqlite3.Connection) -> None:
        """Whoever reads gets what there is."""
        assert busy.in_transaction
        assert len(turnlog.ok("log", "--json").json_lines) == 5


def _ended(process: Begun | subprocess.Popen[bytes]) -> Outcome:
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    return Outcome(stdout=stdout, stderr=stderr.decode(), status=process.wait())


class TestNoStoreYet:
    """A command that is refused where there is no store."""

    @pytest.mark.parametrize(
        "arguments",
        [
            ("add", "x", "-c", "nope"),
            ("add", "x", "-r"),
            ("add", "x", "--role", "robot"),
            ("add", "--blocks", "[1]"),
            ("add", "x", "-b", A),
            ("add", "x", "--id", "nope"),
            ("add", "x", "-b", "main", "--expected-head", A),
            ("add", "x", "--inherited", '{"api_key":"x"}'),
            ("document", __file__, "-c", "nope"),
            ("document", __file__, "--max-bytes", "3"),
            ("pointer", "set", "a", "nope", "m"),
            ("pointer", "set", "a b\n", "anthropic", "m"),
            ("pointer", "delete", "a"),
            ("provider", "enable", "cohere", "--no-check", "--base-url", "x"),
            ("provider", "disable", "nope"),
            ("mcp", "register", "a b", "true"),
            ("mcp", "register", "s", "run", "--", "--password=hf3k9s8d7f6g5h4j"),
            ("mcp", "unregister", "s"),
            ("mcp", "tools", "s"),
            ("run", "x", "-p", "nope"),
            ("run", "x"),
            ("run", "-c", "nope"),
            ("run", "x", "--provider", "anthropic", "--model", "m"),
            ("run", "x", "--servers", "s", "--provider", "openai_chat", "--model", "m", "--replay", "memory://"),
            ("chat", "-c", "nope"),
            ("chat", "-r"),
            ("bookmarks", "set", "x", "nope"),
        ],
        ids=" ".join,
    )
    def test_refused_command_makes_no_store(self, turnlog: Command, arguments: Sequence[str]) -> None:
        """Input is checked before a store is made: neither a file nor a folder is left behind."""
        turnlog.refused(*arguments, TURNLOG_STORE=f"sqlite:///{turnlog.store.parent / 'new' / 'log.db'}")
        assert list(turnlog.store.parent.iterdir()) == []

    @pytest.mark.parametrize("arguments", [("pointer",), ("provider", "list"), ("mcp",), ("pointer", "list", "--json")])
    def test_listing_what_is_set_up_makes_no_store(self, turnlog: Command, arguments: Sequence[str]) -> None:
        """There is nothing in it, which is no failure."""
        assert turnlog(*arguments).status == 0
        assert list(turnlog.store.parent.iterdir()) == []

    def test_refused_command_leaves_an_empty_file_empty(self, turnlog: Command) -> None:
        """As somebody may have made one with `mktemp`."""
        turnlog.store.touch()
        turnlog.refused("add", "x", "-c", "nope")
        assert turnlog.store.read_bytes() == b""
        turnlog.ok("add", "x")
        assert turnlog.ok("stats", "--json").json["turns"] == 1


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Give the command with a log that no pipe holds, whichever way it is printed."""
    command = Command(store=tmp_path_factory.mktemp("long") / "log.db")
    with TurnLog.open(command.url) as log, log.group() as group:
        last = None
        for number in range(500):
            last = group.add_turn(f"{number} " + "x" * 1000, continues=last, bookmark="main")
        group.add_turn("x" * 1_000_000, continues=last, bookmark="main")
    return command


class TestInterrupts:
    """Ctrl-C, and readers that leave."""

    @pytest.mark.parametrize("command", [("add",), ("add", "--blocks"), ("run", "-"), ("mcp", "call", "s", "t", "-")])
    def test_interrupted_input_is_one_line(self, turnlog: Command, command: tuple[str, ...]) -> None:
        """Status 130, and nothing is recorded."""
        outcome = turnlog.interrupted_while_reading_stdin(*command)
        assert (outcome.status, outcome.stdout, outcome.stderr) == (130, b"", "turnlog: interrupted\n")
        assert not turnlog.store.exists()

    def test_chat_is_left_with_one_line(self, turnlog: Command) -> None:
        """A Ctrl-C that comes before the first prompt, or when it is leaving, shows no traceback."""
        with WireServer() as server, TurnLog.open(turnlog.url) as log:
            set_up(log, WIRE, server.url)
            server.answers.append(stream(WIRE.events("Half")[:-2], hang=True))
            with Terminal(turnlog, "chat", "-p", "kilo", "-b", "main", OPENAI_API_KEY=KEY) as terminal:
                terminal.expect("> ")
                terminal.send("Hi\n")
                terminal.expect("Half")
                terminal.interrupt("/resume goes on")
                terminal.expect("> ")
                terminal.send("\x04")
                shown, status = terminal.end()
            assert (status, "Traceback" in shown) == (0, False)
            assert log.turn("main").meta.stop_reason == "aborted"

    @pytest.mark.parametrize(
        "arguments",
        [("log",), ("log", "--json"), ("ancestry", "main"), ("context", "main"), ("cat", "main"), ("export",)],
        ids=" ".join,
    )
    def test_interrupt_while_nobody_reads_is_one_line(self, long: Command, arguments: tuple[str, ...]) -> None:
        """As in `turnlog log | less`: the command does not wait for its reader."""
        reader, writer = os.pipe()
        with long.begin(*arguments, stdout=writer) as process:
            while select.select([], [writer], [], 0)[1]:  # until no more goes into the pipe
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=TIMEOUT_S)
        os.close(writer)
        os.close(reader)
        assert (process.returncode, stderr) == (130, b"turnlog: interrupted\n")

    def test_interrupt_after_recording_has_the_id(self, turnlog: Command) -> None:
        """Whether it is recorded can be asked for, and adding it again is safe."""
        with TurnLog.open(turnlog.url) as log:
            first = log.add_turn("Here before").global_position
            reader, writer = os.pipe()
            os.set_blocking(writer, False)
            with suppress(BlockingIOError):
                while os.write(writer, b"x" * 4096):
                    pass
            os.set_blocking(writer, True)
            with turnlog.begin("add", "Hello", stdout=writer) as process:
                assert log.wait(first, TIMEOUT_S) > first
                process.send_signal(signal.SIGINT)
                _, stderr = process.communicate(timeout=TIMEOUT_S)
            os.close(writer)
            os.close(reader)
            *_, recorded = log.events()
        assert process.returncode == 130
        assert stderr.decode().startswith("turnlog: interrupted; ")
        assert f"adding it again with --id {recorded.header.id} records nothing twice" in stderr.decode()

    def test_reader_that_leaves_a_long_log(self, long: Command) -> None:
        """As in `turnlog log | head -1`: no word, and status 0."""
        shell = f"({sys.executable} -m turnlog log; echo $? >&2) | head -1"
        done = subprocess.run(
            ["sh", "-c", shell], capture_output=True, env=long.environment(), timeout=TIMEOUT_S, check=False
        )
        assert (done.stdout.count(b"\n"), done.stderr) == (1, b"0\n")


class TestBugs:
    """Errors that should not be."""

    @pytest.fixture
    def broken(self, turnlog: Command) -> Command:
        """Give the command with a Python that breaks it."""
        write_conversation(turnlog.url)
        (turnlog.store.parent / "sitecustomize.py").write_text(_BREAKING)
        return turnlog

    def test_bug_is_one_line_with_a_status_of_its_own(self, broken: Command) -> None:
        """Not that of damage, and not that of bad input; it says how to see more."""
        outcome = broken("log", PYTHONPATH=str(broken.store.parent))
        assert (outcome.status, outcome.stdout, outcome.stderr) == (
            70,
            b"",
            "turnlog: this is a bug of turnlog, not yours (ZeroDivisionError: by \\x1b[2J zero): "
            "please report it; TURNLOG_TRACEBACK=1 shows where\n",
        )
        assert broken("verify", PYTHONPATH=str(broken.store.parent)).status == 70

    def test_traceback_is_shown_where_it_is_asked_for(self, broken: Command) -> None:
        """Before the line."""
        outcome = broken("log", PYTHONPATH=str(broken.store.parent), TURNLOG_TRACEBACK="1")
        lines = outcome.stderr.splitlines()
        assert (outcome.status, lines[0]) == (70, "Traceback (most recent call last):")
        assert lines[-1].startswith("turnlog: this is a bug of turnlog")

    @pytest.mark.parametrize(
        ("fault", "what"),
        [
            ("raise OSError('socket gone')", "OSError: socket gone"),
            ("raise KeyError('k')", "KeyError: 'k'"),
            ("raise SystemExit(0)", "SystemExit: 0"),
        ],
    )
    def test_a_package_that_fails_is_told_as_itself(
        self, turnlog: Command, tmp_path: Path, fault: str, what: str
    ) -> None:
        """Nobody looks for its fault in turnlog or at the terminal; what there was is recorded."""
        install(tmp_path / "site", "theirs_turnlog", _ADAPTER.format(fault=fault), PROVIDERS, theirs=_THEIRS)
        path = f"{ROOT}{os.pathsep}{tmp_path}/site"
        words = ("run", "Hi", "--provider", "theirs", "--model", "m", "-b", "main")
        outcome = turnlog(*words, PYTHONPATH=path, SCRIPTED_API_KEY="k")
        assert outcome.status == 70
        assert f"turnlog: the package theirs_turnlog 1.0 failed ({what}" in outcome.stderr
        assert "please report it to whoever made it" in outcome.stderr
        assert f"broken off by {what}" in turnlog.ok("log", "main").text

    def test_a_package_that_fails_does_not_keep_others_from_work(self, turnlog: Command, tmp_path: Path) -> None:
        """Files of other formats are imported, with a line that names it; it is a format that can be named."""
        install(tmp_path / "site", "acme_turnlog", "raise SystemExit(0)", IMPORTERS, acme="acme_turnlog:Acme")
        path, file = f"{tmp_path}/site", tmp_path / "a.jsonl"
        file.write_text('{"role":"user","message":{"content":[{"type":"text","text":"hi"}]}}\n')
        outcome = turnlog("import", file, PYTHONPATH=path)
        failed = "turnlog: format 'acme' of package acme_turnlog 1.0 failed (SystemExit: 0): ask whoever made it\n"
        assert (outcome.status, outcome.stderr) == (0, failed)
        assert "1 turn added" in outcome.text
        assert "acme_turnlog 1.0" in turnlog.ok("import", "--help", PYTHONPATH=path).text
        named = turnlog("import", "acme", file, PYTHONPATH=path)
        assert (named.status, named.stderr) == (2, failed)

    @pytest.mark.parametrize(
        "words",
        [
            ("provider", "list", "--json"),
            ("import", "{file}", "--json"),
            ("wire", "prepare", "-", "--provider", "theirs", "--model", "m"),
        ],
        ids=" ".join,
    )
    def test_what_a_package_prints_is_not_among_what_programs_read(
        self, turnlog: Command, tmp_path: Path, words: tuple[str, ...]
    ) -> None:
        """It is on standard error: what it prints when it is imported, and when it is asked something."""
        adapter = (
            "import turnlog.providers.openai_chat as o\nprint('noise')\nclass Theirs(o.OpenAIChat): name = 'theirs'"
        )
        install(tmp_path / "site", "theirs_turnlog", adapter, PROVIDERS, theirs=_THEIRS)
        install(tmp_path / "site", "acme_turnlog", _PRINTING, IMPORTERS, acme="acme_turnlog:Acme")
        file = tmp_path / "a.jsonl"
        file.write_text('{"role":"user","message":{"content":[{"type":"text","text":"hi"}]}}\n')
        window = b'{"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}'
        outcome = turnlog(*(word.format(file=file) for word in words), stdin=window, PYTHONPATH=f"{tmp_path}/site")
        assert outcome.status == 0
        assert set(outcome.stderr.splitlines()) == {"noise"}
        assert outcome.json_lines

    def test_library_without_room_in_memory_is_no_bug(self, turnlog: Command, tmp_path: Path) -> None:
        """The system says it in a way of its own."""
        fault = "libx.so: failed to map segment from shared object"
        source = (
            f"import turnlog.log\ndef fail(*_, **__): raise ImportError({fault!r})\nturnlog.log.TurnLog.latest = fail"
        )
        (tmp_path / "sitecustomize.py").write_text(source)
        write_conversation(turnlog.url)
        outcome = turnlog("log", PYTHONPATH=str(tmp_path))
        assert (outcome.status, outcome.stderr) == (2, "turnlog: out of memory\n")

    def test_argument_that_is_no_utf_8_is_named(self, turnlog: Command) -> None:
        """It is one of many; and what cannot be in a URL or a name is not said to be something else."""
        turnlog.ok("add", "hi")
        assert turnlog.refused("show", "caf\udce9") == "argument 'caf\\udce9' is not valid UTF-8"
        unprintable = "characters that cannot be printed"
        assert unprintable in turnlog.refused("log", "--store", "sqlite:///caf\udce9.db")
        assert unprintable in turnlog.refused("feed", "jsonl", "caf\udce9")

    def test_statuses_are_in_the_help(self, turnlog: Command) -> None:
        """So that scripts can tell them apart."""
        assert "70 when turnlog itself failed" in " ".join(turnlog.ok("--help").text.split())


_BREAKING = """\
import turnlog.log

def broken(*_, **__):
    raise ZeroDivisionError("by \\x1b[2J\\n zero")

turnlog.log.TurnLog.latest = turnlog.log.TurnLog.verify = broken
"""

PROVIDERS, IMPORTERS = "turnlog.providers", "turnlog.importers"
_PRINTING = """\
from turnlog.interop.importing import Importer

print("noise")


class Acme(Importer):
    name = "acme"
    summary = "prints"

    def recognizes(self, path, start):
        print("noise")
        return False

    def read(self, path, redaction):
        raise NotImplementedError
"""
"""A format of a package that prints."""
_THEIRS = "theirs_turnlog:Theirs"
_ADAPTER = """\
from contextlib import asynccontextmanager
from tests.agent.scripted import Scripted

class Theirs(Scripted):
    name = provider = "theirs"

    def __init__(self, **given):
        super().__init__()

    @asynccontextmanager
    async def _aopen(self, request, connection):
        async def events():
            yield b'{{"text":"The "}}'
            {fault}
        yield events()
"""
