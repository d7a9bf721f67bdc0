"""Messages on their way to a wire: documents, thinking, native blocks, system turns, and what is lost of them."""

from base64 import b64encode
from typing import Any

import msgspec
import pytest
from tests.unit.providers.carrying import (
    OTHER,
    OWN,
    WIRE,
    call,
    carry,
    conversation,
    document,
    encode,
    message,
    outline,
    result,
    shown,
)

from turnlog import UnsupportedContentError
from turnlog.model import LossEntry, Message
from turnlog.model.chunked import Chunked
from turnlog.model.pieces import PIECE
from turnlog.providers import Capabilities
from turnlog.providers.carriage import Target
from turnlog.providers.conversation import Conversation


def _base64(text: str) -> str:
    return b64encode(text.encode()).decode()


def _thinking(**fields: Any) -> dict[str, Any]:
    return {"type": "thinking", "thinking": "hm", "signature": "c2ln"} | fields


_NATIVE = {"type": "native", "provider": "here", "block": {"x": 1.50}}
_PLAIN = {"type": "thinking", "thinking": "hm"}
PDF = Capabilities(documents=("application/pdf",))
JOINED = Capabilities(system="joined", native=True)
TEXT_LIKE = ("text/plain", "text/markdown; charset=utf-8", "application/json", "application/ld+json", "image/svg+xml")

CARRIED: dict[str, tuple[Capabilities, list[Message], list[list[str]], list[str]]] = {
    "turns of one role in a row are not joined": (
        WIRE,
        [message("user", "a", "b"), message("user", "c"), message("assistant", "d"), message("system", "e")],
        [["user", "a", "b"], ["user", "c"], ["assistant", "d"], ["system", "e"]],
        [],
    ),
    "no messages are no fragments": (WIRE, [], [], []),
    "a turn without blocks is left out, and no loss": (
        WIRE,
        [message("user"), message("user", "a"), message("assistant")],
        [["user", "a"]],
        [],
    ),
    "an empty text is dropped, and a turn of nothing else with it": (
        WIRE,
        [message("user", "", "a", turn="1"), message("assistant", "", turn="2")],
        [["user", "a"]],
        ["dropped text 1 0", "dropped text 2 0"],
    ),
    "an empty document is an empty text": (
        WIRE,
        [message("user", document("text/plain", ""), "a", turn="t")],
        [["user", "a"]],
        ["dropped text t 0"],
    ),
    "a role that no wire knows is a user's": (WIRE, [message("tool", "a")], [["user", "a"]], []),
    "a document of a type that the wire takes goes as it is, whatever case and parameters": (
        WIRE,
        [message("user", *map(document, ("image/png", "IMAGE/PNG", "image/jpeg; q=1", "application/pdf")))],
        [["user", "<image/png>", "<IMAGE/PNG>", "<image/jpeg; q=1>", "<application/pdf>"]],
        [],
    ),
    "a text-like document is its text where the wire has no such document": (
        PDF,
        [
            message(role, *(document(kind, _base64("crème, 茶")) for kind in TEXT_LIKE))
            for role in ("user", "assistant", "system")
        ],
        [[role, *["crème, 茶"] * 5] for role in ("user", "assistant", "system")],
        [],
    ),
    "a text document in a result is text in it": (
        Capabilities(documents=("text/*",)),
        [message("assistant", call("a")), message("user", result("a", [document("text/csv")]))],
        [["assistant", "call a"], ["user", "a: hello"]],
        [],
    ),
    "thinking that no model is named for belongs to none": (
        WIRE,
        [message("assistant", _thinking(), turn="t")],
        [],
        ["dropped thinking t 0"],
    ),
    "only assistant turns think": (
        WIRE,
        [message(role, _thinking(**OWN), "a", turn=role) for role in ("user", "system")],
        [["user", "a"], ["system", "a"]],
        ["dropped thinking user 0", "dropped thinking system 0"],
    ),
    "a wire may take all thinking of its model": (
        Capabilities(thinking="all"),
        [message("assistant", _PLAIN, _thinking(), "a", **OWN)],
        [["assistant", "<thinking>", "<thinking>", "a"]],
        [],
    ),
    "a wire may take signed thinking alone": (
        Capabilities(thinking="signed"),
        [message("assistant", _PLAIN, _thinking(), "a", turn="t", **OWN)],
        [["assistant", "<thinking>", "a"]],
        ["dropped thinking t 0"],
    ),
    "a wire may take no thinking": (
        Capabilities(thinking="none"),
        [message("assistant", _PLAIN, _thinking(), "a", turn="t", **OWN)],
        [["assistant", "a"]],
        ["dropped thinking t 0", "dropped thinking t 1"],
    ),
    "a wire may take no native blocks, not even its own": (
        Capabilities(native=False),
        [message("assistant", _NATIVE, turn="t", **OWN)],
        [],
        ["dropped native t 0"],
    ),
    "a native block of a system turn that becomes text is lost": (
        JOINED,
        [message("system", _NATIVE | {"api": "test", "model": "m"}, "a", turn="t")],
        [],
        ["dropped native t 0"],
    ),
}


