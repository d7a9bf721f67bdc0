"""The tools that a run offers: listed at its start, and again before each model call, for servers may change theirs."""

from __future__ import annotations

from collections.abc import Sequence

from turnlog.agent.combined import CombinedTools
from turnlog.agent.events import ToolsNoted
from turnlog.agent.followers import Followers
from turnlog.agent.policy import Policy
from turnlog.errors import RunError, ToolServerError
from turnlog.model import Tool
from turnlog.model.tools import TOOLS_MAX

OFFERED_MAX = TOOLS_MAX - 1
"""The most tools that a run offers, beside the one of turnlog's own: what has more in the log is damaged."""


class Offering:
    """The tools that a run offers, and what there is to say of them, each thing once."""

    def __init__(self, tools: CombinedTools, policy: Policy, followers: Followers) -> None:
        """Take tools that have been entered."""
        self._tools = tools
        self._policy = policy
        self._followers = followers
        self._offered: list[Tool] = []
        self._told: set[str] = set()

    async def begin(self) -> list[Tool]:
        """Return the tools to offer first.

        Raises:
            ToolServerError: a server cannot be started, reached or understood.
            RunError: two tools have one name; or there are more than `OFFERED_MAX`.
        """
        self._offered = self._wanted(await self._tools.tools(self._check))
        for note in self._tools.notes():
            self._tell(note)
        return self._offered

    async def again(self) -> list[Tool]:
        """Return the tools to offer now: those of before where they cannot be listed, which is told."""
        try:
            return await self.begin()
        except (RunError, ToolServerError) as error:
            self._tell(f"{error}; the tools are offered as they were")
            return self._offered

    def _wanted(self, tools: Sequence[Tool]) -> list[Tool]:
        return [tool for tool in tools if self._policy.offers(tool.name)]

    def _check(self, tools: Sequence[Tool]) -> None:
        offered = len(self._wanted(tools))
        if offered > OFFERED_MAX:
            raise RunError(
                f"{offered:,} tools cannot be offered, {OFFERED_MAX:,} can: choose servers, or tools with `offer`"
            )

    def _tell(self, note: str) -> None:
        if note not in self._told:
            self._told.add(note)
            self._followers.tell(ToolsNoted(note=note))
