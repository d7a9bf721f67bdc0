"""What a person may say to a log, recorded in every way that there is, and a search for traces of it in raw files."""

import random
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from turnlog import LossEntry, LossReport, Response, Text, TurnLog
from turnlog.model import CallError, ReplyFacts
from turnlog.providers import PreparedRequest

RUN = 8
"""No run of so many bytes of what was erased is left anywhere."""

SIZES = (8, 40, 100, 127, 128, 200, 1000, 4000, 8000, 20_000, 60_000, 65_535, 65_536, 100_000, 1_000_000)
"""Bytes of contents: in a page, over many, as files, on both sides of each limit."""


def raw_files(folder: Path) -> bytes:
    """Return all bytes of the files below a folder, with their names, and what is in Zstandard frames among them."""
    parts: list[bytes] = []
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        raw = file.read_bytes()
        parts += [str(file.relative_to(folder)).encode(), raw]
        for found in re.finditer(re.escape(b"\x28\xb5\x2f\xfd"), raw):
            with suppress(zstandard.ZstdError):
                parts.append(zstandard.ZstdDecompressor().decompressobj().decompress(raw[found.start() :]))
    return b"\n".join(parts)


def runs(secret: bytes) -> set[bytes]:
    """Return all runs of a secret."""
    return {secret[place : place + RUN] for place in range(max(1, len(secret) - RUN + 1))}


def traces(folder: Path, secrets: list[bytes]) -> set[bytes]:
    """Return the runs of secrets that are in the files of a folder, and the secrets that are shorter than a run."""
    raw = raw_files(folder)
    # No run has a byte that no secret has: what is between such bytes, and long enough, is looked at.
    may_have = re.compile(b"[%b]{%d,}" % (b"".join(b"\\x%02x" % byte for byte in {*b"".join(secrets)}), RUN))
    found = {part[at : at + RUN] for part in may_have.findall(raw) for at in range(len(part) - RUN + 1)}
    # All runs of the secrets take a second to make: they are made where there is much to be looked up.
    said = set().union(*map(runs, secrets)) if len(found) > 1000 else b"\0".join(secrets)
    return {run for run in found if run in said} | {secret for secret in secrets if len(secret) < RUN and secret in raw}


CYRILLIC = "".join(map(chr, range(0x410, 0x450)))
"""What the person writes in. Others do not: so no run of theirs is one of the person's by chance."""


class Talk:
    """Records one of everything that can carry what a person said. `secrets` has what they said."""

    def __init__(self, log: TurnLog, folder: Path, seed: int, *, alphabet: str = CYRILLIC) -> None:
        self.log = log
        self.folder = folder
        self.random = random.Random(seed)
        self.alphabet = alphabet
        self.secrets: list[bytes] = []

    def text(self, size: int) -> str:
        """Return text of the person's, half of it such that it can be compressed."""
        width = len(self.alphabet[0].encode())
        word = "".join(self.random.choices(self.alphabet, k=max(4, size // width // 2)))
        text = (word * 3)[: size // width]
        self.secrets.append(text.encode())
        return text

    def name(self, kind: str) -> str:
        return f"{kind} {self.text(16)}"

    def fill(self, subject: str | None = None) -> list[str]:
        """Record a thread of turns, documents, calls and bookmarks, and return the ids of its turns."""
        log, ids = self.log, []
        bookmark = self.name("bookmark")
        for number, size in enumerate(SIZES):
            where: dict[str, Any] = {"continues": bookmark} if number else {"bookmark": bookmark, "subject": subject}
            ids.append(log.add_turn(self.text(size), inherited={"note": self.text(20)}, **where).id)
        for size in (10, 100_000):
            document = self.folder / self.name("document")
            document.write_bytes(self.text(size).encode())
            ids.append(log.add_document(document, continues=bookmark).id)
            document.unlink()
        ids.append(
            log.add_turn(self.text(30), continues=bookmark, role="assistant", reply=ReplyFacts(error=self.text(40))).id
        )
        for number in range(3):
            call = self.call(bookmark)
            ids.append(self.reply(call, bookmark, failed=number == 2))
        side, renamed = self.name("side"), self.name("renamed")
        log.bookmarks.set(side, ids[3])
        log.bookmarks.rename(side, renamed)
        log.bookmarks.delete(renamed)
        return ids

    def call(self, bookmark: str) -> str:
        window = self.log.context(bookmark)
        head = self.log.turn(bookmark).id
        entry = LossEntry(kind="dropped", turn=head, block="thinking", why=self.text(20), index=0)
        request = PreparedRequest(
            adapter="openai_chat",
            version="1",
            provider="openai",
            api="chat",
            model="m",
            stream=True,
            head=b'{"model":"m","messages":[',
            messages=[message.content_json + b"," for message in window.messages],
            closing=b"{}]}",
            loss_report=LossReport(entries=(entry,)),
            params={"user": self.text(16)},
        )
        return self.log.calls.record(head, request)

    def reply(self, call: str, bookmark: str, *, failed: bool) -> str:
        said = self.text(300)
        response = Response(
            content=(Text(text=said),),
            model="m",
            stop_reason="error" if failed else "stop",
            provider="openai",
            api="chat",
            error=CallError(message=self.text(50)) if failed else None,
        )
        events = [msgspec.json.encode({"delta": said, "instructions": self.secrets[0].decode()})]
        return self.log.calls.record_reply(call, events, response, continues=bookmark).id
