"""`turnlog erase`, `retain` and `hold`."""

from pathlib import Path

import pytest
from tests.cli.command import Command
from tests.cli.terminal import CTRL_C, Terminal
from tests.rewriting import without_triggers

from turnlog import TurnLog


@pytest.fixture
def talk(turnlog: Command) -> Command:
    """Give a command whose log has two turns of Alice's, and one of nobody's."""
    turnlog.ok("add", "hello secret", "--bookmark", "main", "--subject", "Alice")
    turnlog.ok("add", "more secret", "--continues", "main")
    turnlog.ok("add", "free", "--bookmark", "free")
    return turnlog


@pytest.mark.parametrize("which", [("--turn", "main"), ("--thread", "main"), ("--subject", "Alice")])
def test_erase_says_what_it_did(talk: Command, which: tuple[str, str]) -> None:
    """`--dry-run` says the same before, and does nothing."""
    turns = 1 if which[0] == "--turn" else 2
    would = talk.ok("erase", *which, "--dry-run", "--json").json
    assert (would["events"], would["dry_run"], would["erasures"]) == (turns, True, [])
    done = talk.ok("erase", *which, "--reason", "asked", "--yes", "--json").json
    assert (done["turns"], done["dry_run"], done["remains"]) == (would["turns"], False, None)
    assert would["moving_bookmarks"] == [moved["name"] for moved in done["moved_bookmarks"]] == ["main"]
    again = talk.ok("erase", *which if which[0] == "--subject" else ("--turn", done["turns"][0]), "--reason", "r", "-y")
    assert again.text.startswith("nothing to erase") or which[0] == "--subject"
    verified = talk.ok("verify").text
    assert verified.startswith("clean")
    assert verified.split()[-2:] == ["erased", str(turns)]
    assert b"more secret" not in talk.store.read_bytes()


def test_a_run_that_is_at_work_is_told(talk: Command) -> None:
    """Before and after: what it records is not erased."""
    with TurnLog.open(talk.url) as log:
        release = log.store.locks.take(log.turn("main").id)
        assert release is not None
        told = f"a run is at work on turn {log.turn('main').id}: what it records from here on has the subject that it"
        free = talk.ok("erase", "--turn", "free", "--reason", "asked", "--yes", "--json").json
        which = ("erase", "--subject", "Alice", "--reason", "asked")
        said = [talk(*which, "--dry-run"), talk(*which, "--yes")]
        release()
    assert free["at_work"] == []
    assert [(outcome.status, told in outcome.stderr) for outcome in said] == [(0, True), (0, True)]


def test_an_erased_turn_is_continued_with_a_subject(talk: Command) -> None:
    """Of somebody, or of nobody, where nothing tells whose it was; and by turns whose subject did not change there."""
    talk.ok("erase", "--subject", "Alice", "--reason", "asked", "--yes")
    talk.ok("erase", "--turn", "free", "--reason", "asked", "--yes")
    first = next(thread["id"] for thread in talk.ok("threads", "--json").json_lines if thread["turns"] == 2)
    refused = talk.refused("add", "more", "-c", first)
    assert "is erased, and with it whose it was: say whose what continues it is (--subject NAME)" in refused
    for subject in ("Alice", ""):
        talk.ok("add", "more", "-c", first, "--subject", subject)
    assert talk.ok("erase", "--subject", "Alice", "--reason", "asked", "--yes", "--json").json["events"] == 1


def test_erased_turns_are_shown_as_such(talk: Command) -> None:
    """By every command that reads."""
    turn = talk.ok("show", "main", "--json").json["id"]
    talk.ok("erase", "--thread", "main", "--reason", "asked", "--yes")
    assert "(erased)" in talk.ok("log", turn).text
    assert "(erased)" in talk.ok("threads").text
    assert "(erased)" in talk.ok("context", turn).text
    assert "erased" in talk.ok("show", turn).text
    [first, second] = talk.ok("context", turn, "--json").json["messages"]
    assert [message["content"][0]["type"] for message in (first, second)] == ["erased", "erased"]
    assert talk.ok("children", first["content"][0]["turn"], "--json").json_lines[0]["id"] == turn
    assert "was erased" in talk.refused("cat", turn)
    assert talk("replay", turn).status == 0
    assert "main" not in talk.ok("bookmarks").text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--reason", "r"), "give --turn, --thread or --subject"),
        (("--turn", "main", "--subject", "x", "--reason", "r"), "one of them"),
        (("--turn", "main"), "--reason"),
        (("--turn", "main", "--reason", " "), "--reason"),
        (("--turn", "main", "--reason", "r"), "--yes"),
        (("--turn", "nope", "--reason", "r", "--yes"), "no turn or bookmark 'nope'"),
    ],
)
def test_bad_usage_erases_nothing(talk: Command, arguments: tuple[str, ...], said: str) -> None:
    """One line says what to do; without --yes nobody is there to be asked."""
    assert said in talk.refused("erase", *arguments)
    assert talk.ok("cat", "main").stdout == b'[{"type":"text","text":"more secret"}]'


