"""How much memory commands take for a turn that is large: above what they take in any case, in sizes of its text."""

import base64
import json
import operator
import os
import random
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile

import pytest
from tests.agent.wires import KEY, OpenAI, set_up
from tests.cli import transcripts
from tests.cli.command import Command
from tests.cli.forked import Forked, can_fork
from tests.cli.proving import NAME, SigningCommand
from tests.servers.receiver import Receiver
from tests.soak import SOAK
from tests.wires.server import WireServer

from turnlog import TurnLog
from turnlog.interop.exports import WRITERS

TEXT_BYTES = 200 * 1024 * 1024 if SOAK else 8 * 1024 * 1024
TIMES_MAX = 2.5
TIMEOUT_S = 900 if SOAK else 120
pytestmark = [
    pytest.mark.timeout(TIMEOUT_S),
    pytest.mark.skipif(not can_fork({}), reason="what a command takes is told of copied processes, as on Linux"),
]
ASKING_TIMES_MAX = (2.5, 2.5, 2.5) if SOAK else (3.5, 3.5, 4.5)
"""Twice asking, and checking that. Requests of 8 MB are kept for the next one, and those of 200 MB are not."""

IN_BASE64_TIMES_MAX = 2 * 4 / 3 + 0.2
"""Twice four bytes for three: a document in a window, and in what is made of that."""

