"""Erased turns on their way to a wire: a fixed text in their place, and no request becomes invalid."""

from typing import Any

import pytest
from tests.unit.providers.carrying import call, carry, message, outline, result
from tests.wires.typed_bodies import check_body

from turnlog import providers
from turnlog.errors import ContentError, UnsupportedContentError
from turnlog.model import ContextWindow, Erased, Message, parse_window
from turnlog.model.blocks import content_bytes, parse_content
from turnlog.model.erased import erased_content, window_content
from turnlog.providers import Capabilities
from turnlog.providers.conversation import ERASED
from turnlog.providers.registry import BUILT_IN


def erased(role: str, turn: str = "gone", **fields: Any) -> Message:
    """Return the message of an erased turn."""
    return Message(turn=turn, role=role, content_json=erased_content(turn, 5, sealed=False), **fields)


def test_erased_turn_is_a_fixed_text_and_is_reported() -> None:
    """Roles alternate as they did, and the report names the turn."""
    found = carry(message("user", "a"), erased("assistant"), erased("user", "also"), message("assistant", "d"))
    assert outline(found.messages) == [["user", "a"], ["assistant", ERASED], ["user", ERASED], ["assistant", "d"]]
    assert found.lost == ["dropped erased gone", "dropped erased also"]


def test_erased_system_turn_is_a_fixed_text_wherever_system_turns_go() -> None:
    """Also where they are joined at the top."""
    found = carry(erased("system"), message("user", "a"), capabilities=Capabilities(system="joined"))
    assert (outline(found.messages), found.carried.system) == ([["user", "a"]], (ERASED,))


def test_calls_whose_results_were_erased_are_answered() -> None:
    """The made-up results take the place of the erased turn, and are no errors."""
    found = carry(message("assistant", call("a"), call("b"), turn="calls"), erased("user"), message("assistant", "d"))
    assert outline(found.messages) == [
        ["assistant", "call a", "call b"],
        ["user", f"a: {ERASED}", f"b: {ERASED}"],
        ["assistant", "d"],
    ]
    assert "is_error" not in found.messages[1]["blocks"][0]
    assert sorted(found.lost) == ["dropped erased gone", *["synthesised tool_result calls"] * 2]


def test_results_whose_calls_were_erased_leave_a_text() -> None:
    """They answer nothing any more; a message stays in their place, so that two of the model do not meet."""
    found = carry(
        message("user", "a"),
        erased("assistant"),
        message("user", result("x"), turn="results"),
        message("assistant", "d"),
    )
    assert outline(found.messages) == [["user", "a"], ["assistant", ERASED], ["user", ERASED], ["assistant", "d"]]
    assert found.lost == ["dropped erased gone", "dropped tool_result results"]


def test_what_is_said_beside_such_results_stays() -> None:
    """Only a message that would have nothing left gets the text."""
    found = carry(erased("assistant"), message("user", result("x"), "and this", turn="results"))
    assert outline(found.messages) == [["assistant", ERASED], ["user", "and this"]]


def test_erased_turn_is_refused_where_all_losses_are() -> None:
    """`on_loss="error"` sends nothing that is not as it was recorded."""
    with pytest.raises(UnsupportedContentError, match=r"'gone'.*erased"):
        carry(erased("user"), on_loss="error")


WINDOWS = {
    "system": [erased("system"), message("user", "a")],
    "only one": [erased("user")],
    "calls": [
        message("user", "a"),
        erased("assistant"),
        message("user", result("x")),
        message("assistant", "d"),
        erased("user"),
    ],
    "results": [
        message("user", "a"),
        message("assistant", call("x")),
        erased("user"),
        message("assistant", "d"),
        message("user", "e"),
    ],
    "all": [erased("system"), erased("user"), erased("assistant"), erased("user")],
}


@pytest.mark.parametrize("name", sorted(BUILT_IN))
@pytest.mark.parametrize("messages", WINDOWS.values(), ids=WINDOWS.keys())
def test_every_adapter_makes_a_valid_request(name: str, messages: list[Message]) -> None:
    """The body is what the provider's SDK has types for, has the text, and each erased turn is in the report."""
    window = ContextWindow(messages=messages, options={})
    request = providers.get(name).prepare_request(
        window, model="m", params={"max_tokens": 9} if name == "anthropic" else {}
    )
    check_body(name, request.body)
    assert ERASED.encode() in request.body
    assert b'"erased"' not in request.body
    reported = [entry.turn for entry in request.loss_report.entries if entry.block == "erased"]
    assert len(reported) == sum(one.erased for one in messages)


def test_placeholder_cannot_be_recorded() -> None:
    """Nobody can record that something was erased which was not."""
    block = {"type": "erased", "turn": "x", "time": 1}
    with pytest.raises(ContentError, match="'erased' is not a content block"):
        content_bytes([block])
    with pytest.raises(ContentError):
        content_bytes([Erased(turn="x", time=1)])
    with pytest.raises(ContentError):
        parse_content('[{"type":"erased","turn":"x","time":1}]')


def test_placeholder_in_a_window_stands_alone() -> None:
    """A window as JSON can have it, as `turnlog context --json` writes it."""
    window = ContextWindow(messages=[erased("user")], options={})
    assert parse_window(window.to_json()).messages[0].content == [Erased(turn="gone", time=5)]
    for content in (
        b'[{"type":"erased","turn":"x","time":1},{"type":"text","text":"y"}]',
        b'[{"type":"erased","turn":"x"}]',
        b'[{"type":"erased","turn":"x","time":1},{"type":"erased","turn":"x","time":1}]',
    ):
        with pytest.raises(ContentError):
            window_content(content)
