"""Data exports of chat services as zips and folders, damaged at random: no traceback, and what goes in is whole."""

import json
import tempfile
import tracemalloc
import warnings
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZIP_LZMA, ZIP_STORED, ZipFile, ZipInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.soak import SOAK
from tests.unit.interop.transcripts import test_anthropic_export, test_openai_export
from tests.unit.interop.transcripts.damage import Sample, damaged, one
from tests.unit.interop.transcripts.promises import check_damaged, check_importing

from turnlog import TurnLog
from turnlog.errors import FormatError, TurnlogError
from turnlog.interop.finding import find, formats_of
from turnlog.interop.transcripts import Problem
from turnlog.store import payloads

EXAMPLES = 5000 if SOAK else 25
Files = Mapping[str, bytes]


def _openai_files() -> Files:
    parts = [
        {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-A1", "width": 1},
        {"content_type": "audio_transcription", "text": "Spoken.", "direction": "in"},
        "What is it?",
    ]
    content = {"content_type": "multimodal_text", "parts": parts}
    nodes = [test_openai_export.node("r", None), test_openai_export.node("u", "r", "user", content)]
    return {
        "conversations.json": test_openai_export.written(
            test_openai_export.conversation(test_openai_export.NODES), test_openai_export.conversation(nodes, "c-2")
        ),
        "images/file-A1-cat.png": b"png",
        "user.json": b"{}",
    }


def _anthropic_files() -> Files:
    return {
        "conversations.json": test_anthropic_export.written(test_anthropic_export.MESSAGES),
        "users.json": json.dumps([{"uuid": "u"}]).encode(),
    }


EXPORTS: dict[str, Callable[[], Files]] = {"openai-export": _openai_files, "anthropic-export": _anthropic_files}


def _zipped(files: list[tuple[str, bytes]], compression: int) -> bytes:
    zipped = BytesIO()
    with warnings.catch_warnings(), ZipFile(zipped, "w", compression) as file:
        warnings.simplefilter("ignore")  # a name that comes twice
        for name, content in files:
            # Without the time of now: the same files are the same zip.
            file.writestr(ZipInfo(name), content, compression)
    return zipped.getvalue()


@pytest.fixture(scope="module", params=list(EXPORTS))
def format(request: pytest.FixtureRequest) -> str:
    """Give the name of each format of exports."""
    return request.param


def check(sample: Sample) -> None:
    """Look for the format of a sample, and import it: again adds nothing, and errors are turnlog's own."""
    with tempfile.TemporaryDirectory() as folder:
        path = sample.write(Path(folder))
        check_damaged(sample.format, path)
        for look in (formats_of, lambda each: find([each])):
            try:
                look(path)
            except TurnlogError as error:
                assert str(error)  # noqa: PT017 - any of turnlog's errors will do


@pytest.mark.parametrize("compression", [ZIP_STORED, ZIP_DEFLATED])
def test_zip_and_folder_are_sound(format: str, compression: int, tmp_path: Path) -> None:
    """Both say the same."""
    files = EXPORTS[format]()
    zipped = one(format, _zipped([*files.items()], compression), "export.zip").write(tmp_path)
    report, found = check_importing(format, zipped)
    assert (report.damaged, formats_of(zipped)) == (0, [format])
    unpacked = Sample(format=format, files={f"export/{name}": files[name] for name in files}, named="export")
    folder = unpacked.write(tmp_path)
    assert (check_importing(format, folder)[1], formats_of(folder)) == (found, [format])


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_damage_of_a_zip_is_reported(format: str, data: st.DataObject) -> None:
    """Cut, flipped, or with other bytes in it: of the whole file, its directory too."""
    compression = data.draw(st.sampled_from([ZIP_STORED, ZIP_DEFLATED]))
    check(damaged(data.draw, one(format, _zipped([*EXPORTS[format]().items()], compression), "export.zip")))


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_damage_of_members_is_reported(format: str, data: st.DataObject) -> None:
    """Missing ones, two of a name, others than there should be, and damaged ones; in a zip and in a folder."""
    names = sorted(files := EXPORTS[format]())
    kept = {name: files[name] for name in data.draw(st.lists(st.sampled_from(names), unique=True))}
    strange = st.sampled_from(
        ["../out.json", "/root.json", "a/../conversations.json", "conversations_2.json", "x" * 200]
    )
    kept |= dict(data.draw(st.lists(st.tuples(strange, st.sampled_from([b"", b"[]", b"\xff", *files.values()])))))
    if kept and data.draw(st.booleans()):
        kept = {**damaged(data.draw, Sample(format=format, files=kept, named=".")).files}
    twice = data.draw(st.lists(st.sampled_from(sorted(kept)), max_size=2)) if kept else []
    members = [*kept.items(), *((name, files["conversations.json"]) for name in twice)]
    check(one(format, _zipped(members, ZIP_DEFLATED), "export.zip"))
    inside = {f"export/{name}": kept[name] for name in kept if not name.startswith(("..", "/"))}
    if inside:
        check(Sample(format=format, files=inside, named="export"))


@pytest.mark.parametrize("flags", [1, 0xFFFF])
@pytest.mark.parametrize("method", [0, 1, 8, 14, 99])
def test_members_that_cannot_be_unpacked_are_refused(format: str, flags: int, method: int) -> None:
    """Encrypted ones, and those of compressions that nobody knows."""
    content = bytearray(_zipped([*EXPORTS[format]().items()], ZIP_DEFLATED))
    for magic, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = content.find(magic)
        while start >= 0:
            content[start + at : start + at + 4] = flags.to_bytes(2, "little") + method.to_bytes(2, "little")
            start = content.find(magic, start + 4)
    check(one(format, bytes(content), "export.zip"))


def test_list_that_is_none_is_refused(format: str) -> None:
    """Whatever stands in its place."""
    values: list[Any] = [None, 7, "x", {}, [], [[]], [{}], [[[]] * 3], "[" * 2000, "[" + '{"a":' * 2000]
    for value in values:
        content = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        check(one(format, _zipped([("conversations.json", content)], ZIP_DEFLATED), "export.zip"))
        check(one(format, content, "conversations.json"))


def test_list_that_breaks_off_behind_a_number_of_thousands_of_digits_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    """Python reads no such number where the list has to be read item by item."""
    sound = test_openai_export.written(test_openai_export.conversation([test_openai_export.node("r", None)]))
    path = tmp_path / "conversations.json"
    path.write_bytes(sound.rstrip()[:-1] + b',{"n":' + b"9" * 5000 + b"},{")
    with TurnLog.open("memory://") as log:
        report = log.import_transcript("openai-export", path)
    assert (report.places, ["not JSON from here" in problem.what for problem in report.problems]) == (2, [True])


def test_one_file_that_cannot_be_read_does_not_lose_the_rest(tmp_path: Path) -> None:
    """Neither a list of conversations beside others, nor an image."""
    files = EXPORTS["openai-export"]()
    more = test_openai_export.written(test_openai_export.conversation(test_openai_export.NODES, "c-3"))
    content = _zipped([*files.items(), ("conversations-2.json", more)], ZIP_STORED)
    for name, damage in ((b"png", b"gnp"), (b'"c-3"', b'"c-4"')):
        assert content.count(name) >= 1
        at = content.rindex(name) if name != b"png" else content.index(b".pngpng") + 4
        content = content[:at] + damage + content[at + len(damage) :]
    path = tmp_path / "export.zip"
    path.write_bytes(content)
    report, found = check_importing("openai-export", path)
    assert report.sessions == ("c-1", "c-2")
    assert (report.damaged, found["text", "What is it?"]) == (1, 1)
    told = [problem.what.partition(" in ")[0] for problem in report.problems]
    assert {"'images/file-A1-cat.png'", "'conversations-2.json'"} < {*told}
    assert [kind for kind, *_ in found if kind in ("native", "document")] == ["native"]


@pytest.mark.parametrize("packed", ["zip", "folder"])
def test_document_that_no_payload_has_room_for_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: str
) -> None:
    """The rest goes in. It is not read: a small zip can have as much of it as fills the memory."""
    monkeypatch.setattr(payloads, "PAYLOAD_BYTES_MAX", 400_000)
    files = {**EXPORTS["openai-export"](), "images/file-A1-cat.png": bytes(300_001)}
    if packed == "zip":
        path = one("openai-export", _zipped([*files.items()], ZIP_DEFLATED), "export.zip").write(tmp_path)
        assert path.stat().st_size < 10_000
    else:
        path = Sample(format="openai-export", files=files, named=".").write(tmp_path / "export")
    report, found = check_importing("openai-export", path)
    assert [kind for kind, *_ in found if kind in ("native", "document")] == ["native"]
    what = (
        f"'images/file-A1-cat.png' in {str(path)!r} has 300,001 bytes, more than the limit of 300,000: it was left out"
    )
    assert Problem(place=2, what=what) in report.problems


