"""Request bodies: the frame around messages."""

import json

import pytest
from msgspec import Raw

from turnlog.providers.body import encode, frame


def test_json_has_no_whitespace_and_keeps_the_order_of_keys() -> None:
    """Keys come in the order given, and text is UTF-8 and not escaped."""
    assert encode({"b": 1, "a": ["é", None, True]}) == '{"b":1,"a":["é",null,true]}'.encode()


def test_raw_parts_stay_as_they_are_spelled() -> None:
    """Raw JSON inside a value is not decoded: numbers, escapes and the order of keys stay."""
    assert encode({"x": Raw(b'{"z":1.50,"a":"\\u00e9"}')}) == b'{"x":{"z":1.50,"a":"\\u00e9"}}'


@pytest.mark.parametrize("before", [{}, {"model": "m", "stream": True}])
@pytest.mark.parametrize("after", [{}, {"tools": [], "é": Raw(b"1.0")}])
@pytest.mark.parametrize("messages", [b"", b'{"role":"user"}', b'{"n":1},{"n":2}'])
def test_frame_closes_around_any_messages(before: dict[str, object], after: dict[str, object], messages: bytes) -> None:
    """Head, fragments and closing make one JSON object, its fields in the order given."""
    around = frame(before, "messages", after)
    body = json.loads(around.head + messages + around.closing)
    assert list(body) == [*before, "messages", *after]
    assert body["messages"] == json.loads(b"[" + messages + b"]")
    assert {name: body[name] for name in before} == before
