"""Merging inherited options."""

import copy
from typing import Any

import pytest

from turnlog.model import merge_options, merge_sources

RFC_7396_CASES: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]
"""The examples of RFC 7396, appendix A, whose target and patch are records."""


@pytest.mark.parametrize(("base", "patch", "expected"), RFC_7396_CASES)
def test_merge_gives_what_the_rfc_says(base: Any, patch: Any, expected: Any) -> None:
    """The examples of RFC 7396 hold."""
    assert merge_options(base, patch) == expected


@pytest.mark.parametrize("value", [False, [], "", 0, 0.0, {}])
def test_empty_values_are_values(value: Any) -> None:
    """False, zero, the empty list, text and record replace what was there."""
    assert merge_options({"a": 1}, {"a": value}) == {"a": value}
    assert type(merge_options({"a": 1}, {"a": value})["a"]) is type(value)


def test_null_inside_a_list_stays() -> None:
    """Lists replace as a whole: a null in one is a value."""
    assert merge_options({"a": [1]}, {"a": [None, {"b": None}]}) == {"a": [None, {"b": None}]}


def test_unsetting_what_is_not_there_changes_nothing() -> None:
    """A null for an absent option is no error and leaves no trace."""
    assert merge_options({"a": 1}, {"b": None, "c": {"d": None}}) == {"a": 1, "c": {}}


def test_neither_argument_is_changed() -> None:
    """Merging makes new records, at every depth."""
    base = {"a": {"b": {"c": 1}}, "l": [1]}
    patch = {"a": {"b": {"d": 2}}, "l": None}
    before = copy.deepcopy((base, patch))
    merged = merge_options(base, patch)
    merged["a"]["b"]["e"] = 3
    assert (base, patch) == before


def test_sources_have_the_shape_of_the_options() -> None:
    """Each option is ascribed to the turn that set it last."""
    sources = merge_sources({}, {"a": {"b": 1, "c": 2}, "s": [1]}, "t1")
    assert sources == {"a": {"b": "t1", "c": "t1"}, "s": "t1"}
    sources = merge_sources(sources, {"a": {"c": 3, "d": {}}}, "t2")
    assert sources == {"a": {"b": "t1", "c": "t2", "d": "t2"}, "s": "t1"}


def test_unset_option_has_no_source() -> None:
    """A null removes the ascription; a record that becomes empty is the emptier's."""
    sources = merge_sources({"a": {"b": "t1"}, "s": "t1"}, {"s": None, "a": {"b": None}}, "t2")
    assert sources == {"a": "t2"}


def test_record_over_scalar_and_scalar_over_record_are_the_later_turns() -> None:
    """Changing the kind of an option ascribes all of it to the later turn."""
    assert merge_sources({"a": "t1"}, {"a": {"b": 1}}, "t2") == {"a": {"b": "t2"}}
    assert merge_sources({"a": {"b": "t1"}}, {"a": 5}, "t2") == {"a": "t2"}
