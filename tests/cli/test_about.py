"""What `threads` says of a thread: what a person said first, and not what an agent put before that."""

import pytest
from tests.cli.command import Command
from tests.faults.hostile import run_sql

from turnlog import Origin, Text, TurnLog
from turnlog.cli.about import own_line

ENVIRONMENT = "<environment_context>\n  <cwd>/work</cwd>\n</environment_context>"
PROJECT = "# AGENTS.md instructions for /work\n\n<INSTRUCTIONS>\nBe brief.\n</INSTRUCTIONS>"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Which ferry?\nToday.", "Which ferry?"),
        (f"{ENVIRONMENT}\n\nWhich ferry?", "Which ferry?"),
        (f"{ENVIRONMENT}\n<rules kind='all'>\nBe brief.\n</rules>\nWhich ferry?", "Which ferry?"),
        ("<user_info>\nOS: x\n</user_info>\n<user_query>\nWhich ferry?\n</user_query>\n", "Which ferry?"),
        (f"{PROJECT}\n{ENVIRONMENT} Which ferry?", "Which ferry?"),
        (PROJECT, ""),
        (ENVIRONMENT, ""),
        ("# AGENTS.md instructions are not read. Why?", "# AGENTS.md instructions are not read. Why?"),
        ("<b>Which</b>, ferry?", "<b>Which</b>, ferry?"),
        ("<div> is not closed", "<div> is not closed"),
        ("<a>1</a>" * 30_000 + " Which ferry?", "Which ferry?"),
        ("1 < 2 and 3 > 2?", "1 < 2 and 3 > 2?"),
    ],
)
def test_the_line_behind_what_an_agent_put_there(text: str, line: str) -> None:
    """Elements that a text begins with are context, but for one in a sentence or one that has no end."""
    assert own_line(text)[:50] == line


def about(turnlog: Command) -> list[str]:
    """Return what is said of each thread, in the listing."""
    return [line.rpartition("Z")[2].strip() for line in turnlog.ok("threads").text.splitlines()]


def record(turnlog: Command, *turns: tuple[str, str]) -> None:
    """Record a thread of roles and texts; `meta` is a turn of a user that nobody said."""
    with TurnLog.open(turnlog.url) as log:
        head = None
        for role, text in turns:
            origin = Origin(format="x", ids=[], meta=True) if role == "meta" else None
            said = "user" if role == "meta" else role
            head = log.add_turn(text, role=said, origin=origin, continues=head).id


def test_context_in_turns_of_its_own_is_passed_over(turnlog: Command) -> None:
    """So do Codex and Claude Code begin."""
    record(
        turnlog,
        ("system", "You are helpful."),
        ("user", PROJECT),
        ("user", ENVIRONMENT),
        ("meta", "Caveat: what follows was run by the user."),
        ("user", "Which ferry?"),
        ("assistant", "The first."),
        ("user", "And back?"),
    )
    assert about(turnlog) == ["Which ferry?"]
    assert [thread["about"] for thread in turnlog.ok("threads", "--json").json_lines] == ["Which ferry?"]


def test_a_thread_in_which_only_context_was_said(turnlog: Command) -> None:
    """Of the last of it is shown what is inside; of a thread that begins with a reply, the reply."""
    record(
        turnlog,
        ("user", PROJECT),
        ("user", "<documents>\nLong.\n</documents>\n<task>\nBook a ferry.\n</task>\n<x> </x>"),
    )
    record(turnlog, ("system", "<role>You are a pilot.</role>"))
    record(turnlog, ("user", "<x></x>"), ("assistant", "What is that?"), ("user", "Later"))
    record(turnlog, ("assistant", "Where to?"), ("user", "Home"))
    assert about(turnlog) == ["Where to?", "<x></x>", "You are a pilot.", "Book a ferry."]


def test_what_is_said_behind_a_block_of_context(turnlog: Command) -> None:
    """An agent may put it into a block of its own."""
    with TurnLog.open(turnlog.url) as log:
        log.add_turn([Text(text=ENVIRONMENT), Text(text="Which ferry?")])
    assert about(turnlog) == ["Which ferry?"]


def test_a_damaged_turn_is_told_once(turnlog: Command) -> None:
    """The other threads are listed."""
    record(turnlog, ("user", ENVIRONMENT), ("user", "Which ferry?"))
    record(turnlog, ("user", "Which train?"))
    run_sql(turnlog.store, "UPDATE stored_events SET payload = X'00' WHERE CAST(payload AS TEXT) LIKE '%ferry%'")
    done = turnlog("threads")
    assert "Which train?" in done.text
    assert "(damaged)" in done.text
    assert len(done.stderr.splitlines()) == 1
    assert "cannot be read" in done.stderr
    assert "cannot be read either" not in done.stderr
