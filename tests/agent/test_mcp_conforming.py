"""Structured content that is not as the output schema of a tool has it: the model has both, and so has the log."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.agent.running import results, run
from tests.agent.scripted import Scripted, call, say
from tests.agent.servers import odd

from turnlog import TurnLog
from turnlog.agent.mcp.conforming import SCHEMA_BYTES_MAX, told_otherwise
from turnlog.agent.output_check import fault_by
from turnlog.model.pieces import PIECE

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
OTHERWISE = "(the structured content is not as the tool's output schema has it: n: 'x' is not of type 'integer')"


def told(structured: object, schema: object = SCHEMA, **more: object) -> str | None:
    result: dict[str, object] = {} if structured is None else {"structuredContent": structured}
    return told_otherwise(result | more, Raw(msgspec.json.encode(schema)))


@pytest.mark.parametrize(("answer", "otherwise"), [('{"n":1}', ""), ('{"n":"x"}', OTHERWISE)])
def test_what_a_tool_answers_otherwise_than_it_says_is_told(log: TurnLog, answer: str, otherwise: str) -> None:
    """Behind what it answers, which is no error for that: the tool did its work."""
    log.servers.set("odd", odd("promises", json.dumps(SCHEMA), answer).command)
    run(log, Scripted(call(("odd___go", {})), say("Done.")), servers=["odd"], bookmark="main")
    [(_, text, is_error)] = results(log, "main")
    assert (text, is_error) == (answer + otherwise, False)


def test_one_fault_is_told_and_not_at_length() -> None:
    """The first one."""
    assert told({"n": "x"}) == told(Raw(b'{"n":"x"}')) == OTHERWISE
    long = told({"n": "y" * 10_000}) or ""
    assert (len(long) < 600, long.endswith("…)")) == (True, True)


@pytest.mark.parametrize(
    "given",
    [
        {"structured": {"n": 1}},
        {"structured": None},
        {"structured": {"n": "x"}, "isError": True},
        {"structured": {"n": "x"}, "schema": True},
        {"structured": {"n": "x"}, "schema": {"type": 5}},
        {"structured": {"n": "x"}, "schema": {"$ref": "#"}},
        {"structured": {"n": "x"}, "schema": {"$ref": "http://127.0.0.1/x"}},
        {"structured": {"n": "x"}, "schema": SCHEMA | {"title": "x" * SCHEMA_BYTES_MAX}},
        {"structured": Raw(b'{"n":"%b"}' % (b"x" * PIECE))},
    ],
    ids=["as it is", "none", "error", "true", "no schema", "endless", "elsewhere", "long schema", "long content"],
)
def test_what_need_not_be_so_or_cannot_be_told_is_not(given: dict[str, Any]) -> None:
    """Errors follow no schema; and what is no schema, leads elsewhere or is too long is not checked by."""
    assert told(**given) is None


def test_a_schema_that_would_never_end_is_given_up() -> None:
    """A server writes it, and the run goes on."""
    twice = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
    assert fault_by({"$ref": "#/$defs/d0", "$defs": twice | {"d60": {"type": "string"}}}, {}) is None
    searched = {"patternProperties": {"^(a+)+$": {}}, "unevaluatedProperties": False}
    assert fault_by(searched, {"a" * 40 + "!": 1}) is None
