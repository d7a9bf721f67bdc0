"""Write the golden sealed store anew, with what reading it gives: `python -m tests.golden.sealed_store`.

It has sealed events, holds, an erasure, a checkpoint and the tree, which came after the golden store of version 2. As
that one it is never written again once a version of turnlog was released.
"""

import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.golden import generate
from tests.sealed_log import SealsInMemory

from turnlog import TurnLog, projections
from turnlog.audit.notes import Signer
from turnlog.store import open_store

STORE = generate.FOLDER / "sealed-v2.db"
EXPECTED = generate.FOLDER / "sealed-v2.json"
SUBJECTS = (None, "Ada", "Bob")


def seals() -> SealsInMemory:
    """Return the keys of the golden store: they are the same always."""
    found = SealsInMemory()
    for subject in SUBJECTS:
        found.make(subject)
    return found


def fill(path: Path) -> None:
    """Record a plain turn, those of a sealed subject, and then a sealed log."""
    sources = generate.fixed_sources("03fr9cxksbd0ufbbn4sb2g")
    store = open_store(
        f"sqlite:///{path}",
        projections=projections.synchronous(),
        sides=projections.side_tables(),
        seals=seals(),
    )
    with TurnLog(store, sources=sources) as log:
        log.add_turn("You answer in one line.", role="system", bookmark="main")
        log.seal("Ada", by="somebody")
        log.add_turn("Which river is this?", continues="main", subject="Ada", inherited={"note": "crème, 茶, 🌿"})
        log.add_turn("The Loire. " * 50, role="assistant", continues="main")
        generate.document(
            log, sources, path.parent / "field-notes.txt", generate.field_notes(), continues=log.turn("main").id
        )
        log.bookmarks.set("here", "main")
        log.seal()
        log.add_turn("", bookmark="other")
        generate.document(log, sources, path.parent / "dot.bin", noise(), continues="other")
        generate.ask(log, "talk")
        log.bookmarks.set("gone", "talk")
        log.bookmarks.rename("gone", "left")
        log.pointers.set("milli", "example", "example-model-1", params={"max_tokens": 100})
        log.add_event("acme.review", b"\x00not JSON", private={"by": "somebody"}, cites=[("of", log.turn("main").id)])
        log.holds.set("case 7", thread="main", reason="a court said so", by="somebody")
        going = log.add_turn("To be erased.", continues="other", subject="Bob", bookmark=False)
        log.erase(turn=going.id, reason="on request", by="somebody")
        log.audit.checkpoint(Signer.generate("example.com/log"))


def noise() -> bytes:
    """Return a document that is large enough for a file of its own, and does not compress."""
    return b"".join(sha256(b"%d" % number).digest() for number in range(3000))


def reading(path: Path, *, keys: bool) -> dict[str, Any]:
    """Return what reading a store gives, with the keys of the golden store or without any."""
    return generate.reading(path, seals=seals() if keys else None, closed=not keys)


def main() -> None:
    """Write the store, and what reading it gives."""
    for name in (STORE.name, f"{STORE.name}-wal", f"{STORE.name}-shm"):
        (generate.FOLDER / name).unlink(missing_ok=True)
    shutil.rmtree(f"{STORE}-payloads", ignore_errors=True)
    fill(STORE)
    shutil.rmtree(f"{STORE}-payloads/.incoming", ignore_errors=True)
    generate.write_json(EXPECTED, {"with keys": reading(STORE, keys=True), "without": reading(STORE, keys=False)})
    print(f"wrote {STORE.name} and {EXPECTED.name}")


if __name__ == "__main__":
    main()
