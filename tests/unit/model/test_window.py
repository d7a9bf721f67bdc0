"""The context window."""

import json

from turnlog.model import ContextWindow, Explanation, LeftOut, Message, Text


def test_json_is_that_of_the_schema_reference() -> None:
    """A window is `{messages: [{role, content, cache}], options}`, content spliced in byte for byte."""
    content = rb'[{"text":"\u00e9","type":"text","n":1.50}]'
    window = ContextWindow(
        messages=(Message(turn="t", role="user", content_json=content, cache=True, model="m"),),
        options={"b": 1, "a": [None]},
    )
    assert window.to_json() == (
        b'{"messages":[{"role":"user","content":' + content + b',"cache":true}],"options":{"b":1,"a":[null]}}'
    )


def test_empty_window_is_json_too() -> None:
    """No messages and no options are an empty list and an empty record."""
    assert ContextWindow(messages=(), options={}).to_json() == b'{"messages":[],"options":{}}'


def test_explanation_is_part_of_the_json_if_asked_for() -> None:
    """The explanation stands under `explain`."""
    window = ContextWindow(
        messages=(),
        options={},
        explanation=Explanation(turns=("a",), options={"x": "a"}, left_out=(LeftOut(turn="b", reason="r"),)),
    )
    assert json.loads(window.to_json())["explain"] == {
        "turns": ["a"],
        "options": {"x": "a"},
        "left_out": [{"turn": "b", "reason": "r"}],
    }


def test_content_is_decoded_from_the_exact_text() -> None:
    """A message gives its blocks typed."""
    message = Message(turn="t", role="user", content_json=b'[{"type":"text","text":"x"}]')
    assert message.content == [Text(text="x")]
