"""Redaction at the command line: what is taken out, and what people are told of it."""

import json
from pathlib import Path

import pytest
from tests.agent.wires import KEY, OpenAI, set_up
from tests.cli.command import Command, Outcome
from tests.wires.server import WireServer

from turnlog import TurnLog
from turnlog.cli.hidden_turns import telling_of_hidden
from turnlog.errors import SecretError
from turnlog.redaction import secrets

pytest.importorskip("kingfisher_sdk", reason="the extra `redact` is not installed")

TOKEN = "gh" + "p_Zk3Pq8Xw1Nv6Tb9Ld2Hs7Rf4Mc5Jg0Yy1aB7"
AWS = "AKIA" + "QYLPMN5HHXKZ7QRT"
WIRE = OpenAI()


def ok(outcome: Outcome) -> Outcome:
    """Check that a command succeeded, and said nothing of a secret."""
    assert outcome.status == 0, outcome
    assert TOKEN not in outcome.text + outcome.stderr
    return outcome


def raw(turnlog: Command) -> bytes:
    """Return all bytes beside the store, the store's own among them."""
    return b"".join(path.read_bytes() for path in turnlog.store.parent.glob("**/*.db*") if path.is_file())


def test_add_tells_what_it_took_out(turnlog: Command) -> None:
    """On standard error, and with --json in the metadata too."""
    outcome = ok(turnlog("add", f"{TOKEN} {TOKEN} {AWS}", "--redact", "--bookmark", "main", "--json"))
    turn = outcome.json
    assert outcome.stderr == f"turnlog: redacted 1 aws-key, 2 github-token in turn {turn['id']}\n"
    assert turn["meta"]["redacted"] == {"aws-key": 1, "github-token": 2}
    assert "[redacted: github-token] [redacted: github-token] [redacted: aws-key]" in turnlog.ok("context", "main").text
    assert '"github-token":2' in turnlog.ok("show", "main").text
    assert TOKEN.encode()[:12] not in raw(turnlog)
    assert turnlog.ok("verify").status == 0


def test_environment_asks_for_it_in_every_command(turnlog: Command) -> None:
    """And where there is nothing to take out, nothing is said."""
    outcome = ok(turnlog("add", TOKEN, TURNLOG_REDACT="secrets"))
    assert outcome.stderr.startswith("turnlog: redacted 1 github-token in turn ")
    turnlog.ok("add", "harmless", TURNLOG_REDACT="secrets")
    turnlog.ok("threads", TURNLOG_REDACT="secrets")
    turnlog.ok("add", "harmless", TURNLOG_REDACT="")


def test_unknown_hooks_are_refused(turnlog: Command) -> None:
    """Rather than that content goes in as it is."""
    assert turnlog.refused("add", TOKEN, TURNLOG_REDACT="all") == (
        "TURNLOG_REDACT is 'all': set it to secrets, or not at all"
    )
    assert not turnlog.store.exists()


def test_same_turn_again_is_told_again(turnlog: Command) -> None:
    """An append whose answer got lost can be repeated."""
    first = ok(turnlog("add", TOKEN, "--redact", "--json"))
    again = ok(turnlog("add", TOKEN, "--redact", "--json", "--id", first.json["id"]))
    assert (again.json, again.stderr) == (first.json, first.stderr)


def test_what_cannot_be_replaced_is_refused_before_a_store_is_made(turnlog: Command) -> None:
    """A bookmark of the name of a secret."""
    message = turnlog.refused("add", "a", "--redact", "--bookmark", TOKEN)
    assert message.startswith("bookmark: a redaction hook found")
    assert TOKEN not in message
    assert not turnlog.store.exists()


def test_document_says_what_was_not_looked_into(turnlog: Command, tmp_path: Path) -> None:
    """A text is redacted, a binary one is passed over."""
    text, binary = tmp_path / "a.txt", tmp_path / "b.bin"
    text.write_text(f"KEY={TOKEN}\n")
    binary.write_bytes(b"\xff\0\xff")
    outcome = ok(turnlog("document", text, "--redact", "--json"))
    assert outcome.stderr == f"turnlog: redacted 1 github-token in turn {outcome.json['id']}\n"
    assert turnlog.ok("cat", outcome.json["id"]).stdout == b"KEY=[redacted: github-token]\n"
    outcome = ok(turnlog("document", binary, "--redact", "--json"))
    assert outcome.stderr == (
        f"turnlog: 1 document in turn {outcome.json['id']} is not text, and was not looked into\n"
    )


