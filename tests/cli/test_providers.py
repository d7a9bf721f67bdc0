"""`turnlog provider`, `pointer`, `request` and `replay`."""

import json
import re

import msgspec
import pytest
from tests.cli.command import Command
from tests.wires.server import WireServer, whole

from turnlog import TurnLog
from turnlog.providers import get, names

MODELS = whole(
    json.dumps(
        {"object": "list", "data": [{"id": "m-2", "object": "model"}, {"id": "m-1", "object": "model"}]}
    ).encode()
)
REFUSED = whole(b'{"error":{"message":"Incorrect API key provided"}}', status=401)


def test_providers_are_listed_without_their_keys(turnlog: Command) -> None:
    """The list says where a key is, never what it is."""
    listed = turnlog.ok("provider", "list", "--json", OPENAI_API_KEY="sk-very-secret").json_lines
    by_name = {row["name"]: row for row in listed}
    assert sorted(by_name) == names()
    assert (by_name["openai_chat"]["key"], by_name["openai_chat"]["usable"]) == ("environment", True)
    assert (by_name["anthropic"]["key"], by_name["anthropic"]["usable"]) == ("none", False)
    text = turnlog.ok("provider", "list", OPENAI_API_KEY="sk-very-secret").text
    assert "secret" not in text
    assert "key in the environment" in text


def test_a_provider_that_asks_to_come_back_says_when(turnlog: Command) -> None:
    """A time, so that nobody has to count."""
    with WireServer(whole(b'{"error":{"message":"Slow."}}', status=429, headers={"retry-after": "3600"})) as server:
        url = f"{server.url}/v1"
        refused = turnlog("provider", "enable", "openai_chat", "--base-url", url, OPENAI_API_KEY="key-of-nobody")
    assert refused.status == 2
    assert re.search(r"answered 429: Slow\.; it asks to come back from \d{4}-\d\d-\d\dT[\d:]{8}Z on", refused.stderr)


def test_enable_checks_the_key_with_a_call_for_models(turnlog: Command) -> None:
    """And records the endpoint, not the key."""
    with WireServer(MODELS, MODELS) as server:
        url = f"{server.url}/v1"
        enabled = turnlog.ok("provider", "enable", "openai_chat", "--base-url", url, OPENAI_API_KEY="key-of-nobody")
        assert enabled.text == "enabled openai_chat  the key works: 2 models\n"
        assert turnlog.ok("provider", "models", "openai_chat", OPENAI_API_KEY="key-of-nobody").text == "m-1\nm-2\n"
        assert [(got.path, got.headers["authorization"]) for got in server.received] == [
            ("/v1/models", "Bearer key-of-nobody")
        ] * 2
    assert b"key-of-nobody" not in turnlog.store.read_bytes()
    with TurnLog.open(turnlog.url) as log:
        assert log.providers.get("openai_chat").base_url == url


def test_key_that_is_refused_is_not_enabled(turnlog: Command) -> None:
    """One line with what the provider said, and nothing is recorded."""
    with WireServer(REFUSED) as server:
        message = turnlog.refused(
            "provider", "enable", "openai_chat", "--base-url", server.url, OPENAI_API_KEY="key-of-nobody"
        )
    assert message == f"openai at {server.url} answered 401: Incorrect API key provided"
    assert not turnlog.store.exists()


def test_missing_key_says_what_to_do(turnlog: Command) -> None:
    """The variable, and the keyring."""
    message = turnlog.refused("provider", "enable", "anthropic")
    assert message.startswith("no API key for 'anthropic': set ANTHROPIC_API_KEY in the environment")


def test_endpoint_of_ones_own_is_a_provider_by_its_own_name(turnlog: Command) -> None:
    """With the adapter that speaks its wire, and no key where it asks for none."""
    with WireServer(MODELS) as server:
        turnlog.ok("provider", "enable", "local", "--adapter", "openai_chat", "--base-url", server.url)
        turnlog.ok("pointer", "set", "nano", "local", "m-1", "--param", "temperature=0.5")
    assert turnlog.ok("pointer", "list", "--json").json_lines == [
        {"name": "nano", "provider": "local", "model": "m-1", "params": {"temperature": 0.5}}
    ]
    row = next(row for row in turnlog.ok("provider", "list", "--json").json_lines if row["name"] == "local")
    assert (row["adapter"], row["key_variable"], row["usable"]) == ("openai_chat", "LOCAL_API_KEY", True)


