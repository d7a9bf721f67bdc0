"""Policies of runs."""

from typing import Any

import pytest

from turnlog import RunError
from turnlog.agent.policy import Approve, Policy


@pytest.mark.parametrize(
    ("approve", "tool", "expected"),
    [
        ("ask", "fs___read_file", "auto"),
        ("ask", "fs___write_file", "ask"),
        ("never", "fs___read_file", "auto"),
        ("never", "fs___write_file", "never"),
        ("auto", "fs___write_file", "auto"),
        ("ask", "FS___read_file", "ask"),
        ("ask", "clock", "auto"),
        ("ask", "clocks", "ask"),
    ],
)
def test_an_allowed_tool_runs_whatever_the_policy_says(approve: Approve, tool: str, expected: Approve) -> None:
    """Patterns are those of shells, and case counts."""
    policy = Policy(approve=approve, allow=("fs___read_*", "clock"))
    assert policy.approval_of(tool) == expected


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"approve": None}, r"approve: None is unknown \(one of ask, auto, never\)"),
        ({"on_tool_error": ["abort"]}, r"on_tool_error: \['abort'\] is unknown"),
        ({"on_interrupted": "again"}, r"on_interrupted: 'again' is unknown"),
        ({"allow": 3}, "allow: expected patterns of names, got int"),
        ({"allow": None}, "allow: expected patterns of names, got NoneType"),
        ({"allow": (name for name in ["fs___*"])}, "allow: expected patterns of names, got generator"),
        ({"offer": b"fs___*"}, "offer: expected patterns of names, got bytes"),
        ({"offer": ["fs___*", 3]}, "offer: expected patterns of names, got int"),
        ({"iterations_max": "5"}, "iterations_max: expected a whole number, got str"),
        ({"iterations_max": True}, "iterations_max: expected a whole number, got bool"),
        ({"iterations_max": None}, "iterations_max: expected a whole number, got NoneType"),
        ({"iterations_max": 0}, "iterations_max: 0 is less than 1$"),
        ({"parallel_max": 2.5}, "parallel_max: expected a whole number, got float"),
        ({"tool_retries_max": -1}, "tool_retries_max: -1 is less than 0$"),
        ({"tries_max": 0}, "tries_max: 0 is less than 1: give None for the default"),
        ({"total_tokens_max": 0}, "total_tokens_max: 0 is less than 1: give None for no limit"),
        ({"result_bytes_max": "1k"}, "result_bytes_max: expected a whole number, got str"),
        ({"time_max_s": "60"}, "time_max_s: expected a number of seconds, got str"),
        ({"time_max_s": 10**400}, "time_max_s: that is too many seconds: give None for no limit"),
        ({"time_max_s": float("nan")}, "time_max_s: nan is not more than 0: give None for no limit"),
        ({"call_timeout_s": 0}, "call_timeout_s: 0 is not more than 0: give None for the default"),
        ({"wait_s": -1}, "wait_s: -1 is not more than 0: give None for not at all"),
        ({"tool_timeout_s": None}, "tool_timeout_s: expected a number of seconds, got NoneType"),
        ({"tool_timeout_s": 0.0}, "tool_timeout_s: 0 is not more than 0$"),
        ({"retry_wait_max_s": -0.5}, "retry_wait_max_s: -0.5 is less than 0$"),
        ({"tool_retry_wait_s": [1]}, "tool_retry_wait_s: expected a number of seconds, got list"),
    ],
)
def test_a_field_of_another_type_or_out_of_its_bounds_is_refused(given: dict[str, Any], why: str) -> None:
    """With what is allowed."""
    with pytest.raises(RunError, match=f"^{why}"):
        Policy(**given)


def test_numbers_and_patterns_are_taken_as_they_are() -> None:
    """A whole number of seconds, no seconds to wait, and sets of patterns."""
    policy = Policy(time_max_s=60, retry_wait_max_s=0, tool_retries_max=0, allow={"fs___*"}, offer="fs___*")  # pyright: ignore[reportArgumentType] - a set, too
    assert (policy.approval_of("fs___read"), policy.offers("clock")) == ("auto", False)
