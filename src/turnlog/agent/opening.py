"""What a run says first: a system prompt, files, and what is asked, recorded together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from turnlog.agent.run_log import Content, RunLog
from turnlog.errors import RunError
from turnlog.ids import new_id
from turnlog.model import Text
from turnlog.record.drafts import TurnDraft, document_draft, turn_draft
from turnlog.record.fields import check_expected_head
from turnlog.record.redaction import NOTHING
from turnlog.turn import Turn, turn_of

Attachments = str | Path | Sequence[str | Path]
"""Files that go before what is asked: one path, or several."""


class Opening(Struct, frozen=True, kw_only=True):
    """What a run is given to say.

    Attributes:
        content: what is asked; None where the run goes on from a turn.
        system: the system prompt that is to hold, None for what holds already.
        attachments: paths of files.
    """

    content: Content | None
    system: str | None = None
    attachments: Attachments = ()

    def before(self, log: RunLog, parents: Sequence[str]) -> list[TurnDraft]:
        """Return the turns that go before what is asked. Files are read; nothing is recorded.

        A system prompt that is the last one of the thread already is left out.

        Raises:
            RunError: there is something to go before content, and no content; or the system prompt is empty.
            DocumentError: a file cannot be read.
        """
        given = self.attachments
        paths = [given] if isinstance(given, str | Path) else list(given)
        if self.system is not None and not self.system.strip():
            raise RunError("system is empty: give a system prompt, or leave it out")
        if self.content is None:
            named = [*(["system"] if self.system else []), *(["attachments"] if paths else [])]
            if named:
                raise RunError(f"{' and '.join(named)} go before content: give content too")
            return []
        drafts = [document_draft(Path(path)) for path in paths]
        if self.system is not None and self.system != _last_system(log, parents):
            drafts.insert(0, turn_draft(self.system, role="system"))
        return drafts


def record_opening(  # noqa: PLR0913 - what can be said of a turn
    log: RunLog,
    content: Content,
    before: Sequence[TurnDraft],
    *,
    continues: Sequence[str],
    bookmark: str | UnsetType | None,
    expected_head: str | UnsetType | None,
    subject: str | UnsetType | None,
    inherited: Mapping[str, Any],
    api_key: str | None,
) -> list[Turn]:
    """Record what is asked, and what goes before it: all of it in one transaction, or nothing.

    Args:
        log: the log.
        content: what is asked.
        before: what `Opening.before` has returned.
        continues: what the first of the turns continues; each other one continues the one before it.
        bookmark: the bookmark that moves along.
        expected_head: where it must be.
        subject: whom the turns are about.
        inherited: options that hold from what is asked on.
        api_key: a key that is taken out of what repeats it.

    Returns:
        The turns in their order; the last one is what is asked.

    Raises:
        TurnlogError: as for `TurnLog.add_turn`.
    """
    if not before:
        turn = log.add_turn(
            content,
            continues=continues,
            bookmark=bookmark,
            expected_head=expected_head,
            inherited=inherited or None,
            subject=subject,
            api_key=api_key,
        )
        return [turn]
    first, *others = [*before, turn_draft(content, inherited=inherited or None)]
    # Bookmark and subject come down from the first turn to the others, as from any parent.
    chain = [
        msgspec.structs.replace(
            first,
            id=new_id(),
            continues=tuple(continues),
            bookmark=bookmark,
            expected_head=check_expected_head(expected_head),
            subject=subject,
            respond=False,
        )
    ]
    for draft in others:
        chain.append(msgspec.structs.replace(draft, id=new_id(), continues=(_id(chain[-1]),), subject=UNSET))
    key = NOTHING.with_key(api_key, [draft.payload for draft in chain])
    return [turn_of(recorded) for recorded in log.add_group([key.turn(draft) for draft in chain])]


def _id(draft: TurnDraft) -> str:
    assert draft.id is not None
    return draft.id


def _last_system(log: RunLog, parents: Sequence[str]) -> str | None:
    """Return the last system prompt of a thread, None if it has none, or one that is not text alone."""
    for parent in reversed(parents):
        for message in reversed(log.context(parent).messages):
            if message.role == "system":
                texts = [block.text for block in message.content if isinstance(block, Text)]
                return "".join(texts) if len(texts) == len(message.content) else None
    return None
