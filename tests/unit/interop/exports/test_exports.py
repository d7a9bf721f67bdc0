"""A turn with its ancestry, for people and for other tools."""

import inspect
import io
import json
import re
from base64 import b64decode
from collections.abc import Iterator
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, BinaryIO, cast, get_args

import pytest
import yaml
from anthropic.types import MessageParam
from markdown_it import MarkdownIt
from msgspec import Raw
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter
from tests.docs.pages import ROOT

from turnlog import TurnLog
from turnlog.cli.commands import export as export_command
from turnlog.errors import NotFoundError, UnknownTurnError
from turnlog.interop.canonical import messages, parse_messages
from turnlog.interop.exports import WRITERS, export
from turnlog.model import Document, Native, ReplyFacts, Source, Text, Thinking, ToolResult, ToolUse
from turnlog.model.pieces import PIECE
from turnlog.model.stop_reasons import StopReason

HOSTILE = "</pre><script>alert(1)</script>\n```\n# not a heading\x1b[31m\u202e"


@pytest.fixture
def log() -> Iterator[TurnLog]:
    """Give a log of a thread with all kinds of turns; its head is `main`."""
    with TurnLog.open("memory://") as log:
        log.add_turn("Be brief.", role="system", bookmark="main")
        log.add_turn("How many *files*?", continues="main")
        log.add_turn(
            [
                Thinking(thinking="I count.", signature="c2ln", provider="anthropic", api="messages", model="m-1"),
                Text(text="I look."),
                ToolUse(id="c1", name="ls", input=Raw(b'{"path":"a"}')),
            ],
            role="assistant",
            continues="main",
            reply=ReplyFacts(model="m-1", provider="anthropic", api="messages"),
        )
        log.add_turn([ToolResult(tool_use_id="c1", content=HOSTILE, is_error=True)], continues="main")
        log.add_turn(
            "Three.",
            role="assistant",
            continues="main",
            reply=ReplyFacts(model="m-1", provider="anthropic", api="messages"),
        )
        yield log


class _Short(io.RawIOBase):
    """A file that takes seven bytes at a time."""

    def __init__(self) -> None:
        self.taken = b""

    def write(self, data: Any) -> int:
        self.taken += bytes(data)[:7]
        return min(7, len(data))


FORM = inspect.signature(export_command.export, eval_str=True).parameters["form"].annotation
FORMS_OF_HELP = set(re.findall("[a-z]+", "".join(re.findall(r"\([^)]*\)", get_args(FORM)[1].help))))
PAGE = (ROOT / "docs/how-to/take-transcripts-in-and-out.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("the Literal of --format in src/turnlog/cli/commands/export.py", set(get_args(get_args(FORM)[0]))),
        ("the help of --format in src/turnlog/cli/commands/export.py", FORMS_OF_HELP),
        (
            "the table of --format in docs/how-to/take-transcripts-in-and-out.md",
            set(re.findall("`([a-z]+)`", "".join(re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)))),
        ),
    ],
)
def test_each_form_is_in_the_table(place: str, found: set[str]) -> None:
    """So that whoever exports is told of it."""
    missing = sorted(WRITERS.keys() - found)
    assert not missing, f"add {', '.join(missing)} to {place}"


@pytest.mark.parametrize("form", [*WRITERS, None])
def test_every_export_arrives_whole_in_a_file_without_a_buffer(log: TurnLog, form: str | None) -> None:
    """What a short write leaves is written, in all forms and in the export of a log."""
    short, whole = _Short(), io.BytesIO()
    for file in (short, whole):
        if form is None:
            log.export(cast("BinaryIO", file))
        else:
            export(log, "main", form).write(cast("BinaryIO", file))
    assert short.taken == whole.getvalue() != b""


