"""Pages for people, in Markdown and HTML.

What was said may be hostile: in Markdown it stands in fences that are longer than any in it, or is escaped; in HTML all
of it is escaped, and the page has no scripts and loads nothing. Control characters are shown and have no effect.

What a page does not show of a turn as it is, is told: the bytes of documents that are no text, characters that another
is shown for, signatures of thinking, inherited options, and keys that only programs read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape

from msgspec import Struct, structs

from turnlog.interop.exports.reading import Exported, MarkedLog, Said, read
from turnlog.interop.exports.steps import block_type
from turnlog.log import TurnLog
from turnlog.model import Document, LossEntry, LossReport, Native, Text, Thinking, ToolResult, ToolUse
from turnlog.model.blocks import Block
from turnlog.model.long_strings import LongStrings
from turnlog.model.loss import LossKind
from turnlog.model.marked_blocks import LONG_KINDS
from turnlog.model.pieces import PIECE, decoded_text, text_pieces
from turnlog.providers.documents import document_text
from turnlog.turn import Turn

_CONTROLS = (
    {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"}
    | {0x7F: "\u2421"}
    | dict.fromkeys((*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\ufffd")
)
"""Control characters, and those that turn the direction of text, with what is shown for them."""

_CONTROL = re.compile("[" + "".join(map(re.escape, map(chr, _CONTROLS))) + "]")
_CHANGED = "control characters, and those that turn the direction of text, are shown as others"
_NOT_TEXT = "what is not UTF-8 is shown as U+FFFD"

_TICKS = re.compile(rb"`+")
_MARKS = re.compile(r"([\\`*_{}\[\]<>#|~])")

_NOT_WHOLE: Mapping[str | None, str] = {
    "aborted": "not whole: the call was cancelled",
    "error": "not whole: the call failed",
    "length": "not whole: the reply came to its length limit",
    "refusal": "the model refused to go on",
}
"""What is said of a reply that ended in another way than replies do, by its stop reason."""

_STYLE = """\
body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b;background:#fff}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font:14px/1.45 ui-monospace,monospace;unicode-bidi:plaintext}
article{border-left:.3rem solid #888;padding:0 1rem;margin:1.5rem 0}
article.user{border-color:#4d8a50}article.assistant{border-color:#3b6ea8}
header,summary{color:#555;font-size:.85rem}h1{font-size:1.4rem}
@media(prefers-color-scheme:dark){body{color:#e6e6e6;background:#161616}header,summary{color:#aaa}}"""


class Piece(Struct, frozen=True, kw_only=True):
    """A block, or what stands in a result, for people.

    Attributes:
        what: what it is.
        text: what it says, with marks of long texts in it; None where it says nothing.
        language: the language of the text.
    """

    what: str
    text: str | None = None
    language: str = ""


def markdown_page(log: TurnLog, headish: str, turns: Sequence[Turn]) -> Exported:
    """Return a page in Markdown (CommonMark)."""
    return _page(log, turns, lambda said, long: _markdown_page(headish, said, long))


def html_page(log: TurnLog, headish: str, turns: Sequence[Turn]) -> Exported:
    """Return a page in HTML that stands alone."""
    return _page(log, turns, lambda said, long: _html_page(headish, said, long))


def _page(
    log: TurnLog, turns: Sequence[Turn], texts: Callable[[Sequence[Said], LongStrings], Iterator[str]]
) -> Exported:
    marked = MarkedLog(log, also=(*LONG_KINDS, "natives"))
    said = read(marked, turns)
    return Exported(
        writer=lambda file: file.writelines(text.encode() for text in texts(said, marked.long)),
        turns=len(said),
        losses=_losses(said, marked.long),
    )


def _markdown_page(headish: str, said: Sequence[Said], long: LongStrings) -> Iterator[str]:
    yield f"# {_escaped_markdown(headish)}\n"
    for each in said:
        yield f"\n## {_escaped_markdown(_title(each))}\n"
        for piece in _pieces(each, long):
            yield "\n"
            if piece.what == "text":
                yield from _quoted(_utf8(piece.text or "", long))
                continue
            # No text of a turn can have a heading that is not in a fence.
            yield f"### {_escaped_markdown(piece.what)}\n"
            if piece.text:
                yield "\n"
                yield from _fenced(_utf8(piece.text, long), piece.language)


def _html_page(headish: str, said: Sequence[Said], long: LongStrings) -> Iterator[str]:
    title = _html(headish)
    yield (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n<h1>{title}</h1>\n"
    )
    for each in said:
        yield f'<article class="{each.turn.meta.role}">\n<header>{_html(_title(each))}</header>\n'
        for piece in _pieces(each, long):
            before, behind = ("", "\n")
            if piece.what != "text":
                before, behind = f"<details><summary>{_html(piece.what)}</summary>", "</details>\n"
            yield before
            if piece.text:
                # The first line break in a `pre` is not part of what it says: without it one of the text would be none.
                yield "<pre>\n"
                yield from map(_html, _said_pieces(piece.text, long))
                yield "</pre>"
            yield behind
        yield "</article>\n"
    yield "</html>\n"


def _title(said: Said) -> str:
    turn = said.turn
    names = [turn.meta.role, *(name for name in (turn.meta.model, turn.meta.head) if isinstance(name, str))]
    return " · ".join([*names, turn.said_at.isoformat(timespec="seconds"), turn.id])


def _pieces(said: Said, long: LongStrings) -> Iterator[Piece]:
    turn = said.turn
    if turn.erased or turn.closed:
        yield Piece(what="erased" if turn.erased else "sealed, and the key is not here")
        return
    if isinstance(turn.meta.error, str):
        yield Piece(what="error", text=turn.meta.error)
    elif turn.meta.stop_reason in _NOT_WHOLE:
        yield Piece(what=_NOT_WHOLE[turn.meta.stop_reason])
    if said.document is not None:
        name = turn.meta.document_name if isinstance(turn.meta.document_name, str) else turn.id
        text = _document_text(said.document, long) if _is_shown(turn.meta.content_type) else None
        yield Piece(what=f"document {name} ({turn.meta.content_type}, {len(said.document):,} bytes)", text=text)
    for block in said.blocks:
        yield from _of_block(block, long)


def _of_block(block: Block, long: LongStrings) -> Iterator[Piece]:
    match block:
        case Text(text=text):
            yield Piece(what="text", text=text)
        case Thinking(thinking=text, redacted=redacted):
            yield Piece(what="thinking, redacted" if redacted else "thinking", text=text)
        case ToolUse(name=name, input=given, id=call):
            text = long.json_as_text(bytes(given), indent=2)
            yield Piece(what=_of_call(f"calls {name}", call), text=text, language="json")
        case ToolResult(content=content, tool_use_id=call, is_error=is_error):
            what = _of_call("error of a tool" if is_error is True else "result", call)
            inside = [Text(text=content)] if isinstance(content, str) else content
            if all(isinstance(inner, Text) for inner in inside):
                texts = [inner.text for inner in inside if isinstance(inner, Text)]
                yield Piece(what=what, text="\n".join(texts))
                return
            yield Piece(what=what)
            for inner in inside:
                for piece in _of_block(inner, long):
                    yield structs.replace(piece, what=f"in {what}: {piece.what}")
        case Document(source=source):
            what = f"document ({source.media_type}, {long.bytes_of_base64(source.data):,} bytes)"
            yield Piece(what=what, text=document_text(block, long))
        case Native(provider=provider, block=raw):
            yield Piece(what=f"a block of {provider}", text=long.json_as_text(bytes(raw), indent=2), language="json")


def _document_text(document: bytes, long: LongStrings) -> str:
    """Return the text of a document, or a mark where it is long."""
    if len(document) <= PIECE:
        return document.decode(errors="replace")
    return long.made_of(lambda: decoded_text(document, "replace"))


def _is_shown(media_type: str) -> bool:
    return media_type.startswith("text/")


# What a page does not show


def _losses(said: Sequence[Said], long: LongStrings) -> LossReport:
    """Return what pages do not show of turns as it is, in the order of the conversation."""
    return LossReport(entries=tuple(entry for each in said for entry in _losses_of(each, long)))


def _losses_of(said: Said, long: LongStrings) -> Iterator[LossEntry]:
    def lost(kind: LossKind, block: str, why: str, index: int | None = None) -> LossEntry:
        return LossEntry(kind=kind, turn=said.turn.id, block=block, why=why, index=index)

    meta = said.turn.meta
    if said.turn.erased or said.turn.closed:
        return
    if meta.delta:
        yield lost("dropped", "inherited", "a page has no options")
    if isinstance(meta.error, str) and _is_changed(meta.error):
        yield lost("downgraded", "error", _CHANGED)
    if said.document is not None:
        if not _is_shown(meta.content_type):
            yield lost("dropped", "document", f"a page has no place for the bytes of {meta.content_type}")
        elif (changed := _changed_bytes(said.document)) is not None:
            yield lost("downgraded", "document", changed)
    for index, block in enumerate(said.blocks):
        nested = block.content if isinstance(block, ToolResult) and not isinstance(block.content, str) else []
        for each in (block, *nested):
            for kind, what, why in _losses_of_block(each, long):
                yield lost(kind, what, why, index)


def _losses_of_block(block: Block, long: LongStrings) -> Iterator[tuple[LossKind, str, str]]:
    what = block_type(block)
    for name in sorted(block.extra):
        yield "dropped", name, f"a page shows no further keys of a block of {what}"
    match block:
        case Document(source=source):
            text = document_text(block, long)
            if text is None:
                yield "dropped", what, f"a page has no place for the bytes of {source.media_type}"
            elif any(map(_is_changed, long.said_pieces(text))):
                yield "downgraded", what, _CHANGED
        case Thinking(signature=signature):
            if isinstance(signature, str):
                yield "dropped", "thinking.signature", "a page has the text alone"
            if any(map(_is_changed, long.said_pieces(block.thinking))):
                yield "downgraded", what, _CHANGED
        case Text() | ToolUse() | ToolResult() | Native():
            if any(_is_changed(piece) for text in _texts(block, long) for piece in long.said_pieces(text)):
                yield "downgraded", what, _CHANGED


def _texts(block: Text | ToolUse | ToolResult | Native, long: LongStrings) -> list[str]:
    """Return what is shown of a block itself."""
    match block:
        case Text(text=text):
            return [text]
        case ToolUse(name=name, input=given):
            return [name, long.json_as_text(bytes(given), indent=2)]
        case ToolResult(content=content):
            return [content] if isinstance(content, str) else []
        case Native(block=raw):
            return [long.json_as_text(bytes(raw), indent=2)]


def _is_changed(text: str) -> bool:
    return _CONTROL.search(text) is not None


def _changed_bytes(document: bytes) -> str | None:
    """Return what is shown otherwise of a document that is text."""
    try:
        changed = [_is_changed(piece) for piece in decoded_text(document)]
        return _CHANGED if any(changed) else None
    except UnicodeDecodeError:
        return _NOT_TEXT


def _of_call(what: str, call: object) -> str:
    return what if call is None else f"{what} ({call})"


def _html(text: str) -> str:
    return escape(text.translate(_CONTROLS))


def _escaped_markdown(text: str) -> str:
    return _MARKS.sub(r"\\\1", " ".join(text.translate(_CONTROLS).split()))


def _said_pieces(text: str, long: LongStrings) -> Iterator[str]:
    return (part for piece in long.said_pieces(text) for part in text_pieces(piece))


def _utf8(text: str, long: LongStrings) -> bytearray:
    """Return a text as UTF-8, to look at the whole of it: as a text of Python it could have four times the size."""
    # What grows is copied now and then, and is there twice while that lasts.
    utf8 = bytearray(sum(len(piece.encode()) for piece in _said_pieces(text, long)))
    place = 0
    for piece in _said_pieces(text, long):
        end = place + len(encoded := piece.encode())
        utf8[place:end] = encoded
        place = end
    return utf8


def _quoted(text: bytearray) -> Iterator[str]:
    """Return what was said as it was written: a fence where it has one that would not end, or HTML, or a heading."""
    if _would_not_stand(text):
        yield from _fenced(text, "")
        return
    yield from _shown(text)
    yield "\n"


_SPACES = "\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_SPACE = rb"(?:[\t ]++|%b)" % "|".join(_SPACES).encode()
"""Blanks of a line. No control character: they are shown as others."""
_HTML = re.compile(rb"<[!/?A-Za-z]")
_STRUCTURE = re.compile(
    rb"(?m)^[\t >*+\-0-9.)]*(?:#{1,6}(?:%b|$)|(?:=++|-++)%b*+$|\[(?:[^\]\\]|\\[\x00-\xff]){1,3999}\]:)"
    % (_SPACE, _SPACE)
)
"""A heading, its underline, and what a link refers to, in 999 characters at most; also in a list or a quotation."""
_FENCE = re.compile(rb"```|~~~")

_PARSED_BYTES_MAX = PIECE
"""A longer text that has a fence stands in one."""

_PROBE = "behind"
_HEADING = [("heading_open", 0, ""), ("inline", 1, _PROBE)]
"""The tokens of a heading that is put behind a text, where that ends as it should: kind, depth, content."""

_NOT_AS_IS = {"heading_open", "html_block", "html_inline", "image"}
"""Tokens that no text may have that stands as it is."""


def _would_not_stand(text: bytearray) -> bool:
    """Tell whether text, taken as Markdown, could reach beyond its turn, look like the page's own, or load an image."""
    if _HTML.search(text) is not None or _STRUCTURE.search(text) is not None or b"![" in text:
        return True
    return _FENCE.search(text) is not None and (len(text) > _PARSED_BYTES_MAX or not _stands("".join(_shown(text))))


def _stands(text: str) -> bool:
    """Tell whether a heading behind text is one, as CommonMark has it, and there is nothing in the text but text."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - few texts have a fence

    env: dict[str, object] = {}
    tokens = MarkdownIt("commonmark").parse(f"{text}\n\n## {_PROBE}\n", env)
    before, heading = tokens[:-3], tokens[-3:]
    is_behind = [(token.type, token.level, token.content) for token in heading[:2]] == _HEADING
    inside = (kind for token in before for kind in (token.type, *(child.type for child in token.children or ())))
    return is_behind and not env.get("references") and not _NOT_AS_IS.intersection(inside)


def _fenced(text: bytearray, language: str) -> Iterator[str]:
    longest = max((len(ticks[0]) for ticks in _TICKS.finditer(text)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}{language}\n"
    yield from _shown(text)
    yield f"\n{fence}\n"


def _shown(text: bytearray) -> Iterator[str]:
    return (piece.translate(_CONTROLS) for piece in decoded_text(text))
