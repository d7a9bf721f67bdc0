"""Request bodies as payloads: what they share is kept once, and every byte comes back."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog import CorruptionError
from turnlog.record.requests import (
    COPY_BYTES_MIN,
    PARTS_BYTES_MAX,
    REQUEST_BYTES_MAX,
    KeptRequest,
    request_body,
    request_payload,
)


class _Kept:
    """Requests as a log keeps them, each based on the one before."""

    def __init__(self) -> None:
        self.payloads: dict[str, bytes] = {}
        self.based: set[str] = set()
        self.bodies: list[bytes] = []

    def add(self, parts: list[bytes]) -> None:
        base = self.bodies[-1] if self.bodies else b""
        payload, shared = request_payload(parts, base)
        name = str(len(self.bodies))
        self.payloads[name] = payload
        if shared:
            self.based.add(name)
        self.bodies.append(b"".join(parts))

    def read(self, index: int) -> bytes:
        return request_body(self.kept(str(index)), len(self.bodies[index]), self.kept)

    def kept(self, name: str) -> KeptRequest:
        """Return what is kept of a request, in pieces that end anywhere."""
        base = str(int(name) - 1) if name in self.based else None
        return KeptRequest(pieces=pieces(self.payloads[name], 97), base=base)


def pieces(payload: bytes, size: int) -> Iterator[bytes]:
    """Iterate over a payload, so many bytes at a time."""
    return (payload[start : start + size] for start in range(0, len(payload), size))


def _message(number: int, size: int = 300) -> bytes:
    return b',{"role":"user","content":"%d %s"}' % (number, b"x" * size)


def _body(messages: list[bytes], head: bytes = b'{"model":"m","messages":[') -> list[bytes]:
    return [head, *messages, b"]}"]


def test_body_comes_back_byte_for_byte_over_a_long_chain_of_bases() -> None:
    """Each request of a conversation is read through all those before it."""
    kept = _Kept()
    for count in range(1, 300):
        kept.add(_body([_message(number) for number in range(count)]))
    assert [kept.read(index) for index in range(0, 299, 13)] == kept.bodies[::13]


def test_storage_grows_with_the_conversation_and_not_with_its_square() -> None:
    """Twice the turns take about twice the bytes."""
    sizes: list[int] = []
    for count in (100, 200):
        kept = _Kept()
        for turns in range(1, count):
            kept.add(_body([_message(number) for number in range(turns)]))
        sizes.append(sum(map(len, kept.payloads.values())))
    assert sizes[1] < 2.2 * sizes[0]


def test_new_head_and_changed_message_are_kept_alone() -> None:
    """What follows a change is found again behind it."""
    kept = _Kept()
    messages = [_message(number) for number in range(100)]
    kept.add(_body(messages))
    changed = [*messages[:50], messages[50][:-1] + b',"cache_control":{}}', *messages[51:]]
    kept.add(_body(changed, head=b'{"model":"m","system":"other","messages":['))
    assert len(kept.payloads["1"]) < 1000
    assert kept.read(1) == kept.bodies[1]


def test_request_without_a_base_is_kept_whole() -> None:
    """The first request of a conversation has nothing to share."""
    payload, shared = request_payload([b"abc", b"def"], b"")
    assert (payload, shared) == (b'{"format":1,"parts":[6]}\nabcdef', False)


def test_views_of_a_body_are_parts_as_bytes_are() -> None:
    """Where a wire gives those of a large one, to save a copy."""
    parts = [b"{", b"a" * 100, b"b" * 100, b"c" * 70, b"}"]
    views = [memoryview(part) for part in parts]
    for base in (b"", b"".join(parts), b"x" + b"".join(parts[2:])):
        assert request_payload(views, base) == request_payload(parts, base)


def test_short_copies_are_written_again() -> None:
    """A reference to a few bytes would take as many."""
    short, long = b"x" * (COPY_BYTES_MIN - 1), b"y" * COPY_BYTES_MIN
    assert request_payload([short], short)[1] is False
    assert request_payload([long], long) == (b'{"format":1,"parts":[[0,%d]]}\n' % COPY_BYTES_MIN, True)


@given(
    st.lists(
        st.lists(st.sampled_from([b"", b"a", b"ab" * 40, b"c" * 64, b"d" * 200, b"ab" * 39 + b"x"]), max_size=8),
        min_size=1,
        max_size=6,
    )
)
def test_any_parts_come_back(requests: list[list[bytes]]) -> None:
    """Whatever the parts are, and however they repeat."""
    kept = _Kept()
    for parts in requests:
        kept.add(parts)
    assert [kept.read(index) for index in range(len(requests))] == kept.bodies


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"not json\n", "cannot be read"),
        (b'{"format":2,"parts":[]}\n', "upgrade turnlog"),
        (b'{"format":1,"parts":[3]}\nabc', "its parts are not 9 bytes"),
        (b'{"format":1,"parts":[9,3]}\nabcdefghijkl', "its parts are not 9 bytes"),
        (b'{"format":1,"parts":[9]}\nabcdefghijkl', "3 of its literal bytes belong to nothing"),
        (b'{"format":1,"parts":[9]}\nabcdefghi' + b"x" * 70_000, "70,000 of its literal bytes"),
        (b'{"format":1,"parts":[9,[5,0]]}\nabcdefghi', "do not follow each other"),
        (b'{"format":1,"parts":[9]}\nabc', "shorter"),
        (b'{"format":1,"parts":[[0,9]]}\n', "does not say of which"),
        (b'{"format":1,"parts":[-1,10]}\nabcdefghij', "less than nothing"),
        (b'{"format":1,"parts":[[-9,9]]}\n', "less than nothing"),
        (b'{"format":1,"parts":' + b"[" * 100_000, "cannot be read"),
        (b'{"format":1,"parts":[9],"more":"' + b"x" * PARTS_BYTES_MAX + b'"}\nabcdefghi', "cannot be read"),
    ],
    ids=range(13),
)
def test_damaged_payload_is_corruption(payload: bytes, message: str) -> None:
    """No bytes are made up for those that are missing."""
    with pytest.raises(CorruptionError, match=message):
        request_body(KeptRequest(pieces=pieces(payload, 70_000), base=None), 9, {}.__getitem__)


def test_parts_that_go_back_in_the_base_are_corruption() -> None:
    """No turnlog writes them, and literal bytes are read once, from the first to the last."""
    base = KeptRequest(pieces=[b'{"format":1,"parts":[6]}\nabcdef'], base=None)
    for parts in (b"[[3,3],[0,3]]", b"[[0,3],[0,3]]", b"[[0,4],[3,2]]"):
        kept = KeptRequest(pieces=[b'{"format":1,"parts":%b}\n' % parts], base="base")
        with pytest.raises(CorruptionError, match="do not follow each other"):
            request_body(kept, 6, lambda _: base)


def test_earlier_request_that_is_damaged_is_read_as_far_as_it_is_wanted() -> None:
    """What is wrong with it is told of it, and not of all that were built on it."""
    kept = KeptRequest(pieces=[b'{"format":1,"parts":[[0,6]]}\n'], base="base")
    base = KeptRequest(pieces=[b'{"format":1,"parts":[[3,3],[0,3],2]}\nghijk'], base="first")
    first = KeptRequest(pieces=[b'{"format":1,"parts":[6]}\nabcdef'], base=None)
    assert request_body(kept, 6, lambda name: {"base": base, "first": first}[name]) == b"defabc"
    base = KeptRequest(pieces=[b'{"format":1,"parts":[[0,3],[0,3]]}\n'], base="first")
    with pytest.raises(CorruptionError, match="do not follow each other"):
        request_body(kept, 6, lambda name: {"base": base, "first": first}[name])


@pytest.mark.parametrize("size", [-1, REQUEST_BYTES_MAX + 1, 1 << 62])
def test_size_beyond_all_requests_is_corruption(size: int) -> None:
    """No memory is taken for what somebody only says."""
    with pytest.raises(CorruptionError, match="none has more than"):
        request_body(KeptRequest(pieces=[b'{"format":1,"parts":[]}\n'], base=None), size, {}.__getitem__)


def test_request_of_too_many_parts_is_kept_whole() -> None:
    """Rather than with a line that no reader would read."""
    message = b"y" * COPY_BYTES_MIN
    base = b"".join(message + b"%07d" % number for number in range(290_000))
    parts = [part for number in range(290_000) for part in (message, b"%06d" % number)]
    payload, shared = request_payload(parts, base)
    body = b"".join(parts)
    assert shared is False
    assert payload == b'{"format":1,"parts":[%d]}\n' % len(body) + body
