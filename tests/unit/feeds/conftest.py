"""Fixtures of the tests of feeds."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.servers.nats import missing, nats_server
from tests.servers.receiver import Receiver

from turnlog import TurnLog


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Give the URL of a log that is not there yet."""
    return f"sqlite:///{tmp_path}/log.db"


@pytest.fixture
def filed(url: str) -> Iterator[TurnLog]:
    """Give a log in a file."""
    with TurnLog.open(url) as log:
        yield log


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Give an HTTP server that keeps what it is sent."""
    with Receiver() as receiver:
        yield receiver


@pytest.fixture(scope="session")
def nats_url() -> Iterator[str]:
    """Give the URL of a NATS server with JetStream."""
    if reason := missing():
        pytest.skip(reason)
    with nats_server() as url:
        yield url
