"""`turnlog chat`: a session at the terminal. Each message is a run."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Literal

from turnlog.agent.combined import KeptTools
from turnlog.agent.mcp.tools import McpTools
from turnlog.agent.opening import Attached, Opening
from turnlog.agent.own_loop import OwnLoop
from turnlog.agent.start import last_turn, server_names
from turnlog.agent.target import Named, find_target, pointer_to_ask
from turnlog.cli.approval import Approval
from turnlog.cli.blocks import Content
from turnlog.cli.chat_place import Place
from turnlog.cli.commands.run import not_printed, report
from turnlog.cli.failures import EXIT_INTERRUPTED, EXIT_USAGE, UsageError, error_line
from turnlog.cli.hidden_turns import telling_of_hidden
from turnlog.cli.interrupts import what_stopped
from turnlog.cli.json_text import shortened
from turnlog.cli.live import Live
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, note, write_json
from turnlog.cli.preview import previews
from turnlog.cli.resources import read_resources
from turnlog.cli.runs import RunArguments, RunOptions, check_servers
from turnlog.cli.text import first_line, one_line, printable, quoted, size
from turnlog.cli.typed import Prompt
from turnlog.errors import StoreError, TurnlogError, os_reason
from turnlog.home import in_home
from turnlog.hurry import HURRY
from turnlog.log import TurnLog
from turnlog.model import Message, ServerMeta, Text
from turnlog.plugins import culprit
from turnlog.record.fields import check_bookmark, check_bookmark_name, check_subject
from turnlog.turn import Turn

_OPTIONS = RunOptions()
_INHERITED = {"pointer": "provider_ptr", "servers": "servers", "search": "search", "tool_mode": "tool_mode"}
"""Arguments of a run that hold from there on, and the inherited options that they are written as."""

_NUMBER = re.compile(r"[1-9][0-9]{0,17}")


def chat(*, options: RunOptions = _OPTIONS, common: Common = COMMON) -> int:
    """Talk with a model at the terminal. Every turn is recorded; /help says what else can be done.

    Ctrl-C breaks a reply off and stays; Ctrl-D leaves. A paste of several lines is one message. Alt-Enter begins a new
    line, as a backslash at the end of one does. Files and a system prompt go before the first message. Lines may come
    by a pipe; the exit status is then that of the last message, as `run` has it.
    """
    arguments, bookmark = options.arguments(), check_bookmark(options.moved_bookmark)
    subject = check_subject(options.named_subject)
    if common.is_new:
        with common.empty() as empty:
            at = _start(empty, options)
            _check_model(empty, arguments)
            empty.servers.set_all(options.configured)
            check_servers(empty, options, arguments)
            Opening(content="", system=options.system, attachments=options.attach).before(empty, at)
    with common.open(create=True, redact=options.redact) as log, OwnLoop() as runner:
        live = Live(json=common.json)
        at = _start(log, options)
        _check_model(log, arguments)
        options.register(log)
        check_servers(log, options, arguments)
        Opening(content="", system=options.system, attachments=options.attach).before(log, at)
        session = _Session(log, runner, live, arguments, at=at, bookmark=bookmark, subject=subject)
        attached = runner.run(read_resources(log, options.resources, within_s=options.max_time))
        session.system, session.attachments = options.system, [*options.attach, *attached]
        session.expected_head = options.wanted_head
        try:
            session.talk()
        except KeyboardInterrupt as stop:
            session.is_stopped = True
            if session.place.at:
                stop.add_note(f"`turnlog chat -c {session.place_to_type()}` goes on from here")
            raise
        except OSError as error:
            if not session.place.at or culprit(error) is not None:
                raise
            again = f"`turnlog chat -c {session.place_to_type()}` goes on from there"
            return not_printed(error, f"what was said is recorded: {again}")
        finally:
            session.close()
        if session.place.at:
            note(f"`turnlog chat -c {session.place_to_type()}` goes on from here")
        return 0 if sys.stdin is not None and sys.stdin.isatty() else session.status


def _start(log: TurnLog, options: RunOptions) -> tuple[str, ...]:
    """Return the turns that the first message continues.

    Raises:
        UnknownTurnError: there is no such turn.
    """
    at = (last_turn(log).id,) if options.respond else options.continues
    for headish in at:
        log.turn(headish)
    return at


def _check_model(log: TurnLog, arguments: RunArguments) -> None:
    """Check that the model that the command line names, if it names one, can be asked.

    Raises:
        TurnlogError: as `find_target` raises them.
    """
    pointer, provider, model = arguments["pointer"], arguments["provider"], arguments["model"]
    if (pointer, provider, model) != (None, None, None):
        find_target(log, Named.of(arguments["ask"], pointer=pointer, provider=provider, model=model), {})


def _named_files(text: str) -> list[Path]:
    """Return the files that a line names. Whether they can be read is not known yet.

    Raises:
        UsageError: one is in the home folder of nobody.
    """
    with suppress(OSError, UsageError):
        whole = in_home(text, UsageError)
        if whole.is_file():
            return [whole]
    try:
        # A terminal that a file is dropped on writes its path with quotes or backslashes.
        names = shlex.split(text)
    except ValueError:
        names = [text]
    return [in_home(name, UsageError) for name in names]


class _Leave(Exception):  # noqa: N818 - no error, but the way out of the session
    """The person wants to leave."""


class _Session:
    """A conversation at the terminal: where it is, and what to do with each line."""

    def __init__(
        self,
        log: TurnLog,
        runner: OwnLoop,
        live: Live,
        arguments: RunArguments,
        *,
        at: tuple[str, ...],
        bookmark: str | Literal[False] | None,
        subject: str | Literal[False] | None,
    ) -> None:
        self.place = Place(log, at)
        self.system: str | None = None
        self.attachments: list[Path | Attached] = []
        self.expected_head: str | Literal[False] | None = None
        self.is_stopped = False
        """Whether something was interrupted, and the store has answered nothing since: it may be what hangs."""
        self.status = 0
        """The exit status that the last message, or command, would have by itself."""
        self._prompt = Prompt()
        self._log = log
        self._runner = runner
        self._live = live
        self._approval = Approval(live, log.calls.tools)
        self._arguments = arguments
        self._bookmark: str | Literal[False] | None = bookmark
        self._subject: str | Literal[False] | None = subject
        self._tools: McpTools | None = None
        self._servers: list[ServerMeta] = []
        self._commands: dict[str, tuple[Callable[[str], None], str]] = {
            "/help": (self._help, "this list"),
            "/attach": (self._attach, "[FILE …]  put files before the next message, or say which ones there are"),
            "/detach": (self._detach, "put none of them there"),
            "/system": (self._set_system, "TEXT  the system prompt from the next message on"),
            "/show": (self._show, "[HEADISH]  the turn that the next message continues, or another one, whole"),
            "/request": (self._request, "what was sent to the model last"),
            "/undo": (self._undo, "go back before your last message; what came of it stays in the log"),
            "/back": (self._back, "[N]  go back by one turn, or by N of them; what came of it stays in the log"),
            "/fork": (self._fork, "HEADISH  go on from another turn"),
            "/bookmark": (
                self._set_bookmark,
                "[NAME]  name this place, so that it moves along; or say where it is",
            ),
            "/pointer": (self._set_pointer, "[NAME]  ask another model from here on, or say which one"),
            "/model": (
                self._set_model,
                "[[PROVIDER] MODEL]  ask another model in this session, or say which one",
            ),
            "/resume": (self._resume, "go on without a message: run unanswered tool calls, make a failed call again"),
            "/exit": (self._leave, "leave, as Ctrl-D does"),
        }

    def talk(self) -> None:
        """Take messages and commands until there are no more."""
        self._live.line(
            ("/help says what can be done; Alt-Enter, or a backslash, begins a new line; Ctrl-D leaves", "dim")
        )
        if self.place.at:
            self._say_where()
        while True:
            try:
                line = self._prompt.read(self._prompt_text())
                if line is None:
                    return
                self._take(line)
            except KeyboardInterrupt:
                if what_stopped().is_final:
                    raise
                self.is_stopped, self.status = True, EXIT_INTERRUPTED
                self._live.end_line(interrupted=True)
                self._live.line(("(Ctrl-D leaves)", "dim"))
            except _Leave:
                return
            except TurnlogError as error:
                self._live.end_line()
                self._live.error(error_line(error))
                self.status = EXIT_USAGE

    def close(self) -> None:
        """End the MCP servers that the session has started."""
        if self._tools is not None:
            tools, self._tools = self._tools, None
            self._runner.run(tools.__aexit__(None, None, None))

    def _take(self, line: str) -> None:
        if not line.strip():
            return
        if "\n" in line:  # commands are of one line: what was pasted may begin with anything
            self._run(line)
        elif line.startswith("/") and not line.startswith("//"):
            name, _, rest = line.strip().partition(" ")
            command = self._commands.get(name)
            if command is None:
                self._live.line(
                    (f"no command {one_line(name)}: /help lists them; put // for a text with a slash", "red")
                )
                self.status = EXIT_USAGE
            else:
                before, self.status = self.status, 0
                try:
                    command[0](rest.strip())
                except _Leave:
                    self.status = before
                    raise
        else:
            self._run(line[1:] if line.startswith("//") else line)

    # Runs

    def _run(self, content: str | None) -> None:
        live = self._live
        live.turn = None
        adds = content is not None
        try:
            self._look()
            with telling_of_hidden(self._log, self._bookmark):
                result = self._runner.run(
                    self._log.arun(
                        content,
                        system=self.system if adds else None,
                        attachments=self.attachments if adds else (),
                        continues=self.place.at or None,
                        bookmark=self._bookmark,
                        expected_head=self.expected_head,
                        subject=self._subject,
                        tools=self._kept_tools(),
                        on_approval=self._approval,
                        on_delta=live.on_delta,
                        on_event=live.on_event,
                        **self._told(adds),
                    )
                )
        except KeyboardInterrupt:
            if what_stopped().is_final:
                raise
            self.is_stopped, self.status = True, EXIT_INTERRUPTED
            live.end_line(interrupted=True)
            kept = "nothing was recorded" if live.turn is None else "what there was is recorded; /resume goes on"
            live.line((f"interrupted: {kept}", "yellow"))
            return
        finally:
            if live.turn is not None:
                self.place.arrive(live.turn.id)
                self._bookmark = self.expected_head = None
                if adds:
                    self.system, self.attachments = None, []
        self.status = report(result, live, "/resume", self._smaller(), json=live.json)

    def _look(self) -> list[str]:
        """Return the bookmarks where the next message goes, and say which one is there no more."""
        here, left = self.place.look()
        if left is not None:
            self._live.say_left(left, self.place.named)
        return here

    def _smaller(self) -> str:
        """Return what goes on from here where the thread is too large for its model."""
        place = self.place_to_type()
        return (
            "/back N goes on from N turns before, /pointer and /model ask another one; /exit, "
            f"`turnlog compact {place}`, then `turnlog chat -c {place}`, goes on with a summary of older turns, and "
            "`--max-result-bytes` there shows less of what tools returned"
        )

    def _options(self) -> Mapping[str, Any]:
        """Return the options that hold where the next message goes."""
        return self._log.context(self.place.at[0]).options if len(self.place.at) == 1 else {}

    def _told(self, adds: bool) -> RunArguments:
        """Return the arguments of a run, without the options that hold already: only what changes is written."""
        told: dict[str, Any] = dict(self._arguments)
        options = self._options()
        for name, option in _INHERITED.items():
            if options.get(option) == told[name] or not (adds or name == "pointer"):
                told[name] = None
        return RunArguments(**told)

    def _kept_tools(self) -> tuple[KeptTools, ...]:
        """Return the tools of the MCP servers, which stay from one message to the next."""
        wanted = self._arguments["servers"]
        names = server_names(self._options() if wanted is None else {"servers": wanted})
        servers = [self._log.servers.get(name) for name in names]
        if servers != self._servers:  # one may have been registered anew
            self.close()
            self._approval.forget()
        if not names:
            return ()
        if self._tools is None:
            self._live.wait_for(f"starting {', '.join(names)}")
            tools = McpTools(servers, call_timeout_s=self._arguments["policy"].tool_timeout_s)
            self._tools, self._servers = self._runner.run(tools.__aenter__()), servers
        return (KeptTools(self._tools),)

    # Commands

    def _help(self, _rest: str) -> None:
        for name, (_, text) in self._commands.items():
            self._live.line((f"{name:<10}", "bold cyan"), (text, ""))

    def _leave(self, _rest: str) -> None:
        raise _Leave

    def _resume(self, _rest: str) -> None:
        self._run(None)

    def _show(self, headish: str) -> None:
        for named in (headish,) if headish else self.place.at:
            turn = self._log.turn(named)
            message = self._message(turn)
            self._live.line((turn.id, "yellow"), (f"  {message.role}", "bold"))
            Content(message.content_json).write(Screen.of_stdout(), whole=True)
            sys.stdout.flush()
        if not headish and not self.place.at:
            self._live.line(("nothing was said yet", "dim"))

    def _undo(self, _rest: str) -> None:
        asked = [turn for named in self.place.at[:1] for turn in self._log.ancestry(named) if self._is_asked(turn)]
        if not asked:
            self._live.line(("there is nothing to undo", "dim"))
            return
        first = asked[-1]
        while len(first.continues) == 1 and (parent := self._log.turn(first.continues[0])).meta.type == "document":
            first = parent  # its files go with it
        self._go_to(first.continues)

    def _is_asked(self, turn: Turn) -> bool:
        """Return whether a turn is a message and not results of tools, nor a file."""
        if turn.meta.type == "document":
            return False
        return turn.meta.role == "user" and any(isinstance(block, Text) for block in self._message(turn).content)

    def _back(self, turns: str) -> None:
        if len(self.place.at) != 1:
            self._live.line(("there is nothing to go back from", "dim"))
        elif turns and not _NUMBER.fullmatch(turns):
            self._live.line(("/back needs a number of turns: 1 or more, in 18 digits at most", "red"))
        else:
            self._go_to((self._log.turn(f"{self._log.turn(self.place.at[0]).id}~{turns or 1}").id,))

    def _fork(self, headish: str) -> None:
        if not headish:
            self._live.line(("/fork needs a turn: its id, or a bookmark", "red"))
            return
        self._go_to((headish,))

    def _go_to(self, at: tuple[str, ...]) -> None:
        turns = self.place.go_to(at)
        if not turns:
            self._live.line(("the next message starts a thread", "dim"))
        for turn in turns:
            said = previews(self._log, [turn], [])[turn.id]
            self._live.line(("the next message continues ", "dim"), (turn.id, "yellow"), (f"  {said}", ""), cut=True)

    def _message(self, turn: Turn) -> Message:
        return self._log.context(turn.id, include_failed=True).messages[-1]

    def _set_bookmark(self, name: str) -> None:
        if not name:
            self._say_where()
            return
        there = {bookmark.name: bookmark.turn for bookmark in self._log.bookmarks.all()}.get(name)
        here = {turn.id for headish in self.place.at for turn in self._log.ancestry(headish)}
        if there is not None and there not in here:
            where = self.place.at[0] if len(self.place.at) == 1 else "TURN"
            how = f"choose another name, or move it here with `turnlog bookmarks set {quoted(name)} {where}`"
            self._live.error(f"bookmark {one_line(name)} is on another branch, at {there}: {how}")
        elif len(self.place.at) == 1:
            with telling_of_hidden(self._log, name):
                self._log.bookmarks.set(name, self.place.at[0])
        else:
            self._bookmark = check_bookmark_name(name)

    def _say_where(self) -> None:
        """Say which bookmarks the next message moves, and what it continues."""
        names = list(map(one_line, self._look()))
        if self._bookmark is not None:  # it was named for the first message, which nobody has written yet
            names = [one_line(self._bookmark)] if self._bookmark else []
        self._live.line((f"on {', '.join(names)}" if names else "on no bookmark", "bold green" if names else "dim"))
        self._go_to(self.place.at)

    # What goes before the next message

    def _attach(self, rest: str) -> None:
        found = _named_files(rest)
        Opening(content="", attachments=found).before(self._log, ())
        self.attachments += found
        for file in self.attachments:
            try:
                file_bytes = len(file.payload) if isinstance(file, Attached) else file.stat().st_size
            except OSError as error:
                gone = f"{one_line(file.name)} cannot be read any more ({os_reason(error)}): /detach, or put it back"
                self._live.line((gone, "red"))
                self.status = EXIT_USAGE
                continue
            said = f"{one_line(file.name)} ({size(file_bytes)})"
            self._live.line(("goes before the next message: ", "dim"), (said, ""))
        if not self.attachments:
            self._live.line(("no file goes before the next message", "dim"))

    def _detach(self, _rest: str) -> None:
        self.attachments = []
        self._live.line(("no file goes before the next message", "dim"))

    def _set_system(self, text: str) -> None:
        if not text:
            self._live.line(("/system needs a text", "red"))
            return
        self.system = text
        self._live.line(("the system prompt from the next message on: ", "dim"), (first_line(text), ""))

    # Which model is asked

    def _set_pointer(self, name: str) -> None:
        if name:
            self._ask(pointer=name)
        self._say_model()

    def _set_model(self, rest: str) -> None:
        asked = self._asked()
        match rest.split():
            case []:
                pass
            case [model] if asked is not None:
                self._ask(provider=asked[0], model=model)
            case [provider, model]:
                self._ask(provider=provider, model=model)
            case _:
                self._live.line(("/model needs a model, or a provider and a model", "red"))
                return
        self._say_model()

    def _ask(self, *, pointer: str | None = None, provider: str | None = None, model: str | None = None) -> None:
        """Ask another model from the next message on, if it can be asked."""
        named = Named.of(self._arguments["ask"], pointer=pointer, provider=provider, model=model)
        find_target(self._log, named, {})
        self._arguments.update(pointer=pointer, provider=provider, model=model)

    def _asked(self) -> tuple[str, str] | None:
        """Return the provider and the model that the next message goes to, None where nothing says so."""
        provider, model = self._arguments["provider"], self._arguments["model"]
        if provider is not None and model is not None:
            return provider, model
        pointer = pointer_to_ask(self._log, self._arguments["pointer"], self._options())
        return None if pointer is None else (pointer.provider, pointer.model)

    def _say_model(self) -> None:
        asked = self._asked()
        said = "nothing says which model to ask: /pointer NAME does" if asked is None else one_line(" ".join(asked))
        self._live.line(("from the next message on: " if asked else "", "dim"), (said, "" if asked else "red"))

    # What was sent

    def _request(self, _rest: str) -> None:
        turns = [turn for headish in self.place.at[:1] for turn in self._log.ancestry(headish)]
        asked = [turn for turn in turns if isinstance(turn.meta.call, str)]
        if not asked:
            self._live.line(("nothing was sent yet", "dim"))
            return
        call = self._log.calls.get(asked[-1].id)
        if self._live.json:
            write_json(call.to_record())
            sys.stdout.flush()
            return
        body = self._log.calls.request(call.id)
        self._live.line((call.id, "yellow"), (f"  {size(len(body))} to {one_line(call.meta.provider)}", "dim"))
        sys.stdout.write(printable(shortened(body)) + "\n")
        sys.stdout.flush()

    def place_to_type(self) -> str:
        """Return the turns that the next message continues as they are typed behind `-c`."""
        with suppress(StoreError), HURRY if self.is_stopped else nullcontext():
            self.place.look()
            self.is_stopped = False
            if self.place.named is not None:
                return quoted(self.place.named)
        return " -c ".join(map(quoted, self.place.at))

    def _prompt_text(self) -> str:
        # A person who has typed Ctrl-C at a store that does not answer has the prompt again, with the name as it was.
        with suppress(StoreError), HURRY if self.is_stopped else nullcontext():
            self._look()
            self.is_stopped = False
        return f"{one_line(self.place.named or 'you')} > "
