"""Events of topics that are not turnlog's."""

from typing import Any

import pytest
from msgspec import Raw

from turnlog import TurnLog
from turnlog.errors import MetaError, NotFoundError, SecretError
from turnlog.events import metadata
from turnlog.ids import new_id
from turnlog.record.append import META_BYTES_MAX

DEEP: dict[str, Any] = {}
for _ in range(100_000):
    DEEP = {"a": DEEP}


@pytest.mark.parametrize("topic", ["acme.review", "a.b.c", "x-1.y-2", "acme." + "a" * 195])
def test_topic_of_ones_own_is_recorded(log: TurnLog, topic: str) -> None:
    """Two or more names with dots between them, of at most 200 characters."""
    assert log.add_event(topic).header.topic == topic


@pytest.mark.parametrize(
    "topic",
    [
        *("", "acme", "acme.", ".acme", "acme..x", "Acme.x", "acme x", "acme.\n", "acme.x\n", "é.x", "acme_x.y"),
        *("log.genesis", "log.x", "gpt.turn", "gpt.x", "mcp.server", "mcp.x", "claude-code.x"),
        "acme." + "a" * 196,
        None,
        1,
    ],
)
def test_topic_of_turnlogs_or_of_another_form_is_refused(log: TurnLog, topic: Any) -> None:
    """Nobody can record what turnlog would take for its own."""
    with pytest.raises(MetaError) as caught:
        log.add_event(topic)
    assert caught.value.field == "topic"
    assert list(log.events()) == []


def test_metadata_is_kept_by_halves_as_json(log: TurnLog) -> None:
    """Any JSON value, with sorted keys; tuples become lists."""
    given = {"b": (1, 2.5, None, True), "a": {"d": "é\u2028", "c": []}}
    recorded = log.add_event("acme.note", private=given, public={"n": 1})
    assert recorded.private is not None
    assert bytes(recorded.private.meta) == '{"a":{"c":[],"d":"é\u2028"},"b":[1,2.5,null,true]}'.encode()
    assert metadata(recorded) == {"a": {"c": [], "d": "é\u2028"}, "b": [1, 2.5, None, True], "n": 1}


@pytest.mark.parametrize("half", ["private", "public"])
@pytest.mark.parametrize("raw", [b'{"b": 1}', b'1,"b":2', b"1", b""])
def test_raw_text_in_metadata_is_refused(log: TurnLog, half: str, raw: bytes) -> None:
    """Metadata has one spelling in a log, or the event is damage."""
    meta: dict[str, Any] = {half: {"a": Raw(raw)}}
    with pytest.raises(MetaError, match=rf"^{half}(: raw JSON text is not kept|\.a: not valid JSON)"):
        log.add_event("acme.note", **meta)
    assert list(log.events()) == []


@pytest.mark.parametrize(
    "meta",
    [
        *({"a": object()}, {"a": {1, 2}}, {1: "a"}, {"a": b"x"}, {"a": float("nan")}, {"a": 1 << 70}, {"a": "\ud800"}),
        *([], "x", 1, DEEP),
    ],
    ids=lambda meta: f"{type(meta).__name__} {list(meta)[:1] if isinstance(meta, dict) and meta is not DEEP else ''}",
)
@pytest.mark.parametrize("half", ["private", "public"])
def test_metadata_that_is_not_json_is_refused(log: TurnLog, half: str, meta: Any) -> None:
    """Nothing is stored that another reader would read differently, or not at all."""
    with pytest.raises(MetaError) as caught:
        log.add_event("acme.note", **{half: meta})
    assert caught.value.field.startswith(half)
    assert list(log.events()) == []


@pytest.mark.parametrize("half", ["private", "public"])
def test_metadata_has_a_largest_size(log: TurnLog, half: str) -> None:
    """1 MiB, in either half; content belongs into the payload."""
    with pytest.raises(MetaError, match="limit"):
        log.add_event("acme.note", **{half: {"a": "b" * META_BYTES_MAX}})
    assert list(log.events()) == []
    log.add_event("acme.note", b"b" * (2 * META_BYTES_MAX), **{half: {"a": "b" * (META_BYTES_MAX - 200)}})


@pytest.mark.parametrize("half", ["private", "public"])
@pytest.mark.parametrize("meta", [{"x": [{"api_key": "x"}]}, {"x": ["sk-" + "a1" * 15]}], ids=["name", "form"])
def test_secret_is_refused(log: TurnLog, half: str, meta: Any) -> None:
    """Secrets never enter the log, whoever's event it is."""
    with pytest.raises(SecretError):
        log.add_event("acme.note", **{half: meta})
    assert list(log.events()) == []


def test_citations_carry_digests_in_listed_order(log: TurnLog) -> None:
    """Of any event, by its id in either case; the same citation twice is one."""
    turn = log.add_turn("x")
    note = log.add_event("acme.note")
    own = log.add_event(
        "acme.review", cites=[("of", note.header.id.upper()), ("on", turn.id), ("of", note.header.id), ("of", turn.id)]
    )
    assert [(one.relation, one.id, one.digest) for one in own.header.citations] == [
        ("of", note.header.id, note.digest),
        ("on", turn.id, turn.digest),
        ("of", turn.id, turn.digest),
    ]


@pytest.mark.parametrize("relation", ["", "Of", "o f", "parent", "1", "a" * 61, "of\n", None])
def test_relation_has_a_form(log: TurnLog, relation: Any) -> None:
    """A word of a-z, 0-9, - and _; only turns have parents."""
    turn = log.add_turn("x")
    with pytest.raises(MetaError) as caught:
        log.add_event("acme.note", cites=[(relation, turn.id)])
    assert caught.value.field == "cites"


def test_nothing_dangles(log: TurnLog) -> None:
    """What is not there cannot be cited, and nothing is written then; nor can an event cite itself."""
    turn, own = log.add_turn("x"), new_id()
    for cites in ([("of", turn.id), ("of", new_id())], [("of", own)]):
        with pytest.raises(NotFoundError):
            log.add_event("acme.note", cites=cites, id=own)
    with pytest.raises(MetaError):
        log.add_event("acme.note", cites=[("of", "main")])
    assert len(list(log.events())) == 2


def test_event_of_ones_own_stands_in_no_thread(log: TurnLog) -> None:
    """It is no turn: it has no children, moves no bookmark, and nothing continues it."""
    turn = log.add_turn("x", bookmark="main")
    log.add_event("acme.note", b'[{"type":"text","text":"x"}]', private={"head": "main"}, cites=[("turn", turn.id)])
    assert [one.turns for one in log.threads()] == [1]
    assert log.turn("main") == turn
    assert log.children("main") == []
