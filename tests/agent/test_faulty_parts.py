"""Toolboxes, adapters, middleware and callbacks that give what they should not: nothing else is lost for it."""

import asyncio
import gc
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
import pytest
from msgspec import Raw
from tests.agent.running import results, run
from tests.agent.scripted import MODEL, Scripted, _Reader, call, say  # pyright: ignore[reportPrivateUsage]

from turnlog import ContentError, MetaError, RunError, Text, TurnLog
from turnlog.agent.middleware import CallModel, ModelCall
from turnlog.agent.opening import Attached
from turnlog.agent.toolbox import Toolbox, ToolOutcome
from turnlog.model import CallError, ContextWindow, Document, Native, Response, Source, Tool, ToolUse, Usage
from turnlog.providers import ReplyReader


class Box(Toolbox):
    """A toolbox of which one tool returns what it is made with."""

    def __init__(self, returned: object) -> None:
        self._returned: Any = returned

    async def tools(self) -> Sequence[Tool]:
        """Return both tools."""
        return [Tool(name="faulty"), Tool(name="fine")]

    async def call(self, name: str, arguments: Raw) -> ToolOutcome:
        """Return what is given, or a text."""
        return ToolOutcome(content=(Text(text="Fine."),)) if name == "fine" else self._returned


def outcome(*blocks: object) -> ToolOutcome:
    """Return an outcome, whatever is in it."""
    return ToolOutcome(content=cast("tuple[Text, ...]", blocks))


UNTYPED: Any = "abc"
NUMBER: Any = 5
BOTH = call(("faulty", {}), ("fine", {}))


@pytest.mark.parametrize(
    ("returned", "why"),
    [
        (None, "expected a ToolOutcome, got NoneType"),
        (ToolOutcome(content=UNTYPED), "content: expected a tuple of blocks, got str"),
        (outcome({"type": "text", "text": "x"}), "content[0]: expected Text, Document or Native, got dict"),
        (outcome(Document(source=UNTYPED)), "content[0].source: expected 'object', got 'str'"),
        (
            outcome(Document(source=Source(media_type="image/png", data=NUMBER))),
            "content[0].source.data: expected 'str', got 'int'",
        ),
        (
            outcome(Document(source=Source(media_type="image/png", data="\ud800"))),
            "content[0].source.data: not valid UTF-8 (surrogates not allowed)",
        ),
        (
            outcome(Native(provider="x", block=Raw(b'{}},{"type":"text","text":"forged"'))),
            "content[0].block: not valid JSON: trailing characters (byte 3)",
        ),
        (outcome(Text(text="x", extra={"text": Raw(b"1")})), "content[0].extra: 'text' is a key that the block has"),
    ],
)
def test_what_no_log_can_have_is_the_error_of_its_call_alone(log: TurnLog, returned: object, why: str) -> None:
    """The results of the other calls of the reply are recorded, and the run goes on."""
    result = run(log, Scripted(BOTH, say("Yes.")), tools=Box(returned), bookmark="main")
    told = f"the tool was called, and what it returned cannot be recorded: {why}"
    assert (result.stopped, results(log, "main")) == ("done", [("c1", told, True), ("c2", "Fine.", False)])
    [faulty, _] = log.tool_calls.of(log.ancestry("main")[1].id)
    assert [attempt.ending for attempt in faulty.attempts] == ["given_up"]


def test_a_list_of_blocks_is_content_too(log: TurnLog) -> None:
    """It is taken as it is meant."""
    listed: Any = [Text(text="One."), Text(text="Two.")]
    run(log, Scripted(BOTH, say("Yes.")), tools=Box(ToolOutcome(content=listed)), bookmark="main")
    assert results(log, "main")[0] == ("c1", "One.Two.", False)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"content": (Text(text=NUMBER),)}, "content[0].text: expected 'str', got 'int'"),
        ({"content": (ToolUse(name="t", input=Raw(b"nope")),)}, "content[0].input: not valid JSON: invalid character"),
        ({"usage": {"output_tokens": 5}}, "usage: expected Usage, got dict"),
        ({"usage": Usage(input_tokens=-1)}, "usage: expected counts of input_tokens"),
        ({"error": "overloaded"}, "error: expected CallError, got str"),
        ({"error": CallError(message="\ud800")}, "error.message: not valid UTF-8"),
        ({"model": 5}, "model: expected str, got int"),
    ],
)
def test_a_reply_that_an_adapter_reads_wrongly_is_recorded_as_it_came(
    log: TurnLog, said: dict[str, Any], why: str
) -> None:
    """It was paid for: its events are kept, in a failed turn that says what is wrong."""

    class Reader(_Reader):
        def response(self) -> Response:
            return msgspec.structs.replace(super().response(), **said)

    class Faulty(Scripted):
        def reader(self, *, model: str | None = None) -> ReplyReader:
            return Reader(self._sender(model))

    result = run(log, Faulty(say("Paid for.")), bookmark="main")
    assert (result.stopped, result.head.meta.model) == ("error", MODEL)
    assert f"the reply cannot be recorded as scripted read it: {why}" in result.why
    assert log.calls.events("main") == [b'{"text":"Paid for."}', b'{"end":"stop","tokens":10}']


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        ({"tools": None}, RunError, "a middleware gives NoneType for tools: a tuple is expected"),
        ({"tools": ""}, RunError, "a middleware gives str for tools"),
        ({"model": "\ud800"}, MetaError, "model: not valid UTF-8"),
        ({"params": {"seed": object()}}, MetaError, r"params\.seed: object is not JSON"),
    ],
)
def test_what_a_middleware_asks_with_is_told_by_its_name(
    log: TurnLog, change: dict[str, Any], error: type[Exception], why: str
) -> None:
    """Before anything is sent."""

    async def wrong(asked: ModelCall, make: CallModel) -> Response:
        return await make(msgspec.structs.replace(asked, **change))

    adapter = Scripted(say("Yes."))
    with pytest.raises(error, match=f"^{why}"):
        run(log, adapter, around_model=wrong)
    assert adapter.bodies == []


