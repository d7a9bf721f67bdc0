"""How many tools a run offers."""

from collections.abc import Sequence

import pytest
from msgspec import Raw
from tests.agent.running import results, run
from tests.agent.scripted import Scripted, call, say

from turnlog import RunError, TurnLog
from turnlog.agent.events import ToolsNoted
from turnlog.agent.offering import OFFERED_MAX
from turnlog.agent.toolbox import Toolbox, ToolOutcome
from turnlog.model import Text, Tool


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


def test_tools_that_were_offered_can_be_called_where_a_later_listing_is_refused(log: TurnLog) -> None:
    """They are offered as they were, so the model may call them."""
    listings = 0

    class Growing(Many):
        """A toolbox that lists too many tools, and not its own, from the second time on."""

        async def tools(self) -> Sequence[Tool]:
            nonlocal listings
            listings += 1
            return await super().tools() if listings > 1 else [Tool(name="mine", input_schema=Raw(b"{}"))]

        async def call(self, name: str, arguments: Raw) -> ToolOutcome:
            del arguments
            return ToolOutcome(content=(Text(text=name),))

    notes: list[str] = []
    adapter = Scripted(call(("mine", {})), say("Done."))
    result = run(
        log, adapter, tools=Growing(), on_event=lambda e: notes.append(e.note) if isinstance(e, ToolsNoted) else None
    )
    assert (result.stopped, results(log, result.head.id)) == ("done", [("c1", "mine", False)])
    assert ["the tools are offered as they were" in note for note in notes] == [True]
