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
from turnlog.providers import Capabilities
from turnlog.providers.carriage import Target
from turnlog.providers.conversation import Conversation


def _base64(text: str) -> str:
    return b64encode(text.encode()).decode()


# Turns


def test_messages_stay_as_they_are() -> None:
    """Text goes through, turn by turn: turns of one role in a row are not joined."""
    found = carry(message("user", "a", "b"), message("user", "c"), message("assistant", "d"), message("system", "e"))
    assert outline(found.messages) == [["user", "a", "b"], ["user", "c"], ["assistant", "d"], ["system", "e"]]
    assert found.lost == []


def test_fragments_make_a_list() -> None:
    """The fragments of the messages, joined, are the items of a JSON list: all but the first begin with the comma."""
    fragments = carry(message("user", "a"), message("user", "b")).carried.messages
    assert [fragment[:1] for fragment in fragments] == [b"{", b","]


def test_nothing_is_carried_of_nothing() -> None:
    """No messages are no fragments."""
    found = carry()
    assert (list(found.carried.messages), found.losses) == ([], ())


def test_turn_without_content_is_left_out() -> None:
    """A turn without blocks has nothing to say, and wires refuse empty messages: no message, and no loss."""
    found = carry(message("user"), message("user", "a"), message("assistant"))
    assert outline(found.messages) == [["user", "a"]]
    assert found.lost == []


def test_empty_text_is_dropped_and_reported() -> None:
    """Wires refuse empty texts; a turn of nothing else is left out with its text."""
    found = carry(message("user", "", "a", turn="1"), message("assistant", "", turn="2"))
    assert outline(found.messages) == [["user", "a"]]
    assert [(loss.kind, loss.block, loss.turn, loss.index) for loss in found.losses] == [
        ("dropped", "text", "1", 0),
        ("dropped", "text", "2", 0),
    ]


def test_role_that_no_wire_knows_is_a_users() -> None:
    """A message of a role that turnlog does not have is one of the user."""
    assert outline(carry(message("tool", "a")).messages) == [["user", "a"]]


# System turns


def test_system_turns_are_joined_where_the_wire_has_them_at_the_top() -> None:
    """The texts of system turns go to the top, in order, and leave no message behind."""
    found = carry(
        message("system", "a", "b"),
        message("user", "hi"),
        message("system", "c", cache=True),
        capabilities=Capabilities(system="joined"),
    )
    assert outline(found.messages) == [["user", "hi"]]
    assert (found.carried.system, found.carried.system_cached) == (("a", "b", "c"), True)
    assert found.lost == []


def test_system_turns_are_messages_where_the_wire_has_them_so() -> None:
    """Where system turns are messages, they stay where they are."""
    found = carry(message("user", "hi"), message("system", "a", cache=True))
    assert outline(found.messages) == [["user", "hi"], ["system", "a"]]
    assert (found.carried.system, found.carried.system_cached) == ((), False)


def test_text_document_of_a_system_turn_is_text_at_the_top() -> None:
    """A text document can be a rule too."""
    found = carry(message("system", document("text/plain")), capabilities=Capabilities(system="joined"))
    assert found.carried.system == ("hello",)


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_image_of_another_role_is_a_line_of_text(role: str) -> None:
    """Only users' turns show images, on any wire."""
    found = carry(message(role, document("image/png"), turn="t"))
    assert found.lost == ["dropped document t"]
    with pytest.raises(UnsupportedContentError, match=f"'t', block 0: a document of {role} turns of type 'image/png'"):
        carry(message(role, document("image/png"), turn="t"), on_loss="error")


# Documents


@pytest.mark.parametrize("media_type", ["image/png", "IMAGE/PNG", "image/jpeg; q=1", "application/pdf"])
def test_document_that_the_wire_takes_goes_through(media_type: str) -> None:
    """A document whose media type fits a pattern goes as it is, whatever the case and the parameters."""
    found = carry(message("user", document(media_type)))
    assert outline(found.messages) == [["user", f"<{media_type}>"]]
    assert found.lost == []


@pytest.mark.parametrize(
    "media_type",
    ["text/plain", "text/markdown; charset=utf-8", "application/json", "application/ld+json", "image/svg+xml"],
)
@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_text_like_document_becomes_text(media_type: str, role: str) -> None:
    """A text-like document is its text where the wire has no such document, and nothing is lost by it."""
    wire = Capabilities(documents=("application/pdf",))
    found = carry(message(role, document(media_type, _base64("crème, 茶"))), capabilities=wire)
    assert outline(found.messages) == [[role, "crème, 茶"]]
    assert found.lost == []


