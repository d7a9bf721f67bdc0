"""`turnlog seal`, and what is sealed in the other commands."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.command import Command


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    """Give the environment in which the keys are."""
    return {"TURNLOG_KEYS_DIR": str(tmp_path / "keys")}


@pytest.fixture
def sealed(turnlog: Command, keys: dict[str, str]) -> Command:
    """Give a command whose log has a plain turn, and two sealed ones of Alice's."""
    turnlog.ok("add", "free text", "--bookmark", "free")
    turnlog.ok("seal", "--subject", "Alice", **keys)
    turnlog.ok("add", "hello secret", "--bookmark", "alices", "--subject", "Alice", **keys)
    turnlog.ok("add", "more secret", "--continues", "alices", **keys)
    return turnlog


def test_seal_says_what_it_did(turnlog: Command, keys: dict[str, str]) -> None:
    """What is sealed, under which key, where the keys are and who needs them, and what of before is not."""
    turnlog.ok("add", "x", "--subject", "Alice")
    first = turnlog.ok("seal", "--subject", "Alice", **keys)
    assert first.text.startswith("what is of Alice is sealed from now on\n")
    assert "1 turn of before" in first.text
    assert keys["TURNLOG_KEYS_DIR"] in first.text
    assert "without them nobody can read what is sealed" in first.text
    assert "all who record in the log: without them what would be sealed is refused" in first.text
    again = turnlog.ok("seal", "--subject", "Alice", **keys)
    assert again.text.startswith("what is of Alice was sealed before\n")
    whole = turnlog.ok("seal", "--json", **keys).json
    assert (whole["scope"], whole["subject"], whole["before"]) == ("store", None, 1)
    assert turnlog.ok("verify", **keys).text.startswith("clean")


def test_seal_that_is_refused_says_which_keys_stay(turnlog: Command, keys: dict[str, str]) -> None:
    """A second time none is made, and nothing is said of those that there are."""
    turnlog.ok("add", "x")
    folder = f"{keys['TURNLOG_KEYS_DIR']}/sealed"
    with closing(sqlite3.connect(turnlog.store)) as connection:
        connection.execute("CREATE TRIGGER full BEFORE INSERT ON stored_events BEGIN SELECT RAISE(ABORT, 'no'); END")
    said = f"keys were made, and stay in {folder!r}, wrapped by {folder}/master, which was made now"
    assert said in turnlog.refused("seal", **keys)
    assert "keys were made" not in turnlog.refused("seal", **keys)
    with closing(sqlite3.connect(turnlog.store)) as connection:
        connection.execute("DROP TRIGGER full")
    assert turnlog.ok("seal", **keys).text.startswith("all of the log is sealed from now on\n")


def test_sealed_turns_are_read_with_the_keys(sealed: Command, keys: dict[str, str]) -> None:
    """And nothing of them stands in the store."""
    assert "more secret" in sealed.ok("context", "alices", **keys).text
    assert sealed.ok("show", "alices", "--json", **keys).json["sealed"]
    assert "alices" in sealed.ok("bookmarks", **keys).text
    files = [file.read_bytes() for file in sealed.store.parent.glob(f"{sealed.store.name}*") if file.is_file()]
    assert files
    assert not any(word in content for content in files for word in (b"hello", b"more ", b"Alice", b"alices"))


def test_tools_of_what_is_sealed_are_said_not_to_be_counted(sealed: Command, keys: dict[str, str]) -> None:
    """It is not that none was called."""
    said = "turnlog: calls in sealed turns are not counted: what is sealed is not indexed\n"
    assert sealed("usage", "--tools", **keys).stderr == said


def test_without_the_keys_commands_say_so(sealed: Command, keys: dict[str, str]) -> None:
    """What is not sealed is there; what is cannot be read, or be gone on from; and all of it verifies."""
    turn = sealed.ok("show", "alices", "--json", **keys).json["id"]
    assert "free text" in sealed.ok("context", "free").text
    assert "(sealed, and its key is not here)" in sealed.ok("log", turn).text
    assert "(sealed, and its key is not here)" in sealed.ok("threads").text
    assert "sealed" in sealed.ok("context", turn).text
    shown = sealed.ok("show", turn)
    assert "which is not here: it cannot be read" in shown.text
    assert "there are no keys of sealing in" in sealed.refused("show", "alices")
    assert "is sealed, and its key" in sealed.refused("cat", turn)
    assert "is sealed, and its key" in sealed.refused("add", "x", "--continues", turn)
    assert "there are no keys of sealing in" in sealed.refused("add", "x", "--subject", "Alice")
    verified = sealed.ok("verify").text
    assert verified.startswith("clean")
    assert "could not be looked into: their keys are not here" in verified
    assert "could not" not in sealed.ok("verify", **keys).text


def test_erasing_a_subject_destroys_its_key(sealed: Command, keys: dict[str, str], tmp_path: Path) -> None:
    """So that an export of before cannot be read any more."""
    exported = tmp_path / "export.jsonl"
    sealed.ok("export", "-o", str(exported), **keys)
    would = sealed.ok("erase", "--subject", "Alice", "--dry-run", "--json", **keys).json
    done = sealed.ok("erase", "--subject", "Alice", "--reason", "asked", "--yes", **keys).text
    assert f"{would['keys'][0]} destroyed: what it sealed is gone from every copy" in done
    assert sealed.ok("verify", **keys).text.startswith("clean")
    other = Command(store=tmp_path / "other" / "log.db")
    other.store.parent.mkdir()
    other.ok("import", "turnlog", str(exported), **keys)
    assert other.ok("verify", **keys).text.startswith("clean")
    assert "(sealed, and its key is not here)" in other.ok("threads", **keys).text


