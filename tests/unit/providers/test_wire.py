"""What all wires share: server-sent events, JSON events, and errors of HTTP."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog import ProviderError
from turnlog.providers.interface import Connection
from turnlog.providers.wire import (
    RETRYABLE_STATUS,
    Waited,
    aevents_in,
    connection_error,
    decode_event,
    events_in,
    said_by,
    status_error,
    status_said_by,
    without_key,
)

# Server-sent events


async def _each(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def _read(*chunks: bytes) -> list[bytes]:
    """Read events both ways; both must give the same."""

    async def gather() -> list[bytes]:
        return [event async for event in aevents_in(_each(chunks))]

    events = list(events_in(chunks))
    assert asyncio.run(gather()) == events
    return events


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"", []),
        (b"\n\n", []),
        (b'data: {"a":1}\n\n', [b'{"a":1}']),
        (b'data:{"a":1}\n\n', [b'{"a":1}']),
        (b"data:  two\n\n", [b" two"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"event: x\nid: 1\nretry: 5\ndata: a\n\n", [b"a"]),
        (b": keep-alive\n\ndata: a\n\n: more\n\n", [b"a"]),
        (b"event: ping\n\ndata: a\n\n", [b"a"]),
        (b"data: a\ndata:\n\n", [b"a\n"]),
        (b"data\n\ndata:\ndata\n\ndata:  \n\ndata: a\n\n", [b"a"]),
        (b"database: x\ndata: a\n\n", [b"a"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        ("data: {\"x\":\"a\u2028b\x85c\x0bd\"}\n\n".encode(), ["{\"x\":\"a\u2028b\x85c\x0bd\"}".encode()]),
        (b"data: a: b\n\n", [b"a: b"]),
        (b"data: \xff\n\n", [b"\xff"]),
    ],
)  # fmt: skip
def test_stream_is_cut_into_the_data_of_its_events(stream: bytes, events: list[bytes]) -> None:
    """Lines end with CR, LF or both; events with an empty line. Comments, other fields and blank data are no events."""
    assert _read(stream) == events


@pytest.mark.parametrize("rest", [b"data: b", b"data: b\n", b"data: b\r"])
def test_event_that_the_stream_ends_in_is_one_too(rest: bytes) -> None:
    """What had come of an event before the stream broke off is not lost."""
    assert _read(b"data: a\n\n" + rest) == [b"a", b"b"]


_PRETTY = b'{\n "error": {\n  "message": "\\"}]: no\\\\"\n },\n\n "n": []\n}'


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b'data: a\n\n{"n":1}\n\ndata: b\n\n', [b"a", b'{"n":1}', b"b"]),
        (b'data: a\n{"n":1}\ndata: b\n\n', [b"a", b'{"n":1}', b"b"]),
        (b'event: error\n{"n":1}\n: note\nid: 1\ndata: b\n\n', [b'{"n":1}', b"b"]),
        (b'data: a\n\n{"n":1}', [b"a", b'{"n":1}']),
        (b"data: a\n\n" + _PRETTY, [b"a", _PRETTY]),
        (b"data: a\n\n" + _PRETTY + b"\n\ndata: b\n\n", [b"a", _PRETTY, b"b"]),
        (b"\n  " + _PRETTY + b"\n", [_PRETTY]),
        (b"\xef\xbb\xbf" + _PRETTY, [_PRETTY]),
        (b'{"n":1}\n{"n":2}\n', [b'{"n":1}', b'{"n":2}']),
        (b'[{"n":1}\n,\n{"n":2}]', [b'[{"n":1}\n,\n{"n":2}]']),
        (b'[\n{"n":1}\n]\n', [b'[\n{"n":1}\n]']),
        (b"[]", [b"[]"]),
        (b'data: a\n\n{"n":\ndata: b\n\n', [b"a", b'{"n":', b"b"]),
        (b'data: a\n\n{"n":\n: note\n1}\n', [b"a", b'{"n":\n1}']),
        (b"[INFO] read\ndata: a\n\n[DONE]\n\n", [b"a"]),
    ],
)
def test_json_between_events_is_an_event_too(stream: bytes, events: list[bytes]) -> None:
    """Up to its end, or to the next line of the stream. What else is in brackets, as the lines of a log, is none."""
    assert _read(stream) == events
    assert _read(*(bytes([byte]) for byte in stream)) == events


def test_json_between_events_is_there_with_its_line() -> None:
    """A server that fails may say nothing more and keep the connection open, or break it off."""

    def chunks() -> Iterable[bytes]:
        yield b'data: a\n\n{"n":1}\n'
        raise ConnectionResetError

    events = events_in(chunks())
    assert [next(events), next(events)] == [b"a", b'{"n":1}']


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b"hello\n\nyou: there\n", [b"hello\n\nyou: there"]),
        (b"hello\ndata: a\n\nbye\n", [b"a"]),
        (b'hello\n{"n":1}\nbye\n', [b'{"n":1}']),
        (b"\n \n", []),
    ],
)
def test_body_that_is_no_stream_is_one_event(body: bytes, events: list[bytes]) -> None:
    """Whoever reads it says so. In a stream such lines are passed over."""
    assert _read(body) == events


@pytest.mark.parametrize("end", [b"data: [DONE]\n\n", b"data: [DONE]", b"data:  [DONE] \n\n"])
def test_done_is_no_event(end: bytes) -> None:
    """The mark that ends streams of Chat Completions is not JSON, and no event."""
    assert _read(b"data: a\n\n" + end) == [b"a"]


def test_nothing_is_read_after_done() -> None:
    """Some servers keep the connection open after the mark: whoever reads does not wait for more."""

    def chunks() -> Iterable[bytes]:
        yield b"data: a\n\ndata: [DONE]\n\n"
        raise AssertionError("read on")

    assert list(events_in(chunks())) == [b"a"]


_LINES = st.lists(
    st.sampled_from(
        [
            b"data: a",
            b"data:b",
            b"data",
            b"",
            b"",
            b": c",
            b"event: e",
            b"data: \xe2\x80\xa8",
            b"id",
            b'{"a":',
            b"1}",
            b"x",
        ]
    ),
    max_size=12,
)


@given(_LINES, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.data())
def test_events_do_not_depend_on_the_pieces_that_come(lines: list[bytes], end: bytes, data: st.DataObject) -> None:
    """However the network cuts a stream, and whatever ends its lines, its events are the same."""
    stream = end.join(lines)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)))))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert list(events_in(pieces)) == list(events_in([b"\n".join(lines)]))


@pytest.mark.parametrize("end", [b"\r\n\n", b"\n\r\n", b"\r\n\r", b"\r\r\n", b"\n\r", b"\r\n\r\n"])
def test_events_do_not_depend_on_the_pieces_where_ends_of_lines_are_mixed(end: bytes) -> None:
    """Also byte by byte an LF belongs to the CR right before it, and one behind it ends another line."""
    stream = b"data: a" + end + b"data: b" + end
    assert _read(stream) == _read(*(bytes([byte]) for byte in stream)) == [b"a", b"b"]


# JSON events


class _Event(msgspec.Struct):
    n: int


def test_event_is_decoded() -> None:
    """An event of the type comes back as a value."""
    assert decode_event(b'{"n":1,"more":2}', msgspec.json.Decoder(_Event), provider="p") == _Event(1)


@pytest.mark.parametrize(
    "event", [b"", b'{"n":"\\ud83d"}', b'{"n":"1"}', b"[]", b'{"n":1}x', b"\xff", b'"\xff"', b"[" * 100_000]
)
def test_event_that_cannot_be_read_is_a_provider_error(event: bytes) -> None:
    """Whatever is wrong with an event, the error is the provider's; its one line has the beginning and the reason."""
    with pytest.raises(ProviderError, match="p sent an event that cannot be read: ") as caught:
        decode_event(event, msgspec.json.Decoder(_Event), provider="p")
    assert caught.value.provider == "p"
    assert len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)
    assert not str(caught.value).endswith((": ", "'"))


