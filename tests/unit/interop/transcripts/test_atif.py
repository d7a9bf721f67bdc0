"""Trajectories in ATIF."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.interop.transcripts.promises import check_erasing, check_growing, check_importing, take

from turnlog import ReplyFacts, TurnLog
from turnlog.errors import FormatError
from turnlog.interop import exports, formats
from turnlog.model import Usage


def call(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    """Return a call of a tool."""
    return {"tool_call_id": id, "function_name": name, "arguments": arguments}


STEPS: list[dict[str, Any]] = [
    {"step_id": 1, "source": "system", "message": "Be brief."},
    {"step_id": 2, "source": "user", "message": "How many loaves?", "timestamp": "2026-02-10T17:24:01Z"},
    {
        "step_id": 3,
        "source": "agent",
        "timestamp": "2026-02-10T17:24:02Z",
        "message": "I look.",
        "reasoning_content": "Where?",
        "tool_calls": [call("c1", "look", at="shelf"), call("c2", "agent", task="oven")],
        "observation": {
            "results": [
                {"source_call_id": "c1", "content": "two"},
                {
                    "source_call_id": "c2",
                    "content": [
                        {"type": "text", "text": "none"},
                        {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}},
                    ],
                    "subagent_trajectory_ref": [{"trajectory_id": "sub-1", "session_id": "s-1"}],
                },
            ]
        },
        "metrics": {"prompt_tokens": 100, "completion_tokens": 20, "cached_tokens": 60, "cost_usd": 0.1},
    },
    {"step_id": 4, "source": "agent", "message": "Two loaves.", "llm_call_count": 1},
]
SUB = {
    "schema_version": "ATIF-v1.7",
    "trajectory_id": "sub-1",
    "agent": {"name": "oven-agent", "version": "1"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "Look into the oven."},
        {"step_id": 2, "source": "agent", "message": "Empty."},
    ],
}


def written(steps: list[dict[str, Any]], **fields: Any) -> bytes:
    """Return the file."""
    agent = {"name": "baker", "version": "1", "model_name": "example-1"}
    head = {"schema_version": "ATIF-v1.7", "session_id": "s-1", "trajectory_id": "t-1", "agent": agent}
    return json.dumps(head | {"steps": steps} | fields, indent=2).encode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give a trajectory with a sub-agent."""
    path = tmp_path / "trajectory.json"
    path.write_bytes(written(STEPS, subagent_trajectories=[SUB], final_metrics={"total_steps": 4}))
    return path


def test_trajectory_becomes_a_thread(path: Path) -> None:
    """What was observed answers the calls; a sub-agent grows from the turn of the call that started it."""
    with TurnLog.open("memory://") as log:
        report = take(log, "atif", path)
        main, sub = report.heads
        window = log.context(main)
        assert [(message.role, len(message.content)) for message in window.messages] == [
            ("system", 1),
            ("user", 1),
            ("assistant", 4),
            ("user", 2),
            ("assistant", 1),
        ]
        assert log.turn(main).meta.model == "example-1"
        [answers] = log.turn(main).continues
        [called] = log.turn(answers).continues
        assert log.turn(called).meta.usage == Usage(input_tokens=40, cache_read_input_tokens=60, output_tokens=20)
        [asked] = log.turn(sub).continues
        assert log.turn(asked).continues == (called,)
        assert log.turn(sub).meta.origin.sidechain
    assert (report.places, report.problems, report.sessions) == (6, (), ("s-1", "sub-1"))
    assert report.pieces == {"result": 2, "step": 6, "tool_call": 2, "trajectory": 2}


def test_all_that_is_said_is_in_the_log(path: Path) -> None:
    """Of the sub-agent too."""
    _, found = check_importing("atif", path)
    assert dict(found) == {
        ("text", "Be brief."): 1,
        ("text", "How many loaves?"): 1,
        ("thinking", "Where?"): 1,
        ("text", "I look."): 1,
        ("call", "look", '{"at":"shelf"}'): 1,
        ("call", "agent", '{"task":"oven"}'): 1,
        ("result", "two"): 1,
        ("result", "none", "…"): 1,
        ("text", "Two loaves."): 1,
        ("text", "Look into the oven."): 1,
        ("text", "Empty."): 1,
    }


