"""A conversation begun on one provider goes on at any other, and comes back: bodies are valid, losses are told exactly.

What is to be lost follows from two tables: what a reply has that only its own model takes back, and what a wire lacks
whoever began. They are written by hand, after what the APIs document.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.golden import wire_cases
from tests.wires.typed_bodies import check_body

from turnlog import TurnLog, UnsupportedContentError
from turnlog.model import Text, Thinking, Tool, ToolUse, parse_tools
from turnlog.providers import PreparedRequest, get
from turnlog.providers.registry import adapter_class
from turnlog.testing.provider_harness import ids_beside, parsed, place, says

SAMPLES = {name: wire_cases.WIRES / "replies" / name / "parallel-calls" for name in wire_cases.MODELS}
MODELS = {name: wire_cases.asked_model(sample) for name, sample in SAMPLES.items()}
"""The model that each sample reply is of."""

NAMES = list(MODELS)
PAIRS = [(first, second) for first in NAMES for second in NAMES]

REPLIES = {
    "anthropic": "thinking thinking native native text call call",
    "openai_chat": "thinking text call call",
    "openai_responses": "thinking native text call call",
    "gemini": "thinking text native native thinking call call",
    "cohere": "thinking text call call",
    "cerebras": "thinking text call call",
    "bedrock": "thinking thinking native native text call call",
}
"""What the reply of each holds, block by block. Gemini's second thought is the signature of the first call alone."""

EXTRA_KEYS = {"openai_responses": ("item", "text call")}
"""A key beside the normalized ones, and which blocks have it: only the model that wrote it gets it back."""

NO_THINKING = ("openai_chat", "cerebras")
"""Wires that take back no thinking, not even their own."""

LACKS = {
    "anthropic": [],
    "openai_responses": [],
    "bedrock": [],
    "gemini": [("moved", "results", "document", 1)],
    "cohere": [("dropped", "pdf", "document", 0), ("moved", "results", "document", 1)],
    "openai_chat": [("downgraded", "notes", "document", 0), ("moved", "results", "document", 1)],
    "cerebras": [("downgraded", "notes", "document", 0), ("moved", "results", "document", 1)],
}
"""What is lost on the way to each, whoever began: images in tool results, PDFs, text that is a document."""

Loss = tuple[str, str, str, int | None]
"""Kind, turn, block and index."""

TOOLS: tuple[Tool, ...] = parse_tools(
    '[{"name":"files___read","description":"Read a file.","inputSchema":{"type":"object","properties":'
    '{"path":{"type":"string"},"head":{"type":"integer"}},"required":["path"]}}]'
)
PNG = b"\x89PNG\r\n\x1a\n mark-image"
CHART = b"\x89PNG\r\n\x1a\n mark-chart"
PDF = b"%PDF-1.4 mark-pdf"
NOTES = "# mark-notes\n\nBoth are long."