def test_event_that_a_stream_ended_in_is_called_so() -> None:
    """It is no fault of what was said before the cut."""
    with pytest.raises(ProviderError, match=r"p broke off within an event: '\{\"n\":1'"):
        decode_event(b'{"n":1', msgspec.json.Decoder(_Event), provider="p")


# Errors


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("sk-of-me", "no sk-of-ollama, ollama pull"),
        ("of-ollama", "no sk-\u2026, ollama pull"),
        ("f-ollama", "no sk-o\u2026, ollama pull"),
        ("-ollama", "no sk-of-ollama, ollama pull"),
        ("m", "no sk-of-ollama, ollama pull"),
        ("", "no sk-of-ollama, ollama pull"),
        (None, "no sk-of-ollama, ollama pull"),
    ],
)
def test_key_is_not_repeated_but_where_it_may_be_any_word(key: str | None, said: str) -> None:
    """People give local servers such keys as `ollama`: those are no secret, and stand in any text."""
    assert without_key("no sk-of-ollama, ollama pull", Connection(api_key=key)) == said


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 413, 422, 425, 429, 500, 501, 502, 503, 504, 529])
def test_status_says_whether_to_try_again(status: int) -> None:
    """Time-outs, conflicts, limits and failures of the server may pass; what is wrong with a request does not."""
    error = status_error("p", status, "no\n  way")
    assert (error.provider, error.status, error.retryable) == ("p", status, status in RETRYABLE_STATUS)
    assert error.retryable == (status in (408, 409, 425, 429, 500, 502, 503, 504, 529))
    assert str(error) == f"p answered {status}: no way"
    assert error.retry_after_s is None


