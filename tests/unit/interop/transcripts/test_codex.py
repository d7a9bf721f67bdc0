"""Rollout files of Codex CLI."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.unit.interop.transcripts.promises import (
    Said,
    blocks_of,
    canonical,
    check_erasing,
    check_growing,
    check_importing,
    take,
)

from turnlog import TurnLog
from turnlog.errors import FormatError
from turnlog.interop.transcripts import Problem, TranscriptReport
from turnlog.model import ToolUse, Usage, decode_content


def line(kind: str, payload: dict[str, Any], second: int = 0) -> dict[str, Any]:
    """Return a line of a rollout file."""
    return {"timestamp": f"2026-02-10T17:24:{second:02}.000Z", "type": kind, "payload": payload}


def item(second: int, **fields: Any) -> dict[str, Any]:
    """Return a line with an item of the Responses API."""
    return line("response_item", fields, second)


SESSION: list[dict[str, Any]] = [
    line("session_meta", {"id": "s-1", "model_provider": "openai", "base_instructions": {"text": "Be brief."}}),
    item(1, type="message", role="developer", content=[{"type": "input_text", "text": "The sandbox is read-only."}]),
    item(1, type="message", role="user", content=[{"type": "input_text", "text": "How many files?"}]),
    line("event_msg", {"type": "user_message", "message": "How many files?"}, 1),
    line("turn_context", {"model": "example-model-1", "cwd": "/w"}, 2),
    item(3, type="reasoning", summary=[{"type": "summary_text", "text": "I count."}], encrypted_content="e1=="),
    line("event_msg", {"type": "agent_reasoning", "text": "I count."}, 3),
    item(3, type="function_call", name="ls", arguments='{"path": "a"}', call_id="c1"),
    item(3, type="function_call", name="ls", arguments='{"path":"b"}', call_id="c2"),
    item(4, type="function_call_output", call_id="c1", output="x y"),
    item(4, type="function_call_output", call_id="c2", output="z"),
    item(5, type="custom_tool_call", name="apply_patch", input="*** Begin", call_id="c3", status="completed"),
    item(6, type="custom_tool_call_output", call_id="c3", output='{"output":"done"}'),
    item(7, type="message", role="assistant", content=[{"type": "output_text", "text": "Three files."}]),
    line("event_msg", {"type": "agent_message", "message": "Three files."}, 7),
    line(
        "event_msg",
        {
            "type": "token_count",
            "info": {
                "last_token_usage": {
                    "input_tokens": 100,
                    "cached_input_tokens": 60,
                    "output_tokens": 20,
                    "reasoning_output_tokens": 5,
                }
            },
        },
        8,
    ),
]


def written(lines: list[dict[str, Any]]) -> bytes:
    """Return lines as the file has them."""
    return b"".join(json.dumps(each).encode() + b"\n" for each in lines)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give a rollout file."""
    path = tmp_path / "rollout-1.jsonl"
    path.write_bytes(written(SESSION))
    return path


def test_session_becomes_a_thread(path: Path) -> None:
    """What a model says until something answers is one turn, and answers of parallel calls are one."""
    with TurnLog.open("memory://") as log:
        report = take(log, "codex", path)
        [head] = report.heads
        window = log.context(head)
        assert [(message.role, len(message.content)) for message in window.messages] == [
            ("system", 1),
            ("system", 1),
            ("user", 1),
            ("assistant", 3),
            ("user", 2),
            ("assistant", 1),
            ("user", 1),
            ("assistant", 1),
        ]
        meta = log.turn(head).meta
        assert (meta.model, meta.provider, meta.api) == ("example-model-1", "openai", "responses")
        assert meta.usage == Usage(input_tokens=40, cache_read_input_tokens=60, output_tokens=15, reasoning_tokens=5)
    assert report.sessions == ("s-1",)
    assert (report.places, report.damaged, report.problems) == (len(SESSION), 0, ())


def test_importing_again_adds_nothing(path: Path) -> None:
    """And what was said is there once."""
    _, found = check_importing("codex", path)
    assert found["text", "How many files?"] == 1
    assert found["thinking", "I count."] == 1
    assert found["call", "ls", '{"path":"a"}'] == 1
    assert found["call", "apply_patch", '{"input":"*** Begin"}'] == 1
    assert found["result", "z"] == 1


