"""What was shown of a reply's text, to compare with what is recorded of it."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from turnlog.model.pieces import text_pieces


class ShownText:
    """A text that was shown, in pieces: its length and its digest, since it may be large."""

    def __init__(self) -> None:
        """Begin with nothing shown."""
        self._characters = 0
        self._digest = sha256()

    def add(self, text: str) -> None:
        """Note that more was shown."""
        self._characters += len(text)
        for piece in text_pieces(text):
            self._digest.update(piece.encode(errors="surrogatepass"))

    def rest_of(self, texts: Iterable[str]) -> list[str] | None:
        """Return what texts, one behind the other, have behind what was shown; None where they begin otherwise."""
        begin, rest = ShownText(), list[str]()
        for text in texts:
            left = self._characters - begin._characters
            begin.add(text[:left])
            if left < len(text):
                rest.append(text[left:])
        same = (begin._characters, begin._digest.digest()) == (self._characters, self._digest.digest())
        return rest if same else None
