"""Fixtures and settings that all tests share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.servers.postgres import OtherPostgres, Postgres, PostgresServer, missing
from tests.soak import SOAK

_ROOT = Path(__file__).resolve().parent.parent

# No deadlines: a test fails for what the code does and never for how fast the machine is.
settings.register_profile("dev", deadline=None, max_examples=100)
# The same examples each time: fewer show as well what a change breaks. Where people work there are others, and more.
settings.register_profile("ci", deadline=None, max_examples=50, derandomize=True, print_blob=True)
settings.register_profile(
    "soak",
    deadline=None,
    max_examples=10_000,
    stateful_step_count=200,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def _profile() -> str:
    if SOAK:
        return "soak"
    return "ci" if os.environ.get("CI") else "dev"


settings.load_profile(_profile())


@pytest.fixture(scope="session")
def shared() -> Path:
    """Give the folder of shared cases that lies beside the repository; skip where there is none."""
    folder = _ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("../shared is absent")
    return folder


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Give the PostgreSQL server that tests make databases in: `$TURNLOG_TEST_POSTGRES_URL`, or one that is started."""
    if url := os.environ.get("TURNLOG_TEST_POSTGRES_URL"):
        yield OtherPostgres(url)
        return
    if reason := missing():
        pytest.skip(reason)
    with PostgresServer() as server:
        yield server


@pytest.fixture
def _home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what is in the user's folders of a log on a server out of those of who runs this."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))


@pytest.fixture
def postgres_url(postgres: Postgres, _home: None) -> Iterator[str]:
    """Give the URL of an empty PostgreSQL database, which is dropped after the test."""
    url = postgres.create_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture(scope="session")
def _kept_database(postgres: Postgres) -> Iterator[str]:
    url = postgres.create_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture
def kept_postgres_url(postgres: Postgres, _kept_database: str, _home: None) -> Iterator[str]:
    """Give the URL of a PostgreSQL database of which the schemas go after the test, for tests that change only these.

    To make and to drop a database takes several times as long: it has hundreds of files.
    """
    yield _kept_database
    postgres.empty_database(_kept_database)


@pytest.fixture
def own_postgres(_home: None) -> Iterator[PostgresServer]:
    """Give a running PostgreSQL server that the test may stop, kill and give standbys to."""
    if reason := missing():
        pytest.skip(reason)
    with PostgresServer() as server:
        yield server
