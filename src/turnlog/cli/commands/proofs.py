"""`turnlog prove` and `verify-proof`: show others what is in the log, and check what was shown."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from turnlog.audit.checkpoints import SignedCheckpoint, written_hash
from turnlog.audit.proof_events import Part, ShownEvent
from turnlog.audit.proofs import (
    ConsistencyReport,
    ProofParts,
    ProofReport,
    check_consistency,
    open_parts,
    proof_pieces,
)
from turnlog.audit.proving import proving
from turnlog.cli.blocks import Content
from turnlog.cli.completing import HEADISH
from turnlog.cli.evidence_page import record_of
from turnlog.cli.failures import EXIT_DAMAGE, UsageError, error_line
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, go_on_unheard, json_output, telling, write_json
from turnlog.cli.proving import (
    CheckpointFile,
    Withhold,
    Withholding,
    closed_count,
    consistency_text,
    conversations,
    left_open,
    proof_file,
    read_one_note,
)
from turnlog.cli.rows import role_style
from turnlog.cli.targets import new_file
from turnlog.cli.text import barred_pieces, count, fit, one_line, size, timestamp
from turnlog.cli.verifiers import read_verifiers
from turnlog.errors import ContentError, ProofError
from turnlog.events import TURN
from turnlog.events.times import time_of
from turnlog.model.json_text import minify
from turnlog.model.pieces import check_utf8

_REASON_CELLS_MAX = 300


def prove(  # noqa: PLR0913 - one for each option
    event: Annotated[str, HEADISH],
    new: Path | None = None,
    /,
    *,
    output: Annotated[Path, Parameter(alias="-o", help="The proof file to write.")],
    thread: Annotated[bool, Parameter(negative=(), help="Show the whole ancestry of the turn too.")] = False,
    call: Annotated[
        bool,
        Parameter(
            negative=(), help="Show what the models were sent and answered too: request, loss report, reply, summary."
        ),
    ] = False,
    withhold: Withhold = (),
    checkpoint: CheckpointFile = None,
    consistency: Annotated[
        bool, Parameter(negative=(), help="Prove that the log only grew from one checkpoint to another: OLD and NEW.")
    ] = False,
    force: Annotated[bool, Parameter(negative=(), help="Replace the file if it is there.")] = False,
    common: Common = COMMON,
) -> None:
    """Write a proof that a turn, or another event, is in the log, and of what it says.

    Who has the key of the checkpoint checks it with `turnlog verify-proof`, without the log.

    Parameters
    ----------
    event
        A turn id or bookmark, or the id of another event. With --consistency the older checkpoint, a file.
    new
        With --consistency the newer checkpoint, a file.
    """
    if consistency == (new is None):
        raise UsageError("--consistency takes two files: the older checkpoint and the newer one")
    told: dict[str, object] = {}
    with common.open() as log, ExitStack() as open_until_written:
        if new is not None:
            text = log.audit.prove_consistency(read_one_note(Path(event)), read_one_note(new))
            pieces = iter((text.encode(),))
            shown, warnings = "the log has only grown", list[str]()
        else:
            note_text = None if checkpoint is None else read_one_note(checkpoint)
            withheld = Withholding(withhold, log)
            proof = open_until_written.enter_context(
                proving(log.store, event, note=note_text, thread=thread, calls=call, withheld=withheld)
            )
            withheld.check()
            pieces = proof_pieces(proof)
            shown, warnings = f"{count(len(proof.events), 'event')} shown", withheld.warnings(proof)
            told = {"events": len(proof.events), "sealed": closed_count(proof), "guests": withheld.guests}
        with new_file(output, common, force=force) as file:
            size_bytes = sum(map(file.write, pieces))
    with telling(f"{str(output)!r} is written, but that could not be printed"):
        if common.json:
            write_json({"file": str(output), "bytes": size_bytes, **told})
        else:
            screen = Screen.of_stdout()
            screen.line((one_line(str(output)), "bold green"), f"  {shown}")
            for warning in warnings:
                screen.text(f"  {warning}", "yellow")


def verify_proof(
    file: Path,
    /,
    *,
    key: Annotated[
        tuple[Path, ...],
        Parameter(negative=(), consume_multiple=False, help="File with the keys to believe. By default your own."),
    ] = (),
    show: Annotated[
        bool, Parameter(negative=(), help="Print what the turns say too, oldest first; of another event its payload.")
    ] = False,
    common: Common = COMMON,
) -> int:
    """Check a proof file, without any log, and print what it proves.

    Exit status 1, and a line on standard error that says why, if it does not hold.

    Parameters
    ----------
    file
        What `turnlog prove` wrote.
    """
    verifiers = read_verifiers(key)
    if not show:
        go_on_unheard()  # the exit status tells, too
    with proof_file(file) as opened:
        try:
            if (text := consistency_text(opened)) is not None:
                _write_consistency(check_consistency(text, verifiers), common)
                return 0
            proof, report = open_parts(opened, verifiers)
        except ProofError as error:
            why = fit(one_line(str(error)), _REASON_CELLS_MAX)
            if common.json:
                write_json({"holds": False, "why": why})
            sys.stderr.write(error_line(f"it does not hold: {why}") + "\n")
            return EXIT_DAMAGE
        _write_parts(proof, report, common, show=show)
    return 0


def _write_parts(proof: ProofParts, report: ProofReport, common: Common, *, show: bool) -> None:
    payloads = {
        event.id: parts.payload
        for parts, event in zip(proof.events, report.events, strict=True)
        if "payload" in event.shown and parts.payload is not None
    }
    if common.json:
        json_output().writelines(_json_pieces(report, payloads if show else {}))
        return
    screen = Screen.of_stdout()
    _write_proof(screen, report)
    if show:
        asked_for, *others = conversations(report.events)
        for event in asked_for or report.events[:1]:
            screen.line()
            _write_content(screen, event, payloads.get(event.id))
        for turns in filter(None, others):
            screen.line()
            screen.line(("shown too, and continued by none of the turns above:", "red"))
            for event in turns:
                screen.line()
                _write_content(screen, event, payloads.get(event.id))
    elif payloads:
        screen.line(("  --show prints what they say", "dim"))


def _write_consistency(report: ConsistencyReport, common: Common) -> None:
    old, new = report.old.checkpoint, report.new.checkpoint
    if common.json:
        write_json({"holds": True, "origin": old.origin, "old": _signed(report.old), "new": _signed(report.new)})
        return
    screen = Screen.of_stdout()
    grown = f"  {one_line(old.origin)} has only grown, from {old.size:,} to {new.size:,} events"
    screen.line(("it holds", "bold green"), grown)
    _write_signed(screen, report.new)


def _json_pieces(report: ProofReport, payloads: Mapping[str, Part]) -> Iterator[bytes]:
    """Iterate over what a proof proves as a line of JSON, one payload after the other."""
    encode = msgspec.json.encode
    yield encode({"holds": True, "checkpoint": _signed(report.signed), "index": report.index})[:-1] + b',"events":['
    for number, event in enumerate(report.events):
        said = {
            "id": event.id,
            "topic": event.topic,
            "time_ms": event.time_ms,
            "shown": event.shown,
            "withheld": event.withheld,
        }
        yield (b"," if number else b"") + encode(said)[:-1]
        if event.id in payloads:
            yield b',"content":'
            yield _as_json(payloads[event.id].whole())
        yield b"}"
    yield b"]," + encode({"not_shown": report.not_shown, "guests_possible": report.guests_possible})[1:] + b"\n"


def _write_proof(screen: Screen, report: ProofReport) -> None:
    origin, total = one_line(report.signed.checkpoint.origin), report.signed.checkpoint.size
    shown = f"  {count(len(report.events), 'event')} of {origin}"
    screen.line(("it holds", "bold green"), f"{shown}, the first at global position {report.index + 1} of {total:,}")
    _write_signed(screen, report.signed)
    screen.table([_row(event) for event in report.events])
    for line in left_open(report):
        screen.line(f"  {line}")


def _write_content(screen: Screen, event: ShownEvent, payload: Part | None) -> None:
    """Print what an event says. Whoever has the key can have signed anything, so what is no content is text."""
    header, private = event.event.header, event.event.private
    public, meta = record_of(header.meta), {} if private is None else record_of(private.meta)
    who = str(public.get("role")) if event.topic == TURN else event.topic
    said = f"{who} · {public['model']}" if "model" in public else who
    screen.line(
        (f"── {one_line(said)}", role_style(who)), (f"  {event.id} · {timestamp(time_of(event.time_ms))}", "dim")
    )
    if "error" in meta:
        screen.line((f"failed: {one_line(str(meta['error']))}", "red"))
    if payload is None:
        what = "is sealed" if "sealed" in event.shown else "is not shown"
        screen.line((f"(its content {what})", "dim"))
        return
    if public.get("type") == "document":
        name, kind = (one_line(str(value)) for value in (meta.get("document_name", ""), public.get("content_type")))
        screen.line((f"document {name} ({kind}, {size(payload.size)})", "blue"))
        return
    content = payload.whole()
    try:
        if event.topic == TURN:
            Content(content).write(screen, whole=True)
            return
    except (ContentError, ValueError, RecursionError):
        pass
    screen.pieces(barred_pieces((content.decode(errors="backslashreplace"),)))


def _as_json(payload: bytes) -> bytes:
    try:
        check_utf8(payload)  # at once, of what may be large and no text at all
        return minify(payload, field="payload")
    except (UnicodeDecodeError, ContentError):
        return msgspec.json.encode({"type": "bytes", "size": len(payload)})


def _row(event: ShownEvent) -> list[tuple[str, str]]:
    time = timestamp(time_of(event.time_ms))
    shown = ", ".join(event.shown) or "header"
    what = f"{shown}; private part withheld or erased" if event.withheld else shown
    return [(f"  {event.id}", "yellow"), (time, "dim"), (one_line(event.topic), "cyan"), (what, "")]


def _write_signed(screen: Screen, signed: SignedCheckpoint) -> None:
    for verifier in signed.signed_by:
        screen.line("  signed by ", (one_line(verifier.name), "cyan"), (f"  {verifier.key_id.hex()}", "dim"))
    for name, time_s in signed.cosigned_by:
        screen.line("  witnessed by ", (one_line(name), "cyan"), f"  {timestamp(time_of(time_s * 1000))}")


def _signed(signed: SignedCheckpoint) -> dict[str, object]:
    checkpoint = signed.checkpoint
    return {
        "origin": checkpoint.origin,
        "size": checkpoint.size,
        "root": written_hash(checkpoint.root),
        "signed_by": [verifier.name for verifier in signed.signed_by],
        "cosigned_by": [{"name": name, "time_s": time_s} for name, time_s in signed.cosigned_by],
    }
