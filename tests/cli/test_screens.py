"""What the main pages look like on a real terminal, at 80 and at 120 columns, with and without colours."""

from collections.abc import Iterator

import pytest
from tests.cli import screens
from tests.cli.command import Command


@pytest.fixture(scope="module")
def typed() -> Iterator[Command]:
    """Give the command in a folder with the log of the screens."""
    with screens.typed_in() as command:
        yield command


@pytest.mark.parametrize("name", screens.names())
def test_page_looks_as_it_did(name: str, typed: Command) -> None:
    """After a deliberate change, `make golden` writes the screens anew."""
    golden = screens.FOLDER / f"{name}.txt"
    assert golden.exists(), f"there is no {golden}: `make golden` makes it"
    assert screens.page(name, typed) == golden.read_text(encoding="utf-8")


def test_every_screen_has_a_page() -> None:
    """No file is left of a page that there is no more."""
    assert sorted(file.stem for file in screens.FOLDER.iterdir()) == sorted(screens.names())
