"""What an adapter promises about what no API sends yet: events that nobody knows, and fields of those it knows."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any, cast

import msgspec
import pytest

from turnlog.model import Block, Delta, Response, Text, Thinking, content_bytes
from turnlog.providers import Provider, RawEvent
from turnlog.testing.provider_harness import ProviderHarness, SampleReply
from turnlog.testing.provider_replies import read

UNKNOWN_EVENT: RawEvent = b'{"type":"turnlog.of_a_later_version","text":"mark-unknown","index":0}'
"""An event that no API sends today. Later versions of it may send others."""


def _with_unknown_field(event: RawEvent, names: Collection[str], *, around: bool = False) -> RawEvent:
    """Return an event with one more field beside each of some texts, or `around` the object that has it."""
    changed = False

    def has_name(value: Any) -> bool:
        return isinstance(value, dict) and any(
            isinstance(part, str) and part in names for part in cast("dict[str, Any]", value).values()
        )

    def add(fields: dict[str, Any]) -> dict[str, Any]:
        nonlocal changed
        if any(map(has_name, fields.values())) if around else has_name(fields):
            changed = True
            return fields | {"of_a_later_version": "mark-unknown"}
        return fields

    given = json.loads(event, object_hook=add)
    return json.dumps(given).encode() if changed else event


def _text_in(block: Block, kind: str) -> str:
    """Return what a block says that is of a kind, `text` or `thinking`; nothing of any other."""
    match block:
        case Text() if kind == "text":
            return block.text
        case Thinking() if kind == "thinking":
            return block.thinking
        case _:
            return ""


def _pieces(deltas: Iterable[Delta], kind: str) -> list[str]:
    """Return the pieces of text that deltas of a kind show."""
    found: list[str] = []
    now = ""
    for delta in deltas:
        now = delta.type or now
        if now == kind and isinstance(delta.content, str) and delta.content:
            found.append(delta.content)
    return found


class ProviderUnknowns(ProviderHarness):
    """Tests of replies as later versions of an API may send them."""

    def test_unknown_event_changes_nothing(self, provider: Provider, reply: SampleReply) -> None:
        """An event of a type that no one knows yet leaves the response as it is, but for `extra`, and shows nothing."""
        expected = provider.aggregate(reply.streamed, model=reply.model)
        for place in range(len(reply.streamed) + 1):
            events = [*reply.streamed[:place], UNKNOWN_EVENT, *reply.streamed[place:]]
            found = provider.aggregate(events, model=reply.model)
            assert msgspec.structs.replace(found, extra=expected.extra) == expected, f"before event {place}"
        assert list(provider.reader().add(UNKNOWN_EVENT)) == []

    @pytest.mark.parametrize("form", ["streamed", "whole", "around"])
    def test_unknown_field_of_a_call_is_kept(self, provider: Provider, reply: SampleReply, form: str) -> None:
        """What stands beside a call's name is in the response, and what stands beside the object that has the name.

        Later versions of an API send more with a call than today's, and the model may have to be sent it again.
        """
        names = {name for name, _ in reply.calls}
        events = reply.streamed if form == "streamed" else [reply.whole]
        marked = [_with_unknown_field(event, names, around=form == "around") for event in events]
        if form != "around":
            assert marked != list(events), "no event has the name of a call"
        if marked != list(events):
            found = provider.aggregate(marked, model=reply.model)
            kept = [block for block in found.content if b"mark-unknown" in content_bytes([block])]
            assert len(kept) == len(reply.calls), "a call has lost what was said with it"

    @pytest.mark.parametrize("form", ["streamed", "whole"])
    @pytest.mark.parametrize("kind", ["text", "thinking"])
    def test_unknown_field_of_a_text_is_kept(
        self, provider: Provider, reply: SampleReply, response: Response, form: str, kind: str
    ) -> None:
        """What stands beside what was said, or thought, is in the response: in a block's `extra`, or in its own.

        In a stream it stands beside each piece and, where a wire has that too, beside the whole.
        """
        texts = {text for block in response.content if (text := _text_in(block, kind))}
        if not texts:
            pytest.skip(f"the sample has no {kind}")
        texts.update(_pieces(read(provider.reader(model=reply.model), reply.streamed), kind))
        events = reply.streamed if form == "streamed" else [reply.whole]
        marked = [_with_unknown_field(event, texts) for event in events]
        if marked == list(events):
            pytest.skip(f"no event has a {kind} as it is in the response")
        found = provider.aggregate(marked, model=reply.model)
        assert b"mark-unknown" in msgspec.json.encode(found), f"what stood beside a {kind} is lost"
        shows = "".join(_pieces(read(provider.reader(model=reply.model), marked), kind))
        assert "mark-unknown" not in shows, "what stood beside it is shown as if it was said"

    def test_unknown_field_of_a_reply_is_kept(self, provider: Provider, reply: SampleReply) -> None:
        """What stands beside the fields of a whole reply is in the response: in its `extra`, or in that of a block."""
        fields = json.loads(reply.whole) | {"of_a_later_version": "mark-unknown"}
        found = provider.aggregate([json.dumps(fields).encode()], model=reply.model)
        assert b"mark-unknown" in msgspec.json.encode(found)
