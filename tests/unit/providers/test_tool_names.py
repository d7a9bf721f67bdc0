"""Names of tools in recorded calls that a wire does not take: another API refuses the whole thread for one of them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.providers.carrying import OWN, WIRE, call, carry, message, result

from turnlog import UnsupportedContentError
from turnlog.model import ContextWindow, Tool
from turnlog.providers import Capabilities, PreparedRequest, Provider, ToolNames, get, get_as

NARROW = Capabilities(tool_names=ToolNames(characters_max=16))
ODD = ("fs.read:v2", "functions.f", "", "n" * 130, "21st")
GEMINI = ToolNames(characters_max=64, pattern="[a-zA-Z_][a-zA-Z0-9_.:-]*")
FORMS = {
    "anthropic": "[a-zA-Z0-9_-]{1,128}",
    "bedrock": "[a-zA-Z0-9_-]{1,64}",
    "gemini": "[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}",
    "openai_chat": "[a-zA-Z0-9_-]{1,64}",
    "openai_responses": "[a-zA-Z0-9_-]{1,128}",
}


def asked(adapter: Provider, *names: str, tools: tuple[Tool, ...] = (), **fields: Any) -> PreparedRequest:
    """Return the request of a thread whose calls have these names, and are all answered."""
    calls = [call(f"id{number}", name) for number, name in enumerate(names)]
    results = [result(f"id{number}", name=name) for number, name in enumerate(names)]
    messages = (message("assistant", *calls, turn="asks", **fields), message("user", *results))
    return adapter.prepare_request(ContextWindow(messages=messages, options={}), tools, model="m", on_loss="error")


def names_in(value: Any) -> list[str]:
    """Return all names that calls and results have in the messages of a body, and not those of tools."""
    if isinstance(value, list):
        return [name for item in value for name in names_in(item)]
    if not isinstance(value, dict):
        return []
    own = [value["name"]] if "name" in value else []
    return own + [name for key, item in value.items() if key not in ("tools", "toolConfig") for name in names_in(item)]


@pytest.mark.parametrize("name", FORMS)
def test_names_that_the_api_refuses_are_renamed(name: str) -> None:
    """Also with losses refused: the call and its result are there as they were, as with ids."""
    request = asked(get(name), *ODD)
    names = names_in(json.loads(request.body))
    assert len(names) == len(ODD) * (2 if name == "gemini" else 1)  # the results of Gemini have names, too
    assert all(re.fullmatch(FORMS[name], sent) for sent in names)
    assert len(set(names)) == len(ODD)
    renamed = [(loss.kind, loss.turn, loss.block, loss.index) for loss in request.loss_report.entries]
    odd = [place for place, own in enumerate(ODD) if not re.fullmatch(FORMS[name], own)]
    assert renamed == [("renamed", "asks", "tool_name", place) for place in odd]
    assert names[: len(ODD)] == [made if place in odd else ODD[place] for place, made in enumerate(names[: len(ODD)])]


@pytest.mark.parametrize("name", FORMS)
def test_a_name_that_its_own_model_made_up_is_renamed(name: str) -> None:
    """The API refuses it from its own model too: it says nothing of tools that there are."""
    adapter = get(name)
    request = asked(adapter, "a b", provider=adapter.provider, api=adapter.api, model="m")
    assert '"name":"a b"' not in request.body.decode()
    assert [loss.kind for loss in request.loss_report.entries] == ["renamed"]


@pytest.mark.parametrize(
    "adapter",
    [get("cohere"), get("cerebras"), get_as("openai_chat", "other"), get_as("openai_responses", "other")],
    ids=lambda adapter: adapter.provider + adapter.name,
)
def test_names_go_as_they_are_where_the_form_is_not_known(adapter: Provider) -> None:
    """Tools are offered under such names there, and their calls have the same. Nobody takes a call without a name."""
    request = asked(adapter, *ODD)
    assert names_in(json.loads(request.body)) == [*ODD[:2], "unnamed_e3b0c442", *ODD[3:]]
    assert [(loss.block, loss.index) for loss in request.loss_report.entries] == [("tool_name", 2)]


def test_mistral_says_which_names_it_takes() -> None:
    """They are those of OpenAI, in calls and of tools."""
    adapter = get_as("openai_chat", "mistral")
    assert '"name":"fs_read_' in asked(adapter, "fs.read").body.decode()
    with pytest.raises(UnsupportedContentError, match="1 to 64 letters"):
        asked(adapter, tools=(Tool(name="fs.read"),))


def test_a_tool_that_is_offered_keeps_its_name_and_its_calls_have_it() -> None:
    """Another name that looks like it is told apart from it, whichever comes first."""
    for names in (("fs.read", "fs_read"), ("fs_read", "fs.read")):
        request = asked(get("anthropic"), *names, tools=(Tool(name="fs_read"),))
        body = json.loads(request.body)
        assert [tool["name"] for tool in body["tools"]] == ["fs_read"]
        sent = dict(zip(names, names_in(body), strict=True))
        assert sent["fs_read"] == "fs_read"
        assert re.fullmatch("fs_read_[0-9a-f]{8}", sent["fs.read"])


def test_results_have_the_name_of_their_call() -> None:
    """Also where they are made up, and where only the name says which call they answer."""
    calls = message("assistant", call(None, "a.b"), call("x", "a/b"), turn="asks")
    carried = carry(calls, message("user", result(None, "B", name="a.b")), capabilities=NARROW)
    called, answered = [[block["name"] for block in one["blocks"]] for one in carried.messages]
    assert called == answered
    assert [name[:4] for name in called] == ["a_b_", "a_b_"]
    assert called[0] != called[1]
    assert carried.lost == [
        "renamed tool_id asks",
        "renamed tool_name asks",
        "renamed tool_name asks",
        "synthesised tool_result asks",
    ]


def test_names_depend_on_nothing_else() -> None:
    """A longer thread has the same ones, in whatever order they come; what fits stays as it is."""
    names = ["a.b", "a/b", "long" * 5, "fits", "a.b"]
    one_way, other_way = [
        carry(message("assistant", *(call(None, name) for name in order), **OWN), capabilities=NARROW)
        for order in (names, names[::-1])
    ]
    sent = [block["name"] for block in one_way.messages[0]["blocks"]]
    assert sent == [block["name"] for block in other_way.messages[0]["blocks"]][::-1]
    assert (sent[3], sent[0], len(sent[2])) == ("fits", sent[4], 16)
    assert len({*sent}) == 4


def test_a_wire_that_says_nothing_of_names_gets_them_as_they_are() -> None:
    """An adapter of another package, say."""
    carried = carry(message("assistant", call("x", "a b"), turn="asks"), message("user", result("x")))
    assert WIRE.tool_names is None
    assert carried.messages[0]["blocks"][0]["name"] == "a b"
    assert carried.lost == []


@given(st.text(max_size=80), st.sampled_from([NARROW.tool_names, GEMINI]))
def test_what_is_made_of_any_name_is_one_that_the_wire_takes(name: str, names: ToolNames) -> None:
    """And that stays what it is."""
    made = names.made_from(name)
    assert names.take(made)
    assert names.made_from(made) == made
    assert (made == name) == names.take(name)
