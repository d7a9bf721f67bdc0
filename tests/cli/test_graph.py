"""The drawing of a graph."""

import pytest

from turnlog.cli.graph import Node, draw, in_drawing_order


def nodes(text: str) -> list[Node]:
    """Read nodes: `c<ab` is a turn `c` that continues `a` and `b`."""
    return [Node(id=word[0], parents=tuple(word[2:])) for word in text.split()]


def drawn(text: str) -> str:
    """Draw nodes, with the id after each."""
    return "\n".join(f"{row} {row.id}" if row.id else str(row) for row in draw(nodes(text)))


DRAWINGS = {
    "line": ("a b<a c<b", "● a\n● b\n● c"),
    "fork": ("a b<a c<a d<b", "● a\n├─╮\n│ ● c\n● b\n● d"),
    "fork in three": ("a b<a c<a d<a", "● a\n├─╮\n│ ● b\n├─╮\n│ ● c\n● d"),
    "merge": ("a b<a c<a d<cb", "● a\n├─╮\n│ ● b\n● │ c\n├─╯\n● d"),
    "merge into a branch that goes on": ("a b<a c<a d<bc e<b", "● a\n├─╮\n│ ● c\n● │ b\n├─┤\n│ ● d\n● e"),
    "merge of three": (
        "r a<r b<r c<r m<abc",
        "● r\n├─╮\n│ ● a\n├─│─╮\n│ │ ● b\n● │ │ c\n├─┴─╯\n● m",
    ),
    "two roots": ("r s a<r b<s m<ab", "● r\n● a\n│ ● s\n│ ● b\n├─╯\n● m"),
    "two threads": ("a b<a x y<x", "● a\n● b\n\n● x\n● y"),
    "nested forks": (
        "r a<r b<a c<b d<b e<a f<r",
        "● r\n├─╮\n│ ● a\n│ ├─╮\n│ │ ● b\n│ │ ├─╮\n│ │ │ ● c\n│ │ ● d\n│ ● e\n● f",
    ),
    "fork across a lane": (
        "r a<r b<r c<a d<a m<cb n<d",
        "● r\n├─╮\n│ ● b\n● │ a\n├─│─╮\n│ │ ● c\n│ ├─╯\n│ ● m\n● d\n● n",
    ),
    "parents out of sight": ("x<q y<x", "┊\n● x\n● y"),
    "one parent out of sight": ("a b<qa", "● a\n● b"),
    "nothing": ("", ""),
}


@pytest.mark.parametrize(("text", "expected"), DRAWINGS.values(), ids=DRAWINGS)
def test_a_graph_is_drawn_with_a_lane_for_each_branch(text: str, expected: str) -> None:
    """Forks leave a lane, merges join lanes, roots start one."""
    assert drawn(text) == expected


def test_the_branch_with_the_latest_turn_comes_last() -> None:
    """The last row is where the log ended, whichever branch was forked first."""
    assert [node.id for node in in_drawing_order(nodes("a b<a c<a d<c e<b"))] == list("acdbe")


def test_every_turn_is_drawn_once_and_below_its_parents() -> None:
    """A ladder of merges, where each turn continues the two before it, keeps parents above children."""
    ladder = nodes("a b<a " + " ".join(f"{chr(c)}<{chr(c - 1)}{chr(c - 2)}" for c in range(ord("c"), ord("z"))))
    rows = [row.id for row in draw(ladder) if row.id]
    assert sorted(rows) == sorted(node.id for node in ladder)
    assert all(rows.index(parent) < rows.index(node.id) for node in ladder for parent in node.parents)


def test_many_forks_from_one_turn_take_two_lanes() -> None:
    """A side branch that has ended leaves its lane to the next."""
    forks = [Node(id="root"), *(Node(id=str(number), parents=("root",)) for number in range(1000))]
    assert max(len(row.cells) for row in draw(forks)) == 2


def test_a_deep_thread_is_drawn_without_recursion() -> None:
    """10,000 turns in a line are 10,000 rows."""
    deep = [Node(id=str(n), parents=(str(n - 1),) if n else ()) for n in range(10_000)]
    assert [str(row) for row in draw(deep)] == ["●"] * 10_000
