"""`turnlog registers`: what came with imports and has no effect yet; see it in full, and confirm it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

from cyclopts import App, Parameter

from turnlog.cli.asking import agrees
from turnlog.cli.failures import UsageError
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, note, telling, write_json_lines
from turnlog.cli.registers import tell_unusable, write_register
from turnlog.cli.text import count, one_line
from turnlog.errors import MetaError
from turnlog.ids import parse_id
from turnlog.log import TurnLog
from turnlog.registers import ImportedRegister

app = App(
    name="registers",
    group_commands="Commands",
    help="List pointers, providers and MCP servers that imports brought; confirm them.",
)


@app.default
def list_registers(*, common: Common = COMMON) -> None:
    """List the pointers, providers and MCP servers that came with imports and have no effect yet, each in full.

    They say what a run calls, starts and sends keys to. So somebody else's have no effect until you have seen and
    confirmed them: turnlog registers trust.
    """
    with common.open() as log:
        found = log.registers.imported()
        tell_unusable(log)
    _show(found, common)


@app.command
def trust(
    *ids: str,
    all: Annotated[bool, Parameter(negative=(), help="All that wait to be confirmed.")] = False,
    yes: Annotated[bool, Parameter(alias="-y", negative=(), help="Do not ask.")] = False,
    common: Common = COMMON,
) -> None:
    """Confirm registers that came with imports: from here on they have effect. Each is shown in full first.

    At a terminal you are asked before. With --json: what was confirmed, one a line.

    Parameters
    ----------
    ids
        Ids of their events, as turnlog registers lists them.
    """
    if all == bool(ids):
        raise UsageError("registers trust: give the IDs of those to confirm, or --all")
    at_terminal = sys.stdin is not None and sys.stdin.isatty()
    if not (at_terminal or yes or ids):
        raise UsageError("registers trust: nobody is here to be asked: give the IDs, or --yes")
    with common.open() as log:
        chosen = _chosen(log, ids)
        _show(chosen, common)
        if not chosen:
            return
        if at_terminal and not yes and not agrees(f"confirm {'it' if len(chosen) == 1 else f'all {len(chosen):,}'}?"):
            raise UsageError("nothing was confirmed")
        # These and no others: what was shown is what is confirmed, whatever was imported meanwhile.
        log.registers.trust([register.id for register in chosen])
    done = f"{count(len(chosen), 'register')} confirmed"
    if not common.json:
        with telling(done):
            Screen.of_stdout().line((done, "bold green"))


def _show(found: Sequence[ImportedRegister], common: Common) -> None:
    """Print registers, each in full, before anything is asked."""
    if common.json:
        write_json_lines(register.to_record() for register in found)
    elif not found:
        note("no registers wait to be confirmed: all that there are were recorded here, or confirmed")
    else:
        screen = Screen.of_stdout()
        for register in found:
            write_register(screen, register)
    sys.stdout.flush()


def _chosen(log: TurnLog, ids: tuple[str, ...]) -> list[ImportedRegister]:
    """Return the registers that are to be confirmed.

    Raises:
        UsageError: one is no id, or not among those that wait.
    """
    waiting = {register.id: register for register in log.registers.imported()}
    if not ids:
        for register in waiting.values():
            if register.refusal:
                note(f"{one_line(register.name)!r} cannot be confirmed: {one_line(register.refusal)}")
        return [register for register in waiting.values() if not register.refusal]
    wanted = list(dict.fromkeys(map(_event_id, ids)))
    for event_id in wanted:
        if event_id not in waiting:
            raise UsageError(f"no register {event_id!r} waits to be confirmed: `turnlog registers` lists them")
    return [waiting[event_id] for event_id in wanted]


def _event_id(given: str) -> str:
    # Not by name: that may be another register by now, which nobody has seen.
    try:
        return parse_id(given)
    except MetaError as error:
        where = "`turnlog registers` lists behind the name"
        raise UsageError(f"registers trust: {given!r} is no id: give the one that {where}, or --all") from error
