"""What the heads of Claude Code's sessions hold: every result and every call that the file has for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog import TurnLog
from turnlog.model import Usage

Row = dict[str, Any]


@pytest.fixture
def log() -> Iterator[TurnLog]:
    with TurnLog.open("memory://") as opened:
        yield opened


def user(uuid: str, parent: str | None, *content: Row | str, **fields: Any) -> Row:
    """Return a user row."""
    said = {"role": "user", "content": [_block(part) for part in content]}
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "sessionId": "s", "message": said, **fields}


def says(uuid: str, parent: str | None, id_: str | None, *content: Row | str, **fields: Any) -> Row:
    """Return a row of an assistant message, of the id `id_`."""
    said = {"role": "assistant", "model": "claude-x", "content": [_block(part) for part in content]}
    message = said if id_ is None else {"id": id_, **said}
    return {"type": "assistant", "uuid": uuid, "parentUuid": parent, "sessionId": "s", "message": message, **fields}


def call(id_: str, prompt: str | None = None) -> Row:
    """Return a call, with a prompt one that starts a sub-agent."""
    named: Row = {"name": "Grep", "input": {}} if prompt is None else {"name": "Task", "input": {"prompt": prompt}}
    return {"type": "tool_use", "id": id_, **named}


def result(id_: str, content: str = "found") -> Row:
    """Return what answers a call."""
    return {"type": "tool_result", "tool_use_id": id_, "content": content}


def _block(part: Row | str) -> Row:
    return {"type": "text", "text": part} if isinstance(part, str) else part


def imported(log: TurnLog, folder: Path, *rows: Row, name: str = "s.jsonl") -> list[list[str]]:
    """Import rows as a file; return the windows of its heads."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    report = log.import_claude_code(path)
    again = log.import_claude_code(path)
    assert (again.turns_added, again.events_added) == (0, 0)
    return [seen(log, head) for head in report.heads]


def seen(log: TurnLog, turn_id: str) -> list[str]:
    """Return a window, block by block: text as it is, calls as `+id`, results as `=id`."""
    blocks = [block for message in log.context(turn_id).messages for block in json.loads(message.content_json)]
    return [_short(block) for block in blocks]


def _short(block: Row) -> str:
    match block["type"]:
        case "tool_use":
            return f"+{block['id']}"
        case "tool_result":
            return f"={block['tool_use_id']}"
        case _:
            return block["text"]


def test_call_that_follows_the_result_of_its_message_is_in_the_head_of_a_grown_file(
    tmp_path: Path, log: TurnLog
) -> None:
    """A recorded turn does not change, so the further call stands behind the result that was there before it."""
    begun = [user("u1", None, "q"), says("a1", "u1", "m", call("A")), user("r1", "a1", result("A"))]
    rest = [says("a2", "r1", "m", call("B")), user("r2", "a2", result("B")), user("e", "r2", "rest")]
    assert imported(log, tmp_path, *begun) == [["q", "+A", "=A"]]
    assert imported(log, tmp_path, *begun, *rest) == [["q", "+A", "=A", "+B", "=B", "rest"]]


@pytest.mark.parametrize("hangs_on", ["u1", "a2", "r1", "n"])
def test_late_result_is_in_the_window_that_went_on_without_it(tmp_path: Path, log: TurnLog, hangs_on: str) -> None:
    """The row of a result may stand below the row of the message that rests on it."""
    rows = [
        user("u1", None, "q"),
        says("a1", "u1", "m", call("A")),
        says("a2", "a1", "m", call("B")),
        user("r1", "a1", result("A")),
        says("n", "r1", "n", "Done."),
        user("r2", hangs_on, result("B")),
    ]
    assert imported(log, tmp_path, *rows) == [["q", "+A", "+B", "=A", "=B", "Done."]]


@pytest.mark.parametrize("goes_on_from", ["r1", "r2"])
def test_results_of_parallel_calls_without_message_ids_are_one_line(
    tmp_path: Path, log: TurnLog, goes_on_from: str
) -> None:
    """Rows that hang on each other with nothing between them are one message, whatever it is called."""
    rows = [
        user("u1", None, "q"),
        says("a1", "u1", None, call("A")),
        says("a2", "a1", None, call("B")),
        user("r1", "a1", result("A")),
        user("r2", "a2", result("B")),
        user("e", goes_on_from, "rest"),
    ]
    assert imported(log, tmp_path, *rows) == [["q", "+A", "+B", "=A", "=B", "rest"]]


