"""Webhooks: what is posted, how it is signed, what is tried again."""

import base64
import hmac
import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from tests.servers.receiver import Answer, Receiver
from tests.servers.tedious import TediousServer, Way

from turnlog import TurnLog
from turnlog.errors import MetaError, SinkError
from turnlog.feeds.sinks import Webhook
from turnlog.feeds.sinks.webhook import Form, parse_secret, signature

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()


def test_signature_is_that_of_the_specification() -> None:
    """The example of Standard Webhooks."""
    secret = parse_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    found = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", [body])
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_batches_are_posted_and_signed(filed: TurnLog, receiver: Receiver) -> None:
    """One JSON object each, with the log, the span and the events."""
    for text in ("one", "two"):
        filed.add_turn(text)
    status = filed.feeds.feed(Webhook(f"{receiver.url}/hook?token=1", secrets=[SECRET], now=lambda: 1e9), batch=2).run()
    assert (status.name, status.delivered) == (f"webhook:{receiver.url}/hook", 3)
    first, second = receiver.received
    assert (first.path, first.headers["content-type"]) == ("/hook?token=1", "application/json")
    id = first.headers["webhook-id"]
    assert [id[:-17], second.headers["webhook-id"][:-17]] == [f"{filed.id}:1-2", f"{filed.id}:3-3"]
    assert first.headers["webhook-timestamp"] == "1000000000"
    signed = f"{id}.1000000000.".encode() + first.body
    expected = base64.b64encode(hmac.digest(KEY, signed, "sha256")).decode()
    assert first.headers["webhook-signature"] == f"v1,{expected}"
    message = json.loads(first.body)
    assert (message["type"], message["data"]["log"]) == ("turnlog.events", filed.id)
    assert (message["data"]["first"], message["data"]["last"]) == (1, 2)
    assert [event["global_position"] for event in message["data"]["events"]] == [1, 2]
    assert message["timestamp"] == message["data"]["events"][-1]["time"]
    assert message["data"]["events"][1]["content"] == [{"type": "text", "text": "one"}]


def test_lines_can_be_posted(filed: TurnLog, receiver: Receiver) -> None:
    """One event each; two secrets sign both; without any there is no signature."""
    filed.add_turn("one")
    other = "whsec_" + base64.b64encode(bytes(24)).decode()
    filed.feeds.feed(Webhook(receiver.url, secrets=[SECRET, other], form="ndjson")).run()
    filed.feeds.feed(Webhook(receiver.url), name="unsigned").run()
    signed, unsigned = receiver.received
    assert signed.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line)["global_position"] for line in signed.body.splitlines()] == [1, 2]
    assert len(signed.headers["webhook-signature"].split()) == 2
    assert "webhook-signature" not in unsigned.headers


@pytest.mark.parametrize("form", ["json", "ndjson"])
def test_long_events_are_posted_as_short_ones_are(filed: TurnLog, receiver: Receiver, form: Form) -> None:
    """In pieces, with one `content-length`, signed, and as the codec spells them; also when it is tried again."""
    filed.add_turn('A "text" 🙂\n' * 200_000)
    filed.add_turn("a short one")
    receiver.answers.append(Answer(status=503, headers={"retry-after": "0"}))
    sink = Webhook(receiver.url, secrets=[SECRET], form=form, now=lambda: 1e9)
    sink.batch_bytes = 1024 * 1024 * 1024
    filed.feeds.feed(sink).run()
    [refused], [received] = receiver.refused, receiver.received
    lines = [msgspec.json.decode(line) for line in received.body.splitlines()]
    events = lines if form == "ndjson" else lines[0]["data"]["events"]
    assert received.body == b"".join(msgspec.json.encode(line) + b"\n" * (form == "ndjson") for line in lines)
    assert [event["content"] for event in events[1:]] == [
        msgspec.json.decode(filed.payload(turn.id)) for turn in filed.latest(2)
    ]
    assert (refused.body, refused.headers["content-length"]) == (received.body, str(len(received.body)))
    assert "transfer-encoding" not in received.headers
    signed = f"{received.headers['webhook-id']}.1000000000.".encode() + received.body
    expected = base64.b64encode(hmac.digest(KEY, signed, "sha256")).decode()
    assert received.headers["webhook-signature"] == f"v1,{expected}"


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
def test_what_may_pass_is_posted_again(filed: TurnLog, receiver: Receiver, status: int) -> None:
    """With the same id and body."""
    filed.add_turn("one")
    receiver.answers.append(Answer(status=status, body=b"wait", headers={"retry-after": "0"}))
    told: list[str] = []
    filed.feeds.feed(Webhook(receiver.url)).run(on_retry=lambda error, _: told.append(str(error)))
    [refused], [received] = receiver.refused, receiver.received
    assert refused.body == received.body
    assert refused.headers["webhook-id"] == received.headers["webhook-id"]
    assert told == [f"webhook '{receiver.url}': answered {status}: wait"]


@pytest.mark.parametrize("status", [301, 400, 401, 410, 422])
def test_refusal_stops_the_feed(filed: TurnLog, receiver: Receiver, status: int) -> None:
    """With what was said; nothing is tried again, and no redirect is followed."""
    filed.add_turn("one")
    receiver.answers.append(Answer(status=status, body=b"no,\nthanks", headers={"location": receiver.url}))
    with pytest.raises(SinkError, match=f"answered {status}: no, thanks") as caught:
        filed.feeds.feed(Webhook(receiver.url)).run()
    assert not caught.value.retryable
    assert (len(receiver.refused), receiver.received) == (1, [])
    [feed] = filed.feeds.all()
    assert feed.error is not None
    assert f"answered {status}" in feed.error


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("Fri, 31 Dec 1999 23:59:59 GMT", 0.0), ("soon", None), (None, None)],
)
def test_retry_after_is_read(filed: TurnLog, receiver: Receiver, header: str | None, seconds: float | None) -> None:
    """Seconds or a date."""
    filed.add_turn("one")
    receiver.answers.append(Answer(status=503, headers={} if header is None else {"retry-after": header}))
    with pytest.raises(SinkError) as caught:
        filed.feeds.feed(Webhook(receiver.url), attempts=1).run()
    assert (caught.value.retryable, caught.value.retry_after_s) == (True, seconds)


