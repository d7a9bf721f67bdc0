"""`turnlog chat`: a session at the terminal. Each message is a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

from msgspec import UNSET, UnsetType

from turnlog.agent.combined import KeptTools
from turnlog.agent.mcp import McpTools
from turnlog.agent.own_loop import OwnLoop
from turnlog.agent.start import last_turn, server_names
from turnlog.cli.approval import Approval
from turnlog.cli.blocks import write_blocks
from turnlog.cli.commands.run import report
from turnlog.cli.failures import UntoldError, error_line, os_reason
from turnlog.cli.interrupts import what_stopped
from turnlog.cli.live import Live
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, abandon_output, note
from turnlog.cli.runs import RunArguments, RunOptions
from turnlog.cli.text import first_line, one_line
from turnlog.errors import TurnlogError
from turnlog.ids import is_id
from turnlog.log import TurnLog
from turnlog.model import Message, Text
from turnlog.turn import Turn

_OPTIONS = RunOptions()
_INHERITED = {"pointer": "provider_ptr", "servers": "servers", "search": "search", "tool_mode": "tool_mode"}
"""Arguments of a run that hold from there on, and the inherited options that they are written as."""


def chat(*, options: RunOptions = _OPTIONS, common: Common = COMMON) -> None:
    """Talk with a model at the terminal. Every turn is recorded; /help says what else can be done.

    Ctrl-C breaks a reply off and stays; Ctrl-D leaves. A line that ends with a backslash goes on in the next one.
    """
    arguments, bookmark = options.arguments(), options.moved_bookmark
    if common.is_new:
        with TurnLog.open("memory://") as empty:
            _start(empty, options)
    with common.open(create=True, redact=options.redact) as log, OwnLoop() as runner:
        live = Live(json=common.json)
        at = _start(log, options)
        session = _Session(log, runner, live, arguments, at=at, bookmark=bookmark, subject=options.named_subject)
        try:
            session.talk()
        except KeyboardInterrupt as stop:
            if session.at:
                stop.add_note(f"`turnlog chat -c {one_line(session.place())}` goes on from here")
            raise
        except BrokenPipeError:
            raise
        except OSError as error:
            if not session.at:
                raise
            abandon_output()
            where = f"what was said is recorded: `turnlog chat -c {one_line(session.place())}` goes on from there"
            raise UntoldError(f"it could not be printed ({os_reason(error)}); {where}") from error
        finally:
            session.close()
        if session.at:
            note(f"`turnlog chat -c {one_line(session.place())}` goes on from here")


def _start(log: TurnLog, options: RunOptions) -> tuple[str, ...]:
    """Return the turns that the first message continues.

    Raises:
        UnknownTurnError: there is no such turn.
    """
    at = (last_turn(log).id,) if options.respond else options.continues
    for headish in at:
        log.turn(headish)
    return at


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
        bookmark: str | UnsetType | None,
        subject: str | UnsetType | None,
    ) -> None:
        self.at = at
        self._log = log
        self._runner = runner
        self._live = live
        self._approval = Approval(live)
        self._arguments = arguments
        self._bookmark = bookmark
        self._subject = subject
        self._tools: McpTools | None = None
        self._commands: dict[str, tuple[Callable[[str], None], str]] = {
            "/help": (self._help, "this list"),
            "/show": (self._show, "[HEADISH]  the turn that the next message continues, or another one, whole"),
            "/undo": (self._undo, "go back before your last message; what came of it stays in the log"),
            "/fork": (self._fork, "HEADISH  go on from another turn"),
            "/bookmark": (self._set_bookmark, "NAME  name this place; the bookmark moves along"),
            "/pointer": (self._set_pointer, "NAME  ask another model from the next message on"),
            "/resume": (self._resume, "go on without a message: run unanswered tool calls, make a failed call again"),
            "/exit": (self._leave, "leave, as Ctrl-D does"),
        }

    def talk(self) -> None:
        """Take messages and commands until there are no more."""
        self._live.line(("/help says what can be done; Ctrl-D leaves", "dim"))
        while True:
            try:
                line = _read_message(self._prompt())
                if line is None:
                    return
                self._take(line)
            except KeyboardInterrupt:
                if what_stopped().is_final:
                    raise
                self._live.end_line(interrupted=True)
                self._live.line(("(Ctrl-D leaves)", "dim"))
            except _Leave:
                return
            except TurnlogError as error:
                self._live.end_line()
                self._live.line((error_line(error), "red"))

    def close(self) -> None:
        """End the MCP servers that the session has started."""
        if self._tools is not None:
            tools, self._tools = self._tools, None
            self._runner.run(tools.__aexit__(None, None, None))

    def _take(self, line: str) -> None:
        if not line.strip():
            return
        if line.startswith("/") and not line.startswith("//"):
            name, _, rest = line.strip().partition(" ")
            command = self._commands.get(name)
            if command is None:
                self._live.line(
                    (f"no command {one_line(name)}: /help lists them; put // for a text with a slash", "red")
                )
            else:
                command[0](rest.strip())
            return
        self._run(line[1:] if line.startswith("//") else line)

    # Runs

    def _run(self, content: str | None) -> None:
        live = self._live
        live.turn = None
        try:
            result = self._runner.run(
                self._log.arun(
                    content,
                    continues=self.at or None,
                    bookmark=self._bookmark,
                    subject=self._subject,
                    tools=self._kept_tools(),
                    on_approval=self._approval,
                    on_delta=live.on_delta,
                    on_event=live.on_event,
                    **self._told(content is not None),
                )
            )
        except KeyboardInterrupt:
            if what_stopped().is_final:
                raise
            live.end_line(interrupted=True)
            live.line(("interrupted: what there was is recorded; /resume goes on", "yellow"))
            return
        finally:
            if live.turn is not None:
                self.at, self._bookmark = (live.turn.id,), UNSET
        report(result, live, "/resume", json=live.json)

    def _options(self) -> Mapping[str, Any]:
        """Return the options that hold where the next message goes."""
        return self._log.context(self.at[0]).options if len(self.at) == 1 else {}

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
        names = tuple(server_names(self._options() if wanted is None else {"servers": wanted}))
        if self._tools is not None and self._tools.servers != names:
            self.close()
        if not names:
            return ()
        if self._tools is None:
            servers = [self._log.servers.get(name) for name in names]
            tools = McpTools(servers, call_timeout_s=self._arguments["tool_timeout_s"])
            self._tools = self._runner.run(tools.__aenter__())
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
        for named in (headish,) if headish else self.at:
            turn = self._log.turn(named)
            message = self._message(turn)
            self._live.line((turn.id, "yellow"), (f"  {message.role}", "bold"))
            write_blocks(Screen.of_stdout(), message.content, whole=True)
            sys.stdout.flush()
        if not headish and not self.at:
            self._live.line(("nothing was said yet", "dim"))

    def _undo(self, _rest: str) -> None:
        asked = [turn for named in self.at[:1] for turn in self._log.ancestry(named) if self._is_asked(turn)]
        if not asked:
            self._live.line(("there is nothing to undo", "dim"))
            return
        self._go_to(asked[-1].continues)

    def _is_asked(self, turn: Turn) -> bool:
        """Return whether a turn is a message and not results of tools."""
        return turn.meta.role == "user" and any(isinstance(block, Text) for block in self._message(turn).content)

    def _fork(self, headish: str) -> None:
        if not headish:
            self._live.line(("/fork needs a turn: its id, or a bookmark", "red"))
            return
        self._log.turn(headish)
        self._go_to((headish,))

    def _go_to(self, at: tuple[str, ...]) -> None:
        self.at = at
        if not at:
            self._live.line(("the next message starts a thread", "dim"))
        for headish in at:
            turn = self._log.turn(headish)
            said = [block.text for block in self._message(turn).content if isinstance(block, Text)]
            self._live.line(
                ("the next message continues ", "dim"), (turn.id, "yellow"), (f"  {first_line(' '.join(said))}", "")
            )

    def _message(self, turn: Turn) -> Message:
        return self._log.context(turn.id, include_failed=True).messages[-1]

    def _set_bookmark(self, name: str) -> None:
        if not name:
            self._live.line(("/bookmark needs a name", "red"))
        elif len(self.at) == 1:
            self._log.set_bookmark(name, self.at[0])
        else:
            self._bookmark = name

    def _set_pointer(self, name: str) -> None:
        pointer = self._log.pointers.get(name)
        self._arguments["pointer"] = name
        self._live.line((f"from the next message on: {one_line(pointer.provider)} {one_line(pointer.model)}", "dim"))

    def place(self) -> str:
        """Return the turn that the next message continues: by a bookmark that is there, else by its id."""
        at = {self._log.turn(headish).id for headish in self.at}
        names = [bookmark.name for bookmark in self._log.bookmarks() if {bookmark.turn} == at]
        return names[0] if names else " -c ".join(self.at)

    def _prompt(self) -> str:
        return f"{one_line(self.place()) if len(self.at) == 1 and not is_id(self.place()) else 'you'} > "


def _read_message(prompt: str) -> str | None:
    """Return what was typed, None at the end of it. A backslash at the end of a line takes the next one in."""
    lines: list[str] = []
    while True:
        line = _read_line(prompt if not lines else "… ")
        if line is None:
            return "\n".join(lines) if lines else None
        if not line.endswith("\\"):
            return "\n".join([*lines, line])
        lines.append(line[:-1])


def _read_line(prompt: str) -> str | None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        line = sys.stdin.readline()
        return line.removesuffix("\n") if line else None
    with suppress(ImportError):  # not on every platform; with it there are a history and keys to edit with
        import_module("readline")
    try:
        return input(prompt)
    except EOFError:
        sys.stdout.write("\n")
        return None
