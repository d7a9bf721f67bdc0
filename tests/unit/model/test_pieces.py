"""Text and base64 in pieces: what they are as a whole, wherever they are cut."""

import random
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator

import pytest

from turnlog.model.pieces import PIECE, base64_bytes, base64_text, decoded_text, is_base64, text_pieces

UNIT = "aé漢😀\r\n"


def cut(text: str, source: random.Random) -> Iterator[str]:
    """Iterate over a text in pieces of any length."""
    while text:
        end = source.randrange(8)
        yield text[:end]
        text = text[end:]


BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
"""RFC 4648 §4. Python takes more padding than there is to be."""

WRONG_BASE64 = (
    "a",
    "ab=",
    "abc=d",
    "=",
    "====",
    "ab==ab==",
    "abc=abcd",
    "ab==\n",
    "ab c",
    "é",
    "ab=c",
    "ab-_",
    "abcd=",
)


@pytest.mark.parametrize(
    "text", ["", *(b64encode(b"\xff\x00ab\xfe" * 9)[:-4].decode() + end for end in ("", "ab==", "abc="))]
)
@pytest.mark.parametrize("wrong", ["", *WRONG_BASE64])
def test_base64_in_pieces_is_what_it_is_as_a_whole(text: str, wrong: str) -> None:
    """Wherever it is cut, and whatever is wrong with it."""
    whole = text + wrong
    wanted = b64decode(whole) if BASE64.fullmatch(whole) else None
    assert is_base64(whole) is (wanted is not None)
    for seed in range(40):
        if wanted is not None:
            assert b"".join(base64_bytes(cut(whole, random.Random(seed)))) == wanted
            continue
        with pytest.raises(ValueError):  # noqa: PT011 - of whatever kind
            b"".join(base64_bytes(cut(whole, random.Random(seed))))


def test_text_in_base64_is_read_in_pieces() -> None:
    """What is no UTF-8 is refused, also where only its end is missing."""
    text = UNIT * PIECE
    data = b64encode(text.encode()).decode()
    assert "".join(base64_text(text_pieces(data))) == text
    for wrong in (b"\xff", "é".encode()[:1]):
        with pytest.raises(UnicodeDecodeError):
            list(base64_text(text_pieces(b64encode(text.encode() + wrong).decode())))


def test_what_is_no_text_can_be_replaced_in_pieces() -> None:
    """As it is in a whole."""
    text = (UNIT * PIECE).encode()
    for wrong in (b"\xff\xfe", b"\xf0\x9f\x98", b"\xed\xa0\xbd"):
        broken = text[: PIECE - 1] + wrong + text[PIECE - 1 :] + wrong
        assert "".join(decoded_text(broken, "replace")) == broken.decode(errors="replace")
