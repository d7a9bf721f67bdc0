"""What the payload of an event has to be is said once: what `verify` calls damage no import takes over."""

import io
from collections.abc import Mapping

import pytest
from msgspec import Struct
from tests.forging import exported

from turnlog import FormatError, LossReport, TurnLog
from turnlog.digest import payload_hash
from turnlog.events import CALL, REPLY, SHAPES, SUMMARY, TOOL_END, TOOLS, TURN, Citation, cite
from turnlog.ids import new_id
from turnlog.model import BytesRef, CallMeta, ReplyMeta, SummaryMeta, ToolEndMeta, ToolsMeta, TurnMeta
from turnlog.providers import PreparedRequest
from turnlog.record import EventDraft, plan_event
from turnlog.record.contents import PAYLOADS
from turnlog.sources import Sources
from turnlog.store import WriteTransaction

_TEXT = b'[{"type":"text","text":"said"}]'
_BROKEN = (
    b"no JSON",
    b'[]}],"options":{"servers":["more"]},"x":[{"y":[]',
    b'[{"type":"erased","turn":"03fr9cxksbd0ufbbn4sb2g000","time":1}]',
    b'[{"type":"text","text":"a","text":"b"}]',
    b'[{"type": "text","text":"a"}]',
    b"null",
    b"",
)
_PAYLOADS: Mapping[str, tuple[Struct, bytes, tuple[bytes, ...]]] = {
    TURN: (TurnMeta(role="user"), _TEXT, _BROKEN),
    SUMMARY: (SummaryMeta(first="turn", last="turn", kind="given", turns=1), _TEXT, _BROKEN),
    TOOL_END: (ToolEndMeta(turn="turn", block=0, attempt=1, ending="result"), _TEXT, _BROKEN),
    REPLY: (ReplyMeta(call="call", events=1), b"\x1e{}\n", (b"{}\n", b"\x1e{}", b"\x1e{}\n\x1e{}\n", b"")),
    TOOLS: (ToolsMeta(tools=1), b'[{"name":"f"}]', (b"[", b"[]", b'[{"name":1}]', b'[{"name":"f"},{"name":"f"}]')),
}
"""By topic metadata, a payload that goes with it, and some that do not."""


_KEPT = b'{"model":"m"}{"kind":"dropped","turn":"t","block":"text","why":"no"}\n{"at":1}'
_BODY, _LOSS, _WINDOW = 13, 56, 8


def _call(payload: bytes, *sizes: int, kept: bytes = _KEPT, base: str | None = None) -> tuple[CallMeta, bytes]:
    """Return the metadata of a call of so many bytes of body, loss report and window, and its payload."""
    start, refs = 0, list[BytesRef]()
    for size in sizes:
        refs.append(BytesRef(hash=payload_hash(kept[start : start + size]), size=size))
        start += size
    request, loss, window = (*refs, None, None)[:3]
    assert request is not None
    meta = CallMeta(
        turn="turn",
        base=base,
        provider="p",
        api="a",
        model="m",
        adapter="a",
        adapter_version="1",
        stream=False,
        request=request,
        loss=loss,
        window=window,
    )
    return meta, payload


_ALL = b'{"format":1,"parts":[%d]}\n' % len(_KEPT) + _KEPT
_SIZES = _BODY, _LOSS, _WINDOW
_CALLS = {
    "no window": _call(_ALL, _BODY, _LOSS),
    "no loss report": _call(_ALL, _BODY),
    "more literal bytes": _call(_ALL + b"more", *_SIZES),
    "more parts": _call(_ALL.replace(b"]", b",4]", 1) + b"more", *_SIZES),
    "fewer parts": _call(b'{"format":1,"parts":[1]}\n{', *_SIZES),
    "part of nothing": _call(_ALL.replace(b"]", b",[0,0]]", 1), *_SIZES, base="call"),
    "parts that go back": _call(b'{"format":1,"parts":[[1,1],[0,1]]}\n', 2, kept=b"}{", base="call"),
    "parts behind the base": _call(b'{"format":1,"parts":[[1,2]]}\n', 2, base="call"),
    "less than nothing": _call(b'{"format":1,"parts":[69]}\n' + _KEPT[:69], -_LOSS, _BODY + 2 * _LOSS, kept=_KEPT[:69]),
    "no parts": _call(_KEPT, *_SIZES),
    "other body": _call(_ALL.replace(b"model", b"ledom"), *_SIZES),
    "other loss report": _call(_ALL.replace(b"dropped", b"renamed"), *_SIZES),
    "other window": _call(_ALL.replace(b'"at":1', b'"at":2'), *_SIZES),
}


