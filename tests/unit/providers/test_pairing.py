"""Calls and results on their way to a wire: paired by id, each result right behind its call."""

import re
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
    message,
    outline,
    result,
    shown,
)

from turnlog import UnsupportedContentError
from turnlog.model import Message
from turnlog.model.chunked import Chunked
from turnlog.providers import Capabilities, get, get_as
from turnlog.providers.conversation import NO_RESULT

JOINED = Capabilities(system="joined")
NO_IDS = Capabilities(tool_id_pattern=None)
PDF = document("application/pdf")
BOTH = message("assistant", "look", call("a"), result("a", "A"), turn="both")
SEE = {"type": "text", "text": "see"}

CARRIED: dict[str, tuple[list[Message], list[list[str]], list[str]]] = {
    "results of one turn are one message, in the order recorded": (
        [message("assistant", call("a"), call("b")), message("user", result("b", "B"), result("a", "A"))],
        [["assistant", "call a", "call b"], ["user", "b: B", "a: A"]],
        [],
    ),
    "results come first in their message, and what else the turn says follows": (
        [message("assistant", call("a")), message("user", "before", result("a", "A"), "after")],
        [["assistant", "call a"], ["user", "a: A", "before", "after"]],
        [],
    ),
    "the result of a later turn moves to the one right behind the call": (
        [
            message("assistant", call("a"), call("b")),
            message("user", result("a", "A"), turn="first"),
            message("user", result("b", "B"), "and text", turn="second"),
        ],
        [["assistant", "call a", "call b"], ["user", "a: A", "b: B"], ["user", "and text"]],
        ["moved tool_result second 0"],
    ),
    "a late result moves before what was said meanwhile": (
        [
            message("assistant", call("a")),
            message("user", "meanwhile"),
            message("user", result("a", "A"), turn="late"),
        ],
        [["assistant", "call a"], ["user", "a: A"], ["user", "meanwhile"]],
        ["moved tool_result late 0"],
    ),
    "a result in the turn of its call moves behind it, also at the end": (
        [BOTH],
        [["assistant", "look", "call a"], ["user", "a: A"]],
        ["moved tool_result both 2"],
    ),
    "a result in the turn of its call moves before what follows": (
        [BOTH, message("user", "go on")],
        [["assistant", "look", "call a"], ["user", "a: A"], ["user", "go on"]],
        ["moved tool_result both 2"],
    ),
    "a result in the turn of its call stands with those of later turns": (
        [
            message("assistant", call("a"), call("b"), result("a", "A"), turn="both"),
            message("user", result("b", "B"), "thanks", turn="next"),
        ],
        [["assistant", "call a", "call b"], ["user", "a: A", "b: B", "thanks"]],
        ["moved tool_result both 2"],
    ),
    "a result that an assistant turn holds goes before what that turn says": (
        [message("assistant", call("a")), message("assistant", result("a", "A"), "so it is", turn="mixed")],
        [["assistant", "call a"], ["user", "a: A"], ["assistant", "so it is"]],
        [],
    ),
    "a call that was passed over is answered right behind it, beside the results that did come": (
        [message("assistant", call("a"), call("b"), turn="asks"), message("user", result("b", "B"), "go on")],
        [["assistant", "call a", "call b"], ["user", "b: B", f"a: {NO_RESULT}", "go on"]],
        ["synthesised tool_result asks None"],
    ),
    "a result answers calls that were made before it, not those that come after": (
        [message("user", result("a", "early"), turn="early"), message("assistant", call("a"), turn="asks")],
        [["assistant", "call a"], ["user", f"a: {NO_RESULT}"]],
        ["dropped tool_result early 0", "synthesised tool_result asks None"],
    ),
    "a second result of a call answers nothing": (
        [message("assistant", call("a")), message("user", result("a", "1"), result("a", "2"), turn="t")],
        [["assistant", "call a"], ["user", "a: 1"]],
        ["dropped tool_result t 1"],
    ),
    "an id used twice is renamed the second time, and each result goes with the call before it": (
        [
            message("assistant", call("a"), turn="1"),
            message("user", result("a", "first")),
            message("assistant", call("a"), turn="2"),
            message("user", result("a", "second")),
            message("assistant", call("a"), turn="3"),
        ],
        [
            ["assistant", "call a"],
            ["user", "a: first"],
            ["assistant", "call a_2"],
            ["user", "a_2: second"],
            ["assistant", "call a_3"],
            ["user", f"a_3: {NO_RESULT}"],
        ],
        ["renamed tool_id 2 0", "renamed tool_id 3 0", "synthesised tool_result 3 None"],
    ),
    "of two calls of one id in one turn, the first result answers the first": (
        [message("assistant", call("a", "f"), call("a", "g")), message("user", result("a", "F"), result("a", "G"))],
        [["assistant", "call a", "call a_2"], ["user", "a: F", "a_2: G"]],
        ["renamed tool_id tool_use 1"],
    ),
    "where an id was used before and never answered, a result is that of the later call": (
        [
            message("assistant", call("a"), turn="1"),
            message("user", "never mind"),
            message("assistant", call("a"), turn="2"),
            message("user", result("a", "A")),
        ],
        [
            ["assistant", "call a"],
            ["user", f"a: {NO_RESULT}"],
            ["user", "never mind"],
            ["assistant", "call a_2"],
            ["user", "a_2: A"],
        ],
        ["renamed tool_id 2 0", "synthesised tool_result 1 None"],
    ),
    "without ids, a result answers the oldest open call of its name": (
        [
            message("assistant", call(None, "f"), call(None, "g"), call(None, "f"), turn="asks"),
            message("user", *(result(None, text, name=text[0].lower()) for text in ("F1", "F2", "G")), turn="t"),
        ],
        [
            ["assistant", "call call_1", "call call_2", "call call_3"],
            ["user", "call_1: F1", "call_3: F2", "call_2: G"],
        ],
        ["renamed tool_id asks 0", "renamed tool_id asks 1", "renamed tool_id asks 2"],
    ),
    "an id made up for a call is not one that was used before": (
        [
            message("assistant", call("call_2")),
            message("user", result("call_2")),
            message("assistant", call(None), turn="t"),
            message("user", result(None, name="f")),
        ],
        [
            ["assistant", "call call_2"],
            ["user", "call_2: ok"],
            ["assistant", "call call_2_2"],
            ["user", "call_2_2: ok"],
        ],
        ["renamed tool_id t 0"],
    ),
    "an image stays in a result where results can hold images": (
        [message("assistant", call("a")), message("user", result("a", [SEE, document("image/png")]))],
        [["assistant", "call a"], ["user", "a: see+<image/png>"]],
        [],
    ),
    "a document that results cannot hold stands behind them, before what else the turn says": (
        [
            message("assistant", call("a"), call("b")),
            message("user", "text", result("a", [SEE, PDF]), result("b", "B"), turn="t"),
        ],
        [["assistant", "call a", "call b"], ["user", "a: see", "b: B", "<application/pdf>", "text"]],
        ["moved document t 1"],
    ),
    "a result whose documents moved points to them": (
        [message("assistant", call("a")), message("user", result("a", [PDF, PDF]), turn="t")],
        [["assistant", "call a"], ["user", "a: (2 documents: see below)", "<application/pdf>", "<application/pdf>"]],
        ["moved document t 0", "moved document t 0"],
    ),
    "the empty text of a result is left out, and the result stays": (
        [message("assistant", call("a")), message("user", result("a", [{"type": "text", "text": ""}]), turn="t")],
        [["assistant", "call a"], ["user", "a: "]],
        ["dropped text t 0"],
    ),
    "a tool that answered nothing has answered": (
        [
            message("assistant", call("a"), call("b")),
            message("user", result("a", []), result("b", [{"type": "text", "text": "B"}])),
        ],
        [["assistant", "call a", "call b"], ["user", "a: ", "b: B"]],
        [],
    ),
    "where system turns are joined at the top, results do not wait for them": (
        [message("assistant", call("a")), message("system", "rule"), message("user", result("a", "A"), turn="late")],
        [["assistant", "call a"], ["user", "a: A"]],
        ["moved tool_result late 0"],
    ),
    "where the wire has no ids, none is refused or renamed": (
        [
            message("assistant", call("a.b"), call("a.b"), call(None)),
            message("user", result("a.b", "1"), result("a.b", "2"), result(None, "3", name="f")),
        ],
        [["assistant", "call a.b", "call a.b", "call call_3"], ["user", "a.b: 1", "a.b: 2", "call_3: 3"]],
        [],
    ),
    "where only their order tells calls apart, results have the same": (
        [
            message("assistant", call("a"), call("b"), call("c"), turn="t"),
            message("user", result("c", "C"), result("a", "A")),
        ],
        [["assistant", "call a", "call b", "call c"], ["user", "a: A", f"b: {NO_RESULT}", "c: C"]],
        ["synthesised tool_result t None"],
    ),
}
ELSEWHERE = {
    "where system turns are joined at the top, results do not wait for them": JOINED,
    "where the wire has no ids, none is refused or renamed": NO_IDS,
    "where only their order tells calls apart, results have the same": NO_IDS,
}
"""The wires of the cases that are not of the usual one."""


