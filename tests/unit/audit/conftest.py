"""Keys of what is sealed, in a folder."""

from pathlib import Path

import pytest
from tests.sealed_log import seals_in

from turnlog.audit.seals import SealFolder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder for keys that is not there yet, two levels deep."""
    return tmp_path / "keys" / "sealed"


@pytest.fixture
def seals(folder: Path) -> SealFolder:
    """Give keys that are not there yet."""
    return seals_in(folder)
