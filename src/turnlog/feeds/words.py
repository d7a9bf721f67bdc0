"""The words of a text as SQLite's FTS5 takes them, for indexes of other databases: what is found is the same.

What becomes of a character does not depend on those around it, and FTS5 itself is asked, once for each.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from threading import Lock

TOKENIZER = "unicode61 remove_diacritics 2"
"""How FTS5 takes words out of a text: letters and digits, without case and accents."""

WORD_BYTES_MAX = 32768
"""FTS5 cuts longer words."""


class _Characters(dict[int, str]):
    """What each character becomes in a word: a blank where it is in none, nothing where it is an accent."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = Lock()
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._db.execute(f"CREATE VIRTUAL TABLE texts USING fts5(text, content='', tokenize='{TOKENIZER}')")
        self._db.execute("CREATE VIRTUAL TABLE words USING fts5vocab(texts, instance)")

    def __missing__(self, code: int) -> str:
        with self._lock:
            self._db.execute("BEGIN")
            self._db.execute("INSERT INTO texts (rowid, text) VALUES (1, ?)", (f"a{chr(code)}a",))
            words = [word for (word,) in self._db.execute("SELECT term FROM words").fetchall()]
            self._db.execute("ROLLBACK")
        found = self[code] = words[0][1:-1] if len(words) == 1 else " "
        return found

    def close(self) -> None:
        """Release everything."""
        self._db.close()


class Words:
    """Takes words out of texts. Safe to use from many threads."""

    def __init__(self) -> None:
        self._characters: _Characters | None = None
        self._lock = Lock()

    def of(self, text: str) -> list[str]:
        """Return the words of a text, in order, without case and accents."""
        with self._lock:
            if self._characters is None:
                self._characters = _Characters()
            characters = self._characters
        return [_cut(word) for word in text.translate(characters).split()]

    def close(self) -> None:
        """Release everything."""
        with self._lock:
            characters, self._characters = self._characters, None
        if characters is not None:
            characters.close()


def _cut(word: str) -> str:
    if len(word) * 4 <= WORD_BYTES_MAX:
        return word
    return word.encode()[:WORD_BYTES_MAX].decode(errors="ignore")


def snippets(query: str, texts: Sequence[str], marks: tuple[str, str], words_max: int) -> list[str]:
    """Return of each text a piece with what a query finds in it.

    Args:
        query: as FTS5 understands it.
        texts: texts in which it finds something.
        marks: what stands before and behind what is found.
        words_max: how many words a piece has at most.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.execute(f"CREATE VIRTUAL TABLE texts USING fts5(text, tokenize='{TOKENIZER}')")
        db.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", enumerate(texts))
        found: dict[int, str] = dict(
            db.execute(
                f"SELECT rowid, snippet(texts, 0, ?, ?, '…', {words_max}) FROM texts WHERE texts MATCH ?",
                (*marks, query),
            ).fetchall()
        )
    return [found.get(number, "") for number in range(len(texts))]