@pytest.mark.parametrize("case", CARRIED)
def test_what_a_wire_takes_goes_along_and_the_rest_is_reported(case: str) -> None:
    """Messages keep their order; a loss has the turn and the place of the block."""
    wire, messages, expected, lost = CARRIED[case]
    found = carry(*messages, capabilities=wire)
    assert outline(found.messages) == expected
    assert [f"{loss.kind} {loss.block} {loss.turn} {loss.index}" for loss in found.losses] == lost


# Turns


def test_fragments_make_a_list() -> None:
    """The fragments of the messages, joined, are the items of a JSON list: all but the first begin with the comma."""
    fragments = carry(message("user", "a"), message("user", "b")).carried.messages
    assert [fragment[:1] for fragment in fragments] == [b"{", b","]


# System turns


def test_system_turns_are_joined_where_the_wire_has_them_at_the_top() -> None:
    """Their texts go to the top, those of documents too, and leave no message behind; elsewhere they stay."""
    turns = (
        message("system", "a", "b"),
        message("user", "hi"),
        message("system", document("text/plain"), cache=True),
    )
    found = carry(*turns, capabilities=JOINED)
    assert outline(found.messages) == [["user", "hi"]]
    assert (found.carried.system, found.carried.system_cached) == (("a", "b", "hello"), True)
    assert found.lost == []
    inline = carry(*turns[1:])
    assert outline(inline.messages) == [["user", "hi"], ["system", "hello"]]
    assert (inline.carried.system, inline.carried.system_cached) == ((), False)


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_image_of_another_role_is_a_line_of_text(role: str) -> None:
    """Only users' turns show images, on any wire."""
    found = carry(message(role, document("image/png"), turn="t"))
    assert found.lost == ["dropped document t"]
    with pytest.raises(UnsupportedContentError, match=f"'t', block 0: a document of {role} turns of type 'image/png'"):
        carry(message(role, document("image/png"), turn="t"), on_loss="error")


# Documents


@pytest.mark.parametrize(
    ("media_type", "data"),
    [
        ("application/zip", "aGVsbG8="),
        ("text/plain", b64encode(b"\xff\xfe").decode()),
        ("text/plain", "not base64!"),
        ("text/plain", "né"),
        ("text/plain", "YWJj="),
    ],
    ids=["binary", "not UTF-8", "not base64", "not ASCII", "too much padding"],
)
def test_document_that_the_wire_cannot_carry_is_refused_on_wish(media_type: str, data: str) -> None:
    """A document without a form on the wire is refused: the error names adapter, block and turn, and the way out."""
    with pytest.raises(UnsupportedContentError) as caught:
        carry(message("user", "a", document(media_type, data), turn="t"), on_loss="error")
    assert (caught.value.provider, caught.value.block, caught.value.turn) == ("tester", "document", "t")
    assert str(caught.value) == (
        f"tester cannot carry turn 't', block 1: a document of type {media_type!r}: ask another provider, "
        "or allow losses with on_loss='report'"
    )


@pytest.mark.parametrize("on_loss", [None, "report"])
def test_document_that_the_wire_cannot_carry_is_a_line_of_text(on_loss: Any) -> None:
    """A line stands in for the document, and the report names its place and its type."""
    found = carry(message("user", "a", document("application/zip", "AAAA" * 512), turn="t"), on_loss=on_loss)
    assert outline(found.messages) == [
        ["user", "a", "[a document of type application/zip, 1,536 bytes, that cannot be shown here]"]
    ]
    assert found.losses == (
        LossEntry(
            kind="dropped",
            turn="t",
            block="document",
            index=1,
            why="a line of text in place of application/zip",
        ),
    )


