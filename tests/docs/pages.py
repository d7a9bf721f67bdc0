"""Pages of documentation: their code blocks, and running one page after the other of its blocks as a reader would."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
_FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*(?:\n> .*)*)\n?", re.MULTILINE)

# What differs from run to run, and what stands for it on both sides of a comparison.
_VARYING = (
    (re.compile(r"\b0[0-9a-z]{24}\b"), "<id>"),
    (re.compile(r"sha256-[A-Za-z0-9+/]{43}="), "<hash>"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|\+00:00)?"), "<time>"),
    (re.compile(r"\b\d+(?:\.\d+)? [kM]B\b"), "<size>"),
)


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block of a page."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(language=found[1], text=found[2], line=text.count("\n", 0, found.start()) + 1)
        for found in _FENCE.finditer(text)
    ]


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """Iterate over the commands of a console block, each with the output that the page shows for it."""
    starts = list(_COMMAND.finditer(block.text))
    assert starts, f"a console block without a command, at line {block.line}"
    assert starts[0].start() == 0, f"a console block that begins with output, at line {block.line}"
    ends = [start.start() for start in starts[1:]] + [len(block.text)]
    for start, end in zip(starts, ends, strict=True):
        yield start[1].replace("\n> ", "\n"), block.text[start.end() : end]


def normal(text: str) -> str:
    """Return output without what varies, and without blanks at the ends of lines."""
    for pattern, name in _VARYING:
        text = pattern.sub(name, text)
    return "\n".join(re.sub(r" {2,}", "  ", line).rstrip() for line in text.strip("\n").splitlines())


def matches(actual: str, shown: str) -> bool:
    """Tell whether output is what a page shows, where a line of three dots stands for any lines."""
    parts = re.split(r"^\.\.\.$", normal(shown), flags=re.MULTILINE)
    pattern = r"(?:.*\n?)*?".join(re.escape(part) for part in parts)
    return re.fullmatch(pattern, normal(actual)) is not None


class Reader:
    """Someone who follows a page in a folder: types its commands, runs its Python."""

    def __init__(self, folder: Path) -> None:
        """Begin in a folder, without any variable of turnlog's."""
        self.folder = folder
        self._variables = {name: value for name, value in os.environ.items() if not name.startswith("TURNLOG_")}
        self._variables |= {"PATH": f"{Path(sys.executable).parent}:{self._variables['PATH']}", "COLUMNS": "100"}
        self._names: dict[str, object] = {"__name__": "page"}

    def follow(self, block: Block, page: Path) -> None:
        """Do what a block says, and check that the output is what it shows."""
        where = f"{page.name}:{block.line}"
        match block.language:
            case "python":
                # Blank lines before it, so that a traceback names the line of the page.
                source = "\n" * block.line + block.text
                exec(compile(source, str(page), "exec"), self._names)  # noqa: S102 - running the page is the test
            case "console":
                for command, shown in commands(block):
                    output = self.run(command, where)
                    assert not shown.strip() or matches(output, shown), (
                        f"{where}: {command}\n-- shown:\n{normal(shown)}\n-- actual:\n{normal(output)}"
                    )
            case _:
                pass

    def run(self, command: str, where: str) -> str:
        """Type a command and return what it printed; check that it succeeds, or fails if it says `# fails`."""
        if exported := re.fullmatch(r"export (\w+)=(\S+)", command):
            self._variables[exported[1]] = exported[2]
            return ""
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {command}"],
            cwd=self.folder,
            env=self._variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        expected = 0 if "# fails" not in command else 2
        assert done.returncode == expected, f"{where}: {command}: exit status {done.returncode}: {done.stderr}"
        return done.stdout + done.stderr
