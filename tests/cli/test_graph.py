"""The drawing of a graph."""

import random
import re
from collections.abc import Sequence

import pytest
from tests.cli.command import STAMP, Command, clocked_log, turn_id
from tests.faults.hostile import run_sql

from turnlog.cli.graph import LANES_MAX, Node, Row, draw, in_drawing_order


def nodes(text: str) -> list[Node]:
    """Read nodes: `c<ab` is a turn `c` that continues `a` and `b`."""
    return [Node(id=word[0], parents=tuple(word[2:])) for word in text.split()]


def drawn(text: str, lanes_max: int = LANES_MAX) -> str:
    """Draw nodes, with the id after each, and after a row that says what the next one continues."""
    rows = draw(nodes(text), lanes_max=lanes_max)
    return "\n".join(f"{row} {row.id or row.continues}" if row.id or row.continues else str(row) for row in rows)


def nested(forks: int) -> list[Node]:
    """Return a thread, recorded first, and a side branch of each of its turns, that of the last turn first."""
    thread = [Node(id=f"m{n}", parents=(f"m{n - 1}",) if n else ()) for n in range(forks)]
    return thread + [Node(id=f"s{n}", parents=(f"m{n}",)) for n in reversed(range(forks))]


def children(number: int) -> list[Node]:
    """Return a turn with many children."""
    return [Node(id="root"), *(Node(id=f"c{n}", parents=("root",)) for n in range(number))]


def merged(number: int) -> list[Node]:
    """Return a turn with many children, which all are merged."""
    return [*children(number), Node(id="merge", parents=tuple(f"c{n}" for n in range(number)))]


def at_random(seed: int, number: int) -> list[Node]:
    """Return turns that continue none to three earlier ones."""
    dice = random.Random(seed)
    graph: list[Node] = []
    for n in range(number):
        parents = dice.sample(range(n), min(n, dice.choice((0, 1, 1, 1, 2, 3))))
        graph.append(Node(id=f"t{n}", parents=tuple(f"t{parent}" for parent in parents)))
    return graph


def read_back(rows: Sequence[Row]) -> dict[str, set[str]]:
    """Return what each turn continues, as somebody sees it who has the drawing alone."""
    found: dict[str, set[str]] = {}
    below: dict[int, set[str]] = {}
    """By lane, what comes down into the next row there."""
    named: set[str] = set()
    for place, row in enumerate(rows):
        signs = dict(enumerate(cell[0] for cell in row.cells))
        across = [lane for lane, cell in enumerate(row.cells) if cell[1] == "─"]
        if row.continues is not None:
            named.add(row.continues)
        elif row.id is not None:
            lane = lane_of_node(row)
            found[row.id] = below.get(lane, set()) | named
            below[lane], named = {row.id}, set()
        elif across:
            joined = [lane for lane in range(across[0], across[-1] + 2) if signs[lane] in "├┤┼╰╯┴"]
            node = next(row for row in rows[place:] if row.id is not None)
            below[lane_of_node(node)] = set().union(*(below[lane] for lane in joined))
        below = {lane: turns for lane, turns in below.items() if signs.get(lane, " ") in "│●├┤┼╭╮┬"}
    return found


def lane_of_node(row: Row) -> int:
    """Return the lane of the turn that stands in a row."""
    [lane] = [lane for lane, cell in enumerate(row.cells) if cell[0] == "●"]
    return lane


def by_id(graph: Sequence[Node]) -> dict[str, set[str]]:
    """Return the parents of each node."""
    return {node.id: set(node.parents) for node in graph}


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