def test_result_above_its_call_follows_it(tmp_path: Path, log: TurnLog) -> None:
    """Calls are known whatever line they stand on."""
    rows = [
        user("u1", None, "q"),
        says("a1", "u1", "m", call("A")),
        user("r2", "a2", result("B")),
        says("a2", "a1", "m", call("B")),
        user("r1", "a1", result("A")),
        user("e", "r1", "rest"),
    ]
    assert [sorted(window) for window in imported(log, tmp_path, *rows)] == [
        sorted(["q", "+A", "+B", "=A", "=B", "rest"])
    ]


def test_result_belongs_to_the_call_that_it_hangs_on(tmp_path: Path, log: TurnLog) -> None:
    """Ids of calls may come twice; the result is of the nearest one up its chain."""
    rows = [
        user("u1", None, "q"),
        says("a1", "u1", "m", call("A")),
        user("u2", None, "other"),
        says("a2", "u2", "n", call("A")),
        user("r1", "a1", result("A")),
        user("r2", "a2", result("A")),
    ]
    assert imported(log, tmp_path, *rows) == [["q", "+A", "=A"], ["other", "+A", "=A"]]


@pytest.mark.parametrize("hangs_on", ["a1", "r2"])
def test_result_that_comes_twice_leaves_out_no_other(tmp_path: Path, log: TurnLog, hangs_on: str) -> None:
    """What goes on from the second one has the results of the other calls too."""
    rows = [
        user("u1", None, "q"),
        says("a1", "u1", "m", call("A"), call("B")),
        user("r1", "a1", result("A")),
        user("r2", "a1", result("B")),
        user("r3", hangs_on, result("A")),
        says("n", "r3", "n", "Done."),
    ]
    assert imported(log, tmp_path, *rows) == [["q", "+A", "+B", "=A", "=B", "=A", "Done."]]


def test_calls_that_are_all_answered_again_make_a_branch(tmp_path: Path, log: TurnLog) -> None:
    """As where somebody went back before the results: each branch has an answer to each call."""
    rows = [
        user("u1", None, "q"),
        says("a1", "u1", "m", call("A"), call("B")),
        user("r1", "a1", result("A")),
        user("r2", "a1", result("B")),
        says("n", "r2", "n", "Once."),
        user("r3", "a1", result("A")),
        user("r4", "a1", result("B")),
        says("o", "r3", "o", "Twice."),
    ]
    assert imported(log, tmp_path, *rows) == [
        ["q", "+A", "+B", "=A", "=B", "Once."],
        ["q", "+A", "+B", "=A", "=B", "Twice."],
    ]


def test_copied_history_has_its_own_results(tmp_path: Path, log: TurnLog) -> None:
    """A session that is resumed in its file repeats rows under new uuids, with the ids of messages and calls."""
    rows = [
        row
        for copy in ("x", "y")
        for row in (
            user(f"u{copy}", None, "q"),
            says(f"a{copy}", f"u{copy}", "m", call("A")),
            says(f"b{copy}", f"a{copy}", "m", call("B")),
            user(f"r{copy}", f"a{copy}", result("A")),
            user(f"s{copy}", f"b{copy}", result("B")),
            says(f"n{copy}", f"r{copy}", "n", f"Done {copy}."),
        )
    ]
    whole = ["q", "+A", "+B", "=A", "=B"]
    assert imported(log, tmp_path, *rows) == [[*whole, "Done x."], [*whole, "Done y."]]


def test_result_row_for_calls_of_two_messages_stands_behind_the_last(tmp_path: Path, log: TurnLog) -> None:
    """The window of what follows has both calls and both results."""
    rows = [
        user("u1", None, "q"),
        says("a1", "u1", "m", call("A")),
        says("a2", "a1", "n", call("B")),
        user("r", "a1", result("A"), result("B")),
        user("e", "r", "rest"),
    ]
    assert imported(log, tmp_path, *rows) == [["q", "+A", "+B", "=A", "=B", "rest"]]


def test_message_row_that_is_repeated_with_more_calls_leaves_no_call_open(tmp_path: Path, log: TurnLog) -> None:
    """The longer row is a later state of the message, beside or behind the shorter one."""
    rows = [
        user("u1", None, "q"),
        says("a1", "u1", "m", call("A")),
        says("a2", "a1", "m", call("A"), call("B")),
        user("r1", "a1", result("A")),
        user("r2", "a2", result("B")),
        user("e", "r1", "rest"),
    ]
    assert imported(log, tmp_path, *rows) == [["q", "+A", "+A", "+B", "=A", "=B", "rest"]]


