"""Merging options is RFC 7396, and telling who set them agrees with it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.model import merge_options, merge_sources
from turnlog.testing.strategies import options

# RFC 7396, appendix A: original, patch, result. The rows whose original or patch is no record cannot be options
# themselves: they are tried one level down.
APPENDIX_A: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


def _reference(target: Any, patch: Any) -> Any:
    """Merge as the pseudocode of RFC 7396, section 2, says."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _reference(result.get(name), value)
    return result


def _shape(value: Any) -> Any:
    """Replace what is no record, and empty records, by None: where one turn has set it all."""
    if isinstance(value, dict) and value:
        return {name: _shape(inner) for name, inner in value.items()}
    return None


def _folded(patches: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Merge patches, each by a turn that is named by its place."""
    merged: dict[str, Any] = {}
    sources: dict[str, Any] = {}
    for place, patch in enumerate(patches):
        merged, sources = merge_options(merged, patch), merge_sources(sources, patch, str(place))
    return merged, sources


@pytest.mark.parametrize(("original", "patch", "result"), APPENDIX_A)
def test_cases_of_the_rfc(original: Any, patch: Any, result: Any) -> None:
    """Every case of RFC 7396, appendix A, holds for a record and for a record inside one."""
    if isinstance(original, dict) and isinstance(patch, dict):
        assert merge_options(original, patch) == result
    inside = {} if result is None else {"x": result}
    assert merge_options({"x": original}, {"x": patch}) == inside


@given(options(), options())
def test_merge_is_that_of_the_rfc(base: dict[str, Any], patch: dict[str, Any]) -> None:
    """Merging agrees with the pseudocode of the RFC for any records."""
    assert merge_options(base, patch) == _reference(base, patch)


@given(options(), options())
def test_merge_changes_neither_argument(base: dict[str, Any], patch: dict[str, Any]) -> None:
    """The records that were merged are as they were, and the result shares no record with them."""
    before = repr((base, patch))
    merged = merge_options(base, patch)
    for value in merged.values():
        if isinstance(value, dict) and any(value is inner for inner in patch.values()):
            value["changed"] = True
    assert repr((base, patch)) == before


@given(options(), options())
def test_merge_is_idempotent(base: dict[str, Any], patch: dict[str, Any]) -> None:
    """The same patch again changes nothing."""
    once = merge_options(base, patch)
    assert merge_options(once, patch) == once


@given(options())
def test_empty_patch_changes_nothing(base: dict[str, Any]) -> None:
    """An empty record is the neutral patch."""
    assert merge_options(base, {}) == base


@given(options(), options())
def test_null_removes_and_never_stays(base: dict[str, Any], patch: dict[str, Any]) -> None:
    """A name that is patched with null is gone, and a fold of patches has no null outside lists."""
    merged = merge_options(merge_options({}, base), patch)
    assert not any(name in merged for name, value in patch.items() if value is None)

    def has_null(record: dict[str, Any]) -> bool:
        return any(value is None or (isinstance(value, dict) and has_null(value)) for value in record.values())

    assert not has_null(merged)


@given(options(), st.sampled_from([False, 0, "", [], 0.0]))
def test_false_and_empty_are_values(base: dict[str, Any], value: Any) -> None:
    """False, zero, the empty text and the empty list are set like any other value."""
    assert merge_options(base, {"a": value})["a"] == value
    assert type(merge_options(base, {"a": value})["a"]) is type(value)


@given(st.lists(options(), max_size=5))
def test_sources_have_the_shape_of_the_options(patches: list[dict[str, Any]]) -> None:
    """Who set what has a turn for each value that is set, and nothing for what is not."""
    merged, sources = _folded(patches)
    assert _shape_of_sources(sources) == _shape(merged)


def _shape_of_sources(sources: Any) -> Any:
    if isinstance(sources, dict) and sources:
        return {name: _shape_of_sources(inner) for name, inner in sources.items()}
    return None


@given(st.lists(options(), max_size=5))
def test_source_is_the_turn_that_set_the_value(patches: list[dict[str, Any]]) -> None:
    """The source of a value is the last turn whose patch names it, as that value."""
    merged, sources = _folded(patches)

    def check(value: Any, source: Any, path: list[str]) -> None:
        if isinstance(value, dict) and value:
            for name, inner in value.items():
                check(inner, source[name], [*path, name])
            return
        found: Any = patches[int(source)]
        for name in path:
            found = found[name]
        assert found == value or (value == {} and isinstance(found, dict | None))
        assert not any(_names(patch, path) for patch in patches[int(source) + 1 :] if value != {})

    for name, value in merged.items():
        check(value, sources[name], [name])


def _names(patch: Any, path: list[str]) -> bool:
    """Tell whether a patch touches the value at a path."""
    for name in path:
        if not isinstance(patch, dict) or name not in patch:
            return False
        patch = patch[name]
    return True
