"""NATS JetStream: what is published, and what the stream takes once."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import nats
import pytest
from tests.servers.nats import missing, nats_server

from turnlog import TurnLog
from turnlog.errors import MetaError, MissingPackageError, SinkError
from turnlog.feeds.sinks import JetStream
from turnlog.ids import new_id


def asked(url: str, ask: Callable[[Any], Awaitable[Any]], **login: Any) -> Any:
    """Ask the server something."""

    async def connected() -> Any:
        client = await nats.connect(url, **login)
        try:
            return await ask(client.jetstream())
        finally:
            await client.close()

    return asyncio.run(connected())


def messages(url: str, stream: str) -> list[Any]:
    """Return the messages of a stream."""

    async def ask(jetstream: Any) -> list[Any]:
        state = (await jetstream.stream_info(stream)).state
        return [await jetstream.get_msg(stream, number) for number in range(1, state.last_seq + 1)]

    return asked(url, ask)


@pytest.fixture
def prefix() -> str:
    """Give what subjects begin with, in this test only."""
    return f"test-{new_id()}"


def sink(url: str, prefix: str, **options: Any) -> JetStream:
    """Return a sink with a stream of its own."""
    return JetStream(url, prefix=prefix, stream=f"S-{prefix}", create_stream=True, **options)


def test_each_event_is_a_message(filed: TurnLog, nats_url: str, prefix: str) -> None:
    """Its subject is the topic, its id the key of the event."""
    turn = filed.add_turn("one", bookmark="main")
    status = filed.feeds.feed(sink(nats_url, prefix)).run()
    assert (status.delivered, status.destination) == (2, f"{nats_url}/{prefix}")
    genesis, message = messages(nats_url, f"S-{prefix}")
    assert (genesis.subject, message.subject) == (f"{prefix}.log.genesis", f"{prefix}.gpt.turn")
    told = json.loads(message.data)
    assert (told["id"], told["content"]) == (turn.id, [{"type": "text", "text": "one"}])
    assert message.headers["Nats-Msg-Id"] == told["idempotency_key"]


def test_stream_takes_each_event_once(filed: TurnLog, nats_url: str, prefix: str) -> None:
    """What is delivered again is known by its key."""
    for number in range(600):
        filed.add_event("acme.number", public={"number": number})
    filed.feeds.feed(sink(nats_url, prefix)).run()
    filed.feeds.move(f"nats:{nats_url}/{prefix}", 10)
    assert filed.feeds.feed(sink(nats_url, prefix)).run().delivered == 601 + 591
    found = [json.loads(message.data)["global_position"] for message in messages(nats_url, f"S-{prefix}")]
    assert found == list(range(1, 602))


def test_what_the_stream_knows_is_told(filed: TurnLog, nats_url: str, prefix: str) -> None:
    """It has what it was given first: where that was without content, or was purged, there is no more."""
    told: list[str] = []
    for number in range(700):
        filed.add_event("acme.number", public={"number": number})
    filed.feeds.feed(sink(nats_url, prefix, on_warning=told.append)).run()
    assert told == []
    filed.feeds.move(f"nats:{nats_url}/{prefix}", 0)
    filed.feeds.feed(sink(nats_url, prefix, on_warning=told.append)).run()
    known = [line.partition(": ")[2].partition(" events were known to the stream")[0] for line in told]
    assert len(known) == 2
    assert known[0].split(" of ")[0] == known[0].split(" of ")[1]
    assert known[1] == "701 in all"


def test_connection_is_made_anew(filed: TurnLog, nats_url: str, prefix: str) -> None:
    """Where it was lost between two batches."""
    filed.add_turn("one")
    used = sink(nats_url, prefix)

    def lose(status: Any) -> None:
        if status.position == 2:
            loop, client = used._loop, used._client
            assert loop is not None
            loop.run(client._close(nats.aio.client.Client.CLOSED, do_cbs=False))
            filed.add_turn("two")
        else:
            feed.stop()

    feed = filed.feeds.feed(used)
    feed.follow(told=lose)
    assert len(messages(nats_url, f"S-{prefix}")) == 3


def test_content_that_is_too_large_is_left_out(filed: TurnLog, nats_url: str, prefix: str) -> None:
    """The server says how much it takes; the event is there all the same."""
    filed.add_turn("x" * 2_000_000)
    filed.feeds.feed(sink(nats_url, prefix)).run()
    record = json.loads(messages(nats_url, f"S-{prefix}")[1].data)
    assert record["content"] == {"type": "too_large", "size": 2_000_027}


def test_there_must_be_a_stream(filed: TurnLog, nats_url: str, prefix: str) -> None:
    """Or it is asked for. One that is there is taken."""
    filed.add_turn("one")
    with pytest.raises(SinkError, match=f"no stream takes subjects {prefix}") as caught:
        filed.feeds.feed(JetStream(nats_url, prefix=prefix, timeout_s=2)).run()
    assert not caught.value.retryable
    asked(nats_url, lambda jetstream: jetstream.add_stream(name=f"own-{prefix}", subjects=[f"{prefix}.>"]))
    filed.feeds.feed(sink(nats_url, prefix)).run()
    assert len(messages(nats_url, f"own-{prefix}")) == 2


def own_stream(url: str, prefix: str, **config: Any) -> str:
    """Make a stream with a configuration of its own, and return its name."""
    name = f"own-{prefix}"
    asked(url, lambda jetstream: jetstream.add_stream(name=name, subjects=[f"{prefix}.>"], **config))
    return name


def test_why_a_stream_refuses_is_told(filed: TurnLog, nats_url: str, prefix: str) -> None:
    """At once, with how many events it has; it may take more later."""
    for number in range(9):
        filed.add_event("acme.number", public={"number": number})
    name = own_stream(nats_url, prefix, max_msgs=4, discard="new")
    feed = filed.feeds.feed(JetStream(nats_url, prefix=prefix, timeout_s=20), attempts=1)
    with pytest.raises(
        SinkError, match=r"'maximum messages exceeded'; the stream has 4 of the 10 events of this batch$"
    ) as caught:
        feed.run()
    assert caught.value.retryable
    asked(nats_url, lambda jetstream: jetstream.update_stream(name=name, subjects=[f"{prefix}.>"], max_msgs=-1))
    assert (feed.run().delivered, len(messages(nats_url, name))) == (10, 10)


def test_what_is_larger_than_the_stream_takes_is_left_out(filed: TurnLog, nats_url: str, prefix: str) -> None:
    """To the byte: what the stream takes goes whole."""
    sizes = (1500, 1501)
    for size in sizes:
        filed.add_turn("x" * size)
    whole = f"whole-{prefix}"
    filed.feeds.feed(sink(nats_url, whole)).run()
    message = messages(nats_url, f"S-{whole}")[1]
    size_max = len(message.data) + len(
        "NATS/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in message.headers.items()) + "\r\n"
    )
    name, said = own_stream(nats_url, prefix, max_msg_size=size_max), list[str]()
    used = JetStream(nats_url, prefix=prefix, on_warning=said.append)
    assert filed.feeds.feed(used, attempts=1).run().lag == 0
    _, first, second = (json.loads(message.data)["content"] for message in messages(nats_url, name))
    assert (first[0]["text"], second["type"]) == ("x" * sizes[0], "too_large")
    assert [each.rpartition(", and ")[2] for each in said] == [f"the stream takes {len(message.data):,}"]


def limited(tmp_path: Path, denied: str) -> str:
    """Write the configuration of a server where who does not log in may not publish some."""
    file = tmp_path / "nats.conf"
    file.write_text(
        'authorization { users: [{user: "all", password: "all"},'
        f' {{user: "some", password: "some", permissions: {{publish: {{deny: "{denied}"}}}}}}] }}\n'
        "no_auth_user: some\n"
    )
    return str(file)


@pytest.mark.parametrize(
    ("denied", "said"),
    [
        (
            "$JS.API.STREAM.>",
            r"'message size exceeds maximum allowed': an event is .* gave .*STREAM\.NAMES.*; the stream has 1 of",
        ),
        ("turnlog.acme.>", r"permissions violation for publish to .turnlog\.acme\.large"),
    ],
)
def test_what_the_login_may_not_do_is_told(filed: TurnLog, tmp_path: Path, denied: str, said: str) -> None:
    """At once, and it is not tried again."""
    if reason := missing():
        pytest.skip(reason)
    filed.add_event("acme.large", private={"a": "x" * 3000})
    with nats_server("-c", limited(tmp_path, denied)) as url:
        admin = {"user": "all", "password": "all"}
        config = {"name": "own", "subjects": ["turnlog.>"], "max_msg_size": 3000}
        asked(url, lambda jetstream: jetstream.add_stream(**config), **admin)
        with pytest.raises(SinkError, match=rf"(?i){said}") as caught:
            filed.feeds.feed(JetStream(url, timeout_s=20), attempts=1).run()
    assert not caught.value.retryable


def test_nobody_there_may_pass(filed: TurnLog) -> None:
    """A connection that is refused is tried again."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"nats://127.0.0.1:{free.getsockname()[1]}"
    filed.add_turn("one")
    with pytest.raises(SinkError, match="nats 'nats://127") as caught:
        filed.feeds.feed(JetStream(url, timeout_s=2), attempts=1).run()
    assert caught.value.retryable