SIDE = {"isSidechain": True}


def test_sub_agent_above_its_call_and_with_more_text_continues_the_call(tmp_path: Path, log: TurnLog) -> None:
    """A hook may add a part to the prompt, and rows may be written in another order."""
    rows = [
        user("u1", None, "q"),
        user("s1", None, "Look there.", "A hook says so.", **SIDE),
        says("s2", "s1", "n", "It is there.", **SIDE),
        says("a1", "u1", "m", call("A", "Look there.")),
        user("r1", "a1", result("A")),
    ]
    side = ["q", "+A", "Look there.", "A hook says so.", "It is there."]
    assert sorted(imported(log, tmp_path, *rows)) == sorted([side, ["q", "+A", "=A"]])


@pytest.mark.parametrize("is_meta", [False, True])
def test_file_of_a_nested_sub_agent_continues_the_call_in_the_file_of_the_other(
    tmp_path: Path, log: TurnLog, is_meta: bool
) -> None:
    """Its first row may be what the tool says by itself, before the prompt."""
    imported(log, tmp_path, user("u1", None, "q"), says("a1", "u1", "m", call("A", "Look.")))
    outer = [user("o1", None, "Look.", **SIDE), says("o2", "o1", "n", call("B", "Look closer."), **SIDE)]
    imported(log, tmp_path, *outer, name="s/agent-1.jsonl")
    before = [user("i0", None, "Caveat.", isMeta=True, **SIDE)] if is_meta else []
    inner = [*before, user("i1", "i0" if is_meta else None, "Look closer.", **SIDE)]
    caveat = ["Caveat."] if is_meta else []
    assert imported(log, tmp_path, *inner, name="s/agent-2.jsonl") == [
        ["q", "+A", "Look.", "+B", *caveat, "Look closer."]
    ]


