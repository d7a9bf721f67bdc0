"""Calls and results on their way to a wire: paired by id, each result right behind its call."""

import re
from typing import Any

import pytest
from tests.unit.providers.carrying import (
    OTHER,
    OWN,
    call,
    carry,
    conversation,
    document,
    message,
    outline,
    result,
    shown,
)

from turnlog import UnsupportedContentError
from turnlog.model import Message
from turnlog.model.chunked import Chunked
from turnlog.providers import Capabilities
from turnlog.providers.conversation import NO_RESULT

# Where results stand


def test_results_of_several_calls_in_one_turn_stay_together() -> None:
    """Results of one turn are one message, in the order recorded, which need not be that of the calls."""
    found = carry(message("assistant", call("a"), call("b")), message("user", result("b", "B"), result("a", "A")))
    assert outline(found.messages) == [["assistant", "call a", "call b"], ["user", "b: B", "a: A"]]
    assert found.lost == []


def test_text_beside_results_stands_behind_them() -> None:
    """Results come first in their message, as wires want them; what else the turn says follows, in its order."""
    found = carry(message("assistant", call("a")), message("user", "before", result("a", "A"), "after"))
    assert outline(found.messages)[1] == ["user", "a: A", "before", "after"]
    assert found.lost == []


def test_results_that_come_in_several_turns_are_brought_together() -> None:
    """The result of a later turn moves to the one right behind the call, and the report says whence."""
    found = carry(
        message("assistant", call("a"), call("b")),
        message("user", result("a", "A"), turn="first"),
        message("user", result("b", "B"), "and text", turn="second"),
    )
    assert outline(found.messages) == [
        ["assistant", "call a", "call b"],
        ["user", "a: A", "b: B"],
        ["user", "and text"],
    ]
    assert [(loss.kind, loss.block, loss.turn, loss.index) for loss in found.losses] == [
        ("moved", "tool_result", "second", 0)
    ]


def test_late_result_moves_before_what_was_said_meanwhile() -> None:
    """A result that comes after other turns stands behind its call nevertheless, in a message of its own."""
    found = carry(
        message("assistant", call("a")), message("user", "meanwhile"), message("user", result("a", "A"), turn="late")
    )
    assert outline(found.messages) == [["assistant", "call a"], ["user", "a: A"], ["user", "meanwhile"]]
    assert found.lost == ["moved tool_result late"]


def test_late_result_moves_before_a_system_turn() -> None:
    """Where system turns are joined at the top, results do not wait for them either."""
    joined = Capabilities(system="joined")
    found = carry(
        message("assistant", call("a")),
        message("system", "rule"),
        message("user", result("a", "A"), turn="late"),
        capabilities=joined,
    )
    assert outline(found.messages) == [["assistant", "call a"], ["user", "a: A"]]
    assert found.carried.system == ("rule",)
    assert found.lost == ["moved tool_result late"]


def test_result_in_the_turn_of_its_call_moves_behind_it() -> None:
    """An assistant turn that holds a call and its result is a call, and a message with the result."""
    together = message("assistant", "look", call("a"), result("a", "A"), turn="both")
    alone = carry(together)
    assert outline(alone.messages) == [["assistant", "look", "call a"], ["user", "a: A"]]
    assert alone.lost == ["moved tool_result both"]
    followed = carry(together, message("user", "go on"))
    assert outline(followed.messages) == [["assistant", "look", "call a"], ["user", "a: A"], ["user", "go on"]]
    assert followed.lost == ["moved tool_result both"]


def test_result_in_the_turn_of_its_call_stands_with_those_of_later_turns() -> None:
    """Of two calls, one answered at once and one in the next turn, both results are in one message."""
    found = carry(
        message("assistant", call("a"), call("b"), result("a", "A"), turn="both"),
        message("user", result("b", "B"), "thanks", turn="next"),
    )
    assert outline(found.messages) == [["assistant", "call a", "call b"], ["user", "a: A", "b: B", "thanks"]]
    assert found.lost == ["moved tool_result both"]


def test_result_in_an_assistant_turn_is_a_message_of_its_own() -> None:
    """A result that an assistant turn holds goes before what that turn says."""
    found = carry(message("assistant", call("a")), message("assistant", result("a", "A"), "so it is", turn="mixed"))
    assert outline(found.messages) == [["assistant", "call a"], ["user", "a: A"], ["assistant", "so it is"]]


# Calls without results, results without calls


def test_call_without_result_gets_an_error() -> None:
    """A call at the end that nobody answered is answered with an error, and reported."""
    found = carry(message("assistant", call("a"), turn="asks"))
    [made_up] = found.messages[1]["blocks"]
    assert made_up == {
        "type": "tool_result",
        "tool_use_id": "a",
        "name": "f",
        "is_error": True,
        "content": [{"type": "text", "text": NO_RESULT}],
    }
    assert found.lost == ["synthesised tool_result asks"]


