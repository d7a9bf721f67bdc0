"""Record a conversation, fork it, replay both branches, check every hash: what `make run` runs.

The conversation is `trip.jsonl` beside this file: one turn a line. The store is made in the working folder and kept, so
that the commands printed at the end have something to work on. Running this again finds every turn recorded already and
adds nothing; turns that were added by hand stay.
"""

import json
import os
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from turnlog import ContextWindow, Native, ReplyFacts, Text, Thinking, ToolResult, ToolUse, Turn, TurnLog, TurnlogError
from turnlog.ids import derived_id

SAMPLE = Path(__file__).with_name("trip.jsonl")
FOLDER = Path(".turnlog-demo")
STORE = f"sqlite:///{FOLDER}/log.db"
WIDTH = 96


def main() -> int:
    """Run the demonstration and return the exit status."""
    # The folder is a plaything: git should not see it.
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / ".gitignore").write_text("*\n")
    lines = [json.loads(line) for line in SAMPLE.read_text(encoding="utf-8").splitlines()]
    with TurnLog.open(STORE) as log:
        turns_before = log.stats().turns
        turns = record(log, lines)
        added = log.stats().turns - turns_before

        heading(1, f"Recorded {SAMPLE.name} in {STORE}")
        print(f"   {len(turns)} turns, {added} of them new. Each was on disk before the next one was accepted.")
        if not added:
            print("   All were there from an earlier run: the same turn under the same id is recorded once.")

        heading(2, "Forked it")
        fork = turns["proposal"]
        print(f"   {len(log.children(fork.id))} turns continue {fork.id}: the conversation branches there.")
        print("   Nothing was copied. Each way has a bookmark that moved along with it:")
        for bookmark in log.bookmarks.all():
            print(f"   {bookmark.name:>10} -> {bookmark.turn}")

        heading(3, "Replayed the context window of both branches")
        # By turn, so that it shows the same again when a bookmark has moved on since.
        main_head, cheaper_head = turns["dinner-answer"], turns["cheaper-answer"]
        windows = [log.context(head.id, explain=True) for head in (main_head, cheaper_head)]
        for name, window in zip(("main", "cheaper"), windows, strict=True):
            show(name, window, turns)
        shared = shared_messages(*windows)
        print(f"   The first {shared} messages of both are the same, byte for byte.")

        heading(4, "Checked every hash")
        report = log.verify()
        print(
            f"   {report.events} events and {report.payloads} payloads read again; damage found: {len(report.damage)}."
        )
        for damage in report.damage:
            print(f"   {damage.what}")
        print(f"   The digest of the last turn commits to all that it rests on:\n   {main_head.digest}")
        what_next(main_head)
    return 0 if report.clean and shared >= 5 else 1


def record(log: TurnLog, lines: list[dict[str, object]]) -> dict[str, Turn]:
    """Record the lines and return the turns by the names that they have in the file."""
    turns: dict[str, Turn] = {}
    for line in lines:
        name, time, content = str(line.pop("name")), str(line.pop("time")), line.pop("content")
        parent = line.pop("continues", None)
        facts = {name: line.pop(name) for name in ReplyFacts.__struct_fields__ if name in line}
        turns[name] = log.add_turn(
            content,
            # The same time and name give the same id, so that this can run twice.
            id=derived_id(datetime.fromisoformat(time), SAMPLE.name, name),
            continues=turns[str(parent)].id if parent else None,
            reply=ReplyFacts(**facts) if facts else None,
            **line,
        )
    return turns


def show(name: str, window: ContextWindow, turns: Mapping[str, Turn]) -> None:
    """Print a window: what a model is given that is asked to go on from a bookmark."""
    print(f"   {name}: {len(window.messages)} messages, options {json.dumps(window.options)}")
    for message in window.messages:
        text = " ".join(map(str, map(summary, message.content)))
        print(f"   {message.role:>10} | {text if len(text) <= WIDTH else text[: WIDTH - 1] + '…'}")
    by_id = {turn.id: label for label, turn in turns.items()}
    for left_out in window.explanation.left_out if window.explanation else ():
        print(f"   {'left out':>10} | turn {by_id.get(left_out.turn, left_out.turn)!r}: {left_out.reason}")
    print()


def summary(block: object) -> str:
    """Return a content block as a person would read it."""
    match block:
        case Text():
            return block.text
        case ToolUse():
            return f"[calls {block.name} with {bytes(block.input).decode()}]"
        case ToolResult():
            return f"[answer of the tool: {block.content}]"
        case Thinking():
            return f"[thinks: {block.thinking}]"
        case Native():
            return f"[a block of {block.provider}]"
        case _:
            return f"[{type(block).__name__.lower()}]"


def shared_messages(one: ContextWindow, other: ContextWindow) -> int:
    """Return how many messages two windows have in common from the start."""
    pairs = zip(one.messages, other.messages, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(one.messages), len(other.messages)))


def what_next(head: Turn) -> None:
    """Print the commands to go on with."""
    command = os.path.relpath(Path(sys.executable).with_name("turnlog"))
    if command.startswith(".." + os.sep + ".."):
        command = "turnlog"
    heading(5, "What to type next")
    print(f"   export TURNLOG_STORE={STORE}\n")
    for arguments, what in (
        ("log main", "see the thread with its branches"),
        ("context cheaper --explain", "the window, and which turn set each option"),
        (f"show {head.id}", "one turn, with everything that is recorded about it"),
        ("add --continues main 'And on Sunday?'", "go on; main moves to the new turn"),
        ("verify", "read and check every stored byte"),
        ("--help", "all the rest"),
    ):
        print(f"   {command} {arguments}\n      {what}")


def heading(number: int, text: str) -> None:
    """Print the heading of a part."""
    print(f"\n{number}. {text}\n")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (TurnlogError, OSError) as error:
        sys.exit(f"quickstart: {error}")
