"""What an adapter promises about bodies: the same bytes at any time, prefixes, JSON, and all that was said."""

from __future__ import annotations

import copy
import json
import random
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import msgspec
import pytest

from turnlog.errors import ContentError, UnsupportedContentError
from turnlog.model import Message, Response
from turnlog.model.chunked import Chunked
from turnlog.model.window import ContextWindow
from turnlog.providers import Capabilities, PreparedRequest, Provider
from turnlog.testing.provider_harness import (
    TOOLS,
    ProviderHarness,
    call,
    conversation,
    leaves,
    lost,
    message,
    objects,
    parsed,
    place,
    result,
    says,
    strings,
    window,
)
from turnlog.web_address import parsed as parsed_address

IN_ORDER = (
    "mark-first",
    "mark-second",
    "mark-result-0",
    "mark-answer",
    "mark-next",
    "mark-c1",
    "mark-r1",
    "mark-beside",
    "mark-more",
    "mark-last",
)


def prepare(provider: Provider, messages: list[Message] | Chunked[Message], **arguments: Any) -> PreparedRequest:
    """Return the request of messages, losses allowed, with two tools."""
    asked: dict[str, Any] = {"model": "model-a", "on_loss": "report"} | arguments
    return provider.prepare_request(ContextWindow(messages=messages, options={}), TOOLS, **asked)


def together(request: PreparedRequest) -> tuple[bytes, object]:
    """Return all that must be the same: the body, and what is not in it."""
    return request.body, request.loss_report


def _has_properties(value: dict[str, Any], *names: str) -> bool:
    """Return whether values are a schema with properties of some names, under whatever key its wire has them."""
    return any(isinstance(inner, dict) and {*names} <= {*inner} for inner in value.values())


