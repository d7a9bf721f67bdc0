"""Records of `logging` under the name `turnlog`, for what most processes import and few have anything to tell of.

`logging` takes a while to import, and is imported with the first record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logging import Logger


class Teller:
    """Tells `logging` what happens, under a name."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        """Take the name of the logger, which begins with `turnlog`."""
        self._name = name

    def info(self, message: str, *arguments: object) -> None:
        """Tell what whoever runs a program may want to know."""
        logger(self._name).info(message, *arguments, stacklevel=2)

    def warning(self, message: str, *arguments: object) -> None:
        """Tell what whoever runs a program should look after."""
        logger(self._name).warning(message, *arguments, stacklevel=2)

    def error(self, message: str, *arguments: object) -> None:
        """Tell what should not be."""
        logger(self._name).error(message, *arguments, stacklevel=2)


def logger(name: str) -> Logger:
    """Return a logger, which prints nothing where logging is not set up: what is told there is the program's to say."""
    import logging  # noqa: PLC0415 - see above

    root = logging.getLogger("turnlog")
    if not root.handlers:
        root.addHandler(logging.NullHandler())
    return logging.getLogger(name)