@pytest.mark.parametrize("case", CARRIED)
def test_results_stand_behind_their_calls(case: str) -> None:
    """Whatever was recorded between them; what was moved, made up, renamed or dropped is reported with its place."""
    messages, expected, lost = CARRIED[case]
    found = carry(*messages, capabilities=ELSEWHERE.get(case, WIRE))
    assert outline(found.messages) == expected
    assert [f"{loss.kind} {loss.block} {loss.turn} {loss.index}" for loss in found.losses] == lost


def test_call_without_result_gets_an_error() -> None:
    """A call at the end that nobody answered is answered with an error, which gives way to the real result."""
    growing = conversation()
    source: Chunked[Message] = Chunked([message("assistant", call("a"), turn="asks")])
    open_call = shown(growing.carry(source))
    assert open_call.messages[1]["blocks"] == [
        {
            "type": "tool_result",
            "tool_use_id": "a",
            "name": "f",
            "is_error": True,
            "content": [{"type": "text", "text": NO_RESULT}],
        }
    ]
    assert open_call.lost == ["synthesised tool_result asks"]
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


# Ids


@pytest.mark.parametrize(
    "id", ["call.1", "functions.read:0", "ü", "a b", "x" * 65, "tool/" * 30], ids=lambda id: id[:12]
)
def test_id_that_the_wire_refuses_is_mapped_in_call_and_result(id: str) -> None:
    """An id in another form, or too long, becomes one that the wire takes, which depends on the id alone."""
    found = carry(message("assistant", call(id), turn="asks"), message("user", result(id, "A")))
    [used] = found.messages[0]["blocks"]
    [answer] = found.messages[1]["blocks"]
    assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", used["id"])
    assert answer["tool_use_id"] == used["id"]
    [loss] = found.losses
    assert (loss.kind, loss.block, loss.turn, loss.index) == ("renamed", "tool_id", "asks", 0)
    assert repr(used["id"]) in loss.why
    assert repr(id) in loss.why
    other = carry(message("user", "hi"), message("assistant", call("x"), call(id)))
    assert other.messages[1]["blocks"][1]["id"] == used["id"]


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