def test_disabled_provider_is_refused_until_it_is_enabled(turnlog: Command) -> None:
    """The message says how."""
    assert turnlog.ok("provider", "disable", "cohere").text == "disabled cohere\n"
    message = turnlog.refused("provider", "models", "cohere", CO_API_KEY="k")
    assert message == "provider 'cohere' is disabled: allow it with `turnlog provider enable cohere`"
    assert "disabled" in turnlog.ok("provider", "list").text
    turnlog.ok("provider", "enable", "cohere", "--no-check")
    assert "disabled" not in turnlog.ok("provider", "list").text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["provider", "enable", "nobody", "--no-check"], "no provider 'nobody'"),
        (["provider", "disable", "nobody"], "no provider 'nobody'"),
        (["provider", "models", "nobody"], "no provider 'nobody'"),
        (["pointer", "set", "nano", "nobody", "m"], "no provider 'nobody'"),
        (["pointer", "delete", "nano"], "no pointer 'nano'"),
        (["provider", "enable", "local", "--adapter", "nobody", "--no-check"], "no provider 'nobody'"),
        (["provider", "enable", "openai_chat", "--no-check", "--base-url", "x"], "base_url: 'x' is not an address"),
    ],
)
def test_wrong_names_are_refused(turnlog: Command, arguments: list[str], message: str) -> None:
    """One line that names them."""
    assert turnlog.refused(*arguments).startswith(message)


def test_pointers_are_set_listed_and_deleted(turnlog: Command) -> None:
    """By name, with provider and model."""
    assert "turnlog pointer set" in turnlog("pointer").stderr
    turnlog.ok("pointer", "set", "milli", "anthropic", "claude-x")
    assert turnlog.ok("pointer").text.split() == ["milli", "anthropic", "claude-x"]
    assert turnlog.ok("pointer", "delete", "milli").text == "deleted pointer milli\n"
    assert turnlog.ok("pointer", "list", "--json").json_lines == []


@pytest.fixture
def called(turnlog: Command) -> Command:
    """A log with one recorded call, on the bookmark `main`."""
    adapter = get("openai_chat")
    reply = json.dumps(
        {
            "id": "c1",
            "object": "chat.completion",
            "model": "m-1",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
        }
    ).encode()
    with TurnLog.open(turnlog.url) as log:
        turn = log.add_turn("Hello", bookmark="main")
        request = adapter.prepare_request(log.context("main"), model="m-1", stream=False)
        call = log.calls.record(turn.id, request)
        log.calls.record_reply(call, [reply], adapter.aggregate([reply]))
    return turnlog


def test_request_writes_the_exact_bytes(called: Command) -> None:
    """By the turn that came of the call, or by the call; nothing is added, no line feed either."""
    body = called.ok("request", "main").stdout
    assert body == b'{"model":"m-1","stream":false,"tools":[],"messages":[{"role":"user","content":"Hello"}]}'
    call = called.ok("request", "main", "--json").json
    assert (call["provider"], call["model"], call["loss_report"]) == ("openai", "m-1", [])
    assert called.ok("request", call["id"]).stdout == body
    assert json.loads(called.ok("request", "main", "--events").stdout)["id"] == "c1"


