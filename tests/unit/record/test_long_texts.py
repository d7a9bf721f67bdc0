"""Redaction of long texts: hooks with a reach see them in pieces, and find what they find in the whole."""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnlog import RedactionError, SecretError, TurnLog
from turnlog.record import findings, long_texts, redaction, strings
from turnlog.record.redaction import Redaction
from turnlog.record.secret_forms import forms_in
from turnlog.redaction import Found, Place, secrets

LONG_BYTES = 300
STRETCH_CHARACTERS = 60
NUMBER = "C-104233"


class Numbers:
    """Finds customer numbers that stand alone, and long runs of `=`; notes how long the texts are that it is shown.

    A run is known by its first 12 characters, and a number by the one before it and the 9 from where it begins.
    """

    form = re.compile(r"(?<!\w)C-\d{6}(?!\w)|={12,}")

    def __init__(self, reach: int | None = 12) -> None:
        self.shown: list[int] = []
        if reach is not None:
            self.reach = reach

    def __call__(self, text: str, place: Place) -> Iterable[Found]:
        self.shown.append(len(text))
        kinds = {"C": "customer", "=": "line"}
        return [Found(start=m.start(), end=m.end(), kind=kinds[m[0][0]]) for m in self.form.finditer(text)]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let texts be long that are quick to look at."""
    for module in (redaction, strings):
        monkeypatch.setattr(module, "LONG_BYTES", LONG_BYTES)
    monkeypatch.setattr(strings, "PIECE", LONG_BYTES)
    monkeypatch.setattr(long_texts, "STRETCH_CHARACTERS", STRETCH_CHARACTERS)
    for name in ("long_strings", "pieces"):
        monkeypatch.setattr(f"turnlog.model.{name}.PIECE", 32)


def redacted(payload: bytes, *hooks: Numbers) -> tuple[Any, list[tuple[str, str]]]:
    """Return content as hooks leave it, and what they found."""
    line, found = Redaction(hooks).line(payload, "gpt.turn")
    return json.loads(line), found


PARTS = st.sampled_from(
    [
        NUMBER,
        NUMBER[:5],
        NUMBER[5:],
        "=" * 11,
        "=" * 12,
        "=" * 200,
        "x",
        " ",
        "\n",
        '"',
        "\\",
        "é",
        "漢",
        "🙂",
        "ab " * 30,
    ]
)


@example(parts=["233xxxx\n\n\n", "ab " * 30, "=" * 200], ensure_ascii=False)
@example(parts=[NUMBER + " "] * 60, ensure_ascii=True)
@example(parts=["x" * 61, NUMBER, " " * 43, NUMBER, " " * 300], ensure_ascii=False)
@given(parts=st.lists(PARTS, min_size=1, max_size=60), ensure_ascii=st.booleans())
def test_pieces_of_a_text_tell_what_the_whole_does(parts: list[str], *, ensure_ascii: bool) -> None:
    """Wherever a finding stands: at a seam, half before it, or longer than a piece; and however the text is spelled."""
    content = [{"type": "text", "text": "".join(parts)}]
    payload = json.dumps(content, ensure_ascii=ensure_ascii).encode()
    whole, in_pieces = Numbers(reach=None), Numbers()

    assert redacted(payload, in_pieces) == redacted(payload, whole)


@given(parts=st.lists(PARTS, min_size=1, max_size=30), more=st.lists(PARTS, max_size=30))
def test_texts_that_follow_each_other_are_one(parts: list[str], more: list[str]) -> None:
    """Also where one of them is long: a number that is spread over two is found."""
    texts = ["".join(parts) + NUMBER[:4], NUMBER[4:], "".join(more)]
    payload = json.dumps([{"type": "text", "text": text} for text in texts]).encode()

    assert redacted(payload, Numbers()) == redacted(payload, Numbers(reach=None))


def test_a_long_text_is_never_whole() -> None:
    """Hooks with a reach see stretches, all of them alike, and each sees what the one before it has left."""
    text = (" " * 100 + NUMBER) * 300 + " "
    hooks = Numbers(), Numbers()
    [block], found = redacted(json.dumps([{"type": "text", "text": text}]).encode(), *hooks)

    assert block["text"] == text.replace(NUMBER, "[redacted: customer]")
    assert len(found) == 300
    assert all(max(hook.shown) < len(text) / 10 < len(text) < sum(hook.shown) for hook in hooks)


def test_what_is_not_changed_keeps_its_spelling() -> None:
    """A long text without findings stays byte for byte as it was written."""
    payload = b'[{"type":"text","text":"' + rb"\u0041\/\u00e9 " * 200 + b'"}]'
    hook = Numbers()

    assert Redaction([hook]).line(payload, "gpt.turn") == (payload, [])
    assert max(hook.shown) < 200


def test_a_hook_without_a_reach_sees_the_whole() -> None:
    """Whatever the other hooks are content with."""
    text = ("x " * 50 + NUMBER + " ") * 30
    of_pieces, of_all = Numbers(), Numbers(reach=None)
    redacted(json.dumps([{"type": "text", "text": text}]).encode(), of_pieces, of_all)

    assert max(of_pieces.shown) < 200
    assert of_all.shown == [len(text.replace(NUMBER, "[redacted: customer]"))]


@pytest.mark.parametrize("reach", [-1, 2.5, "20", True])
def test_a_reach_is_a_number_of_characters(reach: Any) -> None:
    """Anything else is refused when the log is opened, not with the first long text."""
    with pytest.raises(RedactionError, match="expected a number of characters"):
        TurnLog.open("memory://", redact=[Numbers(reach)])


def test_long_documents_are_redacted() -> None:
    """As files, as blocks, and as data URLs."""
    text = ("é " * 100 + NUMBER + " ") * 10
    clean = text.replace(NUMBER, "[redacted: customer]")
    data = b64encode(text.encode()).decode()
    source = {"type": "base64", "media_type": "text/plain", "data": data}
    content = [{"type": "document", "source": source}, {"type": "text", "text": f"data:text/plain;base64,{data}"}]
    with TurnLog.open("memory://", redact=[Numbers()]) as log:
        turn = log.add_turn(content)
        assert turn.meta.redacted == {"customer": 20}
        block, said = json.loads(log.payload(turn.id))
    assert b64decode(block["source"]["data"]).decode() == clean
    assert b64decode(said["text"].partition(",")[2]).decode() == clean


def test_a_long_file_is_redacted(tmp_path: Any) -> None:
    """It is read as text in pieces; what is no text is passed over."""
    (tmp_path / "a.txt").write_text(("é " * 100 + NUMBER + " ") * 10)
    (tmp_path / "b.bin").write_bytes(b"\xff" * 1000)
    hook = Numbers()
    with TurnLog.open("memory://", redact=[hook]) as log:
        text, data = (log.add_document(tmp_path / name) for name in ("a.txt", "b.bin"))
        assert log.payload(text.id).decode() == ("é " * 100 + "[redacted: customer] ") * 10
        assert (text.meta.redacted, data.meta.passed_over) == ({"customer": 10}, 1)
        assert text.meta.file_size == text.size
    assert max(hook.shown) < 200


def test_thinking_that_is_long_loses_its_signature() -> None:
    """As short thinking does."""
    payload = json.dumps([{"type": "thinking", "thinking": "Hm " * 200 + NUMBER, "signature": "s" * 400}]).encode()
    [block], found = redacted(payload, Numbers())

    assert block == {"type": "thinking", "thinking": "Hm " * 200 + "[redacted: customer]"}
    assert [kind for _, kind in found] == ["customer", "thinking-signature"]


def test_half_a_pair_of_surrogates_is_looked_at_as_before() -> None:
    """It is no string to the codec, and so is never read in pieces."""
    payload = b'[{"type":"text","text":"\\ud83d ' + b"x " * 300 + NUMBER.encode() + b'"}]'

    assert b"[redacted: customer]" in Redaction([Numbers()]).line(payload, "gpt.turn")[0]


def test_many_pieces_are_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of a hook that limits its own time for each."""
    monkeypatch.setattr(findings, "HOOK_TIMEOUT_S", -1.0)
    with pytest.raises(RedactionError, match=r"text: .*Numbers took longer than"):
        Redaction([Numbers()]).line(json.dumps([{"type": "text", "text": "x " * 500}]).encode(), "gpt.turn")