def test_file_of_a_sub_agent_continues_the_call_beside_it_and_no_copy(tmp_path: Path, log: TurnLog) -> None:
    """Another file that was imported since may have a row of the same uuid, which says something else."""
    for said, name in (("here", "s.jsonl"), ("elsewhere", "copy/s.jsonl")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        imported(log, tmp_path, user("u", None, "q"), says("a", "u", "m", said, call("A", "Look.")), name=name)
    agent = user("s", None, "Look.", isSidechain=True, agentId="1")
    assert imported(log, tmp_path, agent, name="agent-1.jsonl") == [["q", "here", "+A", "Look."]]


def test_sub_agent_that_comes_before_its_session_is_a_thread_of_its_own_and_reported(
    tmp_path: Path, log: TurnLog
) -> None:
    """Turns do not change: the session that comes later cannot take it in."""
    session = tmp_path / "s.jsonl"
    session.write_bytes(json.dumps(says("a1", None, "m", call("A", "Look."))).encode() + b"\n")
    agent = tmp_path / "agent-1.jsonl"
    agent.write_bytes(json.dumps(user("o1", None, "Look.", **SIDE)).encode() + b"\n")
    report = log.import_claude_code(agent)
    assert [problem.what for problem in report.problems] == [
        "parentUuid 'a1' is neither in the file nor in the log: its turn starts a thread"
    ]
    log.import_claude_code(session)
    again = log.import_claude_code(agent)
    assert (again.turns_added, again.roots) == (0, report.roots)


def test_prompt_of_a_sub_agent_may_stand_behind_what_the_tool_says_by_itself(tmp_path: Path, log: TurnLog) -> None:
    """In the file of its session as in one of its own."""
    rows = [
        user("u1", None, "q"),
        says("a1", "u1", "m", call("A", "Look.")),
        user("s0", None, "Caveat.", isMeta=True, **SIDE),
        {"type": "attachment", "uuid": "x", "parentUuid": "s0", "sessionId": "s", **SIDE},
        user("s1", "x", "Look.", **SIDE),
        says("s2", "s1", "n", "There.", **SIDE),
        user("r1", "a1", result("A")),
    ]
    side = ["q", "+A", "Caveat.", "Look.", "There."]
    assert sorted(imported(log, tmp_path, *rows)) == sorted([side, ["q", "+A", "=A"]])


def asked_twice() -> tuple[list[Row], list[list[Row]], list[list[str]]]:
    """Return a session that gives one prompt twice, the rows of its two sub-agents, and its windows."""
    rows = [says("a1", None, "m", call("A", "Look."))]
    rows += [user("r1", "a1", result("A"), toolUseResult={"agentId": "one", "prompt": "Look."})]
    rows += [user("u1", "r1", "Again."), says("a2", "u1", "n", call("B", "Look."))]
    rows += [user("r2", "a2", result("B"), toolUseResult={"agentId": "two", "prompt": "Look."})]
    agents = [
        [user(f"{id_}1", None, "Look.", agentId=id_, **SIDE), says(f"{id_}2", f"{id_}1", id_, id_, agentId=id_, **SIDE)]
        for id_ in ("one", "two")
    ]
    return rows, agents, [["+A", "Look.", "one"], ["+A", "=A", "Again.", "+B", "Look.", "two"]]


def test_sub_agents_with_one_prompt_continue_each_its_call(log: TurnLog, tmp_path: Path) -> None:
    """The result of the call names the sub-agent."""
    rows, [one, two], windows = asked_twice()
    found = imported(log, tmp_path, rows[0], *one, *rows[1:4], *two, rows[4])
    assert sorted(found) == sorted([*windows, ["+A", "=A", "Again.", "+B", "=B"]])


@pytest.mark.parametrize("is_above", [False, True], ids=["below", "above"])
def test_sub_agents_with_one_prompt_that_no_result_names_continue_each_its_call(
    log: TurnLog, tmp_path: Path, is_above: bool
) -> None:
    """As in files of older versions: it is the last call before it that has none yet, else the next one."""
    call_a, call_b = says("a1", "u1", "m", call("A", "Look.")), says("a2", "u2", "o", call("B", "Look."))
    one = [user("s1", None, "Look.", **SIDE), says("s2", "s1", "n", "one", **SIDE)]
    two = [user("t1", None, "Look.", **SIDE), says("t2", "t1", "p", "two", **SIDE)]
    begun = [*one, call_a] if is_above else [call_a, *one]
    rest = [user("r1", "a1", result("A")), user("u2", "r1", "Again."), call_b, *two, user("r2", "a2", result("B"))]
    again = ["q", "+A", "=A", "Again.", "+B"]
    windows = [["q", "+A", "Look.", "one"], [*again, "Look.", "two"], [*again, "=B"]]
    assert sorted(imported(log, tmp_path, user("u1", None, "q"), *begun, *rest)) == sorted(windows)


def test_sub_agents_with_one_prompt_at_the_same_time_continue_each_a_call(log: TurnLog, tmp_path: Path) -> None:
    """Nothing says which is whose."""
    rows = [says("a1", None, "m", call("A", "Look.")), says("a2", "a1", "n", call("B", "Look."))]
    rows += [user(name, None, "Look.", **SIDE) for name in ("s1", "t1", "v1")]
    rows += [says(f"{name}2", f"{name}1", name, name, **SIDE) for name in ("s", "t", "v")]
    found = imported(log, tmp_path, *rows)
    assert {window[-1]: window[-3] for window in found if "Look." in window} == {"s": "+B", "t": "+A", "v": "+A"}


@pytest.mark.parametrize("ends", [5, 4], ids=["answered", "at work"])
@pytest.mark.parametrize("has_id", [True, False])
def test_files_of_sub_agents_with_one_prompt_continue_each_its_call(
    log: TurnLog, tmp_path: Path, ends: int, has_id: bool
) -> None:
    """The name of the file has the id of the sub-agent too; one that is not named yet is that of the other call."""
    rows, agents, windows = asked_twice()
    imported(log, tmp_path, *rows[:ends])
    for id_, agent, window in zip(("one", "two"), agents, windows, strict=True):
        own = agent if has_id else [{name: row[name] for name in row if name != "agentId"} for row in agent]
        assert imported(log, tmp_path, *own, name=f"s/subagents/agent-{id_}.jsonl") == [window]


def test_sub_agent_whose_prompt_nobody_gave_is_a_thread_of_its_own(tmp_path: Path, log: TurnLog) -> None:
    """What a model said ends the search: a later row with the words of a prompt began nothing."""
    rows = [
        says("a1", None, "m", call("A", "Look.")),
        user("s1", None, "Do something.", **SIDE),
        says("s2", "s1", "n", "Done.", **SIDE),
        user("s3", "s2", "Look.", **SIDE),
    ]
    assert imported(log, tmp_path, *rows) == [["+A"], ["Do something.", "Done.", "Look."]]


def test_result_that_comes_after_its_thread_went_on_is_reported(tmp_path: Path, log: TurnLog) -> None:
    """Turns do not change: whoever imports again has to know what the head does not have."""
    begun = [
        user("u1", None, "q"),
        says("a1", "u1", "m", call("A"), call("B")),
        user("r1", "a1", result("A")),
        says("n", "r1", "n", "Done."),
    ]
    whole = ["q", "+A", "+B", "=A"]
    assert imported(log, tmp_path, *begun) == [[*whole, "Done."]]
    rows = [*begun, user("r2", "a1", result("B"))]
    assert imported(log, tmp_path, *rows) == [[*whole, "Done."], [*whole, "=B"]]
    report = log.import_claude_code(tmp_path / "s.jsonl")
    assert [(problem.place, problem.what) for problem in report.problems] == [
        (5, "the result of call 'B' stands on a branch of its own: 1 head goes on from the call without it")
    ]


@st.composite
def rounds(draw: st.DrawFn, late: bool) -> list[Row]:
    """Draw a session: questions, and messages whose calls are answered in any order, on any row that may be meant.

    Results stand below their calls, and above what rests on them; with `late`, those that no row names as its parent
    stand anywhere below their calls.
    """
    rows: list[Row] = [user("u0", None, "q")]
    last = "u0"
    for number in range(draw(st.integers(1, 3))):
        names = [f"{number}{letter}" for letter in "ABCD"[: draw(st.integers(1, 4))]]
        open_: list[tuple[str, str]] = []  # calls without a result, and the rows that make them
        ends: list[str] = []
        above = last
        while names or open_:
            if names and (not open_ or draw(st.booleans())):
                count = draw(st.integers(1, len(names)))
                own, names = names[:count], names[count:]
                rows.append(says(uuid := f"a{own[0]}", above, f"m{number}", *map(call, own)))
                open_ += [(name, uuid) for name in own]
                above = uuid
            else:
                name, uuid = open_.pop(draw(st.integers(0, len(open_) - 1)))
                on = draw(st.sampled_from([uuid, above, *ends[-1:]]))
                rows.append(user(f"r{name}", on, result(name)))
                ends.append(f"r{name}")
                above = draw(st.sampled_from([above, f"r{name}"]))
        last = f"n{number}"
        rows.append(says(last, draw(st.sampled_from(ends)), last, f"so {number}"))
    if late:
        named = {row["parentUuid"] for row in rows}
        for row in [row for row in rows if row["uuid"][0] == "r" and row["uuid"] not in named and draw(st.booleans())]:
            rows.remove(row)
            rows.insert(draw(st.integers(rows_above(rows, row), len(rows))), row)
    return rows


def rows_above(rows: list[Row], row: Row) -> int:
    """Return the first place below the row of the call that a result answers."""
    name = row["message"]["content"][0]["tool_use_id"]
    calls = [
        index
        for index, each in enumerate(rows)
        if {"type": "tool_use", "id": name, "name": "Grep", "input": {}} in each["message"]["content"]
    ]
    return calls[0] + 1


def whole_window(rows: list[Row]) -> list[str]:
    return sorted(_short(block) for row in rows for block in row["message"]["content"])


@given(rows=rounds(late=True))
def test_head_of_any_session_has_all_calls_and_results(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row]
) -> None:
    """Whatever rows name as their parents, and wherever results stand."""
    with TurnLog.open("memory://") as log:
        windows = imported(log, tmp_path_factory.mktemp("session"), *rows)
        assert [sorted(window) for window in windows] == [whole_window(rows)]


