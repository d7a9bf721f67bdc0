"""Runs whose provider fails: how often it is asked, what is waited for, what the run says and the log has.

The tables in `docs/reference/failures.md` are held against what is seen here, with SDKs and a server on loopback.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest
from tests.agent.test_misbehaving_servers import row, rows
from tests.agent.wires import KEY, Anthropic, OpenAI, Wire, set_up
from tests.wires.server import Answer, WireServer, stream, whole

from turnlog import TurnLog
from turnlog.agent.events import CallRetried, RunEvent
from turnlog.agent.result import text_of_replies

WIRES = {"Anthropic": Anthropic(), "Chat Completions": OpenAI()}
"""The wires, by what the headings of the tables call them."""

TEXT = "Half of it"
UNKNOWN_NAME = "a name that does not exist"
HASTE = 0.01
"""Waits that the provider does not name are so much shorter here; the tables have them in full."""


def refusal(wire: Wire, status: int, said: str, kind: str, **headers: str) -> Answer:
    """Return an answer with a status of failure, in the words of a provider."""
    return whole(_error(wire, said, kind), status=status, headers=headers)


def _error(wire: Wire, said: str, kind: str) -> bytes:
    error = {"error": {"type": kind, "message": said}}
    return msgspec.json.encode(error | {"type": "error"} if isinstance(wire, Anthropic) else error)


def slow(wire: Wire) -> Answer:
    """Ask to come back in an hour."""
    return refusal(wire, 429, "Too many requests", "rate_limit_error", **{"retry-after": "3600"})


def soon(wire: Wire) -> Answer:
    """Ask to come back at once."""
    return refusal(wire, 429, "Too many requests", "rate_limit_error", **{"retry-after": "0.02"})


def too_large(wire: Wire) -> Answer:
    """Say that the request is too large."""
    return refusal(wire, 413, "Request exceeds the maximum size", "request_too_large")


def overloaded(wire: Wire) -> Answer:
    """Say that there is too much to do."""
    return refusal(wire, 529, "Overloaded", "overloaded_error")


def broken(wire: Wire) -> Answer:
    """Say that something is wrong with the server."""
    return refusal(wire, 500, "Internal server error", "api_error")


def headers_only(wire: Wire) -> Answer:
    """Break off behind the headers."""
    return stream([], cut=True)


def begun(wire: Wire) -> Answer:
    """Break off before any text."""
    return stream(_before_text(wire), names=wire.names, cut=True)


def cut(wire: Wire) -> Answer:
    """Break off when some text has been shown."""
    return stream(_with_text(wire), names=wire.names, cut=True)


def overloaded_at_once(wire: Wire) -> Answer:
    """Say in the stream, before any text, that there is too much to do."""
    return stream([*_before_text(wire), _error(wire, "Overloaded", "overloaded_error")], names=wire.names)


def overloaded_in_text(wire: Wire) -> Answer:
    """Say so when some text has been shown."""
    return stream([*_with_text(wire), _error(wire, "Overloaded", "overloaded_error")], names=wire.names)


def _before_text(wire: Wire) -> list[bytes]:
    return wire.events("")[:1]


def _with_text(wire: Wire) -> list[bytes]:
    events = wire.events(TEXT)
    return events[: next(i for i, event in enumerate(events, 1) if TEXT.encode() in event)]


CASES: dict[str, Callable[[Wire], Answer] | None] = {
    "429, `Retry-After: 3600`": slow,
    "429, `Retry-After: 0.02`": soon,
    "413": too_large,
    "529": overloaded,
    "500": broken,
    "cut off behind the headers": headers_only,
    "cut off in the stream, before any text": begun,
    "cut off in the stream, behind some text": cut,
    "overloaded, in the stream, before any text": overloaded_at_once,
    "overloaded, in the stream, behind some text": overloaded_in_text,
    "connection refused": None,
    UNKNOWN_NAME: None,
}
"""What the provider does each time that it is asked, by the first cell of the row; None: there is none."""


def unknown(*_: object, **__: object) -> object:
    """Say what a resolver says of a name that does not exist."""
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@contextmanager
def failing(case: str, wire: Wire) -> Iterator[tuple[str, WireServer | None]]:
    """Give the URL of a provider that fails in one way, and its server if there is one."""
    answer = CASES[case]
    if case == UNKNOWN_NAME:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket, "getaddrinfo", unknown)
            yield "http://nowhere.invalid", None
        return
    if answer is None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # nobody listens, and nobody else gets the port
            yield f"http://127.0.0.1:{taken.getsockname()[1]}", None
        return
    with WireServer(*[answer(wire)] * 10) as server:
        yield server.url, server


@pytest.mark.parametrize("wire", WIRES)
def test_the_page_has_a_row_for_each_failure(wire: str) -> None:
    """And no other."""
    assert list(rows(wire)) == list(CASES)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", WIRES)
def test_a_provider_that_fails_is_asked_and_recorded_as_the_page_says(
    log: TurnLog, monkeypatch: pytest.MonkeyPatch, name: str, case: str
) -> None:
    """Tries, waits, what the run says, what the log has; each try is a call in the log and one request on the wire."""
    wire = WIRES[name]
    monkeypatch.setenv(wire.key_variable, KEY)
    monkeypatch.setattr("turnlog.providers.wire.random.uniform", lambda _low, _high: HASTE)
    told: list[RunEvent] = []
    with failing(case, wire) as (url, server):
        set_up(log, wire, url)
        result = log.run("Go.", pointer="kilo", bookmark="main", on_event=told.append)
        if server is not None:
            assert [log.calls.request(call) for call in result.calls] == [each.body for each in server.received]

    assert result.stopped == "error"
    assert log.verify().clean
    retried = [event for event in told if isinstance(event, CallRetried)]
    assert [event.call for event in retried] == list(result.calls[:-1])
    replies = [turn for turn in log.ancestry("main") if turn.meta.role == "assistant"]
    assert [turn.meta.call for turn in replies] == list(result.calls)
    assert result.response is not None
    kept = text_of_replies(result.response)
    waits = [f"{e.wait_s / (HASTE if e.error.retry_after_s is None else 1):g} s" for e in retried]
    assert rows(name).get(case) == row(
        case,
        str(len(result.calls)),
        ", ".join(waits) or "none",
        f"`{result.why.replace(wire.base_url(url), 'ADDRESS')}`",
        ", ".join(f"`{turn.meta.stop_reason}`" for turn in replies) + (f" with the text `{kept}`" if kept else ""),
    )


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize("case", ["429, `Retry-After: 0.02`", "500", "overloaded, in the stream, before any text"])
def test_a_provider_that_failed_once_is_asked_again_and_answers(
    log: TurnLog, monkeypatch: pytest.MonkeyPatch, name: str, case: str
) -> None:
    """The run is done, and the window of the next question has the answer only."""
    wire, answer = WIRES[name], CASES[case]
    assert answer is not None
    monkeypatch.setenv(wire.key_variable, KEY)
    monkeypatch.setattr("turnlog.providers.wire.random.uniform", lambda _low, _high: HASTE)
    with WireServer(answer(wire), wire.reply("Well.")) as server:
        set_up(log, wire, server.url)
        result = log.run("Go.", pointer="kilo", bookmark="main")
    assert (result.stopped, result.text, len(server.received)) == ("done", "Well.", 2)
    assert [message.role for message in log.context("main").messages] == ["user", "assistant"]
