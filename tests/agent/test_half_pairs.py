"""Tools and servers that give half of a surrogate pair: no log and no provider can have that, and no run ends of it."""

import pytest
from tests.agent.running import results, run
from tests.agent.scripted import Scripted, call, say
from tests.agent.servers import odd
from tests.agent.test_mcp import called, listed

from turnlog import TurnLog
from turnlog.agent.half_pairs import json_unicode_of, unicode_of
from turnlog.agent.toolbox import ToolOutcome
from turnlog.model import Text

NAME = "caf\udce9.txt"
"""A file whose name is Latin-1, as Python has it."""


def named() -> str:
    """Return a name."""
    return NAME


def listed_names() -> list[str]:
    """Return names."""
    return [NAME]


def missing() -> str:
    """Fail with a name."""
    raise FileNotFoundError(NAME)


@pytest.mark.parametrize(
    ("tool", "text", "is_error"),
    [
        (named, "caf\ufffd.txt", False),
        (listed_names, '["caf\ufffd.txt"]', False),
        (missing, "FileNotFoundError: caf\ufffd.txt", True),
    ],
)
def test_what_a_function_says_is_recorded_with_a_mark_for_it(
    log: TurnLog, tool: object, text: str, is_error: bool
) -> None:
    """Whatever it returns or raises; the run goes on."""
    name = getattr(tool, "__name__", "")
    result = run(log, Scripted(call((name, {})), say("Done.")), tools=[tool])
    assert (result.stopped, results(log, result.head.id)) == ("done", [("c1", text, is_error)])
    assert log.verify().clean


def test_what_a_person_answers_is_recorded_with_a_mark_for_it(log: TurnLog) -> None:
    """A program that asks may have read it as odd bytes."""
    adapter = Scripted(call(("named", {})), say("Done."))
    result = run(log, adapter, tools=[named], approve="ask", on_approval=lambda _: NAME)
    assert results(log, result.head.id) == [("c1", "caf\ufffd.txt", False)]


def test_what_a_server_says_has_a_mark_for_it() -> None:
    """In results, in errors of the protocol, and in lists of tools. Other texts stay as they are."""
    content = '{"content":[{"type":"text","text":"a\\ud83d"},{"type":"text","text":"\\ud83d\\ude00"}]}'
    assert called(odd("answers", content), "odd___go").content == (Text(text="a\ufffd"), Text(text="\U0001f600"))
    [tool] = listed(odd("half_pairs"))
    assert (tool.description, bytes(tool.input_schema)) == ("a\ufffd", b'{"type":"object","title":"\xef\xbf\xbd"}')
    outcome = called(odd("half_pairs"), "odd___go")
    assert outcome == ToolOutcome.error("MCP server 'odd' answered with an error: b\ufffd (code -32000)")


def test_halves_that_follow_each_other_are_a_character() -> None:
    """As in JSON text that was cut and put together."""
    assert unicode_of("\ud83d\ude00\ude00") == "\U0001f600\ufffd"
    assert json_unicode_of({"\ud800": ["\udc80", 1, None]}) == {"\ufffd": ["\ufffd", 1, None]}