def test_file_that_grows_is_imported_as_it_grows(path: Path) -> None:
    """Whatever line it ends at."""
    check_growing("codex", [written(SESSION[:end]) for end in range(1, len(SESSION) + 1)], path)


def test_turn_that_goes_on_is_continued(path: Path) -> None:
    """A recorded turn does not change: the second of two parallel calls comes in a turn that continues the first."""
    with TurnLog.open("memory://") as log:
        path.write_bytes(written(SESSION[:8]))
        first = take(log, "codex", path)
        path.write_bytes(written(SESSION))
        report = take(log, "codex", path)
        [rest] = report.continued
        assert log.turn(rest).continues == first.heads


def test_damaged_lines_are_reported_and_the_rest_goes_in(path: Path) -> None:
    """With their numbers."""
    path.write_bytes(b"{broken\n\n" + written(SESSION) + b'[1]\n{"type":"response_item","payload":{"type":"new"}}')
    report, _ = check_importing("codex", path)
    assert (report.places, report.blank, report.damaged) == (len(SESSION) + 4, 1, 2)
    assert [problem.place for problem in report.problems] == [1, len(SESSION) + 3, len(SESSION) + 4]
    assert report.problems[1] == Problem(place=len(SESSION) + 3, what="not a JSON object; it was left out")
    assert "unknown type 'new'" in report.problems[2].what


def test_what_cannot_be_a_block_is_kept_as_a_native_one(path: Path) -> None:
    """And told: what is recorded can be read."""
    path.write_bytes(written([*SESSION[:3], item(4, type="function_call_output", call_id={"a": 1}, output="x")]))
    report, found = check_importing("codex", path)
    assert [problem.what for problem in report.problems] == [
        "content[0].tool_use_id: expected 'str', got 'object': kept as a native block"
    ]
    assert found["native", '{"content":"x","tool_use_id":{"a":1},"type":"tool_result"}'] == 1


def test_other_file_is_refused(tmp_path: Path) -> None:
    """In one line."""
    other = tmp_path / "other.jsonl"
    other.write_text('{"a":1}\n')
    with (
        TurnLog.open("memory://") as log,
        pytest.raises(FormatError, match="no line of it is one; nothing was imported"),
    ):
        log.import_transcript("codex", other)


def test_lines_of_older_versions_are_items_alone(path: Path) -> None:
    """The first line is the session."""
    old = [{"id": "s-0", "timestamp": "2025-06-01T00:00:00Z", "instructions": "Be kind."}, {"record_type": "state"}]
    path.write_bytes(written([*old, *(each["payload"] for each in SESSION if each["type"] == "response_item")]))
    report, found = check_importing("codex", path)
    assert report.sessions == ("s-0",)
    assert found["text", "Be kind."] == 1
    assert found["text", "Three files."] == 1


def test_erased_thread_is_gone_from_its_lines_too(path: Path, tmp_path: Path) -> None:
    """Also from the lines that repeat it for the screen."""
    check_erasing("codex", path, "Three files", tmp_path)


def user(second: int, text: str) -> dict[str, Any]:
    """Return a line with a message of the user."""
    return item(second, type="message", role="user", content=[{"type": "input_text", "text": text}])


def reply(second: int, text: str) -> dict[str, Any]:
    """Return a line with a message of the model."""
    return item(second, type="message", role="assistant", content=[{"type": "output_text", "text": text}])


def tokens(second: int, given: int, said: int) -> dict[str, Any]:
    """Return a line with the tokens of the last call."""
    return line(
        "event_msg",
        {"type": "token_count", "info": {"last_token_usage": {"input_tokens": given, "output_tokens": said}}},
        second,
    )


def windows(log: TurnLog, report: TranscriptReport) -> list[list[str]]:
    """Return the texts of each head, from the beginning on."""
    return [[text for turn in log.ancestry(head) for _, text in blocks_of(log, turn.id)] for head in report.heads]


@pytest.mark.parametrize(("turns", "rest"), [(1, ["a", "b"]), (2, []), (9, []), (0, ["a", "b", "c", "d"])])
def test_rollback_takes_turns_of_the_user_back(path: Path, turns: int, rest: list[str]) -> None:
    """What follows goes on from what was before them, and they stay as a branch; what Codex wrote counts for none."""
    context = user(0, "<environment_context>here</environment_context>")
    lines = [SESSION[0], context, user(1, "a"), reply(2, "b"), user(3, "c"), reply(4, "d")]
    aborted = user(5, "<turn_aborted>stopped</turn_aborted>")
    back = line("event_msg", {"type": "thread_rolled_back", "num_turns": turns}, 6)
    path.write_bytes(written([*lines, aborted, back, user(7, "e"), reply(8, "f")]))
    check_importing("codex", path)
    with TurnLog.open("memory://") as log:
        found = windows(log, take(log, "codex", path))
    start = ["Be brief.", "<environment_context>here</environment_context>"]
    before = [*start, "a", "b", "c", "d", "<turn_aborted>stopped</turn_aborted>"]
    assert found == ([before, [*start, *rest, "e", "f"]] if turns else [[*before, "e", "f"]])