def _export_of(topic: str, meta: Struct, payload: bytes) -> tuple[bytes, list[str]]:
    """Return the export of a log that has such an event, and what is damage in it."""
    with TurnLog.open("memory://") as log:
        asked = log.add_turn("asked", bookmark="main")
        call = log.calls.record(
            "main",
            PreparedRequest(
                adapter="a",
                version="1",
                provider="p",
                api="a",
                model="m",
                stream=False,
                head=b"{",
                messages=[],
                closing=b"}",
                params={},
                loss_report=LossReport(),
            ),
        )
        cited = {"turn": asked.id, "from": asked.id, "to": asked.id, "call": call}
        sources, placed = Sources(), log.store.place(payload)

        def plan(transaction: WriteTransaction) -> object:
            citations: list[Citation] = []
            for relation in sorted(SHAPES[topic].requires):
                event = transaction.event(cited[relation])
                assert event is not None
                citations.append(cite(event, relation))
            if isinstance(meta, CallMeta) and meta.base is not None:
                event = transaction.event(call)
                assert event is not None
                citations.append(cite(event, "base"))
            return plan_event(transaction, EventDraft(topic=topic, meta=meta, id=new_id()), placed, sources, citations)

        log.store.write(plan)
        return exported(log), [damage.what for damage in log.verify().damage]


def test_payload_of_each_topic_is_checked() -> None:
    """But for that of a call, which may be made of earlier ones, and is put together where the log is at hand."""
    assert {topic for topic, shape in SHAPES.items() if shape.payload is not False} == {*PAYLOADS, CALL}
    assert _PAYLOADS.keys() == PAYLOADS.keys()


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("topic", PAYLOADS)
def test_payload_that_goes_with_its_event_is_sound_and_taken_over(log: TurnLog, topic: str, whole: bool) -> None:
    """As what is malformed is told from."""
    meta, payload, _ = _PAYLOADS[topic]
    content, damage = _export_of(topic, meta, payload)
    assert damage == []
    if not whole:
        log.add_turn("mine")
    log.import_turnlog(io.BytesIO(content))
    assert log.verify().clean


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("topic", "payload"), [(topic, payload) for topic in PAYLOADS for payload in _PAYLOADS[topic][2]]
)
def test_malformed_payload_is_damage_and_no_import_takes_it(
    log: TurnLog, topic: str, payload: bytes, whole: bool
) -> None:
    """The import says so in the words of `verify`, with the line; nothing is written."""
    content, [damage] = _export_of(topic, _PAYLOADS[topic][0], payload)
    if not whole:
        log.add_turn("mine")
    before = [recorded.state for recorded in log.events()]
    with pytest.raises(FormatError) as caught:
        log.import_turnlog(io.BytesIO(content))
    assert caught.value.line == len(content.splitlines())
    assert str(caught.value).endswith(f": {damage}")
    assert [recorded.state for recorded in log.events()] == before


def test_request_that_goes_with_its_call_is_sound_and_taken_over(log: TurnLog) -> None:
    """As what is malformed is told from."""
    content, damage = _export_of(CALL, *_call(_ALL, *_SIZES))
    assert damage == []
    log.import_turnlog(io.BytesIO(content))
    assert log.verify().clean


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("name", _CALLS)
def test_malformed_request_is_damage_and_no_import_takes_it(log: TurnLog, name: str, whole: bool) -> None:
    """The import says so with the line of the call."""
    content, damage = _export_of(CALL, *_CALLS[name])
    assert len(damage) == 1
    if not whole:
        log.add_turn("mine")
    before = [recorded.state for recorded in log.events()]
    with pytest.raises(FormatError) as caught:
        log.import_turnlog(io.BytesIO(content))
    assert caught.value.line == len(content.splitlines())
    assert [recorded.state for recorded in log.events()] == before
