"""What a run says first: a system prompt and files go before the question, and are recorded with it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.agent.running import contents, run, values
from tests.agent.scripted import HERE, MODEL, Scripted, say
from tests.agent.wires import KEY, Anthropic, OpenAI, Wire, set_up
from tests.wires.server import WireServer

from turnlog import ContentError, DocumentError, MetaError, RunError, TurnLog, UnknownServerError
from turnlog.agent.opening import Attached, record_opening
from turnlog.model import ContextWindow, Document
from turnlog.providers import Connection

PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)


def test_system_prompt_and_files_go_before_the_question(log: TurnLog, tmp_path: Path) -> None:
    """Each is a turn that continues the one before; the bookmark and the subject come along, and the result has all."""
    picture, notes = tmp_path / "a picture.png", tmp_path / "notes.txt"
    picture.write_bytes(PNG)
    notes.write_text("Bolts.")
    result = run(
        log,
        Scripted(say("A bolt.")),
        "What is it?",
        system="Be brief.",
        attachments=[picture, str(notes)],
        bookmark="main",
        subject="Ada",
        search=True,
    )
    turns = log.ancestry("main")
    assert [turn.id for turn in turns] == [turn.id for turn in result.turns]
    assert [(turn.meta.role, turn.meta.document_name or None) for turn in turns] == [
        ("system", None),
        ("user", "a picture.png"),
        ("user", "notes.txt"),
        ("user", None),
        ("assistant", None),
    ]
    assert [turn.meta.head for turn in turns] == ["main"] * 5
    assert [turn.meta.subject for turn in turns] == ["Ada"] * 5
    assert [turn.meta.delta for turn in turns] == [{}, {}, {}, {"search": True}, {}]
    assert log.payload(turns[1].id) == PNG
    [document] = log.context("main").messages[1].content
    assert isinstance(document, Document)
    assert document.source.media_type == "image/png"


@pytest.mark.parametrize(
    ("wire", "shown"),
    [
        (OpenAI(), r'"<document name=\"notes.txt\">\nBolts.\n</document>"'),
        (Anthropic(), r'{"type":"text","text":"<document name=\"notes.txt\">\nBolts.\n</document>"'),
    ],
)
def test_a_model_is_told_the_name_of_an_attached_file(
    log: TurnLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wire: Wire, shown: str
) -> None:
    """And the request can be made again, also where the window was changed."""
    monkeypatch.setenv(wire.key_variable, KEY)
    (tmp_path / "notes.txt").write_text("Bolts.")

    def cached(window: ContextWindow) -> ContextWindow:
        notes, asked = window.messages
        notes = msgspec.structs.replace(notes, cache=True)
        return msgspec.structs.replace(window, messages=(notes, asked))

    with WireServer(wire.reply("Yes."), wire.reply("Yes.")) as server:
        set_up(log, wire, server.url)
        log.run("Which?", pointer="kilo", attachments=tmp_path / "notes.txt", bookmark="main")
        log.run("Which?", pointer="kilo", attachments=tmp_path / "notes.txt", bookmark="other", on_window=cached)
    assert all(shown in each.body.decode() for each in server.received)
    assert [[each.difference for each in log.calls.check(name)] for name in ("main", "other")] == [[None], [None]]


def test_one_file_may_be_given_alone(log: TurnLog, tmp_path: Path) -> None:
    """A path is one file, not one a letter."""
    (tmp_path / "notes.txt").write_text("Bolts.")
    run(log, Scripted(say("One.")), attachments=str(tmp_path / "notes.txt"), bookmark="main")
    assert [turn.meta.document_name for turn in log.ancestry("main")][:1] == ["notes.txt"]


def test_the_system_prompt_that_holds_already_is_not_added_again(log: TurnLog) -> None:
    """Another one is, and so is the first one after it: the last one of the thread counts."""
    for system in ("Be brief.", "Be brief.", "Be kind.", "Be brief."):
        parent = "main" if log.bookmarks.all() else None
        run(log, Scripted(say("Yes.")), system=system, continues=parent, bookmark="main")
    said = [content for role, content in contents(log, "main") if role == "system"]
    assert said == [f'[{{"type":"text","text":"{text}"}}]' for text in ("Be brief.", "Be kind.", "Be brief.")]


def test_no_bookmark_moves_where_none_is_asked_for(log: TurnLog) -> None:
    """Though the thread that is gone on with has one."""
    head = log.add_turn("Before.", bookmark="main")
    result = run(log, Scripted(say("Yes.")), system="Be brief.", continues="main", bookmark=False)
    assert (log.turn("main").id, len(result.turns)) == (head.id, 3)


def test_a_file_that_cannot_be_read_leaves_nothing_behind(log: TurnLog, tmp_path: Path) -> None:
    """Nor does a server that is not there, or content that is none."""
    (tmp_path / "notes.txt").write_text("Bolts.")
    notes = tmp_path / "notes.txt"
    with pytest.raises(DocumentError):
        run(log, Scripted(), system="Be brief.", attachments=[notes, tmp_path / "nix"])
    with pytest.raises(UnknownServerError):
        run(log, Scripted(), system="Be brief.", attachments=notes, servers=["nix"])
    with pytest.raises(ContentError):
        run(log, Scripted(), [{"type": "nix"}], system="Be brief.", attachments=notes)
    assert log.threads() == []


@pytest.mark.parametrize("given", [{"bookmark": ""}, {"bookmark": "a\x1bb"}, {"bookmark": "x" * 201}, {"subject": " "}])
def test_a_name_that_can_be_none_is_refused_before_the_model_is_asked(log: TurnLog, given: dict[str, str]) -> None:
    """Also with a system prompt before what is asked, and where a run goes on and says nothing of its own."""
    head = log.add_turn("Before.", bookmark="main")
    [field] = given
    for content, settings in (("Go.", {"system": "Be brief."}), ("Go.", {}), (None, {"continues": "main"})):
        adapter = Scripted(say("Never asked for."))
        with pytest.raises(MetaError) as raised:
            run(log, adapter, content, **settings, **given)
        assert (raised.value.field, adapter.bodies) == (field, [])
    assert [turn.id for turn in log.ancestry("main")] == [head.id]
    assert len(log.threads()) == 1


@pytest.mark.parametrize("given", [{"bookmark": "a\x1bb"}, {"subject": " "}])
def test_what_goes_before_content_is_recorded_under_names_that_are_some(log: TurnLog, given: dict[str, str]) -> None:
    """As of a turn that is recorded alone."""
    before = [Attached(name="notes.txt", payload=b"Bolts.").draft()]
    names: dict[str, Any] = {"bookmark": None, "subject": None, **given}
    with pytest.raises(MetaError):
        record_opening(log, "Go.", before, continues=(), expected_head=None, inherited={}, api_key=None, **names)
    assert log.threads() == []


def test_the_name_of_a_document_is_text(log: TurnLog) -> None:
    """One that is not UTF-8 cannot be stored."""
    with pytest.raises(MetaError, match="document_name"):
        run(log, Scripted(), attachments=Attached(name="half \ud83d.txt", payload=b"Bolts."))
    assert log.threads() == []


def test_what_goes_before_content_needs_content(log: TurnLog, tmp_path: Path) -> None:
    """A run that goes on from a turn says nothing of its own."""
    log.add_turn("Go.", bookmark="main")
    settings = {"model": MODEL, "adapter": Scripted(), "connection": HERE, "continues": "main"}
    with pytest.raises(RunError, match=r"^system and attachments go before content: give content too$"):
        log.run(system="Be brief.", attachments=tmp_path / "nix", **values(**settings))
    with pytest.raises(RunError, match=r"^system is empty: give a system prompt, or leave it out$"):
        log.run("Go.", system=" ", **values(**settings))
    assert len(log.ancestry("main")) == 1


def test_the_key_is_taken_out_of_files_too(log: TurnLog, tmp_path: Path) -> None:
    """As it is of what is asked."""
    (tmp_path / "notes.txt").write_text("KEY=sk-secret-1")
    run(
        log,
        Scripted(say("Yes.")),
        "sk-secret-1?",
        attachments=tmp_path / "notes.txt",
        connection=Connection(api_key="sk-secret-1"),
        bookmark="main",
    )
    notes, asked, _ = log.ancestry("main")
    assert (log.payload(notes.id), log.payload(asked.id)) == (
        b"KEY=[redacted: api-key]",
        b'[{"type":"text","text":"[redacted: api-key]?"}]',
    )