def test_conversations_that_are_larger_than_a_payload_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a zip, which says what to do; its folder is read."""
    monkeypatch.setattr(payloads, "PAYLOAD_BYTES_MAX", 500_000)
    sound = test_openai_export.written(test_openai_export.conversation(test_openai_export.NODES))
    files = [("conversations.json", sound), ("conversations-2.json", sound.replace(b"c-1", b"c-2") + b" " * 500_000)]
    path = one("openai-export", _zipped(files, ZIP_DEFLATED), "export.zip").write(tmp_path)
    size = len(files[1][1])
    what = (
        f"'conversations-2.json' in {str(path)!r} has {size:,} bytes, more than the limit of 500,000: unpack the zip, "
    )
    report, _ = check_importing("openai-export", path)
    assert report.sessions == ("c-1",)
    assert Problem(place=2, what=f"{what}and import its folder: it was left out") in report.problems
    folder = Sample(format="openai-export", files=dict(files), named=".").write(tmp_path / "export")
    assert check_importing("openai-export", folder)[0].sessions == ("c-2", "c-1")
    path.write_bytes(_zipped([("conversations.json", files[1][1])], ZIP_DEFLATED))
    with (
        TurnLog.open("memory://") as log,
        pytest.raises(FormatError, match=r"more than the limit.*nothing was imported"),
    ):
        log.import_transcript("openai-export", path)


def test_size_that_is_a_lie_is_told(tmp_path: Path) -> None:
    """No more is unpacked than the directory of a zip says."""
    size = 40 * 1024 * 1024
    files = {**EXPORTS["openai-export"](), "images/file-A1-cat.png": bytes(size)}
    content = _zipped([*files.items()], ZIP_DEFLATED)
    at = content.rindex(size.to_bytes(4, "little"))
    path = tmp_path / "export.zip"
    path.write_bytes(content[:at] + (1000).to_bytes(4, "little") + content[at + 4 :])
    tracemalloc.start()
    report, _ = check_importing("openai-export", path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < size // 4
    assert any("'images/file-A1-cat.png' in" in each.what and "bad crc-32" in each.what for each in report.problems)


@pytest.mark.parametrize("compression", [ZIP_BZIP2, ZIP_LZMA])
def test_zip_that_is_packed_as_in_no_export_is_refused(tmp_path: Path, compression: int) -> None:
    """What these have is unpacked as a whole, however large it is."""
    path = tmp_path / "export.zip"
    path.write_bytes(_zipped([*EXPORTS["openai-export"]().items()], compression))
    assert formats_of(path) == []
    with (
        TurnLog.open("memory://") as log,
        pytest.raises(FormatError, match="as in no export: unpack the zip, and import"),
    ):
        log.import_transcript("openai-export", path)


def test_name_that_several_members_have_is_told(tmp_path: Path) -> None:
    """The last one is read, as whatever unpacks it would."""
    first, last = (
        test_openai_export.written(test_openai_export.conversation(test_openai_export.NODES, id)) for id in ("a", "b")
    )
    path = tmp_path / "export.zip"
    path.write_bytes(_zipped([("conversations.json", first), ("conversations.json", last)], ZIP_DEFLATED))
    report, _ = check_importing("openai-export", path)
    what = "several files of the export have the name 'conversations.json': the last one is read"
    assert (report.sessions, report.problems) == (("b",), (Problem(place=0, what=what),))


def test_link_out_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    """What an archive was unpacked to may lead to any file."""
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"secret")
    folder = Sample(format="openai-export", files=EXPORTS["openai-export"](), named=".").write(tmp_path / "export")
    image = folder / "images" / "file-A1-cat.png"
    image.unlink()
    image.symlink_to(secret)
    report, found = check_importing("openai-export", folder)
    assert [kind for kind, *_ in found if kind in ("native", "document")] == ["native"]
    what = "the file 'file-service://file-A1' is not in the export: kept as a native block"
    link = Problem(place=0, what="images/file-A1-cat.png: a link out of the folder, not followed")
    assert {Problem(place=2, what=what), link} < {*report.problems}
