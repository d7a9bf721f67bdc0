"""Secrets never enter the log."""

from typing import Any

import pytest

from turnlog.errors import SecretError
from turnlog.record.secrets import refuse_secrets

LONG = "abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.mark.parametrize(
    "key",
    [
        "api_key",
        "apiKey",
        "API-KEY",
        "x-api-key",
        "openai_api_key",
        "userApiKeys",
        "x-goog-api-key",
        "Authorization",
        "Proxy-Authorization",
        "cookie",
        "Set-Cookie",
        "password",
        "db_password",
        "secret",
        "client_secret",
        "aws_secret_key",
        "access_token",
        "refreshToken",
        "private_key",
    ],
)
@pytest.mark.parametrize("value", ["x", "", {"openai": "x"}, ["x"], 5, False])
def test_key_of_a_secret_is_refused_whatever_its_value(key: str, value: Any) -> None:
    """A key that names a secret is refused in any spelling; the error names the field."""
    with pytest.raises(SecretError) as caught:
        refuse_secrets({"a": [{key: value}]}, field="inherited")
    assert caught.value.field == f"inherited.a[0].{key}"


@pytest.mark.parametrize(
    "value",
    [
        f"sk-{LONG}",
        f"sk-proj-{LONG}",
        f"sk-ant-api03-{LONG}",
        f"AIza{LONG}",
        f"ghp_{LONG}",
        f"gho_{LONG}",
        f"xoxb-{LONG}",
        f"Bearer {LONG}",
        f"Basic {LONG}==",
    ],
)
def test_value_of_the_form_of_a_secret_is_refused_and_not_repeated(value: str) -> None:
    """A value that looks like a key is refused under any name, and the message does not show it."""
    with pytest.raises(SecretError) as caught:
        refuse_secrets({"a": {"note": [1, value]}}, field="inherited")
    assert caught.value.field == "inherited.a.note[1]"
    assert LONG not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"api_key": None},
        {"max_tokens": 5, "token_limit": 1, "keys": ["a"], "key": "b", "secretary": "c"},
        {"tool_mode": "Basic tools", "note": "Bearer of news", "x": "sk-short", "y": "ask-" + LONG},
        {"servers": ["password-manager", "secret-santa"]},
        {"a": [None, True, 1, 1.5, "text", [], {}]},
        {},
    ],
)
def test_ordinary_options_pass(options: dict[str, Any]) -> None:
    """Options that only resemble secrets are accepted, and a null that unsets one."""
    refuse_secrets(options, field="inherited")
