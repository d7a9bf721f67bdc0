"""What an adapter promises about replies: streamed or whole, cut or damaged, to show, to keep, and to send back."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from turnlog.errors import UnsupportedContentError
from turnlog.model import (
    ARGUMENTS,
    Delta,
    Message,
    Native,
    Response,
    Text,
    Thinking,
    ToolUse,
    arguments_text,
    content_bytes,
    decode_content,
    parse_content,
)
from turnlog.providers import Provider, RawEvent
from turnlog.providers.reader import ReplyReader
from turnlog.testing.provider_harness import (
    ProviderHarness,
    SampleReply,
    answers,
    lost,
    message,
    parsed,
    recorded,
    says,
    strings,
    window,
)

ODD_EVENTS: tuple[RawEvent, ...] = (
    b"",
    b"null",
    b"1",
    b'"text"',
    b"[]",
    b"{}",
    b'{"type":null}',
    b'{"object":"turnlog.of_a_later_version","note":["mark-unknown"]}',
    b'{"type":[]}',
    b'{"choices":null,"candidates":null,"delta":null,"message":null,"response":null}',
    b'{"choices":[],"candidates":[],"usage":[]}',
    b'{"choices":[{}],"candidates":[{}],"type":""}',
    b"[" * 10_000,
    b'{"a":' * 10_000,
    b'{"text":"\xff\xfe"}',
    b'{"text":"\\ud800"}',
    b"\x00",
    b"<html>bad gateway</html>",
    b'{"error":"down"}',
    b'{"error":{"message":"down"}}',
    b'{"type":"error","error":{"type":"x","message":"down"}}',
)
"""Events that nobody should send."""

UNREADABLE_EVENTS: tuple[RawEvent, ...] = (b'{"type":"te', b"\xff", b"<html>", b"{}}")
"""Events that are no JSON."""


def text_of(response: Response) -> str:
    """Return what the text blocks of a reply say."""
    return "".join(block.text for block in response.content if isinstance(block, Text))


def thinking_of(response: Response) -> str:
    """Return what the thinking blocks of a reply say."""
    return "".join(block.thinking for block in response.content if isinstance(block, Thinking))


def calls_of(response: Response) -> list[tuple[str, Any]]:
    """Return name and input of each call of a reply."""
    return [(block.name, json.loads(bytes(block.input))) for block in response.content if isinstance(block, ToolUse)]


def shown(deltas: Iterable[Delta]) -> list[tuple[str, str, str]]:
    """Return what deltas show, put together: type, name and content of each block."""
    found: list[tuple[str, str, str]] = []
    for delta in deltas:
        if delta.type is not None:
            found.append((delta.type, delta.name or "", ""))
        assert found, "the first piece of a block has a type"
        content = delta.content if isinstance(delta.content, str) else bytes(delta.content or b"").decode()
        kind, name, before = found[-1]
        found[-1] = (kind, name, before + content)
    return found


def read(reader: ReplyReader, events: Iterable[RawEvent]) -> list[Delta]:
    """Give events to a reader, and return what it shows of them."""
    return [delta for event in events for delta in reader.add(event)]


class ProviderReplies(ProviderHarness):
    """Tests of readers, of `aggregate` and `deltas`, and of replies that go back."""

    # Adding up

    def test_streamed_and_whole_reply_are_equal(self, provider: Provider, reply: SampleReply) -> None:
        """The events of a stream add up to what the same reply says unstreamed, in all that a response has."""
        streamed = provider.aggregate(reply.streamed, model=reply.model)
        whole = provider.aggregate([reply.whole], model=reply.model)
        assert streamed == whole

    def test_reply_says_what_it_says(self, provider: Provider, reply: SampleReply, response: Response) -> None:
        """A response has the reply's text, thinking, calls and native blocks, and says whose it is."""
        assert text_of(response) == reply.text
        assert thinking_of(response) == (reply.thinking or "")
        assert calls_of(response) == [(name, json.loads(text)) for name, text in reply.calls]
        assert sum(isinstance(block, Native) for block in response.content) == reply.natives
        assert (response.provider, response.api) == (provider.provider, provider.api)
        assert response.model == reply.model
        assert (response.stop_reason, response.error) == ("tool_use", None)

    def test_calls_keep_their_spelling_and_are_told_apart(
        self, provider: Provider, reply: SampleReply, response: Response
    ) -> None:
        """The input of a call is the JSON text that the model wrote, without whitespace. Each has its id, if any."""
        calls = [block for block in response.content if isinstance(block, ToolUse)]
        assert [bytes(call.input) for call in calls] == [
            msgspec.json.format(text.encode(), indent=-1) for _, text in reply.calls
        ]
        if provider.capabilities.tool_id_pattern is not None:
            assert len({call.id for call in calls}) == len(calls)

    def test_what_can_go_back_says_whose_it_is(self, response: Response) -> None:
        """Thinking and native blocks name provider, api and model themselves."""
        for block in response.content:
            if isinstance(block, Thinking | Native):
                assert (block.provider, block.api, block.model) == (response.provider, response.api, response.model)

    def test_usage_adds_up(self, response: Response) -> None:
        """The tokens of a reply are counted, none twice, and what the provider reported is kept."""
        assert response.usage is not None
        assert response.usage.output_tokens > 0
        assert response.usage.total_tokens == sum(msgspec.structs.asdict(response.usage).values())
        assert response.raw_usage is not None
        assert isinstance(msgspec.json.decode(response.raw_usage), dict)

    def test_reply_says_what_the_sample_says_of_it(self, reply: SampleReply, response: Response) -> None:
        """What it took, each count in its place, and the provider's word for why it ended."""
        if reply.usage is not None:
            assert response.usage == reply.usage
        if reply.raw_stop_reason is not None:
            assert response.raw_stop_reason == reply.raw_stop_reason

    def test_error_that_the_provider_tells_is_that_of_the_reply(self, provider: Provider, reply: SampleReply) -> None:
        """With what it says."""
        if reply.failing:
            response = provider.aggregate(reply.failing, model=reply.model)
            assert response.stop_reason == "error"
            assert response.error is not None
            said = [" ".join(text.split()) for text in strings(parsed(reply.failing[-1]))]
            told = response.error.message
            assert any(text in told for text in said), f"{told!r} has nothing of {said}"

    def test_reply_that_is_cut_says_so(self, provider: Provider, reply: SampleReply) -> None:
        """It is no reply that the model ended."""
        if reply.cut:
            response = provider.aggregate(reply.cut, model=reply.model)
            assert (response.stop_reason, response.error) == ("length", None)
            assert text_of(response)

    def test_response_can_be_written_and_recorded(self, response: Response) -> None:
        """A response is JSON, with the role of the one who speaks; its blocks come back from a payload as they were."""
        record = json.loads(msgspec.json.encode(response.to_record()))
        assert (record["message"]["role"], record["message"]["stop_reason"]) == ("assistant", "tool_use")
        assert len(record["message"]["content"]) == len(response.content)
        payload = content_bytes(response.content)
        assert parse_content(payload) == payload
        assert tuple(decode_content(payload)) == response.content

    def test_reader_may_be_asked_in_the_middle(self, provider: Provider, reply: SampleReply) -> None:
        """After each event, and again, a reader has what the events so far add up to; asking changes nothing."""
        reader = provider.reader(model=reply.model)
        for count in range(len(reply.streamed) + 1):
            if count:
                reader.add(reply.streamed[count - 1])
            so_far = self.adapter().aggregate(reply.streamed[:count], model=reply.model)
            assert reader.response() == so_far, f"after {count} events"
            assert reader.response() == so_far, f"after {count} events, asked again"

    def test_replies_are_not_mixed_up(self, provider: Provider, reply: SampleReply) -> None:
        """An adapter keeps nothing of a reply: readers side by side, one of them cut short, give what each gives."""
        expected = self.adapter().aggregate(reply.streamed, model=reply.model)
        first, cut, last = (provider.reader(model=reply.model) for _ in range(3))
        for place, event in enumerate(reply.streamed):
            for reader in (first, cut, last) if place < len(reply.streamed) // 2 else (first, last):
                reader.add(event)
        assert (first.response(), last.response()) == (expected, expected)
        assert cut.response().stop_reason == "error"

    # Streams that break off

    def test_cut_stream_is_an_error_with_what_had_arrived(self, provider: Provider, reply: SampleReply) -> None:
        """A stream without its end, wherever it is cut, gives what had come, and an error that may pass."""
        complete = len(reply.streamed) if reply.complete is None else reply.complete
        longest: tuple[str, str, int] = ("", "", 0)
        for count in range(complete):
            cut = provider.aggregate(reply.streamed[:count], model=reply.model)
            assert cut.stop_reason == "error", f"after {count} events"
            assert cut.error is not None
            assert cut.error.retryable
            assert cut.error.message
            assert reply.text.startswith(text_of(cut))
            assert (reply.thinking or "").startswith(thinking_of(cut))
            now = (text_of(cut), thinking_of(cut), len(cut.content))
            assert all(len(a) <= len(b) for a, b in zip(longest[:2], now[:2], strict=True)), "less than before"
            assert longest[2] <= now[2], "less than before"
            longest = now
            assert tuple(decode_content(content_bytes(cut.content))) == cut.content
        assert longest[:2] == (reply.text, reply.thinking or "")

    def test_stream_is_complete_with_its_end(self, provider: Provider, reply: SampleReply) -> None:
        """From the event that ends the reply on, it is no error, and its content is whole."""
        complete = len(reply.streamed) if reply.complete is None else reply.complete
        expected = provider.aggregate(reply.streamed, model=reply.model)
        for count in range(complete, len(reply.streamed) + 1):
            found = provider.aggregate(reply.streamed[:count], model=reply.model)
            assert (found.content, found.stop_reason, found.error) == (expected.content, "tool_use", None)

    @pytest.mark.parametrize("broken", UNREADABLE_EVENTS)
    def test_event_that_is_not_json_is_an_error_and_the_rest_is_kept(
        self, provider: Provider, reply: SampleReply, broken: bytes
    ) -> None:
        """Wherever it comes, a reader does not raise and shows nothing of it: the response has the error, and the rest.

        Nothing of the rest is shown in another way.
        """
        expected = provider.aggregate(reply.streamed, model=reply.model)
        shown_of_all = shown(read(provider.reader(model=reply.model), reply.streamed))
        for place in range(len(reply.streamed) + 1):
            reader = provider.reader(model=reply.model)
            before = read(reader, reply.streamed[:place])
            assert list(reader.add(broken)) == []
            assert shown([*before, *read(reader, reply.streamed[place:])]) == shown_of_all
            found = reader.response()
            assert (found.stop_reason, found.content) == ("error", expected.content)
            assert found.error is not None
            assert found.error.message
            events = [*reply.streamed[:place], broken, *reply.streamed[place:]]
            assert provider.aggregate(events, model=reply.model) == found

    @pytest.mark.parametrize("odd", ODD_EVENTS, ids=lambda odd: repr(odd[:16]))
    def test_no_event_makes_adding_up_raise(self, provider: Provider, reply: SampleReply, odd: bytes) -> None:
        """Whatever a provider sends, alone or in the middle, a response comes back, with what was said before."""
        before = reply.streamed[: len(reply.streamed) // 2]
        text = text_of(provider.aggregate(before, model=reply.model))
        assert provider.aggregate([odd], model=reply.model).stop_reason == "error"
        assert text_of(provider.aggregate([*before, odd], model=reply.model)) == text
        whole = provider.aggregate([*before, odd, *reply.streamed[len(before) :]], model=reply.model)
        assert text_of(whole).startswith(text)

    def test_damaged_streams_never_raise(self, provider: Provider, reply: SampleReply) -> None:
        """Events lost, doubled, out of order or cut short: a response that can be recorded comes back."""
        for seed in range(200):
            chance = random.Random(seed)
            events = list(reply.streamed)
            for _ in range(chance.randint(1, 4)):
                index = chance.randrange(len(events))
                match chance.randrange(4):
                    case 0 if len(events) > 1:
                        del events[index]
                    case 1:
                        events.insert(chance.randrange(len(events) + 1), events[index])
                    case 2:
                        events[index] = events[index][: chance.randrange(len(events[index]) + 1)]
                    case _:
                        chance.shuffle(events)
            found = provider.aggregate(events, model=reply.model)
            assert tuple(decode_content(content_bytes(found.content))) == found.content

    # Deltas

    def test_deltas_add_up_to_the_reply(self, provider: Provider, reply: SampleReply) -> None:
        """Pieces put together, by one reader, event by event alone, or of the whole reply, say what the response says.

        Each can be written as JSON.
        """
        alone = [delta for event in reply.streamed for delta in provider.deltas(event)]
        whole = provider.deltas(reply.whole)
        for deltas in (read(provider.reader(model=reply.model), reply.streamed), alone, whole):
            assert all(isinstance(json.loads(msgspec.json.encode(delta)), dict) for delta in deltas)
            found = shown(deltas)
            assert "".join(content for kind, _, content in found if kind == "text") == reply.text
            assert "".join(content for kind, _, content in found if kind == "thinking") == (reply.thinking or "")
            calls = [(name, json.loads(content or "{}")) for kind, name, content in found if kind == "tool_use"]
            assert calls == [(name, json.loads(text)) for name, text in reply.calls]

    def test_deltas_come_as_the_text_comes(self, provider: Provider, reply: SampleReply) -> None:
        """Text is shown event by event: not all of it comes with one, where the stream has it in several."""
        reader = provider.reader(model=reply.model)
        pieces = [len(reader.add(event)) for event in reply.streamed]
        assert sum(1 for count in pieces if count) > 1

    def test_deltas_of_an_event_depend_on_it_alone(self, provider: Provider, reply: SampleReply) -> None:
        """An event shows the same, whatever was shown before."""
        forward = [list(provider.deltas(event)) for event in reply.streamed]
        backward = [list(self.adapter().deltas(event)) for event in reversed(reply.streamed)]
        assert forward == backward[::-1]

    # Back again

    def test_reply_goes_back_unchanged_to_its_model(
        self, provider: Provider, reply: SampleReply, response: Response
    ) -> None:
        """A reply that was recorded goes back to its model with every text, signature, call and native block.

        A wire that has the arguments of calls as text gets them as the model spelled them.
        """
        turns = (message("user", "hi", turn="ask"), recorded(response), answers(response))
        request = provider.prepare_request(window(*turns), model=reply.model, on_loss="report")
        body = parsed(request.body)
        kept = self._kept_thinking(provider, response)
        thoughts = [n for n, block in enumerate(response.content) if isinstance(block, Thinking) and block not in kept]
        assert lost(request.loss_report) == [("reply", "thinking", index) for index in thoughts]
        for block in response.content:
            match block:
                case Text():
                    assert says(body, block.text)
                case ToolUse():
                    spelled = arguments_text(block)
                    assert (ARGUMENTS not in block.extra and bytes(block.input) in request.body) or says(body, spelled)
                    assert ARGUMENTS.encode() not in request.body
                    assert says(body, block.name)
                case Native():
                    assert _is_in(block.block, request.body)
                case _:
                    pass
        for thought in kept:
            assert thought.redacted or says(body, thought.thinking)
            assert thought.signature is None or says(body, thought.signature)
        assert says(body, "mark-result-0")
        assert says(body, "mark-result-1")

    @staticmethod
    def _kept_thinking(provider: Provider, response: Response) -> list[Thinking]:
        wanted = provider.capabilities.thinking
        thoughts = [block for block in response.content if isinstance(block, Thinking)]
        return [block for block in thoughts if wanted == "all" or (wanted == "signed" and block.signature)]

    def test_recorded_reply_gives_the_same_request(
        self, provider: Provider, reply: SampleReply, response: Response
    ) -> None:
        """A reply from the log, and one that never was in it, give the same bytes; so do streamed and whole ones."""
        whole = provider.aggregate([reply.whole], model=reply.model)
        again = msgspec.structs.replace(
            response, content=tuple(decode_content(parse_content(content_bytes(response.content))))
        )
        bodies = {
            self.adapter()
            .prepare_request(window(recorded(one), answers(one)), model=reply.model, on_loss="report")
            .body
            for one in (response, whole, again)
        }
        assert len(bodies) == 1

    def test_reply_goes_to_another_model_without_what_is_its_own(
        self, provider: Provider, reply: SampleReply, response: Response
    ) -> None:
        """Another model gets text, calls and results; thinking and native blocks are dropped and reported."""
        turns = (message("user", "hi", turn="ask"), recorded(response), answers(response))
        request = provider.prepare_request(window(*turns), model="another-model", on_loss="report")
        body = parsed(request.body)
        own = [
            ("reply", "thinking" if isinstance(block, Thinking) else "native", index)
            for index, block in enumerate(response.content)
            if isinstance(block, Thinking | Native)
        ]
        found = [entry for entry in lost(request.loss_report, "dropped") if entry[1] in ("thinking", "native")]
        assert found == own
        for block in response.content:
            if isinstance(block, Thinking):
                assert block.signature is None or not says(body, block.signature)
            elif isinstance(block, Text):
                assert says(body, block.text)
        for name, _ in reply.calls:
            assert says(body, name)
        assert says(body, "mark-result-0")
        assert says(body, "mark-result-1")
        if own:
            with pytest.raises(UnsupportedContentError) as caught:
                provider.prepare_request(window(*turns), model="another-model", on_loss="error")
            assert (caught.value.provider, caught.value.turn) == (provider.name, "reply")

    def test_cut_reply_goes_back_too(self, provider: Provider, reply: SampleReply) -> None:
        """What had arrived of a reply that broke off can be part of a window, to its model and to another."""
        for count in range(1, len(reply.streamed)):
            cut = provider.aggregate(reply.streamed[:count], model=reply.model)
            turns: list[Message] = [
                message("user", "hi", turn="ask"),
                recorded(cut),
                message("user", "go on", turn="x"),
            ]
            for model in (reply.model, "another-model"):
                request = self.adapter().prepare_request(window(*turns), model=model, on_loss="report")
                body = parsed(request.body)
                assert says(body, "go on")
                assert says(body, text_of(cut))


def _is_in(raw: Raw, body: bytes) -> bool:
    """Return whether raw JSON text stands in a body as it is, or its fields do, spelled as they are."""
    if bytes(raw) in body:
        return True
    fields = msgspec.json.decode(raw, type=dict[str, Raw])
    return all(bytes(value) in body for value in fields.values())
