"""Providers: which may be called, and where they are."""

from typing import Any

import pytest

from turnlog import MetaError, SecretError, TurnLog, UnknownProviderError


def test_provider_may_be_called_until_it_is_disabled(log: TurnLog) -> None:
    """One that was never named may be called as it is."""
    assert log.providers.get("anthropic").action == "enable"
    log.providers.disable("anthropic")
    with pytest.raises(UnknownProviderError, match="provider 'anthropic' is disabled: allow it with"):
        log.providers.get("anthropic")
    log.providers.set("anthropic", base_url="http://127.0.0.1:1/")
    assert log.providers.get("anthropic").base_url == "http://127.0.0.1:1/"


def test_provider_has_one_entry_under_both_its_names(log: TurnLog) -> None:
    """What is said of `openai` holds for `openai_chat`, and the other way round."""
    log.providers.set("openai", base_url="http://127.0.0.1:1/")
    assert log.providers.get("openai_chat").base_url == "http://127.0.0.1:1/"
    log.providers.disable("openai_chat")
    with pytest.raises(UnknownProviderError):
        log.providers.get("openai")
    assert [meta.name for meta in log.providers.all()] == ["openai_chat"]


@pytest.mark.parametrize("url", ["ftp://x", "x", "http://", "http://[::1"])
def test_base_url_is_an_address(log: TurnLog, url: str) -> None:
    """Of HTTP, with a host."""
    with pytest.raises(MetaError):
        log.providers.set("p", base_url=url)
    assert log.stats().events == 0


@pytest.mark.parametrize(
    "url",
    [
        "https://user:pass@example.org",
        "https://hf3k9s8d7f6g5h4j@example.org/v1",
        "https://example.org/v1?api_key=x",
        "https://example.org/v1#token=hf3k9s8d7f6g5h4j",
        "https://example.org/sk-ant-0123456789abcdef0123/v1",
    ],
)
def test_base_url_has_no_secret_in_it(log: TurnLog, url: str) -> None:
    """Wherever in an address it stands, and the message does not repeat it."""
    with pytest.raises(SecretError) as caught:
        log.providers.set("p", base_url=url)
    assert "pass" not in str(caught.value)
    assert "0123" not in str(caught.value)
    assert log.stats().events == 0


@pytest.mark.parametrize("fields", [{"adapter": 3}, {"adapter": b"openai_chat"}, {"key_variable": ["KEY"]}])
def test_what_is_of_another_type_is_refused(log: TurnLog, fields: dict[str, Any]) -> None:
    """Nothing is recorded that could not be read again."""
    with pytest.raises(MetaError, match=f"provider.{next(iter(fields))}: "):
        log.providers.set("mine", **fields)
    assert log.providers.all() == []