def test_hold_refuses_until_it_is_released(talk: Command) -> None:
    """The refusal names the hold and its reason."""
    held = talk.ok("hold", "set", "case 7", "--subject", "Alice", "--reason", "a court said so", "--json").json
    assert (held["name"], held["scope"], held["subject"]) == ("case 7", "subject", "Alice")
    assert [hold["name"] for hold in talk.ok("hold", "list", "--json").json_lines] == ["case 7"]
    assert "case 7" in talk.ok("hold").text
    refused = talk.refused("erase", "--thread", "main", "--reason", "r", "--yes")
    assert "'case 7' (a court said so)" in refused
    assert "no hold 'case 8'" in talk.refused("hold", "release", "case 8")
    talk.ok("hold", "release", "case 7")
    assert talk.ok("hold", "list", "--json").json_lines == []
    talk.ok("erase", "--thread", "main", "--reason", "r", "--yes")


def test_damage_keeps_nothing_from_being_erased(talk: Command) -> None:
    """What nobody can tell of it is told in one line, with what to do; the id that was typed is taken as it is."""
    free, other = (talk.ok("add", "x", "--bookmark", name, "--json").json["id"] for name in ("one", "other"))
    with without_triggers(talk.store) as connection:
        connection.execute("UPDATE stored_events SET private = NULL WHERE event_id = ?", (free,))
    which = ("erase", "--subject", "Alice", "--reason", "r")
    for given in ((*which, "--dry-run"), (*which, "--yes")):
        outcome = talk(*given)
        assert outcome.status == 0
        assert outcome.text.count("\n  turn ") == 2
        [told] = outcome.stderr.splitlines()
        assert f"event {free} is damaged, and nobody can tell whether it goes too" in told
        assert f"erase it by its id (--turn {free}); else restore it from a copy" in told
    with without_triggers(talk.store) as connection:
        connection.execute("UPDATE stored_events SET private = x'7b' WHERE event_id = ?", (other,))
    outcome = talk(*which, "--yes")
    assert f"2 events are damaged, and nobody can tell whether they go too ({free}, {other}): erase" in outcome.stderr
    assert talk.ok(*which, "--yes", "--json").json["damaged"] == [free, other]
    with Terminal(talk, "erase", "--turn", free[:-1], "--turn", other, "--reason", "r") as terminal:
        terminal.expect("erase 2 events for good? [y/n] ")
        terminal.send("y\n")
        assert terminal.end()[1] == 0
    assert talk.ok("verify").text.startswith("clean")


def test_damaged_hold_is_listed_and_released(talk: Command) -> None:
    """By the id of its event, which the refusal says too."""
    talk.ok("hold", "set", "case", "--subject", "Alice")
    talk.ok("hold", "set", "case 7", "--thread", "free")
    with without_triggers(talk.store) as connection:
        connection.execute("UPDATE stored_events SET private = x'7b' WHERE topic = 'gpt.hold'")
    on_subject, on_thread = (hold["name"] for hold in talk.ok("hold", "list", "--json").json_lines)
    listed = talk.ok("hold").text.splitlines()
    assert f"{on_subject}  damaged, and so on everything: of what subject it is cannot be told" in listed[0]
    assert f"{on_thread}  damaged, and so on thread 0" in listed[1]
    which = ("erase", "--thread", "main", "--reason", "r", "--yes")
    assert f"release it, `turnlog hold release {on_subject}`" in talk.refused(*which)
    talk.ok("hold", "release", on_subject)
    talk.ok(*which)


def test_retain_lists_and_erases_only_when_told(talk: Command) -> None:
    """Nothing is old enough here; a malformed time is refused."""
    assert talk.ok("retain", "--older-than", "90d", "--json").json["threads"] == []
    assert "nothing to erase" in talk.ok("retain", "--older-than", "12w").text
    assert "90d" in talk.refused("retain", "--older-than", "90 days")
    assert "--reason" in talk.refused("retain", "--older-than", "90d", "--apply")
    assert talk.ok("retain", "--older-than", "1h", "--apply", "--reason", "r", "--json").json["erasure"] is None


def test_finish_says_that_nothing_is_left(talk: Command) -> None:
    """`--finish` needs no turn."""
    assert "nothing of what was erased here is left" in talk.ok("erase", "--finish").text
    assert talk.ok("erase", "--finish", "--json").json == {"remains": None, "erased_again": 0}


