"""Fixtures of the tests of the command line."""

from pathlib import Path

import pytest
from tests.agent.forked_servers import serve
from tests.cli.command import Command, write_conversation


@pytest.fixture
def turnlog(tmp_path: Path) -> Command:
    """Give the command, with a store that does not exist yet."""
    return Command(store=tmp_path / "log.db")


@pytest.fixture(scope="session")
def read(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Give the command with the log of `write_conversation`, for tests that only read."""
    command = Command(store=tmp_path_factory.mktemp("read") / "log.db")
    write_conversation(command.url)
    return command


@pytest.fixture(scope="session", autouse=True)
def _servers() -> None:
    """Have the MCP server of the SDK start quickly."""
    serve()
