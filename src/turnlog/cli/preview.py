"""What a turn says, in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Raw

from turnlog.cli.starts import blocks_at_start
from turnlog.cli.text import first_line, one_line, said_in_row, says, size
from turnlog.errors import CorruptionError
from turnlog.events import Recorded
from turnlog.log import TurnLog
from turnlog.model import Block, Document, Native, Origin, Text, Thinking, ToolResult, ToolUse, decode_content
from turnlog.store import ReadTransaction
from turnlog.turn import Turn

ERASED = "(erased)"
"""What stands for the content of an erased turn."""

CLOSED = "(sealed, and its key is not here)"
"""What stands for the content of a sealed turn that cannot be read."""

DAMAGED = "(damaged)"
"""What stands for the content of a turn that cannot be read, because what is stored is not what was recorded."""

READ_BYTES_MAX = 4 * 1024 * 1024
"""Of a larger payload only so much of the beginning is read."""

START_BYTES_MAX = 400
"""More of a tool's input, or of a native block, is not shown in a line."""


def previews(
    log: TurnLog,
    turns: Sequence[Turn],
    damages: list[CorruptionError],
    *,
    line_of: Callable[[str], str] = first_line,
) -> dict[str, str]:
    """Return a line for each turn, by its id. That of a turn whose payload is damaged says so, and `damages` what.

    Args:
        log: where they are.
        turns: the turns.
        damages: what is damaged is added to it.
        line_of: the line of a text; where it is empty, that of the next text is taken.
    """
    found = {turn.id: _unread(turn) or _of_document(turn) for turn in turns if _has_no_blocks(turn)}
    with log.store.read() as transaction:
        for run in _runs([turn for turn in turns if not _has_no_blocks(turn)]):
            found |= _of_run(transaction, run, line_of, damages)
    return {turn.id: _of_meta(turn) + _of_failed(turn) + found[turn.id] for turn in turns}


def _runs(turns: Sequence[Turn]) -> Iterator[list[Turn]]:
    """Yield the turns in runs that one range scan reads: consecutive positions of one stream."""
    run: list[Turn] = []
    for turn in sorted(turns, key=lambda turn: (turn.stream, turn.position)):
        if run and (turn.stream, turn.position) != (run[-1].stream, run[-1].position + 1):
            yield run
            run = []
        run.append(turn)
    if run:
        yield run


def _of_run(
    transaction: ReadTransaction, run: Sequence[Turn], line_of: Callable[[str], str], damages: list[CorruptionError]
) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        starts = transaction.stream_starts(run[0].stream, run[0].position, run[-1].position, READ_BYTES_MAX)
        for recorded, payload in starts:
            found[recorded.header.id] = _of_payload(recorded, payload, line_of)
        _check_all_there(run, found)
    except CorruptionError as error:
        if len(run) == 1:
            damages.append(error)
            return {run[0].id: DAMAGED}
        for turn in run:
            if turn.id not in found:
                found |= _of_run(transaction, [turn], line_of, damages)
    return found


def _check_all_there(run: Sequence[Turn], found: Mapping[str, str]) -> None:
    missing = next((turn for turn in run if turn.id not in found), None)
    if missing is not None:
        raise CorruptionError(f"turn {missing.id!r} does not stand in its stream where it says: run `turnlog verify`")


def _of_payload(recorded: Recorded, payload: bytes | None, line_of: Callable[[str], str]) -> str:
    if payload is None:  # a turn may have been erased since it was read
        return ERASED
    there_are = recorded.size or 0
    if there_are <= len(payload):
        return _in_row(decode_content(payload), line_of)
    blocks = blocks_at_start(payload)
    if any(isinstance(block, Text) and says(block.text) for block in blocks):
        return _in_row(blocks, line_of)
    return f"{of_block(blocks[0])} (and more)" if blocks else f"(content of {size(there_are)})"


def _has_no_blocks(turn: Turn) -> bool:
    return _unread(turn) is not None or turn.meta.type == "document"


def _unread(turn: Turn) -> str | None:
    return ERASED if turn.erased else CLOSED if turn.closed else None


def _of_document(turn: Turn) -> str:
    name = turn.meta.document_name or "a document"
    return f"{said_in_row(one_line(name))} ({one_line(turn.meta.content_type)}, {size(turn.size)})"


def is_meta(turn: Turn) -> bool:
    """Tell whether nobody said a turn: the tool that it was imported of told it to the model by itself."""
    origin = turn.meta.origin
    return isinstance(origin, Origin) and origin.meta


def _of_meta(turn: Turn) -> str:
    """Return a mark for what nobody said."""
    return "(meta) " if is_meta(turn) else ""


def _of_failed(turn: Turn) -> str:
    meta = turn.meta
    if not meta.failed:
        return ""
    reason = meta.error if isinstance(meta.error, str) else meta.stop_reason
    return f"✗ {first_line(str(reason))} "


def _in_row(blocks: Sequence[Block], line_of: Callable[[str], str]) -> str:
    """Return what `of_blocks` does; a text cannot pass for anything else, or for the mark of a bookmark."""
    said = of_blocks(blocks, line_of)
    is_text = any(isinstance(block, Text) and line_of(block.text) for block in blocks)
    return said_in_row(said) if is_text else said


def of_blocks(blocks: Sequence[Block], line_of: Callable[[str], str] = first_line) -> str:
    """Return the first line of the first text that has one, else what the first block is."""
    for block in blocks:
        if isinstance(block, Text) and (line := line_of(block.text)):
            return line
    lines = [of_block(block) for block in blocks if not isinstance(block, Text)]
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    return lines[0] + more if lines else ""


def of_block(block: Block) -> str:
    """Return one block as a line."""
    match block:
        case Text():
            return first_line(block.text)
        case Thinking():
            return f"(thinking) {first_line(block.thinking)}".rstrip()
        case ToolUse():
            return f"→ {one_line(block.name)} {_start(block.input)}"
        case ToolResult():
            return f"← {'error: ' if block.is_error is True else ''}{_tool_result(block)}"
        case Document():
            return of_document(block.source.media_type, block.source.size)
        case Native():
            return said_in_row(f"({one_line(block.provider)} block) {_start(block.block)}")


def _start(raw: Raw) -> str:
    """Return the beginning of raw JSON text."""
    text = bytes(raw)
    return one_line(text[:START_BYTES_MAX].decode(errors="ignore")) + ("…" if len(text) > START_BYTES_MAX else "")


def _tool_result(block: ToolResult) -> str:
    if isinstance(block.content, str):
        return first_line(block.content)
    return of_blocks(block.content)


def of_document(media_type: str, count: int) -> str:
    """Return a document of so many bytes as a line."""
    return said_in_row(f"({one_line(media_type)}, {size(count)})")