DOCUMENT_BYTES = max(TEXT_BYTES * 3 // 4, 64 * 1024 * 1024)
"""So large a document that neither its window nor the request is kept for the next one."""

IMPORTING_TIMES_MAX = (2.5, 2.5) if SOAK else (3.0, 3.7)
"""One large turn, and many: what is recorded in one transaction, 8 MiB of it, counts where there is no more."""

IN_SQLITE_TIMES_MAX = 2.5 if SOAK else 3.1
"""SQLite has pages of 2 MB beside."""

TURN_CHARACTERS = 20_000
BLOCK_CHARACTERS = 500

FEEDING_TIMES_MAX = {"otel": 2.0, "parquet": 6.0, "erase": 6.0}

SPANS_BYTES_MAX = 2 * 1024 * 1024
"""More than a span has of one text."""

AWS_KEY = "AKIA" + "7QZ4XW2LMN5RT3VB"

SHOWN_BYTES_MAX = 24 * 1024 * 1024
"""So much more takes what shows a part, however large the texts are."""

READING = (
    "context large",
    "context large --json",
    "show large",
    "show large --json",
    "cat large --json",
    "export large",
)

REQUESTS = () if SOAK else ("anthropic", "openai")
"""Not tried with a small text: requests of 8 MB are kept for the next one, and those of 200 MB are not."""

WRITING = (
    *(f"export large --format {form}" for form in sorted(WRITERS) if form not in REQUESTS),
    "feed jsonl NEW/lines",
    "prove large -o NEW/proof",
    "evidence large -o NEW/evidence",
    *(("verify-proof NEW/proof --show",) if SOAK else ()),
)
"""A proof that is read comes near the bound: of a text of 8 MB, what is read at a time counts. What is not tried with a
small text is written as others are."""

SEALED = ("context large", "show large", "verify", "prove large -o NEW/proof")

PROVE = f"prove large {'--call' if SOAK else '--thread --call'} -o NEW/proof"
"""With the thread it would be more than a proof can have: three times 200 MB, in base64 twice."""

PROVING = {
    "asked": (PROVE, "verify-proof NEW/proof", "evidence --proof NEW/proof -o NEW/evidence"),
    "answered": (PROVE, "verify-proof NEW/proof --show --json"),
    "sealed": (PROVE, "evidence large -o NEW/evidence", "feed jsonl NEW/lines --unseal"),
}
"""By how a call came to have the large text: asked with it, answered with it, or asked in a log that is sealed."""


def peak(turnlog: Command, *arguments: str | Path, stdin: str | Path = os.devnull, **variables: str) -> int:
    """Run the command, and return the bytes of memory that it took at most."""
    words, environment = list(map(str, arguments)), turnlog.environment(**variables)
    with Path(stdin).open("rb") as given, Path(os.devnull).open("wb") as nobody, TemporaryFile() as said:
        command = Forked(words, environment=environment, streams=(given.fileno(), nobody.fileno(), said.fileno()))
        status = command.wait(TIMEOUT_S)
        said.seek(0)
        assert status == 0, said.read().decode()
    return command.peak_bytes


def peaks_of(turnlog: Command, lines: Sequence[str]) -> list[int]:
    """Run commands, and return the bytes of memory that each took at most. `NEW` in them is a folder of the store."""
    folder = turnlog.store.with_suffix(".new")
    folder.mkdir()
    return [peak(turnlog, *line.replace("NEW", str(folder)).split()) for line in lines]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a large and a small text: half of it compresses well, half of it does not.

    Python has four bytes for each character of the large one: a character in it needs them.
    """
    folder = tmp_path_factory.mktemp("large")
    letters = base64.b64encode(random.Random(1).randbytes(TEXT_BYTES * 6 // 17)).decode()
    drawn = " ".join(letters[start : start + 16] for start in range(0, len(letters), 16))  # so short, none is a key
    (folder / "large.txt").write_text("More of it.\n" * (TEXT_BYTES // 24) + drawn + "\n\N{SLIGHTLY SMILING FACE}\n")
    (folder / "small.txt").write_text("More of it.\n")
    return folder


@pytest.fixture(scope="module")
def commands(folder: Path) -> dict[str, Command]:
    """The command, with a store that has the text as a turn, signed, for each of the two texts."""
    found = {name: SigningCommand(store=folder / f"{name}.db") for name in ("small", "large")}
    found["small"].ok("keys", "new", "--name", NAME)
    for name, command in found.items():
        command.ok("add", "-b", "large", stdin=(folder / f"{name}.txt").read_bytes())
        command.ok("export", "-o", folder / f"{name}.jsonl")
        command.ok("checkpoint")
    return dict(found)


@pytest.fixture(scope="module")
def listed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Command]:
    """The command, with a store that has the text four times as a turn of one thread, for each of the two texts."""
    place = tmp_path_factory.mktemp("listed")
    found = {name: Command(store=place / f"{name}.db") for name in ("small", "large")}
    for name, command in found.items():
        text = (folder / f"{name}.txt").read_bytes()
        command.ok("add", "-b", "large", stdin=text)
        for _ in range(3):
            command.ok("add", "-c", "large", stdin=text)
    return found


def write_small_blocks(text: str, path: Path) -> Path:
    """Write a text as content blocks of some hundred characters each, and return where."""
    pieces = [text[start : start + BLOCK_CHARACTERS] for start in range(0, len(text), BLOCK_CHARACTERS)]
    path.write_text(json.dumps([{"type": "text", "text": piece} for piece in pieces]))
    return path


def times(small: int, large: int) -> float:
    """Return what a command took for the large text in sizes of it."""
    return (large - small) / TEXT_BYTES


@pytest.mark.parametrize("arguments", READING)
def test_a_large_turn_is_read_in_little_more_than_twice_its_size(commands: dict[str, Command], arguments: str) -> None:
    """Its payload, and what is made of it."""
    small, large = (peak(commands[name], *arguments.split()) for name in ("small", "large"))

    assert times(small, large) <= TIMES_MAX


@pytest.mark.parametrize("format", [*transcripts.FORMATS, "llm"])
def test_a_transcript_is_imported_in_little_more_than_twice_its_size(folder: Path, tmp_path: Path, format: str) -> None:
    """With one large turn, and with many turns: what was recorded is let go, and what is not stands there once."""
    text = (folder / "large.txt").read_text()
    pieces = [text[start : start + TURN_CHARACTERS] for start in range(0, len(text), TURN_CHARACTERS)]
    peaks: list[int] = []
    for name, texts in {"small": ["Well."], "one": [text], "many": pieces}.items():
        command, path = Command(store=tmp_path / f"{name}.db"), tmp_path / name
        transcripts.write(format, texts, path)
        peaks.append(peak(command, "import", path))
        with TurnLog.open(command.url) as log:
            window = log.context(log.latest(1)[0].id)
        assert [message.role for message in window.messages] == ["user", "assistant"] * len(texts)
    small, one, many = peaks
    found = times(small, one), times(small, many)
    assert all(map(operator.le, found, IMPORTING_TIMES_MAX)), found


@pytest.mark.parametrize("kind", [*transcripts.ELSEWHERE, "llm, call"])
def test_text_in_text_is_imported_in_little_more_than_twice_the_size_of_its_file(
    folder: Path, tmp_path: Path, kind: str
) -> None:
    """Arguments that are JSON in a text, what is put together of texts, and what is only compared."""
    peaks: list[int] = []
    for name in ("small", "large"):
        command, path = Command(store=tmp_path / f"{name}.db"), tmp_path / name
        transcripts.write_elsewhere(kind, (folder / f"{name}.txt").read_text(), path)
        peaks.append(peak(command, "import", path))
        with TurnLog.open(command.url) as log:
            assert log.verify().clean
    small, large = peaks
    most = IN_SQLITE_TIMES_MAX if kind == "llm, call" else IMPORTING_TIMES_MAX[0]
    assert (large - small) / (tmp_path / "large").stat().st_size <= most


def test_text_is_printed_as_it_is_decoded(tmp_path: Path) -> None:
    """Python has four bytes for each character of a text with a single one that needs them: it is never whole."""
    found: list[int] = []
    for size in (1, TEXT_BYTES // 24):
        turnlog = Command(store=tmp_path / f"{size}.db")
        text = tmp_path / "text"
        text.write_text("More of it.\n" * size + "\N{SLIGHTLY SMILING FACE}\n" + 'Less "of" it\n' * (size * 12 // 13))
        peak(turnlog, "add", "-b", "large", stdin=text)
        found.append(peak(turnlog, "show", "large"))
        found.append(peak(turnlog, "show", "large", "--json"))
        assert turnlog.ok("show", "large").stdout.decode().endswith(text.read_text())
    assert max(map(times, found[:2], found[2:])) <= TIMES_MAX


def test_a_large_turn_is_written_in_little_more_than_twice_its_size(commands: dict[str, Command]) -> None:
    """In every form, also as proof and evidence: what is made of it goes out in pieces."""
    small, large = (peaks_of(commands[name], WRITING) for name in ("small", "large"))

    found = {line: times(*peaks) for line, *peaks in zip(WRITING, small, large, strict=True)}
    assert {line: factor for line, factor in found.items() if factor > TIMES_MAX} == {}


def test_words_of_a_large_turn_are_found_in_little_more_than_twice_its_size(folder: Path, tmp_path: Path) -> None:
    """Making the index takes it in pieces; with the index, hardly anything is read."""
    peaks: dict[str, list[int]] = {"small": [], "large": []}
    for name, of_text in peaks.items():
        command = Command(store=tmp_path / f"{name}.db")
        command.ok("add", stdin=(folder / f"{name}.txt").read_bytes())
        of_text += [peak(command, "search", "more"), peak(command, "search", "more")]
    making, searching = zip(*peaks.values(), strict=True)
    assert times(*making) <= TIMES_MAX
    assert searching[1] - searching[0] <= SHOWN_BYTES_MAX


@pytest.mark.parametrize("arguments", ["log", "threads", "children large~2", "ancestry large", "log --all -n 2"])
def test_large_turns_are_listed_by_their_beginnings(listed: dict[str, Command], arguments: str) -> None:
    """One after the other, and none is read to its end."""
    small, large = (peak(listed[name], *arguments.split()) for name in ("small", "large"))
    assert large - small <= SHOWN_BYTES_MAX
    assert listed["large"].ok("log").text.count("More of it.") >= 4


def test_large_turns_are_compacted_in_the_size_of_their_window(folder: Path, tmp_path: Path) -> None:
    """What is asked of other windows of these turns is asked before, also where they have a summary."""
    turns, taken = (2 if SOAK else 9), list[list[int]]()
    for name in ("small", "large"):
        command, text = Command(store=tmp_path / f"{name}.db"), (folder / f"{name}.txt").read_text()
        with TurnLog.open(command.url) as log:
            for number in range(turns):  # more than a window may have that is kept for the next one
                log.add_turn(f"{number} {text}", continues="main" if number else None, bookmark="main")
        asked = ("compact", "main", "--keep-first", "0", "--keep-last", "1", "--min-turns", "1")
        first = [peak(command, *asked, "--dry-run"), peak(command, *asked, "--text", "Summary")]
        command.ok("add", "-c", "main", "More.")
        taken.append([*first, peak(command, *asked, "--dry-run")])
    assert max(times(*of_both) for of_both in zip(*taken, strict=True)) <= turns + TIMES_MAX - 1


def test_a_model_is_asked_with_a_large_turn_in_little_more_than_twice_its_size(folder: Path, tmp_path: Path) -> None:
    """The window goes when the request is made, and that is recorded and sent without copies of it.

    Twice: the second request has parts of the first. And what was recorded is made again and compared.
    """
    wire = OpenAI(streamed=False)
    asking = ("run", "And?", "-c", "large", "-p", "kilo", "--no-stream")
    commands = (asking, asking, ("replay", "large", "--check"))
    peaks: list[list[int]] = []
    for name in ("small", "large"):
        command = Command(store=tmp_path / f"{name}.db")
        command.ok("add", "-b", "large", stdin=(folder / f"{name}.txt").read_bytes())
        with WireServer(wire.reply("Well."), wire.reply("Well.")) as server:
            with TurnLog.open(command.url) as log:
                set_up(log, wire, server.url)
            peaks.append([peak(command, *arguments, OPENAI_API_KEY=KEY) for arguments in commands])
            assert len(server.received) == 2
    found = tuple(map(times, *peaks))
    assert all(map(operator.le, found, ASKING_TIMES_MAX)), found


def test_a_large_turn_is_fed_in_few_times_its_size(folder: Path, tmp_path: Path) -> None:
    """A span has a part of what was said. A Parquet file has the text twice, and its writer a page of it twice more."""
    wire = OpenAI(streamed=False)
    peaks: dict[str, list[int]] = {"otel": [], "parquet": [], "erase": []}
    for name in ("small", "large"):
        command = Command(store=tmp_path / f"{name}.db")
        with WireServer(wire.reply("Well.")) as server:
            with TurnLog.open(command.url) as log:
                set_up(log, wire, server.url)
            asking = ("run", "-b", "large", "-p", "kilo", "--no-stream")
            peak(command, *asking, stdin=folder / f"{name}.txt", OPENAI_API_KEY=KEY)
        with Receiver() as collector:
            peaks["otel"].append(peak(command, "feed", "otel", collector.url, "--content"))
            assert [len(each.body) < SPANS_BYTES_MAX for each in collector.received] == [True]
        peaks["parquet"].append(peak(command, "feed", "parquet", tmp_path / name))
        peaks["erase"].append(peak(command, "erase", "--turn", "large", "--reason", "asked", "--yes"))
    found = {what: times(*of_both) for what, of_both in peaks.items()}
    assert {what: factor for what, factor in found.items() if factor > FEEDING_TIMES_MAX[what]} == {}, found


@pytest.mark.parametrize("adapter", ["openai_chat", "anthropic"])
def test_a_large_window_is_prepared_in_little_more_than_twice_its_size(
    commands: dict[str, Command], tmp_path: Path, adapter: str
) -> None:
    """What was read goes when the window was made of it."""
    peaks: list[int] = []
    for name, command in commands.items():
        window = tmp_path / f"{name}.json"
        window.write_bytes(command.ok("context", "large", "--json").stdout)
        peaks.append(peak(command, "wire", "prepare", window, "--provider", adapter, "--model", "m"))
    assert times(*peaks) <= TIMES_MAX


@pytest.mark.parametrize("kind", ["result", "document", "text document", "input", "thought", "native"])
def test_whatever_is_large_is_shown_and_prepared_in_little_more_than_twice_its_size(
    folder: Path, tmp_path: Path, kind: str
) -> None:
    """Also what a tool answered or was given, what was thought, and a document, which has four bytes for three in a
    window. Text of one is text there.

    Nearly all forms of an export have a document, or what is said of it, as it is written.
    """
    reading = ["context large", "context large --whole", "context large --json", "show large"]
    preparing = [f"wire prepare NEW.json --provider {wire} --model m" for wire in ("openai_chat", "anthropic")]
    in_values = {
        "input": {"canonical", "geppetto", "gmi"},
        "thought": {"geppetto"},
        "native": {"geppetto"},
        "text document": set() if SOAK else {"geppetto"},  # as it writes a text, which takes it longest of all
    }
    forms = sorted(WRITERS.keys() - in_values.get(kind, set()))
    exporting = [f"export large --format {form}" for form in forms] if kind != "result" else []
    lines = [*reading, *preparing, *exporting]
    peaks: list[list[int]] = []
    for name in ("small", "large"):
        command, text = Command(store=tmp_path / f"{name}.db"), (folder / f"{name}.txt").read_text()
        thought = {"type": "thinking", "thinking": text if kind == "thought" else "So.", "signature": "s"}
        asked = {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": text if kind == "input" else ""}}
        native = {"type": "native", "provider": "x", "block": {"type": "y", "a": text if kind == "native" else ""}}
        blocks = json.dumps([thought, native, asked]).encode()
        command.ok("add", "--blocks", "--role", "assistant", "-b", "large", stdin=blocks)
        answered = {"type": "tool_result", "tool_use_id": "c1", "content": text if kind == "result" else "Well."}
        command.ok("add", "--blocks", "-c", "large", stdin=json.dumps([answered]).encode())
        if kind.endswith("document"):
            place = tmp_path / ("a.pdf" if kind == "document" else "a.csv")
            place.write_bytes((b"%PDF-1.7\n" if kind == "document" else b"") + text.encode())
            command.ok("document", place, "-c", "large", "--max-bytes", str(2 * TEXT_BYTES))
        command.store.with_suffix(".new.json").write_bytes(command.ok("context", "large", "--json").stdout)
        peaks.append(peaks_of(command, lines))
    found = dict(zip(lines, map(times, *peaks), strict=True))
    in_base64 = {*preparing, *(f"export large --format {form}" for form in ("anthropic", "geppetto", "gmi", "openai"))}
    most = {
        line: IN_BASE64_TIMES_MAX if line in in_base64 and kind.endswith("document") else TIMES_MAX for line in lines
    }
    assert {line: factor for line, factor in found.items() if factor > most[line]} == {}


def test_a_model_is_asked_with_a_large_document_in_twice_its_base64(tmp_path: Path) -> None:
    """What is recorded of the request is compressed in pieces, also where it hardly can be; no other window is made."""
    wire = OpenAI(streamed=False)
    peaks: list[int] = []
    for size in (100, DOCUMENT_BYTES):
        command = Command(store=tmp_path / f"{size}.db")
        (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7\n" + random.Random(1).randbytes(size))
        command.ok("document", tmp_path / "a.pdf", "-b", "large", "--max-bytes", str(2 * size))
        with WireServer(wire.reply("Well.")) as server:
            with TurnLog.open(command.url) as log:
                set_up(log, wire, server.url)
            asking = ("run", "And?", "-c", "large", "-p", "kilo", "--no-stream")
            peaks.append(peak(command, *asking, OPENAI_API_KEY=KEY))
    assert (peaks[1] - peaks[0]) / DOCUMENT_BYTES <= IN_BASE64_TIMES_MAX


@pytest.mark.parametrize(
    ("form", "is_new"), [("text", True), ("blocks", False), ("small blocks", False), ("redacted", False)]
)
def test_a_large_turn_is_added_in_little_more_than_twice_its_size(
    turnlog: Command, folder: Path, tmp_path: Path, form: str, *, is_new: bool
) -> None:
    """What was read goes when it is a payload; what a new store would refuse is found out without keeping it.

    Secrets are looked for in pieces of a text, also where there are some and where its characters take four bytes.
    """
    if not is_new:
        turnlog.ok("add", "before")
    peaks: list[int] = []
    for name in ("small", "large"):
        command = Command(store=tmp_path / f"{name}.db") if is_new else turnlog
        source = folder / f"{name}.txt"
        if form == "blocks":
            text = source.read_text().replace("\n", r"\n")
            source = tmp_path / f"{name}.json"
            source.write_text(f'[ {{"type": "text", "text": "{text}"}} ]')
        if form == "small blocks":
            source = write_small_blocks(source.read_text(), tmp_path / f"{name}.json")
        if form == "redacted":
            text = source.read_text()
            source = tmp_path / f"{name}.txt"
            source.write_text(f"\N{SLIGHTLY SMILING FACE}\n{AWS_KEY}\n{text}{AWS_KEY}\n")
        options: list[str] = ["--redact"] if form == "redacted" else [] if form == "text" else ["--blocks"]
        # The rules are compiled by the first command and loaded by the second, as where a person redacts at first.
        rules = str(tmp_path / "rules")
        peaks.append(peak(command, "add", "-b", name, *options, stdin=source, KF_RULE_CACHE_DIR=rules))
        if form == "redacted":
            clean = source.read_bytes().replace(AWS_KEY.encode(), b"[redacted: aws-key]")
            assert command.ok("show", name).stdout.endswith(clean)
    assert times(*peaks) <= TIMES_MAX


def test_a_large_turn_of_small_blocks_is_imported_in_little_more_than_twice_its_size(
    folder: Path, tmp_path: Path
) -> None:
    """Decoded, they would take more than their JSON: they are checked one by one."""
    peaks: list[int] = []
    for name in ("small", "large"):
        command = Command(store=tmp_path / f"{name}.db")
        source = write_small_blocks((folder / f"{name}.txt").read_text(), tmp_path / f"{name}.json")
        command.ok("add", "--blocks", stdin=source.read_bytes())
        command.ok("export", "-o", tmp_path / f"{name}.jsonl")
        again = Command(store=tmp_path / f"{name}-again.db")
        peaks.append(peak(again, "import", "turnlog", tmp_path / f"{name}.jsonl"))
    assert times(*peaks) <= TIMES_MAX


def test_large_turns_are_imported_in_little_more_than_twice_the_size_of_one(
    commands: dict[str, Command], folder: Path, tmp_path: Path
) -> None:
    """A line goes when its payload is taken out of it, and the payload before the next line comes."""
    peaks: list[int] = []
    for name in ("small", "large"):
        command = Command(store=tmp_path / f"{name}.db")
        peaks.append(peak(command, "import", "turnlog", folder / f"{name}.jsonl"))
    assert times(*peaks) <= TIMES_MAX
    assert commands["large"].ok("verify")


@pytest.mark.parametrize("kind", ["text", "document"])
def test_what_is_sealed_is_recorded_and_read_in_little_more_than_twice_its_size(
    folder: Path, tmp_path: Path, kind: str
) -> None:
    """What is sealed is held with what it is sealed from, or opened to, alone. The document does not compress."""
    peaks: list[list[int]] = []
    for name in ("small", "large"):
        command, source = SigningCommand(store=tmp_path / f"{name}.db"), folder / f"{name}.txt"
        if name == "small":
            command.ok("keys", "new", "--name", NAME)
        command.ok("add", "-b", "large", stdin=b"Hello")
        command.ok("seal")
        if kind == "text":
            recording = peak(command, "add", "-c", "large", stdin=source)
        else:
            document = tmp_path / f"{name}.pdf"
            document.write_bytes(b"%PDF-1.7\n" + random.Random(2).randbytes(source.stat().st_size))
            recording = peak(command, "document", document, "-c", "large", "--max-bytes", str(2 * TEXT_BYTES))
        command.ok("checkpoint")
        peaks.append([recording, *peaks_of(command, SEALED)])
    found = dict(zip(("recording", *SEALED), map(times, *peaks), strict=True))
    assert {line: factor for line, factor in found.items() if factor > TIMES_MAX} == {}


@pytest.mark.parametrize("kind", PROVING)
def test_a_call_with_a_large_turn_is_proved_in_little_more_than_twice_its_size(
    folder: Path, tmp_path: Path, kind: str
) -> None:
    """A proof has it as turn, as request, and as what is kept of the call: one after the other. So it is read, too."""
    wire = OpenAI(streamed=False)
    peaks: list[list[int]] = []
    for name in ("small", "large"):
        command, text = SigningCommand(store=tmp_path / f"{name}.db"), (folder / f"{name}.txt").read_text()
        if name == "small":
            command.ok("keys", "new", "--name", NAME)
        said, answered = ("Well?", text) if kind == "answered" else (text, "Well.")
        with WireServer(wire.reply(answered)) as server:
            with TurnLog.open(command.url) as log:
                set_up(log, wire, server.url)
            if kind == "sealed":
                command.ok("seal")
            asking = ("run", "-b", "large", "-p", "kilo", "--no-stream")
            assert command(*asking, stdin=said.encode(), OPENAI_API_KEY=KEY).status == 0
        command.ok("checkpoint")
        peaks.append(peaks_of(command, PROVING[kind]))
    found = dict(zip(PROVING[kind], map(times, *peaks), strict=True))
    assert {line: factor for line, factor in found.items() if factor > TIMES_MAX} == {}
