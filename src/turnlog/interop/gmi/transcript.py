"""A conversation as the inputs and outputs of GMI turns, a line each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from turnlog.errors import ErasedError
from turnlog.interop.gmi.calls import CalledTools
from turnlog.interop.gmi.output import arguments_of, made_output
from turnlog.interop.gmi.record import blocks_of, kept_input
from turnlog.interop.gmi.turns import block_type, nearest_with
from turnlog.log import TurnLog
from turnlog.model import LossEntry, LossReport, Text, ToolUse, Usage
from turnlog.model.long_strings import LongStrings, json_pieces
from turnlog.turn import Turn


def json_lines(log: TurnLog, headish: str) -> tuple[bytes, LossReport]:
    """Return a turn and its ancestry as JSON lines, and what GMI has no place for.

    A reply is `{"output": GMIOutput}`, each other turn `{"input": GMITurnInput}`: one that was recorded from one as
    it was, without keys. Results of tools that a run has called are inputs of type `tool_response`. The
    `interactionId` of an output is that of the last input before it that was recorded as one, else of the turn that it
    continues.

    Raises:
        UnknownTurnError: there is no such turn.
        CorruptionError: stored bytes are damaged.
    """
    pieces, losses = json_line_pieces(log, headish)
    return b"".join(pieces()), losses


def json_line_pieces(
    log: TurnLog, headish: str, *, long: LongStrings | None = None
) -> tuple[Callable[[], Iterator[bytes | memoryview]], LossReport]:
    """Return what iterates over the lines of `json_lines` in pieces, and what GMI has no place for.

    Args:
        log: the log.
        headish: the turn.
        long: the long texts whose marks stand in the turns of the log, if there are any.
    """
    records, losses = _records(log, headish, LongStrings() if long is None else long)

    def pieces() -> Iterator[bytes | memoryview]:
        for record in records:
            yield from json_pieces(record, said=long)
            yield b"\n"

    return pieces, losses


def _records(log: TurnLog, headish: str, long: LongStrings) -> tuple[list[dict[str, Any]], LossReport]:
    records: list[dict[str, Any]] = []
    losses: list[LossEntry] = []
    interactions: dict[str, str] = {}
    ancestry = log.ancestry(headish)
    called = CalledTools(log, ancestry)
    for turn in ancestry:
        parent = turn.continues[0] if turn.continues else ""
        interaction = interactions.get(parent, parent or turn.id)
        try:
            if turn.meta.role == "assistant":
                log.payload(turn.id)
                output = made_output(log, None, [turn], interaction_id=interaction)
                line: dict[str, Any] = {"output": output.model_dump(mode="json", by_alias=True)}
                for call in line["output"]["toolCalls"]:
                    if (malformed := call["malformedArguments"]) is not None:
                        call["malformedArguments"] = long.json_as_text(malformed.encode())
                losses += _losses(log, turn)
            else:
                kept = kept_input(log, turn)
                if kept is None:
                    read, report = nearest_with(log, turn, long, called)
                    kept = read.model_dump(mode="json", by_alias=True, exclude_unset=True)
                    losses += report.entries
                    if kept["type"] != "tool_response":
                        interaction = kept["interactionId"]
                else:
                    interaction = kept["interactionId"]
                line = {"input": kept}
        except ErasedError:
            why = "its key is not here" if turn.closed else "it was erased"
            losses.append(LossEntry(kind="dropped", turn=turn.id, block="turn", why=why))
            continue
        finally:
            interactions[turn.id] = interaction
        records.append(line)
    return records, LossReport(entries=tuple(losses))


def _losses(log: TurnLog, turn: Turn) -> Iterator[LossEntry]:
    """Yield what an output does not have of a reply."""

    def lost(block: str, why: str, index: int | None = None) -> LossEntry:
        return LossEntry(kind="dropped", turn=turn.id, block=block, why=why, index=index)

    texts = 0
    for index, block in enumerate(blocks_of(log, turn)):
        match block:
            case Text():
                texts += 1
            case ToolUse():
                if turn.meta.failed:
                    yield lost("tool_use", "an output has no calls of a reply that failed", index)
                elif change := _changed(block):
                    yield LossEntry(kind="downgraded", turn=turn.id, block="tool_use.input", why=change, index=index)
            case _:
                yield lost(block_type(block), "an output has text and tool calls", index)
        if block.extra:
            names = ", ".join(sorted(block.extra))
            yield lost("extra", f"GMI has no place for the keys {names}", index)
    if texts > 1:
        yield LossEntry(kind="downgraded", turn=turn.id, block="text", why="an output has all text as one")
    meta = turn.meta
    if not isinstance(meta.usage, Usage) and isinstance(meta.model, str):
        yield lost("model", "an output says whose tokens it counts, and there are none")
    if isinstance(meta.inherited, dict):
        yield lost("options", "an output has no options")
    if isinstance(meta.api, str):
        yield lost("api", "an output has no place for it")


def _changed(call: ToolUse) -> str | None:
    """Return what an output says otherwise of the arguments of a call."""
    given, change = arguments_of(call)
    return f"as malformed arguments: {change}" if given is None else change and f"decoded: {change}"