def test_the_reach_of_the_built_in_hook_is_that_of_its_longest_form() -> None:
    """A key in PEM that has no end is followed to the last character that the reach allows, and no farther."""
    begin = "-----BEGIN " + "PRIVATE KEY-----\n"
    [form] = forms_in(begin + "A" * 2 * secrets().reach)

    assert secrets().reach - 4096 < form.end <= secrets().reach


def test_a_long_text_that_cannot_be_changed_is_looked_at_each_time() -> None:
    """It is none that was found clean before, only because it stands where that one stood in memory."""
    redaction = Redaction([Numbers()])
    clean, other = (json.dumps({"a": "x " * 500 + end}).encode() for end in ("", NUMBER))
    for _ in range(50):
        redaction.refuse("gpt.call", {}, json={"body": clean})
        with pytest.raises(SecretError, match="customer"):
            redaction.refuse("gpt.call", {}, json={"body": other})


def test_long_texts_beside_one_that_is_changed_keep_their_spelling() -> None:
    """A number that is spread over two texts changes these, and not a long one that follows them."""
    long = rb'{"type":"text","text":"' + rb"\u0041\/\u00e9 " * 200 + b'"}'
    texts = b",".join(b'{"type":"text","text":"%b"}' % half.encode() for half in (NUMBER[:4], NUMBER[4:] + " "))
    line, found = Redaction([Numbers()]).line(b"[%b,%b]" % (texts, long), "gpt.turn")

    assert [kind for _, kind in found] == ["customer"]
    assert line.endswith(long + b"]")