class Talk:
    """A conversation in a log, and the names of its turns."""

    def __init__(self, log: TurnLog, folder: Path) -> None:
        """Begin with a rule, a question, an image, a PDF and a text."""
        self.log = log
        self.turns: dict[str, str] = {}
        self._name("rule", log.add_turn("mark-rule: be brief.", role="system", bookmark="main").id)
        self._name("ask", log.add_turn("mark-ask: compare the notes.", continues="main").id)
        for name, file, data in (("image", "a.png", PNG), ("pdf", "a.pdf", PDF), ("notes", "a.md", NOTES.encode())):
            (folder / file).write_bytes(data)
            self._name(name, log.add_document(folder / file, continues="main").id)

    def _name(self, name: str, turn: str) -> None:
        self.turns[turn] = name

    def prepare(self, name: str, *, stream: bool = True, on_loss: str = "report") -> PreparedRequest:
        """Return the request that asks a provider to go on."""
        return get(name).prepare_request(
            self.log.context("main"), TOOLS, model=MODELS[name], on_loss=on_loss, stream=stream
        )

    def go_on(self, name: str, suffix: str = "") -> None:
        """Let a provider answer with its sample reply, and run the two tools that it calls."""
        head = self.log.turn("main").id
        call = self.log.calls.record(head, self.prepare(name))
        events = wire_cases.events_of(SAMPLES[name])
        response = get(name).aggregate(events, model=MODELS[name])
        assert [_kind(block) for block in response.content] == REPLIES[name].split()
        self._name(f"reply{suffix}", self.log.calls.record_reply(call, events, response).id)
        first, second = (block.id for block in response.content if isinstance(block, ToolUse))
        chart = {"type": "base64", "media_type": "image/png", "data": b64encode(CHART).decode()}
        seen = [{"type": "text", "text": f"mark-b{suffix}."}, {"type": "document", "source": chart}]
        results = [
            {"type": "tool_result", "tool_use_id": first, "content": f"mark-a{suffix}."},
            {"type": "tool_result", "tool_use_id": second, "content": seen},
        ]
        self._name(f"results{suffix}", self.log.add_turn(results, continues="main").id)

    def losses(self, request: PreparedRequest) -> list[Loss]:
        """Return what a report says, sorted."""
        entries = request.loss_report.entries
        return sorted(
            ((entry.kind, self.turns.get(entry.turn, entry.turn), entry.block, entry.index) for entry in entries),
            key=str,
        )


def _kind(block: object) -> str:
    match block:
        case Thinking():
            return "thinking"
        case Text():
            return "text"
        case ToolUse():
            return "call"
        case _:
            return "native"


def expected(target: str, replies: dict[str, str]) -> list[Loss]:
    """Return what is to be lost on the way to a provider, of replies by the name of their turn, sorted."""
    found: list[Loss] = []
    for turn, author in replies.items():
        suffix = turn.removeprefix("reply")
        extra, holders = EXTRA_KEYS.get(author, ("", ""))
        for index, kind in enumerate(REPLIES[author].split()):
            if kind == "thinking" and (author != target or target in NO_THINKING):
                found.append(("dropped", turn, "thinking", index))
            if kind == "native" and author != target:
                found.append(("dropped", turn, "native", index))
            if kind in holders.split() and author != target:
                found.append(("dropped", turn, extra, index))
        found += [
            (what, f"results{suffix}", block, index) for what, of, block, index in LACKS[target] if of == "results"
        ]
    found += [loss for loss in LACKS[target] if loss[1] != "results"]
    return sorted(found, key=str)


def check(name: str, request: PreparedRequest, suffixes: tuple[str, ...] = ("",)) -> None:
    """Check that a body is valid and says all that it can."""
    check_body(name, request.body)
    body = parsed(request.body)
    said = ["mark-rule", "mark-ask", "I will read both files.", "notes/a.md", "notes/b.md", "mark-notes"]
    said += [f"mark-{letter}{suffix}." for letter in "ab" for suffix in suffixes]
    assert [text for text in said if not says(body, text)] == []
    dropped = {turn for kind, turn, *_ in LACKS[name] if kind == "dropped"}
    carried = [data for turn, data in {"image": PNG, "results": CHART, "pdf": PDF}.items() if turn not in dropped]
    assert [data for data in carried if b64encode(data) not in request.body] == []
    for suffix in suffixes:
        calls, results = ids_beside(request, "notes/a.md"), ids_beside(request, f"mark-a{suffix}.")
        others = ids_beside(request, "notes/b.md"), ids_beside(request, f"mark-b{suffix}.")
        assert bool(calls) == bool(results)
        assert not calls or (calls & results and others[0] & others[1] and not results & others[1])
        assert place(request, "notes/a.md") < place(request, f"mark-a{suffix}.")


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[Talk]:
    """Give a conversation that begins in an empty log."""
    with TurnLog.open("memory://") as log:
        yield Talk(log, tmp_path)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("stream", [True, False])