def test_file_with_a_rollback_is_imported_as_it_grows(path: Path) -> None:
    """Whatever line it ends at."""
    back = line("event_msg", {"type": "thread_rolled_back", "num_turns": 1}, 9)
    lines = [*SESSION, back, user(10, "How many folders?"), reply(11, "None.")]
    check_growing("codex", [written(lines[:end]) for end in range(1, len(lines) + 1)], path)


def meta(second: int, id: str, **fields: Any) -> dict[str, Any]:
    """Return the line that a session begins with."""
    return line("session_meta", {"id": id, "base_instructions": {"text": "Be brief."}, **fields}, second)


def test_fork_is_a_session_of_its_own(path: Path) -> None:
    """With one system turn, and without the usage of the history that was copied into it, which is told."""
    copied = [meta(20, "s-1"), user(20, "a"), reply(20, "b"), tokens(20, 100, 10)]
    own = [user(30, "c"), reply(31, "d"), tokens(31, 120, 12)]
    path.write_bytes(written([meta(20, "s-2", forked_from_id="s-1"), *copied, *own]))
    report, _ = check_importing("codex", path)
    assert report.sessions == ("s-2",)
    assert [(problem.place, problem.what.partition(":")[0]) for problem in report.problems] == [
        (2, "the history of the session 's-1' is repeated from here on")
    ]
    with TurnLog.open("memory://") as log:
        assert windows(log, take(log, "codex", path)) == [["Be brief.", "a", "b", "c", "d"]]
        assert log.feeds.total_usage().usage == Usage(input_tokens=120, output_tokens=12)


@pytest.mark.parametrize("has_total", [True, False])
def test_usage_that_a_fork_tells_again_is_that_of_the_other_session(path: Path, has_total: bool) -> None:
    """Codex says what was counted last when the fork goes on, before its own first reply or in the middle of it."""

    def counted(second: int, given: int, total: int) -> dict[str, Any]:
        told = tokens(second, given, 1)
        told["payload"]["info"] |= {"total_token_usage": {"input_tokens": total}} if has_total else {}
        return told

    copied = [meta(20, "s-1"), user(20, "a"), reply(20, "b"), counted(20, 100, 100)]
    own = [user(30, "c"), counted(30, 100, 100), reply(31, "d"), counted(32, 120, 220)]
    if has_total:
        own.insert(3, counted(31, 100, 100))
    path.write_bytes(written([meta(20, "s-2", forked_from_id="s-1"), *copied, *own]))
    with TurnLog.open("memory://") as log:
        take(log, "codex", path)
        assert log.feeds.total_usage().usage == Usage(input_tokens=120, output_tokens=1)


def test_names_that_are_too_long_for_names_are_in_no_turn(path: Path) -> None:
    """Each turn has them, and so a file of some size would become a log of hundreds of times that."""
    name = "n" * 600
    lines = [meta(0, name, model_provider=name), line("turn_context", {"model": name}), user(1, "a"), reply(2, "b")]
    path.write_bytes(written(lines))
    report, _ = check_importing("codex", path)
    assert report.sessions == ()
    with TurnLog.open("memory://") as log:
        [head] = take(log, "codex", path).heads
        assert (log.turn(head).meta.model, log.turn(head).meta.provider) == (None, "openai")


def test_session_that_begins_again_is_the_same_one(path: Path) -> None:
    """Its usage counts, and nothing is told."""
    path.write_bytes(written([meta(0, "s-1"), user(1, "a"), meta(2, "s-1"), reply(2, "b"), tokens(2, 100, 10)]))
    report, _ = check_importing("codex", path)
    assert (report.sessions, report.problems) == (("s-1",), ())
    with TurnLog.open("memory://") as log:
        assert windows(log, take(log, "codex", path)) == [["Be brief.", "a", "b"]]
        assert log.feeds.total_usage().usage == Usage(input_tokens=100, output_tokens=10)


