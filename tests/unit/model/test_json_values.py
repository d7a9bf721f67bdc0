"""JSON text as Python's values: what these say otherwise is told, and what none can say is refused."""

from __future__ import annotations

import json

import pytest
from msgspec import Raw

from turnlog.errors import ContentError
from turnlog.model.json_values import Decoded, decoded, plain_values


@pytest.mark.parametrize(
    ("text", "value", "change"),
    [
        (b'{"a":1.5,"b":[null,true,"x"]}', {"a": 1.5, "b": [None, True, "x"]}, None),
        (b'{"a":"\\u00e9\\/"}', {"a": "é/"}, None),
        (b'{"a":18446744073709551616}', {"a": 1 << 64}, None),
        (b'{"a":-0}', {"a": 0}, "-0 is 0"),
        (b'{"a":1.10}', {"a": 1.1}, "1.10 is 1.1"),
        (b"[0.12345678901234567890]", [0.12345678901234568], "0.12345678901234567890 is 0.12345678901234568"),
        (b'{"a":{"b":1,"b":2}}', {"a": {"b": 2}}, "of the key 'b' that is there twice it has the last"),
    ],
)
def test_what_a_value_says_otherwise_than_its_text_is_told(text: bytes, value: object, change: str | None) -> None:
    """The spelling of numbers and keys that are there twice; not how a string is escaped."""
    assert decoded(text) == Decoded(value=value, change=change)


@pytest.mark.parametrize("text", [b"1e400", b"{", b'"\\ud800"', b"[" * 100_000 + b"]" * 100_000])
def test_what_no_value_says_is_refused(text: bytes) -> None:
    """A number that is too large, what is no JSON, and nesting beyond what Python can recurse into."""
    with pytest.raises(ContentError, match="it "):
        decoded(text)


@pytest.mark.parametrize("inner", [b"", b"1", b'{"a":[]},[],[]'])
def test_depth_is_bounded(inner: bytes) -> None:
    """So many records and lists may stand in each other, and not one more."""
    own = 2 if b"{" in inner else 0
    for depth, fits in ((5, True), (6, False)):
        text = b"[" * (depth - own) + inner + b"]" * (depth - own)
        if fits:
            assert decoded(text, depth_max=5).change is None
        else:
            with pytest.raises(ContentError, match="it is nested more than 5 deep"):
                decoded(text, depth_max=5)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"1e999", "1e999"),
        (b"-1.5E+400", "-1.5E+400"),
        (b"9" * 5000, "9" * 5000),
        (b"-" + b"9" * 5000, "-" + "9" * 5000),
        (b"9" * 4000, int("9" * 4000)),
        (b"1e308", 1e308),
        (b"1.0", 1.0),
        (b'{"a":1,"a":2}', {"a": 2}),
    ],
)
def test_plain_values_are_json_again(text: bytes, value: object) -> None:
    """A number that Python has no number for is a text, and none is infinite, which is no JSON."""
    plain = plain_values({"a": [Raw(text)]})
    assert plain == {"a": [value]}
    assert type(plain["a"][0]) is type(value)
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
