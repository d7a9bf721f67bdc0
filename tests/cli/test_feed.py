"""`turnlog feed` and `turnlog feeds`."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Command
from tests.servers.nats import missing, nats_server
from tests.servers.receiver import Answer, Receiver

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Give an HTTP server that keeps what it is sent."""
    with Receiver() as receiver:
        yield receiver


def lines(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of a folder."""
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def test_folder_is_filled_from_where_it_left_off(turnlog: Command, tmp_path: Path) -> None:
    """And it is said how far that is."""
    turnlog.ok("add", "one", "--bookmark", "main")
    done = turnlog.ok("feed", "jsonl", tmp_path / "out")
    assert done.text == f"jsonl:{tmp_path}/out  to 2  2 delivered  up to date\n"
    turnlog.ok("add", "two", "--continues", "main")
    [feed] = turnlog.ok("feeds", "--json").json_lines
    assert (feed["name"], feed["position"], feed["lag"]) == (f"jsonl:{tmp_path}/out", 2, 1)
    assert "1 event behind" in turnlog.ok("feeds").text
    status = turnlog.ok("feed", "jsonl", tmp_path / "out", "--json").json
    assert (status["position"], status["delivered"], status["error"]) == (3, 3, None)
    assert [line["global_position"] for line in lines(tmp_path / "out")] == [1, 2, 3]


def test_folder_that_lacks_what_it_had_is_told(turnlog: Command, tmp_path: Path) -> None:
    """And filled up."""
    for text in ("one", "two"):
        turnlog.ok("add", text)
        turnlog.ok("feed", "jsonl", tmp_path / "out")
    [file] = (tmp_path / "out").glob("*.jsonl")
    file.write_bytes(file.read_bytes()[:-1])
    done = turnlog("feed", "jsonl", tmp_path / "out")
    lacks = "ends at global position 2, and had come to 3: what it lacks is delivered again"
    assert (done.status, done.stderr) == (0, f"turnlog: jsonl '{tmp_path}/out' {lacks}\n")
    assert [line["global_position"] for line in lines(tmp_path / "out")] == [1, 2, 3]


def test_what_is_delivered_is_picked(turnlog: Command, tmp_path: Path) -> None:
    """By topic and place, with the public part alone, under a name."""
    for text in ("one", "two"):
        turnlog.ok("add", text)
    options = ("--topic", "gpt.turn", "--after", "2", "--public", "--name", "turns", "--batch", "1")
    assert turnlog.ok("feed", "jsonl", tmp_path / "out", *options).text.startswith("turns  to 3  1 delivered")
    [line] = lines(tmp_path / "out")
    assert (line["global_position"], line["content"], line["meta"]) == (3, None, {"role": "user"})


def test_options_are_those_that_the_feed_was_begun_with(turnlog: Command, tmp_path: Path) -> None:
    """Else what was left out once would be missing, or in a folder that was public."""
    turnlog.ok("add", "one", "--bookmark", "main")
    turnlog.ok("feed", "jsonl", tmp_path / "out", "--name", "pub", "--public")
    turnlog.ok("add", "a secret", "--continues", "main")
    said = turnlog.refused("feed", "jsonl", tmp_path / "out", "--name", "pub")
    assert said == (
        "feed 'pub' was begun with --public: give it the same, or forget it with `turnlog feeds remove pub` and begin "
        "it again, where its files end"
    )
    turnlog.ok("feed", "jsonl", tmp_path / "out", "--name", "pub", "--public")
    assert [line["content"] for line in lines(tmp_path / "out")] == [None] * 3


def test_unsealing_without_keys_is_told(turnlog: Command, tmp_path: Path) -> None:
    """It opens nothing."""
    turnlog.ok("add", "one")
    no_keys = {"TURNLOG_KEYS_DIR": str(tmp_path / "none")}
    done = turnlog("feed", "jsonl", tmp_path / "out", "--unseal", **no_keys)
    told = "--unseal: there is no key of sealing here, and what is sealed is delivered as without --unseal"
    assert (done.status, done.stderr) == (0, f"turnlog: {told}\n")
    turnlog("seal", TURNLOG_KEYS_DIR=str(tmp_path / "keys"))
    turnlog.ok("feed", "jsonl", tmp_path / "out", "--unseal", TURNLOG_KEYS_DIR=str(tmp_path / "keys"))


def test_following_goes_on_until_it_is_interrupted(turnlog: Command, tmp_path: Path) -> None:
    """Each event is delivered as it comes."""
    turnlog.ok("add", "one", "--bookmark", "main")
    process = turnlog.begin("feed", "jsonl", str(tmp_path / "out"), "-f", "--json")
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["position"] == 2
        turnlog.ok("add", "two", "--continues", "main")
        assert json.loads(process.stdout.readline())["position"] == 3
        assert "running" in turnlog.ok("feeds").text
        assert "running already" in turnlog.refused("feed", "jsonl", tmp_path / "out")
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, error) == (130, b"turnlog: interrupted\n")
    assert [line["global_position"] for line in lines(tmp_path / "out")] == [1, 2, 3]


def test_webhook_is_signed_with_a_secret_from_the_environment(turnlog: Command, receiver: Receiver) -> None:
    """Never from the command line; without one, that is said."""
    turnlog.ok("add", "one")
    said = turnlog.refused("feed", "webhook", receiver.url, PYTHON_KEYRING_BACKEND="keyring.backends.null.Keyring")
    assert "no signing secret: set TURNLOG_WEBHOOK_SECRET" in said
    turnlog.ok("feed", "webhook", receiver.url, TURNLOG_WEBHOOK_SECRET=SECRET)
    turnlog.ok("feed", "webhook", receiver.url, "--secret", "MINE", "--name", "mine", "--form", "ndjson", MINE=SECRET)
    turnlog.ok("feed", "webhook", receiver.url, "--unsigned", "--name", "unsigned")
    signatures = [each.headers.get("webhook-signature", "") for each in receiver.received]
    assert [signature[:3] for signature in signatures] == ["v1,", "v1,", ""]
    assert receiver.received[1].headers["content-type"] == "application/x-ndjson"


def test_failing_feed_says_so(turnlog: Command, receiver: Receiver) -> None:
    """In one line, and in the list, with exit status 1; and it can be moved on."""
    turnlog.ok("add", "one")
    receiver.answers.append(Answer(status=400, body=b"no such thing"))
    said = turnlog.refused("feed", "webhook", receiver.url, "--unsigned")
    assert said == f"webhook '{receiver.url}': answered 400: no such thing"
    listed = turnlog("feeds")
    assert (listed.status, "failing" in listed.text) == (1, True)
    assert re.search(r"does not go on since [0-9-]{10}T[0-9:]{8}Z: webhook .*answered 400: no such", listed.stderr)
    name = f"webhook:{receiver.url}"
    assert turnlog.ok("feeds", "move", name, "--to", "2").text == f"{name}  to 2  0 delivered  up to date\n"
    turnlog.ok("feeds")
    assert "from 0 to 2" in turnlog.refused("feeds", "move", name, "--to", "3")
    turnlog.ok("feeds", "remove", name)
    assert turnlog.refused("feeds", "remove", name).startswith("no feed")
    assert turnlog("feeds").stderr == "turnlog: no feeds: `turnlog feed jsonl FOLDER` begins one\n"


def test_retry_is_told(turnlog: Command, receiver: Receiver) -> None:
    """With how long it waits."""
    turnlog.ok("add", "one")
    receiver.answers.append(Answer(status=503))
    done = turnlog("feed", "webhook", receiver.url, "--unsigned")
    assert done.status == 0
    assert done.stderr.startswith(f"turnlog: webhook '{receiver.url}': answered 503; again in ")


def test_nats_and_parquet_and_otel_are_fed(turnlog: Command, receiver: Receiver, tmp_path: Path) -> None:
    """Each by its command."""
    turnlog.ok("add", "one")
    assert "2 delivered" in turnlog.ok("feed", "parquet", tmp_path / "table").text
    assert len(list((tmp_path / "table").glob("day=*/*.parquet"))) == 1
    otel = turnlog.ok("feed", "otel", receiver.url, OTEL_EXPORTER_OTLP_HEADERS="x-key=secret")
    assert otel.text == f"otel:{receiver.url}/v1/traces  to 2  1 delivered  0 spans sent  up to date\n"
    assert receiver.received == []
    if reason := missing():
        pytest.skip(reason)
    with nats_server() as url:
        assert "no stream takes" in turnlog.refused("feed", "nats", url, "--timeout", "2")
        assert "2 delivered" in turnlog.ok("feed", "nats", url, "--create-stream").text


def test_headers_that_are_none_are_one_line(turnlog: Command) -> None:
    """They may be secret, and are not repeated."""
    turnlog.ok("add", "one")
    said = turnlog.refused("feed", "otel", "http://127.0.0.1:1", OTEL_EXPORTER_OTLP_HEADERS="bad header")
    assert said == "the headers are not of the form NAME=VALUE,NAME=VALUE"


def test_erasing_tells_what_is_beyond_reach(turnlog: Command, receiver: Receiver, tmp_path: Path) -> None:
    """Folders are rewritten; who was sent it is named."""
    turnlog.ok("add", "a word of theirs", "--bookmark", "main")
    turnlog.ok("feed", "jsonl", tmp_path / "out")
    turnlog.ok("feed", "webhook", receiver.url, "--unsigned")
    foreseen = turnlog("erase", "--turn", "main", "--dry-run")
    assert f"would erase in {tmp_path}/out too" in foreseen.text
    assert foreseen.stderr == (
        f"turnlog: webhook {receiver.url} may have been sent some of it, and would be sent the erasure as an event: "
        "what it keeps is not taken back\n"
    )
    done = turnlog("erase", "--turn", "main", "--reason", "asked", "--yes")
    assert done.status == 0
    assert f"erased in {tmp_path}/out too" in done.text
    assert done.stderr == (
        f"turnlog: webhook {receiver.url} may have been sent some of it, and is sent the erasure as an event: what it "
        "keeps is not taken back\n"
    )
    assert [line["erased"] for line in lines(tmp_path / "out")] == [False, True]
    assert b"theirs" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_erasing_names_the_feeds_to_one_place(turnlog: Command, receiver: Receiver) -> None:
    """Else it would say the same twice."""
    turnlog.ok("add", "a word of theirs", "--bookmark", "main")
    for name in ("one", "two"):
        turnlog.ok("feed", "webhook", receiver.url, "--unsigned", "--name", name)
    said = turnlog("erase", "--turn", "main", "--reason", "asked", "--yes").stderr
    assert [f"webhook {receiver.url} (feed '{name}') may have" in said for name in ("one", "two")] == [True, True]


def test_erasing_names_each_folder_that_it_does_not_reach(turnlog: Command, tmp_path: Path) -> None:
    """With why, exit status 1; all others are rewritten, and it is finished when they can be."""
    turnlog.ok("add", "a word of theirs", "--bookmark", "main")
    for name in ("a", "b", "c"):
        turnlog.ok("feed", "jsonl", tmp_path / name, "--name", name)
    file = "events-00000000000000000001.jsonl"
    for name in ("a", "c"):
        (tmp_path / name / file).rename(tmp_path / name / "kept")
        (tmp_path / name / file).mkdir()
    done = turnlog("erase", "--turn", "main", "--reason", "asked", "--yes")
    assert done.status == 1
    assert done.stderr.count("\n") == 1
    for name in ("a", "c"):
        assert f"in '{tmp_path}/{name}' (feed '{name}': jsonl " in done.stderr
    assert "feed 'b'" not in done.stderr
    assert "erased in" not in done.text
    assert b"theirs" not in (tmp_path / "b" / file).read_bytes()
    for name in ("a", "c"):
        (tmp_path / name / file).rmdir()
        (tmp_path / name / "kept").rename(tmp_path / name / file)
    owing = turnlog("feeds").stderr
    for name in ("a", "c"):
        assert f"turnlog: {name} still has what was erased: `turnlog erase --finish` takes it back\n" in owing
    assert "b still" not in owing
    turnlog.ok("erase", "--finish")
    assert [line["erased"] for name in ("a", "c") for line in lines(tmp_path / name)] == [False, True] * 2
    turnlog.ok("feeds")


def test_forgetting_a_feed_tells_that_erasures_do_not_reach_its_folder(
    turnlog: Command, receiver: Receiver, tmp_path: Path
) -> None:
    """Until there is one again, of any name. Of what cannot be taken back anyway, nothing is told."""
    turnlog.ok("add", "a word of theirs", "--bookmark", "main")
    turnlog.ok("feed", "jsonl", tmp_path / "out", "--name", "out")
    turnlog.ok("feed", "webhook", receiver.url, "--unsigned", "--name", "hook")
    assert turnlog("feeds", "remove", "hook").stderr == ""
    done = turnlog("feeds", "remove", "out")
    assert (done.status, done.text) == (0, "removed feed out\n")
    assert done.stderr == (
        f"turnlog: erasures do not reach what is in '{tmp_path}/out' any more, until a feed delivers there again\n"
    )
    turnlog.ok("erase", "--turn", "main", "--reason", "asked", "--yes")
    assert [line["erased"] for line in lines(tmp_path / "out")] == [False, False]
    done = turnlog("feed", "jsonl", tmp_path / "out", "--name", "again")
    begins = "has events up to global position 2: feed 'again' begins behind them"
    assert (done.status, done.stderr) == (0, f"turnlog: jsonl '{tmp_path}/out' {begins}\n")
    assert [line["erased"] for line in lines(tmp_path / "out")] == [False, True, False]
    turnlog.ok("feed", "jsonl", tmp_path / "out", "--name", "again")


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_folder_of_another_feed_is_refused(turnlog: Command, tmp_path: Path, kind: str) -> None:
    """By whatever path: what is below its end would not be delivered. It is said what to do."""
    turnlog.ok("add", "one", "--bookmark", "main")
    turnlog.ok("bookmarks", "set", "aside", "main")
    turnlog.ok("feed", kind, tmp_path / "out", "--name", "the books", "--topic", "gpt.bookmark")
    (tmp_path / "link").symlink_to("out")
    for folder in ("out", "link"):
        said = turnlog.refused("feed", kind, tmp_path / folder, "--name", "turns", "--topic", "gpt.turn")
        assert said == (
            f"feed 'the books' fills '{tmp_path}/out', and feed 'turns' would begin where that one ends: give it a "
            "folder of its own, or first forget that one with `turnlog feeds remove 'the books'`"
        )
    assert [feed["name"] for feed in turnlog.ok("feeds", "--json").json_lines] == ["the books"]
    other = turnlog.ok("feed", kind, tmp_path / "other", "--name", "turns", "--topic", "gpt.turn")
    assert other.text == "turns  to 3  1 delivered  up to date\n"


def test_feed_that_cannot_begin_is_not_listed(turnlog: Command, tmp_path: Path) -> None:
    """It is told once."""
    turnlog.ok("add", "one")
    said = turnlog.refused("feed", "jsonl", tmp_path / "out", "--after", "9" * 20)
    assert said.startswith("the log has 2 events: a feed cannot begin after global position 99,999,")
    (tmp_path / "file").write_text("")
    assert "file exists" in turnlog.refused("feed", "parquet", tmp_path / "file" / "out")
    listed = turnlog("feeds")
    assert (listed.status, listed.text, listed.stderr) == (
        0,
        "",
        "turnlog: no feeds: `turnlog feed jsonl FOLDER` begins one\n",
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("jsonl", ""), "the folder has no name"),
        (("parquet", ""), "the folder has no name"),
        (("jsonl", "out", "--name", ""), "the name of the feed is empty: give one, or none for what it delivers to"),
        (("jsonl", "out", "--name", "x" * 201), "the name of the feed has 201 characters: give one of up to 200"),
        (("jsonl", "out", "--after", "-1"), "after is -1"),
        (("jsonl", "out", "--batch", "0"), "batch is 0"),
        (("jsonl", "out", "--file-mb", "0"), "--file-mb"),
        (("parquet", "out", "--linger", "-1"), "--linger"),
        (("webhook", "ftp://example.com", "--unsigned"), "not a URL of the form https://HOST/PATH"),
        (("jsonl", "out", "--topic", ""), "--topic is empty"),
        (("jsonl", "out", "--topic", "turn"), "--topic 'turn' is no topic, did you mean 'gpt.turn'"),
        (("parquet", "out", "--linger", "inf"), "--linger is seconds, from 0 up to 86,400, got inf"),
        (("parquet", "out", "--linger", "nan"), "--linger"),
        (("webhook", "http://example.com", "--unsigned", "--timeout", "0"), "--timeout"),
        (("webhook", "http://example.com", "--unsigned", "--timeout", "inf"), "above 0 and up to 86,400, got inf"),
        (("webhook", "http://example.com", "--unsigned", "--secret", "MINE"), "contradict each other"),
        (("nats", "nats://localhost", "--timeout", "nan"), "--timeout"),
        (("nats", "nats://localhost", "--credentials", "nope"), "the credentials file cannot be read"),
        (("otel", "http://localhost", "--timeout", "1e9"), "--timeout"),
        (("nats", "localhost"), "not a URL of the form nats://HOST:PORT"),
        (("otel", "localhost:4318"), "not a URL of the form"),
    ],
)
def test_what_cannot_be_is_one_line(turnlog: Command, arguments: tuple[str, ...], said: str) -> None:
    """And says what to do."""
    turnlog.ok("add", "one")
    assert said in turnlog.refused("feed", *arguments)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_folder_of_the_store_is_not_filled(turnlog: Command, tmp_path: Path, kind: str) -> None:
    """Nor one in it, by whatever name: `verify` would find what does not belong there."""
    turnlog.ok("add", "one")
    own = Path(f"{turnlog.store}-payloads")
    (tmp_path / "link").symlink_to(own)
    for folder in (own, own / "out", tmp_path / "link"):
        said = turnlog.refused("feed", kind, folder)
        assert said == f"{str(folder)!r} is a file of the store itself: name a place outside it"
    assert not own.exists()


def test_there_must_be_a_log(turnlog: Command, tmp_path: Path) -> None:
    """Nothing is made for it."""
    assert "there is no store" in turnlog.refused("feed", "jsonl", tmp_path / "out")
    assert "there is no store" in turnlog.refused("feeds")
    assert not (tmp_path / "out").exists()
