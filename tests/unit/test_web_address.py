"""Addresses of servers: which texts are one, and what is shown of one."""

import pytest

from turnlog.web_address import parsed, shown, shown_server


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
