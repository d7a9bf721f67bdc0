"""Redaction on the command line: what `--redact` and the environment variable ask for, and what people are told."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from turnlog.cli.failures import UsageError
from turnlog.cli.output import note
from turnlog.cli.text import count, one_line
from turnlog.turn import Turn

if TYPE_CHECKING:
    from turnlog.record import Hook

REDACT_VARIABLE = "TURNLOG_REDACT"
SECRETS = "secrets"


def redaction_hooks(*, asked: bool) -> list[Hook]:
    """Return the redaction hooks of a command.

    Args:
        asked: whether its option asks for them.

    Raises:
        UsageError: the environment variable names others than there are.
        RedactionError: the rules are not installed.
    """
    named = os.environ.get(REDACT_VARIABLE, "")
    if named not in ("", SECRETS):
        raise UsageError(f"{REDACT_VARIABLE} is {named!r}: set it to {SECRETS}, or not at all")
    if not (asked or named):
        return []
    from turnlog.redaction import secrets  # noqa: PLC0415 - most commands look for none

    return [secrets()]


def tell_redacted(turn: Turn) -> None:
    """Tell on standard error what was taken out of a turn, and what could not be looked into."""
    meta = turn.meta
    if isinstance(meta.redacted, dict):
        of_reply = "; the raw events of the reply are not kept" if isinstance(meta.reply, str) else ""
        note(f"redacted {counted(meta.redacted)} in turn {turn.id}{of_reply}")
    if isinstance(meta.passed_over, int):
        were = "is not text, and was" if meta.passed_over == 1 else "are not text, and were"
        note(f"{count(meta.passed_over, 'document')} in turn {turn.id} {were} not looked into")


def counted(redacted: Mapping[str, int]) -> str:
    """Return counts by kind, such as `2 github-token, 1 aws-key`."""
    return ", ".join(f"{number:,} {one_line(kind)}" for kind, number in redacted.items())
