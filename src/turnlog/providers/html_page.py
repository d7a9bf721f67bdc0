"""Pages of HTML, which gateways and proxies answer with in place of a provider."""

from __future__ import annotations

from html.parser import HTMLParser

_UNREAD = frozenset({"script", "style", "template"})
"""Elements of HTML whose text is not for readers."""


def text_of_page(html: str) -> str:
    """Return what is to be read on a page, each text once; all of the page where it has none."""
    page = _Page()
    page.feed(html)
    page.close()
    return " ".join(page.texts) or html


class _Page(HTMLParser):
    """Finds what is to be read on a page of HTML."""

    def __init__(self) -> None:
        super().__init__()
        self._hidden = 0
        self.texts: dict[str, None] = {}  # the title is most often the heading too

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002 - as its base has it
        """Note what begins that nobody reads."""
        self._hidden += tag in _UNREAD

    def handle_endtag(self, tag: str) -> None:
        """Note that it ends."""
        self._hidden -= tag in _UNREAD and self._hidden > 0

    def handle_data(self, data: str) -> None:
        """Take a text."""
        if not self._hidden and data.strip():
            self.texts[data.strip()] = None
