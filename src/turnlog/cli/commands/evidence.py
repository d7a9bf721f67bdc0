"""`turnlog evidence`: a folder for an auditor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from turnlog.audit.checkpoints import open_checkpoint
from turnlog.cli.evidence import check_folder, evidence_files, write_folder
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, write_json
from turnlog.cli.proving import CheckpointFile, Withhold, Withholding, read_one_note
from turnlog.cli.text import count, one_line
from turnlog.cli.verifiers import read_verifiers
from turnlog.events import CALL, Recorded


def evidence(
    headish: str,
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
    note = None if checkpoint is None else read_one_note(checkpoint)
    verifiers = read_verifiers(key)
    check_folder(output, common, force=force)

    with common.open() as log:
        withheld = Withholding(withhold, log)

        def all_withheld(recorded: Recorded) -> frozenset[str]:
            # A call is shown as the request that was sent, and not as what that is put together from.
            return withheld(recorded).union({"payload"} if recorded.header.topic == CALL else ())

        turn = log.turn(headish).id
        proof = log.audit.prove(turn, note=note, thread=True, calls=True, withheld=all_withheld)
        withheld.check()
        signed = open_checkpoint(proof.note, verifiers)
        files = evidence_files(proof, verifiers if key else signed.signed_by)
        write_folder(output, files, common, force=force)
    if common.json:
        write_json({"folder": str(output), "files": len(files), "events": len(proof.events)})
    else:
        shown = f"  {count(len(proof.events), 'event')} shown in {count(len(files), 'file')}"
        screen = Screen.of_stdout()
        screen.line((one_line(str(output)), "bold green"), shown)
        for warning in withheld.warnings(proof):
            screen.text(f"  {warning}", "yellow")