def test_keys_are_listed(sealed: Command, keys: dict[str, str]) -> None:
    """With what is wrong with one, and exit status 1 then. What other keys open can be read all the same."""
    sealed.ok("seal", **keys)
    listed = sealed.ok("seal", "--list", **keys).text.splitlines()
    assert [line.split("  ")[1].split()[1] for line in listed] == ["subject", "no"]
    [of_alice] = sealed.ok("seal", "--list", "--subject", "Alice", "--json", **keys).json_lines
    assert of_alice["problem"] is None
    assert "is of this subject" in sealed("seal", "--list", "--subject", "Bob", **keys).stderr
    assert "no key of sealing" in sealed("seal", "--list", TURNLOG_KEYS_DIR=keys["TURNLOG_KEYS_DIR"] + "2").stderr
    turn = sealed.ok("add", "of nobody", "--bookmark", "main", **keys).text.split()[0]
    [file] = Path(keys["TURNLOG_KEYS_DIR"]).glob("sealed/subject.*")
    file.write_text("x")
    outcome = sealed("seal", "--list", **keys)
    assert outcome.status == 1
    assert "not as it was written" in outcome.text
    assert [line["problem"] is None for line in sealed("seal", "--list", "--json", **keys).json_lines] == [True, False]
    assert "of nobody" in sealed.ok("cat", turn, **keys).text
    assert "(sealed, and its key is not here)" in sealed.ok("log", "--all", **keys).text
    assert sealed.ok("verify", **keys).text.startswith("clean")


def test_erasing_says_which_keys_go_and_which_stay(sealed: Command, keys: dict[str, str]) -> None:
    """Of a subject all that there are; of a turn none, so that copies of before can still be opened."""
    turn = sealed.ok("show", "alices", "--json", **keys).json["id"]
    [file] = Path(keys["TURNLOG_KEYS_DIR"]).glob("sealed/subject.*")
    kept = file.with_name("kept")
    file.rename(kept)
    sealed.ok("add", "once more", "--subject", "Alice", **keys)  # under a second key
    kept.rename(file)
    both = sorted(
        one["key_id"] for one in sealed.ok("seal", "--list", "--subject", "Alice", "--json", **keys).json_lines
    )
    assert len(both) == 2
    would = sealed.ok("erase", "--turn", turn, "--dry-run", **keys).text
    assert "1 event under keys that are kept: copies that were made before can still be opened" in would
    assert sealed.ok("erase", "--turn", turn, "--dry-run", "--json", **keys).json["still_sealed"] == 1
    would = sealed.ok("erase", "--subject", "Alice", "--dry-run", "--json", **keys).json
    assert (would["keys"], would["still_sealed"]) == (both, 0)
    done = sealed.ok("erase", "--subject", "Alice", "--reason", "asked", "--yes", "--json", **keys).json
    assert (done["keys"], done["still_sealed"], done["turns"]) == (both, 0, would["turns"])


def test_erasing_says_what_was_never_sealed(turnlog: Command, keys: dict[str, str]) -> None:
    """It is in copies of before in plain, whatever key goes."""
    turnlog.ok("add", "Before.", "--subject", "Alice", **keys)
    assert "not sealed" not in turnlog.ok("erase", "--subject", "Alice", "--dry-run", **keys).text
    turnlog.ok("seal", **keys)
    turnlog.ok("add", "Then.", "--subject", "Alice", **keys)
    would = turnlog.ok("erase", "--subject", "Alice", "--dry-run", **keys).text
    assert "1 event recorded in plain, before the rest was sealed" in would


def test_import_says_which_bookmarks_it_could_not_read(sealed: Command, keys: dict[str, str], tmp_path: Path) -> None:
    """They are sealed, and set nothing here; one that is not is set."""
    sealed.ok("bookmarks", "set", "again", "alices", **keys)
    sealed.ok("bookmarks", "set", "gone", "alices", **keys)
    sealed.ok("bookmarks", "delete", "gone", **keys)
    export = tmp_path / "log.jsonl"
    sealed.ok("export", "-o", str(export))
    other = Command(store=tmp_path / "other.db")
    other.ok("add", "here first")
    told = other.ok("import", "turnlog", str(export)).text
    assert "1 bookmark set: free" in told
    assert "2 bookmarks not set: their names are sealed, and the key is not here" in told
    assert "not set" not in other.ok("import", "turnlog", str(export)).text


def test_erasing_without_the_keys_says_where_they_are_looked_for(sealed: Command, keys: dict[str, str]) -> None:
    """As recording does: by the variable that says where they are, and by no argument of Python's."""
    said = sealed.refused("erase", "--subject", "Alice", "--reason", "asked", "--yes", TURNLOG_KEYS_DIR="elsewhere")
    assert "nothing was erased" in said
    assert "set TURNLOG_KEYS_DIR to where they are" in said
    assert "seals=" not in said