@pytest.mark.parametrize("message", ["", "In short: a, b."])
def test_history_that_was_replaced_is_told(path: Path, message: str) -> None:
    """Where no summary says what the model saw from there on; a summary is a turn."""
    kept = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]}
    history = [kept, {"type": "compaction", "encrypted_content": "e1=="}]
    compacted = line("compacted", {"message": message, "replacement_history": history}, 3)
    path.write_bytes(written([meta(0, "s-1"), user(1, "a"), reply(2, "b"), compacted, user(4, "c"), reply(5, "d")]))
    report, _ = check_importing("codex", path)
    what = (
        "the history was replaced, and nothing says what by but items that are no turns: kept as an event, "
        "what follows continues all that was said before"
    )
    assert report.problems == (() if message else (Problem(place=4, what=what),))
    with TurnLog.open("memory://") as log:
        said = ["Be brief.", "a", "b", *([message] if message else []), "c", "d"]
        assert windows(log, take(log, "codex", path)) == [said]


def test_calls_of_one_turn_count_together(path: Path) -> None:
    """What is told again of one does not; where it is not said what all took, one counts."""

    def both(second: int, given: int, said: int, total: int | None) -> dict[str, Any]:
        told = tokens(second, given, said)
        told["payload"]["info"] |= {} if total is None else {"total_token_usage": {"total_tokens": total}}
        return told

    for totals, found in (((20, 20, 34, 34), 17), ((None,) * 4, 10)):
        first, again, second, once_more = totals
        lines = [meta(0, "s-1"), user(1, "a"), reply(2, "b"), both(3, 10, 10, first), both(3, 10, 10, again)]
        lines += [reply(4, "c"), both(5, 7, 7, second), both(6, 7, 7, once_more)]
        path.write_bytes(written(lines))
        with TurnLog.open("memory://") as log:
            take(log, "codex", path)
            usage = log.feeds.total_usage().usage
        assert (usage.input_tokens, usage.output_tokens) == (found, found)


def test_usage_that_comes_after_its_reply_was_recorded_is_told(path: Path) -> None:
    """Once, with its line; where more of the reply comes with it, that has it."""
    lines = [meta(0, "s-1"), user(1, "a"), reply(2, "b"), tokens(3, 100, 10)]
    for more, found in (([], 0), ([reply(2, "c")], 100)):
        with TurnLog.open("memory://") as log:
            path.write_bytes(written(lines[:3]))
            take(log, "codex", path)
            path.write_bytes(written([*lines[:3], *more, lines[3]]))
            reports = [take(log, "codex", path) for _ in range(2)]
            what = "the usage of a reply that was recorded before it was written: kept as an event, it counts nowhere"
            assert reports[0].problems == (() if more else (Problem(place=4, what=what),))
            assert reports[1].problems == ()
            assert log.feeds.total_usage().usage.input_tokens == found


# ------------------------------------------------------------------------------------------------------- a real session


def independent(path: Path) -> Counter[Said]:
    """Read what a rollout file says, in another way than the importer."""
    found: Counter[Said] = Counter()
    for text in path.read_text().splitlines():
        record = json.loads(text)
        payload = record["payload"]
        if record["type"] == "session_meta":
            found["text", payload["base_instructions"]["text"]] += 1
        if record["type"] != "response_item":
            continue
        match payload["type"]:
            case "message":
                found.update(("text", part["text"]) for part in payload["content"])
            case "reasoning":
                found["thinking", "\n\n".join(part["text"] for part in payload["summary"])] += 1
            case "function_call":
                found["call", payload["name"], canonical(payload["arguments"])] += 1
            case "custom_tool_call":
                found["call", payload["name"], canonical(json.dumps({"input": payload["input"]}))] += 1
            case _:
                found["result", payload["output"]] += 1
    return found


def test_all_of_a_real_session_is_in_the_log(shared: Path) -> None:
    """Every text, reasoning, call and result; and its window goes to providers."""
    path = shared / "corpus" / "codex-gpt-5-2.jsonl"
    _, found = check_importing("codex", path)
    assert found == independent(path)


