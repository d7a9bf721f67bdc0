"""The words of a text as SQLite's FTS5 takes them, for indexes of other databases: what is found is the same.

What becomes of a character does not depend on those around it, and FTS5 itself is asked, once for each.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from threading import Lock
from unicodedata import category, normalize

from turnlog.store.sqlite.handles import connect

TOKENIZER = "unicode61 remove_diacritics 2"
"""How FTS5 takes words out of a text: letters and digits, without case and accents."""

WORD_BYTES_MAX = 32768
"""FTS5 cuts longer words."""

MARKS = ("\x02", "\x03")
"""What stands before and behind what was found in a snippet."""

LONG_CHARACTERS = 20_000
"""FTS5's `snippet` compares every place where something is found with every other one. In a longer text than this it is
asked of one part after the other, until something is found."""

_OVERLAP_CHARACTERS = 1000
"""So much of a part is in the next one too: a phrase may stand where they meet."""

_BORDER = "\x01"
"""Stands in indexed texts between characters that are words of their own. No snippet has it."""

_OWN = ("\0", _BORDER, *MARKS)
"""What is replaced in texts."""

PIECE_CHARACTERS = 256 * 1024
"""A longer text is indexed in pieces: what an index takes in at once takes several times its size in memory."""

PHRASE_WORDS_MAX = 256
"""So many words that stand together are together in a piece too, if they have no more than half of its characters."""

# Han, Hiragana, Katakana and Bopomofo; Thai and Lao; Burmese and Khmer.
_UNSPACED_CHARACTERS = (
    "\u3005-\u3007\u3031-\u3035\u303b-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uff66-\uff9f\U0001aff0-\U0001b16f\U00020000-\U0003ffff"
    "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\ua9e0-\ua9ff\uaa60-\uaa7f"
)
_UNSPACED = re.compile(f"[{_UNSPACED_CHARACTERS}]+")
"""Runs of characters of scripts that put no blanks between words."""


_SYMBOLS = re.compile(r"[^\w\s\x00-\x7f]+")
"""Runs of what may be no letter. FTS5 takes for a letter what came to Unicode after its tables, as most emoji did."""


def indexed(text: str) -> str:
    """Return a text as it is indexed: a character of a script without blanks between words is a word of its own.

    Symbols stand apart from words.

    What is spelled in several ways that mean the same, as an accent beside its letter or in it, is in one (NFC).
    What has a meaning in the index or a snippet, and NUL, which PostgreSQL has not, is replaced.
    """
    for character in _OWN:
        text = text.replace(character, "\ufffd")
    if text.isascii():
        return text
    return _SYMBOLS.sub(_symbols_apart, _UNSPACED.sub(_apart, normalize("NFC", text)))


def _apart(run: re.Match[str]) -> str:
    return f"{_BORDER}{_BORDER.join(run[0])}{_BORDER}"


def shown(snippet: str) -> str:
    """Return a piece of an indexed text as it is read."""
    return snippet.replace(_BORDER, "")


def _symbols_apart(run: re.Match[str]) -> str:
    return "".join(_apart_from_words(character) for character in run[0])


def _apart_from_words(character: str) -> str:
    # Letters and numbers are none of these, and marks belong to a letter. For private use FTS5 and Unicode agree.
    kind = category(character)
    return character if kind[0] == "M" or kind == "Co" else f"{_BORDER}{character}{_BORDER}"


# ASCII but letters and digits, Tibetan and Ethiopic marks, blanks and dashes. FTS5 takes for a part of a word what its
# tables do not know, so that not all that Python takes for none would do.
_APART_CHARACTERS = (
    r"\x00-/:-@\[-`{-\x7f\xa0\u0f0b-\u0f14\u1361-\u1368\u2000-\u200a\u2010-\u2027\u3000-\u3003" + _UNSPACED_CHARACTERS
)
_APART = re.compile(f"[{_APART_CHARACTERS}]")
"""A character behind which no word goes on."""

_BEGIN = re.compile(f"(?<=[{_APART_CHARACTERS}])[^{_APART_CHARACTERS}]|[{_UNSPACED_CHARACTERS}]")
"""The first character of what stands apart from what is before it: of a word, or of what has none, such as emoji."""

_BEGINS = 2 * PHRASE_WORDS_MAX
"""So many of these are taken to have as many words as a phrase."""

_NEAR_CHARACTERS = 8 * 1024
"""So far back is looked first."""


def pieces(texts: Iterable[Iterable[str]], characters_max: int = PIECE_CHARACTERS) -> Iterator[str]:
    """Yield texts, one below the other, in pieces that have the same words: one piece, if possible.

    A piece begins with the last words of the one before it. Of a word that is longer than half a piece only the
    beginning is there, as in the index.

    Args:
        texts: the texts, each in pieces that end anywhere; none is put together.
        characters_max: how many characters a piece has at most.
    """
    held, is_first = "", True
    for piece in _lines(texts):
        for at in range(0, len(piece), characters_max):
            held += piece[at : at + characters_max]
            while len(held) > characters_max:
                half = characters_max // 2
                end = _last_end(held, half, characters_max)
                if end is None:
                    held = _shortened(held, half)
                    continue
                yield held[:end]
                held, is_first = held[_next_begin(held, half, end) :], False
    if held or is_first:
        yield held


def _lines(texts: Iterable[Iterable[str]]) -> Iterator[str]:
    """Iterate over texts, one below the other, in their pieces."""
    for number, text in enumerate(texts):
        if number:
            yield "\n"
        yield from text


def _last_end(text: str, begin: int, end: int) -> int | None:
    """Return the last place between two where no word goes on; None if there is none."""
    for start in (max(begin, end - _NEAR_CHARACTERS), begin):
        if ends := [found.end() for found in _APART.finditer(text, start, end)]:
            return ends[-1]
    return None


def _shortened(text: str, half: int) -> str:
    """Return a text with nothing but the beginning of the word that goes through a whole half of a piece."""
    begin = _last_end(text, 0, half) or 0
    behind = _APART.search(text, half)
    return text[: begin + min(WORD_BYTES_MAX, half // 2)] + ("" if behind is None else text[behind.start() :])


def _next_begin(text: str, half: int, end: int) -> int:
    """Return where the piece begins that follows one with an end: so that a phrase at the end is in one of the two."""
    begins: list[int] = []
    for start in (max(end - half, end - _NEAR_CHARACTERS), end - half):
        begins = [found.start() for found in _BEGIN.finditer(text, start, end)]
        if len(begins) >= _BEGINS:
            break
    return begins[-_BEGINS:][0] if begins else end


class _Characters(dict[int, str]):
    """What each character becomes in a word: a blank where it is in none, nothing where it is an accent."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = Lock()
        self._db = connect(":memory:", None, isolation_level=None, check_same_thread=False)
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