def test_id_that_the_provider_made_itself_goes_back_however_long() -> None:
    """Only ids of others have to be as short as the wire wants them."""
    long = "call_" + "x" * 100
    own = carry(message("assistant", call(long), **OWN), message("user", result(long)))
    assert own.messages[0]["blocks"][0]["id"] == own.messages[1]["blocks"][0]["tool_use_id"] == long
    assert own.lost == []
    other = carry(message("assistant", call(long), turn="t", **OTHER), message("user", result(long)))
    assert len(other.messages[0]["blocks"][0]["id"]) == 64
    assert other.lost == ["renamed tool_id t"]


def test_id_that_an_endpoint_of_another_name_made_goes_back_in_its_form() -> None:
    """Models such as Kimi know their calls by it. Which form it has there is not known, and others' have the wire's."""
    id = "functions.read:0"
    endpoint = msgspec.structs.replace(WIRE, own_tool_ids_fit=False)
    own = carry(message("assistant", call(id), **OWN), message("user", result(id)), capabilities=endpoint)
    assert own.messages[0]["blocks"][0]["id"] == own.messages[1]["blocks"][0]["tool_use_id"] == id
    assert own.lost == []
    other = carry(message("assistant", call(id), turn="t", **OTHER), capabilities=endpoint)
    assert other.lost[0] == "renamed tool_id t"
    at_home = carry(message("assistant", call(id), turn="t", **OWN))
    assert at_home.lost[0] == "renamed tool_id t"