def test_login_is_by_token(filed: TurnLog, prefix: str) -> None:
    """A wrong one is refused, once."""
    if reason := missing():
        pytest.skip(reason)
    filed.add_turn("one")
    with nats_server("--auth", "sesame") as url:
        with pytest.raises(SinkError, match=r"(?i)authorization.*TURNLOG_NATS_TOKEN.*--credentials") as caught:
            filed.feeds.feed(sink(url, prefix, token="wrong", timeout_s=2)).run()
        assert not caught.value.retryable
        assert filed.feeds.feed(sink(url, prefix, token="sesame")).run().delivered == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "localhost:4222"},
        {"url": "nats://user:pass@localhost"},
        {"url": "nats://user:pass@localhost:99999"},
        {"url": "nats://"},
        {"prefix": "a.>"},
        {"prefix": "a b"},
        {"stream": "a.b"},
        {"credentials": "/nope"},
        {"credentials": "/"},
        {"timeout_s": 0},
        {"timeout_s": float("inf")},
        {"timeout_s": float("nan")},
    ],
)
def test_what_is_asked_for_is_checked(wrong: dict[str, Any]) -> None:
    """Before anything is sent."""
    with pytest.raises(MetaError) as caught:
        JetStream(**{"url": "nats://localhost", **wrong})
    assert "pass@" not in str(caught.value)


