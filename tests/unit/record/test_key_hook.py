"""The key of a provider: it is found as it is, and as JSON spells it."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from turnlog import TurnLog
from turnlog.model import Native, Response, Text
from turnlog.providers import get
from turnlog.record.key_hook import KeyHook
from turnlog.record.redaction import NOTHING
from turnlog.redaction import Place

KEY = "localKey/Ab12+cd/EF34=="
MARK = "[redacted: api-key]"
PLACE = Place(topic="gpt.turn", field="x")
SPELLINGS = {
    "as it is": KEY,
    "as PHP has it": KEY.replace("/", "\\/"),
    "as .NET has it": KEY.replace("+", "\\u002B"),
    "in small letters": KEY.replace("+", "\\u002b").replace("=", "\\u003d"),
    "all of it": "".join(f"\\u{ord(character):04x}" for character in KEY),
}
ODD = [
    'pa"ssword-1234',
    "pass\\word-1234",
    "tab\tkey-12345678",
    "back\\\\slashes-1",
    "clé-de-mon-serveur",
    "key-🔑-12345678",
]


@pytest.fixture
def log() -> Any:
    """Give a log without hooks."""
    with TurnLog.open("memory://") as log:
        yield log


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spelling_of_json_does_not_hide_the_key_in_a_native_block(log: TurnLog, spelling: str) -> None:
    """What a provider sent is kept as it was spelled, but for the key."""
    block = '{"said":"\\u0041 %s","a":"\\u0041\\/b"}'
    given = Native(provider="p", api="a", model="m", block=msgspec.Raw((block % SPELLINGS[spelling]).encode()))
    turn = log.add_turn([given], api_key=KEY)
    [kept] = json.loads(log.payload(turn.id))
    assert kept["block"] == {"said": f"A {MARK}", "a": "A/b"}
    assert rb'"a":"\u0041\/b"' in log.payload(turn.id)
    assert turn.meta.redacted == {"api-key": 1}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spelling_of_json_does_not_hide_the_key_in_a_raw_event(log: TurnLog, spelling: str) -> None:
    """Then no raw event is kept."""
    question = log.add_turn("Hi", bookmark="main")
    call = log.calls.record(question.id, get("anthropic").prepare_request(log.context("main"), model="m-1"))
    response = Response(content=(Text(text="Hi"),), model="m-1", stop_reason="stop", provider="p", api="a")
    events = [b'{"type":"ping"}', ('{"echo":"' + SPELLINGS[spelling] + '"}').encode()]
    turn = log.calls.record_reply(call, events, response, api_key=KEY)
    assert turn.meta.redacted == {"api-key": 1}
    assert log.calls.events(turn.id) == []


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_key_is_found_in_json_that_a_text_has_in_it(log: TurnLog, spelling: str) -> None:
    """As tools return it, and some wires have the arguments of calls."""
    said = '{"error": "wrong key %s"}'
    turn = log.add_turn(said % SPELLINGS[spelling], api_key=KEY)
    [block] = json.loads(log.payload(turn.id))
    assert block["text"] == said % MARK


@pytest.mark.parametrize("key", ODD)
def test_key_with_what_json_has_escapes_for_is_found(log: TurnLog, key: str) -> None:
    """In a text, and in JSON in a text."""
    turn = log.add_turn(f"The key is {key}, or {json.dumps(key)}.", api_key=key)
    assert json.loads(log.payload(turn.id))[0]["text"] == f'The key is {MARK}, or "{MARK}".'
    assert turn.meta.redacted == {"api-key": 2}


@given(
    key=st.text(st.characters(codec="utf-8", max_codepoint=0x1F600), min_size=8, max_size=12),
    inside=st.booleans(),
    ascii_only=st.booleans(),
)
@example(key="0000000\\", inside=True, ascii_only=True)
def test_any_key_is_found_as_any_codec_spells_it(key: str, *, inside: bool, ascii_only: bool) -> None:
    """And with every character escaped."""
    assume(key not in "<>")
    units = key.encode("utf-16-be").hex(" ", 2).split()
    for spelled in (json.dumps(key, ensure_ascii=ascii_only), '"' + "".join(f"\\u{unit}" for unit in units) + '"'):
        text = json.dumps({"a": f"<{spelled}>"}) if inside else f'{{"a":{spelled}}}'
        line, found = NOTHING.with_key(key, [text.encode()]).line(text.encode(), "x")
        assert json.loads(line) == {"a": f'<"{MARK}">' if inside else MARK}
        assert found == [("a", "api-key")]


@pytest.mark.parametrize("key", ["k7Kx-abcdefghijklmnop", KEY, *ODD])
def test_text_without_the_key_is_left_to_the_other_hooks(key: str) -> None:
    """Whatever escapes are in it: all of JSON's, also those of the key's own characters."""
    text = json.dumps(["".join(map(chr, range(200))) + key[:-1], "a/b"]).replace("/", "\\/")
    assert NOTHING.with_key(key, [text.encode(), b"\\", b'{"a":"\xff\\/"}']) is NOTHING


def test_what_a_key_reaches_is_all_that_may_spell_it() -> None:
    """So that a long text is shown in pieces."""
    key = "🔑" * 8
    hook = KeyHook(key)
    spelled = "\\ud83d\\udd11" * 8
    [found] = hook(spelled, PLACE)
    assert (found.start, found.end) == (0, hook.reach) == (0, len(spelled))