@pytest.mark.parametrize("name", ["anthropic", "openai_chat", "openai_responses"])
def test_only_the_provider_that_a_wire_is_of_holds_its_own_ids_to_its_form(name: str) -> None:
    """A session that another model wrote under that provider's name would be refused otherwise."""
    assert get(name).capabilities.own_tool_ids_fit
    assert not get_as(name, "moonshot").capabilities.own_tool_ids_fit


@pytest.mark.parametrize("id", ["a", "x" * 64], ids=["short", "longest"])
def test_id_used_very_often_is_renamed_each_time(id: str) -> None:
    """Every reply of some endpoints begins with the same id: each use has a number of its own, and still fits."""
    turns = [turn for _ in range(1000) for turn in (message("assistant", call(id)), message("user", result(id)))]
    found = shown(conversation().carry(Chunked(turns)))
    ids = [sent["blocks"][0]["id"] for sent in found.messages[::2]]
    assert ids == [id, *(f"{id[: 63 - len(str(number))]}_{number}" for number in range(2, 1001))]


@pytest.mark.parametrize("id", ["call_12345678", "toolu_01", "a-b", "Ab3Ab3Ab33", None])
def test_ids_have_the_length_that_a_wire_wants_all_to_have(id: str | None) -> None:
    """Mistral takes ids of 9 letters and digits alone; those of others, and of calls without one, become such."""
    mistral = get_as("openai_chat", "mistral").capabilities
    turns = [turn for _ in range(100) for turn in (message("assistant", call(id)), message("user", result(id)))]
    found = carry(*turns, capabilities=mistral)
    ids = [sent["blocks"][0]["id"] for sent in found.messages[::2]]
    assert ids == [sent["blocks"][0]["tool_use_id"] for sent in found.messages[1::2]]
    assert (len(set(ids)), found.lost[0].split()[:2]) == (100, ["renamed", "tool_id"])
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", sent) for sent in ids)
    fitting = carry(message("assistant", call("D681PevKs")), message("user", result("D681PevKs")), capabilities=mistral)
    assert (outline(fitting.messages)[0], fitting.lost) == (["assistant", "call D681PevKs"], [])


# What a result says


@pytest.mark.parametrize("is_error", [True, False, None])
def test_result_has_the_name_of_its_call_and_its_own_error_flag(is_error: bool | None) -> None:
    """The name also where the recorded result has none; whether it is an error as it was recorded."""
    found = carry(message("assistant", call("a", "server___tool")), message("user", result("a", is_error=is_error)))
    [block] = found.messages[1]["blocks"]
    assert (block["name"], block.get("is_error")) == ("server___tool", is_error)


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
    of_text = Capabilities(result_errors="text", result_documents=("image/*",))
    partly = carry(message("assistant", call("a")), failed, capabilities=of_text)
    has_image = "image" in said
    assert ("Error" in str(outline(partly.messages)), partly.lost == found.lost) == (has_image, has_image)


@pytest.mark.parametrize("role", ["user", "system"])
@pytest.mark.parametrize("system", ["joined", "inline"])
def test_call_outside_an_assistant_turn_is_dropped_with_its_result(role: str, system: Any) -> None:
    """Only an assistant's turn calls tools: elsewhere a call is left out and reported, and so is its result."""
    turns = (message(role, "hi", call("a"), turn="odd"), message("user", result("a", "A"), "go on", turn="next"))
    with pytest.raises(UnsupportedContentError, match="'odd', block 1: tool_use, because only assistant turns"):
        carry(*turns, capabilities=Capabilities(system=system), on_loss="error")
    found = carry(*turns, capabilities=Capabilities(system=system), on_loss="report")
    assert outline(found.messages)[-1] == ["user", "go on"]
    assert "call a" not in str(outline(found.messages))
    assert found.lost == ["dropped tool_use odd", "dropped tool_result next"]
