"""Plain JSON values: what people give, as JSON has it."""

import enum
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from turnlog.errors import ContentError, MetaError
from turnlog.model import Document, Source, Text, Thinking, ToolResult, ToolUse, content_bytes
from turnlog.model.plain import INTEGER_MAX, INTEGER_MIN, plain_json, plain_scalar, plain_text


class Shown(str):
    """A text that would like to be shown and stored as another."""

    __slots__ = ()

    def __str__(self) -> str:
        return "shown"

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return b"shown"


class Word(str, enum.Enum):  # noqa: UP042 - the older way, whose `str()` is `Word.A`
    """Words of an application."""

    A = "a"


class Whole(int):
    """An integer that says that it is another."""

    def __int__(self) -> int:
        return -1

    def __index__(self) -> int:
        return -1


class Level(enum.IntEnum):
    """Numbers of an application."""

    HIGH = 3


class Weight(float):
    """A number that says that it is another."""

    def __float__(self) -> float:
        return -1.0


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (Shown("x"), "x"),
        (Word.A, "a"),
        (Whole(5), 5),
        (Level.HIGH, 3),
        (Weight(0.5), 0.5),
        (True, True),
        (False, False),
        (None, None),
        (0, 0),
        (-0.0, -0.0),
        ("", ""),
        (INTEGER_MAX, 18446744073709551615),
        (INTEGER_MIN, -9223372036854775808),
        ((1, [Level.HIGH]), [1, [3]]),
        (MappingProxyType({Shown("k"): (Word.A,)}), {"k": ["a"]}),
    ],
    ids=repr,
)
def test_value_of_any_class_becomes_the_plain_one_that_it_holds(given: Any, plain: Any) -> None:
    """What the class says of itself is not asked; the type is that of JSON exactly."""
    made = plain_json(given, "f", MetaError)
    assert made == plain
    assert type(made) is type(plain)
    assert msgspec.json.encode(made) == msgspec.json.encode(plain)


def test_keys_become_plain_texts() -> None:
    """A key of a subclass is stored as the text that it holds, in the order given."""
    made = plain_json({Word.A: 1, Shown("b"): {Shown("c"): 2}}, "f", MetaError)
    assert list(made) == ["a", "b"]
    assert [type(name) for name in (*made, *made["b"])] == [str, str, str]


@pytest.mark.parametrize("error", [ContentError, MetaError])
@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"a": [INTEGER_MAX + 1]}, "f.a[0]"),
        ({"a": [INTEGER_MIN - 1]}, "f.a[0]"),
        ({"a": Whole(10**5000)}, "f.a"),
        ({"a": float("nan")}, "f.a"),
        ({"a": Weight("inf")}, "f.a"),
        ({"a": "\ud800"}, "f.a"),
        ({"a": Shown("\ud800")}, "f.a"),
        ({"\ud800": 1}, "f"),
        ({Shown("\ud800"): 1}, "f"),
        ({1: 1}, "f"),
        ({10**5000: 1}, "f"),
        ({"a": {1}}, "f.a"),
        ({"a": b"x"}, "f.a"),
        ({"a": object()}, "f.a"),
        ([Text(text=Shown("\ud800"))], "f[0].text"),
        ([Text(text=object())], "f[0].text"),  # type: ignore[arg-type]
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_json_cannot_carry_is_named(value: Any, field: str, error: type[ContentError | MetaError]) -> None:
    """The error is the one that was asked for, with the place."""
    with pytest.raises(error) as caught:
        plain_json(value, "f", error)
    assert caught.value.field == field


def test_two_keys_of_one_text_are_refused() -> None:
    """A record that would lose a value when its keys are plain is refused."""

    class Other(str):
        __slots__ = ()
        __hash__ = object.__hash__

    with pytest.raises(MetaError, match="has the key 'a' twice") as caught:
        plain_json({"x": {"a": 1, Other("a"): 2}}, "f", MetaError)
    assert caught.value.field == "f.x"


