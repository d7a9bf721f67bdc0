"""Files of Geppetto's runs and turns, YAML and JSON: what they import as, and what they come back as."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.interop.transcripts.promises import (
    canonical,
    check_damaged,
    check_erasing,
    check_growing,
    check_importing,
    check_nothing_of,
    take,
)

from turnlog import FormatError, TurnLog
from turnlog.interop import geppetto
from turnlog.interop.finding import formats_of
from turnlog.interop.geppetto import Run, Turn
from turnlog.interop.transcripts import Problem
from turnlog.model import Text, ToolResult
from turnlog.record.findings import Hook

SECRET = "sk-" + "ant-" + "api03-" + "b" * 93 + "AA"


def sample() -> Run:
    """Make a run of two snapshots, the second of which goes on from the first."""
    first = Turn(id="t1", run_id="r1")
    geppetto.append_blocks(
        first,
        geppetto.new_system_text_block("Be brief.", id="b1"),
        geppetto.new_user_text_block("How many notes are there?", id="b2"),
    )
    second = Turn(id="t2", run_id="r1", blocks=[*first.blocks])
    geppetto.append_blocks(
        second,
        geppetto.new_reasoning_block("I list them.", encrypted_content="c2ln", id="b3"),
        geppetto.new_assistant_text_block("Let me look.", id="b4"),
        geppetto.new_tool_call_block("call-1", "shell", {"command": ["ls"]}),
        geppetto.new_tool_call_block("call-2", "shell", '{"command": ["pwd"]}'),
        geppetto.new_tool_use_block("call-2", {"out": "/notes"}, id="b5"),
        geppetto.new_tool_use_block("call-1", "april.md may.md", id="b6"),
        geppetto.new_assistant_text_block("Two.", id="b7"),
    )
    return Run(id="r1", name="notes", turns=[first, second])


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_a_run_imports_as_it_is_recorded(tmp_path: Path, suffix: str) -> None:
    """Found by what is in it; under the same ids, so that recording it afterwards adds nothing."""
    path = tmp_path / f"run.{suffix}"
    run = sample()
    path.write_bytes(geppetto.run_to_yaml(run).encode() if suffix == "yaml" else geppetto.run_to_json(run))
    assert formats_of(path) == ["geppetto"]
    report, said = check_importing("geppetto", path)
    assert report.pieces == {"blocks": 5, "run": 1, "turn": 2}
    assert (report.turns_added, len(report.roots), len(report.heads)) == (5, 1, 1)
    assert (report.sessions, report.problems) == (("r1",), ())
    assert said == {
        ("text", "Be brief."): 1,
        ("text", "How many notes are there?"): 1,
        ("thinking", "I list them."): 1,
        ("text", "Let me look."): 1,
        ("call", "shell", '{"command":["ls"]}'): 1,
        ("call", "shell", '{"command":["pwd"]}'): 1,
        ("result", '{"out":"/notes"}'): 1,
        ("result", "april.md may.md"): 1,
        ("text", "Two."): 1,
    }
    with TurnLog.open("memory://") as log:
        take(log, "geppetto", path)
        assert geppetto.load_run(log, "r1") == run
        assert geppetto.record_run(log, run).added == 0


def test_snapshots_one_after_the_other_are_a_thread(tmp_path: Path) -> None:
    """Documents of one YAML file, of one JSON file, or the items of a list; runs and turns may be mixed."""
    turns = sample().turns
    path = tmp_path / "turns.yaml"
    contents = [
        "---\n".join(map(geppetto.turn_to_yaml, turns)).encode(),
        b"\n".join(map(geppetto.turn_to_json, turns)),
        b"[" + b",".join(map(geppetto.turn_to_json, turns)) + b"]",
    ]
    for content in contents:
        path.write_bytes(content)
        assert formats_of(path) == ["geppetto"]
        report, _ = check_importing("geppetto", path)
        assert (report.places, report.turns_added, len(report.heads)) == (2, 5, 1)


def test_numbers_that_are_rounded_are_told(tmp_path: Path) -> None:
    """One that no float holds as it is written; another spelling of the same number is none."""
    path = tmp_path / "turn.json"
    args = '{"p":100000000000000000000.0,"q":1.10,"r":[0.12345678901234567890123,0.30000000000000000001]}'
    path.write_text(
        '{"blocks":[{"kind":"tool_call","payload":{"id":"c","name":"f","args":' + args + "}}]}", encoding="utf-8"
    )
    with TurnLog.open("memory://") as log:
        report = take(log, "geppetto", path)
    assert [problem.what for problem in report.problems] == [
        "document.blocks[0].payload.args.r[0]: 0.12345678901234567890123 is kept as 0.12345678901234568, "
        "and 1 other numbers so"
    ]
    assert report.damaged == 0


def test_numbers_of_yaml_that_are_rounded_are_told(tmp_path: Path) -> None:
    """Like those of JSON."""
    path = tmp_path / "turn.yaml"
    path.write_text("blocks:\n- kind: other\n  payload: {a: 1.10, b: 0.12345678901234567890123}\n", encoding="utf-8")
    with TurnLog.open("memory://") as log:
        report = take(log, "geppetto", path)
    assert [problem.what for problem in report.problems] == [
        "document.blocks[0].payload.b: 0.12345678901234567890123 is kept as 0.12345678901234568"
    ]


def test_a_set_of_yaml_is_a_record(tmp_path: Path) -> None:
    """As Go has it, in its order: so it is the same each time that it is imported."""
    path = tmp_path / "turn.yaml"
    path.write_text(
        "id: t\nrun_id: r\nblocks:\n- kind: tool_use\n  payload: {id: c, result: !!set {beta, alpha, gamma}}\n",
        encoding="utf-8",
    )
    with TurnLog.open("memory://") as log:
        report = take(log, "geppetto", path)
        [head] = report.heads
        [result] = log.content(head)
        assert isinstance(result, ToolResult)
        assert result.content == [Text(text='{"beta":null,"alpha":null,"gamma":null}')]
    assert report.problems == ()


def test_keys_that_are_one_as_text_are_told(tmp_path: Path) -> None:
    """JSON has only text for keys: neither of the two is taken for both."""
    path = tmp_path / "turn.yaml"
    path.write_text("blocks: [{kind: user, payload: {text: a}}]\n0x1: b\n'1': c\n", encoding="utf-8")
    with TurnLog.open("memory://") as log, pytest.raises(FormatError, match="a record has the key '1' twice"):
        take(log, "geppetto", path)


def test_arguments_that_are_a_text_stay_as_they_are_spelled(tmp_path: Path) -> None:
    """Numbers and keys as the model wrote them, also those that no value has."""
    path = tmp_path / "turn.json"
    for args in ('{"a":1.10,"a":-0}', '{"a":1e400}', '{"a":1180591620717411303424}'):
        turn = Turn(id="t", run_id="r", blocks=[geppetto.new_tool_call_block("c", "f", args)])
        path.write_bytes(geppetto.turn_to_json(turn))
        with TurnLog.open("memory://") as log:
            [head] = take(log, "geppetto", path).heads
            [call] = json.loads(log.payload(head).replace(args.encode(), b'{"is":"there"}'))
            assert call["input"] == {"is": "there"}


def test_a_file_that_grows_adds_what_is_new(tmp_path: Path) -> None:
    """What snapshots share is there once."""
    run = sample()
    wholes = [geppetto.run_to_json(Run(id="r1", name="notes", turns=run.turns[:count])) for count in (1, 2)]
    check_growing("geppetto", wholes, tmp_path / "run.json")


def test_an_erasure_reaches_all_of_it(tmp_path: Path) -> None:
    """Content, and what stands beside it."""
    run = sample()
    run.turns[1].blocks[3].payload["more"] = "beside it"
    path = tmp_path / "run.json"
    path.write_bytes(geppetto.run_to_json(run))
    for number, text in enumerate(("april.md may.md", "beside it", "notes")):
        folder = tmp_path / str(number)
        folder.mkdir()
        check_erasing("geppetto", path, text, folder)


def test_what_is_no_run_or_turn_is_reported_with_its_place(tmp_path: Path) -> None:
    """The rest goes in."""
    path = tmp_path / "turns.json"
    good = geppetto.turn_to_json(sample().turns[0])
    path.write_bytes(b"[" + good + b',7,{"blocks":"robot"},' + good + b"]")
    with TurnLog.open("memory://") as log:
        report = take(log, "geppetto", path)
        assert [(problem.place, problem.what) for problem in report.problems] == [
            (2, "turn: expected a record, got int: it was left out"),
            (3, "turn.blocks: expected a list, got str: it was left out"),
        ]
        assert (report.damaged, report.turns_added) == (2, 2)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "it is empty"),
        (b"\xff\xfe", "it is not UTF-8 (byte 0)"),
        (b"{", "not valid JSON"),
        (b"blocks: [", "not valid YAML"),
        (b"blocks: &a [*a]", "aliases (*name) are not read"),
        (b"7", "expected a record, got int"),
        (b'{"blocks":[{"kind":"user","payload":{"a":1,"a":2}}]}', "a record has the key 'a' twice"),
        (b'{"foo":1}', "turn.foo: unknown key"),
        (b'{"blocks":{}}', "turn.blocks: expected a list, got dict"),
    ],
)
def test_a_file_without_any_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    """With one line that says why, and nothing is recorded."""
    path = tmp_path / "run.yaml"
    path.write_bytes(content)
    with TurnLog.open("memory://") as log:
        with pytest.raises(FormatError) as raised:
            take(log, "geppetto", path)
        assert says in str(raised.value)
        assert str(raised.value).endswith("nothing was imported")
        assert log.id is None


def test_damaged_files_import_what_can_be_read(tmp_path: Path) -> None:
    """Cut anywhere, in both spellings."""
    path = tmp_path / "run"
    for content in (geppetto.run_to_json(sample()), b"\n".join(map(geppetto.turn_to_json, sample().turns))):
        for end in range(0, len(content), 97):
            path.write_bytes(content[:end])
            check_damaged("geppetto", path)
    text = "---\n".join(map(geppetto.turn_to_yaml, sample().turns)).encode()
    for end in range(0, len(text), 301):
        path.write_bytes(text[:end])
        check_damaged("geppetto", path)


@pytest.mark.parametrize("where", ["text", "result", "args", "role", "metadata", "name", "id", "data"])
def test_redaction_reaches_every_place(tmp_path: Path, hook: Hook, where: str) -> None:
    """What a hook takes out is nowhere in the store; without hooks secrets beside content are refused."""
    record = json.loads(geppetto.run_to_json(sample()))
    turn = record["turns"][1]
    places: dict[str, tuple[dict[str, object], str]] = {
        "text": (turn["blocks"][3]["payload"], "text"),
        "result": (turn["blocks"][7]["payload"], "result"),
        "args": (turn["blocks"][4]["payload"]["args"], "command"),
        "role": (turn["blocks"][3], "role"),
        "metadata": (turn["blocks"][3].setdefault("metadata", {}), "a.b@v1"),
        "name": (record, "name"),
        "id": (turn["blocks"][3], "id"),
        "data": (turn.setdefault("data", {}), "a.b@v1"),
    }
    inside, key = places[where]
    inside[key] = f"so {SECRET} it is"
    path = tmp_path / "run.json"
    path.write_text(json.dumps(record))
    check_nothing_of(SECRET, "geppetto", path, tmp_path / "store", [hook], where)


def test_kinds_are_read_as_go_names_them(tmp_path: Path) -> None:
    """`LLMText` is `llm_text`."""
    path = tmp_path / "turn.yaml"
    path.write_text("blocks:\n- kind: User\n  payload:\n    text: Hi.\n- kind: LLMText\n  payload: {text: Hello.}\n")
    assert formats_of(path) == ["geppetto"]
    _, said = check_importing("geppetto", path)
    assert said == {("text", "Hi."): 1, ("text", "Hello."): 1}


MENDED: list[tuple[dict[str, Any], str, list[tuple[str, ...]]]] = [
    (
        {"id": "b", "kind": "robot", "payload": {"text": "Beep."}},
        "turn.blocks[1].kind: 'robot' is not a kind of block (one of user, llm_text, tool_call, tool_use, system, "
        "reasoning, other): kept as a native block",
        [("native", '{"id":"b","kind":"robot","payload":{"text":"Beep."}}')],
    ),
    (
        {"kind": "user", "payload": "Hi."},
        "turn.blocks[1].payload: expected a record, got str: kept as a native block",
        [("native", '{"kind":"user","payload":"Hi."}')],
    ),
    (
        {"id": 5, "kind": "user", "payload": {"text": "Hi."}},
        "turn.blocks[1].id: expected text, got int: read as '5'",
        [("text", "Hi.")],
    ),
    (
        {"kind": "user", "payload": {"text": "Hi."}, "more": [1]},
        "turn.blocks[1].more: unknown key: kept in the metadata, as 'turnlog.unread@v1'",
        [("text", "Hi.")],
    ),
]


@pytest.mark.parametrize(("block", "problem", "says"), MENDED)
@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_block_that_is_none_does_not_lose_its_turn(
    tmp_path: Path, suffix: str, block: dict[str, Any], problem: str, says: list[tuple[str, ...]]
) -> None:
    """It is kept, and told with its place; whatever can be read of it is content."""
    good = {"kind": "llm_text", "payload": {"text": "Good."}}
    turn = json.loads(json.dumps({"id": "t1", "run_id": "r1", "blocks": [good, block, good]}))
    path = tmp_path / f"turn.{suffix}"
    path.write_text(yaml.safe_dump(turn) if suffix == "yaml" else json.dumps(turn))
    assert formats_of(path) == ["geppetto"]
    report, said = check_importing("geppetto", path)
    assert report.problems == (Problem(place=1, what=problem),)
    assert report.damaged == 0
    natives = {("native", canonical(json.dumps({"type": "other", "payload": {"block": block}}))): 1}
    assert said == {("text", "Good."): 2} | (natives if says[0][0] == "native" else dict.fromkeys(says, 1))


def test_blocks_of_unknown_kinds_alone_are_found(tmp_path: Path) -> None:
    """By what is in the file, in both spellings."""
    turn = {"run_id": "r1", "blocks": [{"kind": "robot", "payload": {"text": "Beep."}}]}
    path = tmp_path / "turn"
    for content in (json.dumps(turn), json.dumps([turn], indent=2), yaml.safe_dump(turn), yaml.safe_dump([turn])):
        path.write_text(content)
        assert formats_of(path) == ["geppetto"], content
        report, said = check_importing("geppetto", path)
        assert (report.turns_added, len(report.problems), said.total()) == (1, 1, 1)
    path.write_text('{"sessionId": "s", "blocks": [{"kind": "robot", "payload": {}}]}')
    assert formats_of(path) == []


def test_keys_that_turns_and_runs_do_not_have_are_in_their_metadata(tmp_path: Path) -> None:
    """So that a file of another version keeps all that it says."""
    path = tmp_path / "run.json"
    turns: list[Any] = [{"id": "t1", "run_id": "r1", "data": 7, "blocks": [], "phase": "x"}, 7]
    path.write_text(json.dumps({"id": "r1", "name": True, "version": 2, "turns": turns}))
    with TurnLog.open("memory://") as log:
        report = take(log, "geppetto", path)
        run = geppetto.load_run(log, "r1")
    assert [problem.what for problem in report.problems] == [
        "run.name: expected text, got bool: read as 'true'",
        "run.version: unknown key: kept in the metadata, as 'turnlog.unread@v1'",
        "run.turns[0].data: got int: kept in the metadata, as 'turnlog.unread@v1'",
        "run.turns[0].phase: unknown key: kept in the metadata, as 'turnlog.unread@v1'",
        "run.turns[1]: expected a record, got int: it was left out",
    ]
    assert (run.name, dict(run.metadata.range())) == ("true", {"turnlog.unread@v1": {"version": 2}})
    assert [dict(turn.metadata.range()) for turn in run.turns] == [{"turnlog.unread@v1": {"data": 7, "phase": "x"}}]


@pytest.mark.parametrize(
    ("content", "what", "text"),
    [
        (b"blocks:\n- kind: user\n  payload: {a: !!binary aGk=}\n", "bytes is not JSON", "b'hi'"),
        (b"blocks:\n- kind: user\n  payload: {a: .inf}\n", "JSON has no NaN and no infinity", "Infinity"),
        (b"blocks:\n- kind: user\n  payload: {1: x}\n", "JSON has only text for keys", '"1"'),
        (b'{"blocks":[{"kind":"user","payload":{"a":123456789012345678901234567890}}]}', "64 bits", "34567890}"),
        (b'{"blocks":[{"kind":"user","payload":{"a":1e400}}]}', "JSON has no NaN and no infinity", "Infinity"),
        (b'{"blocks":[{"kind":"user","payload":{"a":"\\ud800"}}]}', "surrogates not allowed", "\\ud800"),
    ],
)
def test_block_that_json_cannot_carry_is_kept_as_its_text(tmp_path: Path, content: bytes, what: str, text: str) -> None:
    """As a native block, and it is told with its place."""
    path = tmp_path / "turn"
    path.write_bytes(content)
    report, said = check_importing("geppetto", path)
    [problem] = report.problems
    assert problem.what.startswith("document.blocks[0].payload")
    assert what in problem.what
    assert problem.what.endswith(": kept as a native block of its text")
    [(kind, native)] = said
    assert (kind, text in json.loads(native)["payload"]["text"]) == ("native", True)


def test_what_hooks_take_out_is_not_in_what_is_told(tmp_path: Path, hook: Hook) -> None:
    """Not as the name of a kind or a key either."""
    path = tmp_path / "turn.json"
    for number, block in enumerate(({"kind": SECRET}, {"kind": "user", SECRET: 1}, {"kind": "user", "id": [SECRET]})):
        path.write_text(json.dumps({"run_id": "r1", "blocks": [block]}))
        check_nothing_of(SECRET, "geppetto", path, tmp_path / str(number), [hook], str(block))


def test_document_with_a_key_twice_is_left_out_alone(tmp_path: Path) -> None:
    """Those behind it go in."""
    path = tmp_path / "turns.json"
    turns = [*map(geppetto.turn_to_json, sample().turns)]
    path.write_bytes(b"\n".join([turns[0], b'{"blocks":[],"blocks":[]}', turns[1]]))
    report, _ = check_importing("geppetto", path)
    assert [(problem.place, problem.what) for problem in report.problems] == [
        (2, "document at line 2: a record has the key 'blocks' twice: it was left out")
    ]
    assert (report.places, report.damaged, report.turns_added) == (3, 1, 5)


LONG = "e\\u00e9\\/\\ud83d\\ude42 " * 9
DATA = "QUJD" * 20
ESCAPED = "e\\\\u00e9\\\\/\\\\ud83d\\\\ude42 \\\\n" * 9
LONG_PARTS = [
    f'"kind":"user","payload":{{"text":"{LONG}","images":[{{"media_type":"image/png","content":"{DATA}"}}]}}',
    f'"kind":"user","payload":{{"images":[{{"media_type":"image/png","content":"!{DATA}"}},"{LONG}"],"more":"{LONG}"}}',
    f'"kind":"llm_text","payload":{{"more":"{LONG}","text":"{LONG}"}},"metadata":{{"a.b@v1":"{LONG}"}}',
    f'"kind":"reasoning","payload":{{"text":"{LONG}","encrypted_content":"{LONG}"}}',
    f'"kind":"tool_call","payload":{{"id":"c","name":"f","args":{{"a":["{LONG}"],"payload":{{"b":"{LONG}"}}}}}}',
    f'"kind":"tool_call","payload":{{"id":"{LONG}","name":"{LONG}","args":"{LONG}"}}',
    f'"kind":"tool_call","payload":{{"name":"f","args":"{{\\"a\\": \\"{DATA}\\"}}"}}',
    f'"kind":"tool_call","payload":{{"name":"f","args":"{{\\"b\\": 1.10, \\"a\\": [\\"{LONG}\\"]}}"}}',
    f'"kind":"tool_call","payload":{{"name":"f","args":"{{\\"a\\":\\"{ESCAPED}\\",\\"b\\":0.12345678901234567890123}}"}}',
    f'"kind":"tool_call","payload":{{"name":"f","args":"{{\\"a\\":\\"{ESCAPED}\\",\\"b\\":{{\\"c\\":\\"{DATA}\\"}}}}"}}',
    f'"kind":"tool_call","payload":{{"name":"f","args":"{{\\"{ESCAPED}\\":\\"a\\",\\"{DATA}\\":null}}"}}',
    f'"kind":"tool_call","payload":{{"name":"f","args":"[\\"{LONG}\\"]"}}',
    f'"kind":"tool_call","payload":{{"name":"f","args":"\\"{DATA}\\""}}',
    f'"kind":"tool_call","payload":{{"name":"f","args":"{{\\"a\\":\\"{DATA}"}}',
    f'"kind":"tool_call","payload":{{"name":"f","args":"{{\\"a\\":\\"{DATA}\\",\\"a\\":1}}"}}',
    f'"kind":"tool_use","payload":{{"id":"c","result":{{"a":"{LONG}","type":"{LONG}"}},"error":"{LONG}"}}',
    f'"kind":"tool_use","payload":{{"id":"c","result":[{{"type":"text","text":"{LONG}"}},{{"type":"text","text":"a"}}]}}',
    f'"kind":"tool_use","payload":{{"id":"c","result":"{LONG}"}},"more":{{"payload":{{"a":"{LONG}"}}}}',
    f'"kind":"other","payload":{{"media_type":"text/plain","content":"{DATA}"}}',
    f'"kind":"other","payload":{{"provider":"{LONG}","block":{{"a":"{LONG}"}},"text":"{LONG}"}}',
    f'"kind":"other","payload":{{"provider":"p","block":{{"a":"{LONG}","type":"b"}}}}',
    f'"kind":"{LONG}","payload":{{"text":"{LONG}"}}',
    f'"kind":"llm_text","payload":["{LONG}",{{"a":"{LONG}"}}]',
    f'"kind":"llm_text","payload":{{"text":"{LONG}","a":NaN}}',
    f'"kind":"llm_text","payload":{{"text":{{"payload":"{LONG}"}}}}',
]


@pytest.mark.parametrize("part", LONG_PARTS)
def test_long_text_is_what_it_is_when_it_is_short(tmp_path: Path, part: str) -> None:
    """Wherever it stands in a block, however it is spelled, and where others begin with it."""
    path = tmp_path / "run.json"
    block = f'{{"kind":"llm_text","payload":{{"text":"{LONG}"}}}}'
    turns = ",".join(
        f'{{"id":"t","metadata":{{"c":"{LONG}"}},"blocks":[{blocks}]}}' for blocks in (block, f"{block},{{{part}}}")
    )
    path.write_text(f'{{"id":"{LONG}","turns":[{turns}],"payload":{{"text":"{LONG}"}}}} {{"blocks":[{block}]}}')
    check_importing("geppetto", path)


@pytest.mark.parametrize("part", [part for part in LONG_PARTS if "NaN" not in part])
def test_long_text_of_yaml_is_what_it_is_when_it_is_short(tmp_path: Path, part: str) -> None:
    """As of JSON: in scalars of each style, in values and in keys."""
    path = tmp_path / "run.yaml"
    block = {"kind": "llm_text", "payload": {"text": f"{DATA}\n{DATA}\n", LONG: [f"{DATA}: #", f"é {DATA}"]}}
    turns = [{"id": "t", "metadata": {"c": DATA}, "blocks": [block, json.loads(f"{{{part}}}")]}]
    run = {"id": DATA, "turns": turns, "payload": {"text": DATA}}
    written = [yaml.safe_dump(run, allow_unicode=True), yaml.safe_dump(run, default_style="|", allow_unicode=True)]
    path.write_text("---\n".join(written), encoding="utf-8")
    check_importing("geppetto", path)


@pytest.mark.parametrize("behind", ['{"a": nul}', '{"blocks": [], "blocks": []}', "[1, {}]", '"\ud83d"', "\x00"])
def test_what_is_damaged_beside_long_text_is_told_as_it_is(tmp_path: Path, behind: str) -> None:
    """And what stands before it is recorded once."""
    path = tmp_path / "run.json"
    block = f'{{"kind":"llm_text","payload":{{"text":"{LONG}"}}}}'
    path.write_text(f'{{"id":"r","turns":[{{"id":"t","blocks":[{block}]}}]}}\n{behind}', errors="backslashreplace")
    report, _ = check_importing("geppetto", path)
    assert report.turns_added == 1
    assert report.problems


def test_secret_behind_a_long_text_is_refused_where_it_cannot_be(tmp_path: Path) -> None:
    """What is beside content is looked at as a whole."""
    path = tmp_path / "run.json"
    block = {"kind": "llm_text", "payload": {"text": "a", "more": f"{DATA} {SECRET}"}}
    path.write_text(
        json.dumps({"blocks": [block]}) + json.dumps({"blocks": [{"kind": "user", "payload": {"text": "b"}}]})
    )
    report, _ = check_importing("geppetto", path)
    assert ["looks like a secret" in problem.what for problem in report.problems] == [True]
