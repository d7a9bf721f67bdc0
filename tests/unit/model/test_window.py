"""The context window."""

import json

import pytest
from msgspec import Raw

from turnlog import ContentError
from turnlog.model import ContextWindow, Explanation, LeftOut, Message, Native, Text, parse_window


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


# Read from JSON


def test_window_is_read_as_it_is_written() -> None:
    """What `to_json` wrote is a window again, content byte for byte; turns are named by their places."""
    content = rb'[{"text":"\u00e9","type":"text","n":1.50}]'
    window = ContextWindow(
        messages=(Message(turn="t", role="system", content_json=content, cache=True),), options={"search": True}
    )
    [message] = parse_window(window.to_json()).messages
    assert message == Message(turn="messages[0]", role="system", content_json=content, cache=True)
    assert parse_window(window.to_json()).options == {"search": True}
    assert parse_window(window.to_json()).to_json() == window.to_json()


def test_message_may_say_where_it_comes_from() -> None:
    """A message can name its turn, and the provider, api and model that wrote it."""
    text = '{"messages":[{"role":"assistant","content":"hi","turn":"t","provider":"p","api":"a","model":"m"}]}'
    assert parse_window(text).messages == (
        Message(
            turn="t",
            role="assistant",
            content_json=b'[{"type":"text","text":"hi"}]',
            provider="p",
            api="a",
            model="m",
        ),
    )


@pytest.mark.parametrize("content", ['"hi"', '{"type":"text","text":"hi"}', ' [ {"type": "text", "text": "hi"} ] '])
def test_content_may_be_text_or_one_block(content: str) -> None:
    """Content is read as recording reads it: text, one block, or a list; whitespace does not count."""
    [message] = parse_window(f'{{"messages":[{{"role":"user","content":{content}}}]}}').messages
    assert message.content_json == b'[{"type":"text","text":"hi"}]'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "window: not valid JSON"),
        ("[]", "window: expected 'object', got 'array'"),
        ("{}", "window: object missing required field 'messages'"),
        ('{"messages":[{"role":"tool","content":"x"}]}', "window.messages[0].role: invalid enum value 'tool'"),
        ('{"messages":[{"role":"user"}]}', "window.messages[0]: object missing required field 'content'"),
        ('{"messages":[{"role":"user","content":[1]}]}', "messages[0].content[0]: expected"),
        ('{"messages":[{"role":"user","content":[{"type":"x"}]}]}', "messages[0].content[0].type: 'x' is not"),
        ('{"messages":[],"options":[]}', "window.options: expected 'object', got 'array'"),
    ],
)
def test_what_is_no_window_is_refused(text: str, message: str) -> None:
    """A window that cannot be read raises, and the message says where."""
    with pytest.raises(ContentError) as caught:
        parse_window(text)
    assert message in str(caught.value)


def test_blocks_of_unknown_types_are_somebodys_own_only_where_that_is_said() -> None:
    """They are native blocks of the model that the message names, else of the one that is given."""
    text = b'{"messages":[{"role":"assistant","content":[{"type":"odd","n":1.0},{"type":"text","text":"x"}]}]}'
    with pytest.raises(ContentError, match="'odd' is not a content block"):
        parse_window(text)
    [message] = parse_window(text, own=("p", "a", "m")).messages
    assert message.content_json == (
        b'[{"type":"native","provider":"p","block":{"type":"odd","n":1.0},"api":"a","model":"m"},'
        b'{"type":"text","text":"x"}]'
    )
    named = text.replace(b'"role"', b'"provider":"q","model":"n","role"')
    [message] = parse_window(named, own=("p", "a", "m")).messages
    [native, _] = message.content
    assert isinstance(native, Native)
    assert (native.provider, native.api, native.model) == ("q", "a", "n")
    typeless = text.replace(b'"type":"odd",', b"")
    [message] = parse_window(typeless, own=("p", "a", "m")).messages
    [native, _] = message.content
    assert isinstance(native, Native)
    assert native.block == Raw(b'{"n":1.0}')
    with pytest.raises(ContentError, match="missing field 'type'"):
        parse_window(typeless.replace(b"assistant", b"user"), own=("p", "a", "m"))
    for malformed in (b"[1]", b"[{}]", b'[{"type":1}]', b'{"a":1}'):
        with pytest.raises(ContentError):
            parse_window(b'{"messages":[{"role":"user","content":%s}]}' % malformed, own=("p", "a", "m"))
