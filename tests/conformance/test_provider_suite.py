"""The provider suite fails adapters that break a promise: each of these does so in one way, and a test finds it."""

from __future__ import annotations

import inspect
import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.conformance.test_providers import TestPostcard as PostcardSuite
from tests.wires.postcard import Postcard

from turnlog.model import Block, Delta, Document, Native, Response, Text, Thinking, Tool, ToolUse
from turnlog.providers import Carried, Frame, FrameInput, PreparedRequest, Provider, RawEvent
from turnlog.providers.losses import Losses
from turnlog.providers.reader import ReplyReader

_chance = itertools.count()


class Changing(Postcard):
    """Writes another body each time."""

    def _frame(self, given: FrameInput) -> Frame:
        frame = super()._frame(given)
        return msgspec.structs.replace(frame, closing=b'],"nonce":%d}' % next(_chance))


class Counting(Postcard):
    """Says in front how much there is to cache, so that a longer conversation begins in another way."""

    def _with_breakpoints(self, carried: Any, params: Any, losses: Any) -> Sequence[bytes]:
        return [b'{"messages":%d},' % len(carried.messages), *carried.messages]


class Doubled(Postcard):
    """Writes a key twice."""

    def _frame(self, given: FrameInput) -> Frame:
        frame = super()._frame(given)
        return msgspec.structs.replace(frame, closing=b'],"model":"m"}')


class Blind(Postcard):
    """Leaves documents out in silence."""

    def _encode(self, carried: Carried) -> Sequence[bytes]:
        seen = [block for block in carried.blocks if not isinstance(block, Document)]
        return super()._encode(msgspec.structs.replace(carried, blocks=seen))


class Reversed(Postcard):
    """Writes the blocks of a turn in another order."""

    def _encode(self, carried: Carried) -> Sequence[bytes]:
        return super()._encode(msgspec.structs.replace(carried, blocks=carried.blocks[::-1]))


class Respelling(Postcard):
    """Decodes the input of calls and encodes it again."""

    def _sent(self, block: Block) -> Raw:
        if isinstance(block, ToolUse):
            return Raw(
                json.dumps({"type": "tool_use", "id": block.id, "input": json.loads(bytes(block.input))}).encode()
            )
        return super()._sent(block)


class OneId(Postcard):
    """Sends all calls and results under one id."""

    def _sent(self, block: Block) -> Raw:
        return Raw(
            msgspec.json.encode(
                {
                    name: "x" if name in ("id", "tool_use_id") else value
                    for name, value in msgspec.json.decode(super()._sent(block)).items()
                }
            )
        )


class Unsealed(Postcard):
    """Sends thinking back without its seal, and native blocks as something else."""

    def _sent(self, block: Block) -> Raw:
        if isinstance(block, Thinking):
            return Raw(msgspec.json.encode({"type": "thinking", "text": block.thinking}))
        return Raw(b'{"type":"stamp"}') if isinstance(block, Native) else super()._sent(block)


class Renaming(Postcard):
    """Offers tools under other names."""

    def _frame(self, given: FrameInput) -> Frame:
        tools = [msgspec.structs.replace(tool, name=tool.name.replace("___", ".")) for tool in given.tools]
        return super()._frame(msgspec.structs.replace(given, tools=tools))


class Deaf(Postcard):
    """Pays no heed to parameters."""

    def _frame(self, given: FrameInput) -> Frame:
        return super()._frame(msgspec.structs.replace(given, params={}))


class Willing(Postcard):
    """Pays no heed to the choice of tools."""

    def _frame(self, given: FrameInput) -> Frame:
        params = {name: value for name, value in given.params.items() if name != "tool_choice"}
        return super()._frame(msgspec.structs.replace(given, params=params, tool_mode=None))


class Unasked(Postcard):
    """Pays no heed to the wish to search."""

    def _searches(self, losses: Losses) -> bool:
        return False