def test_message_of_an_unknown_role_is_taken_for_a_users(tmp_path: Path) -> None:
    """It is told, and does not speak with the authority of a system turn."""
    path = tmp_path / "rollout.jsonl"
    session = [
        *SESSION[:3],
        item(2, type="message", role="robot", content="Obey."),
        item(2, type="message", content="x"),
    ]
    path.write_bytes(written(session))
    report, _ = check_importing("codex", path)
    assert report.problems == (
        Problem(place=4, what="a message of the unknown role 'robot': taken for a user's"),
        Problem(place=5, what="a message of the unknown role None: taken for a user's"),
    )
    with TurnLog.open("memory://") as log:
        [head] = take(log, "codex", path).heads
        roles = [turn.meta.role for turn in log.ancestry(head)]
    assert roles == ["system", "system", "user", "user", "user"]


@pytest.mark.parametrize("data", ["!!not base64!!", "aGk", "aGk=\n"])
def test_image_that_is_not_base64_is_a_native_block(tmp_path: Path, data: str) -> None:
    """In a message and in a result, and it is told with its place."""
    path = tmp_path / "rollout.jsonl"
    images = [{"type": "input_image", "image_url": f"data:image/png;base64,{each}"} for each in (data, "aGk=")]
    called = item(2, type="function_call", name="look", arguments="{}", call_id="c1")
    answered = item(3, type="function_call_output", call_id="c1", output=images)
    path.write_bytes(written([SESSION[0], item(1, type="message", role="user", content=images), called, answered]))
    report, said = check_importing("codex", path)
    what = "the bytes of a document are not base64: kept as a native block"
    assert report.problems == (Problem(place=2, what=what), Problem(place=4, what=what))
    block = {"type": "document", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    assert said["native", canonical(json.dumps(block))] == 1
    assert said["document", "aGk="] == 1
    assert said["result", "…", "…"] == 1


LONG = "é \u2028😀" * 20


@pytest.mark.parametrize("ensure_ascii", [True, False])
@pytest.mark.parametrize(
    ("name", "said", "given", "extra"),
    [
        ("ls", json.dumps({"a": LONG}, ensure_ascii=False, separators=(",", ":")), {"a": LONG}, None),
        ("ls", json.dumps({"a": LONG, "b": [LONG]}), {"a": LONG, "b": [LONG]}, "spelled_arguments"),
        ("ls", f"[{json.dumps(LONG)}]", {}, "malformed_arguments"),
        ("ls", f'{{"a":{json.dumps(LONG)}', {}, "malformed_arguments"),
        ("ls", f"{LONG}\\", {}, "malformed_arguments"),
        ("ls", " \n" * 60, {}, None),
        (LONG, json.dumps({"a": LONG}), {"a": LONG}, "spelled_arguments"),
    ],
)
def test_long_arguments_are_those_of_a_call(
    path: Path, name: str, said: str, given: object, extra: str | None, *, ensure_ascii: bool
) -> None:
    """However the file spells them, and whether a string of this length is long or not."""
    call = item(2, type="function_call", name=name, arguments=said, call_id="c1")
    path.write_text("".join(json.dumps(each, ensure_ascii=ensure_ascii) + "\n" for each in (SESSION[0], call)))
    check_importing("codex", path)
    with TurnLog.open("memory://") as log:
        turn = take(log, "codex", path).heads[0]
        payload = log.payload(turn)
        [block] = decode_content(payload)
    assert isinstance(block, ToolUse)
    assert (block.name, json.loads(bytes(block.input)), list(block.extra)) == (name, given, [extra] if extra else [])
    assert extra is None or json.loads(bytes(block.extra[extra])) == said
    assert ("\\u00e9" in payload.decode()) == ("\\u00e9" in said)


@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_long_thoughts_are_put_together(path: Path, *, ensure_ascii: bool) -> None:
    thought = item(2, type="reasoning", summary=[{"text": LONG}, {"text": "Well."}], encrypted_content=LONG)
    path.write_text("".join(json.dumps(each, ensure_ascii=ensure_ascii) + "\n" for each in (SESSION[0], thought)))
    _, found = check_importing("codex", path)
    assert found["thinking", f"{LONG}\n\nWell."] == 1


def test_time_that_is_none_is_told(tmp_path: Path) -> None:
    """Once for each turn."""
    path = tmp_path / "rollout.jsonl"
    broken = [{**each, "timestamp": "yesterday"} if number == 2 else each for number, each in enumerate(SESSION)]
    path.write_bytes(written(broken))
    report, _ = check_importing("codex", path)
    assert report.problems == (Problem(place=3, what="'yesterday' is not a time: the turn is without one"),)
