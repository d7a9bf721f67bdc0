"""`turnlog evidence`: a folder for an auditor."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from turnlog.audit.checkpoints import open_checkpoint
from turnlog.audit.notes import Verifier
from turnlog.audit.proofs import ProofParts, check_parts, open_parts
from turnlog.audit.proving import proving
from turnlog.cli.completing import HEADISH
from turnlog.cli.evidence import check_folder, evidence_files, write_folder
from turnlog.cli.failures import UsageError
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, noting, telling, write_json
from turnlog.cli.proving import CheckpointFile, Withhold, Withholding, left_open, proof_file, read_one_note
from turnlog.cli.text import count, one_line
from turnlog.cli.verifiers import read_verifiers
from turnlog.events import CALL, TURN, Recorded


def evidence(
    headish: Annotated[str | None, HEADISH] = None,
    /,
    *,
    output: Annotated[Path, Parameter(alias="-o", help="The folder to make.")],
    withhold: Withhold = (),
    checkpoint: CheckpointFile = None,
    key: Annotated[
        tuple[Path, ...],
        Parameter(
            negative=(),
            consume_multiple=False,
            help="File with the keys that signed the checkpoint. By default those of your own that did.",
        ),
    ] = (),
    proof: Annotated[
        Path | None, Parameter(help="Make it of this proof of a turn, without any log, in place of HEADISH.")
    ] = None,
    force: Annotated[bool, Parameter(negative=(), help="Replace an evidence folder that is there.")] = False,
    common: Common = COMMON,
) -> None:
    """Make a folder that an auditor can open offline: the conversation to read, its exact bytes, and their proof.

    It has one HTML page, what each model was sent and answered, the proof, a program that checks it, and a README.

    Parameters
    ----------
    headish
        A turn id or bookmark: that turn, all that it grew from, and the calls that these came of.
    """
    if (headish is None) == (proof is None):
        raise UsageError("evidence: give HEADISH or --proof, and one of them")
    if proof is not None and (withhold or checkpoint is not None):
        raise UsageError("evidence: a proof shows what it shows: leave --withhold and --checkpoint out")
    note = None if checkpoint is None else read_one_note(checkpoint)
    verifiers = read_verifiers(key)
    check_folder(output, common, force=force)
    showing = _prove(headish, note, withhold, common) if proof is None else _read(proof, verifiers)
    with showing as (shown, warnings):
        used = verifiers if key else open_checkpoint(shown.note, verifiers).signed_by
        report = check_parts(shown, used)
        files = evidence_files(shown, report, used)
        with noting() as done:
            write_folder(output, files, common, force=force)
            done.append(f"{str(output)!r} is made")
    with telling(f"{str(output)!r} is made, but that could not be printed"):
        if common.json:
            told = {"not_shown": report.not_shown, "guests_possible": report.guests_possible}
            write_json({"folder": str(output), "files": len(files), "events": len(shown.events), **told})
        else:
            what = f"  {count(len(shown.events), 'event')} shown in {count(len(files), 'file')}"
            screen = Screen.of_stdout()
            screen.line((one_line(str(output)), "bold green"), what)
            for warning in (*warnings, *left_open(report)):
                screen.text(f"  {warning}", "yellow")


@contextmanager
def _prove(
    headish: str | None, note: str | None, withhold: tuple[str, ...], common: Common
) -> Generator[tuple[ProofParts, list[str]]]:
    """Give the proof of a turn with its ancestry and its calls, and what is to be known of it."""
    assert headish is not None
    with common.open() as log:
        withheld = Withholding(withhold, log)

        def all_withheld(recorded: Recorded) -> frozenset[str]:
            # A call is shown as the request that was sent, and not as what that is put together from.
            return withheld(recorded).union({"payload"} if recorded.header.topic == CALL else ())

        turn = log.turn(headish).id
        with proving(log.store, turn, note=note, thread=True, calls=True, withheld=all_withheld) as proof:
            withheld.check()
            yield proof, withheld.warnings(proof)


@contextmanager
def _read(file: Path, verifiers: Sequence[Verifier]) -> Generator[tuple[ProofParts, list[str]]]:
    """Give a proof of a turn.

    Raises:
        ProofError: it does not hold.
        UsageError: it is of another event.
    """
    with proof_file(file) as opened:
        proof, report = open_parts(opened, verifiers)
        if report.events[0].topic != TURN:
            raise UsageError(f"{str(file)!r} proves an event that is no turn: there is no conversation to show")
        yield proof, []