def test_nobody_there_may_pass(filed: TurnLog) -> None:
    """A connection that is refused is tried again. It is said why."""
    with Receiver() as receiver:
        url = receiver.url
    filed.add_turn("one")
    with pytest.raises(
        SinkError, match=r"cannot be reached, or broke off: \[Errno \d+\] Connection refused$"
    ) as caught:
        filed.feeds.feed(Webhook(url), attempts=1).run()
    assert caught.value.retryable


@pytest.mark.parametrize("way", ["silent", "header", "body"])
def test_answer_has_a_deadline(filed: TurnLog, way: Way) -> None:
    """All of it together, however it comes. Neither a thread nor the connection is left."""
    filed.add_turn("one")
    with TediousServer(way) as server:
        with pytest.raises(SinkError, match=r"no answer within 0\.3 s") as caught:
            filed.feeds.feed(Webhook(server.url, timeout_s=0.3), attempts=1).run()
        assert server.gone.wait(10)
    assert caught.value.retryable
    assert "turnlog-http" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize("way", ["endless", "packed"])
def test_answer_is_read_in_part(filed: TurnLog, way: Way) -> None:
    """Its status says all; what is packed is not unpacked."""
    filed.add_turn("one")
    with TediousServer(way) as server:
        status = filed.feeds.feed(Webhook(server.url), attempts=1).run()
        assert server.gone.wait(10)
    assert status.delivered == 2
    assert server.sent < 32 * 1024**2


def test_refusal_is_read_in_part(filed: TurnLog) -> None:
    """As much of it as is told."""
    filed.add_turn("one")
    with TediousServer("refusing") as server:
        said = f"webhook '{server.url}': answered 400: {('no, thanks ' * 20)[:200]}"
        with pytest.raises(SinkError) as caught:
            filed.feeds.feed(Webhook(server.url), attempts=1).run()
        assert server.gone.wait(10)
    assert str(caught.value) == said
    assert server.sent < 32 * 1024**2


@pytest.mark.parametrize("timeout_s", [0, -1, float("inf"), float("nan"), 86401, True, "1"])
def test_time_has_bounds(timeout_s: float) -> None:
    """Up to a day."""
    with pytest.raises(MetaError, match=r"timeout_s is .*: give seconds, above 0 and up to 86,400"):
        Webhook("https://example.com", timeout_s=timeout_s)


def test_erasure_is_posted_as_an_event(filed: TurnLog, receiver: Receiver) -> None:
    """Whatever topics are wanted. What was posted before cannot be taken back: that is said."""
    turn = filed.add_turn("one")
    filed.feeds.feed(Webhook(receiver.url), topics="gpt.turn").run()
    report = filed.erase(turn=turn.id, reason="asked")
    assert [feed.kind for feed in filed.feeds.delivered_to(report.erasures)] == ["webhook"]
    filed.feeds.feed(Webhook(receiver.url), topics="gpt.turn").run()
    [event] = json.loads(receiver.received[-1].body)["data"]["events"]
    assert (event["topic"], event["citations"][0]["id"]) == ("gpt.erasure", turn.id)


@pytest.mark.parametrize(
    "url",
    [
        "example.com/hook",
        "ftp://example.com",
        "https://",
        "https://user:s3cret@example.com",
        "https://user:s3cret@example.com:99999",
        "https://user:s3/cret@example.com",
        "https://example.com:99999/?s3cret",
        "https://a:b/",
        "https://a\n",
    ],
)
def test_url_is_checked(url: str) -> None:
    """A password in it would be kept in the feed's name, and is not repeated."""
    with pytest.raises(MetaError) as caught:
        Webhook(url)
    assert "cret" not in str(caught.value)


def test_url_with_a_login_says_what_to_do_instead() -> None:
    """A webhook signs."""
    with pytest.raises(MetaError, match=r"leave them out, and sign .*TURNLOG_WEBHOOK_SECRET.*query"):
        Webhook("https://user:pass@example.com")


@pytest.mark.parametrize("secret", ["abc", "whsec_a", "whsec_" + base64.b64encode(bytes(23)).decode(), "whsec_!!!!"])
def test_secret_is_checked(secret: str) -> None:
    """It is not repeated."""
    with pytest.raises(MetaError) as caught:
        Webhook("https://example.com", secrets=[secret])
    assert secret not in str(caught.value).replace("`whsec_`", "")


def test_no_secret_is_kept(filed: TurnLog, receiver: Receiver, tmp_path: Path) -> None:
    """Neither the signing secret nor what stands in the query of the URL."""
    filed.add_turn("one")
    filed.feeds.feed(Webhook(f"{receiver.url}/hook?token=verysecret", secrets=[SECRET])).run()
    with closing(sqlite3.connect(tmp_path / "log.db-feeds")) as connection, connection:
        kept = str(connection.execute("SELECT * FROM turnlog_feeds").fetchall())
    assert "hook" in kept
    assert "verysecret" not in kept
    assert SECRET[6:] not in kept
