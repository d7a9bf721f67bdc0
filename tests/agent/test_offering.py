"""How many tools a run offers."""

from collections.abc import Sequence

import pytest
from msgspec import Raw
from tests.agent.running import run
from tests.agent.scripted import Scripted, say

from turnlog import RunError, TurnLog
from turnlog.agent.offering import OFFERED_MAX
from turnlog.agent.toolbox import Toolbox, ToolOutcome
from turnlog.model import Tool


class Many(Toolbox):
    """A toolbox of many tools."""

    async def tools(self) -> Sequence[Tool]:
        """Return one more than a run offers."""
        return [Tool(name=f"t{number}", input_schema=Raw(b"{}")) for number in range(OFFERED_MAX + 1)]

    async def call(self, name: str, arguments: Raw) -> ToolOutcome:
        """Call none."""
        raise NotImplementedError


def test_more_tools_than_a_log_can_list_are_not_offered(log: TurnLog) -> None:
    """Nothing is recorded. Those that are chosen are offered, as many as can be, and the log is whole."""
    with pytest.raises(RunError, match="10,000 tools cannot be offered, 9,999 can"):
        run(log, Scripted(say("Done.")), tools=[Many()], bookmark="main")
    assert log.threads() == []
    adapter = Scripted(say("Done."))
    run(log, adapter, tools=[Many()], offer=["t[1-9]", "t??*"], bookmark="main")
    assert len(adapter.bodies[0]["tools"]) == OFFERED_MAX
    assert log.verify().clean
