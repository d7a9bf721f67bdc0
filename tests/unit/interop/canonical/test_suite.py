"""The promises of all adapters, kept by the adapter of a provider that is one function."""

from __future__ import annotations

from typing import NoReturn

import msgspec

from turnlog.interop.canonical import (
    AgentContext,
    AssistantMessage,
    CompleteProvider,
    TextContent,
    ThinkingContent,
    ToolCall,
    Usage,
    provider_of,
    to_json,
)
from turnlog.testing import ProviderSuite, SampleReply

CALLS = (
    ToolCall(id="call_1", name="files___read", arguments={"path": "a", "head": 1.5}),
    ToolCall(id="call_2", name="clock___now", arguments={}),
)


def nobody(context: AgentContext) -> NoReturn:
    """Answer nothing: the suite asks nobody."""
    raise AssertionError(context)


class TestCompleteProvider(ProviderSuite):
    """The suite that turnlog ships for adapters, but for what is of streams and of keys spelled another way."""

    # A reply is one message, so that nothing of it comes before the rest.
    test_cut_stream_is_an_error_with_what_had_arrived = None
    test_event_that_is_not_json_is_an_error_and_the_rest_is_kept = None
    test_unknown_event_changes_nothing = None
    test_deltas_come_as_the_text_comes = None
    # These look for keys that end with `_id`. The key here is `tool-call-id`, and `test_provider` looks at it.
    test_results_of_one_turn_go_with_their_calls = None
    test_text_beside_results_is_behind_them = None
    test_results_spread_over_turns_are_brought_together = None
    test_late_result_comes_before_what_was_said_meanwhile = None
    test_id_used_again_goes_with_its_own_result = None
    test_id_of_another_provider_has_the_form_of_the_wire = None
    test_ids_that_differ_only_in_what_is_refused_stay_apart = None
    test_calls_without_ids_are_paired_by_name = None
    # A context has text alone.
    test_images_in_results_are_seen = None
    # A context has no place for a parameter that no one knows. It is refused, or lost in the open: see `test_provider`.
    test_parameters_reach_the_body = None
    # It says neither model nor stream, and its keys are sorted: tools come behind messages.
    model_in_body = stream_in_body = False
    test_messages_come_last = None
    # A message with a field that its format has not is refused, with the name of the field: see below.
    test_unknown_field_of_a_call_is_kept = None
    test_unknown_field_of_a_text_is_kept = None
    test_unknown_field_of_a_reply_is_kept = None

    def adapter(self) -> CompleteProvider:
        """Return a fresh adapter."""
        return provider_of(nobody, provider="mine")

    def sample(self) -> SampleReply:
        """Return a reply."""
        message = AssistantMessage(
            content=[
                ThinkingContent(thinking="I think.", thinking_signature="s=="),
                TextContent(text="I look."),
                *CALLS,
            ],
            timestamp=1,
            model="m-1",
            stop_reason="tool-use",
            usage=Usage(input=1, output=2),
        )
        return SampleReply(
            model="m-1",
            streamed=(to_json(message),),
            whole=to_json(message),
            text="I look.",
            calls=(("files___read", '{"path":"a","head":1.5}'), ("clock___now", "{}")),
            thinking="I think.",
        )

    def test_unknown_field_is_named(self) -> None:
        """Nothing is dropped in silence: the reply is an error that says which field."""
        sample = self.sample()
        whole = sample.whole.replace(b'{"role"', b'{"of_a_later_version":1,"role"', 1)
        assert whole != sample.whole
        found = self.adapter().aggregate([whole], model="m-1")
        assert (found.stop_reason, found.error is not None) == ("error", True)
        assert "of_a_later_version" in msgspec.json.encode(found.error).decode()
