"""The programs of the page on the log format, as a stranger has them: saved as they stand, and imported or run."""

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "reference" / "log-format.md"
NAMES = ("read_log", "read_export")


class Readers:
    """The two programs, saved in a folder, and as modules."""

    def __init__(self, folder: Path, store: ModuleType, export: ModuleType) -> None:
        """Take the folder that they were saved in, and the modules."""
        self.folder = folder
        self.store: Any = store
        self.export: Any = export

    def store_damage(self, path: Path) -> list[str]:
        """Return what the first program finds wrong with a store."""
        return self._damage(self.store.Store(path))

    def export_damage(self, path: Path) -> list[str]:
        """Return what the second program finds wrong with an export."""
        return self._damage(self.export.Export(path))

    def summary(self, path: Path) -> dict[str, Any]:
        """Return what the first program prints of a store that it finds nothing wrong with."""
        found: list[dict[str, Any]] = []
        assert self._damage(self.store.Store(path), lambda log: found.append(log.summary())) == []
        return json.loads(json.dumps(found[0]))

    def _damage(self, log: Any, then: Callable[[Any], None] | None = None) -> list[str]:
        try:
            assert self.store.main(log) == (not log.damage)
            if then is not None and not log.damage:
                then(log)
            return log.damage
        finally:
            log.close()

    def run(self, name: str, path: Path) -> subprocess.CompletedProcess[str]:
        """Run a program as the page says, and have Python say on standard error what is left open.

        Nothing but what is installed can be imported, and what is beside it.
        """
        program = self.folder / f"{name}.py"
        return subprocess.run(
            [sys.executable, "-sE", "-X", "dev", program, path], capture_output=True, text=True, check=False
        )


@contextmanager
def readers(folder: Path) -> Iterator[Readers]:
    """Save the programs of the page in a folder, and give them."""
    sources = [block.text for block in blocks(PAGE) if block.language == "python"]
    assert len(sources) == len(NAMES)
    assert not any(re.search(r"^\s*(?:import|from) turnlog", source, re.MULTILINE) for source in sources)
    for name, source in zip(NAMES, sources, strict=True):
        (folder / f"{name}.py").write_text(source, encoding="utf-8")
    sys.path.insert(0, str(folder))
    try:
        yield Readers(folder, *(importlib.import_module(name) for name in NAMES))
    finally:
        sys.path.remove(str(folder))
        for name in NAMES:
            sys.modules.pop(name, None)
