"""Messages of windows for people to read: a header line, and what is said below it."""

from __future__ import annotations

import msgspec

from turnlog.cli.blocks import Content
from turnlog.cli.output import Screen
from turnlog.cli.rows import role_style
from turnlog.cli.text import one_line, said_in_lines
from turnlog.model import Message


def write_message(screen: Screen, message: Message, time: str, *, whole: bool) -> None:
    """Print a message that is a turn.

    Args:
        screen: where it goes.
        message: the message.
        time: when it was said.
        whole: whether tool calls, their results and thinking are printed whole.

    Raises:
        ContentError: its content is none.
    """
    said = f"{message.role} · {one_line(message.model)}" if isinstance(message.model, str) else message.role
    cached = " · cache" if message.cache else ""
    screen.line((f"── {said}", role_style(message.role)), (f"  {message.turn} · {time}{cached}", "dim"))
    content = Content(message.content_json)
    if content.has_document and message.document_name is not None:
        screen.line((said_in_lines(one_line(message.document_name)), "bold blue"))
    content.write(screen, whole=whole)
    screen.line()


def write_option(screen: Screen, name: str, value: object, setter: object = "") -> None:
    """Print an option: its value as JSON, and who set it: a turn, or for each part of it one."""
    by = setter if isinstance(setter, str) else one_line(_json(setter))
    screen.line(
        (said_in_lines(one_line(name)), "cyan"),
        f" = {one_line(_json(value))}",
        (f"  set by {by}" if by else "", "dim"),
    )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