def test_document_without_bytes_is_a_line_of_text() -> None:
    """Providers refuse it, now and with all that follows."""
    found = carry(message("user", "a", document("image/png", ""), turn="t"))
    assert outline(found.messages) == [
        ["user", "a", "[a document of type image/png, 0 bytes, that cannot be shown here]"]
    ]
    assert [entry.why for entry in found.losses] == ["a line of text in place of image/png"]


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"title": "a b.zip"}, 'a document "a b.zip" of type'),
        ({"name": "c.zip", "title": " \n"}, 'a document "c.zip" of type'),
        ({"filename": 7}, "a document of type"),
    ],
)
def test_line_of_text_has_the_name_of_the_document(extra: dict[str, Any], words: str) -> None:
    """The name is in a key of the block, where it has one."""
    found = carry(message("user", document("application/zip") | extra, turn="t"))
    assert outline(found.messages) == [["user", f"[{words} application/zip, 5 bytes, that cannot be shown here]"]]


@pytest.mark.parametrize("on_loss", [None, "report"])
def test_text_document_is_text_where_the_wire_has_no_form_for_it(on_loss: Any) -> None:
    """It is reported as downgraded; who allows no loss is refused."""
    wire = Capabilities(text_documents=False)
    with pytest.raises(UnsupportedContentError):
        carry(message("user", document("text/plain")), capabilities=wire, on_loss="error")
    found = carry(message("user", document("text/plain"), turn="t"), capabilities=wire, on_loss=on_loss)
    assert outline(found.messages) == [["user", "hello"]]
    assert found.lost == ["downgraded document t"]


def test_document_in_a_result_that_the_wire_cannot_carry_is_a_line_of_text() -> None:
    """Documents in results are degraded like others, and refused like others."""
    turns = (message("assistant", call("a")), message("user", result("a", [document("application/zip")]), turn="t"))
    with pytest.raises(UnsupportedContentError, match="turn 't', block 0"):
        carry(*turns, on_loss="error")
    found = carry(*turns)
    assert found.lost == ["dropped document t"]
    assert "application/zip" in found.messages[1]["blocks"][0]["content"][0]["text"]


# Thinking and native blocks


@pytest.mark.parametrize(
    ("of_turn", "of_block"), [(OWN, {}), ({}, OWN), (OTHER, OWN)], ids=["turn", "block", "block over turn"]
)
def test_thinking_goes_back_to_its_model_unchanged(of_turn: dict[str, Any], of_block: dict[str, Any]) -> None:
    """Thinking goes back to the very model it is of; what the block says of itself counts before its turn."""
    thought = _thinking(more=[1.50], **of_block)
    found = carry(message("assistant", thought, "a", **of_turn))
    assert found.messages[0]["blocks"][0] == thought
    assert found.lost == []


@pytest.mark.parametrize(
    "changed", [{"provider": "elsewhere"}, {"api": "other"}, {"model": "m2"}], ids=lambda changed: next(iter(changed))
)
@pytest.mark.parametrize("block", [_thinking(), _NATIVE], ids=["thinking", "native"])
def test_block_of_another_model_is_dropped_and_reported(block: dict[str, Any], changed: dict[str, str]) -> None:
    """Another provider, api or model: the block is left out, the rest of the turn stays."""
    of = OWN | changed
    placed = block | {"provider": of["provider"]} if block["type"] == "native" else block
    found = carry(message("assistant", placed, "a", turn="t", **of))
    assert outline(found.messages) == [["assistant", "a"]]
    assert [(loss.kind, loss.block, loss.turn, loss.index) for loss in found.losses] == [
        ("dropped", block["type"], "t", 0)
    ]


@pytest.mark.parametrize("text", ["hm", pytest.param("hm" * PIECE, id="long")])
def test_thinking_that_no_message_can_end_with_is_dropped_at_its_place(text: str) -> None:
    """Of two that say the same the last one, long or short."""
    thought = _PLAIN | {"thinking": text}
    ends = Capabilities(thinking="all", thinking_last=False)
    embedding = Conversation(ends, Target(adapter="tester", **OWN, on_loss=None), encode, embeds_texts=True)
    said = message("assistant", thought, "a", thought, turn="t", **OWN)
    for found in (carry(said, capabilities=ends), shown(embedding.carry(Chunked([said])))):
        assert [block["type"] for block in found.messages[0]["blocks"]] == ["thinking", "text"]
        assert [(loss.kind, loss.block, loss.index) for loss in found.losses] == [("dropped", "thinking", 2)]


