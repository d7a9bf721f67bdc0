"""Requests that wait to be compared with those that are built on them."""

import os
import resource

import pytest
import zstandard

from turnlog.audit.bodies import Body
from turnlog.audit.requests import _Kept  # pyright: ignore[reportPrivateUsage]
from turnlog.testing.faults import run_process

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


def _keep_in(bytes_max: int, damaged_at: int | None) -> list[bool | None]:
    """Keep requests where a file can have so many bytes. Tell of each whether it came back as it was; None: not at all.

    One byte of the file is then another one.
    """
    pytest.MonkeyPatch().setattr("turnlog.audit.requests.KEPT_BYTES_MAX", 100)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, resource.RLIM_INFINITY))
    kept = _Kept()
    requests = {f"call {number}": os.urandom(1000) for number in range(5)}
    for call, request in requests.items():
        kept.put(call, Body(request), "one that is not known")
    assert kept._file is not None
    if damaged_at is not None:
        os.pwrite(kept._file.fileno(), bytes([os.pread(kept._file.fileno(), 1, damaged_at)[0] ^ 1]), damaged_at)
    bodies = [(request, kept.get(call)) for call, request in requests.items()]
    return [None if found is None else found.content(0, found.size) == request for request, found in bodies]


def test_what_a_temporary_file_does_not_take_or_give_is_read_in_the_log() -> None:
    """A full disk, or a damaged one, for temporary files says nothing of the log, and keeps nothing else from it."""
    assert run_process(_keep_in, 1 << 20, None) == [True] * 5
    assert run_process(_keep_in, 2500, None) == [True, True, None, None, True]  # the last one is in memory
    assert run_process(_keep_in, 1 << 20, 1500) == [True, None, True, True, True]