@pytest.mark.parametrize("as_json", [False, True])
def test_run_tells_what_it_took_out_of_a_reply(turnlog: Command, as_json: bool) -> None:
    """Its raw events are not kept, and `replay --check` says that it does not compare it."""
    with WireServer(WIRE.reply(f"It is {TOKEN}.")) as server, TurnLog.open(turnlog.url) as log:
        set_up(log, WIRE, server.url)
        options = ["--redact", *(["--json"] if as_json else [])]
        outcome = turnlog("run", f"What of {AWS}?", "-p", "kilo", "-b", "main", *options, OPENAI_API_KEY=KEY)
        asked, answered = log.ancestry("main")
    assert outcome.status == 0
    told = [line for line in outcome.stderr.splitlines() if "redacted" in line]
    assert told == [
        f"turnlog: redacted 1 aws-key in turn {asked.id}",
        f"turnlog: redacted 1 github-token in turn {answered.id}; the raw events of the reply are not kept",
    ]
    checked = ok(turnlog("replay", "main", "--check"))
    assert checked.text.strip().endswith("0 replies add up to their turns, 0 different; 1 redacted and not compared")
    (line,) = ok(turnlog("replay", "main", "--check", "--json")).json_lines
    assert (line["redacted"], line["difference"], line["reply_difference"]) == (True, None, None)
    assert TOKEN.encode()[:12] not in raw(turnlog)
    assert AWS.encode() not in raw(turnlog)


def test_chat_redacts(turnlog: Command) -> None:
    """Each message, and each reply."""
    with WireServer(WIRE.reply("Yes.")) as server, TurnLog.open(turnlog.url) as log:
        set_up(log, WIRE, server.url)
        outcome = turnlog("chat", "-p", "kilo", "--redact", stdin=f"{TOKEN}?\n".encode(), OPENAI_API_KEY=KEY)
    assert "turnlog: redacted 1 github-token in turn " in outcome.stderr
    assert TOKEN.encode()[:12] not in raw(turnlog)


def test_import_of_a_session_redacts_and_says_so(turnlog: Command, tmp_path: Path) -> None:
    """For the file as a whole; imported again it is all known."""
    file = tmp_path / "session.jsonl"
    message = {"role": "user", "content": f"use {TOKEN}"}
    file.write_text(json.dumps({"type": "user", "uuid": "u1", "sessionId": "s1", "message": message}) + "\n")
    outcome = ok(turnlog("import", "claude-code", file, "--redact", "--json"))
    assert outcome.stderr == f"turnlog: redacted 1 github-token in {file}\n"
    assert outcome.json["redacted"] == {"github-token": 1}
    assert ok(turnlog("import", "claude-code", file, "--redact", "--json")).json["turns_added"] == 0
    assert TOKEN.encode()[:12] not in raw(turnlog)


def test_import_of_an_export_says_that_it_is_not_redacted(turnlog: Command, tmp_path: Path) -> None:
    """Its events have digests: they come in as they are, or not at all."""
    turnlog.ok("add", "a")
    turnlog.ok("export", "--output", tmp_path / "log.jsonl")
    outcome = turnlog("import", "turnlog", tmp_path / "log.jsonl", TURNLOG_REDACT="secrets")
    assert outcome.status == 0
    assert outcome.stderr.startswith("turnlog: nothing is redacted in what export wrote")


def test_a_name_that_is_refused_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers write down what they are asked: also for a turn that the name may mean."""
    with TurnLog.open("memory://", redact=[secrets()]) as log:
        turn = log.add_turn("Hi", bookmark="main")

        def read() -> None:
            raise AssertionError("it was looked up")

        monkeypatch.setattr(log.store, "read", read)
        with pytest.raises(SecretError), telling_of_hidden(log, AWS):
            log.bookmarks.set(AWS, turn.id)
        monkeypatch.undo()
