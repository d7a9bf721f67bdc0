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


def test_what_libyaml_refuses_is_read_from_the_beginning_by_the_other(tmp_path: Path) -> None:
    """Such as two halves of a pair, each escaped: as text, and of a file."""
    text = 'id: t\n---\nblocks: [{kind: user, payload: {text: "\\ud83d\\ude00"}}]'
    assert [*loading.documents(text)][1]["blocks"][0]["payload"] == {"text": "\U0001f600"}
    path = tmp_path / "turns.yaml"
    path.write_text(text, encoding="utf-8")
    with path.open("rb") as file:
        assert [*loading.documents(file)] == [*loading.documents(text)]


@pytest.mark.parametrize("text", ["[" * 5_000, "- " * 5_000, "{a: " * 5_000])
def test_what_is_nested_too_deeply_is_refused(text: str) -> None:
    """By both."""
    with pytest.raises(ContentError, match=r"turn: (nested too deeply|not valid YAML)"):
        geppetto.turn_from_yaml(text)
