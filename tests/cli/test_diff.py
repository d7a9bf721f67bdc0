"""`turnlog diff`: two branches beside each other."""

import re

from tests.cli.command import STAMP, Command, turn_id

from turnlog import TurnLog
from turnlog.model import ReplyFacts

A, B, C, D, E = map(turn_id, "abcde")


def test_what_each_branch_has_alone_is_printed_as_in_a_window(read: Command) -> None:
    """Below the last turn of both. What a merge has that the other has too is not its alone."""
    assert read.ok("diff", "try", f"{D}").text == (
        f"── both continue\n{B}  assistant  {STAMP}  Append.\n\n"
        f"── only in try  1 turn\n\n── user  {C} · {STAMP}\nAnd in Rust?\n\n"
        f"── only in {D}  1 turn\n\n── user  {D} · {STAMP}\nAnd in Python?\n\n"
    )
    merged = read.ok("diff", "try", "main", "--json").json
    assert {side: [turn["id"] for turn in turns] for side, turns in merged.items()} == {
        "common": [B, C],
        "left": [],
        "right": [D, E],
    }


def test_nothing_in_common_and_nothing_apart_are_said(turnlog: Command) -> None:
    """Two threads, and one turn that is named twice."""
    with TurnLog.open(turnlog.url) as log:
        one = log.add_turn("1", bookmark="one")
        log.add_turn("2", bookmark="two")
    assert turnlog.ok("diff", "one", "two").text.startswith(
        "── they have nothing in common\n\n── only in one  1 turn\n"
    )
    same = turnlog("diff", "one", one.id)
    assert (same.status, same.stdout, same.stderr) == (0, b"", f"turnlog: both are turn {one.id}\n")


def test_what_turns_set_and_how_they_ended_is_printed(turnlog: Command) -> None:
    """Options, models, errors, documents, erased turns; no text passes for such a line."""
    document = turnlog.store.parent / "menu.txt"
    document.write_text("Soup.")
    with TurnLog.open(turnlog.url) as log:
        log.add_turn("ask", bookmark="base")
        log.add_turn("1", continues="base", bookmark="left", provider_ptr="milli")
        facts = ReplyFacts(model="model-1", error="overloaded")
        log.add_turn("── only in right", role="assistant", continues="left", reply=facts)
        log.add_document(document, continues="base~0", bookmark="right")
        gone = log.add_turn("gone", continues="right")
        log.add_turn("there", continues="right")
        log.erase(turn=gone.id, reason="asked")
    lines = turnlog.ok("diff", "left", "right").text.splitlines()
    assert lines[0] == "── both continue"
    assert '── options set\nprovider_ptr = "milli"' in "\n".join(lines)
    assert any(re.fullmatch("── assistant · model-1  .* · ✗ overloaded", line) for line in lines)
    assert "\\── only in right" in lines
    assert [line for line in lines if line in ("menu.txt", "(erased)", "there")] == ["menu.txt", "(erased)", "there"]