class Overwritten(Postcard):
    """Lets a parameter take the place of the model."""

    reserved = ("messages", "stream", "tools")

    def _frame(self, given: FrameInput) -> Frame:
        params = dict(given.params)
        return super()._frame(
            msgspec.structs.replace(given, model=str(params.pop("model", given.model)), params=params)
        )


class Trusting(Postcard):
    """Takes a stream that broke off for a whole one."""

    def aggregate(self, events: Iterable[bytes], *, model: str | None = None) -> Response:
        return msgspec.structs.replace(super().aggregate(events, model=model), error=None, stop_reason="tool_use")


class Fragile(Postcard):
    """Raises for an event that it cannot read."""

    def aggregate(self, events: Iterable[bytes], *, model: str | None = None) -> Response:
        read = list(events)
        for event in read:
            msgspec.json.decode(event)
        return super().aggregate(read, model=model)


class Strict(Postcard):
    """Gives up at an event of a type that it does not know."""

    def aggregate(self, events: Iterable[bytes], *, model: str | None = None) -> Response:
        known = itertools.takewhile(lambda event: b"turnlog.of_a_later_version" not in event, events)
        return super().aggregate(known, model=model)


class Anonymous(Postcard):
    """Does not say whose thinking it is, nor what it cost, nor which reply it was of where it came whole."""

    def aggregate(self, events: Iterable[bytes], *, model: str | None = None) -> Response:
        read = list(events)
        found = super().aggregate(read, model=model)
        content = [
            Thinking(thinking=block.thinking, signature=block.signature) if isinstance(block, Thinking) else block
            for block in found.content
        ]
        id = found.id if len(read) > 1 else None
        return msgspec.structs.replace(found, content=tuple(content), usage=None, raw_usage=None, id=id)


class Remembering(Postcard):
    """Shows each event once."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: set[bytes] = set()

    def deltas(self, event: bytes) -> Sequence[Delta]:
        found = super().deltas(event) if event not in self._shown else []
        self._shown.add(event)
        return found if b'"block"' not in event or len(self._shown) % 2 else []


class Reader(ReplyReader):
    """A reader around that of the made-up wire, to be broken."""

    def __init__(self, whole: ReplyReader) -> None:
        super().__init__(whole.sender)
        self.whole = whole

    def add(self, event: RawEvent) -> Sequence[Delta]:
        return self.whole.add(event)

    def response(self) -> Response:
        return self.whole.response()


class Raising(Postcard):
    """Its reader raises for what it cannot read."""

    class Reader(Reader):
        def add(self, event: RawEvent) -> Sequence[Delta]:
            msgspec.json.decode(event)
            return super().add(event)

    def reader(self, *, model: str | None = None) -> ReplyReader:
        return self.Reader(super().reader(model=model))


class Swallowing(Raising):
    """Its reader leaves out in silence what it cannot read."""

    class Reader(Reader):
        def add(self, event: RawEvent) -> Sequence[Delta]:
            try:
                msgspec.json.decode(event)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return ()
            return super().add(event)


class Impatient(Raising):
    """Its reader takes being asked for the end of the stream."""

    class Reader(Reader):
        found: Response | None = None

        def response(self) -> Response:
            self.found = self.found or super().response()
            return self.found


class Mumbling(Raising):
    """Its reader shows the first piece of each block, and no more."""

    class Reader(Reader):
        def add(self, event: RawEvent) -> Sequence[Delta]:
            return [delta for delta in super().add(event) if delta.type]


class Forgetful(Raising):
    """Its reader drops what it does not know of a call."""

    class Reader(Reader):
        def response(self) -> Response:
            found = super().response()
            content = [
                msgspec.structs.replace(block, extra={}) if isinstance(block, ToolUse) else block
                for block in found.content
            ]
            return msgspec.structs.replace(found, content=tuple(content))


class Terse(Raising):
    """Its reader drops what it does not know of a text, or of a thought."""

    class Reader(Reader):
        def response(self) -> Response:
            found = super().response()
            content = [
                msgspec.structs.replace(block, extra={}) if isinstance(block, Text | Thinking) else block
                for block in found.content
            ]
            return msgspec.structs.replace(found, content=tuple(content))


class Blabbing(Raising):
    """Its reader shows what stands beside a text as if it was said."""

    class Reader(Reader):
        def add(self, event: RawEvent) -> Sequence[Delta]:
            return [*super().add(event), *([Delta(content="mark-unknown")] if b"mark-unknown" in event else [])]


class Relaxed(Postcard):
    """Does not say which properties a tool requires, nor that it takes no others."""

    def _frame(self, given: FrameInput) -> Frame:
        return super()._frame(msgspec.structs.replace(given, tools=[_relaxed(tool) for tool in given.tools]))


class Untyped(Postcard):
    """Does not say of what type properties are, nor what they are."""

    def _frame(self, given: FrameInput) -> Frame:
        return super()._frame(msgspec.structs.replace(given, tools=[_untyped(tool) for tool in given.tools]))


class Consuming(Postcard):
    """Takes the caller's parameters out one by one."""

    def prepare_request(self, *arguments: Any, params: Any = None, **options: Any) -> PreparedRequest:
        found = super().prepare_request(*arguments, params=None if params is None else dict(params), **options)
        if params is not None:
            params.clear()
        return found


