"""A turn with its ancestry as a trajectory in ATIF."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from atif import Trajectory
from msgspec import Raw
from tests.unit.interop.transcripts.promises import blocks_of, take

from turnlog import TurnLog
from turnlog.interop.exports import Exported, export
from turnlog.model import Document, Native, ReplyFacts, Source, Text, Thinking, ToolResult, ToolUse, Usage

PNG = Document(source=Source(media_type="image/png", data="iVBORw=="))
PDF = Document(source=Source(media_type="application/pdf", data="JVBERg=="))


@pytest.fixture
def log() -> Iterator[TurnLog]:
    """Give a log of a thread with parallel calls; its head is `main`."""
    with TurnLog.open("memory://") as log:
        log.add_turn("Be brief.", role="system", bookmark="main")
        log.add_turn([Text(text="How many?"), PNG], continues="main")
        log.add_turn(
            [
                Thinking(thinking="I count."),
                Text(text="I look."),
                ToolUse(id="c1", name="ls", input=Raw(b'{"b":1.50,"a":"\\u00e9"}')),
                ToolUse(id="c2", name="ls", input=Raw(b"{}")),
            ],
            role="assistant",
            continues="main",
            reply=ReplyFacts(
                model="m-1", usage=Usage(input_tokens=3, cache_read_input_tokens=2, output_tokens=4, reasoning_tokens=1)
            ),
        )
        log.add_turn([ToolResult(tool_use_id="c2", content="two")], continues="main")
        log.add_turn([ToolResult(tool_use_id="c1", content=[Text(text="no"), PNG], is_error=True)], continues="main")
        log.add_turn("Three.", role="assistant", continues="main", reply=ReplyFacts(model="m-1"))
        yield log


def written(log: TurnLog, headish: str = "main") -> tuple[Exported, dict[str, Any]]:
    """Export a turn. The models of the format take it as it is."""
    exported = export(log, headish, "atif")
    record = json.loads(exported.content)
    assert Trajectory.model_validate(record).to_json_dict() == record
    return exported, record


def losses(exported: Exported) -> list[tuple[str, str]]:
    """Return what was lost."""
    return [(loss.kind, loss.block) for loss in exported.losses.entries]


def said(log: TurnLog, turns: list[str]) -> Counter[tuple[str, ...]]:
    """Return what turns say."""
    return Counter(block for turn in turns for block in blocks_of(log, turn))


def brought_back(exported: Exported, folder: Path) -> Counter[tuple[str, ...]]:
    """Import what was exported into another log. Return what that says."""
    path = folder / "trajectory.json"
    path.write_bytes(exported.content)
    with TurnLog.open("memory://") as other:
        assert take(other, "atif", path).problems == ()
        return said(other, [event.header.id for event in other.events(topics="gpt.turn")])


def test_trajectory_has_the_steps_of_the_agent(log: TurnLog) -> None:
    """Results stand in the step of their calls, wherever they came."""
    exported, record = written(log)
    assert [step["source"] for step in record["steps"]] == ["system", "user", "agent", "agent"]
    step = record["steps"][2]
    assert (step["message"], step["reasoning_content"], step["model_name"]) == ("I look.", "I count.", "m-1")
    assert [(call["tool_call_id"], call["arguments"]) for call in step["tool_calls"]] == [
        ("c1", {"b": 1.5, "a": "é"}),
        ("c2", {}),
    ]
    results = step["observation"]["results"]
    assert [(result["source_call_id"], result["extra"].get("is_error")) for result in results] == [
        ("c2", None),
        ("c1", True),
    ]
    assert step["metrics"] == {
        "prompt_tokens": 5,
        "completion_tokens": 5,
        "cached_tokens": 2,
        "extra": {"reasoning_tokens": 1},
    }
    assert record["final_metrics"]["total_prompt_tokens"] == 5
    assert record["agent"]["model_name"] == "m-1"
    assert step["extra"]["turn"] == log.ancestry("main")[2].id
    assert (exported.turns, losses(exported)) == (6, [])


def test_what_was_exported_says_the_same_when_it_is_imported(log: TurnLog, tmp_path: Path) -> None:
    """Texts, thinking, images, calls and results, arguments byte for byte."""
    exported, _ = written(log)
    assert b'"b": 1.50' in exported.content
    assert b'"a": "\\u00e9"' in exported.content
    assert brought_back(exported, tmp_path) == said(log, [turn.id for turn in log.ancestry("main")])


def test_what_has_no_place_is_told(log: TurnLog) -> None:
    """Signatures, native blocks, documents, further blocks of thinking, and places in a turn."""
    log.add_turn(
        [
            ToolUse(name="ls", input=Raw(b"{}")),
            Text(text="after"),
            Thinking(thinking="one", signature="s"),
            Thinking(thinking="two"),
            Native(provider="p", block=Raw(b"{}")),
        ],
        role="assistant",
        continues="main",
    )
    log.add_turn([ToolResult(name="ls", content="late"), PDF], continues="main")
    exported, record = written(log)
    assert losses(exported) == [
        ("moved", "text"),
        ("dropped", "thinking.signature"),
        ("moved", "thinking"),
        ("moved", "thinking"),
        ("dropped", "native"),
        ("downgraded", "thinking"),
        ("synthesised", "tool_id"),
        ("dropped", "document"),
        ("moved", "tool_result"),
        ("synthesised", "tool_id"),
    ]
    step, after = record["steps"][-2:]
    assert step["reasoning_content"] == "one\n\ntwo"
    [call], [result] = step["tool_calls"], step["observation"]["results"]
    assert (result["source_call_id"], result["content"]) == (call["tool_call_id"], "late")
    assert after["message"] == "[a document of type application/pdf, 4 bytes, that cannot be shown here]"


def test_what_steps_have_for_all_of_their_blocks_is_told_of_one(log: TurnLog) -> None:
    """Whose thinking it is, where it is not the turn's, what results say beside their content, types of images."""
    log.add_turn(
        [
            Thinking(thinking="a", provider="p", api="messages", model="m"),
            Thinking(thinking="b", provider="q", api="chat", model="n"),
            Thinking(thinking=""),
            ToolUse(id="c3", name="ls", input=Raw(b"{}")),
        ],
        role="assistant",
        continues="main",
        reply=ReplyFacts(provider="p", api="messages", model="m"),
    )
    results = [
        ToolResult(tool_use_id="c3", name="ls", content="d"),
        ToolResult(tool_use_id="c3", name="cat", content="e", is_error=False),
        ToolResult(name="cat", content="f"),
    ]
    log.add_turn(results, continues="main")
    log.add_turn([Document(source=Source(media_type="image/png;x=1", data="iVBORw=="))], continues="main")
    exported, record = written(log)
    assert record["steps"][-1]["message"][0]["source"]["media_type"] == "image/png"
    assert [(loss.kind, loss.block, loss.index) for loss in exported.losses.entries] == [
        ("dropped", "thinking.provider", 1),
        ("dropped", "thinking.api", 1),
        ("dropped", "thinking.model", 1),
        ("dropped", "thinking", 2),
        ("downgraded", "thinking", None),
        ("dropped", "tool_result.is_error", 1),
        ("dropped", "tool_result.name", 1),
        ("moved", "tool_result", 2),
        ("dropped", "tool_result.name", 2),
        ("downgraded", "document", 0),
    ]