def test_native_block_goes_back_to_its_model_unchanged() -> None:
    """A native block goes back as the provider wrote it, numbers spelled as they were."""
    content = b'[{"type":"native","provider":"here","block":{"x":1.50}}]'
    found = carry(Message(turn="t", role="assistant", content_json=content, **OWN))
    assert b'{"x":1.50}' in found.carried.messages[0]
    assert found.lost == []


def test_native_block_that_is_no_object_is_left_out() -> None:
    """No wire has a block that is a text or a number: a request with one is refused by its API, or cannot be made."""
    for block in (b'"s"', b"1", b"[]", b"null"):
        content = b'[{"type":"text","text":"a"},{"type":"native","provider":"here","block":' + block + b"}]"
        found = carry(Message(turn="t", role="assistant", content_json=content, **OWN))
        assert [(loss.block, loss.why) for loss in found.losses] == [("native", "it is no JSON object")]
        assert [block["type"] for block in found.messages[0]["blocks"]] == ["text"]


@pytest.mark.parametrize("text_documents", [True, False])
def test_keys_of_a_document_that_goes_as_text_are_reported(text_documents: bool) -> None:
    """As those of one that goes as it is: a text has no place for them, whoever wrote it."""
    wire = Capabilities(documents=("image/*",), text_documents=text_documents)
    named = document("text/plain") | {"title": "Q3 report", "citations": {"enabled": True}, "context": None}
    found = carry(message("user", "a", named, turn="t", **OWN), capabilities=wire)
    assert [block.get("text") for block in found.messages[0]["blocks"]] == ["a", "hello"]
    told = [] if text_documents else ["document"]
    assert [loss.block for loss in found.losses] == [*told, "citations", "title"]
    if text_documents:
        with pytest.raises(UnsupportedContentError, match="citations, because the document goes as text"):
            carry(message("user", "a", named, turn="t", **OWN), capabilities=wire, on_loss="error")


@pytest.mark.parametrize("block", [_thinking(), _NATIVE], ids=["thinking", "native"])
def test_losses_can_be_refused(block: dict[str, Any]) -> None:
    """With `on_loss="error"`, thinking and native blocks that cannot go along are refused."""
    with pytest.raises(UnsupportedContentError) as caught:
        carry(message("assistant", "a", block, turn="t", **(OWN | {"model": "m2"})), on_loss="error")
    assert (caught.value.provider, caught.value.block, caught.value.turn) == ("tester", block["type"], "t")
    assert "turn 't', block 1" in str(caught.value)


# Extra keys


_CITED = {"type": "text", "text": "a", "citations": [{"page": 1}], "annotations": ["x"]}


def test_extra_keys_go_back_to_their_model() -> None:
    """Keys that turnlog does not know go back to the model that wrote them, on every kind of block."""
    called = call("a", index=0)
    found = carry(message("assistant", _CITED, called, **OWN))
    assert found.messages[0]["blocks"] == [_CITED, called]
    assert found.lost == ["synthesised tool_result a"]


@pytest.mark.parametrize("asked", ["m", "m-2026-01-31"])
def test_what_was_asked_for_is_the_model_that_answered(asked: str) -> None:
    """A model that answers under another name gets its thinking, native blocks and extra keys back."""
    blocks = [_thinking(**OWN | {"model": "m-in-full"}), _NATIVE, _CITED]
    answered: dict[str, Any] = OWN | {"model": "m-in-full"}
    found = carry(message("assistant", *blocks, model_asked=asked, **answered))
    assert found.messages[0]["blocks"] == blocks
    assert found.lost == []
    for other in ({}, {"model_asked": "m2"}):
        lost = carry(message("assistant", *blocks, turn="t", **answered, **other)).lost
        assert lost == ["dropped thinking t", "dropped native t", "dropped annotations t", "dropped citations t"]


def test_thinking_of_a_third_model_does_not_go_back_because_its_turn_was_asked_for() -> None:
    """A block that says whose it is counts before its turn, also where that was asked under another name."""
    found = carry(message("assistant", _thinking(**OWN | {"model": "m3"}), "a", turn="t", model_asked="m", **OWN))
    assert found.lost == ["dropped thinking t"]


def test_other_spellings_of_names_are_the_same_provider_and_api() -> None:
    """Sessions and transcripts of others spell them in their own way."""
    thought = _thinking()
    target = Target(adapter="gemini", provider="gemini", api="generate_content", model="m", on_loss=None)
    for provider, api in (("google", "google-generative-ai"), ("gemini", "google-generative-ai")):
        turn = message("assistant", thought, "a", provider=provider, api=api, model="m")
        found = shown(Conversation(WIRE, target, encode).carry(Chunked([turn])))
        assert found.messages[0]["blocks"][0] == thought
        assert found.lost == []