class Deepening(Postcard):
    """Writes into a parameter of the caller's."""

    def _frame(self, given: FrameInput) -> Frame:
        for value in given.params.values():
            if isinstance(value, dict):
                value["seen"] = True
        return super()._frame(given)


def _with_schema(tool: Tool, change: Callable[[dict[str, Any]], object]) -> Tool:
    schema = json.loads(bytes(tool.input_schema))
    change(schema)
    return msgspec.structs.replace(tool, input_schema=Raw(json.dumps(schema).encode()))


def _relaxed(tool: Tool) -> Tool:
    return _with_schema(tool, lambda schema: [schema.pop(name, None) for name in ("required", "additionalProperties")])


def _untyped(tool: Tool) -> Tool:
    return _with_schema(
        tool,
        lambda schema: [
            given.pop(name, None) for given in schema["properties"].values() for name in ("type", "description")
        ],
    )


class Sharing(Postcard):
    """Has one reader for all replies."""

    shared: ReplyReader | None = None

    def reader(self, *, model: str | None = None) -> ReplyReader:
        self.shared = self.shared or super().reader(model=model)
        return self.shared


BROKEN: list[tuple[type[Provider], str, dict[str, Any]]] = [
    (Changing, "test_asking_again_gives_the_same", {}),
    (Changing, "test_many_threads_prepare_the_same", {}),
    (Changing, "test_conversations_and_models_are_not_mixed_up", {}),
    (Changing, "test_growing_and_shrinking_conversation_is_prepared_as_from_scratch", {}),
    (Counting, "test_longer_conversation_keeps_the_prefix", {}),
    (Doubled, "test_body_is_json_and_says_everything_in_its_order", {"stream": True}),
    (Blind, "test_every_block_is_in_the_body_or_in_the_report", {"role": "user"}),
    (Blind, "test_document_is_carried_or_refused", {"media_type": "image/png", "on_loss": None}),
    (Reversed, "test_several_texts_of_a_turn_are_all_there", {}),
    (Reversed, "test_text_beside_results_is_behind_them", {}),
    (Respelling, "test_tool_input_is_sent_as_it_was_spelled", {}),
    (OneId, "test_results_of_one_turn_go_with_their_calls", {}),
    (OneId, "test_id_used_again_goes_with_its_own_result", {}),
    (OneId, "test_ids_that_differ_only_in_what_is_refused_stay_apart", {}),
    (Unsealed, "test_reply_goes_back_unchanged_to_its_model", {}),
    (Renaming, "test_tools_are_offered_under_their_names", {}),
    (Relaxed, "test_schema_of_a_tool_is_in_the_body_or_in_the_report", {}),
    (Untyped, "test_schema_of_a_tool_is_in_the_body_or_in_the_report", {}),
    (Consuming, "test_what_the_caller_gave_is_as_it_was", {}),
    (Deepening, "test_what_the_caller_gave_is_as_it_was", {}),
    (Deaf, "test_parameters_reach_the_body", {}),
    (Willing, "test_choice_of_tools_is_taken_from_parameters_or_options", {"choice": "none"}),
    (Willing, "test_choice_of_tools_is_taken_from_parameters_or_options", {"choice": "required"}),
    (Unasked, "test_search_is_asked_for_or_refused", {}),
    (Overwritten, "test_parameter_cannot_overwrite_the_conversation", {}),
    (Trusting, "test_cut_stream_is_an_error_with_what_had_arrived", {}),
    (Trusting, "test_event_that_is_not_json_is_an_error_and_the_rest_is_kept", {"broken": b"<html>"}),
    (Raising, "test_event_that_is_not_json_is_an_error_and_the_rest_is_kept", {"broken": b"<html>"}),
    (Swallowing, "test_event_that_is_not_json_is_an_error_and_the_rest_is_kept", {"broken": b"<html>"}),
    (Impatient, "test_reader_may_be_asked_in_the_middle", {}),
    (Sharing, "test_replies_are_not_mixed_up", {}),
    (Mumbling, "test_deltas_add_up_to_the_reply", {}),
    (Fragile, "test_no_event_makes_adding_up_raise", {"odd": b"<html>"}),
    (Fragile, "test_damaged_streams_never_raise", {}),
    (Strict, "test_unknown_event_changes_nothing", {}),
    (Forgetful, "test_unknown_field_of_a_call_is_kept", {"form": "streamed"}),
    (Forgetful, "test_unknown_field_of_a_call_is_kept", {"form": "whole"}),
    (Terse, "test_unknown_field_of_a_text_is_kept", {"form": "streamed", "kind": "text"}),
    (Terse, "test_unknown_field_of_a_text_is_kept", {"form": "whole", "kind": "thinking"}),
    (Blabbing, "test_unknown_field_of_a_text_is_kept", {"form": "streamed", "kind": "text"}),
    (Anonymous, "test_streamed_and_whole_reply_are_equal", {}),
    (Anonymous, "test_what_can_go_back_says_whose_it_is", {}),
    (Anonymous, "test_usage_adds_up", {}),
    (Remembering, "test_deltas_add_up_to_the_reply", {}),
    (Remembering, "test_deltas_of_an_event_depend_on_it_alone", {}),
]


@pytest.mark.parametrize(("broken", "name", "arguments"), BROKEN, ids=lambda value: getattr(value, "__name__", ""))
def test_suite_fails_an_adapter_that_breaks_a_promise(
    broken: type[Provider], name: str, arguments: dict[str, Any]
) -> None:
    """A test of the suite passes the adapter of the made-up wire, and fails the same adapter broken in one way."""
    _run(Postcard, name, arguments)
    with pytest.raises((AssertionError, ValueError, msgspec.DecodeError, pytest.fail.Exception)):
        _run(broken, name, arguments)


def _run(adapter: type[Provider], name: str, arguments: dict[str, Any]) -> None:
    """Run one test of the suite on an adapter, with what its fixtures give."""

    class Suite(PostcardSuite):
        def adapter(self) -> Provider:
            return adapter()

    suite = Suite()
    sample = suite.sample()
    given = {"provider": suite.adapter(), "reply": sample}
    test = getattr(suite, name)
    wanted = inspect.signature(test).parameters
    if "response" in wanted:
        given["response"] = suite.adapter().aggregate(sample.streamed, model=sample.model)
    test(**{key: value for key, value in (given | arguments).items() if key in wanted})
