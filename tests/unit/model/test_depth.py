"""How deep JSON is nested, and reading it in layers."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.model.depth import in_layers, is_deeper
from turnlog.testing.strategies import json_values


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)


@given(json_values())
def test_depth_is_that_of_the_value(value: Any) -> None:
    """Whatever brackets and quotes stand in its texts."""
    text = msgspec.json.encode([value, '[{"\\'])
    depth = _depth([value])
    assert not is_deeper(text, depth)
    assert is_deeper(text, depth - 1)


@pytest.mark.parametrize(
    "text", [b'["' + b'\\"' * 200_000, b'["[[[[', b'["[[[[\\', b"]" * 9 + b"[" * 2, b"[]" * 100_000]
)
def test_what_is_no_json_is_counted_too(text: bytes) -> None:
    """In one pass: a text that has no end goes to the end."""
    assert not is_deeper(text, 2)


@given(json_values(), st.integers(1, 4))
def test_layers_are_flat_and_say_what_the_text_says(value: Any, levels: int) -> None:
    """What stands for each is told as it stands in the text, inner ones first."""
    text, kept = msgspec.json.encode([value, '[{"\\']), list[bytes]()

    def mark(layer: bytes, whole: memoryview) -> bytes:
        assert not is_deeper(layer, levels)
        assert is_deeper(layer, 0)
        assert msgspec.json.decode(whole) == msgspec.json.decode(put_back(layer))
        kept.append(layer)
        return b'"mark %d"' % (len(kept) - 1)

    def put_back(layer: bytes) -> bytes:
        for number in reversed(range(len(kept))):
            layer = layer.replace(b'"mark %d"' % number, kept[number])
        return layer

    outermost = in_layers(text, levels, mark)
    assert not is_deeper(outermost, levels)
    assert put_back(outermost) == text
    assert bool(kept) == is_deeper(text, levels)


@pytest.mark.parametrize("text", [b"[" * 100_000, b"[[" * 9 + b'"', b"[[[[]", b"[[[[}}"])
def test_what_has_no_end_is_no_json_in_layers_either(text: bytes) -> None:
    """It is left out to the end, in one pass."""
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(in_layers(text, 3, lambda _layer, _whole: b"0"))


def test_brackets_that_close_nothing_stay_where_they_are() -> None:
    """That they are too many is for the codec to tell."""
    assert in_layers(b"]]]" + b"[" * 5 + b"]" * 9, 100, lambda _layer, _whole: b"0") == b"]]]" + b"[" * 5 + b"]" * 9