def test_conversation_begins(talk: Talk, name: str, stream: bool) -> None:
    """The first request of a conversation with an image and documents is valid on every wire."""
    request = talk.prepare(name, stream=stream)
    check_body(name, request.body)
    assert talk.losses(request) == expected(name, {})


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_conversation_goes_on_at_another_provider(talk: Talk, first: str, second: str) -> None:
    """What began on one wire goes on at another: the body is valid, and the report lists exactly what was lost."""
    talk.go_on(first)
    for stream in (True, False):
        request = talk.prepare(second, stream=stream)
        check(second, request)
        assert talk.losses(request) == expected(second, {"reply": first})


@pytest.mark.parametrize(("first", "second"), [pair for pair in PAIRS if pair[0] != pair[1]])
def test_conversation_comes_back_to_where_it_began(talk: Talk, first: str, second: str) -> None:
    """Back at the first provider, its own thinking and native blocks go to it as they came; the other's do not."""
    talk.go_on(first)
    talk.go_on(second, "2")
    request = talk.prepare(first)
    check(first, request, ("", "2"))
    assert talk.losses(request) == expected(first, {"reply": first, "reply2": second})


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_recorded_requests_are_prepared_again_byte_for_byte(talk: Talk, first: str, second: str) -> None:
    """All requests on the way, each recorded when it was made, are what their turns give today, on a fresh adapter."""
    talk.go_on(first)
    talk.go_on(second, "2")
    checks = list(talk.log.calls.check("main", adapter=lambda name, _: adapter_class(name)()))
    assert [check.difference for check in checks] == [None, None]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_losses_are_refused_on_wish(talk: Talk, first: str, second: str) -> None:
    """With `on_loss="error"`, a conversation is refused where something of it would be lost, and only there."""
    talk.go_on(first)
    lost = [loss for loss in expected(second, {"reply": first}) if loss[0] in ("dropped", "downgraded")]
    if lost:
        with pytest.raises(UnsupportedContentError) as caught:
            talk.prepare(second, on_loss="error")
        assert caught.value.provider == second
        assert (talk.turns[caught.value.turn or ""], caught.value.block) in [(loss[1], loss[2]) for loss in lost]
    else:
        assert talk.prepare(second, on_loss="error").body == talk.prepare(second).body


# The check itself


def keys_of_first(body: dict[str, Any]) -> tuple[str, str]:
    """Return the key of the messages, which come last in a body, and that of what the first of them says."""
    key = list(body)[-1]
    assert isinstance(body[key], list), f"{key!r} comes last in the body, and is no list of messages"
    says_so = [name for name, value in body[key][0].items() if "mark-" in json.dumps(value)]
    assert len(says_so) == 1, f"no one key of the first of {key!r} has what it says: {body[key][0]}"
    return key, says_so[0]


@pytest.mark.parametrize("name", NAMES)
def test_unknown_keys_are_found(talk: Talk, name: str) -> None:
    """A key that the SDK does not know makes a body invalid, at the top and in the first message."""
    body = json.loads(talk.prepare(name).body)
    key, _ = keys_of_first(body)
    inner = [body[key][0] | {"turnlog": 1}, *body[key][1:]]
    for broken in (body | {"turnlog": 1}, body | {key: inner}):
        with pytest.raises((ValidationError, AssertionError)):
            check_body(name, json.dumps(broken).encode())


@pytest.mark.parametrize("name", NAMES)
def test_values_of_another_type_are_found(talk: Talk, name: str) -> None:
    """A message of the wrong shape makes a body invalid."""
    body = json.loads(talk.prepare(name).body)
    key, content = keys_of_first(body)
    for wrong in (5, [5], [{"type": 5}]):
        broken = body | {key: [body[key][0] | {content: wrong}, *body[key][1:]]}
        with pytest.raises((ValidationError, AssertionError)):
            check_body(name, json.dumps(broken).encode())
