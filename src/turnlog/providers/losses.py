"""What a request does not carry beside its messages, and whether it may be lost: decided here for all wires."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from turnlog.errors import UnsupportedContentError
from turnlog.model import LossEntry, LossKind, Tool
from turnlog.providers.tool_names import ToolNames

OnLoss = Literal["error", "report"]
"""What to do with what a wire cannot carry: refuse it, or degrade it by a written rule with an entry in the report."""

_CANNOT: dict[LossKind, str] = {"downgraded": "can only carry"}


class Losses:
    """What a request as a whole has lost: parameters, tools, search. What messages lose is their conversation's."""

    def __init__(self, adapter: str, on_loss: OnLoss | None) -> None:
        """Begin with none, for an adapter, and what is said to be done with losses."""
        self._adapter = adapter
        self._on_loss = on_loss
        self.entries: list[LossEntry] = []

    def lose(
        self,
        kind: LossKind,
        block: str,
        why: str,
        *,
        harmless: bool = False,
        advice: str = "leave it out",
        turn: str = "",
    ) -> None:
        """Take note of a loss, where it is allowed.

        Args:
            kind: what became of it.
            block: what was lost: `parameter`, `tool`, `tool_choice`, `search`.
            why: what exactly, and why, as in `stop_sequences ['x']: the wire has none`.
            harmless: whether it may be lost where nothing was said. With `error` nothing may be.
            advice: what to do in place of allowing it.
            turn: the turn that it is lost for, where it is one.

        Raises:
            UnsupportedContentError: it is not allowed.
        """
        if self._on_loss == "error" or not (harmless or self._on_loss):
            what = _CANNOT.get(kind, "cannot carry")
            raise UnsupportedContentError(
                f"{self._adapter} {what} {why}: {advice}, or allow losses with on_loss='report'",
                provider=self._adapter,
                block=block,
                turn=turn or None,
            )
        self.entries.append(LossEntry(kind=kind, turn=turn, block=block, why=why))

    def lose_keywords(self, tool: Tool, removed: Sequence[str], advice: str = "leave it out") -> None:
        """Take note of the keywords that the schema of a tool does not have any more; of none where there are none."""
        if removed:
            why = f"the schema of {tool.name!r} without the keywords {', '.join(removed)}"
            self.lose("downgraded", "tool", why, harmless=True, advice=advice)

    def named(self, tools: Sequence[Tool], names: ToolNames) -> list[Tool]:
        """Return the tools whose names the wire takes; the others are lost, where that is allowed.

        Args:
            tools: the tools.
            names: the names that the wire takes.
        """
        return [tool for tool in tools if self._is_named(tool, names)]

    def _is_named(self, tool: Tool, names: ToolNames) -> bool:
        if names.take(tool.name):
            return True
        why = f"a tool called {tool.name!r}: 1 to {names.characters_max} {names.form} make a name"
        self.lose("dropped", "tool", why, advice="call it otherwise")
        return False
