"""`turnlog prove` and `verify-proof`: show others what is in the log, and check what was shown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from turnlog.audit.checkpoints import SignedCheckpoint, written_hash
from turnlog.audit.proofs import (
    CONSISTENCY,
    PROOF_BYTES_MAX,
    ConsistencyReport,
    ProofReport,
    ShownEvent,
    check_consistency,
    check_proof,
    parse_proof,
    write_proof,
)
from turnlog.cli.failures import EXIT_DAMAGE, UsageError, error_line
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, write_json
from turnlog.cli.proving import CheckpointFile, Withhold, Withholding, read_one_note
from turnlog.cli.targets import new_file
from turnlog.cli.text import count, one_line, timestamp
from turnlog.cli.verifiers import read_verifiers
from turnlog.errors import ProofError
from turnlog.events.times import time_of


def prove(  # noqa: PLR0913 - one for each option
    event: str,
    new: Path | None = None,
    /,
    *,
    output: Annotated[Path, Parameter(alias="-o", help="The proof file to write.")],
    thread: Annotated[bool, Parameter(negative=(), help="Show the whole ancestry of the turn too.")] = False,
    call: Annotated[
        bool,
        Parameter(negative=(), help="Show what the models were sent and answered too: request, loss report, reply."),
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
    with common.open() as log:
        if new is not None:
            text = log.audit.prove_consistency(read_one_note(Path(event)), read_one_note(new))
            shown, warning = "the log has only grown", ""
        else:
            note = None if checkpoint is None else read_one_note(checkpoint)
            withheld = Withholding(withhold, log)
            proof = log.audit.prove(event, note=note, thread=thread, calls=call, withheld=withheld)
            withheld.check()
            text = write_proof(proof)
            shown, warning = f"{count(len(proof.events), 'event')} shown", withheld.warning
        with new_file(output, common, force=force) as file:
            file.write(text.encode())
    if common.json:
        write_json({"file": str(output), "bytes": len(text.encode())})
    else:
        screen = Screen.of_stdout()
        screen.line((one_line(str(output)), "bold green"), f"  {shown}")
        if warning:
            screen.text(f"  {warning}", "yellow")


def verify_proof(
    file: Path,
    /,
    *,
    key: Annotated[
        tuple[Path, ...],
        Parameter(negative=(), consume_multiple=False, help="File with the keys to believe. By default your own."),
    ] = (),
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
    try:
        text = _text(file)
        if text.startswith(CONSISTENCY + "\n"):
            report = check_consistency(text, verifiers)
        else:
            report = check_proof(parse_proof(text), verifiers)
    except ProofError as error:
        if common.json:
            write_json({"holds": False, "why": str(error)})
        sys.stderr.write(error_line(f"it does not hold: {error}") + "\n")
        return EXIT_DAMAGE
    if isinstance(report, ConsistencyReport):
        _write_consistency(report, common)
    else:
        _write_proof(report, common)
    return 0


def _text(file: Path) -> str:
    with file.open("rb") as opened:
        content = opened.read(PROOF_BYTES_MAX + 1)
    if len(content) > PROOF_BYTES_MAX:
        raise ProofError(f"a proof has at most {PROOF_BYTES_MAX:,} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ProofError(f"{str(file)!r} is not UTF-8, and so no proof") from error


def _write_consistency(report: ConsistencyReport, common: Common) -> None:
    old, new = report.old.checkpoint, report.new.checkpoint
    if common.json:
        write_json({"holds": True, "origin": old.origin, "old": _signed(report.old), "new": _signed(report.new)})
        return
    screen = Screen.of_stdout()
    grown = f"  {one_line(old.origin)} has only grown, from {old.size:,} to {new.size:,} events"
    screen.line(("it holds", "bold green"), grown)
    _write_signed(screen, report.new)


def _write_proof(report: ProofReport, common: Common) -> None:
    if common.json:
        events = [
            {
                "id": event.id,
                "topic": event.topic,
                "time_ms": event.time_ms,
                "shown": event.shown,
                "withheld": event.withheld,
            }
            for event in report.events
        ]
        write_json({"holds": True, "checkpoint": _signed(report.signed), "index": report.index, "events": events})
        return
    screen = Screen.of_stdout()
    origin, size = one_line(report.signed.checkpoint.origin), report.signed.checkpoint.size
    shown = f"  {count(len(report.events), 'event')} of {origin}"
    screen.line(("it holds", "bold green"), f"{shown}, the first at global position {report.index + 1} of {size:,}")
    _write_signed(screen, report.signed)
    screen.table([_row(event) for event in report.events])


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
