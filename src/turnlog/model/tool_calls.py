"""The metadata of tool calls: `gpt.tool_call` and `gpt.tool_end` events."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Approved = Literal["auto", "allowed", "asked"]
"""What let a call run: the policy of the run, a pattern of tools that always may, or whoever was asked."""

ToolEnding = Literal["result", "error", "given_up", "answer", "denied", "not_called", "broken_off", "unknown"]
"""What became of a call.

`result`: what the tool returned. `error`: the tool failed. `given_up`: it took too long, its server ended, what it
returned cannot be read, or it did not end when the run was stopped; the model was told so, and it may have had effects.
`answer`: a person's words in place of a result. `denied`: by a person or a policy. `not_called`: there is no such tool,
its arguments cannot be read, a middleware answered in its place, or the run was stopped before. `broken_off`: the run
was stopped while the tool was at work, so that it may have had effects. `unknown`: an earlier run ended while the tool
was at work, and nobody knows.
"""

WITHOUT_A_CALL: frozenset[str] = frozenset({"answer", "denied", "not_called"})
"""The endings of calls that came to no tool."""

MAY_HAVE_HAD_EFFECTS: frozenset[str] = frozenset({"given_up", "broken_off", "unknown"})
"""The endings of calls that may have done all, some or nothing of what they were to do."""


class ToolCallMeta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The metadata of a `gpt.tool_call` event, which is recorded before a tool is called.

    `turn` is stored as a citation.

    Attributes:
        turn: the assistant turn that the call is in.
        block: index of the call among the content blocks of the turn, from 0.
        attempt: which attempt it is, from 1. A tool that failed may be tried again.
        approved: what let it run.
        server: the MCP server that the tool is of; not there for a Python function.
    """

    turn: str
    block: int
    attempt: int
    approved: Approved
    server: str | None = None


class ToolEndMeta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The metadata of a `gpt.tool_end` event. `turn` and `tool_call` are stored as citations.

    Its payload is the content of the result, as long as no turn has it: that of a call that ended while others of the
    same turn were at work, and of an attempt that was repeated.

    Attributes:
        turn: the assistant turn that the call is in.
        tool_call: the `gpt.tool_call` event; not there where no tool was called.
        block: index of the call among the content blocks of the turn, from 0.
        attempt: which attempt ended.
        ending: what became of it.
        by: who said so, where it was denied: a person who was asked, or the policy of the run.
        duration_ms: how long the tool was at work, in milliseconds.
        redacted: how many of which kind redaction hooks took out of the payload.
    """

    turn: str
    tool_call: str | None = None
    block: int
    attempt: int
    ending: ToolEnding
    by: Literal["person", "policy"] | None = None
    duration_ms: int | None = None
    redacted: dict[str, int] | None = None
