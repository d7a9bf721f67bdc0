"""The two parsers that YAML is read with: libyaml's, and PyYAML's own where that refuses or is not there."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from turnlog import ContentError, TurnLog
from turnlog.interop import geppetto
from turnlog.interop.geppetto_model import loading
from turnlog.model.pieces import PIECE

PARTS = [
    *("a", "key", "- ", "-", ": ", ":", "? ", "|", "|-\n", "|2\n", ">", "> \n", ">+\n", "\n", "\n  ", "\n    ", " "),
    *("  ", '"', "'", "\\n", "\\u00e9", "\\x41", "\\/", "\\\n", "{", "}", "[", "]", ",", ", ", "#", " #c", "&x "),
    *("!!str ", "!!int ", "!!binary ", "!!set ", "!!null ", "---\n", "...\n", "%YAML 1.1\n", "1", "1.5", "0x1f"),
    *("true", "null", "~", "<<", "=", "\u00e9", "\U0001f600", "\u2028", "\x85", "\r\n", "@", "`", "%", "2001-01-01"),
    *("''", '""', "k: v", "- x", "text: {a: b}", "x:y", "a#b", "- - ", "? a\n: b\n"),
]
"""What YAML is made of."""


def read(text: str) -> list[Any] | None:
    """Return the documents of a text, None where it cannot be read."""
    try:
        return [*loading.documents(text)]
    except loading.UNREADABLE:
        return None


def test_both_parsers_read_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever both can read."""
    assert yaml.__with_libyaml__, "what is tested is not there"
    seeded = random.Random(7)
    texts = ["".join(seeded.choices(PARTS, k=seeded.randint(1, 12))) for _ in range(4_000)]
    texts += [f"blocks:\n- kind: user\n  payload:\n    text: {text}" for text in texts[:2_000]]
    fast = [read(text) for text in texts]
    monkeypatch.setattr(loading, "_LibyamlLoader", None)
    slow = [read(text) for text in texts]
    both = [(text, one, other) for text, one, other in zip(texts, fast, slow, strict=True) if other is not None]
    assert len(both) > 1_000
    assert [text for text, one, other in both if repr(one) != repr(other)] == []


@pytest.mark.parametrize("has_libyaml", [True, False])
def test_a_file_is_read_up_to_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_libyaml: bool
) -> None:
    """Once, and what is wrong is told with its line."""
    if not has_libyaml:
        monkeypatch.setattr(loading, "_LibyamlLoader", None)
    path = tmp_path / "turns.yaml"
    good = "blocks: [{kind: user, payload: {text: a}}]\n---\n"
    path.write_text(f"\ufeff{good}{good.replace('a}', 'b}')}blocks: [}}\n", encoding="utf-8")
    with TurnLog.open("memory://") as log:
        report = log.import_transcript("geppetto", path)
        assert sorted(log.text(turn.id) for turn in log.latest(9)) == ["a", "b"]
    assert [problem.what for problem in report.problems] == [
        "document: not valid YAML: while parsing a flow node expected the node content, but found '}' in \"<unicode "
        'string>", line 5, column 10: blocks: [} ^: from there on nothing was read'
    ]


def test_what_libyaml_refuses_is_read_by_the_other(tmp_path: Path) -> None:
    """Such as two halves of a pair, each escaped: as text, and of a file."""
    text = 'id: t\n---\nblocks: [{kind: user, payload: {text: "\\ud83d\\ude00"}}]'
    assert [*loading.documents(text)][1]["blocks"][0]["payload"] == {"text": "\U0001f600"}
    path = tmp_path / "turns.yaml"
    path.write_text(text, encoding="utf-8")
    with path.open("rb") as file:
        assert [*loading.documents(file)] == [*loading.documents(text)]


@pytest.mark.parametrize(
    "before", ["", "# c\n", "\n", "\ufeff", "id: t1\nblocks: []\n---\n", "# " + "c" * PIECE + "\n"]
)
def test_byte_order_mark_inside_loses_nothing(tmp_path: Path, before: str) -> None:
    """Such as that of a file that was put behind another one: libyaml would take its first line for indented."""
    text = f"{before}\ufeffid: t2\nblocks: [{{kind: user, payload: {{text: a}}}}]\n"
    path = tmp_path / "turns.yaml"
    path.write_text(text, encoding="utf-8")
    with TurnLog.open("memory://") as log:
        report = log.import_transcript("geppetto", path)
        assert [log.text(turn.id) for turn in log.latest(9)] == ["a"]
    assert len(report.problems) == (0 if not before else 1)
    with path.open("rb") as file:
        assert [*loading.documents(file)][-1]["blocks"] == [{"kind": "user", "payload": {"text": "a"}}]


def test_what_is_wrong_is_told_by_the_parser_that_read_the_rest(tmp_path: Path) -> None:
    """A tab is for libyaml, halves of a pair are for PyYAML: what both refuse is told of where the reading ended."""
    path = tmp_path / "turns.yaml"
    good = "blocks: [{kind: user, payload: {text: a\tb}}]\n---\n"
    path.write_text(f"{good}id: t\nid: t\n---\n{good}", encoding="utf-8")
    with TurnLog.open("memory://") as log:
        report = log.import_transcript("geppetto", path)
    assert report.turns_added == 1
    assert [problem.what for problem in report.problems] == [
        "document: not valid YAML: the key 'id' is there twice in \"<file>\", line 4, column 1: from there on nothing "
        "was read"
    ]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (f"0x{'60' * 2_400}", f"'0x{'60' * 29}'… cannot be read as tag:yaml.org,2002:int: quote it if it is text"),
        ("9" * 5_000, f"'{'9' * 60}'… cannot be read as tag:yaml.org,2002:int: quote it if it is text"),
        ("!!bool maybe", "'maybe' cannot be read as tag:yaml.org,2002:bool: quote it if it is text"),
        ("!!timestamp soon", "'soon' cannot be read as tag:yaml.org,2002:timestamp: quote it if it is text"),
        (f"{{{'k' * 90}: 1, {'k' * 90}: 2}}", f"the key '{'k' * 60}'… is there twice"),
        ("!!str {!!value =: a}", "the tag !!value is not read: write the text that is meant"),
        ("{? !!str {!!value =: a} : b}", "the tag !!value is not read: write the text that is meant"),
    ],
)
def test_what_cannot_be_read_as_its_tag_is_told_with_its_line(value: str, says: str) -> None:
    """In a line that is not too long."""
    with pytest.raises(ContentError) as raised:
        geppetto.turn_from_yaml(f"id: t\nblocks:\n- kind: user\n  payload:\n    a: {value}\n")
    assert str(raised.value).startswith(f"turn: not valid YAML: {says} in ")
    assert "line 5, column " in str(raised.value)


def test_what_is_long_is_told_in_short(tmp_path: Path) -> None:
    """A kind, or a key that is unknown."""
    path = tmp_path / "turn.yaml"
    path.write_text(f"id: t\nblocks:\n- kind: {'k' * 5_000}\n  payload: {{text: a}}\n", encoding="utf-8")
    with TurnLog.open("memory://") as log:
        report = log.import_transcript("geppetto", path)
    assert [len(problem.what) for problem in report.problems] == [1_001]


@pytest.mark.parametrize("text", ["[" * 5_000, "- " * 5_000, "{a: " * 5_000])
def test_what_is_nested_too_deeply_is_refused(text: str) -> None:
    """By both."""
    with pytest.raises(ContentError, match=r"turn: (nested too deeply|not valid YAML)"):
        geppetto.turn_from_yaml(text)