@given(rows=rounds(late=False), cuts=st.lists(st.integers(1, 30), max_size=4).map(sorted))
def test_head_of_a_growing_session_has_all_calls_and_results(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], cuts: list[int]
) -> None:
    """Wherever the file ended when it was imported before."""
    folder = tmp_path_factory.mktemp("session")
    with TurnLog.open("memory://") as log:
        for cut in cuts:
            imported(log, folder, *rows[:cut])
        windows = imported(log, folder, *rows)
        assert [sorted(window) for window in windows] == [whole_window(rows)]
        assert log.import_claude_code(folder / "s.jsonl").problems == ()


@given(rows=rounds(late=True), cuts=st.lists(st.integers(1, 30), max_size=4).map(sorted))
def test_result_that_a_head_lacks_is_reported(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], cuts: list[int]
) -> None:
    """Where results come after what rests on them, and the file was imported in between."""
    folder = tmp_path_factory.mktemp("session")
    with TurnLog.open("memory://") as log:
        for cut in cuts:
            imported(log, folder, *rows[:cut])
        windows = imported(log, folder, *rows)
        problems = log.import_claude_code(folder / "s.jsonl").problems
        told = {problem.what.split("'")[1] for problem in problems if problem.what.startswith("the result of call")}
        assert len(told) == len(problems)
        results = {
            block["tool_use_id"] for row in rows for block in row["message"]["content"] if "tool_use_id" in block
        }
        lacking = {name for window in windows for name in results if f"+{name}" in window and f"={name}" not in window}
        assert lacking == told