def test_status_error_is_one_line_of_bounded_length() -> None:
    """A page of HTML does not become the message."""
    assert str(status_error("p", 502, "Sorry\n" + "x" * 9999)) == "p answered 502: Sorry " + "x" * 494
    assert str(status_error("p", 500, " \n")) == "p answered 500: nothing more"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0.0),
        ("1.5", 1.5),
        ("-3", None),
        ("nan", None),
        ("inf", None),
        ("1e999", None),
        ("soon", None),
        ("Wed, 25 Nov 2026 " + "9" * 20 + ":28:00 GMT", None),
        ("Wed, 25 Nov 2026 07:28:00 +" + "9" * 20, None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_read_as_seconds(header: str | None, seconds: float | None) -> None:
    """A number of seconds is one; what cannot be waited for is nothing."""
    assert status_error("p", 429, "wait", header).retry_after_s == seconds


@pytest.mark.parametrize("zone", [" GMT", " +0000", " -0000", ""])
def test_retry_after_is_read_as_a_date(zone: str) -> None:
    """A date becomes the seconds until then; a past one none. One without a zone is in UTC."""
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True).replace(" GMT", zone)
    past = format_datetime(datetime.now(UTC) - timedelta(days=1), usegmt=True).replace(" GMT", zone)
    waiting = status_error("p", 503, "wait", soon).retry_after_s
    assert waiting is not None
    assert 90 < waiting <= 100
    assert status_error("p", 503, "wait", past).retry_after_s == 0.0


@pytest.mark.parametrize(
    ("waited", "message"),
    [
        (None, "q at r cannot be reached, or broke off: gone away"),
        ("reply", "q at r did not answer in time: nothing came for 2.5 s"),
        ("connection", "q at r cannot be reached: there was no connection within 2.5 s"),
    ],
)
def test_broken_connection_may_be_tried_again(waited: Waited | None, message: str) -> None:
    """A connection that fails says how, in one line, and that trying again may help."""
    connection = Connection(who="q at r", timeout_s=2.5)
    error = connection_error("p", OSError("gone\naway"), connection, waited=waited)
    assert (str(error), error.retryable, error.status) == (message, True, None)