def test_call_that_other_turns_follow_gets_an_error_before_them() -> None:
    """A call that was passed over is answered right behind it, beside the results that did come."""
    found = carry(
        message("assistant", call("a"), call("b"), turn="asks"),
        message("user", result("b", "B"), "go on"),
    )
    assert outline(found.messages)[1] == ["user", "b: B", f"a: {NO_RESULT}", "go on"]
    assert found.lost == ["synthesised tool_result asks"]


def test_made_up_result_gives_way_to_the_real_one() -> None:
    """What was made up for the end of a conversation is not there any more when the result is recorded."""
    growing = conversation()
    source: Chunked[Message] = Chunked([message("assistant", call("a"))])
    assert shown(growing.carry(source)).lost == ["synthesised tool_result tool_use"]
    answered = shown(growing.carry(source.extended([message("user", result("a", "A"))])))
    assert outline(answered.messages) == [["assistant", "call a"], ["user", "a: A"]]
    assert answered.lost == []


def test_result_without_call_is_dropped() -> None:
    """A result that answers nothing is left out, by name of the call that is missing, and the rest stays."""
    found = carry(message("user", result("gone", "A"), "hi", turn="t"))
    assert outline(found.messages) == [["user", "hi"]]
    [loss] = found.losses
    assert (loss.kind, loss.block, loss.turn, loss.index) == ("dropped", "tool_result", "t", 0)
    assert "'gone'" in loss.why


def test_result_before_its_call_is_dropped() -> None:
    """A result answers calls that were made before it, not those that come after."""
    found = carry(message("user", result("a", "early"), turn="early"), message("assistant", call("a"), turn="asks"))
    assert outline(found.messages) == [["assistant", "call a"], ["user", f"a: {NO_RESULT}"]]
    assert found.lost == ["dropped tool_result early", "synthesised tool_result asks"]


def test_second_result_of_a_call_is_dropped() -> None:
    """The first result answers a call; a further one answers nothing."""
    found = carry(message("assistant", call("a")), message("user", result("a", "1"), result("a", "2"), turn="t"))
    assert outline(found.messages)[1] == ["user", "a: 1"]
    assert [(loss.kind, loss.index) for loss in found.losses] == [("dropped", 1)]


# Ids


@pytest.mark.parametrize(
    "id", ["call.1", "functions.read:0", "ü", "a b", "x" * 65, "tool/" * 30], ids=lambda id: id[:12]
)
def test_id_that_the_wire_refuses_is_mapped_in_call_and_result(id: str) -> None:
    """An id in another form, or too long, becomes one that the wire takes: the same in both places."""
    found = carry(message("assistant", call(id), turn="asks"), message("user", result(id, "A")))
    [used] = found.messages[0]["blocks"]
    [answer] = found.messages[1]["blocks"]
    assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", used["id"])
    assert answer["tool_use_id"] == used["id"]
    [loss] = found.losses
    assert (loss.kind, loss.block, loss.turn, loss.index) == ("renamed", "tool_id", "asks", 0)
    assert repr(used["id"]) in loss.why
    assert repr(id) in loss.why


def test_ids_that_look_alike_stay_apart() -> None:
    """Two ids that differ only in what the wire refuses are mapped to two."""
    found = carry(
        message("assistant", call("a.b"), call("a:b"), call("a_b")),
        message("user", result("a:b", "2"), result("a.b", "1"), result("a_b", "3")),
    )
    first, second, third = (block["id"] for block in found.messages[0]["blocks"])
    assert len({first, second, third}) == 3
    assert third == "a_b"
    assert outline(found.messages)[1] == ["user", f"{second}: 2", f"{first}: 1", f"{third}: 3"]


def test_mapped_id_depends_on_the_id_alone() -> None:
    """The same id is mapped to the same one in any conversation."""
    one = carry(message("assistant", call("a.b")))
    other = carry(message("user", "hi"), message("assistant", call("x"), call("a.b")))
    assert one.messages[0]["blocks"][0]["id"] == other.messages[1]["blocks"][1]["id"]


def test_id_that_the_provider_made_itself_goes_back_however_long() -> None:
    """Only ids of others have to be as short as the wire wants them."""
    long = "call_" + "x" * 100
    own = carry(message("assistant", call(long), **OWN), message("user", result(long)))
    assert own.messages[0]["blocks"][0]["id"] == own.messages[1]["blocks"][0]["tool_use_id"] == long
    assert own.lost == []
    other = carry(message("assistant", call(long), turn="t", **OTHER), message("user", result(long)))
    assert len(other.messages[0]["blocks"][0]["id"]) == 64
    assert other.lost == ["renamed tool_id t"]