BOUND = {
    "a fork too deep": (
        "a b<a c<b d<c z<c y<b x<a",
        2,
        "● a\n├─╮\n│ ● b\n┊ │\n╭─┤\n● │ c\n│ ┊\n├─╮\n│ ● d\n● z\n\n┊ b\n● y\n\n┊ a\n● x",
    ),
    "the lane that waits longest is cut": (
        "a b<a c<b d<c z<c y<b x<a",
        3,
        "● a\n├─╮\n│ ● b\n│ ├─╮\n│ │ ● c\n┊ │ │\n╭─│─┤\n● │ │ d\n  │ ● z\n  ● y\n\n┊ a\n● x",
    ),
    "a merge of more than there are lanes": (
        "r a<r b<r c<r d<r m<abcd",
        3,
        "● r\n├─╮\n│ ● a\n├─│─╮\n│ │ ● b\n│ ┊ │\n├─╮ │\n│ ● │ c\n● │ │ d\n├─┴─╯\n├ a\n● m",
    ),
    "a merge of all lanes, which all go on": (
        "a b c<ab d<ab",
        2,
        "● a\n│ ● b\n┊ │\n╭─┤\n├ │ a\n● │ c\n  ├ a\n  ● d",
    ),
    "a root where no lane is free": (
        "a b c d<bc e<ad",
        2,
        "● a\n│ ● b\n┊ │\n  │\n● │ c\n├─╯\n● d\n├ a\n● e",
    ),
}


@pytest.mark.parametrize(("text", "lanes_max", "expected"), BOUND.values(), ids=BOUND)
def test_a_lane_too_many_cuts_one_and_names_what_is_continued_below(text: str, lanes_max: int, expected: str) -> None:
    """The order of the turns is the same as with all lanes."""
    assert drawn(text, lanes_max) == expected
    ids = [row.id for row in draw(nodes(text), lanes_max=lanes_max) if row.id]
    assert ids == [node.id for node in in_drawing_order(nodes(text))]


@pytest.mark.parametrize("lanes_max", [2, 3, 5, LANES_MAX])
@pytest.mark.parametrize("seed", range(60))
def test_a_drawing_tells_what_each_turn_continues(seed: int, lanes_max: int) -> None:
    """Each turn stands in it once, in as many lanes as there may be, and nothing that it continues is left out."""
    graph = at_random(seed, 60)
    rows = [*draw(graph, lanes_max=lanes_max)]
    assert read_back(rows) == by_id(graph)
    assert [row.id for row in rows if row.id] == [node.id for node in in_drawing_order(graph)]
    assert max(len(row.cells) for row in rows) <= lanes_max


@pytest.mark.parametrize("graph", [nested(2000), children(2000), merged(2000), at_random(1, 2000)])
def test_a_drawing_is_as_long_as_there_are_turns(graph: list[Node]) -> None:
    """Whatever grows from what: a few rows for each turn and what it continues, and no row wider than 12 lanes."""
    rows = [*draw(graph)]
    assert read_back(rows) == by_id(graph)
    assert len(rows) <= 3 * len(graph) + 2 * sum(len(node.parents) for node in graph)
    assert max(len(str(row)) for row in rows) < 2 * LANES_MAX


