"""Policies of runs."""

import pytest

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