def test_empty_text_document_is_dropped_and_reported() -> None:
    """An empty document is an empty text, which wires refuse."""
    found = carry(message("user", document("text/plain", ""), "a", turn="t"))
    assert outline(found.messages) == [["user", "a"]]
    assert found.lost == ["dropped text t"]


@pytest.mark.parametrize(
    ("media_type", "data"),
    [
        ("application/zip", "aGVsbG8="),
        ("text/plain", b64encode(b"\xff\xfe").decode()),
        ("text/plain", "not base64!"),
    ],
    ids=["binary", "not UTF-8", "not base64"],
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


def test_text_document_in_a_result_is_text_in_it() -> None:
    """A text document in a tool result becomes text where it stands, and does not move."""
    found = carry(
        message("assistant", call("a")),
        message("user", result("a", [document("text/csv")])),
        capabilities=Capabilities(documents=("text/*",)),
    )
    assert outline(found.messages)[1] == ["user", "a: hello"]
    assert found.lost == []


def test_document_in_a_result_that_the_wire_cannot_carry_is_a_line_of_text() -> None:
    """Documents in results are degraded like others, and refused like others."""
    turns = (message("assistant", call("a")), message("user", result("a", [document("application/zip")]), turn="t"))
    with pytest.raises(UnsupportedContentError, match="turn 't', block 0"):
        carry(*turns, on_loss="error")
    found = carry(*turns)
    assert found.lost == ["dropped document t"]
    assert "application/zip" in found.messages[1]["blocks"][0]["content"][0]["text"]


# Thinking and native blocks


def _thinking(**fields: Any) -> dict[str, Any]:
    return {"type": "thinking", "thinking": "hm", "signature": "c2ln"} | fields


_NATIVE = {"type": "native", "provider": "here", "block": {"x": 1.50}}


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


def test_thinking_of_nobody_known_is_dropped() -> None:
    """Thinking that no model is named for belongs to none."""
    assert carry(message("assistant", _thinking(), turn="t")).lost == ["dropped thinking t"]


@pytest.mark.parametrize(
    ("wanted", "signature", "kept"),
    [
        ("all", "c2ln", True),
        ("all", None, True),
        ("signed", "c2ln", True),
        ("signed", None, False),
        ("none", "c2ln", False),
    ],
)
def test_wire_says_which_thinking_it_takes(wanted: Any, signature: str | None, kept: bool) -> None:
    """A wire takes all thinking of its model, only what is signed, or none; the rest is reported."""
    thought = {"type": "thinking", "thinking": "hm"} | ({} if signature is None else {"signature": signature})
    found = carry(message("assistant", thought, "a", turn="t", **OWN), capabilities=Capabilities(thinking=wanted))
    assert outline(found.messages) == [["assistant", "<thinking>", "a"] if kept else ["assistant", "a"]]
    assert found.lost == ([] if kept else ["dropped thinking t"])


def test_native_block_goes_back_to_its_model_unchanged() -> None:
    """A native block goes back as the provider wrote it, numbers spelled as they were."""
    content = b'[{"type":"native","provider":"here","block":{"x":1.50}}]'
    found = carry(Message(turn="t", role="assistant", content_json=content, **OWN))
    assert b'{"x":1.50}' in found.carried.messages[0]
    assert found.lost == []


def test_wire_may_take_no_native_blocks() -> None:
    """Where the wire takes none, not even its own go back."""
    found = carry(message("assistant", _NATIVE, turn="t", **OWN), capabilities=Capabilities(native=False))
    assert found.lost == ["dropped native t"]


def test_native_block_of_a_system_turn_is_reported_where_the_turn_becomes_text() -> None:
    """Where system turns are joined as text, their native blocks are lost, and the report says so."""
    block = _NATIVE | {"api": "test", "model": "m"}
    wire = Capabilities(system="joined", native=True)
    assert carry(message("system", block, "a", turn="t"), capabilities=wire).lost == ["dropped native t"]


@pytest.mark.parametrize("role", ["user", "system"])
def test_thinking_outside_an_assistant_turn_is_dropped(role: str) -> None:
    """Only assistant turns think."""
    assert carry(message(role, _thinking(**OWN), "a", turn="t")).lost == ["dropped thinking t"]


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


def test_cached_turn_with_results_is_one_fragment() -> None:
    """Results and text of one turn are cached together."""
    found = carry(message("assistant", call("x")), message("user", result("x"), "a", cache=True))
    assert found.carried.cached == (1,)


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
