"""Pointers: registered by events, the last one of a name holds."""

from pathlib import Path

import pytest

from turnlog import MetaError, SecretError, TurnLog, UnknownPointerError


def test_pointer_is_set_moved_and_deleted(log: TurnLog) -> None:
    """Each change is an event; reading folds them."""
    log.pointers.set("milli", "anthropic", "small", params={"max_tokens": 10})
    log.pointers.set("kilo", "gemini", "large")
    log.pointers.set("milli", "openai_chat", "other")
    assert [(one.name, one.provider, one.model, one.params) for one in log.pointers.all()] == [
        ("kilo", "gemini", "large", {}),
        ("milli", "openai_chat", "other", {}),
    ]
    log.pointers.delete("milli")
    with pytest.raises(UnknownPointerError, match=r"no pointer 'milli' \(one of kilo\): set it with"):
        log.pointers.get("milli")
    assert log.stats().topics == {"gpt.pointer": 4, "log.genesis": 1}
    assert log.verify().clean


def test_unknown_pointer_cannot_be_deleted(log: TurnLog) -> None:
    """Nothing is written, not for one that is gone either."""
    log.pointers.set("a", "p", "m")
    log.pointers.delete("a")
    for name in ("a", "b"):
        with pytest.raises(UnknownPointerError):
            log.pointers.delete(name)
    assert log.stats().events == 3


@pytest.mark.parametrize(
    ("name", "provider", "model"), [("", "p", "m"), ("a", "", "m"), ("a", "p", " m"), ("a\n", "p", "m")]
)
def test_malformed_pointer_is_refused(log: TurnLog, name: str, provider: str, model: str) -> None:
    """Names are printable and have no blanks around them."""
    with pytest.raises(MetaError):
        log.pointers.set(name, provider, model)
    assert log.stats().events == 0


@pytest.mark.parametrize(
    "params", [{"api_key": "x"}, {"extra": {"headers": [{"Authorization": "x"}]}}, {"user": "sk-" + "a1" * 15}], ids=str
)
def test_secret_in_a_parameter_is_refused(log: TurnLog, params: dict[str, object]) -> None:
    """Keys never enter the log: neither under their name, at any depth, nor in their form under another one."""
    with pytest.raises(SecretError):
        log.pointers.set("a", "p", "m", params=params)
    assert log.stats().events == 0


def test_only_what_is_done_with_a_pointer_is_public(log: TurnLog) -> None:
    """Its name, its model and its parameters may name a person, and can be erased."""
    log.pointers.set("anna", "anthropic", "small", params={"user": "anna"})
    *_, event = log.events()
    assert bytes(event.header.meta) == b'{"action":"set"}'
    assert b"anna" not in event.state


def test_pointers_are_there_when_the_log_is_opened_again(tmp_path: Path) -> None:
    """They are events like all others."""
    url = f"sqlite:///{tmp_path / 'log.db'}"
    with TurnLog.open(url) as log:
        log.pointers.set("a", "p", "m")
    with TurnLog.open(url) as log:
        assert log.pointers.get("a").model == "m"
