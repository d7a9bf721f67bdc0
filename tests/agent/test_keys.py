"""A provider that repeats the key that it was sent: it is neither stored nor shown."""

from pathlib import Path
from typing import Any

import pytest
from tests.agent.scripted import MODEL, Scripted, call, say

from turnlog import Ask, Policy, TurnLog
from turnlog.errors import ProviderError
from turnlog.providers import Connection

KEY = "k7-and-more-of-it"
REPEATED = f"the key {KEY} is wrong"


def run(path: Path, script: Any, key: str) -> tuple[Any, list[Any], bytes]:
    """Ask with a key; return the result, what was told, and all that the store has."""
    told: list[Any] = []
    with TurnLog.open(f"sqlite:///{path}/log.db") as log:
        result = log.run(
            "Hi.",
            model=MODEL,
            on_event=told.append,
            ask=Ask(adapter=Scripted(script), connection=Connection(api_key=key)),
        )
        assert log.verify().clean
        with log.store.read() as transaction:
            read = b"".join(
                recorded.state + (recorded.private_state or b"") + (transaction.payload(recorded) or b"")
                for recorded in transaction.log()
            )
    return result, told, read + b"".join(file.read_bytes() for file in path.iterdir())


def test_an_error_that_repeats_the_key_does_not_get_into_the_log(tmp_path: Path) -> None:
    """Nor into the result: there is a marker in its place."""
    result, told, stored = run(tmp_path, [ProviderError(REPEATED, provider="scripted")], KEY)
    assert result.stopped == "error"
    assert result.error.message == "the key [redacted: api-key] is wrong"
    assert KEY not in repr(result)
    assert KEY not in repr(told)
    assert KEY.encode() not in stored


def test_a_reply_that_repeats_the_key_is_redacted(tmp_path: Path) -> None:
    """Its raw events are not kept, as where a hook finds something."""
    result, _, stored = run(tmp_path, say(REPEATED), KEY)
    assert result.stopped == "done"
    assert b"the key [redacted: api-key] is wrong" in stored
    assert KEY.encode() not in stored
    assert result.head.meta.redacted == {"api-key": 1}


@pytest.mark.parametrize("key", ["k", "another-key-of-mine"])
def test_a_reply_that_does_not_is_kept_as_it_came(tmp_path: Path, key: str) -> None:
    """Also where the key is too short to be one."""
    result, _, stored = run(tmp_path, say("k, or not k"), key)
    assert b"k, or not k" in stored
    assert not result.head.meta.redacted


def test_what_a_tool_returns_does_not_bring_the_key_into_the_log(tmp_path: Path) -> None:
    """Nor what the run says of a call that cannot be made. The model sees the marker, too."""

    def whoami() -> str:
        return f"signed in with {KEY}"

    def broken() -> str:
        raise ValueError(f"{KEY} was refused")

    calls = call(("whoami", {}), ("broken", {}), (KEY, {}))
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        adapter = Scripted(calls, say("Done."))
        result = log.run(
            "Hi.",
            model=MODEL,
            tools=[whoami, broken],
            policy=Policy(approve="auto"),
            ask=Ask(adapter=adapter, connection=Connection(api_key=KEY)),
        )
        assert result.stopped == "done"
        answers = log.turn(result.turns[2].id)
        said = log.payload(answers.id).decode()
        assert said.count("[redacted: api-key]") == 4
        assert "signed in with [redacted: api-key]" in said
        assert answers.meta.redacted == {"api-key": 4}  # the name of the tool that there is none of, too
        assert log.verify().clean
        with log.store.read() as transaction:
            stored = b"".join(transaction.payload(recorded) or b"" for recorded in transaction.log())
    assert KEY.encode() not in stored
    assert KEY not in repr(adapter.bodies[1])
