"""Schemas are walked by where schemas stand in them: names and data are not keywords."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.errors import ContentError
from turnlog.providers.schemas import NAMED, NESTED, change_schemas, plain_object, without_keywords


def cleaned(schema: Any, *, drop: tuple[str, ...] = ("format",), keep: tuple[str, ...] | None = None) -> Any:
    """Return a schema without keywords, as plain values."""
    text, _ = without_keywords(json.dumps(schema).encode(), drop=drop, keep=keep)
    return json.loads(bytes(text))


def test_keyword_is_removed_at_the_top_and_below() -> None:
    """A keyword goes wherever a schema stands."""
    schema = {"format": "x", "properties": {"a": {"type": "string", "format": "date"}}}
    assert cleaned(schema) == {"properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize("holder", sorted(NAMED))
def test_names_are_not_keywords(holder: str) -> None:
    """What holds schemas by name may have a name that is a keyword elsewhere; below it keywords are keywords again."""
    schema = {holder: {"format": {"format": "date", "type": "string"}, "properties": {"format": "x"}}}
    assert cleaned(schema) == {holder: {"format": {"type": "string"}, "properties": {}}}


@pytest.mark.parametrize("holder", sorted(NESTED))
def test_schemas_are_found_alone_and_in_lists(holder: str) -> None:
    """A keyword that holds a schema, or a list of them, is walked."""
    assert cleaned({holder: {"format": "date"}}) == {holder: {}}
    assert cleaned({holder: [{"format": "date"}, True]}) == {holder: [{}, True]}


@pytest.mark.parametrize("holder", ["enum", "const", "default", "examples", "x-ours", "required"])
def test_data_is_not_walked(holder: str) -> None:
    """Data that looks like a schema stays."""
    schema = {holder: [{"format": "date"}, "format"]}
    assert cleaned(schema) == schema


def test_dependencies_of_the_old_drafts_hold_schemas_or_names() -> None:
    """`dependencies` has a schema or a list of names for each name (draft 07 §6.5.7)."""
    schema = {"dependencies": {"format": ["format"], "other": {"format": "date"}}}
    assert cleaned(schema) == {"dependencies": {"format": ["format"], "other": {}}}


def test_only_kept_keywords_stay() -> None:
    """With a list of what may stay, all else goes, and names still stay."""
    schema = {"type": "object", "title": "T", "properties": {"title": {"type": "string", "minLength": 1}}}
    assert cleaned(schema, drop=(), keep=("type", "properties")) == {
        "type": "object",
        "properties": {"title": {"type": "string"}},
    }


def test_removed_keywords_are_named_once_and_sorted() -> None:
    """The names of what was removed come with the schema, so that it can be reported."""
    schema = b'{"format":"x","$schema":"y","items":{"format":"z"}}'
    assert without_keywords(schema, drop=("$schema", "format", "pattern"))[1] == ("$schema", "format")


def test_nothing_removed_is_the_same_text() -> None:
    """Numbers and data keep their spelling, and keys their order."""
    schema = b'{"type":"number","maximum":1.50e2,"default":{"b":1.0,"a":"\\u00e9"},"minimum":0}'
    text, removed = without_keywords(schema, drop=("format",))
    assert (bytes(text), removed) == (schema, ())


@pytest.mark.parametrize("schema", [b"true", b"false", b" null "])
def test_what_is_no_object_is_left_as_it_is(schema: bytes) -> None:
    """A boolean schema has no keywords."""
    assert bytes(without_keywords(schema, drop=("format",))[0]) == schema.strip()


@pytest.mark.parametrize(
    "schema", [b'{"a":', b"", b'{"items":' * 100_000 + b"{}" + b"}" * 100_000], ids=["broken", "nothing", "deep"]
)
def test_what_cannot_be_read_raises(schema: bytes) -> None:
    """A schema that is not JSON, or nested too deeply, cannot be walked."""
    with pytest.raises(ContentError, match="schema"):
        plain_object(schema)
    if schema:
        with pytest.raises(ContentError, match="schema"):
            without_keywords(schema, drop=("format",))


def test_change_sees_outer_schemas_first_and_may_replace_keywords() -> None:
    """What a change puts in is walked too: it can put a schema in the place of another."""
    seen: list[tuple[str, ...]] = []

    def change(keywords: dict[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
        seen.append(tuple(keywords))
        if "const" in keywords:
            return {"enum": msgspec.Raw(b"[" + bytes(keywords["const"]) + b"]")}
        return keywords

    changed = change_schemas(b'{"type":"object","properties":{"const":{"const":"a"}}}', change)
    assert bytes(changed) == b'{"type":"object","properties":{"const":{"enum":["a"]}}}'
    assert seen == [("type", "properties"), ("const",)]


# Plain objects


@pytest.mark.parametrize(
    ("schema", "expected", "removed"),
    [
        ('{"type":"object"}', '{"type":"object","properties":{}}', ()),
        ("{}", '{"type":"object","properties":{}}', ()),
        ('{"properties":{"a":true}}', '{"type":"object","properties":{"a":true}}', ()),
        (
            '{"type":"object","properties":{"a":{"anyOf":[true]}},"oneOf":[true],"not":{}}',
            '{"type":"object","properties":{"a":{"anyOf":[true]}}}',
            ("not", "oneOf"),
        ),
        ('{ "properties" : {}, "type":"object"}', '{ "properties" : {}, "type":"object"}', ()),
    ],
)
def test_plain_object_has_properties_and_is_no_combination(
    schema: str, expected: str, removed: tuple[str, ...]
) -> None:
    """Only the top is changed, and only where it has to be."""
    text, gone = plain_object(schema.encode())
    assert (bytes(text).decode(), gone) == (expected, removed)


# Whatever the schema


_KEYWORDS = ["format", "type", "properties", "items", "anyOf", "$defs", "enum", "default"]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYWORDS), inner, max_size=4),
)


@given(_JSON)
def test_cleaning_is_stable_and_without_a_keyword_to_remove_changes_nothing(schema: Any) -> None:
    """Cleaning twice is cleaning once, and cleaning of nothing is nothing."""
    once = cleaned(schema)
    assert cleaned(once) == once
    assert cleaned(schema, drop=("pattern",)) == schema
