"""Registers for people to judge: each in full, whatever is in it."""

from __future__ import annotations

import msgspec

from turnlog.cli.output import Screen, note
from turnlog.cli.text import one_line, to_decide_on
from turnlog.log import TurnLog
from turnlog.registers import ImportedRegister

_KINDS = {"gpt.pointer": "pointer", "gpt.provider": "provider", "mcp.server": "MCP server"}


def write_register(screen: Screen, register: ImportedRegister) -> None:
    """Print a register with all of its fields. Nothing is cut away, however narrow the terminal, or unseen."""
    kind = _KINDS.get(register.topic, register.topic)
    lines = [f"{kind} {one_line(register.name)}  {register.id}", f"  topic: {register.topic}"]
    fields = {"action": register.meta.action, **register.to_record()["meta"]}
    lines += [f"  {one_line(name)}: {_value(value)}" for name, value in fields.items() if name != "name"]
    if register.refusal:
        lines.append(f"  cannot be used: {one_line(register.refusal)}")
    screen.text(to_decide_on("\n".join(lines)))


def tell_unusable(log: TurnLog, *kinds: str) -> None:
    """Say which registers were confirmed and cannot be used, and why: of some kinds, or of all. No list has them."""
    for register in log.registers.unusable():
        kind = _KINDS.get(register.topic, register.topic)
        if not kinds or kind in kinds:
            note(f"{kind} {one_line(register.name)!r} is left out: {one_line(register.refusal)}")


def _value(value: object) -> str:
    """Return a value such that where it begins and ends can be seen: lists as JSON, one item apart from the next."""
    if isinstance(value, str) and value == to_decide_on(value) and value == value.strip() and "\n" not in value:
        return value
    return msgspec.json.encode(value).decode()