def test_id_used_twice_is_renamed_the_second_time() -> None:
    """Providers that count ids anew each reply use them twice: each result goes with the call before it."""
    found = carry(
        message("assistant", call("a"), turn="1"),
        message("user", result("a", "first")),
        message("assistant", call("a"), turn="2"),
        message("user", result("a", "second")),
        message("assistant", call("a"), turn="3"),
    )
    assert outline(found.messages) == [
        ["assistant", "call a"],
        ["user", "a: first"],
        ["assistant", "call a_2"],
        ["user", "a_2: second"],
        ["assistant", "call a_3"],
        ["user", f"a_3: {NO_RESULT}"],
    ]
    assert found.lost == ["renamed tool_id 2", "renamed tool_id 3", "synthesised tool_result 3"]


def test_id_used_twice_in_one_turn_is_answered_in_order() -> None:
    """Of two calls of one id in one turn, the first result answers the first."""
    found = carry(
        message("assistant", call("a", "f"), call("a", "g")), message("user", result("a", "F"), result("a", "G"))
    )
    assert outline(found.messages)[1] == ["user", "a: F", "a_2: G"]
    assert [block["name"] for block in found.messages[1]["blocks"]] == ["f", "g"]


def test_result_answers_the_last_call_of_its_id() -> None:
    """Where an id was used before and never answered, a result is that of the later call."""
    found = carry(
        message("assistant", call("a"), turn="1"),
        message("user", "never mind"),
        message("assistant", call("a"), turn="2"),
        message("user", result("a", "A")),
    )
    assert outline(found.messages)[1:] == [
        ["user", f"a: {NO_RESULT}"],
        ["user", "never mind"],
        ["assistant", "call a_2"],
        ["user", "a_2: A"],
    ]


def test_longest_id_used_twice_still_fits() -> None:
    """A mark for the second use does not make an id too long, and keeps it apart."""
    long = "x" * 64
    found = carry(
        message("assistant", call(long)),
        message("user", result(long)),
        message("assistant", call(long)),
        message("user", result(long)),
    )
    ids = [found.messages[0]["blocks"][0]["id"], found.messages[2]["blocks"][0]["id"]]
    assert ids == [long, "x" * 62 + "_2"]


def test_calls_without_ids_are_answered_by_name_in_order() -> None:
    """Without ids, a result answers the oldest open call of its name; each call gets an id for the wire."""
    found = carry(
        message("assistant", call(None, "f"), call(None, "g"), call(None, "f"), turn="asks"),
        message(
            "user", result(None, "F1", name="f"), result(None, "F2", name="f"), result(None, "G", name="g"), turn="t"
        ),
    )
    assert outline(found.messages) == [
        ["assistant", "call call_1", "call call_2", "call call_3"],
        ["user", "call_1: F1", "call_3: F2", "call_2: G"],
    ]
    assert found.lost == ["renamed tool_id asks"] * 3
    assert [loss.index for loss in found.losses] == [0, 1, 2]


def test_made_up_id_makes_way_for_none() -> None:
    """An id made up for a call is not one that was used before; one used later is renamed."""
    found = carry(
        message("assistant", call("call_2")),
        message("user", result("call_2")),
        message("assistant", call(None)),
        message("user", result(None, name="f")),
    )
    assert outline(found.messages)[2] == ["assistant", "call call_2_2"]


def test_wire_without_ids_takes_any() -> None:
    """Where the wire has no ids, none is refused or renamed."""
    wire = Capabilities(tool_id_pattern=None)
    found = carry(
        message("assistant", call("a.b"), call("a.b"), call(None)),
        message("user", result("a.b", "1"), result("a.b", "2"), result(None, "3", name="f")),
        capabilities=wire,
    )
    assert outline(found.messages)[1] == ["user", "a.b: 1", "a.b: 2", "call_3: 3"]
    assert found.lost == []


def test_results_stand_in_the_order_of_the_calls_where_only_that_tells_them_apart() -> None:
    """On a wire without ids, two calls of one tool are told apart by their order: their results have the same."""
    found = carry(
        message("assistant", call("a"), call("b"), call("c")),
        message("user", result("c", "C"), result("a", "A")),
        capabilities=Capabilities(tool_id_pattern=None),
    )
    assert outline(found.messages)[1] == ["user", "a: A", f"b: {NO_RESULT}", "c: C"]


def test_id_used_very_often_is_renamed_each_time() -> None:
    """Every reply of some endpoints begins with the same id: each use has a number of its own."""
    turns = [turn for _ in range(2000) for turn in (message("assistant", call("a")), message("user", result("a")))]
    found = shown(conversation().carry(Chunked(turns)))
    ids = [sent["blocks"][0]["id"] for sent in found.messages[::2]]
    assert ids == ["a", *(f"a_{number}" for number in range(2, 2001))]


