"""`turnlog diff`: where two branches part, and what each says alone."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from turnlog.cli.completing import HEADISH
from turnlog.cli.messages import write_message, write_option
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, note, write_json
from turnlog.cli.paging import paging
from turnlog.cli.rows import TurnRows, when
from turnlog.cli.text import count, one_line
from turnlog.log import TurnLog
from turnlog.model import Message, document_content
from turnlog.model.erased import erased_content
from turnlog.turn import Turn


def diff(
    left: Annotated[str, HEADISH],
    right: Annotated[str, HEADISH],
    /,
    *,
    whole: Annotated[bool, Parameter(negative=(), help="Print tool calls, their results and thinking whole.")] = False,
    common: Common = COMMON,
) -> None:
    """Compare two branches: the last turn that both have, and what each says from there on.

    With --json: the turns, {common, left, right}.

    Parameters
    ----------
    left
        A turn id or bookmark.
    right
        The other one.
    """
    with common.open() as log, paging(json=common.json):
        found = log.compare(left, right)
        if common.json:
            write_json(found.to_record())
            return
        screen = Screen.of_stdout()
        if not found.left and not found.right:
            note(f"both are turn {found.common[0].id}")
            return
        rows = TurnRows.of(log, found.common, screen)
        screen.line(("── both continue" if found.common else "── they have nothing in common", "bold"))
        rows.write(found.common)
        screen.line()
        for name, turns, style in ((left, found.left, "bold red"), (right, found.right, "bold green")):
            screen.line((f"── only in {one_line(name)}", style), (f"  {count(len(turns), 'turn')}", "dim"))
            screen.line()
            for turn in turns:
                _write(screen, log, turn, when(screen, turn.said_at, rows.now), whole=whole)


def _write(screen: Screen, log: TurnLog, turn: Turn, time: str, *, whole: bool) -> None:
    meta = turn.meta
    message = Message(
        turn=turn.id,
        role=meta.role,
        content_json=_content(log, turn),
        cache=meta.cache,
        model=meta.model,
        document_name=meta.document_name,
    )
    write_message(screen, message, f"{time}{_failed(turn)}", whole=whole)
    if options := meta.delta:
        screen.line(("── options set", "bold"))
        for name, value in options.items():
            write_option(screen, name, value)
        screen.line()


def _failed(turn: Turn) -> str:
    meta = turn.meta
    return f" · ✗ {one_line(str(meta.error or meta.stop_reason))}" if meta.failed else ""


def _content(log: TurnLog, turn: Turn) -> bytes:
    """Return what a turn says as a window has it."""
    if turn.erased or turn.closed:
        return erased_content(turn.id, turn.time_ms, sealed=turn.closed)
    payload = log.payload(turn.id)
    return document_content(payload, turn.meta.content_type) if turn.meta.type == "document" else payload
