"""Requests that wait to be compared with those that are built on them."""

import os

import pytest
import zstandard

from turnlog.audit.bodies import Body
from turnlog.audit.requests import _Kept  # pyright: ignore[reportPrivateUsage]

MAGIC = b"\x28\xb5\x2f\xfd"


def test_what_waits_in_a_file_can_be_read_there_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary file is beside no store, and what it has may be sealed there. It comes back as it was."""
    monkeypatch.setattr("turnlog.audit.requests.KEPT_BYTES_MAX", 100)
    kept = _Kept()
    requests = {f"call {number}": b"a request that nobody may read " * 100 + b"%d" % number for number in range(5)}
    for call, request in requests.items():
        kept.put(call, Body(request), "one that is not known")
    file = kept._file
    assert file is not None
    content = os.pread(file.fileno(), 1 << 20, 0)
    assert len(content) > 4 * 50
    assert MAGIC not in content
    assert b"nobody" not in content
    with pytest.raises(zstandard.ZstdError):
        zstandard.decompress(content)
    for call, request in requests.items():
        found = kept.get(call)
        assert found is not None
        assert found.content(0, found.size) == request
    kept.close()
