"""Where a run begins."""

from typing import Any

import pytest

from turnlog.agent.start import server_names


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, []),
        ({"servers": ["b", "a", "b"]}, ["b", "a"]),
        ({"servers": None}, []),
        ({"servers": "fs"}, []),
        ({"servers": 5}, []),
        ({"servers": [1, "fs", None, {}, ["x"]]}, ["fs"]),
    ],
    ids=str,
)
def test_servers_are_named_once_in_order(options: dict[str, Any], names: list[str]) -> None:
    """What is no name, as options of a forged log may have it, is none."""
    assert server_names(options) == names
