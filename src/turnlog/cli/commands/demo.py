"""`turnlog demo`: a run with tools, recorded and made again, without a key and without a network."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from msgspec import Struct

from turnlog.agent.ask import Ask
from turnlog.agent.events import RunEvent
from turnlog.agent.policy import Policy
from turnlog.agent.result import RunResult
from turnlog.cli.live import Live
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, telling, write_json
from turnlog.cli.text import count, on_line
from turnlog.log import TurnLog
from turnlog.model import Delta
from turnlog.providers import Connection, PreparedRequest, RawEvent, get
from turnlog.providers.replay import Replay

STORE = "sqlite:///turnlog-demo.db"
BOOKMARK, OTHER = "ferry", "train"
MODEL = "demo-1"

_QUESTION = "When can I leave Nantes by ferry on Monday, and is the sea calm then?"
_AND_TRAIN = "And by train?"

Said = Sequence[str | tuple[str, dict[str, str]]]
"""What a reply says: texts, and calls of tools with their arguments."""

_WITH_TOOLS: tuple[Said, ...] = (
    ("Let me look.", ("ferry_times", {"day": "Monday"}), ("sea", {"day": "Monday"})),
    ("Ferries leave at 08:10 and at 17:40. The sea is calm until noon: take the one at 08:10.",),
)
_WITHOUT: tuple[Said, ...] = (("I can look up ferries only. For trains, ask at the station.",),)


def ferry_times(day: str) -> str:
    """Look up when ferries leave Nantes."""
    return {"Monday": "08:10, 17:40"}.get(day, "none")


def sea(day: str) -> str:
    """Look up how the sea will be."""
    return {"Monday": "calm until noon, then rough"}.get(day, "not known")


def demo(*, common: Common = COMMON) -> int:
    """Record a run with tools, without a key or a network, go another way from its middle, and make all of it again.

    A model that is a part of the demo answers, in the form of Anthropic's Messages. All else is as in `turnlog run`.
    The store stays for you to look around: `turnlog-demo.db` in this folder, unless --store names another one. What
    TURNLOG_STORE names is for real work, and left alone. Bookmarks that are there are left where they are: a second run
    is under `ferry-2` and `train-2`.
    """
    common = replace(common, store=common.store or STORE)  # never what TURNLOG_STORE names: that is for real work
    live, screen = Live(json=common.json), Screen.of_stdout()
    with common.open(create=True) as log:
        main, other = _free_names(log)
        first = _ask(log, _QUESTION, _WITH_TOOLS, bookmark=main)
        # From the turn that came before the answer, as if the question had been another one.
        second = _ask(log, _AND_TRAIN, _WITHOUT, bookmark=other, continues=f"{main}~1")
        # What both have in common is checked once.
        checked = {one.call: one for name in (main, other) for one in log.calls.check(name)}.values()
        report = log.verify()
    again = sum(one.difference is None and one.reply_difference is None for one in checked)
    with telling(f"all of it is recorded in {common.place!r}, but could not be printed"):
        if not common.json:
            screen.line((f"Recorded in {common.place}:", "dim"))
        for asked in (first, second):
            asked.show(live, screen)
        if common.json:
            write_json({"again": again, "calls": len(checked), "verified": report.clean, "head": first.result.head.id})
        else:
            screen.line("")
            screen.line(f"{again} of {count(len(checked), 'model call')} can be made again, byte for byte.")
            screen.line(f"{count(report.events, 'event')} read again: {'no damage' if report.clean else 'damaged'}.")
            _show_ways(screen, common, main)
    return 0 if report.clean and again == len(checked) else 1


def _free_names(log: TurnLog) -> tuple[str, str]:
    """Return names for the bookmarks of the two ways that no bookmark has yet: somebody may have gone on from those."""
    taken = {bookmark.name for bookmark in log.bookmarks.all()}
    names, number = (BOOKMARK, OTHER), 1
    while not taken.isdisjoint(names):
        number += 1
        names = f"{BOOKMARK}-{number}", f"{OTHER}-{number}"
    return names


class _Asked(Struct, frozen=True, kw_only=True):
    """A run that is over, with what it has told: to be shown once all is recorded, since printing may fail."""

    question: str
    told: Sequence[Delta | RunEvent]
    result: RunResult

    def show(self, live: Live, screen: Screen) -> None:
        """Show it as a run is shown that goes on."""
        if not live.json:
            screen.line("")
            screen.line((f"> {self.question}", "bold"))
            sys.stdout.flush()  # what follows goes to standard error, too
        for each in self.told:
            if isinstance(each, Delta):
                live.on_delta(each)
            else:
                live.on_event(each)
        live.show_end(self.result)


def _ask(log: TurnLog, question: str, script: Sequence[Said], *, bookmark: str, continues: str | None = None) -> _Asked:
    told: list[Delta | RunEvent] = []
    result = log.run(
        question,
        continues=continues,
        bookmark=bookmark,
        provider="anthropic",
        model=MODEL,
        tools=[ferry_times, sea],
        policy=Policy(approve="auto"),
        ask=Ask(adapter=_Scripted(script), connection=Connection()),
        on_delta=told.append,
        on_event=told.append,
    )
    return _Asked(question=question, told=told, result=result)


def _show_ways(screen: Screen, common: Common, bookmark: str) -> None:
    store = f" --store {shlex.quote(common.url)}"
    ways = (
        (f"turnlog log --all{store}", "both ways, and where they part"),
        (f"turnlog show {bookmark}~2{store}", "the calls of the tools: what let them run, and how long they took"),
        (f"turnlog context {bookmark}{store}", "what the model is given next"),
        (f"turnlog replay {bookmark} --check{store}", "the check once more"),
    )
    screen.line("")
    screen.line("Look around:")
    for command, what in ways:
        screen.line(f"  {on_line(command)}")
        screen.line((f"      {what}", "dim"))


class _Scripted(Replay):
    """Answers with the replies of a script, one after the other, whatever it is asked."""

    def __init__(self, script: Sequence[Said]) -> None:
        super().__init__(get("anthropic"), {})
        self._script = iter(script)

    def _reply(self, request: PreparedRequest) -> Iterator[RawEvent]:
        return iter(_events(next(self._script), len(request.body)))


def _events(said: Said, size: int) -> list[RawEvent]:
    """Return a reply as the events that Anthropic's Messages stream; tokens are guessed from the request's size."""
    events: list[dict[str, Any]] = []
    for index, part in enumerate(said):
        if isinstance(part, str):
            block: dict[str, Any] = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": f"{word} "} for word in part.split()]
            deltas[-1]["text"] = deltas[-1]["text"].rstrip()
        else:
            name, given = part
            block = {"type": "tool_use", "id": f"call_{index}", "name": name, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": msgspec.json.encode(given).decode()}]
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    usage = {"input_tokens": size // 4, "output_tokens": 12 * len(said)}
    message: dict[str, Any] = {
        "id": "msg_demo",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [],
        "usage": usage,
    }
    calls = any(not isinstance(part, str) for part in said)
    end = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    whole: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        *events,
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": usage["output_tokens"]}},
        {"type": "message_stop"},
    ]
    return [msgspec.json.encode(event) for event in whole]