def snippets(query: str, terms: str, texts: Sequence[str], words_max: int) -> list[str]:
    """Return of each text a piece with what a query finds in it, between `MARKS`.

    Args:
        query: as FTS5 understands it.
        terms: what finds any of its terms.
        texts: texts in which it finds something.
        words_max: how many words a piece has at most.
    """
    short = [text for text in texts if len(text) <= LONG_CHARACTERS]
    found = iter(_snippets(query, short, words_max) if short else ())
    return [next(found) if len(text) <= LONG_CHARACTERS else _first(terms, text, words_max) for text in texts]


def _first(terms: str, text: str, words_max: int) -> str:
    """Return a piece of a long text with the first place where any of some terms is found."""
    for begin in range(0, len(text), LONG_CHARACTERS - _OVERLAP_CHARACTERS):
        [piece] = _snippets(terms, [text[begin : begin + LONG_CHARACTERS]], words_max)
        if piece:
            return f"…{piece}" if begin and not piece.startswith("…") else piece
    return ""


def _snippets(query: str, texts: Sequence[str], words_max: int) -> list[str]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.execute(f"CREATE VIRTUAL TABLE texts USING fts5(text, tokenize='{TOKENIZER}')")
        db.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", enumerate(texts))
        found: dict[int, str] = dict(
            db.execute(
                f"SELECT rowid, snippet(texts, 0, ?, ?, '…', {words_max}) FROM texts WHERE texts MATCH ?",
                (*MARKS, query),
            ).fetchall()
        )
    return [found.get(number, "") for number in range(len(texts))]