def test_result_of_no_call_is_observed_by_itself(log: TurnLog, tmp_path: Path) -> None:
    """And one of an earlier call stands with it."""
    log.add_turn([ToolResult(tool_use_id="c9", content="stray")], continues="main")
    path = tmp_path / "a.txt"
    path.write_text("as text")
    log.add_document(path, continues="main")
    exported, record = written(log)
    assert losses(exported) == [("moved", "tool_result"), ("downgraded", "document")]
    stray, document = record["steps"][-2:]
    assert (stray["source"], stray["observation"]["results"][0]["source_call_id"]) == ("system", "c9")
    assert document["message"] == "as text"


def test_erased_turn_is_no_step(log: TurnLog) -> None:
    """And that is told."""
    log.erase(turn=log.ancestry("main")[1].id, reason="asked for")
    exported, record = written(log)
    assert [step["source"] for step in record["steps"]] == ["system", "agent", "agent"]
    assert losses(exported) == [("dropped", "turn")]


# ---------------------------------------------------------------------------------------------------------- sub-agents


def step(source: str, message: str, **fields: Any) -> dict[str, Any]:
    """Return a step without its number."""
    return {"source": source, "message": message, **fields}


def call(id: str, **arguments: Any) -> dict[str, Any]:
    """Return a call of an agent."""
    return {"tool_call_id": id, "function_name": "agent", "arguments": arguments}