def test_replay_checks_every_request_and_every_reply(called: Command) -> None:
    """Equal byte for byte, and exit status 1 when one is not."""
    [call] = called.ok("replay", "main", "--json").json_lines
    assert called.ok("replay", "main").text.startswith(call["id"])
    assert called.ok("replay", "main", "--check").text == (
        "1 request equal byte for byte, 0 different; 1 reply adds up to its turn, 0 different\n"
    )
    checked = called.ok("replay", "main", "--check", "--json").json
    assert (checked["difference"], checked["reply_difference"], checked["events"]) == (None, None, 1)
    adapter = get("openai_chat")
    with TurnLog.open(called.url) as log:
        turn = log.add_turn("More", continues="main")
        request = adapter.prepare_request(log.context("main"), model="m-1", params={"seed": 1})
        request = msgspec.structs.replace(request, params={})  # so that it cannot be made again
        other = log.calls.record(turn.id, request)
        log.calls.record_reply(other, [], adapter.aggregate([]))
    outcome = called("replay", "main", "--check")
    assert outcome.status == 1
    assert outcome.text.splitlines()[0].startswith(f"{other}  request differs at byte ")
    assert outcome.text.splitlines()[1:] == [
        "1 request equal byte for byte, 1 different; 1 reply adds up to its turn, 0 different"
    ]


@pytest.mark.parametrize("version", [None, "0"])
def test_replay_tells_a_changed_reply_from_a_changed_adapter(called: Command, version: str | None) -> None:
    """Raw events that do not add up to their turn are a difference; the adapter's version is named where it moved."""
    adapter = get("openai_chat")
    with TurnLog.open(called.url) as log:
        turn = log.add_turn("More", continues="main")
        request = adapter.prepare_request(log.context("main"), model="m-1", stream=False)
        call = log.calls.record(turn.id, msgspec.structs.replace(request, version=version or request.version))
        said = log.calls.events(log.turn("main").continues[0])
        other = said[0].replace(b'"Hi"', b'"Bye"')
        log.calls.record_reply(call, said, adapter.aggregate([other]))
    outcome = called("replay", "main", "--check")
    [line, summary, *told] = outcome.text.splitlines()
    assert outcome.status == (1 if version is None else 3)
    assert told == [
        "1 of these differences: what is recorded is intact, and was made by another version of the adapter; "
        "this one makes other bytes"
    ] * (version is not None)
    assert line.startswith(f"{call}  reply differs at byte ")
    assert line.endswith(f"; adapter openai_chat was of version 0, is {adapter.version}") is (version is not None)
    assert summary == "2 requests equal byte for byte, 0 different; 1 reply adds up to its turn, 1 different"
    first, second = called("replay", "main", "--check", "--json").json_lines
    assert (first["reply_difference"], second["difference"]) == (None, None)
    assert (first["by_version"], second["by_version"]) == ([], [] if version is None else ["reply"])
    assert second["reply_difference"] in line


def test_turn_without_calls_has_nothing_to_replay(turnlog: Command) -> None:
    """And no request."""
    turnlog.ok("add", "Hello", "-b", "main")
    outcome = turnlog("replay", "main", "--check")
    assert (outcome.status, outcome.text) == (
        0,
        "0 requests equal byte for byte, 0 different; 0 replies add up to their turns, 0 different\n",
    )
    assert "no recorded model call" in outcome.stderr
    assert "did not come of a recorded model call" in turnlog.refused("request", "main")


def test_replay_says_what_it_cannot_compare(called: Command) -> None:
    """A request that was erased is no difference, and is told."""
    [call] = called.ok("replay", "main", "--json").json_lines
    with TurnLog.open(called.url) as log:
        log.erase(turn=call["turn"], reason="asked")
    assert called.ok("replay", "main").text == f"{call['id']}  event '{call['id']}' was erased\n"
    listed = called.ok("replay", "main", "--json").json
    assert listed == {"id": call["id"], "turn": call["turn"], "unreadable": f"event '{call['id']}' was erased"}
    checked = called.ok("replay", "main", "--check")
    assert checked.text.splitlines() == [
        f"{call['id']}  request not compared: event '{call['id']}' was erased",
        "0 requests equal byte for byte, 0 different, 1 not readable and not compared; "
        "0 replies add up to their turns, 0 different",
    ]
    line = called.ok("replay", "main", "--check", "--json").json
    assert (line["difference"], line["unreadable"]) == (None, f"event '{call['id']}' was erased")