@pytest.mark.parametrize("depth", [10_000, 200_000])
def test_nesting_beyond_measure_is_refused(depth: int) -> None:
    """Lists and records that are nested too deeply are the error that was asked for, not a crash."""
    lists: list[Any] = []
    records: dict[str, Any] = {}
    for _ in range(depth):
        lists, records = [lists], {"a": records}
    for value in (lists, records):
        with pytest.raises(MetaError, match=r"^f: nested too deeply$"):
            plain_json(value, "f", MetaError)


def test_structs_and_raw_json_stay() -> None:
    """A block stays a block of plain values, raw JSON text stays as it is, and what is unset stays unset."""
    raw = Raw(b'{"n": 1e999}')
    use = plain_json(ToolUse(name=Shown("n"), input=raw), "f", ContentError)
    assert use == ToolUse(name="n", input=raw)
    assert type(use.name) is str
    assert use.id is None


def test_message_asks_for_large_integers_as_text() -> None:
    """The error of an integer that is too large says what to do, and does not print its digits."""
    with pytest.raises(MetaError) as caught:
        plain_scalar(10**5000, "f", MetaError)
    assert str(caught.value) == "f: an integer of more than 64 bits is not kept exactly everywhere: give it as text"


def test_text_is_taken_as_it_is_held() -> None:
    """A text that encodes and shows itself as another is the text that it holds."""
    assert plain_text(Shown("x"), "f", MetaError) == "x"


@pytest.mark.parametrize(
    ("content", "payload"),
    [
        (Shown("x"), b'[{"type":"text","text":"x"}]'),
        ([Word.A, Shown("x")], b'[{"type":"text","text":"a"},{"type":"text","text":"x"}]'),
        ({"type": Shown("text"), Shown("text"): Word.A}, b'[{"type":"text","text":"a"}]'),
        ([{"type": "text", "text": "x", "n": Level.HIGH}], b'[{"type":"text","text":"x","n":3}]'),
        (Text(text=Shown("x")), b'[{"type":"text","text":"x"}]'),
        (Text(text="x", extra={Shown("k"): Raw(b"1")}), b'[{"type":"text","text":"x","k":1}]'),
        (
            Thinking(thinking=Shown("x"), signature=Word.A),
            b'[{"type":"thinking","thinking":"x","signature":"a"}]',
        ),
        (
            ToolUse(name=Shown("n"), input=Raw(b'{"a":123456789012345678901}'), id=Shown("i")),
            b'[{"type":"tool_use","name":"n","input":{"a":123456789012345678901},"id":"i"}]',
        ),
        (
            [ToolResult(content=[Text(text=Shown("x"))], tool_use_id=Word.A)],
            b'[{"type":"tool_result","content":[{"type":"text","text":"x"}],"tool_use_id":"a"}]',
        ),
        (
            {"type": "tool_result", "content": [Text(text=Shown("x"))]},
            b'[{"type":"tool_result","content":[{"type":"text","text":"x"}]}]',
        ),
        (
            Document(source=Source(media_type=Shown("text/plain"), data=Shown("eA=="))),
            b'[{"type":"document","source":{"type":"base64","media_type":"text/plain","data":"eA=="}}]',
        ),
    ],
    ids=lambda value: value.decode() if isinstance(value, bytes) else type(value).__name__,  # a repr has addresses
)
def test_content_of_any_class_is_taken_as_its_plain_text(content: Any, payload: bytes) -> None:
    """Texts and numbers of subclasses may stand anywhere in content, in blocks and in mappings."""
    assert content_bytes(content) == payload


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (Shown("\ud800"), "content[0]"),
        (["x", Text(text="\ud800")], "content[1].text"),
        ([Text(text=Shown("\ud800"))], "content[0].text"),
        ([Text(text=object())], "content[0].text"),  # type: ignore[arg-type]
        ([Text(text=10**5000)], "content[0].text"),  # type: ignore[arg-type]
        ([{"type": "text", "text": "x", "n": 1 << 64}], "content[0].n"),
        ([ToolResult(content=[Text(text=b"x".__class__)])], "content[0].content[0].text"),  # type: ignore[arg-type]
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_content_that_cannot_be_stored_is_named(content: Any, field: str) -> None:
    """A part of a block that JSON cannot carry is a content error with its place."""
    with pytest.raises(ContentError) as caught:
        content_bytes(content)
    assert caught.value.field == field
