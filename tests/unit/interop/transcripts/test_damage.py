"""What every format of transcripts promises of files that are damaged, and of files that have secrets in them."""

import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.cli import transcripts as large
from tests.docs.pages import ROOT
from tests.soak import SOAK
from tests.unit.interop.test_claude_code import rich_session
from tests.unit.interop.transcripts import (
    test_anthropic_export,
    test_atif,
    test_chat_messages,
    test_codex,
    test_cursor,
    test_gemini_cli,
    test_gemini_sessions,
    test_geppetto,
    test_llm_logs,
    test_openai_export,
    test_opencode,
    test_xs,
)
from tests.unit.interop.transcripts.damage import Sample, damaged, misplaced, one, planted
from tests.unit.interop.transcripts.promises import check_damaged, check_importing, check_nothing_of, take

from turnlog import TurnLog
from turnlog.errors import FormatError, TurnlogError
from turnlog.interop import formats, geppetto
from turnlog.interop.finding import formats_of
from turnlog.record.findings import Found, Place

EXAMPLES = 5000 if SOAK else 25
ALIKE_MAX = 5000 if SOAK else 2
"""In so many records of a file a secret is planted in the same field."""

SECRET = "key-7Hq2Zr9Wm4Xt"
MARK = "a-mark-7Hq2Zr"

PAGE = (ROOT / "docs/reference/transcripts.md").read_text(encoding="utf-8")
HEADINGS = {*re.findall("^## (.*)$", PAGE, re.MULTILINE), "claude-code"}
"""Claude Code has a page of its own."""


def _claude_code() -> Sample:
    return one("claude-code", b"\n".join(rich_session().lines), "session.jsonl")


def _llm(schema: str, rows: test_llm_logs.Rows) -> Sample:
    with tempfile.TemporaryDirectory() as folder:
        return one("llm", test_llm_logs.written(Path(folder) / "logs.db", schema, rows), "logs.db")


def _xs() -> Sample:
    with tempfile.TemporaryDirectory() as folder:
        export = test_xs.sample(Path(folder))
        files = {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}
        return Sample(format="xs", files=files, named=export.folder.name)


def _family() -> Sample:
    files = test_gemini_sessions.family_files()
    return Sample(format="gemini-cli", files=files, named=next(iter(files)))


SAMPLES: dict[str, Callable[[], Sample]] = {
    "anthropic-export": lambda: one(
        "anthropic-export", test_anthropic_export.written(test_anthropic_export.MESSAGES), "conversations.json"
    ),
    "atif": lambda: one("atif", test_atif.written(test_atif.STEPS, subagent_trajectories=[test_atif.SUB])),
    "chat-messages": lambda: one(
        "chat-messages", test_chat_messages.whole(test_chat_messages.MESSAGES), "messages.json"
    ),
    "chat-messages lines": lambda: one(
        "chat-messages", test_chat_messages.lines(test_chat_messages.MESSAGES), "messages.jsonl"
    ),
    "chat-messages of Anthropic": lambda: one(
        "chat-messages", json.dumps(test_chat_messages.ANTHROPIC).encode(), "request.json"
    ),
    "claude-code": _claude_code,
    "codex": lambda: one("codex", test_codex.written(test_codex.SESSION), "rollout.jsonl"),
    "cursor": lambda: one("cursor", test_cursor.written(test_cursor.SESSION), "transcript.jsonl"),
    "gemini-cli": lambda: one("gemini-cli", test_gemini_cli.written(test_gemini_cli.MESSAGES)),
    "gemini-cli lines": lambda: one(
        "gemini-cli", test_gemini_sessions.lines(*test_gemini_sessions.LINES), "session.jsonl"
    ),
    "gemini-cli family": _family,
    "gemini-cli chat": lambda: one("gemini-cli", json.dumps({"history": test_gemini_cli.CHAT}).encode()),
    "geppetto": lambda: one("geppetto", geppetto.run_to_json(test_geppetto.sample())),
    "geppetto lines": lambda: one(
        "geppetto", b"\n".join(map(geppetto.turn_to_json, test_geppetto.sample().turns)), "turns.json"
    ),
    "llm": lambda: _llm(test_llm_logs.OLDER, test_llm_logs.FIRST + test_llm_logs.SECOND),
    "llm newer": lambda: _llm(test_llm_logs.OLDER + test_llm_logs.NEWER, test_llm_logs.MESSAGES + test_llm_logs.REST),
    "openai-export": lambda: one(
        "openai-export",
        test_openai_export.written(test_openai_export.conversation(test_openai_export.NODES)),
        "conversations.json",
    ),
    "opencode": lambda: one("opencode", test_opencode.written(test_opencode.SESSION), "opencode.jsonl"),
    "xs": _xs,
}
"""Whole files of each format, by its name, and what is special about them."""


