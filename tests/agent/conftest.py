"""Fixtures of the tests of runs."""

from collections.abc import Iterator

import pytest

from turnlog import TurnLog


@pytest.fixture
def log() -> Iterator[TurnLog]:
    """Give an empty log."""
    with TurnLog.open("memory://") as opened:
        yield opened
