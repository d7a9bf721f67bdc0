"""`turnlog demo`: a run with tools, recorded and made again, without a key and without a network."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from turnlog.agent.ask import Ask
from turnlog.agent.policy import Policy
from turnlog.cli.live import Live
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, write_json
from turnlog.cli.text import count, on_line
from turnlog.log import TurnLog
from turnlog.providers import Connection, PreparedRequest, RawEvent, get
from turnlog.providers.replay import Replay
from turnlog.turn import Turn

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
    """Record a run with tools, go another way from its middle, and check that all of it can be made again.

    A model that is a part of the demo answers, in the form of Anthropic's Messages: it needs no key and no network.
    All else is as in `turnlog run`. The store stays for you to look around; without --store it is `turnlog-demo.db` in
    this folder.
    """
    common = replace(common, store=common.store or STORE)  # never what TURNLOG_STORE names: that is for real work
    live, screen = Live(json=common.json), Screen.of_stdout()
    with common.open(create=True) as log:
        if not common.json:
            screen.line((f"Recorded in {common.place}:", "dim"))
        first = _ask(log, live, screen, _QUESTION, _WITH_TOOLS, bookmark=BOOKMARK)
        # From the turn that came before the answer, as if the question had been another one.
        _ask(log, live, screen, _AND_TRAIN, _WITHOUT, bookmark=OTHER, continues=f"{BOOKMARK}~1")
        # What both have in common is checked once.
        checked = {one.call: one for name in (BOOKMARK, OTHER) for one in log.calls.check(name)}.values()
        report = log.verify()
    again = sum(one.difference is None and one.reply_difference is None for one in checked)
    if common.json:
        write_json({"again": again, "calls": len(checked), "verified": report.clean, "head": first.id})
    else:
        screen.line("")
        screen.line(f"{again} of {count(len(checked), 'model call')} can be made again, byte for byte.")
        screen.line(f"{count(report.events, 'event')} read again: {'no damage' if report.clean else 'damaged'}.")
        _show_ways(screen, common)
    return 0 if report.clean and again == len(checked) else 1


def _ask(
    log: TurnLog,
    live: Live,
    screen: Screen,
    question: str,
    script: Sequence[Said],
    *,
    bookmark: str,
    continues: str | None = None,
) -> Turn:
    if not live.json:
        screen.line("")
        screen.line((f"> {question}", "bold"))
        sys.stdout.flush()  # what follows goes to standard error, too
    result = log.run(
        question,
        continues=continues,
        bookmark=bookmark,
        provider="anthropic",
        model=MODEL,
        tools=[ferry_times, sea],
        policy=Policy(approve="auto"),
        ask=Ask(adapter=_Scripted(script), connection=Connection()),
        on_delta=live.on_delta,
        on_event=live.on_event,
    )
    live.show_end(result)
    return result.head


def _show_ways(screen: Screen, common: Common) -> None:
    store = f" --store {shlex.quote(common.url)}"
    ways = (
        (f"turnlog log --all{store}", "both ways, and where they part"),
        (f"turnlog show {BOOKMARK}~2{store}", "the calls of the tools: what let them run, and how long they took"),
        (f"turnlog context {BOOKMARK}{store}", "what the model is given next"),
        (f"turnlog replay {BOOKMARK} --check{store}", "the check once more"),
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
