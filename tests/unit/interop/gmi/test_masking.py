"""The keys of a run are in nothing that is told."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnlog.interop.gmi import GMIError
from turnlog.interop.gmi.masking import Keys

MARKER = "[redacted: api-key]"


def test_keys_are_masked_wherever_they_stand() -> None:
    """In texts and in names of members, at any depth; the longer one of two where both stand."""
    keys = Keys(["key-of-ada", "key-of-ada-and-bob"])
    assert keys.masked("key-of-ada-and-bob, key-of-ada!") == f"{MARKER}, {MARKER}!"
    assert keys.masked_json({"key-of-ada": [1, None, {"a": "is key-of-ada"}]}) == {
        MARKER: [1, None, {"a": f"is {MARKER}"}]
    }
    error = GMIError(code="E", message="no key-of-ada", details={"sent": "key-of-ada"})
    assert keys.masked_model(error) == GMIError(code="E", message=f"no {MARKER}", details={"sent": MARKER})
    assert keys.with_key("the-other-key").masked("the-other-key key-of-ada") == f"{MARKER} {MARKER}"


def test_short_keys_stand_in_any_text() -> None:
    """They are not looked for."""
    assert Keys(["test", "1234567"]).masked("a test of 1234567") == "a test of 1234567"
    assert Keys(["12345678"]).masked("a test of 12345678") == f"a test of {MARKER}"


def test_text_that_may_begin_a_key_waits() -> None:
    """And only that."""
    keys = Keys(["key-of-ada"])
    assert keys.split("this is a ke") == ("this is a ", "ke")
    assert keys.split("this is key-of-adak") == (f"this is {MARKER}", "k")
    assert keys.split("this is a kettle") == ("this is a kettle", "")
    assert Keys([]).split("key-of-a") == ("key-of-a", "")


few = st.text("ab", min_size=8, max_size=11)


@given(st.lists(few, min_size=1, max_size=3), st.lists(st.one_of(few, st.text("abc", max_size=9)), max_size=9))
def test_text_in_pieces_is_masked_as_the_whole(keys: list[str], pieces: list[str]) -> None:
    """However it is cut, and however the keys overlap."""
    masking = Keys(keys)
    told, held = "", ""
    for piece in pieces:
        text, held = masking.split(held + piece)
        told += text
        assert not any(key in text for key in keys)
    assert told + masking.masked(held) == masking.masked("".join(pieces))
