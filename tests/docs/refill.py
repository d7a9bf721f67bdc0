"""Write what the commands print now into the console blocks of the pages: `python -m tests.docs.refill [PAGE…]`.

For after a deliberate change of output. Read the difference before keeping it: it is what readers will see. Blocks that
leave lines out with three dots are left as they are.
"""

import shutil
import sys
import tempfile
from contextlib import chdir
from pathlib import Path

from tests.docs.pages import ROOT, Block, Reader, blocks, commands, matches


def refill(page: Path) -> None:
    """Follow a page, and write the output of its commands into it where that differs."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "examples", Path(folder) / "examples")
        with chdir(folder), Reader(Path(folder)) as reader:
            for block in blocks(page):
                if block.language == "console":
                    text = text.replace(f"```console\n{block.text}```", f"```console\n{filled(reader, block)}```", 1)
                else:
                    reader.follow(block, page)
    page.write_text(text, encoding="utf-8")


def filled(reader: Reader, block: Block) -> str:
    """Return a console block with the output that its commands print now."""
    parts: list[str] = []
    for command, shown in commands(block):
        output = reader.run(command, f"line {block.line}")
        kept = shown if matches(output, shown) or "\n...\n" in f"\n{shown}" else output
        lines = [f"$ {command}".replace("\n", "\n> "), *(line.rstrip() for line in kept.splitlines())]
        parts.append("\n".join(lines) + "\n")
    return "".join(parts)


if __name__ == "__main__":
    pages = [Path(name).resolve() for name in sys.argv[1:]]
    for each in pages or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if each.name != "log-format.md":
            refill(each)
