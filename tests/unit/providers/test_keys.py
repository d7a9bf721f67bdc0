"""Keys come from the environment or the keyring, and are shown nowhere."""

import keyring
import pytest
from keyring.backend import KeyringBackend

from turnlog import MissingKeyError, ProviderError
from turnlog.providers import Connection, get
from turnlog.providers.keys import connect, find_key


class _Keyring(KeyringBackend):
    """A keyring in memory, as the library lets one be."""

    priority = 1  # pyright: ignore[reportAssignmentType]

    def __init__(self) -> None:
        super().__init__()
        self.held = {("turnlog", "anthropic"): "from-keyring"}

    def get_password(self, service: str, username: str) -> str | None:
        return self.held.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.held[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.held[service, username]


@pytest.fixture
def with_keyring():
    """Put a keyring in memory in the place of the system's."""
    before = keyring.get_keyring()
    keyring.set_keyring(_Keyring())
    yield
    keyring.set_keyring(before)


@pytest.mark.usefixtures("with_keyring")
def test_environment_goes_before_keyring() -> None:
    """And blanks are no key."""
    assert find_key("anthropic", "K", environment={"K": " from-env "}) == ("from-env", "environment")
    assert find_key("anthropic", "K", environment={"K": " "}) == ("from-keyring", "keyring")
    assert find_key("other", "K", environment={}) == (None, "none")


@pytest.mark.usefixtures("with_keyring")
def test_missing_key_says_where_it_is_looked_for() -> None:
    """One line that says what to do."""
    with pytest.raises(MissingKeyError) as caught:
        connect(get("openai_chat"), environment={})
    assert str(caught.value) == (
        "no API key for 'openai': set OPENAI_API_KEY in the environment, or `keyring set turnlog openai`"
    )


def test_missing_key_says_how_to_come_by_a_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the extra is not installed there is no such command."""
    monkeypatch.setattr("turnlog.providers.keys.find_spec", lambda _: None)
    with pytest.raises(MissingKeyError, match=r"openai` \(after `pip install 'turnlog\[keyring\]'`\)$"):
        connect(get("openai_chat"), environment={})


@pytest.mark.usefixtures("with_keyring")
def test_endpoint_of_ones_own_may_go_without_a_key() -> None:
    """A model server on the same machine asks for none."""
    connection = connect(get("openai_chat"), base_url="http://127.0.0.1:1", environment={})
    assert (connection.api_key, connection.base_url) == (None, "http://127.0.0.1:1")


def test_connection_does_not_show_its_key() -> None:
    """Not in a traceback, not in a log."""
    assert "secret" not in f"{Connection(api_key='secret')} {Connection(api_key='secret')!r}"


@pytest.mark.parametrize(
    ("adapter", "variable"),
    [("anthropic", "ANTHROPIC_BASE_URL"), ("openai", "OPENAI_BASE_URL"), ("openai_chat", "OPENAI_BASE_URL")],
)
def test_an_endpoint_of_the_environment_that_is_no_url_is_named(adapter: str, variable: str) -> None:
    """By its variable, without what it says; it does not matter where another endpoint is asked."""
    wire = get(adapter)
    environment = {wire.key_variable: "k" * 20, variable: "localhost:8080"}
    with pytest.raises(ProviderError) as caught:
        connect(wire, environment=environment)
    assert str(caught.value) == f"{variable} in the environment is not a base URL: give http(s)://…"
    assert connect(wire, environment=environment, base_url="http://localhost:8080").base_url == "http://localhost:8080"
    assert connect(get("cerebras"), environment=environment | {"CEREBRAS_API_KEY": "k" * 20}).base_url is None