def test_result_has_the_name_of_its_call() -> None:
    """A result on the wire names the tool, also where the recorded one does not."""
    found = carry(message("assistant", call("a", "server___tool")), message("user", result("a")))
    assert found.messages[1]["blocks"][0]["name"] == "server___tool"


@pytest.mark.parametrize("is_error", [True, False, None])
def test_error_flag_of_a_result_is_kept(is_error: bool | None) -> None:
    """Whether a result is an error goes along as it was recorded."""
    found = carry(message("assistant", call("a")), message("user", result("a", is_error=is_error)))
    assert found.messages[1]["blocks"][0]["is_error"] is is_error


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("no such file", "Error: no such file"),
        ("ERROR 5: no", "ERROR 5: no"),
        ("", "Error"),
        ([], "Error"),
        ([{"type": "text", "text": "no"}, document("image/png")], "Error: no+<image/png>"),
        ([document("image/png")], "Error+<image/png>"),
    ],
)
def test_error_stands_in_the_text_where_the_wire_cannot_say_it_otherwise(content: Any, said: str) -> None:
    """Without a flag for errors the text of the result says it is one, once, and the report says so."""
    failed = message("user", result("a", content, is_error=True), turn="t")
    found = carry(message("assistant", call("a")), failed)
    assert outline(found.messages)[1] == ["user", f"a: {said}"]
    assert found.lost == ["downgraded tool_result t"]
    flagged = carry(
        message("assistant", call("a")), failed, capabilities=Capabilities(result_errors=True), on_loss="report"
    )
    assert "Error" not in str(outline(flagged.messages))
    assert "downgraded tool_result t" not in flagged.lost


# What results hold


def test_document_in_a_result_stays_where_the_wire_takes_it() -> None:
    """An image in a tool result stays in it where results can hold images."""
    found = carry(
        message("assistant", call("a")),
        message("user", result("a", [{"type": "text", "text": "see"}, document("image/png")])),
    )
    assert outline(found.messages)[1] == ["user", "a: see+<image/png>"]
    assert found.lost == []


def test_document_in_a_result_moves_behind_all_results_where_it_must() -> None:
    """A document that results cannot hold stands behind them, before what else the turn says."""
    found = carry(
        message("assistant", call("a"), call("b")),
        message(
            "user",
            "text",
            result("a", [{"type": "text", "text": "see"}, document("application/pdf")]),
            result("b", "B"),
            turn="t",
        ),
    )
    assert outline(found.messages)[1] == ["user", "a: see", "b: B", "<application/pdf>", "text"]
    assert [(loss.kind, loss.block, loss.turn, loss.index) for loss in found.losses] == [("moved", "document", "t", 1)]


def test_result_that_held_only_documents_says_where_they_are() -> None:
    """A result whose documents moved is not empty: it points to them."""
    two = [document("application/pdf"), document("application/pdf")]
    found = carry(message("assistant", call("a")), message("user", result("a", two)))
    assert outline(found.messages)[1] == [
        "user",
        "a: (2 documents: see below)",
        "<application/pdf>",
        "<application/pdf>",
    ]


@pytest.mark.parametrize("content", ["", []], ids=["text", "list"])
def test_empty_result_is_carried(content: object) -> None:
    """A tool that answered nothing has answered."""
    found = carry(message("assistant", call("a")), message("user", result("a", content)))
    assert found.messages[1]["blocks"][0].get("content", "") == content  # no text at all is the default
    assert found.lost == []


def test_empty_text_in_a_result_is_dropped_and_reported() -> None:
    """Wires refuse empty texts, so a result's empty text is left out; the result stays."""
    found = carry(
        message("assistant", call("a")),
        message("user", result("a", [{"type": "text", "text": ""}]), turn="t"),
    )
    assert found.messages[1]["blocks"][0]["content"] == []
    assert found.lost == ["dropped text t"]


# Calls where none belong


@pytest.mark.parametrize("role", ["user", "system"])
@pytest.mark.parametrize("system", ["joined", "inline"])
def test_call_outside_an_assistant_turn_is_dropped_with_its_result(role: str, system: str) -> None:
    """Only an assistant's turn calls tools: elsewhere a call is left out and reported, and so is its result."""
    turns = (message(role, "hi", call("a"), turn="odd"), message("user", result("a", "A"), "go on", turn="next"))
    with pytest.raises(UnsupportedContentError, match=f"'odd', block 1: a tool call of a {role} turn"):
        carry(*turns, capabilities=Capabilities(system=system), on_loss="error")
    found = carry(*turns, capabilities=Capabilities(system=system), on_loss="report")
    assert outline(found.messages)[-1] == ["user", "go on"]
    assert "call a" not in str(outline(found.messages))
    assert found.lost == ["dropped tool_use odd", "dropped tool_result next"]
