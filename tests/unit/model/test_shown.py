"""How values with raw JSON text are shown."""

import pytest
from msgspec import Raw, Struct

from turnlog import Text, ToolUse, TurnLog
from turnlog.model import ContextWindow, Delta, Message, Response, Tool

SCHEMA = Raw(b'{"type":"object"}')


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (
            ToolUse(name="find", input=Raw('{"q":"café"}'.encode()), extra={"hint": Raw(b"1")}),
            """ToolUse(extra={'hint': Raw('1')}, name='find', input=Raw('{"q":"café"}'), id=None)""",
        ),
        (
            Tool(name="find", input_schema=SCHEMA),
            "Tool(name='find', description='', input_schema=Raw('{\"type\":\"object\"}'), output_schema=Raw(''), "
            "title=None, annotations=Raw(''))",
        ),
        (Delta(content=Raw(b"[1]")), "Delta(type=None, name=None, id=None, content=Raw('[1]'))"),
        (
            Response(
                content=(Text(text="Yes."),),
                model="m",
                stop_reason="done",
                provider="p",
                api="a",
                raw_usage=Raw(b'{"in":1}'),
            ),
            "Response(content=(Text(extra={}, text='Yes.'),), model='m', stop_reason='done', provider='p', api='a', "
            "raw_stop_reason=None, usage=None, raw_usage=Raw('{\"in\":1}'), id=None, error=None, extra={})",
        ),
    ],
)
def test_raw_json_is_shown_as_text(value: Struct, shown: str) -> None:
    """All else as msgspec shows it."""
    assert repr(value) == shown


def test_long_raw_json_is_cut() -> None:
    """With its size, also within a character."""
    call = ToolUse(name="find", input=Raw(b'{"q":"' + "é".encode() * 500 + b'"}'))
    assert repr(call) == f"""ToolUse(extra={{}}, name='find', input=Raw('{{"q":"{"é" * 97}'… 1,008 bytes), id=None)"""


def test_metadata_of_events_is_shown() -> None:
    """Of the header, and of the private part."""
    with TurnLog.open("memory://") as log:
        log.add_turn("hello", bookmark="main")
        [_, recorded] = log.events()
    assert """meta=Raw('{"role":"user"}')""" in repr(recorded.header)
    assert """meta=Raw('{"head":"main"}')""" in repr(recorded.private)


def test_long_texts_are_cut() -> None:
    """Of a block, and of a message with the JSON of its content."""
    assert repr(Text(text="é" * 1_000_000)) == f"Text(extra={{}}, text='{'é' * 200}'… 1,000,000 characters)"
    message = Message(turn="t", role="user", content_json=b"[" * 201)
    assert f"content_json=b'{'[' * 200}'… 201 bytes, cache=False" in repr(
        ContextWindow(messages=(message,), options={})
    )
