"""Pages for people, in Markdown and HTML.

What was said may be hostile: in Markdown it stands in fences that are longer than any in it, or is escaped; in HTML all
of it is escaped, and the page has no scripts and loads nothing. Control characters are shown and have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import escape

import msgspec
from msgspec import UNSET

from turnlog.interop.exports.reading import Exported, Said
from turnlog.log import TurnLog
from turnlog.model import Document, Native, Text, Thinking, ToolResult, ToolUse
from turnlog.model.blocks import Block

_CONTROLS = (
    {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"}
    | {0x7F: "\u2421"}
    | dict.fromkeys((*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\ufffd")
)
"""Control characters, and those that turn the direction of text, with what is shown for them."""

_TICKS = re.compile(r"`+")
_MARKS = re.compile(r"([\\`*_{}\[\]<>#|~])")

_STYLE = """\
body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b;background:#fff}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font:14px/1.45 ui-monospace,monospace;unicode-bidi:plaintext}
article{border-left:.3rem solid #888;padding:0 1rem;margin:1.5rem 0}
article.user{border-color:#4d8a50}article.assistant{border-color:#3b6ea8}
header,summary{color:#555;font-size:.85rem}h1{font-size:1.4rem}
@media(prefers-color-scheme:dark){body{color:#e6e6e6;background:#161616}header,summary{color:#aaa}}"""

Piece = tuple[str, str, str]
"""A block for people: what it is, what it says, and the language of that."""


def markdown_page(log: TurnLog, headish: str, said: list[Said]) -> Exported:  # noqa: ARG001 - as all forms
    """Return a page in Markdown (CommonMark)."""
    parts = [f"# {_escaped_markdown(headish)}\n"]
    for each in said:
        parts.append(f"## {_escaped_markdown(_title(each))}\n")
        for what, text, language in _pieces(each):
            if what == "text":
                parts.append(_quoted(text))
                continue
            parts.append(f"**{_escaped_markdown(what)}**\n")
            if text:
                parts.append(_fenced(text, language))
    return Exported(content="\n".join(parts).encode(), turns=len(said))


def html_page(log: TurnLog, headish: str, said: list[Said]) -> Exported:  # noqa: ARG001 - as all forms
    """Return a page in HTML that stands alone."""
    title = _html(headish)
    parts = [
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width">',
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n<h1>{title}</h1>",
    ]
    for each in said:
        parts.append(f'<article class="{each.turn.meta.role}">\n<header>{_html(_title(each))}</header>')
        for what, text, _ in _pieces(each):
            shown = f"<pre>{_html(text)}</pre>" if text else ""
            parts.append(shown if what == "text" else f"<details><summary>{_html(what)}</summary>{shown}</details>")
        parts.append("</article>")
    return Exported(content="\n".join([*parts, "</html>\n"]).encode(), turns=len(said))


def _title(said: Said) -> str:
    turn = said.turn
    names = [turn.meta.role, *(name for name in (turn.meta.model, turn.meta.head) if isinstance(name, str))]
    return " · ".join([*names, turn.said_at.isoformat(timespec="seconds"), turn.id])


def _pieces(said: Said) -> Iterator[Piece]:
    turn = said.turn
    if turn.erased or turn.closed:
        yield ("erased" if turn.erased else "sealed, and the key is not here"), "", ""
        return
    if isinstance(turn.meta.error, str):
        yield "error", turn.meta.error, ""
    if said.document is not None:
        name = turn.meta.document_name if isinstance(turn.meta.document_name, str) else turn.id
        text = said.document.decode(errors="replace") if turn.meta.content_type.startswith("text/") else ""
        yield f"document {name} ({turn.meta.content_type}, {len(said.document):,} bytes)", text, ""
    for block in said.blocks:
        yield _piece(block)


def _piece(block: Block) -> Piece:
    match block:
        case Text(text=text):
            return "text", text, ""
        case Thinking(thinking=text, redacted=redacted):
            return "thinking, redacted" if redacted else "thinking", text, ""
        case ToolUse(name=name, input=given, id=call):
            return _of_call(f"calls {name}", call), _json(bytes(given)), "json"
        case ToolResult(content=content, tool_use_id=call, is_error=is_error):
            inside = [Text(text=content)] if isinstance(content, str) else content
            texts = (inner.text if isinstance(inner, Text) else _piece(inner)[0] for inner in inside)
            return _of_call("error of a tool" if is_error is True else "result", call), "\n".join(texts), ""
        case Document(source=source):
            return f"document ({source.media_type}, {source.size:,} bytes)", "", ""
        case Native(provider=provider, block=raw):
            return f"a block of {provider}", _json(bytes(raw)), "json"


def _of_call(what: str, call: object) -> str:
    return what if call is UNSET else f"{what} ({call})"


def _json(text: bytes) -> str:
    return msgspec.json.format(text, indent=2).decode()


def _html(text: str) -> str:
    return escape(text.translate(_CONTROLS))


def _escaped_markdown(text: str) -> str:
    return _MARKS.sub(r"\\\1", " ".join(text.translate(_CONTROLS).split()))


def _quoted(text: str) -> str:
    """Return what was said as it was written: a fence where it has one that would not end, or HTML, or a heading."""
    shown = text.translate(_CONTROLS)
    return _fenced(shown, "") if _would_not_stand(shown) else shown + "\n"


_HTML = re.compile(r"<[!/?A-Za-z]")
_STRUCTURE: Callable[[str], object] = re.compile(r"(?m)^ {0,3}(#{1,6}(\s|$)|=+\s*$|-{3,}\s*$|\[[^\]]+\]:)").search


def _would_not_stand(text: str) -> bool:
    """Tell whether text, taken as Markdown, could reach beyond its turn or look like the page's own."""
    fences = len(re.findall(r"(?m)^ {0,3}(```|~~~)", text))
    return fences % 2 == 1 or _HTML.search(text) is not None or _STRUCTURE(text) is not None


def _fenced(text: str, language: str) -> str:
    shown = text.translate(_CONTROLS)
    longest = max((len(ticks) for ticks in _TICKS.findall(shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{shown}\n{fence}\n"