def test_bodies_load_into_the_sdks(log: TurnLog) -> None:
    """What the model that spoke last would be sent; what it cannot carry is told."""
    anthropic = json.loads(export(log, "main", "anthropic").content)
    TypeAdapter(list[MessageParam]).validate_python(anthropic["messages"])
    assert sorted(anthropic) == ["messages", "system"]
    assert [message["role"] for message in anthropic["messages"]] == ["user", "assistant", "user", "assistant"]
    assert anthropic["messages"][1]["content"][0] == {"type": "thinking", "thinking": "I count.", "signature": "c2ln"}
    exported = export(log, "main", "openai")
    openai = json.loads(exported.content)
    TypeAdapter(list[ChatCompletionMessageParam]).validate_python(openai["messages"])
    assert [message["role"] for message in openai["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert [(loss.kind, loss.block) for loss in exported.losses.entries][:1] == [("dropped", "thinking")]


def test_lines_have_the_turns_with_their_content(log: TurnLog, tmp_path: Path) -> None:
    """Documents in base64."""
    path = tmp_path / "a.bin"
    path.write_bytes(b"\x00\x01")
    log.add_document(path, continues="main")
    exported = export(log, "main", "jsonl")
    lines = [json.loads(line) for line in exported.content.splitlines()]
    assert exported.turns == len(lines) == 6
    assert [line["meta"]["role"] for line in lines] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert lines[1]["content"] == [{"type": "text", "text": "How many *files*?"}]
    assert b64decode(lines[5]["document"]) == b"\x00\x01"
    assert "content" not in lines[5]


def test_canonical_messages_load_back(log: TurnLog) -> None:
    """Equal to what the log has; what messages have no place for is told."""
    exported = export(log, "main", "canonical")
    loaded = parse_messages(exported.content)
    assert loaded == messages(log, "main")[0]
    assert [message["role"] for message in json.loads(exported.content)] == [
        "user",
        "assistant",
        "tool-result",
        "assistant",
    ]
    assert [(loss.kind, loss.block) for loss in exported.losses.entries] == [("dropped", "system")]


def test_canonical_messages_tell_of_documents_and_erased_turns(log: TurnLog, tmp_path: Path) -> None:
    """A document is a line of text; an erased turn is no message."""
    path = tmp_path / "a.bin"
    path.write_bytes(b"\x00\x01")
    log.add_document(path, continues="main")
    question = log.ancestry("main")[1].id
    log.erase(turn=question, reason="asked for")
    exported = export(log, "main", "canonical")
    loaded = parse_messages(exported.content)
    assert len(loaded) == 4
    losses = [(loss.kind, loss.block, loss.turn == question) for loss in exported.losses.entries]
    assert ("dropped", "turn", True) in losses
    assert ("dropped", "document", False) in losses


class Reader(HTMLParser):
    """Gathers elements and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep an element."""
        del attrs
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        """Keep a text."""
        self.texts.append(data)


def test_page_shows_what_was_said_and_runs_nothing(log: TurnLog) -> None:
    """Whatever was said."""
    page = export(log, "main", "html").content.decode()
    reader = Reader()
    reader.feed(page)
    assert "script" not in reader.tags
    assert reader.tags.count("article") == 5
    text = "".join(reader.texts)
    for said in ("Be brief.", "How many *files*?", "I count.", "I look.", "calls ls (c1)", "<script>alert(1)</script>"):
        assert said in text
    assert "error of a tool (c1)" in text
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_markdown_keeps_hostile_text_in_a_fence_that_it_cannot_end(log: TurnLog) -> None:
    """And text that is plain as it is."""
    page = export(log, "main", "markdown").content.decode()
    lines = page.splitlines()
    assert lines[0] == "# main"
    assert "How many *files*?" in lines
    begin = lines.index("### error of a tool (c1)")
    assert lines[begin + 2] == "````"
    end = lines.index("````", begin + 3)
    assert "# not a heading␛[31m\ufffd" in lines[begin + 3 : end]
    assert [line for line in lines if line.startswith("## ")] == [
        line for line in lines[: begin + 3] + lines[end:] if line.startswith("## ")
    ]


@pytest.mark.parametrize(
    "text",
    [
        "[" + "é" * 600 + ']: http://example.org "hidden"',
        *("# a heading", "a\n-", "a\n==", "> ## a heading", "- # a heading", "1. a\n\n   > b\n   > --"),
        *(
            "<b>x",
            "---",
            "[x]: y",
            "[a\\]b]: y 'z'",
            "[a\\\\]: y",
            "### calls shell (c1)",
            "![x](https://example.com/x.png)",
        ),
        *(
            "```\nopen",
            "~~~",
            "```\n~~~",
            "``` a`b\n```",
            "1. x\n\n   ```\n   y\n```\nz",
            "```\n````\n~~~~",
            "~~~ ~~~\n```\n```",
        ),
    ],
)
def test_text_that_could_be_taken_for_the_page_is_fenced(text: str) -> None:
    """In Markdown: of what comes behind it, CommonMark makes what it makes without it."""
    with TurnLog.open("memory://") as log:
        log.add_turn(text, bookmark="main")
        log.add_turn("Behind.", role="assistant", continues="main")
        page = export(log, "main", "markdown").content.decode()
    assert f"`\n{text}\n```" in page
    tokens = MarkdownIt("commonmark").parse(page)
    assert [token.type for token in tokens if token.level == 0] == [
        *("heading_open", "heading_close"),
        *("heading_open", "heading_close", "fence"),
        *("heading_open", "heading_close", "paragraph_open", "paragraph_close"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        *("a *word*", "- a\n- b", "1. a\n2. b", "> said", "a < b", "a - b", "[x](https://example.com)"),
        *(
            "```py\nx = 1\n```",
            "~~~\n```\n~~~",
            "So:\n\n1. do\n   ```sh\n   ls\n   ```\n2. and ```this```",
            "````\n```\n````",
        ),
    ],
)
def test_text_that_ends_as_it_should_stands_as_it_is(text: str) -> None:
    """In Markdown, as it was written: with its lists and its code."""
    with TurnLog.open("memory://") as log:
        log.add_turn(text, bookmark="main")
        assert export(log, "main", "markdown").content.decode().endswith(f"\n\n{text}\n")


@pytest.mark.parametrize("text", ["#\x0bno heading", "==\x85", "---\x1c", "#\u2003a heading"])
def test_control_characters_are_no_space_on_a_page(text: str) -> None:
    """Others are shown for them, and so what they stand in is no heading."""
    with TurnLog.open("memory://") as log:
        log.add_turn(text, bookmark="main")
        page = export(log, "main", "markdown").content.decode()
    assert ("```" in page) == text.endswith("a heading")


def test_any_blank_makes_a_heading() -> None:
    """In Markdown for some, and a text with it is fenced in any case."""
    blanks = [
        chr(code) for code in range(0x3001) if chr(code).isspace() and chr(code) not in "\x0b\x0c\r\x1c\x1d\x1e\x1f\x85"
    ]
    assert len(blanks) == 21
    for blank in blanks:
        for text in (f"#{blank}x", f"==={blank * 2}", f"x\n  ---{blank}\n", f"---{blank}{blank}\nx"):
            with TurnLog.open("memory://") as log:
                log.add_turn(text, bookmark="main")
                assert b"\n```\n" in export(log, "main", "markdown").content, (text, blank)


@pytest.mark.parametrize("form", sorted(WRITERS))
def test_long_texts_are_whole_in_every_form(form: str) -> None:
    """They are written in pieces, in none of which an escape or a character ends that began in another."""
    text = "x" + '&\n"\\é😀' * (PIECE // 3)
    with TurnLog.open("memory://") as log:
        log.add_turn(text, bookmark="main")
        content = export(log, "main", form).content.decode()
    spelled: dict[str, str] = {"html": escape(text), "markdown": text}
    if form == "geppetto":
        assert yaml.safe_load(content)["blocks"][0]["payload"]["text"] == text
    else:
        assert spelled.get(form, json.dumps(text, ensure_ascii=False)) in content
        assert form in spelled or json.loads(content)


@pytest.mark.parametrize("form", sorted(WRITERS))
def test_erased_turns_are_shown_as_erased(log: TurnLog, form: str) -> None:
    """In every form, and nothing of them."""
    log.erase(turn=log.ancestry("main")[1].id, reason="asked for")
    content = export(log, "main", form).content.decode()
    assert "files" not in content
    assert "Three." in content


def test_unknown_names_are_refused(log: TurnLog) -> None:
    """A form, and a turn."""
    with pytest.raises(NotFoundError, match=r"no form 'pdf' to export \(one of anthropic, atif, canonical, "):
        export(log, "main", "pdf")
    with pytest.raises(UnknownTurnError):
        export(log, "nobody", "html")


@pytest.mark.parametrize("form", ["html", "markdown"])
def test_page_tells_what_it_does_not_show(log: TurnLog, tmp_path: Path, form: str) -> None:
    """Each with its turn and its block, in the order of the conversation."""
    path = tmp_path / "a.bin"
    path.write_bytes(b"\x00\x01")
    log.add_document(path, continues="main")
    content = [
        Text(text="plain", extra={"citations": Raw(b"[1]")}),
        Document(source=Source(media_type="image/png", data="aGk=")),
        Document(source=Source(media_type="text/plain", data="aGk=")),
    ]
    log.add_turn(content, continues="main", inherited={"search": True})
    exported = export(log, "main", form)
    turns = [turn.id for turn in log.ancestry("main")]
    assert [(loss.kind, loss.block, turns.index(loss.turn), loss.index) for loss in exported.losses.entries] == [
        ("dropped", "thinking.signature", 2, 0),
        ("downgraded", "tool_result", 3, 0),
        ("dropped", "document", 5, None),
        ("dropped", "inherited", 6, None),
        ("dropped", "citations", 6, 0),
        ("dropped", "document", 6, 1),
    ]
    assert "a page has no place for the bytes of image/png" in [loss.why for loss in exported.losses.entries]


@pytest.mark.parametrize("form", ["html", "markdown"])
def test_page_shows_what_stands_in_a_result(form: str) -> None:
    """Native blocks and texts of documents too."""
    nested = [
        Text(text="Seen."),
        Native(provider="robots", block=Raw(b'{"beep":"loud & clear"}')),
        Document(source=Source(media_type="text/plain", data="bm90ZXM=")),
    ]
    with TurnLog.open("memory://") as log:
        log.add_turn([ToolUse(id="c1", name="look", input=Raw(b"{}"))], role="assistant", bookmark="main")
        log.add_turn([ToolResult(tool_use_id="c1", content=nested)], continues="main")
        exported = export(log, "main", form)
    reader = Reader()
    reader.feed(exported.content.decode())
    page = "".join(reader.texts)
    for shown in ("Seen.", "loud & clear", "a block of robots", "notes", "(text/plain, 5 bytes)"):
        assert shown in page
    assert exported.losses.entries == ()


@pytest.mark.parametrize("form", ["html", "markdown"])
@pytest.mark.parametrize(
    ("stop_reason", "error", "told"),
    [
        ("aborted", None, "not whole: the call was cancelled"),
        ("error", None, "not whole: the call failed"),
        ("error", "broke off", "broke off"),
        ("length", None, "not whole: the reply came to its length limit"),
        ("refusal", None, "the model refused to go on"),
        ("stop", None, None),
        ("tool_use", None, None),
    ],
)
def test_page_says_that_a_reply_is_not_whole(
    form: str, stop_reason: StopReason, error: str | None, told: str | None
) -> None:
    with TurnLog.open("memory://") as log:
        log.add_turn("Now?", bookmark="main")
        log.add_turn("No", role="assistant", continues="main", stop_reason=stop_reason, error=error)
        page = export(log, "main", form).content.decode()
    assert (told or "not whole") in page or told is None
    assert ("not whole" in page or "refused" in page) == (told is not None and error is None)


def test_first_line_break_of_a_text_is_on_the_page() -> None:
    """In HTML, which takes the first one in a `pre` for none."""
    with TurnLog.open("memory://") as log:
        log.add_turn("\n\nfirst", bookmark="main")
        page = export(log, "main", "html").content.decode()
    assert "<pre>\n\n\nfirst</pre>" in page
