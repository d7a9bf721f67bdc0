"""Fixtures and settings that all tests share."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_ROOT = Path(__file__).resolve().parent.parent

# No deadlines: a test fails for what the code does and never for how fast the machine is.
settings.register_profile("dev", deadline=None, max_examples=100)
settings.register_profile("ci", deadline=None, max_examples=200, derandomize=True, print_blob=True)
settings.register_profile(
    "soak",
    deadline=None,
    max_examples=10_000,
    stateful_step_count=200,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def _profile() -> str:
    if os.environ.get("TURNLOG_SOAK") == "1":
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
