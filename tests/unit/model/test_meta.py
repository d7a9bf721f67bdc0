"""The metadata of turns."""

import msgspec
import pytest

from turnlog.model import BookmarkMeta, Origin, TurnMeta, Usage


def _meta(text: str) -> TurnMeta:
    return msgspec.json.decode(text, type=TurnMeta)


@pytest.mark.parametrize(
    ("text", "delta"),
    [
        ('{"role":"user","content_type":"a/b"}', {}),
        ('{"role":"user","content_type":"a/b","inherited":{"search":false}}', {"search": False}),
        ('{"role":"user","content_type":"a/b","options":{"search":false}}', {"search": False}),
        ('{"role":"user","content_type":"a/b","inherited":{"a":1},"options":{"b":2}}', {"a": 1}),
    ],
)
def test_delta_is_read_under_either_name(text: str, delta: dict[str, object]) -> None:
    """Inherited options are read as `inherited`, else under the old name `options`."""
    assert _meta(text).delta == delta


@pytest.mark.parametrize(
    ("fields", "failed"),
    [
        ("", False),
        (',"stop_reason":"end_turn"', False),
        (',"stop_reason":"error"', True),
        (',"stop_reason":"aborted"', True),
        (',"error":"overloaded"', True),
        (',"error":"","stop_reason":"end_turn"', True),
    ],
)
def test_turn_failed_if_it_has_an_error_or_stopped_with_one(fields: str, failed: bool) -> None:
    """An error, or one of two stop reasons, makes a turn a failed one."""
    assert _meta('{"role":"assistant","content_type":"a/b"' + fields + "}").failed is failed


@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_three_roles_are_known(role: str) -> None:
    """User, assistant and system are roles."""
    assert _meta(f'{{"role":"{role}","content_type":"a/b"}}').role == role


def test_content_type_is_that_of_blocks_unless_it_says_another() -> None:
    """Most turns are content blocks, and do not say so."""
    assert _meta('{"role":"user"}').content_type == "application/json"
    assert _meta('{"role":"user","content_type":"a/b"}').content_type == "a/b"


@pytest.mark.parametrize(
    "text",
    [
        '{"role":"tool","content_type":"a/b"}',
        '{"content_type":"a/b"}',
        '{"role":"user","content_type":1}',
        '{"role":"user","content_type":"a/b","inherited":[]}',
        '{"role":"user","content_type":"a/b","cache":1}',
        '{"role":"user","content_type":"a/b","type":"image"}',
        '{"role":"user","content_type":"a/b","usage":{"input_tokens":"1"}}',
        '{"role":"user","content_type":"a/b","origin":{"format":"x"}}',
    ],
)
def test_mistyped_metadata_does_not_decode(text: str) -> None:
    """Every field is typed: another type, an unknown role, or a missing field is refused."""
    with pytest.raises(msgspec.ValidationError):
        _meta(text)


def test_defaults_are_not_written() -> None:
    """Metadata is as short as it can be."""
    assert msgspec.json.encode(TurnMeta(role="user", content_type="a/b")) == b'{"role":"user","content_type":"a/b"}'
    assert msgspec.json.encode(Usage(output_tokens=3)) == b'{"output_tokens":3}'
    assert msgspec.json.encode(Origin(format="f", ids=["a"])) == b'{"format":"f","ids":["a"]}'
    assert msgspec.json.encode(BookmarkMeta(action="delete", name="n")) == b'{"action":"delete","name":"n"}'


def test_tokens_add_up_to_one_sum() -> None:
    """The total is the sum of all five counts, none of which holds another; a record has all, zeros included."""
    usage = Usage(
        input_tokens=1,
        output_tokens=20,
        cache_creation_input_tokens=300,
        cache_read_input_tokens=4000,
        reasoning_tokens=50000,
    )
    assert usage.total_tokens == 54321
    assert Usage().total_tokens == 0
    assert Usage(output_tokens=3).to_record() == {
        "input_tokens": 0,
        "output_tokens": 3,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "reasoning_tokens": 0,
        "total_tokens": 3,
    }
