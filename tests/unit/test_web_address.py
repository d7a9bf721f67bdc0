"""Addresses of servers: which texts are one, and what is shown of one."""

import pytest

from turnlog.web_address import parsed, shown, shown_server, shown_text, without_secrets


@pytest.mark.parametrize(
    ("url", "server", "whole"),
    [
        (
            "https://user:secret@Example.org:8443/v1?secret#secret",
            "https://Example.org:8443",
            "https://Example.org:8443/v1",
        ),
        ("http://[::1]:80/", "http://[::1]:80", "http://[::1]:80/"),
        ("http://example.org.", "http://example.org.", "http://example.org."),
        ("http://bücher.example/a", "http://bücher.example", "http://bücher.example/a"),
        ("HTTP://h_1:65535", "http://h_1:65535", "http://h_1:65535"),
    ],
)
def test_an_address_is_shown_without_what_may_be_secret(url: str, server: str, whole: str) -> None:
    """Of one that may be a secret as a whole, only the server."""
    parts = parsed(url)
    assert parts is not None
    assert (shown_server(parts), shown(parts)) == (server, whole)


@pytest.mark.parametrize(
    "url",
    [
        *("", "h", "ftp://a", "nats://a", "http:///x", "http://[", "http://a:b", "http://a:0", "http://a:99999"),
        *("http://a..b", "http://.a", f"http://{'a' * 64}.example", "http://a /b", "http://a/\x1b[31m", "http://a/\n"),
    ],
)
def test_what_names_no_server_is_none(url: str) -> None:
    """No host that can be looked up, no port that there is, another scheme, or what cannot be printed."""
    assert parsed(url) is None


def test_other_schemes_are_addresses_where_they_are_asked_for() -> None:
    """And those of the web are none then."""
    assert parsed("nats://a:4222", ("nats", "tls")) is not None
    assert parsed("http://a:4222", ("nats", "tls")) is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann@127.0.0.1:16590/db", "postgresql://127.0.0.1:16590/db"),
        ("postgresql://ann:SECRET@host/db?schema=x", "postgresql://host/db?schema=x"),
        ("postgresql://ann:SE@CRET@host/db", "postgresql://host/db"),
        ("postgresql://ann:SECRET%40@h,h2:5/db", "postgresql://h,h2:5/db"),
        ("postgresql://ann:x?SECRET#@host/db", "postgresql://host/db"),
        ("postgresql://ann:x/SECRET@host/db", "postgresql:…host/db"),
        ("postgresql://ann:x SECRET@host/db", "postgresql:…host/db"),
        ("postgresql://ann:x@y/SECRET@host/db", "postgresql:…host/db"),
        ("postgresql://host/db?password=SECRET&schema=x", "postgresql://host/db?password=…&schema=x"),
        ("postgresql://ann@host/db?password=x@SECRET&schema=x", "postgresql://host/db?password=…&schema=x"),
        ("postgresql://ann@host/db?password=x&y@SECRET", "postgresql://host/db?password=…"),
        ("postgresql://host/db?p%61ssword=SECRET", "postgresql://host/db?p%61ssword=…"),
        ("postgresql://host/db?sslpassword=SECRET", "postgresql://host/db?sslpassword=…"),
        ("postgresql://host/db?user=me&password=SECRET&schema=a", "postgresql://host/db?user=…&password=…&schema=a"),
        ("postgresql://host/db?passwrd=SECRET&passfile=a", "postgresql://host/db?passwrd=…&passfile=a"),
        ("postgresql://host/db?oauth_client_secret=SECRET", "postgresql://host/db?oauth_client_secret=…"),
        ("postgresql://host/db?scram_client_key=SECRET", "postgresql://host/db?scram_client_key=…"),
        ("host=h password = 'x SECRET' dbname=d", "host=h password = … dbname=d"),
        ("postgres:ann:SECRET@host", "postgres:…host"),
        ("mysql://ann:SECRET@host/db", "mysql://host/db"),
        ("'postgresql://ann:SECRET@host/db': asked of x@y", "'postgresql:…y"),
        ("sqlite:///a@b.db", "sqlite:///a@b.db"),
    ],
)
def test_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    """Nor its user, as in all messages; where it cannot be told what is one, more is left out."""
    assert without_secrets(url) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:SECRET@h:99999/x", "https://h:99999/x"),
        ("https://user:SEC RET@h/x", "https:…h/x"),
        ("https://user:SEC/RET@h/x", "https:…h/x"),
        ("user:SECRET@h/x", "user:…h/x"),
        ("https://h:99999/x?token=SECRET", "https://h:99999/x…"),
        ("https://h:99999/x#SECRET", "https://h:99999/x…"),
        ("https//h/x", "https//h/x"),
    ],
)
def test_what_is_no_address_is_repeated_without_what_may_be_secret(text: str, shown: str) -> None:
    """Nor is a part of a password that has a character in it which ends the host."""
    assert parsed(text) is None
    assert shown_text(text) == shown
