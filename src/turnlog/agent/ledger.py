"""What a run records of its tool calls while they go on: each before it can have an effect, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from turnlog.agent.run_log import RunLog
from turnlog.agent.settled import settled
from turnlog.model import Block, ToolCallMeta, ToolEndMeta


class Ledger:
    """Records tool calls in a log. A cancellation waits until what is to be recorded is."""

    def __init__(self, log: RunLog, *, api_key: str | None) -> None:
        """Take the log, and the key that what tools return is not to repeat."""
        self._log = log
        self._api_key = api_key

    async def begin(
        self, calls: Sequence[ToolCallMeta], ends: Sequence[tuple[ToolEndMeta, Sequence[Block]]] = ()
    ) -> list[str]:
        """Record that tools are about to be called, and what is said of calls that are not made: all of it, or nothing.

        Return the ids of the ends.

        Raises:
            ToolCallTakenError: another run has begun one of these attempts.
        """
        record = partial(self._log.tool_calls.begin, calls, ends, api_key=self._api_key)
        return await settled(self._log.executors, record)

    async def end(self, end: ToolEndMeta, content: Sequence[Block]) -> str:
        """Record how a tool call ended while others go on, with its result, and return the event's id."""
        record = partial(self._log.tool_calls.end, end, content, api_key=self._api_key)
        return await settled(self._log.executors, record)
