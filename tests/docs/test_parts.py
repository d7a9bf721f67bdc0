"""`python -m benchmarks profile append`: the parts of an append, each stopped where it is."""

from pathlib import Path

import pytest
from benchmarks import parts


def test_every_part_of_an_append_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements too, in whatever case they are written; else a part would hide in another one."""
    monkeypatch.setattr(parts, "APPENDS", 4)
    monkeypatch.setattr(parts, "WARM_UP", 1)
    found = parts.parts(tmp_path, 1)
    named = vars(parts)
    assert {*found} == {parts.WHOLE, parts.RAW, *named["_FUNCTIONS"], *named["_STATEMENTS"].values()}
    assert all(us > 0 for us in found.values())