@pytest.mark.parametrize("seed", range(60))
def test_what_fits_is_drawn_as_with_all_lanes(seed: int) -> None:
    """No lane is cut that need not be."""
    graph = at_random(seed, 25)
    rows = [*draw(graph, lanes_max=1000)]
    width = max(len(row.cells) for row in rows)
    assert [*draw(graph, lanes_max=max(width, 2))] == rows
    assert not any(row.continues for row in rows)


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Give a log with a fork in each of the branches of a fork, 20 deep."""
    command = Command(store=tmp_path_factory.mktemp("forked") / "log.db")
    with clocked_log(command.url) as log, log.group() as group:
        for node in nested(20):
            parents = [turn_id(parent) for parent in node.parents]
            group.add_turn(f"This is {node.id}", continues=parents or None, bookmark=False, id=turn_id(node.id))
    return command


def test_log_names_what_a_turn_continues_where_its_lane_was_cut(forked: Command) -> None:
    """By the id that its own row has; turns stand in the order that they have with all lanes, each once."""
    lines = forked.ok("log").text.splitlines()
    graph = nested(20)
    said = [found[1] for line in lines if (found := re.search("● .*This is (.+)", line))]
    assert said == [node.id for node in in_drawing_order(graph)]
    expected = [(row.continues, str(row)) for row in draw(graph) if row.continues]
    assert len(expected) == 8
    assert [line for line in lines if "continues" in line] == [
        f"{lanes.ljust(len(lanes) + 1)}continues {turn_id(turn)}" for turn, lanes in expected
    ]


def test_log_of_many_forks_fits_a_terminal(forked: Command) -> None:
    """Ids are as short as in the rows of the turns, and what a turn says is readable beside all lanes."""
    shown = forked.on_terminal("stdout", "log", COLUMNS="80", TERM="dumb", NO_COLOR="1").stdout.decode()
    lines = shown.replace("\r\n", "\n").splitlines()
    ids = {found[1] for line in lines if (found := re.search("● .*?([0-9a-z]{8,})  user", line))}
    named = {line.rpartition("continues ")[2] for line in lines if "continues" in line}
    assert len(ids) == 40
    assert named < ids
    assert max(map(len, lines)) <= 80
    assert sum("This is" in line for line in lines) == 40


def test_log_limit_draws_the_latest_of_many_forks(forked: Command) -> None:
    """With a lane for each, and no more."""
    lines = forked.ok("log", "-n", "3").text.splitlines()
    assert lines == [
        "… 37 earlier turns",
        "┊",
        f"● {turn_id('s2')}  user       {STAMP}  This is s2",
        "",
        "┊",
        f"● {turn_id('s1')}  user       {STAMP}  This is s1",
        "",
        "┊",
        f"● {turn_id('s0')}  user       {STAMP}  This is s0",
    ]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Give the command with a log of threads of which some have forks and merges, and some are lines."""
    command = Command(store=tmp_path_factory.mktemp("large") / "log.db")
    graph = [*at_random(1, 900), *nested(1001)]
    graph += [Node(id=f"l{n}", parents=(f"l{n - 1}",) if n % 100 else ()) for n in range(300)]
    with clocked_log(command.url) as log, log.group() as group:
        for node in graph:
            parents = [turn_id(parent) for parent in node.parents]
            group.add_turn(node.id, continues=parents or None, bookmark=False, id=turn_id(node.id))
    return command


@pytest.mark.parametrize("arguments", [("--all",), ("m0",)])
def test_what_is_too_large_to_be_held_is_drawn_as_what_is_not(large: Command, arguments: tuple[str, ...]) -> None:
    """However many of the threads it is."""
    given = [each if each == "--all" else turn_id(each) for each in arguments]
    drawn_in_lines = large.ok("log", *given).text
    assert drawn_in_lines == large.ok("log", *given, "--since", "2000-01-01").text
    assert drawn_in_lines.count("●") > 2000
    records = large.ok("log", *given, "--json").json_lines
    assert records == large.ok("log", *given, "--since", "2000-01-01", "--json").json_lines
    assert len(records) == drawn_in_lines.count("●")


@pytest.mark.parametrize("fork", [0, 1000])
def test_a_turn_that_is_missing_from_a_long_line_is_said(turnlog: Command, fork: int) -> None:
    """Whether a line begins or ends with it."""
    line = [turn_id(f"g{n}") for n in range(2_100)]
    with clocked_log(turnlog.url) as log, log.group() as group:
        for number, turn in enumerate(line):
            group.add_turn("x", continues=line[number - 1] if number else None, bookmark=False, id=turn)
        group.add_turn("y", continues=line[fork], bookmark="fork")
        group.add_turn("z", continues=line[-1], bookmark=False)
    for position in {fork, fork + 1} - {0}:
        run_sql(
            turnlog.store, f"DELETE FROM stored_events WHERE originator_version = {position} AND topic = 'gpt.turn'"
        )
        for arguments in (("--all",), ("fork",)):
            said = turnlog.refused("log", *arguments)
            assert f"has a gap before its position {position}: run `turnlog verify`" in said


def test_a_deep_thread_is_drawn_without_recursion() -> None:
    """10,000 turns in a line are 10,000 rows."""
    deep = [Node(id=str(n), parents=(str(n - 1),) if n else ()) for n in range(10_000)]
    assert [str(row) for row in draw(deep)] == ["●"] * 10_000
