"""What Gemini's replies say beside the parts of their content is kept, whatever a stream says of it again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw
from tests.unit.providers.gemini.wire import OTHER, OWN, body, candidate, message, prepared, window

from turnlog.model import MALFORMED, Response, Text, ToolUse
from turnlog.providers.gemini import Gemini

FIRST = {
    "groundingChunks": [{"web": {"uri": "https://a.example"}}],
    "groundingSupports": [{"groundingChunkIndices": [0]}],
    "webSearchQueries": ["rain"],
}
SECOND = {
    "groundingChunks": [{"web": {"uri": "https://b.example"}}],
    "groundingSupports": [{"groundingChunkIndices": [0]}],
    "webSearchQueries": ["snow"],
}


def told(*candidates: dict[str, Any]) -> Response:
    """Return what a stream adds up to whose events have these candidates, after one that says `a`."""
    first = {"content": {"parts": [{"text": "a"}], "role": "model"}}
    last = {"finishReason": "STOP"}
    return Gemini().aggregate([json.dumps({"candidates": [one]}).encode() for one in (first, *candidates, last)])


def beside(response: Response) -> dict[str, Any]:
    """Return what stands beside the only text of a reply."""
    [text] = response.content
    assert isinstance(text, Text)
    return {name: json.loads(bytes(value)) for name, value in text.extra.items()}


def test_grounding_that_differs_is_all_kept() -> None:
    """Supports count chunks of their own event: what differs is a list of what was sent."""
    response = told({"groundingMetadata": FIRST}, {"groundingMetadata": SECOND})
    assert beside(response) == {"groundingMetadata": [FIRST, SECOND]}


@pytest.mark.parametrize(
    "more",
    [
        {"searchEntryPoint": {"renderedContent": "<p>"}},
        {"groundingChunks": [*FIRST["groundingChunks"], *SECOND["groundingChunks"]]},
        {"webSearchQueries": []},
        {},
    ],
    ids=["another key", "a longer list", "an empty list", "nothing"],
)
def test_grounding_that_goes_on_is_one(more: dict[str, Any]) -> None:
    """Where a later one says all that an earlier one said, or another part of it, they are one object."""
    whole = FIRST | {name: value for name, value in more.items() if value}
    for later in (FIRST | more, more):
        assert beside(told({"groundingMetadata": FIRST}, {"groundingMetadata": later})) == {"groundingMetadata": whole}


def test_log_probabilities_of_all_events_are_kept() -> None:
    """Probabilities of pieces are those of the whole, in the response's `extra`."""
    pieces = [{"chosenCandidates": [{"token": token, "logProbability": -1}]} for token in "ab"]
    response = told(*({"logprobsResult": piece} for piece in pieces))
    assert json.loads(bytes(response.extra["logprobsResult"])) == {
        "chosenCandidates": [piece["chosenCandidates"][0] for piece in pieces]
    }


def test_number_that_is_told_again_is_the_last_one() -> None:
    """A number about the whole reply is what the last event says."""
    assert told({"avgLogprobs": -1.5}, {"avgLogprobs": -2.5}).extra == {"avgLogprobs": Raw(b"-2.5")}


def test_unknown_field_that_differs_is_all_kept() -> None:
    """Objects of a field that no one knows, of a candidate and of a reply, are kept where they differ."""
    response = told({"news": {"a": 1}}, {"news": {"a": 2}}, {"news": {"b": 3}})
    assert json.loads(bytes(response.extra["news"])) == [{"a": 1}, {"a": 2, "b": 3}]
    events = [json.dumps({"promptFeedback": {"a": number}}).encode() for number in (1, 2)]
    assert json.loads(bytes(Gemini().aggregate(events).extra["promptFeedback"])) == [{"a": 1}, {"a": 2}]


