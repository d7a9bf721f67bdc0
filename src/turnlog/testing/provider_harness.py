"""What the provider suite stands on: an adapter, its sample reply, windows to prepare, ways to look into bodies.

Each thing that a window says has a mark of its own, so that it can be found in a body whatever the wire looks like.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, cast

import pytest
from msgspec import Struct

from turnlog.errors import UnsupportedContentError
from turnlog.model import ContextWindow, LossReport, Message, Response, Tool, Usage, content_bytes, parse_tools
from turnlog.providers import PreparedRequest, Provider, RawEvent

TOOL = "files___read"
"""The tool that the calls of these tests call."""

TOOLS: tuple[Tool, ...] = parse_tools(
    json.dumps(
        [
            {
                "name": TOOL,
                "description": "mark-tool: read a file",
                "inputSchema": {
                    "$schema": "http://json-schema.org/draft-07/schema#",
                    "type": "object",
                    "properties": {
                        "path": {"type": "string", "description": "where"},
                        "format": {"type": "string", "enum": ["text", "bytes"]},
                        "head": {"type": "integer", "format": "uint64"},
                    },
                    "required": ["path"],
                    "additionalProperties": False,
                },
            },
            {"name": "clock___now", "description": "the time", "inputSchema": {"type": "object", "properties": {}}},
        ]
    )
)

Block = dict[str, Any]


class SampleReply(Struct, frozen=True, kw_only=True):
    """A reply of the provider in both forms that it comes in: real events, as its API sends them.

    It says something, thinks (where the wire has thinking), calls two tools at once, and has a block without a
    normalized form (where the wire has such).

    Attributes:
        model: the model that it is of, as the reply names it.
        streamed: the events of the stream.
        whole: the same reply, unstreamed.
        text: what its text blocks say, joined.
        calls: name and input, as JSON text, of each tool call.
        thinking: what its thinking blocks say, joined; None where the wire has no thinking.
        natives: how many native blocks there are.
        complete: how many events make a complete reply; None for all. What comes later says nothing of the content.
        usage: what it took, all that it says of that; None where that is not checked.
        raw_stop_reason: the provider's word for why it ended; None where that is not checked.
        failing: events of another stream, in which the provider tells of an error; empty where that is not checked.
        cut: events of another stream, whose text ends at the limit of tokens; likewise.
    """

    model: str
    streamed: tuple[RawEvent, ...]
    whole: RawEvent
    text: str
    calls: tuple[tuple[str, str], tuple[str, str]]
    thinking: str | None = None
    natives: int = 0
    complete: int | None = None
    usage: Usage | None = None
    raw_stop_reason: str | None = None
    failing: tuple[RawEvent, ...] = ()
    cut: tuple[RawEvent, ...] = ()


class ProviderHarness:
    """What a subclass of the suite gives, and fixtures on top of it.

    Attributes:
        model_in_body: whether a body says which model is asked; false of a wire that says so in the URL.
        stream_in_body: whether it says that the reply is to be streamed, likewise.
    """

    model_in_body: ClassVar[bool] = True
    stream_in_body: ClassVar[bool] = True

    def adapter(self) -> Provider:
        """Return a fresh adapter."""
        raise NotImplementedError

    def sample(self) -> SampleReply:
        """Return a reply of the provider."""
        raise NotImplementedError

    @pytest.fixture
    def provider(self) -> Provider:
        """Give an adapter that nothing was asked of before."""
        return self.adapter()

    @pytest.fixture
    def reply(self) -> SampleReply:
        """Give the sample reply."""
        return self.sample()

    @pytest.fixture
    def response(self, reply: SampleReply) -> Response:
        """Give what the sample's events add up to."""
        return self.adapter().aggregate(reply.streamed, model=reply.model)


# Windows


def message(role: str, *blocks: Block | str, turn: str, **fields: Any) -> Message:
    """Return a message of blocks; texts are text blocks."""
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    return Message(turn=turn, role=role, content_json=content_bytes(content), **fields)


def window(*messages: Message, **options: Any) -> ContextWindow:
    """Return a window of messages."""
    return ContextWindow(messages=messages, options=options)


def recorded(response: Response, *, turn: str = "reply") -> Message:
    """Return a reply as the message of the turn that records it."""
    return Message(
        turn=turn,
        role="assistant",
        content_json=content_bytes(response.content),
        provider=response.provider,
        api=response.api,
        model=response.model,
    )


def answers(response: Response, *, turn: str = "results") -> Message:
    """Return the results of all calls of a reply, as one turn; each says `mark-result-N`."""
    calls = [block for block in blocks_of(response) if block["type"] == "tool_use"]
    results = [
        result(block.get("id"), f"mark-result-{number}", name=block["name"]) for number, block in enumerate(calls)
    ]
    return message("user", *results, turn=turn)


def blocks_of(response: Response) -> list[Block]:
    """Return the blocks of a reply as they are recorded."""
    return json.loads(content_bytes(response.content))


