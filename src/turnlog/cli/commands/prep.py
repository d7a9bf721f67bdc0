"""`turnlog prep`: a context document from files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from turnlog.cli.failures import UsageError
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import binary_output, note, write_json
from turnlog.cli.text import text_before_end
from turnlog.cli.usage import STANDARD_STREAM
from turnlog.interop.prep import BYTES_MAX, context_document, parse_paths, read_origin

_HERE = Path()


def prep(
    *paths: str,
    instructions: Annotated[
        str | None, Parameter(help="What to do with the files: text, or @FILE for the text of a file.")
    ] = None,
    root: Annotated[
        Path, Parameter(help="The folder that the paths are relative to, and all files are of. By default this one.")
    ] = _HERE,
    null: Annotated[
        bool,
        Parameter(alias="-0", negative=(), help="Paths on standard input end with a NUL: git ls-files -z."),
    ] = False,
    bytes_max: Annotated[
        int, Parameter(help="The size of the largest file to embed, in bytes. By default 1,000,000.")
    ] = BYTES_MAX,
    common: Common = COMMON,
) -> None:
    """Print files as one XML document, for a model to read: git ls-files | turnlog prep | turnlog add -.

    Files that are not text are named and not embedded. What is missing, unreadable or too large is named with the
    reason, also on standard error. The document says what commit the files are of, and which of them differ from it.

    Parameters
    ----------
    paths
        The files, in the order that they are to have. Without any, or with -, they are read from standard input, one a
        line. Put -- before a path that begins with a dash.
    """
    given = _read_paths(nul=null) if paths in ((), (STANDARD_STREAM,)) else list(paths)
    if STANDARD_STREAM in given:
        raise UsageError("- stands for the paths on standard input: give it alone, or give PATHS")
    if bytes_max < 0:
        raise UsageError(f"--bytes-max {bytes_max}: bytes, from 0")
    if not root.is_dir():
        raise UsageError(f"--root: there is no folder {str(root)!r}")
    document = context_document(
        given,
        root=root,
        origin=read_origin(root),
        instructions=None if instructions is None else _text(instructions),
        bytes_max=bytes_max,
    )
    for line in document.notes:
        note(line)
    if common.json:
        write_json({"document": document.xml.decode(), "notes": document.notes})
    else:
        binary_output().write(document.xml)


def _read_paths(*, nul: bool) -> list[str]:
    """Return the paths on standard input.

    Raises:
        UsageError: it is a terminal, or there are none.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("no files: give PATHS, or pipe them in (git ls-files | turnlog prep)")
    paths = parse_paths(sys.stdin.buffer.read(), nul=nul)
    if not paths:
        raise UsageError("standard input is empty: there are no files to print")
    return paths


def _text(instructions: str) -> str:
    """Return instructions, read from a file where one is named.

    Raises:
        UsageError: the file is not UTF-8.
        OSError: it cannot be read.
    """
    if not instructions.startswith("@"):
        return instructions
    path = Path(instructions[1:])
    try:
        return text_before_end(path.read_bytes())
    except UnicodeDecodeError as error:
        raise UsageError(f"--instructions: {str(path)!r} is not UTF-8 (byte {error.start})") from error