def resolving(number: int) -> OSError:
    """Return the error of an HTTP library behind that of a look-up."""
    error = OSError("no address")
    error.__cause__ = socket.gaierror(number, "no address")
    return error


def test_name_that_does_not_exist_is_not_looked_up_again() -> None:
    """It is a mistake, most often."""
    error = connection_error("p", resolving(socket.EAI_NONAME), Connection())
    assert (str(error), error.retryable) == ("p cannot be reached: no address: check the base URL", False)


def test_name_that_cannot_be_looked_up_now_may_be_tried_again() -> None:
    """The network may be back in a moment."""
    assert connection_error("p", resolving(socket.EAI_AGAIN), Connection()).retryable


def test_broken_connection_without_a_message_names_the_error() -> None:
    """An exception that says nothing is named by its class, or by what is behind it."""
    error = ConnectionError()
    assert str(connection_error("p", error, Connection())) == "p cannot be reached, or broke off: ConnectionError"
    error.__cause__ = ConnectionResetError(104, "reset")
    assert str(connection_error("p", error, Connection())) == "p cannot be reached, or broke off: [Errno 104] reset"


@pytest.mark.parametrize(("code", "hint"), [(18, ": SSL_CERT_FILE names a file of the authorities to trust"), (10, "")])
def test_certificate_that_is_not_trusted_is_not_asked_again(code: int, hint: str) -> None:
    """It stays as it is. Where nobody who is trusted has signed it, the line says how to trust somebody else."""
    behind = ssl.SSLCertVerificationError("no")
    behind.verify_code, behind.verify_message = code, "it is odd"
    error = OSError("no")
    error.__cause__ = behind
    told = connection_error("p", error, Connection())
    assert (str(told), told.retryable) == (
        f"p cannot be reached: its certificate is not trusted: it is odd{hint}",
        False,
    )


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"error": {"code": 400, "status": "INVALID_ARGUMENT"}}, 400),
        ({"error": {"code": "no", "status": 503}}, 503),
        ({"code": 429}, 429),
        ({"status": 500}, 500),
        ({"error": {"code": True}}, None),
        ({"error": "400"}, None),
        ([], None),
        (None, None),
    ],
)
def test_status_is_found_in_the_body_of_an_error(body: Any, status: int | None) -> None:
    """As an error within a stream has it."""
    assert status_said_by(body) == status


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": {"message": "a", "type": "b"}}, "a"),
        ({"error": {"type": "b"}}, "b"),
        ({"message": "a"}, "a"),
        ({"Message": "a"}, "a"),
        ({"error": "a"}, "a"),
        ([{"error": {"message": "a"}}], "a"),
        (None, ""),
        ("plain", "plain"),
        ({"detail": 1}, "{'detail': 1}"),
    ],
)
def test_message_is_found_in_the_body_of_an_error(body: Any, said: str) -> None:
    """Every provider has its own shape of an error: the words are found in each."""
    assert said_by(body) == said


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (
            "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<h1>502 Bad Gateway</h1>"
            "<hr><center>nginx/1.27</center></body></html>",
            "502 Bad Gateway nginx/1.27",
        ),
        (
            "<!DOCTYPE html><style>h1 { color: red }</style><script>if (1 < 2) go()</script><!-- no -->"
            "<h1>Blocked &amp; logged</h1>\n<p>Ask <b>the</b> proxy",
            "Blocked & logged Ask the proxy",
        ),
        ("<html><body></body></html>", "<html><body></body></html>"),
        ("<html", "<html"),
        ("a < b, and <html> is a word", "a < b, and <html> is a word"),
    ],
)
def test_of_a_page_its_text_is_said(page: str, said: str) -> None:
    """Not the markup that a gateway answers with; where a page has no text, what there is."""
    assert str(status_error("p", 502, page)) == f"p answered 502: {said}"