def test_url_with_a_login_says_what_to_give_instead() -> None:
    """A token or a credentials file."""
    with pytest.raises(MetaError, match=r"leave them out, and log in .* TURNLOG_NATS_TOKEN, .* --credentials FILE"):
        JetStream("nats://user:pass@localhost")


def test_what_is_no_credentials_file_is_refused(tmp_path: Path) -> None:
    """The client would look in it for ever."""
    file = tmp_path / "junk.creds"
    for content in (b"", b"junk\n", b"-----BEGIN NATS USER JWT-----\nx\n"):
        file.write_bytes(content)
        with pytest.raises(MetaError, match=r"junk\.creds' is no credentials file"):
            JetStream("nats://localhost", credentials=file)


def test_missing_package_is_one_line(filed: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to install."""
    monkeypatch.setitem(__import__("sys").modules, "nats", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'turnlog\[nats\]'"):
        filed.feeds.feed(JetStream("nats://localhost")).run()


def test_what_is_larger_than_the_server_takes_is_left_out(filed: TurnLog, nats_url: str, prefix: str) -> None:
    """The content, and the metadata where that is too large by itself, with how large they are; and that is told."""
    large = "x" * 1_048_400
    ids = [filed.add_turn(large).id, filed.add_event("acme.review", None, private={"a": large}).header.id]
    said: list[str] = []
    assert filed.feeds.feed(sink(nats_url, prefix, on_warning=said.append)).run().lag == 0
    lost = ("content", "content and metadata")
    assert [each.partition(": with it")[0].partition("': ")[2] for each in said] == [
        f"event {id} at {at} goes without its {what}" for at, (id, what) in enumerate(zip(ids, lost, strict=True), 2)
    ]
    _, turn, review = (json.loads(message.data) for message in messages(nats_url, f"S-{prefix}"))
    assert turn["content"]["type"] == review["meta"]["type"] == "too_large"
    assert turn["content"]["size"] > len(large) < review["meta"]["size"]
    assert turn["meta"]["role"] == "user"
