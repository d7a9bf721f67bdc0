"""Fixtures of tests that break things."""

from pathlib import Path

import pytest


@pytest.fixture(params=["sqlite", "postgres"])
def log_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give the URL of a new log, on either engine."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path}/log.db"
