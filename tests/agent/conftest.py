"""Fixtures of the tests of runs."""

from collections.abc import Iterator

import pytest
from tests.agent.forked_servers import serve

from turnlog import TurnLog


@pytest.fixture
def log() -> Iterator[TurnLog]:
    """Give an empty log."""
    with TurnLog.open("memory://") as opened:
        yield opened


@pytest.fixture(scope="session", autouse=True)
def _servers() -> None:
    """Have the server of the SDK start quickly."""
    serve()