@pytest.fixture(scope="module", params=list(SAMPLES))
def sample(request: pytest.FixtureRequest) -> Sample:
    """Give a sample of each format."""
    return SAMPLES[request.param]()


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("TRANSCRIPTS of src/turnlog/interop/formats.py", set(formats.TRANSCRIPTS)),
        ("SAMPLES of tests/unit/interop/transcripts/test_damage.py", {name.split()[0] for name in SAMPLES}),
        ("FORMATS of tests/cli/transcripts.py", {*large.FORMATS, *large.NOT_OF_RECORDS}),
        ("the headings of docs/reference/transcripts.md", HEADINGS),
    ],
)
def test_each_format_is_in_the_table(place: str, found: set[str]) -> None:
    """So that what is promised of all is tried with each."""
    missing = sorted(formats._BUILT_IN.keys() - found)
    assert not missing, f"add {', '.join(missing)} to {place}"
    assert found <= formats._BUILT_IN.keys()


def test_sample_is_sound(sample: Sample, tmp_path: Path) -> None:
    """It says something, and nothing is wrong with it."""
    report, found = check_importing(sample.format, sample.write(tmp_path))
    assert (report.damaged, found.total() > 0) == (0, True)


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_damage_is_reported_and_the_rest_goes_in(sample: Sample, data: st.DataObject) -> None:
    """Whatever the damage: no error but that nothing was imported; what is imported is clean and whole."""
    with tempfile.TemporaryDirectory() as folder:
        path = damaged(data.draw, sample).write(Path(folder))
        check_damaged(sample.format, path)


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_what_is_out_of_place_is_kept_or_told(sample: Sample, data: st.DataObject) -> None:
    """Wherever it stands: it is in the log, in a turn or beside it, or it is said that it was left out."""
    changed = misplaced(data.draw, sample, MARK)
    assume(changed != sample)
    with tempfile.TemporaryDirectory() as folder, TurnLog.open("memory://") as log:
        try:
            report = take(log, changed.format, changed.write(Path(folder)))
        except FormatError:
            return
        with log.store.read() as transaction:
            kept = [each.private_state or b"" for each in transaction.log()]
            kept += [transaction.payload(each) or b"" for each in transaction.log()]
    told = any("left out" in problem.what for problem in report.problems)
    assert told or any(MARK.encode() in each for each in kept), report.problems


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_format_of_damaged_files_is_looked_for(sample: Sample, data: st.DataObject) -> None:
    """Without an error but turnlog's own."""
    with tempfile.TemporaryDirectory() as folder:
        path = damaged(data.draw, sample).write(Path(folder))
        for each in (path, *path.rglob("*")) if path.is_dir() else (path,):
            try:
                formats_of(each)
            except TurnlogError as error:
                assert str(error)  # noqa: PT017 - any of turnlog's errors will do


def fish(text: str, place: Place) -> Iterator[Found]:
    """Find the secret."""
    del place
    for found in re.finditer(re.escape(SECRET), text):
        yield Found(start=found.start(), end=found.end(), kind="test-key")


def test_nothing_of_a_secret_is_stored_wherever_it_is(sample: Sample, tmp_path: Path) -> None:
    """In texts, thinking, arguments and results of tools, titles, names, and keys."""
    places = Counter[str]()
    for where, with_secret in planted(sample, SECRET):
        alike = re.sub("[0-9]+", "", where)  # the same field, in another record of the file
        places[alike] += 1
        if places[alike] > ALIKE_MAX:
            continue
        folder = tmp_path / str(places.total())
        path = with_secret.write(folder / "given")
        # That a file has no more than its tables does not depend on the place.
        store = folder / "store" if len(places) % 10 == 1 else None
        check_nothing_of(SECRET, sample.format, path, store, [fish], where)
    assert places
