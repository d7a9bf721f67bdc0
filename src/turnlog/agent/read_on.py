"""What a run shows its model of long results, and the tool that turnlog offers by itself: it reads on in them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec import Raw, Struct

from turnlog.agent.bounds import READ_RESULT, Bounds, marked_results, notice, result_page
from turnlog.agent.combined import CombinedTools
from turnlog.agent.given_arguments import check_keys
from turnlog.agent.policy import Policy
from turnlog.agent.toolbox import Toolbox, ToolOutcome
from turnlog.errors import ContentError
from turnlog.executors import Executors
from turnlog.model import (
    ContextWindow,
    Text,
    Tool,
    ToolResult,
    WindowChange,
    change_between,
    changed_window,
)
from turnlog.model.long_strings import LongStrings
from turnlog.model.window_changes import check_window

_INDEX = re.compile("[0-9]{1,9}", re.ASCII)
_TOOL = Tool(
    name=READ_RESULT,
    description=(
        "Read on in the result of an earlier tool call that was cut because it is long. "
        "The notice at the cut says what to give."
    ),
    input_schema=Raw(
        b'{"type":"object","properties":{'
        b'"result":{"type":"string","description":"Which result, as the notice names it."},'
        b'"offset":{"type":"integer","minimum":0,"description":"Where to begin, in bytes."}}'
        b',"required":["result","offset"],"additionalProperties":false}'
    ),
)


class _Given(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a call."""

    result: str
    offset: int


class ReadResults(Toolbox):
    """Reads on in the results of a thread. It calls nothing and changes nothing, so that nobody has to allow it."""

    def __init__(self, window: Callable[[], Awaitable[ContextWindow]], bytes_max: int) -> None:
        """Take what returns the window of the thread, and how much to return at once, in bytes of UTF-8, at least 1."""
        self._window = window
        self._bytes_max = bytes_max

    async def tools(self) -> Sequence[Tool]:
        """Return the one tool."""
        return [_TOOL]

    async def call(self, name: str, arguments: Raw) -> ToolOutcome:
        """Return the next part of a result, and a notice where that goes on."""
        try:
            check_keys(arguments)
            given = msgspec.json.decode(bytes(arguments), type=_Given)
        except ContentError as error:
            return ToolOutcome.error(str(error))
        except msgspec.DecodeError as error:
            return ToolOutcome.error(f"the arguments do not fit {name!r}: {error}")
        found = _result(await self._window(), given.result)
        if found is None:
            return ToolOutcome.error(f"there is no result {given.result!r}: give one as the notice at a cut names it")
        page = result_page(*found, given.offset, self._bytes_max)
        if not 0 <= given.offset < page.size:
            return ToolOutcome.error(f"the result has {page.size:,} bytes: the offset {given.offset:,} is none of them")
        told = notice(given.result, given.offset, page.end, page.size) if page.end < page.size else ""
        return ToolOutcome(content=(Text(text=page.text + told),))


def _result(window: ContextWindow, place: str) -> tuple[ToolResult, LongStrings] | None:
    """Return the result at a place, `TURN.INDEX`, with the long strings whose marks stand in it; None for no place."""
    turn, _, index = place.partition(".")
    for message in window.messages:
        if message.turn == turn and _INDEX.fullmatch(index):
            blocks, long = marked_results(message)
            block = next(iter(blocks[int(index) :]), None)
            return (block, long) if isinstance(block, ToolResult) else None
    return None


class Reading:
    """How much of the results a run shows its model, and whether the model can read on."""

    def __init__(
        self,
        policy: Policy,
        executors: Executors,
        window: Callable[[], ContextWindow],
        *,
        without_tools: bool,
    ) -> None:
        """Begin with a run.

        Args:
            policy: what the run may do.
            executors: the threads of the log.
            window: returns the window of the turn that the run is at.
            without_tools: whether the run asks for what some providers have only where no tool is offered. A run that
                has no tools of its own is offered none then.
        """
        self._executors = executors
        self._window = window
        # A run of one call has no other one to read on in.
        self._offers = policy.offers(READ_RESULT) and policy.iterations_max > 1
        self._without_tools = without_tools
        most = policy.result_bytes_max
        self._bounds = None if most is None else Bounds(most)
        self.toolbox = None if most is None else ReadResults(self._read, most)
        """What reads on; None where no result is cut."""

    async def _read(self) -> ContextWindow:
        return await self._executors.run_read(self._window)

    async def offered(self, tools: CombinedTools, own: Sequence[Tool]) -> Sequence[Tool]:
        """Return the tools to offer: beside those of the run, what reads on in results where one is cut."""
        bounds = self._bounds
        if bounds is None or not self._offers or not tools.built_in or (self._without_tools and not own):
            return own

        def is_cut() -> bool:
            window = self._window()
            searches = window.options.get("search") is True and not own
            return not searches and bool(bounds.cut_turns(window))

        return [*own, *tools.built_in] if await self._executors.run_read(is_cut) else own

    def to_ask(
        self, window: ContextWindow, wanted: ContextWindow, offered: Sequence[Tool]
    ) -> tuple[ContextWindow, WindowChange | None]:
        """Return the window that a model is asked with, and how it differs from that of its turn.

        Args:
            window: the window of the turn.
            wanted: the one to ask with, but for results that are too long.
            offered: the tools that the model is offered.

        Raises:
            ContentError: what is wanted is no window.
        """
        bounds = self._bounds
        if wanted is not window:
            check_window(wanted)
        if bounds is not None:
            reads_on = _TOOL in offered
            wanted = bounds.bounded(wanted, bounds.cut_turns(window) if reads_on else frozenset())
        if wanted is window:
            return window, None
        change = change_between(window, wanted)
        # It is made of what will be recorded, so that the same request can be made again of that.
        return (window, None) if change is None else (changed_window(window, change), change)