def test_finish_erases_what_a_restored_copy_still_has(talk: Command, tmp_path: Path) -> None:
    """The import says so, `verify` does as long as it is there, and both say how it goes. Nothing else is taken."""
    talk.ok("bookmarks", "set", "noted", "main")
    older, newer = (str(tmp_path / name) for name in ("older.jsonl", "newer.jsonl"))
    talk.ok("export", "--output", older)
    talk.ok("erase", "--subject", "Alice", "--reason", "asked", "--yes")
    talk.ok("export", "--output", newer)
    store = {"TURNLOG_STORE": f"sqlite:///{tmp_path}/copy.db"}
    talk.ok("import", "turnlog", older, **store)
    said = talk("import", "turnlog", newer, **store)
    assert "2 turns erased where this comes from, and not here: `turnlog erase --finish`" in said.stderr
    found = talk("verify", "--json", **store)
    assert (found.status, len(found.json["damage"])) == (1, 3)
    assert "nobody is here to be asked: --yes erases again the 3 events" in talk.refused("erase", "--finish", **store)
    for more, said in (
        (("--dry-run",), "`turnlog verify` names what it would erase again"),
        (("--turn", "free", "--thread", "free"), "leave out --turn, --thread, or leave out --finish"),
        (("--subject", "", "--reason", "r", "--by", "me"), "leave out --subject, --reason, --by, or leave out"),
    ):
        assert said in talk.refused("erase", "--finish", "--yes", *more, **store)
    assert talk("verify", "--json", **store).json == found.json
    assert talk.ok("erase", "--finish", "--yes", **store).text.startswith("erased again  3 events")
    assert talk.ok("verify", **store).text.startswith("clean")
    assert talk.ok("erase", "--finish", "--json", **store).json == {"remains": None, "erased_again": 0}


@pytest.mark.parametrize(("answer", "status"), [("y", 0), ("n", 2), ("\x04", 2), ("maybe\nyes", 0)])
def test_somebody_at_a_terminal_is_asked(talk: Command, answer: str, status: int) -> None:
    """After it was shown what would go. Only yes is yes."""
    with Terminal(talk, "erase", "--thread", "main", "--reason", "asked") as terminal:
        assert "would erase  2 events" in terminal.expect("erase 2 events for good? [y/n] ")
        terminal.send(answer if answer == "\x04" else f"{answer}\n")
        rest, ended = terminal.end()
    assert ended == status
    assert ("erased  2 events" if status == 0 else "turnlog: nothing was erased") in rest
    assert (talk("show", "main").status == 0) == (status != 0)


def test_what_was_shown_is_what_is_erased(talk: Command) -> None:
    """A bookmark that moves on while the question stands, and turns that come: neither is erased unseen."""
    shown = talk.ok("log", "main", "-n", "1", "--json").json["id"]
    with Terminal(talk, "erase", "--turn", "main", "--reason", "asked") as terminal:
        assert shown in terminal.expect("erase 1 event for good? [y/n] ")
        later = talk.ok("add", "said meanwhile", "-c", "main").text.split()[0]
        terminal.send("y\n")
        assert shown in terminal.end()[0]
    assert "said meanwhile" in talk.ok("cat", later).text
    assert talk.ok("show", shown).text.count("erased")

    with Terminal(talk, "erase", "--thread", "main", "--reason", "asked") as terminal:
        terminal.expect("for good? [y/n] ")
        last = talk.ok("add", "said later", "-c", "main").text.split()[0]
        terminal.send("y\n")
        rest, status = terminal.end()
    assert ("turns of it came since you have looked, and nothing was erased: look again" in rest, status) == (True, 2)
    assert "said later" in talk.ok("cat", last).text


def test_ctrl_c_at_the_question_erases_nothing(talk: Command) -> None:
    """One line, and status 130."""
    with Terminal(talk, "erase", "--turn", "main", "--reason", "asked") as terminal:
        terminal.expect("erase 1 event for good? [y/n] ")
        terminal.send(CTRL_C)
        rest, status = terminal.end()
    assert (status, "turnlog: interrupted" in rest, "Traceback" in rest) == (130, True, False)
    assert "more secret" in talk.ok("cat", "main").text


def test_erasing_is_told_though_nobody_knows_where_feeds_have_delivered(talk: Command) -> None:
    """What keeps their states is damaged: it is said that something may still be there, and the status is 1."""
    talk.ok("feed", "jsonl", talk.store.parent / "lines")
    states = talk.store.with_name(talk.store.name + "-feeds")
    states.write_bytes(b"no database at all" * 100)
    done = talk("erase", "--turn", "main", "--reason", "asked", "--yes")
    assert (done.status, "erased" in done.text) == (1, True)
    assert "may still be where feeds have delivered it" in done.text + done.stderr
    assert talk.ok("verify").text.split()[-2:] == ["erased", "1"]


@pytest.mark.parametrize("asked", ["zoe\u0308", "Zoe\u0308", "ZO\u00cb"])
def test_subject_that_is_spelled_otherwise_is_told(turnlog: Command, asked: str) -> None:
    """The match is exact: who is meant and not found is said to be there under another spelling."""
    turnlog.ok("add", "said", "--subject", "Zo\u00eb")
    turnlog.ok("add", "of another", "--subject", "Zoa")
    done = turnlog("erase", "--subject", asked, "--reason", "asked", "--yes")
    assert done.text.startswith("nothing to erase")
    assert done.stderr == (
        "turnlog: there is a subject 'Zo\u00eb' ('Zo\\xeb') that is spelled otherwise, and is not erased\n"
    )
    report = turnlog.ok("erase", "--subject", asked, "--dry-run", "--json").json
    assert (report["alike"], report["events"]) == (["Zo\u00eb"], 0)
    assert turnlog.ok("erase", "--subject", "Zo\u00eb", "--reason", "asked", "--yes").stderr == ""