def test_spelling_of_arguments_goes_back_to_its_model_and_is_no_loss_elsewhere() -> None:
    """The input says the same."""
    called = call("a", spelled_arguments='{ "x": 1 }')
    own, other = (carry(message("assistant", called, **of), message("user", result("a"))) for of in (OWN, OTHER))
    assert own.messages[0]["blocks"] == [called]
    assert other.messages[0]["blocks"] == [call("a")]
    assert own.lost == other.lost == []


def test_extra_keys_are_taken_off_for_another_model() -> None:
    """Another model does not get them; the report names each by its name, in order of the names."""
    found = carry(message("assistant", _CITED, turn="t", **OTHER))
    assert found.messages[0]["blocks"] == [{"type": "text", "text": "a"}]
    assert [(loss.kind, loss.block, loss.index) for loss in found.losses] == [
        ("dropped", "annotations", 0),
        ("dropped", "citations", 0),
    ]
    with pytest.raises(UnsupportedContentError) as caught:
        carry(message("assistant", _CITED, turn="t", **OTHER), on_loss="error")
    assert caught.value.block == "annotations"


def test_extra_keys_inside_a_result_are_reported_too() -> None:
    """Blocks within a tool result lose their extra keys like others."""
    found = carry(message("assistant", call("a")), message("user", result("a", [_CITED], note=1), turn="t"))
    [block] = found.messages[1]["blocks"]
    assert block["content"] == [{"type": "text", "text": "a"}]
    assert sorted(found.lost) == ["dropped annotations t", "dropped citations t", "dropped note t"]


@pytest.mark.parametrize("nothing", [[], {}, "", None], ids=repr)
def test_extra_keys_that_say_nothing_are_taken_off_without_a_word(nothing: object) -> None:
    """An empty list of citations is no loss: it is taken off for another model, and nothing is refused for it."""
    block = {"type": "text", "text": "a", "annotations": nothing}
    found = carry(message("assistant", block, turn="t", **OTHER), on_loss="error")
    assert found.messages[0]["blocks"] == [{"type": "text", "text": "a"}]
    assert found.lost == []
    assert carry(message("assistant", block, **OWN)).messages[0]["blocks"] == [block]


# Caching


def test_cached_turns_are_named_by_their_last_fragment() -> None:
    """Whoever sets cache breakpoints is told the fragments of the cached turns, whatever stands before them."""
    found = carry(
        message("user", "a", cache=True),
        message("assistant", call("x")),
        message("assistant", "b", cache=True),
        message("user", "c"),
        message("user", cache=True),
    )
    assert outline(found.messages)[found.carried.cached[1]] == ["assistant", "b"]
    assert found.carried.cached == (0, 3)


# Going on


def test_conversation_goes_on_only_from_what_it_carried() -> None:
    """It is continued by messages that begin with its own, to the same target, and by no others."""
    source = Chunked([message("user", "a"), message("assistant", "b")])
    target = Target(adapter="tester", **OWN, on_loss=None)
    growing = conversation()
    growing.carry(source)
    assert growing.continued_by(source.extended([message("user", "c")]), target)
    assert growing.continued_by(Chunked(tuple(source)), target)
    assert not growing.continued_by(Chunked(source[:1]), target)
    assert not growing.continued_by(Chunked([source[0], message("assistant", "other")]), target)
    for other in ({"model": "m2"}, {"on_loss": "report"}, {"api": "x"}, {"provider": "x"}):
        assert not growing.continued_by(source, msgspec.structs.replace(target, **other))


def test_what_was_carried_is_not_encoded_again() -> None:
    """A longer conversation shares the fragments of the shorter one."""
    growing = conversation()
    source = Chunked([message("user", str(number)) for number in range(600)])
    shorter = growing.carry(source)
    longer = growing.carry(source.extended([message("user", "more")]))
    assert all(longer.messages[index] is shorter.messages[index] for index in range(600))
    assert len(longer.messages) == 601


def test_longer_conversation_leaves_the_shorter_one_as_it_was() -> None:
    """What was returned does not change when the conversation goes on."""
    growing = conversation()
    source = Chunked([message("assistant", call("a"), turn="t")])
    before = growing.carry(source)
    kept = shown(before)
    growing.carry(source.extended([message("user", result("a")), message("system", "", cache=True)]))
    assert shown(before) == kept