def document(media_type: str, mark: str) -> Block:
    """Return a document whose bytes are its mark."""
    data = b64encode(mark.encode()).decode()
    return {"type": "document", "source": {"type": "base64", "media_type": media_type, "data": data}}


def call(id: str | None, mark: str, *, name: str = TOOL) -> Block:
    """Return a call whose input has a mark."""
    return {"type": "tool_use", "name": name, "input": {"path": mark}} | ({} if id is None else {"id": id})


def result(id: str | None, content: str | list[Block], *, name: str | None = None, **fields: Any) -> Block:
    """Return the result of a call."""
    block: Block = {"type": "tool_result", "content": content}
    if id is not None:
        block["tool_use_id"] = id
    if name is not None:
        block["name"] = name
    return block | fields


def conversation(provider: Provider, response: Response) -> list[Message]:
    """Return a conversation in which most things happen; no call is left unanswered but right after its turn."""
    image = [document("image/png", "mark-image")] if takes(provider, "image/png") else []
    return [
        message("system", "mark-system", turn="t0"),
        message("user", "mark-first", turn="t1"),
        message("user", "mark-second", *image, turn="t2"),
        recorded(response, turn="t3"),
        answers(response, turn="t4"),
        message("assistant", "mark-answer", turn="t5"),
        message("user", "mark-next", "mark-part", turn="t6"),
        message("assistant", call("c.1", "mark-c1"), call("c.2", "mark-c2"), turn="t7"),
        message("user", result("c.2", "mark-r2"), result("c.1", "mark-r1"), "mark-beside", turn="t8"),
        message("assistant", "mark-more", turn="t9"),
        message("user", 'mark-äöü \u2028 🌿 " \\ \n\t', turn="t10"),
        message("assistant", "mark-last", turn="t11"),
    ]


def takes(provider: Provider, media_type: str) -> bool:
    """Return whether the wire takes a document of a media type without a loss, in whatever form."""
    try:
        probe = provider.prepare_request(
            window(message("user", document(media_type, "mark-probe"), turn="probe")), model="probe"
        )
    except UnsupportedContentError:
        return False
    return not probe.loss_report


# Bodies


def parsed(body: bytes) -> Any:
    """Return a body as values; twice the same key, NaN and what is not UTF-8 are no JSON here."""
    return json.loads(body.decode("utf-8"), object_pairs_hook=_object, parse_constant=_refuse)


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    assert len(names) == len(set(names)), f"a key comes twice in one object: {names}"
    return dict(pairs)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def strings(value: Any) -> Iterator[str]:
    """Iterate over all texts in values, names of keys left out."""
    return (leaf for leaf in leaves(value) if isinstance(leaf, str))


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).values()
    return cast("list[Any]", value) if isinstance(value, list) else ()


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Iterate over all objects in values, outermost first."""
    if isinstance(value, dict):
        yield cast("dict[str, Any]", value)
    for inner in _inside(value):
        yield from objects(inner)


def leaves(value: Any) -> Iterator[Any]:
    """Iterate over all texts, numbers, booleans and nulls in values."""
    if not isinstance(value, dict | list):
        yield value
    for inner in _inside(value):
        yield from leaves(inner)


def says(value: Any, text: str) -> bool:
    """Return whether a text stands somewhere in values, as a text or part of one; documents in base64 too."""
    return any(text in found for found in strings(value)) or holds_data(value, text)


def holds_data(value: Any, mark: str) -> bool:
    """Return whether a document of these bytes stands somewhere in values, in base64."""
    data = b64encode(mark.encode()).decode()
    return any(data in found for found in strings(value))


def fragments(request: PreparedRequest) -> list[Any]:
    """Return the messages of a request, each decoded."""
    return [parsed(fragment.removeprefix(b",")) for fragment in request.messages]


def place(request: PreparedRequest, mark: str) -> int:
    """Return the index of the first message of a request in which a mark stands."""
    found = [index for index, fragment in enumerate(fragments(request)) if says(fragment, mark)]
    assert found, f"{mark!r} is in no message of {request.body.decode()}"
    return found[0]


def ids_beside(request: PreparedRequest, mark: str) -> set[str]:
    """Return the values of all keys called `id` or `…_id` in the objects around a mark."""
    found: set[str] = set()
    for fragment in fragments(request):
        for around in _around(fragment, mark):
            found |= {
                value
                for name, value in around.items()
                if isinstance(value, str) and (name == "id" or name.endswith(("_id", "Id")))
            }
    return found


def _around(value: Any, mark: str) -> Iterator[dict[str, Any]]:
    """Iterate over the objects that a mark is in, outermost first."""
    if not says(value, mark):
        return
    if isinstance(value, dict):
        yield value
    for inner in _inside(value):
        yield from _around(inner, mark)


# Reports


def lost(report: LossReport, kind: str | None = None) -> list[tuple[str, str, int | None]]:
    """Return the entries of a report that are of turns, of one kind or of all: turn, block and index."""
    of_turns = [entry for entry in report.entries if entry.turn]
    return [(entry.turn, entry.block, entry.index) for entry in of_turns if kind in (None, entry.kind)]