def test_trajectory_that_grows_adds_what_is_new(path: Path) -> None:
    """Also an observation that comes later than its step."""
    unanswered = {name: value for name, value in STEPS[2].items() if name != "observation"}
    wholes = [written(STEPS[:2]), written([*STEPS[:2], unanswered]), written(STEPS[:3])]
    check_growing("atif", [*wholes, written(STEPS), path.read_bytes()], path)


def test_usage_of_an_export_comes_back(path: Path) -> None:
    """Also what was written to a cache, and reasoning, which the format has no names for."""
    usage = Usage(
        input_tokens=10,
        output_tokens=3,
        cache_creation_input_tokens=500,
        cache_read_input_tokens=7,
        reasoning_tokens=40,
    )
    with TurnLog.open("memory://") as log:
        log.add_turn("q", bookmark="main")
        log.add_turn("a", role="assistant", continues="main", reply=ReplyFacts(model="m", usage=usage))
        path.write_bytes(exports.export(log, "main", "atif").content)
    with TurnLog.open("memory://") as log:
        take(log, "atif", path)
        assert log.feeds.total_usage().usage == usage


def test_erased_thread_is_gone(path: Path, tmp_path: Path) -> None:
    """From the pieces too."""
    check_erasing("atif", path, "oven", tmp_path)


def test_results_of_no_call_are_text(path: Path) -> None:
    """One result of one call needs no id; one that names another call is reported."""
    steps = [
        {"step_id": 1, "source": "agent", "message": "", "tool_calls": [call("c1", "look")]}
        | {"observation": {"results": [{"content": "two"}]}},
        {"step_id": 2, "source": "system", "message": "", "observation": {"results": [{"content": "rain"}]}},
        {"step_id": 3, "source": "agent", "message": "So.", "extra": {"a": 1}}
        | {"observation": {"results": [{"source_call_id": "c9", "content": "late"}], "extra": {"b": 1}}},
    ]
    path.write_bytes(written(steps))
    report, found = check_importing("atif", path)
    assert (found["result", "two"], found["text", "rain"], found["text", "late"]) == (1, 1, 1)
    assert [(problem.place, problem.what.partition(",")[0]) for problem in report.problems] == [(3, "a result of 'c9'")]
    assert report.pieces["observation"] == 1


def test_what_cannot_be_taken_is_reported(path: Path) -> None:
    """An unknown source, a sub-agent that nothing names, one in another file, and a newer version."""
    steps = [
        {"step_id": 1, "source": "new", "message": "?"},
        {"step_id": 2, "source": "agent", "message": "A"}
        | {"observation": {"results": [{"subagent_trajectory_ref": [{"trajectory_path": "b.json"}]}]}},
    ]
    path.write_bytes(written(steps, schema_version="ATIF-v2.0", subagent_trajectories=[SUB]))
    report, _ = check_importing("atif", path)
    assert [problem.what.partition(":")[0] for problem in report.problems] == [
        "version 'ATIF-v2.0' is newer than what is known",
        "a step of the unknown source 'new'",
        "a sub-agent's trajectory is in another file, 'b.json'",
        "no step names the sub-agent 'sub-1'",
    ]
    assert len(report.roots) == 2


def test_reply_that_says_nothing_is_a_turn(path: Path) -> None:
    """Where tokens were counted for it; a step of which nothing is known is none."""
    metrics = {"prompt_tokens": 100, "completion_tokens": 20}
    empty = {"source": "agent", "message": ""}
    steps = [STEPS[1], {"step_id": 3, "metrics": metrics} | empty, {"step_id": 4} | empty]
    path.write_bytes(written(steps))
    check_importing("atif", path)
    with TurnLog.open("memory://") as log:
        [head] = take(log, "atif", path).heads
        assert log.turn(head).meta.usage == Usage(input_tokens=100, output_tokens=20)
        assert [each.role for each in log.ancestry(head)] == ["user", "assistant"]


def test_is_found_by_content(path: Path) -> None:
    """By its version."""
    importer = formats.get("atif")
    assert importer.recognizes(path, path.read_bytes())
    assert not importer.recognizes(path, b'{"schema_version": "1"}')


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema_version":"1"}'])
def test_other_file_is_refused(path: Path, content: bytes) -> None:
    """In one line."""
    path.write_bytes(content)
    with TurnLog.open("memory://") as log, pytest.raises(FormatError, match="nothing was imported"):
        log.import_transcript("atif", path)