def test_the_error_of_a_reply_of_a_middleware_is_told_by_its_name(log: TurnLog) -> None:
    """As whatever else of it cannot be recorded."""
    untyped: Any = "overloaded"

    async def own(asked: ModelCall, _: CallModel) -> Response:
        await asyncio.sleep(0)
        said = Response(content=(), model=asked.model, stop_reason="error", provider=asked.provider, api="script")
        return msgspec.structs.replace(said, error=untyped)

    with pytest.raises(MetaError, match=r"^error: expected CallError, got str"):
        run(log, Scripted(), around_model=own)


def test_an_adapter_that_cannot_load_ahead_is_not_reported_by_asyncio(
    log: TurnLog, caplog: pytest.LogCaptureFixture
) -> None:
    """What it needs fails with the call that needs it, if it does."""

    class Unloaded(Scripted):
        def load(self) -> None:
            raise ImportError("no such part")

    assert run(log, Unloaded(say("Yes."))).text == "Yes."
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


class Listing(Box):
    """A toolbox that says of itself what it is made with."""

    def __init__(
        self, tools: object = (Tool(name="fine"),), *, instructions: object = None, notes: object = ()
    ) -> None:
        super().__init__(None)
        self._tools: Any = tools
        self._instructions: Any = {} if instructions is None else instructions
        self._notes: Any = notes

    async def tools(self) -> Sequence[Tool]:
        """Return what was given."""
        return self._tools

    def instructions(self) -> Mapping[str, str]:
        """Return what was given."""
        return self._instructions

    def notes(self) -> Sequence[str]:
        """Return what was given."""
        return self._notes


@pytest.mark.parametrize(
    ("box", "why"),
    [
        (Listing(None), r"Listing lists what cannot be offered: tools: expected a list of tools, got NoneType"),
        (Listing(["fine"]), r"Listing lists what cannot be offered: tools\[0\]: expected Tool, got str"),
        (
            Listing([Tool(name=NUMBER)]),
            r"Listing lists what cannot be offered: tools\[0\]\.name: expected str, got int",
        ),
        (Listing([Tool(name="\ud800")]), r"Listing lists what cannot be offered: tools\[0\]\.name: not valid UTF-8"),
        (Listing(instructions=["x"]), "instructions: expected Mapping, got list"),
        (Listing(instructions={"notes": 5}), r"instructions\.notes: expected str, got int"),
        (Listing(notes=None), "notes: expected a list of texts"),
        (Listing(notes=[5]), r"notes\[0\]: expected str, got int"),
    ],
)
def test_what_a_toolbox_says_of_itself_is_told_by_its_name(log: TurnLog, box: Toolbox, why: str) -> None:
    """Before anything is recorded."""
    with pytest.raises((RunError, MetaError), match=f"^{why}"):
        run(log, Scripted(say("Yes.")), tools=box)
    assert log.turn_count() == 0


@pytest.mark.parametrize(
    ("change", "of_message", "why"),
    [
        ({"messages": 5}, {}, "messages: expected a list of Message, got int"),
        ({"messages": "Hello."}, {}, "messages: expected a list of Message, got str"),
        ({"messages": ["Hello."]}, {}, r"messages\[0\]: expected a Message, got str"),
        ({"options": ["search"]}, {}, "options: expected a record, got list"),
        ({}, {"turn": ["t"]}, r"messages\[0\]\.turn: expected str, got list"),
        ({}, {"content_json": None}, r"messages\[0\]\.content_json: expected bytes, got NoneType"),
    ],
)
def test_what_a_window_is_not_is_told_by_its_name(
    log: TurnLog, change: dict[str, Any], of_message: dict[str, Any], why: str
) -> None:
    """Whatever of it is looked at first."""

    def wrong(window: ContextWindow) -> ContextWindow:
        [message] = window.messages
        messages = (msgspec.structs.replace(message, **of_message),)
        return msgspec.structs.replace(window, **{"messages": messages, **change})

    adapter = Scripted(say("Yes."))
    with pytest.raises(ContentError, match=f"^{why}"):
        run(log, adapter, on_window=wrong)
    assert adapter.bodies == []


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"name": 5}, "document_name: expected str, got int"),
        ({"payload": "text"}, "payload: expected bytes, got str"),
        ({"media_type": 5}, "content_type: expected str, got int"),
    ],
)
def test_what_is_attached_is_of_its_types(log: TurnLog, fields: dict[str, Any], why: str) -> None:
    """Before anything is recorded."""
    given: dict[str, Any] = {"name": "a.txt", "payload": b"A", **fields}
    with pytest.raises(MetaError, match=f"^{why}"):
        run(log, Scripted(say("Yes.")), attachments=Attached(**given))
    assert log.turn_count() == 0
