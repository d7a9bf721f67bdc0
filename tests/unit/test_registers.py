"""Pointers, providers and MCP servers: registered by events, the last one of a name holds."""

from pathlib import Path

import pytest

from turnlog import MetaError, SecretError, TurnLog, UnknownPointerError, UnknownProviderError, UnknownServerError


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
    assert log.stats().topics == {"gpt.pointer": 4}
    assert log.verify().clean


def test_unknown_pointer_cannot_be_deleted(log: TurnLog) -> None:
    """Nothing is written, not for one that is gone either."""
    log.pointers.set("a", "p", "m")
    log.pointers.delete("a")
    for name in ("a", "b"):
        with pytest.raises(UnknownPointerError):
            log.pointers.delete(name)
    assert log.stats().events == 2


@pytest.mark.parametrize(
    ("name", "provider", "model"), [("", "p", "m"), ("a", "", "m"), ("a", "p", " m"), ("a\n", "p", "m")]
)
def test_malformed_pointer_is_refused(log: TurnLog, name: str, provider: str, model: str) -> None:
    """Names are printable and have no blanks around them."""
    with pytest.raises(MetaError):
        log.pointers.set(name, provider, model)
    assert log.stats().events == 0


def test_secret_in_a_parameter_is_refused(log: TurnLog) -> None:
    """Keys never enter the log, whichever way."""
    with pytest.raises(SecretError):
        log.pointers.set("a", "p", "m", params={"api_key": "x"})
    with pytest.raises(SecretError):
        log.servers.register("s", ["run", "--token", "sk-" + "a" * 30])
    assert log.stats().events == 0


def test_provider_may_be_called_until_it_is_disabled(log: TurnLog) -> None:
    """One that was never named may be called as it is."""
    assert log.providers.get("anthropic").action == "enable"
    log.providers.disable("anthropic")
    with pytest.raises(UnknownProviderError, match="provider 'anthropic' is disabled: allow it with"):
        log.providers.get("anthropic")
    log.providers.enable("anthropic", base_url="http://127.0.0.1:1/")
    assert log.providers.get("anthropic").base_url == "http://127.0.0.1:1/"


def test_provider_has_one_entry_under_both_its_names(log: TurnLog) -> None:
    """What is said of `openai` holds for `openai_chat`, and the other way round."""
    log.providers.enable("openai", base_url="http://127.0.0.1:1/")
    assert log.providers.get("openai_chat").base_url == "http://127.0.0.1:1/"
    log.providers.disable("openai_chat")
    with pytest.raises(UnknownProviderError):
        log.providers.get("openai")
    assert [meta.name for meta in log.providers.all()] == ["openai_chat"]


@pytest.mark.parametrize("url", ["ftp://x", "x", "https://user:pass@example.org", "http://", "http://[::1"])
def test_base_url_is_an_address_without_secrets(log: TurnLog, url: str) -> None:
    """A password in a URL would be a secret in the log."""
    with pytest.raises(MetaError):
        log.providers.enable("p", base_url=url)
    with pytest.raises(MetaError):
        log.servers.register("s", url=url)


def test_key_in_a_query_is_refused(log: TurnLog) -> None:
    """As it is anywhere else."""
    with pytest.raises(SecretError):
        log.providers.enable("p", base_url="https://example.org/v1?api_key=x")


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf")])
def test_time_out_is_a_number_of_seconds(log: TurnLog, timeout_s: float) -> None:
    """Above zero, and finite."""
    with pytest.raises(MetaError):
        log.servers.register("a", ["run"], timeout_s=timeout_s)


def test_server_is_registered_and_deleted(log: TurnLog) -> None:
    """Variables and headers are kept by name, never by value."""
    log.servers.register("fs", ["serve", "--root", "."], env=["TOKEN"], timeout_s=3.0)
    log.servers.register("web", url="https://example.org/mcp", header_env={"Authorization": "TOKEN"})
    fs, web = log.servers.all()
    assert (fs.command, fs.env, fs.timeout_s) == (("serve", "--root", "."), ("TOKEN",), 3.0)
    assert (web.url, web.header_env) == ("https://example.org/mcp", {"Authorization": "TOKEN"})
    log.servers.delete("fs")
    with pytest.raises(UnknownServerError, match=r"no MCP server 'fs' \(one of web\): register it with"):
        log.servers.get("fs")
    with pytest.raises(UnknownServerError):
        log.servers.delete("fs")


@pytest.mark.parametrize("name", ["a___b", "a b", "", "é", "a/b"])
def test_server_name_fits_into_tool_names(log: TurnLog, name: str) -> None:
    """It is the part before the three underscores."""
    with pytest.raises(MetaError):
        log.servers.register(name, ["run"])


def test_value_in_the_place_of_a_variable_is_refused(log: TurnLog) -> None:
    """And the message does not repeat it."""
    with pytest.raises(MetaError) as caught:
        log.servers.register("a", url="http://127.0.0.1/", header_env={"Authorization": "Bearer xyz"})
    assert "xyz" not in str(caught.value)


def test_server_has_either_a_command_or_a_url(log: TurnLog) -> None:
    """Neither and both are refused."""
    with pytest.raises(MetaError):
        log.servers.register("a")
    with pytest.raises(MetaError):
        log.servers.register("a", ["run"], url="http://127.0.0.1/")


def test_registers_are_there_when_the_log_is_opened_again(tmp_path: Path) -> None:
    """They are events like all others."""
    url = f"sqlite:///{tmp_path / 'log.db'}"
    with TurnLog.open(url) as log:
        log.pointers.set("a", "p", "m")
    with TurnLog.open(url) as log:
        assert log.pointers.get("a").model == "m"
