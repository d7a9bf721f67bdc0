"""The one table of names of providers and apis."""

from typing import get_args

import pytest

from turnlog import TurnLog
from turnlog.interop.canonical.types import Api
from turnlog.model import ReplyFacts, Response, Text, Thinking
from turnlog.model.names import ADAPTERS, APIS, HOME_APIS, PROVIDERS, api_name, provider_name
from turnlog.providers import get
from turnlog.providers.registry import BUILT_IN

ALL = [get(name) for name in sorted(BUILT_IN)]


def test_names_are_those_of_adapters() -> None:
    """What a name stands for is a name that an adapter has."""
    assert set(APIS.values()) <= {adapter.api for adapter in ALL}
    assert set(PROVIDERS.values()) <= {adapter.provider for adapter in ALL}
    assert set(ADAPTERS.values()) <= {*BUILT_IN}
    assert set(HOME_APIS.items()) <= {(adapter.provider, adapter.api) for adapter in ALL}


def test_names_of_adapters_are_no_other_spellings() -> None:
    """Nothing that turnlog writes is read as something else."""
    assert not APIS.keys() & {adapter.api for adapter in ALL}
    assert not PROVIDERS.keys() & {adapter.provider for adapter in ALL}


def test_canonical_apis_are_known() -> None:
    """All but the one that turnlog has no adapter of."""
    assert set(get_args(Api)) - APIS.keys() == {"openai-codex"}


@pytest.mark.parametrize("name", ["messages", "never-heard-of", None, 7])
def test_what_is_not_known_is_left_as_it_is(name: object) -> None:
    """Also what is no name."""
    assert (api_name(name), provider_name(name)) == (name, name)


def test_thinking_of_a_session_with_old_names_goes_back(log: TurnLog) -> None:
    """Sessions spell Anthropic's api `anthropic-messages`; signed thinking goes back all the same."""
    log.add_turn("Hi.", bookmark="main")
    log.add_turn(
        [Thinking(thinking="Hm.", signature="c2ln"), Text(text="Hello.")],
        role="assistant",
        continues="main",
        reply=ReplyFacts(provider="anthropic", api="anthropic-messages", model="claude-9"),
    )
    log.add_turn("More.", continues="main")
    request = get("anthropic").prepare_request(log.context("main"), model="claude-9")
    assert b'"signature":"c2ln"' in request.body
    assert request.loss_report.entries == ()


@pytest.mark.parametrize("erased", [False, True])
def test_what_a_call_asked_for_counts_as_the_model_that_answered(log: TurnLog, erased: bool) -> None:
    """The turn of a reply says what its call asked, where another name answered: so it gets its own back."""
    adapter = get("openai_responses")
    first = log.add_turn("Hi.", bookmark="main")
    request = adapter.prepare_request(log.context("main"), model="my-deployment")
    call = log.calls.record(first.id, request)
    whole = (
        b'{"id":"r1","object":"response","model":"gpt-9-sol","status":"completed","output":[{"type":"reasoning",'
        b'"id":"rs_1","encrypted_content":"Z0E","summary":[]},{"type":"message","id":"msg_1","role":"assistant",'
        b'"status":"completed","content":[{"type":"output_text","text":"Hello.","annotations":[]}]}]}'
    )
    response: Response = adapter.aggregate([whole], model="my-deployment")
    assert response.model == "gpt-9-sol"
    turn = log.calls.record_reply(call, [whole], response)
    assert (turn.meta.model, turn.meta.model_asked) == ("gpt-9-sol", "my-deployment")
    if erased:
        log.erase(turn=first.id, reason="asked")
        assert log.turn(turn.id).meta.model_asked == "my-deployment"
    log.add_turn("More.", continues="main")
    window = log.context("main")
    for model in ("my-deployment", "gpt-9-sol"):
        body = adapter.prepare_request(window, model=model).body
        assert b'"id":"rs_1"' in body
        assert b'"id":"msg_1"' in body
    other = adapter.prepare_request(window, model="gpt-9-moon")
    assert b'"rs_1"' not in other.body
    assert {entry.block for entry in other.loss_report.entries} >= {"thinking", "item"}
    assert log.verify().clean


def test_a_turn_does_not_repeat_what_was_asked(log: TurnLog) -> None:
    """Where the model answered under the name that it was asked by there is nothing to say."""
    adapter = get("openai_responses")
    first = log.add_turn("Hi.")
    call = log.calls.record(first.id, adapter.prepare_request(log.context(first.id), model="gpt-9"))
    turn = log.calls.record_reply(call, [], adapter.aggregate([], model="gpt-9"))
    assert turn.meta.model_asked is None
