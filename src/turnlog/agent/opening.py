"""What a run says first: a system prompt, files, and what is asked, recorded together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from turnlog.agent.run_checks import check_kind, several
from turnlog.agent.run_log import Content, RunLog
from turnlog.errors import RunError
from turnlog.ids import new_id
from turnlog.model import Text, TurnMeta
from turnlog.model.kinds import check_type
from turnlog.record.documents import check_documents
from turnlog.record.drafts import TurnDraft, document_draft, turn_draft
from turnlog.record.fields import check_bookmark, check_expected_head, check_subject
from turnlog.record.media import check_media_type, media_type
from turnlog.turn import Turn, turn_of


class Attached(Struct, frozen=True, kw_only=True):
    """A document that is in no file, such as a resource of an MCP server.

    Attributes:
        name: its name.
        payload: its bytes.
        media_type: its media type, None to tell by name and content.
        origin: where it is from, in place of a path.
    """

    name: str
    payload: bytes
    media_type: str | None = None
    origin: str = ""

    def draft(self) -> TurnDraft:
        """Return the document turn.

        Raises:
            MetaError: the media type is none, the name or the origin is not text, or the payload is not bytes.
        """
        name, payload = check_type(self.name, str, "document_name"), check_type(self.payload, bytes, "payload")
        kind = media_type(Path(name), payload) if self.media_type is None else self.media_type
        meta = TurnMeta(
            role="user",
            type="document",
            content_type=check_media_type(check_type(kind, str, "content_type")),
            document_name=name,
            original_path=check_type(self.origin or name, str, "original_path"),
            file_size=len(payload),
        )
        return TurnDraft(payload=payload, meta=meta)


Attachment = str | Path | Attached
Attachments = Attachment | Sequence[Attachment]
"""What goes before what is asked: the path of a file, a document, or several of them."""

_PART = "<mcp_server name="
"""How a system turn begins that has what a server says of the use of its tools."""


class Opening(Struct, frozen=True, kw_only=True):
    """What a run is given to say.

    Attributes:
        content: what is asked; None where the run goes on from a turn.
        system: the system prompt that is to hold, None for what holds already.
        attachments: paths of files, and documents.
    """

    content: Content | None
    system: str | None = None
    attachments: Attachments = ()

    def before(self, log: RunLog, parents: Sequence[str]) -> list[TurnDraft]:
        """Return the turns that go before what is asked. Files are read; nothing is recorded.

        A system prompt that is the last one of the thread already is left out.

        Raises:
            RunError: there is something to go before content, and no content; the system prompt is empty; or one of
                them is of another type.
            DocumentError: a file cannot be read.
        """
        files = several("attachments", self.attachments, _is_attachment, "paths of files, or documents")
        if self.system is not None:
            check_kind("system", self.system, str, "str")
            if not self.system.strip():
                raise RunError("system is empty: give a system prompt, or leave it out")
        if self.content is None:
            named = [*(["system"] if self.system else []), *(["attachments"] if files else [])]
            if named:
                raise RunError(f"{' and '.join(named)} go before content: give content too")
            return []
        drafts = [file.draft() if isinstance(file, Attached) else document_draft(file) for file in files]
        if self.system is not None and self.system != _last_system(log, parents):
            drafts.insert(0, turn_draft(self.system, role="system"))
        return drafts


def asked_draft(content: Content, inherited: Mapping[str, Any]) -> TurnDraft:
    """Check what is asked, with the options that its turn sets.

    Raises:
        ContentError, MetaError, SecretError: it cannot be recorded.
    """
    draft = turn_draft(content, inherited=inherited or None)
    check_documents(draft.payload)
    return draft


def record_opening(  # noqa: PLR0913 - what can be said of a turn
    log: RunLog,
    content: Content,
    before: Sequence[TurnDraft],
    *,
    continues: Sequence[str],
    bookmark: str | Literal[False] | None,
    expected_head: str | Literal[False] | None,
    subject: str | Literal[False] | None,
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
    first, *others = [*before, asked_draft(content, inherited)]
    # Bookmark and subject come down from the first turn to the others, as from any parent.
    chain = [
        msgspec.structs.replace(
            first,
            id=new_id(),
            continues=tuple(continues),
            bookmark=check_bookmark(bookmark),
            expected_head=check_expected_head(expected_head),
            subject=check_subject(subject),
            respond=False,
        )
    ]
    for draft in others:
        chain.append(msgspec.structs.replace(draft, id=new_id(), continues=(_id(chain[-1]),), subject=None))
    keyed = [msgspec.structs.replace(draft, api_key=api_key) for draft in chain]
    return [turn_of(recorded) for recorded in log.add_group(keyed)]


def instruction_turns(log: RunLog, parents: Sequence[str], instructions: Mapping[str, str]) -> list[TurnDraft]:
    """Return what servers say of the use of their tools as system turns, a part each that has the server's name.

    A part that is in the thread already is left out.

    Args:
        log: the log.
        parents: the turns that are continued.
        instructions: the texts, by the names of the servers.
    """
    parts = [f'{_PART}"{name}">\n{text}\n</mcp_server>' for name, text in instructions.items()]
    if not parts:
        return []
    there = {text for parent in parents for text in _system_texts(log, parent)}
    return [turn_draft(part, role="system") for part in parts if part not in there]


def _is_attachment(value: object) -> bool:
    return isinstance(value, str | PathLike | Attached)


def _id(draft: TurnDraft) -> str:
    assert draft.id is not None
    return draft.id


def _last_system(log: RunLog, parents: Sequence[str]) -> str | None:
    """Return the last system prompt of a thread, None if it has none, or one that is not text alone."""
    for parent in reversed(parents):
        for text in reversed(_system_texts(log, parent)):
            if text is None or not text.startswith(_PART):
                return text
    return None


def _system_texts(log: RunLog, turn: str) -> list[str | None]:
    """Return the system prompts of a thread in their order; None for one that is not text alone."""
    found: list[str | None] = []
    for message in log.context(turn).messages:
        if message.role == "system":
            texts = [block.text for block in message.content if isinstance(block, Text)]
            found.append("".join(texts) if len(texts) == len(message.content) else None)
    return found