def test_unknown_field_of_a_content_is_kept_and_goes_back() -> None:
    """What a content has beside its parts stands with a block, and goes back in the content."""
    content = {"parts": [{"text": "a"}], "role": "model", "news": {"x": 1}}
    whole = Gemini().aggregate([json.dumps({"candidates": [{"content": content, "finishReason": "STOP"}]}).encode()])
    streamed = told({"content": {"news": {"x": 1}}})
    assert beside(whole) == beside(streamed) == {"content_fields": {"news": {"x": 1}}}
    said = message("assistant", *whole.content, **OWN)
    assert body(window(message("user", "Go."), said))["contents"][1] == content


def test_unknown_field_of_a_content_without_parts_is_kept() -> None:
    """Where there is no block to stand with, it is in the response's `extra`; further candidates have it too."""
    assert candidate(content={"news": 1}, finishReason="STOP").extra == {"content_fields": Raw(b'{"news":1}')}
    one = {"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}
    two = {"content": {"parts": [{"text": "b"}], "role": "model", "news": 1}, "finishReason": "STOP", "index": 1}
    response = Gemini().aggregate([json.dumps({"candidates": [one, two]}).encode()])
    [kept] = json.loads(bytes(response.extra["candidates"]))
    assert kept == two


def test_unknown_field_of_a_content_does_not_go_to_others() -> None:
    """Another model does not get what a content had beside its parts, and the report says so."""
    response = candidate(content={"parts": [{"text": "a"}], "news": 1}, finishReason="STOP")
    request = prepared(window(message("user", "Go."), message("assistant", *response.content, turn="said", **OTHER)))
    assert json.loads(request.body)["contents"][1] == {"role": "model", "parts": [{"text": "a"}]}
    [entry] = request.loss_report.entries
    assert (entry.kind, entry.turn, entry.block, entry.index) == ("dropped", "said", "content_fields", 0)


@pytest.mark.parametrize("on_loss", [None, "report", "error"])
@pytest.mark.parametrize(
    "name", ["citationMetadata", "groundingAttributions", "groundingMetadata", "urlContextMetadata"]
)
def test_citations_do_not_go_back_and_are_reported(name: str, on_loss: Any) -> None:
    """What the model cited has no place in a request, not to itself either; no other wire would take it."""
    response = candidate({"text": "a"}, {"text": "b", "thought": True}, finishReason="STOP", **{name: {"x": [1]}})
    said = message("assistant", *response.content, turn="said", **OWN)
    request = prepared(window(message("user", "Go."), said), on_loss=on_loss)
    assert json.loads(request.body)["contents"][1]["parts"] == [{"text": "a"}, {"text": "b", "thought": True}]
    [entry] = request.loss_report.entries
    assert (entry.kind, entry.turn, entry.block, entry.index) == ("dropped", "said", name, 0)


def test_ratings_are_about_the_reply_and_no_loss() -> None:
    """Nobody sends ratings of safety back: they say nothing that the model said."""
    response = candidate({"text": "a"}, finishReason="STOP", safetyRatings=[{"probability": "LOW"}])
    assert "safetyRatings" in response.content[0].extra
    assert prepared(window(message("assistant", *response.content, **OWN))).loss_report.entries == ()


def test_arguments_that_are_no_object_are_reported() -> None:
    """The API takes objects alone: an empty one goes back, and the report names the place."""
    response = candidate({"functionCall": {"name": "f", "args": "[1"}}, finishReason="STOP")
    request = prepared(window(message("assistant", *response.content, turn="said", **OWN)))
    [call] = response.content
    assert isinstance(call, ToolUse)
    assert (bytes(call.input), bytes(call.extra[MALFORMED])) == (b"{}", rb'"\"[1\""')
    assert json.loads(request.body)["contents"][0]["parts"] == [{"functionCall": {"name": "f", "args": {}}}]
    assert [(entry.kind, entry.block, entry.index) for entry in request.loss_report.entries] == [
        ("dropped", "malformed_arguments", 0),
        ("synthesised", "tool_result", None),
    ]