@pytest.mark.parametrize("files", [["s.jsonl"] * 2, ["s.jsonl", "copy.jsonl"]])
def test_usage_of_a_copied_message_counts_once(tmp_path: Path, log: TurnLog, files: list[str]) -> None:
    """A copy under new uuids is turns of its own, in the same file or another; one that says more has the rest."""
    copies = [
        [
            user(f"u{copy}", None, "q"),
            says(f"a{copy}", f"u{copy}", "m", "a"),
            says(f"b{copy}", f"a{copy}", "m", f"b{copy}"),
        ]
        for copy in ("x", "y")
    ]
    for output, row in zip((1, 20, 1, 50), (row for copy in copies for row in copy[1:]), strict=True):
        row["message"] |= {"usage": {"input_tokens": 500, "output_tokens": output}, "stop_reason": "end_turn"}
        row |= {"requestId": "r", "timestamp": "2026-02-10T15:41:50.049Z"}
    reports = []
    for number, name in enumerate(files, 1):
        rows = [row for copy in copies[:number] for row in copy] if len({*files}) == 1 else copies[number - 1]
        path = tmp_path / name
        path.write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
        reports.append(log.import_claude_code(path))
    total = log.feeds.total_usage()
    assert (total.replies, total.usage) == (2, Usage(input_tokens=500, output_tokens=50))
    copied = "1 reply is a copy of one that was counted, by their ids: without the usage that was copied with it"
    assert [[problem.what for problem in report.problems] for report in reports] == [[], [copied]]
    assert log.import_claude_code(path).turns_added == 0


@pytest.mark.parametrize(
    "order", ["o, c:2, c", "o:2, c, o", "o:2, c:2, c, o", "o:2, c:2, o, c", "c, o:2, o", "c:2, o, c"]
)
def test_usage_of_a_copy_that_was_cut_within_a_message_counts_once(tmp_path: Path, log: TurnLog, order: str) -> None:
    """In whatever order the files come, each cut behind two rows or whole: the rows of the message differ in time."""
    for step in order.split(", "):
        name, _, count = step.partition(":")
        rows = [
            user(f"u{name}", None, "q"),
            says(f"a{name}", f"u{name}", "m", "a"),
            says(f"b{name}", f"a{name}", "m", "b"),
        ]
        for second, (row, output) in enumerate(zip(rows[1:], (1, 10), strict=True)):
            row["message"] |= {"usage": {"input_tokens": 100, "output_tokens": output}, "stop_reason": "end_turn"}
            row |= {"requestId": "r", "timestamp": f"2026-02-10T15:41:5{second}.049Z"}
        imported(log, tmp_path, *rows[: int(count or 3)], name=f"{name}.jsonl")
    assert log.feeds.total_usage().usage == Usage(input_tokens=100, output_tokens=10)


def test_usage_of_messages_that_happen_to_have_one_id_is_counted(tmp_path: Path, log: TurnLog) -> None:
    """Of other requests."""
    took = {"usage": {"input_tokens": 5, "output_tokens": 1}, "stop_reason": "end_turn"}
    rows = [user("u", None, "q")]
    for name in ("a", "b"):
        rows.append({**says(name, "u", "m", name), "requestId": name})
        rows[-1]["message"] |= took
    imported(log, tmp_path, *rows)
    assert log.feeds.total_usage().usage == Usage(input_tokens=10, output_tokens=2)
