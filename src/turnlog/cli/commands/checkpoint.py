"""`turnlog checkpoint`: sign the head of the log, and show what was signed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from turnlog.audit import KeptCheckpoint
from turnlog.audit.anchors import read_note_text
from turnlog.audit.checkpoints import parse_checkpoint, written_hash
from turnlog.audit.heads import default_signed_heads
from turnlog.audit.notes import COSIGNATURE, Note, Verifier, parse_note
from turnlog.audit.places import parse_place
from turnlog.audit.proofs import split_notes
from turnlog.cli.failures import UsageError
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, note, telling, write_json, write_json_lines
from turnlog.cli.targets import check_place, new_file
from turnlog.cli.text import count, one_line
from turnlog.cli.verifiers import find_signer, own_verifiers, read_verifiers
from turnlog.errors import ProofError
from turnlog.log import TurnLog

app = App(name="checkpoint", group_commands="Commands", help="Sign the head of the log; list what was signed.")


@app.default
def checkpoint(
    *,
    key: Annotated[
        str | None, Parameter(help="Name of the key. By default TURNLOG_CHECKPOINT_KEY, or the only one.")
    ] = None,
    origin: Annotated[
        str | None, Parameter(help="What identifies the log. By default as before, else turnlog/ and the log's id.")
    ] = None,
    output: Annotated[Path | None, Parameter(alias="-o", help="Write the signed note to this file.")] = None,
    force: Annotated[bool, Parameter(negative=(), help="Replace the file of -o if it is there.")] = False,
    to: Annotated[
        tuple[str, ...],
        Parameter(
            negative=(),
            consume_multiple=False,
            help="A place outside the store: FOLDER/, a file to append to, command:…, https://…. Repeatable.",
        ),
    ] = (),
    witness: Annotated[
        tuple[str, ...],
        Parameter(negative=(), consume_multiple=False, help="URL of a witness to ask for its signature. Repeatable."),
    ] = (),
    witness_key: Annotated[
        tuple[Path, ...],
        Parameter(negative=(), consume_multiple=False, help="File with the keys of the witnesses. Repeatable."),
    ] = (),
    common: Common = COMMON,
) -> None:
    """Sign a checkpoint of all events there are: the size of the log and the root of its Merkle tree.

    It is kept in the store. What proves something is a copy that whoever writes the store cannot change: -o, --to.
    """
    signer = find_signer(key)
    if origin == "":
        raise UsageError("--origin is empty: give what identifies the log, or leave it out")
    for text in to:
        check_place(text, common)
    places = [parse_place(text) for text in to]
    witnesses = _witnesses(witness, witness_key)
    with common.open() as log:
        with ExitStack() as stack:
            file = None if output is None else stack.enter_context(new_file(output, common, force=force))
            heads = default_signed_heads(os.environ)
            cosigned = partial(_cosigned, log, witnesses) if witnesses else None
            made = log.audit.checkpoint(signer, origin=origin, known=own_verifiers(), cosigned=cosigned, heads=heads)
            if file is not None:
                file.write(made.note.encode())
        log.audit.publish(made, places)  # the file is there, whatever becomes of the places
    with telling(f"the checkpoint of {made.size} events is signed and kept, but that could not be printed"):
        if common.json:
            write_json(_record(made))
        else:
            screen = Screen.of_stdout()
            root, origin = written_hash(made.root), one_line(made.origin)
            screen.line((count(made.size, "event"), "bold green"), "  ", (root, "yellow"), "  ", (origin, "dim"))
            for name in made.signatures:
                screen.line("  signed by ", (one_line(name), "cyan"))


@app.command(name="list")
def list_(*, common: Common = COMMON) -> None:
    """List the checkpoints that the store keeps, the smallest first."""
    with common.open() as log:
        found = log.audit.checkpoints()
    if common.json:
        write_json_lines(map(_record, found))
        return
    if not found:
        note("no checkpoints yet: `turnlog checkpoint` signs one")
        return
    Screen.of_stdout().table(
        [
            [
                (f"{one.size:,}", "bold green"),
                (written_hash(one.root), "yellow"),
                (one_line(one.origin), "dim"),
                (one_line(", ".join(one.signatures)), "cyan"),
            ]
            for one in found
        ]
    )


@app.command
def show(size: int | None = None, /, *, common: Common = COMMON) -> None:
    """Print a kept checkpoint as its signed note.

    Parameters
    ----------
    size
        How many events it covers; by default the last one.
    """
    with common.open() as log:
        found = [one for one in log.audit.checkpoints() if size is None or one.size == size]
    if not found:
        raise UsageError("there is no such checkpoint: see `turnlog checkpoint list`")
    if common.json:
        write_json(_record(found[-1]))
    else:
        Screen.of_stdout().text(found[-1].note.removesuffix("\n"))


@app.command
def cosign(
    file: Path,
    /,
    *,
    key: Annotated[
        tuple[Path, ...], Parameter(negative=(), consume_multiple=False, help="File with the keys of witnesses.")
    ],
    common: Common = COMMON,
) -> None:
    """Take cosignatures of witnesses in, which were made elsewhere, for checkpoints that the store keeps.

    Parameters
    ----------
    file
        Signed notes with further signatures.
    """
    witnesses = read_verifiers(key)
    text = read_note_text(file)
    with common.open() as log:
        try:
            for signed in map(parse_note, split_notes(text)):
                more = _taken_in(log, signed, witnesses)
                with telling(
                    f"cosignatures of the checkpoint of {more.size} events are kept, but could not be printed"
                ):
                    if common.json:
                        write_json(_record(more))
                    else:
                        names = one_line(", ".join(more.signatures))
                        Screen.of_stdout().line(f"{more.size:,}  signed by ", (names, "cyan"))
        except ProofError as error:
            raise ProofError(f"{file}: {error}") from error


def _taken_in(log: TurnLog, signed: Note, witnesses: Sequence[Verifier]) -> KeptCheckpoint:
    """Take cosignatures in, and return the checkpoint with them.

    Raises:
        ProofError: the store keeps no such checkpoint, or none of them is of a witness.
    """
    kept = next((one for one in log.audit.checkpoints() if parse_note(one.note).text == signed.text), None)
    if kept is None:
        size = parse_checkpoint(signed.text).size
        raise ProofError(f"the store keeps no such checkpoint of {size} events: only its own can be cosigned")
    return log.audit.cosigned(kept, [signature.line for signature in signed.signatures], witnesses)


def _witnesses(urls: tuple[str, ...], files: tuple[Path, ...]) -> list[tuple[str, Verifier]]:
    """Return each witness with its key.

    Raises:
        UsageError: a key is missing, or is none of a witness.
    """
    if len(files) != len(urls):
        raise UsageError("give a --witness-key FILE for each --witness URL, in the same order")
    found: list[tuple[str, Verifier]] = []
    for url, file in zip(urls, files, strict=True):
        keys = [verifier for verifier in read_verifiers([file]) if verifier.kind == COSIGNATURE]
        if not keys:
            raise UsageError(f"{str(file)!r} has no key of a witness: `turnlog keys export --witness` prints one")
        found.append((url, keys[0]))
    return found


def _cosigned(log: TurnLog, witnesses: list[tuple[str, Verifier]], note_text: str) -> list[str]:
    """Ask witnesses for their signatures of a checkpoint that is not kept yet."""
    from turnlog.audit.witness import request_cosignature  # noqa: PLC0415 - most commands ask no witness

    prove = partial(log.audit.consistency_proof, size2=parse_checkpoint(parse_note(note_text).text).size)
    return [request_cosignature(url, note_text, 0, [], verifier, prove=prove) for url, verifier in witnesses]


def _record(made: KeptCheckpoint) -> dict[str, object]:
    return {
        "size": made.size,
        "root": written_hash(made.root),
        "origin": made.origin,
        "signatures": made.signatures,
        "note": made.note,
    }
