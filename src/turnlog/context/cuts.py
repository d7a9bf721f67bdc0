"""Where a window may be cut, and which of its turns a summary is to cover. Pure functions of the messages."""

from __future__ import annotations

from collections.abc import Container, Sequence
from enum import StrEnum
from itertools import accumulate

from msgspec import Struct

from turnlog.errors import MetaError
from turnlog.model import Message, ToolResult, ToolUse
from turnlog.model.kinds import check_count

KEEP_FIRST = 1
KEEP_LAST = 10
MIN_TURNS = 4


class NotCompacted(StrEnum):
    """Why a thread was not compacted."""

    TOO_SHORT = "too_short"
    COOL_DOWN = "cool_down"
    NO_CUT = "no_cut"

    @property
    def why(self) -> str:
        """The same as a line for people."""
        return _WHY[self]


_WHY = {
    NotCompacted.TOO_SHORT: "there are too few turns between the first and the last ones that are kept",
    NotCompacted.COOL_DOWN: "too few turns were recorded since it was compacted last",
    NotCompacted.NO_CUT: "wherever it could begin or end, it would part a tool call from its result, or a step of the "
    "model, or is in a branch that was merged",
}


class Policy(Struct, frozen=True, kw_only=True):
    """How much of a thread to compact, in turns of its window.

    Attributes:
        keep_first: how many at the beginning stay as they are; what a summary stands for already does not come back.
        keep_last: how many at the end stay as they are.
        min_turns: do nothing where fewer turns than these could be covered anew.
        max_turns: cover at most so many anew; None for no limit.
        cool_down_turns: do nothing before so many turns were recorded since it was compacted last.
    """

    keep_first: int = KEEP_FIRST
    keep_last: int = KEEP_LAST
    min_turns: int = MIN_TURNS
    max_turns: int | None = None
    cool_down_turns: int = 0

    def check(self) -> None:
        """Check the numbers.

        Raises:
            MetaError: one is no whole number or too small, or `max_turns` is below `min_turns`.
        """
        for name, least in (("keep_first", 0), ("keep_last", 0), ("min_turns", 1), ("cool_down_turns", 0)):
            check_count(getattr(self, name), name, least=least)
        if self.max_turns is not None and check_count(self.max_turns, "max_turns") < self.min_turns:
            raise MetaError(
                f"max_turns: {self.max_turns} is less than min_turns, which is {self.min_turns}", field="max_turns"
            )


class Run(Struct, frozen=True, kw_only=True):
    """Messages that a summary is to cover: the index of the first and of the last one, and how many it covers anew."""

    first: int
    last: int
    new: int


def choose_run(
    messages: Sequence[Message],
    path: Container[str],
    covered: tuple[int, int] | None,
    since: int | None,
    policy: Policy,
) -> Run | NotCompacted:
    """Return which messages a summary is to cover, as many as may be, or why none.

    Args:
        messages: the whole window, oldest first.
        path: ids of the turns of its first-parent path. The run begins and ends with one of them: of another run no
            window would show the summary.
        covered: the indexes of the first and of the last message that a summary stands for already. The new one
            covers them too, and begins earlier where that is no place to cut any more: a result came late.
        since: how many turns were recorded since then; None if there is no summary yet.
        policy: how much to compact.
    """
    if since is not None and since < policy.cool_down_turns:
        return NotCompacted.COOL_DOWN
    latest = len(messages) - policy.keep_last
    new_from = policy.keep_first if covered is None else covered[1] + 1
    if latest - new_from < policy.min_turns:
        return NotCompacted.TOO_SHORT
    cuts = safe_cuts(messages)
    begin = _begin([cut for cut in cuts if cut < latest and messages[cut].turn in path], covered, policy.keep_first)
    if begin is None:
        return NotCompacted.NO_CUT
    known = 0 if covered is None else covered[1] + 1 - covered[0]
    if policy.max_turns is not None:
        latest = min(latest, begin + known + policy.max_turns)
    end = max((cut for cut in cuts if new_from < cut <= latest and messages[cut - 1].turn in path), default=0)
    new = end - begin - known
    return NotCompacted.NO_CUT if new < policy.min_turns else Run(first=begin, last=end - 1, new=new)


def _begin(cuts: Sequence[int], covered: tuple[int, int] | None, keep_first: int) -> int | None:
    """Return the first of the cuts that a run can begin at; the last one where a summary stands for some already."""
    if covered is None:
        return next((cut for cut in cuts if cut >= keep_first), None)
    return max((cut for cut in cuts if min(keep_first, covered[0]) <= cut <= covered[0]), default=None)


def safe_cuts(messages: Sequence[Message]) -> list[int]:
    """Return where messages may be cut, ascending: before the message of each index; the number of messages is the end.

    A cut is between no tool call and its result, whatever is between these; nor behind a call that still waits for its
    result; nor between two assistant turns in a row, which are one step of a model; nor before results of tools.
    """
    unsafe = [0] * (len(messages) + 2)
    """By how much the number of reasons against a cut grows at an index."""
    made: dict[str, tuple[int, int]] = {}
    """Where each call was made last, by its id: the message, and the step."""
    waiting: set[str] = set()
    step = 0
    for index, message in enumerate(messages):
        if message.role == "assistant":
            if index and messages[index - 1].role == "assistant":
                _forbid(unsafe, index, index)
            else:
                step += 1
        calls, results = _tools(message)
        if results:
            _forbid(unsafe, index, index)
        for result in results:
            if result in made:
                _forbid(unsafe, made[result][0] + 1, index)
                waiting.discard(result)
        made |= dict.fromkeys(calls, (index, step))
        waiting.update(calls)
    for call in waiting:
        at, made_in = made[call]
        if made_in == step:  # else the model has gone on without the result
            _forbid(unsafe, at + 1, len(messages))
    return [index for index, against in enumerate(accumulate(unsafe[:-1])) if not against]


def _forbid(unsafe: list[int], first: int, last: int) -> None:
    unsafe[first] += 1
    unsafe[last + 1] -= 1


def _tools(message: Message) -> tuple[list[str], list[str]]:
    """Return the ids of the tools that a message calls, and of those whose results it has; empty for what has none."""
    if b"tool_" not in message.content_json:
        return [], []
    calls: list[str] = []
    results: list[str] = []
    for block in message.content:
        if isinstance(block, ToolUse):
            calls.append(block.id or "")
        elif isinstance(block, ToolResult):
            results.append(block.tool_use_id or "")
    return calls, results
