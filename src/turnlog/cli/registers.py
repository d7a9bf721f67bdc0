"""Registers for people to judge: each in full, whatever is in it."""

from __future__ import annotations

import msgspec

from turnlog.cli.output import Screen
from turnlog.cli.text import one_line, printable
from turnlog.registers import ImportedRegister

_KINDS = {"gpt.pointer": "pointer", "gpt.provider": "provider", "mcp.server": "MCP server"}


def write_register(screen: Screen, register: ImportedRegister) -> None:
    """Print a register with all of its fields. Nothing is cut away, however narrow the terminal."""
    kind = _KINDS.get(register.topic, register.topic)
    lines = [f"{kind} {one_line(register.name)}  {register.id}", f"  topic: {register.topic}"]
    fields = {"action": register.meta.action, **register.to_record()["meta"]}
    lines += [f"  {one_line(name)}: {_value(value)}" for name, value in fields.items() if name != "name"]
    screen.text("\n".join(lines))


def _value(value: object) -> str:
    """Return a value such that where it begins and ends can be seen: lists as JSON, one item apart from the next."""
    if isinstance(value, str) and value == printable(value) and value == value.strip() and "\n" not in value:
        return value
    return printable(msgspec.json.encode(value).decode())
