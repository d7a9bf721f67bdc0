"""The tables of the page on providers say what the adapters say themselves."""

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import pytest
from tests.docs.pages import ROOT

from turnlog import UnsupportedContentError
from turnlog.model import ContextWindow, parse_window
from turnlog.providers import Capabilities, get
from turnlog.providers.registry import BUILT_IN

PAGE = (ROOT / "docs" / "reference" / "providers.md").read_text(encoding="utf-8")
WINDOW: ContextWindow = parse_window('{"messages":[{"role":"user","content":"Hello."}],"options":{}}')


def table(heading: str) -> list[list[str]]:
    """Return the rows of the first table under a heading, cells without backquotes and blanks."""
    rows: list[list[str]] = []
    for line in PAGE.partition(f"\n## {heading}\n")[2].splitlines():
        if line.startswith("|"):
            rows.append([cell.strip().replace("`", "") for cell in line.strip("|").split("|")])
        elif rows:
            break
    return [rows[0], *rows[2:]]


def said(can: Capabilities) -> Iterator[tuple[str, str]]:
    """Iterate over the rows of the table of capabilities with what it has to say of an adapter."""

    def takes(media_type: str, patterns: tuple[str, ...]) -> bool:
        return any(fnmatchcase(media_type, pattern) for pattern in patterns)

    def yes(truth: object) -> str:
        return "yes" if truth else "no"

    others = [
        name
        for name, media_type in (
            ("Office files", "application/vnd.ms-excel"),
            ("audio", "audio/mp3"),
            ("video", "video/mp4"),
        )
        if takes(media_type, can.documents)
    ]
    in_results = [
        name
        for name, media_type in (("images", "image/png"), ("PDF", "application/pdf"))
        if takes(media_type, can.result_documents)
    ]
    yield "system turns", {"joined": "joined", "inline": "in place"}[can.system]
    yield "images", yes(takes("image/png", can.documents))
    yield "PDF", yes(takes("application/pdf", can.documents))
    yield "other documents", ", ".join(others) or "no"
    yield "text-like documents", "as text" if can.text_documents else "no"
    yield "documents in tool results", ", ".join(in_results) or "no"
    yield "texts of one turn", "joined" if can.joins_texts else "apart"
    yield "thinking goes back", "no" if can.thinking == "none" else can.thinking
    yield "native blocks go back", yes(can.native)
    yield "a result can be an error", {True: "yes", "text": "of text alone", False: "no"}[can.result_errors]
    yield "longest tool id", "no ids" if can.tool_id_pattern is None else str(can.tool_id_characters_max)
    yield "search", {"none": "no", "alone": "alone", "beside_tools": "beside tools"}[can.search]
    yield "cache breakpoints", str(can.cache_breakpoints_max or "no")


def test_all_adapters_are_described() -> None:
    """Each adapter of turnlog is in the table, with the provider, the api and the key that it has."""
    rows = table("The adapters")
    assert sorted(row[0] for row in rows[1:]) == sorted(BUILT_IN)
    for row in rows[1:]:
        adapter = get(row[0])
        assert (row[2], row[3]) == (f"{adapter.provider}, {adapter.api}", adapter.key_variable)


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_capabilities_are_as_described(name: str) -> None:
    """The table of what a wire carries has, for each adapter, what its capabilities say."""
    rows = table("What a wire carries")
    column = rows[0].index(name)
    assert [(row[0], row[column]) for row in rows[1:]] == list(said(get(name).capabilities))


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_parameters_are_as_described(name: str) -> None:
    """Each parameter is in the body under the name that the table says, or refused where it says so."""
    rows = table("Parameters")
    [row] = [row for row in rows if row[0] == name]
    values: dict[str, Any] = {"max_tokens": 77, "temperature": 0.5, "top_p": 0.5, "stop_sequences": ["x"]}
    for parameter, spelled in zip(rows[0][1:], row[1:], strict=True):
        try:
            request = get(name).prepare_request(WINDOW, model="m", params={parameter: values[parameter]})
        except UnsupportedContentError:
            assert spelled == "not there: refused"
            continue
        body = json.loads(request.body)
        assert body.get("generationConfig", body.get("inferenceConfig", body))[spelled] == values[parameter]