def _unlike(offered: Any, sent: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Iterate over the places in a schema at which another one has not the same value. Case does not count in texts."""
    if isinstance(offered, dict):
        for name, inner in cast("dict[str, Any]", offered).items():
            there = cast("dict[str, Any]", sent).get(name, _MISSING) if isinstance(sent, dict) else _MISSING
            yield from _unlike(inner, there, (*path, name))
    elif isinstance(offered, str) and isinstance(sent, str):
        if offered.casefold() != sent.casefold():
            yield path
    elif offered != sent or type(offered) is not type(sent):
        yield path


_MISSING = object()


class ProviderRequests(ProviderHarness):
    """Tests of `prepare_request`."""

    # What it says of itself

    def test_adapter_says_what_it_is(self, provider: Provider) -> None:
        """By the attributes that calls and turns record, and those that reaching it takes. One may need no key."""
        for field in ("name", "provider", "api", "version", "key_variable"):
            value = getattr(provider, field, None)
            assert isinstance(value, str), f"{field} is {value!r}: give a text"
            assert value or field == "key_variable", f"{field} is empty"
        assert isinstance(getattr(provider, "capabilities", None), Capabilities)
        own = ("_models", "_open", "_aopen")
        reaches = all(getattr(type(provider), name) is not getattr(Provider, name) for name in own)
        assert hasattr(provider, "client") or reaches, f"give it a client, or {', '.join(own)}"
        assert provider.base_url is None or parsed_address(provider.base_url) is not None

    def test_nothing_is_printed(
        self, provider: Provider, response: Response, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """What a program prints is its own."""
        prepare(provider, conversation(provider, response))
        assert capfd.readouterr() == ("", "")

    # The same bytes

    @pytest.mark.parametrize("stream", [True, False])
    def test_body_is_json_and_says_everything_in_its_order(
        self, provider: Provider, response: Response, stream: bool
    ) -> None:
        """A body is its parts, JSON in UTF-8, no key twice, and all that the conversation says is in it, in order."""
        request = prepare(provider, conversation(provider, response), stream=stream)
        body = parsed(request.body)
        assert request.body == request.head + b"".join(request.messages) + request.closing
        assert request.stream is stream
        assert (request.adapter, request.version) == (provider.name, provider.version)
        assert (request.provider, request.api, request.model) == (provider.provider, provider.api, "model-a")
        assert says(body, "mark-system")
        assert says(body, 'mark-äöü \u2028 🌿 " \\ \n\t')
        places = [place(request, mark) for mark in IN_ORDER]
        assert places == sorted(places)

    def test_who_said_something_is_in_the_body(self, provider: Provider) -> None:
        """Two conversations that differ in a role alone have other bodies."""
        around = [message("user", "mark-before", turn="1"), message("user", "mark-after", turn="3")]
        bodies = {
            role: prepare(provider, [around[0], message(role, "mark-said", turn="2"), around[1]]).body
            for role in ("user", "assistant", "system")
        }
        assert len(set(bodies.values())) == len(bodies)

    def test_results_of_a_turn_stand_in_their_order(self, provider: Provider) -> None:
        """That of their calls."""
        names = [f"c.{number}" for number in range(4)]
        calls = [call(name, f"mark-asked-{name}") for name in names]
        results = [result(name, f"mark-told-{name}") for name in names]
        messages = [
            message("user", "mark-first", turn="1"),
            message("assistant", *calls, turn="2"),
            message("user", *results, turn="3"),
        ]
        body = prepare(provider, messages).body.decode()
        for mark in ("mark-asked", "mark-told"):
            places = [body.index(f"{mark}-{name}") for name in names]
            assert places == sorted(places), mark

    def test_body_says_what_is_asked_for(self, provider: Provider) -> None:
        """Which model, and whether to stream, unless that is said elsewhere."""
        messages = [message("user", "hi", turn="1")]
        plain = prepare(provider, messages, model="model-a", stream=True).body
        assert (prepare(provider, messages, model="model-b", stream=True).body != plain) is self.model_in_body
        assert (prepare(provider, messages, model="model-a", stream=False).body != plain) is self.stream_in_body

    def test_messages_come_last(self, provider: Provider, response: Response) -> None:
        """Behind them is nothing but closing brackets, so that a longer conversation has the same beginning."""
        for params in ({}, {"temperature": 0.5, "x_unknown": "mark-unknown"}):
            assert prepare(provider, conversation(provider, response), params=params).closing.strip(b"]} \n") == b""

    def test_asking_again_gives_the_same(self, provider: Provider, response: Response) -> None:
        """An adapter that prepared a window before, and one that knows nothing of it, prepare it as it was prepared."""
        messages = conversation(provider, response)
        first = together(prepare(provider, messages))
        assert together(prepare(provider, messages)) == first
        assert together(prepare(self.adapter(), messages)) == first

    def test_growing_and_shrinking_conversation_is_prepared_as_from_scratch(self, response: Response) -> None:
        """Turn by turn, back again, or all at once: the same bytes, and the same losses."""
        warm = self.adapter()
        messages = conversation(self.adapter(), response)
        fresh = [together(prepare(self.adapter(), messages[:count])) for count in range(1, len(messages) + 1)]
        source: Chunked[Message] = Chunked()
        for count, one in enumerate(messages, start=1):
            source = source.extended([one])
            assert together(prepare(warm, source)) == fresh[count - 1], f"after {count} turns"
        for count in range(len(messages), 0, -1):
            assert together(prepare(warm, messages[:count])) == fresh[count - 1], f"of {count} turns"

    def test_conversations_and_models_are_not_mixed_up(self, response: Response) -> None:
        """Many conversations, models and parameters in turn give what each gives alone."""
        warm = self.adapter()
        one = conversation(self.adapter(), response)
        other = [message("user", "mark-other", turn="x"), *one[1:]]
        asked = [
            (messages[:count], {"model": model, "stream": stream, "on_loss": on_loss})
            for messages in (one, other)
            for count in (3, 6, len(one))
            for model in (response.model, "model-b")
            for stream in (True, False)
            for on_loss in (None, "report")
        ]
        random.Random(1).shuffle(asked)
        for messages, arguments in asked:
            fresh = together(prepare(self.adapter(), messages, **arguments))
            assert together(prepare(warm, messages, **arguments)) == fresh

    def test_many_threads_prepare_the_same(self, response: Response) -> None:
        """Threads that share an adapter, on conversations of all lengths, get what a fresh one gives."""
        shared = self.adapter()
        messages = conversation(self.adapter(), response)
        lengths = [*range(1, len(messages) + 1)] * 8
        expected = {count: together(prepare(self.adapter(), messages[:count])) for count in lengths}
        random.Random(2).shuffle(lengths)
        together_now = threading.Barrier(8)

        def work(counts: list[int]) -> list[tuple[bytes, object]]:
            together_now.wait()
            return [together(prepare(shared, messages[:count])) for count in counts]

        share = len(lengths) // 8
        with ThreadPoolExecutor(8) as pool:
            parts = [lengths[start : start + share] for start in range(0, share * 8, share)]
            found = [answer for answers in pool.map(work, parts) for answer in answers]
        assert found == [expected[count] for count in lengths[: share * 8]]

    # Prefixes

    def test_longer_conversation_keeps_the_prefix(self, provider: Provider, response: Response) -> None:
        """The body of a longer conversation starts with that of the shorter one, up to its closing brackets."""
        messages = conversation(provider, response)
        shorter = prepare(self.adapter(), messages[:1])
        for count in range(2, len(messages) + 1):
            longer = prepare(self.adapter(), messages[:count])
            if messages[count - 1].turn in ("t3", "t7"):
                continue  # a call at the end is answered by a made-up result, which the real one replaces
            kept = shorter.body[: len(shorter.body) - len(shorter.closing)]
            assert longer.body.startswith(kept), f"after {count} turns"
            assert list(longer.messages)[: len(shorter.messages)] == list(shorter.messages)
            shorter = longer

    def test_made_up_results_are_all_that_a_longer_conversation_replaces(self, provider: Provider) -> None:
        """Up to the call that nobody answered yet, the prefix is kept too."""
        messages = [
            message("user", "mark-first", turn="t1"),
            message("assistant", "mark-look", call("a", "mark-a"), turn="t2"),
            message("user", result("a", "mark-result"), turn="t3"),
        ]
        open_call, answered = prepare(provider, messages[:2]), prepare(provider, messages)
        upto = place(open_call, "mark-a") + 1
        assert list(answered.messages)[:upto] == list(open_call.messages)[:upto]
        assert lost(open_call.loss_report, "synthesised") == [("t2", "tool_result", None)]
        assert lost(answered.loss_report) == []

    # Turns of all sorts

    def test_consecutive_turns_of_one_role_are_all_there(self, provider: Provider) -> None:
        """Turns of one role in a row, at the beginning, in the middle and at the end, are all in the body, in order."""
        roles = ["user", "user", "user", "assistant", "assistant", "user", "user"]
        messages = [message(role, f"mark-{n}", turn=f"t{n}") for n, role in enumerate(roles)]
        request = prepare(provider, messages)
        places = [place(request, f"mark-{n}") for n in range(len(roles))]
        assert places == sorted(places)
        assert lost(request.loss_report) == []

    def test_conversation_may_begin_with_the_assistant(self, provider: Provider) -> None:
        """A conversation that the assistant begins is prepared, its first turn included."""
        request = prepare(provider, [message("assistant", "mark-a", turn="1"), message("user", "mark-b", turn="2")])
        assert [mark for mark in ("mark-a", "mark-b") if not says(parsed(request.body), mark)] == []

    def test_several_texts_of_a_turn_are_all_there(self, provider: Provider) -> None:
        """Each text block of a turn is in the body, in order."""
        for role in ("user", "assistant", "system"):
            texts = [f"mark-{role}-{n}" for n in range(4)]
            messages = [message("user", "hi", turn="0"), message(role, *texts, turn="1")]
            body = prepare(provider, messages).body.decode()
            found = [body.find(text) for text in texts]
            assert found == sorted(found)
            assert min(found) >= 0

    @pytest.mark.parametrize("role", ["user", "assistant", "system"])
    def test_turn_without_content_is_passed_over(self, provider: Provider, role: str) -> None:
        """A turn without blocks, or of empty text, leaves a body of the rest; the empty text is reported."""
        around = [message("user", "mark-before", turn="1"), message("user", "mark-after", turn="3")]
        empty = prepare(provider, [around[0], message(role, turn="2"), around[1]])
        blank = prepare(provider, [around[0], message(role, "", turn="2"), around[1]])
        assert empty.body == prepare(provider, around).body == blank.body
        assert lost(empty.loss_report) == []
        assert lost(blank.loss_report) == [("2", "text", 0)]

    def test_system_turns_are_all_there_in_order(self, provider: Provider) -> None:
        """System turns, wherever they stand, are in the body, in order; at the top where the wire joins them."""
        messages = [
            message("system", "mark-rule-1", turn="1"),
            message("system", "mark-rule-2", "mark-rule-3", turn="2"),
            message("user", "mark-user", turn="3"),
            message("system", "mark-rule-4", turn="4"),
            message("assistant", "mark-reply", turn="5"),
        ]
        request = prepare(provider, messages)
        places = [request.body.index(f"mark-rule-{n}".encode()) for n in (1, 2, 3, 4)]
        assert places == sorted(places)
        inline = any(says(parsed(part.removeprefix(b",")), "mark-rule") for part in request.messages)
        assert inline == (provider.capabilities.system == "inline")
        assert lost(request.loss_report) == []

    def test_cached_turns_say_the_same(self, provider: Provider, response: Response) -> None:
        """Turns that ask to be cached, more than any wire takes, change no word of the body and lose nothing."""
        messages = conversation(provider, response)
        cached = [msgspec.structs.replace(one, cache=True) for one in messages]
        plain, marked = prepare(provider, messages), prepare(provider, cached)
        texts = set(strings(parsed(plain.body)))
        assert texts <= set(strings(parsed(marked.body)))
        assert marked.loss_report == plain.loss_report

    # Text and numbers as they were

    @pytest.mark.parametrize(
        "text", ["\x00\x01\x7f", "\u2028\u2029\ufeff", '</s>"\\/', "👩‍👩‍👧‍👦", "\r\n", "a" * 100_000]
    )
    def test_text_arrives_as_it_was(self, provider: Provider, text: str) -> None:
        """Any text that UTF-8 can carry is in the body, character by character."""
        messages = [
            message("system", f"<s>{text}</s>", turn="1"),
            message("user", f"<u>{text}</u>", turn="2"),
            message("assistant", f"<a>{text}</a>", call("c", f"<i>{text}</i>"), turn="3"),
            message("user", result("c", f"<r>{text}</r>"), turn="4"),
        ]
        body = parsed(prepare(provider, messages).body)
        inner = list(strings(body))
        inner += [found for text in inner if text.startswith("{") for found in strings(json.loads(text))]
        for tag in "suair":
            assert any(f"<{tag}>{text}</{tag}>" in found for found in inner), tag

    def test_tool_input_is_sent_as_it_was_spelled(self, provider: Provider) -> None:
        """The JSON text of a call's input is spliced in, or is a text of the body: numbers, escapes, order of keys."""
        text = '{"z":1.50,"a":"\\u00e9","n":12345678901234567890123,"e":1e400,"o":{}}'
        content = f'[{{"type":"tool_use","id":"c","name":"files___read","input":{text}}}]'.encode()
        messages = [
            message("user", "hi", turn="1"),
            Message(turn="2", role="assistant", content_json=content),
            message("user", result("c", "ok"), turn="3"),
        ]
        body = prepare(provider, messages).body
        assert text.encode() in body or text in set(strings(json.loads(body)))

    # Tools, search, parameters

    def test_tools_are_offered_under_their_names(self, provider: Provider) -> None:
        """Tools are in the body with name, description and properties; a property called `format` is no keyword."""
        body = parsed(prepare(provider, [message("user", "hi", turn="1")]).body)
        assert {"files___read", "clock___now"} <= set(strings(body))
        assert says(body, "mark-tool")
        assert says(body, "the time")
        [properties] = [found for found in objects(body) if {"path", "format", "head"} <= set(found)]
        assert properties["format"]["enum"] == ["text", "bytes"]

    def test_schema_of_a_tool_is_in_the_body_or_in_the_report(self, provider: Provider) -> None:
        """Each value of it is where it was, or a loss names its keyword: types, descriptions, what is required."""
        request = prepare(provider, [message("user", "hi", turn="1")])
        [sent] = [found for found in objects(parsed(request.body)) if _has_properties(found, "path", "format", "head")]
        named = {word for entry in request.loss_report.entries for word in re.findall(r"[$\w]+", entry.why)}
        offered = json.loads(bytes(TOOLS[0].input_schema))
        assert [".".join(path) for path in _unlike(offered, sent) if path[-1] not in named] == []

    def test_what_the_caller_gave_is_as_it_was(self, provider: Provider) -> None:
        """Parameters, tools and window are the caller's, who may prepare more with them: nothing in them changes."""
        params: dict[str, Any] = {
            "max_tokens": 4711,
            "temperature": 0.5,
            "stop_sequences": ["mark-stop"],
            "tool_choice": "auto",
            "output_schema": {"name": "answer", "schema": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "x_unknown": {"list": [1, {"deep": "mark-deep"}]},
        }
        tools = list(TOOLS)
        options: dict[str, Any] = {"search": False, "tool_mode": "none"}
        messages = [message("system", "mark-s", turn="1"), message("user", "mark-u", turn="2")]
        given = params, tools, options, messages
        before = copy.deepcopy(given)
        asked = ContextWindow(messages=messages, options=options)
        for stream in (True, False):
            provider.prepare_request(asked, tools, model="m", params=params, on_loss="report", stream=stream)
        assert given == before
        assert (asked.messages, asked.options) == (messages, options)

    def test_request_without_tools_offers_none(self, provider: Provider) -> None:
        """No tools are no tools: the body names none."""
        request = provider.prepare_request(window(message("user", "hi", turn="1")), model="m")
        assert not says(parsed(request.body), "files___read")
        assert lost(request.loss_report) == []

    def test_search_is_asked_for_or_refused(self, provider: Provider) -> None:
        """Search is in the body where the wire has it, with tools where it takes both, and is refused elsewhere."""
        messages = (message("user", "hi", turn="1"),)
        for tools, allowed in ((), ("alone", "beside_tools")), (TOOLS, ("beside_tools",)):
            searching = ContextWindow(messages=messages, options={"search": True})
            if provider.capabilities.search in allowed:
                plain = provider.prepare_request(ContextWindow(messages=messages, options={}), tools, model="m")
                assert provider.prepare_request(searching, tools, model="m").body != plain.body
                continue
            with pytest.raises(UnsupportedContentError) as caught:
                provider.prepare_request(searching, tools, model="m")
            assert caught.value.provider == provider.name
            assert provider.name in str(caught.value)

    @pytest.mark.parametrize("choice", ["auto", "none", "required", "files___read"])
    def test_choice_of_tools_is_taken_from_parameters_or_options(self, provider: Provider, choice: str) -> None:
        """The parameter `tool_choice` and the option `tool_mode` say the same; the parameter counts more."""
        messages = (message("user", "hi", turn="1"),)
        option = ContextWindow(messages=messages, options={"tool_mode": choice})
        other = ContextWindow(messages=messages, options={"tool_mode": "none" if choice == "auto" else "auto"})
        asked: list[tuple[ContextWindow, dict[str, Any]]] = [(option, {}), (other, {"tool_choice": choice})]
        requests = [
            provider.prepare_request(given, TOOLS, model="m", params=params, on_loss="report")
            for given, params in asked
        ]
        assert together(requests[0]) == together(requests[1])
        plain = provider.prepare_request(ContextWindow(messages=messages, options={}), TOOLS, model="m")
        told = requests[0].body != plain.body or requests[0].loss_report != plain.loss_report
        assert choice == "auto" or told, "the choice is neither in the body nor in the report"
        named = requests[0].body.count(b"files___read")
        assert choice != "files___read" or named == 2 or "files___read" in requests[0].loss_report.entries[-1].why

    def test_parameters_reach_the_body(self, provider: Provider) -> None:
        """Parameters that all providers know, and one that no one knows, are in the body, or lost in the open."""
        params = {
            "max_tokens": 4711,
            "temperature": 0.123,
            "top_p": 0.456,
            "stop_sequences": ["mark-stop"],
            "x_unknown": "mark-unknown",
        }
        request = prepare(provider, [message("user", "hi", turn="1")], params=params)
        body = parsed(request.body)
        losses = " ".join(entry.why for entry in request.loss_report.entries)
        assert says(body, "mark-unknown")
        for name, value in (("max_tokens", 4711), ("temperature", 0.123), ("top_p", 0.456), ("stop", "mark-stop")):
            assert value in list(leaves(body)) or name in losses, name

    def test_parameter_cannot_overwrite_the_conversation(self, provider: Provider) -> None:
        """A parameter called like a part of the body is refused, or changes nothing of what was said."""
        messages = [message("system", "mark-s", turn="1"), message("user", "mark-u", turn="2")]
        names = set(parsed(prepare(provider, messages).body)) | {"model", "messages", "contents", "input", "stream"}
        for name in sorted(names):
            try:
                body = parsed(prepare(provider, messages, params={name: {"x": "mark-x"}}).body)
            except (ContentError, UnsupportedContentError):
                continue
            assert [mark for mark in ("mark-s", "mark-u", "files___read") if not says(body, mark)] == [], name
            assert name != "model", "the model can be overwritten"
