"""Request bodies in pieces are the bytes that they stand for, and have their hashes."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.audit.bodies import Body, put_together
from turnlog.errors import CorruptionError

CONTENT = bytes(range(256)) * 40


@st.composite
def _made(draw: st.DrawFn) -> list[tuple[list[tuple[int, int] | int], bytes]]:
    """Make requests, each built on the one before: its parts, in the order of the base, and its literal bytes."""
    requests: list[tuple[list[tuple[int, int] | int], bytes]] = []
    size = 0
    for _ in range(draw(st.integers(1, 6))):
        parts: list[tuple[int, int] | int] = []
        copied, literals = 0, b""
        for copies in draw(st.lists(st.booleans(), max_size=5)):
            if copies and size:
                start = draw(st.sampled_from([copied, *([0] if not copied else [])]) | st.integers(copied, size))
                count = draw(st.integers(0, size - start))
                parts.append((start, count))
                copied = start + count
            else:
                literal = draw(st.binary(max_size=9)) * draw(st.sampled_from([0, 1, 1000]))
                parts.append(len(literal))
                literals += literal
        requests.append((parts, literals))
        size = sum(part if isinstance(part, int) else part[1] for part in parts)
    return requests


def _plainly(parts: list[tuple[int, int] | int], literals: bytes, base: bytes) -> bytes:
    body = b""
    for part in parts:
        if isinstance(part, int):
            body, literals = body + literals[:part], literals[part:]
        else:
            body += base[part[0] : sum(part)]
    return body


@given(_made(), st.data())
def test_body_is_what_it_stands_for(
    requests: list[tuple[list[tuple[int, int] | int], bytes]], data: st.DataObject
) -> None:
    """Built on each other, bodies have the bytes and the hashes of all their beginnings that plain bytes have."""
    base, plain = Body(), b""
    for parts, literals in requests:
        body = put_together(parts, memoryview(literals), base)
        plain = _plainly(parts, literals, plain)
        assert body.size == len(plain)
        assert body.content(0, body.size) == plain
        for _ in range(3):
            stop = data.draw(st.integers(0, len(plain)))
            assert body.digest(stop) == sha256(plain[:stop]).digest()
            start = data.draw(st.integers(0, stop))
            assert body.content(start, stop) == plain[start:stop]
        base = body


def test_body_that_goes_on_from_another_hashes_what_is_new() -> None:
    """What two bodies begin with is hashed once: bytes that change after that are not looked at again."""
    shared = bytearray(CONTENT)
    base = Body()
    base.add(memoryview(shared))
    assert base.digest(base.size) == sha256(CONTENT).digest()
    shared[0] ^= 1
    longer = put_together([(0, len(CONTENT)), 4], memoryview(b"more"), base)
    assert longer.digest(longer.size) == sha256(CONTENT + b"more").digest()


@pytest.mark.parametrize(
    ("parts", "literals", "found"),
    [
        ([(0, 10_241)], b"", "do not follow each other"),
        ([(10_241, 0)], b"", "do not follow each other"),
        ([(-1, 5)], b"", "do not follow each other"),
        ([(100, 50), (120, 50)], b"", "do not follow each other"),
        ([(100, 50), (0, 50)], b"", "do not follow each other"),
        ([5], b"four", "4 literal bytes, and 5 belong"),
        ([3], b"four", "4 literal bytes, and 3 belong"),
        ([], b"x", "1 literal bytes, and 0 belong"),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts: list[tuple[int, int] | int], literals: bytes, found: str) -> None:
    """Parts of the base come in its order and are in it, and every literal byte belongs to one."""
    with pytest.raises(CorruptionError, match=found):
        put_together(parts, memoryview(literals), Body(CONTENT))