def trajectory(id: str, *steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a trajectory."""
    numbered = [{"step_id": number, **each} for number, each in enumerate(steps, 1)]
    agent = {"name": "baker", "version": "1"}
    head = {"schema_version": "ATIF-v1.7", "session_id": "s-1", "trajectory_id": id, "agent": agent}
    return head | {"steps": numbered} | fields


def answered(call: str, content: str, trajectory: str | None = None) -> dict[str, Any]:
    """Return a result, with the sub-agent that it is of."""
    refs = {} if trajectory is None else {"subagent_trajectory_ref": [{"trajectory_id": trajectory}]}
    return {"source_call_id": call, "content": content, **refs}


DEEP = trajectory("deep", step("user", "Deeper."), step("agent", "Deep."))
SUB = trajectory(
    "sub",
    step("user", "Look into the oven."),
    step(
        "agent",
        "",
        tool_calls=[call("d1", task="Deeper.")],
        observation={"results": [answered("d1", "deep", "deep")]},
    ),
    step("agent", "Empty."),
    subagent_trajectories=[DEEP],
)
OTHER = trajectory("other", step("user", "Count."), step("agent", "Two."))
WHOLE = trajectory(
    "main",
    step("user", "How many?"),
    step(
        "agent",
        "I ask.",
        tool_calls=[call("c1", task="Look into the oven."), call("c2", task="Count.")],
        observation={"results": [answered("c1", "none", "sub"), answered("c2", "two", "other")]},
    ),
    step("agent", "Two loaves."),
    subagent_trajectories=[SUB, OTHER],
)


def shape(record: dict[str, Any]) -> dict[str, Any]:
    """Return what a trajectory says: steps, and sub-agents by the call that started each."""
    embedded = {each["trajectory_id"]: each for each in record.get("subagent_trajectories", ())}
    started = {
        result["source_call_id"]: shape(embedded[ref["trajectory_id"]])
        for each in record["steps"]
        for result in each.get("observation", {}).get("results", ())
        for ref in result.get("subagent_trajectory_ref", ())
    }
    assert len(started) == len(embedded)
    return {"steps": [(each["source"], each["message"]) for each in record["steps"]], "started": started}


def test_subagents_stand_with_the_calls_that_started_them(tmp_path: Path) -> None:
    """Also those of sub-agents. Imported again, all says the same."""
    path = tmp_path / "given.json"
    path.write_text(json.dumps(WHOLE))
    with TurnLog.open("memory://") as log:
        main = take(log, "atif", path).heads[0]
        exported, record = written(log, main)
        turns = [event.header.id for event in log.events(topics="gpt.turn")]
        assert shape(record) == shape(WHOLE)
        assert record["agent"] == {"name": "atif", "version": "unknown"}
        assert (exported.turns, losses(exported)) == (len(turns), [])
        assert brought_back(exported, tmp_path) == said(log, turns)


def test_subagent_of_an_unanswered_call_is_referred_to_without_a_result(tmp_path: Path) -> None:
    """No answer is made up for the call."""
    path = tmp_path / "given.json"
    asked = step("agent", "", tool_calls=[call("c1", task="?")])
    asked["observation"] = {"results": [{"subagent_trajectory_ref": [{"trajectory_id": "other"}]}]}
    path.write_text(json.dumps(trajectory("main", asked, step("agent", "So."), subagent_trajectories=[OTHER])))
    with TurnLog.open("memory://") as log:
        exported, record = written(log, take(log, "atif", path).heads[0])
    [result] = record["steps"][0]["observation"]["results"]
    [sub] = record["subagent_trajectories"]
    assert result == {"subagent_trajectory_ref": [{"trajectory_id": sub["trajectory_id"]}]}
    assert not [each for each in brought_back(exported, tmp_path) if each[0] == "result"]


def test_other_branches_of_a_subagent_are_told(tmp_path: Path) -> None:
    """The latest one is written."""
    branches = [trajectory("other", step("user", "Count."), step("agent", answer)) for answer in ("Two.", "No, three.")]
    with TurnLog.open("memory://") as log:
        for branch in branches:
            path = tmp_path / "given.json"
            path.write_text(json.dumps(WHOLE | {"subagent_trajectories": [SUB, branch]}))
            main = take(log, "atif", path).heads[0]
        exported, record = written(log, main)
    assert losses(exported) == [("dropped", "turn")]
    assert shape(record)["started"]["c2"]["steps"] == [("user", "Count."), ("agent", "No, three.")]


@pytest.mark.parametrize(
    ("format", "name"),
    [
        ("claude-code", "claude-opus-4-5"),
        ("codex", "codex-gpt-5-2"),
        ("gemini-cli", "gemini-gemini-3-pro-preview"),
        ("cursor", "cursor-opus-4-6"),
        ("opencode", "opencode-claude-opus-4-5"),
    ],
)
def test_real_session_says_the_same_when_it_is_imported(shared: Path, tmp_path: Path, format: str, name: str) -> None:
    """Of each agent."""
    with TurnLog.open("memory://") as log:
        report = log.import_transcript(format, shared / "corpus" / f"{name}.jsonl")
        head = report.heads[-1]
        exported, _ = written(log, head)
        lost = {loss.block for loss in exported.losses.entries if loss.kind == "dropped"}
        assert lost <= {"thinking", "thinking.signature", "tool_result.is_error", "caller", "item", "native"}
        turns = [turn.id for turn in log.ancestry(head)]
        spoken = Counter(block for block in said(log, turns).elements() if block[0] in ("text", "call", "result"))
    back = brought_back(exported, tmp_path)
    assert Counter(block for block in back.elements() if block[0] in ("text", "call", "result")) == spoken
