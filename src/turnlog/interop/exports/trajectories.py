"""Trajectories in the Agent Trajectory Interchange Format (ATIF, version 1.7), with those of sub-agents in them.

A sub-agent is what grows beside the conversation from a turn with calls and was said to a sub-agent (`sidechain` of its
origin). Of the branches of a sub-agent the latest one is written, and the others are told.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from turnlog.interop.exports.reading import Exported, MarkedLog, Said, json_writer, read, said_of
from turnlog.interop.exports.steps import Record, StepWriter, token_counts
from turnlog.log import TurnLog
from turnlog.model import LossEntry, LossReport, Origin, Text, ToolResult, ToolUse
from turnlog.turn import Turn

VERSION = "ATIF-v1.7"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Started:
    """A conversation that is to be written: its turns, and where it goes."""

    said: Sequence[Said]
    into: list[Record]


def atif_trajectory(log: TurnLog, headish: str, turns: Sequence[Turn]) -> Exported:  # noqa: ARG001 - as all forms
    """Return a trajectory, for `atif.Trajectory.model_validate_json`; sub-agents stand in it."""
    marked = MarkedLog(log)
    children: defaultdict[str, list[Turn]] = defaultdict(list)
    for turn in log.thread(turns[-1].id):
        for parent in turn.continues:
            children[parent].append(turn)
    written: list[Record] = []
    losses: list[LossEntry] = []
    count = 0
    seen = {turn.id for turn in turns}
    waiting = deque([_Started(said=read(marked, turns), into=written)])
    while waiting:
        started = waiting.popleft()
        count += len(started.said)
        writer = StepWriter(marked.long)
        for each in started.said:
            writer.take(each)
        losses += writer.losses
        embedded: list[Record] = []
        subagents = _subagents(marked, started.said, children, seen, losses)
        for turn, subagent in subagents:
            writer.refer(turn, subagent[0].turn.id, marked.long.into(_text(subagent[0])))
            waiting.append(_Started(said=subagent, into=embedded))
        started.into.append(_trajectory(started.said, writer, embedded if subagents else None))
    return Exported(writer=json_writer(written[0], marked.long), turns=count, losses=LossReport(entries=tuple(losses)))


def _trajectory(said: Sequence[Said], writer: StepWriter, embedded: list[Record] | None) -> Record:
    """Return a trajectory. `embedded` is filled with those of sub-agents later; None where there are none."""
    first = said[0].turn
    origin = first.meta.origin
    is_imported = isinstance(origin, Origin)
    session = origin.session if is_imported and isinstance(origin.session, str) else first.id
    replies = [each.turn.meta.model for each in said if each.turn.meta.role == "assistant"]
    agent: Record = {
        "name": origin.format if is_imported else "turnlog",
        "version": "unknown" if is_imported else version("turnlog"),
    }
    if replies and all(isinstance(model, str) for model in replies):
        agent["model_name"] = replies[-1]
    steps = writer.records()
    record: Record = {
        "schema_version": VERSION,
        "session_id": session,
        "trajectory_id": first.id,
        "agent": agent,
        "steps": steps,
        "final_metrics": token_counts(writer.usage, "total_") | {"total_steps": len(steps)},
    }
    if embedded is not None:
        record["subagent_trajectories"] = embedded
    return record


def _subagents(
    log: TurnLog, said: Sequence[Said], children: dict[str, list[Turn]], seen: set[str], losses: list[LossEntry]
) -> list[tuple[str, list[Said]]]:
    """Return the sub-agents that turns of a conversation started: the turn, and what was said to and by each.

    `seen` has the turns that are written already, and gets those of the sub-agents.
    """
    found: list[tuple[str, list[Said]]] = []
    for each in said:
        if not any(isinstance(block, ToolUse) for block in each.blocks):
            continue
        for turn in children.get(each.turn.id, ()):
            if turn.id in seen or not _is_sidechain(turn) or turn.meta.role == "assistant":
                continue
            first = said_of(log, turn)
            if not _answers(first, each):
                line = _line(log, first, children, losses)
                seen.update(of.turn.id for of in line)
                found.append((each.turn.id, line))
    return found


def _line(log: TurnLog, first: Said, children: dict[str, list[Turn]], losses: list[LossEntry]) -> list[Said]:
    """Return what was said to and by a sub-agent, oldest first."""
    line = [first]
    while following := [said_of(log, turn) for turn in children.get(line[-1].turn.id, ())]:
        last = line[-1]
        if any(isinstance(block, ToolUse) for block in last.blocks):
            # What does not answer the calls is of a sub-agent that they started.
            answers = [each for each in following if _answers(each, last)]
            following = answers or [each for each in following if each.turn.meta.role == "assistant"]
            if not following:
                break
        for other in following[:-1]:
            why = "another branch of a sub-agent goes on, and the format has one line"
            losses.append(LossEntry(kind="dropped", turn=other.turn.id, block="turn", why=why))
        line.append(following[-1])
    return line


def _answers(said: Said, asked: Said) -> bool:
    """Tell whether a turn has a result of a call of another."""
    calls = {block.id for block in asked.blocks if isinstance(block, ToolUse)}
    return any(isinstance(block, ToolResult) and block.tool_use_id in calls for block in said.blocks)


def _is_sidechain(turn: Turn) -> bool:
    return isinstance(turn.meta.origin, Origin) and turn.meta.origin.sidechain


def _text(said: Said) -> str:
    return next((block.text for block in said.blocks if isinstance(block, Text)), "")
