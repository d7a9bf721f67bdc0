"""Home folders in paths that people write."""

from pathlib import Path

import pytest

from turnlog.errors import PlaceError
from turnlog.home import in_home


def test_home_folder_stands_for_its_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the beginning alone."""
    monkeypatch.setenv("HOME", "/home/of")
    assert in_home("~/a", PlaceError) == Path("/home/of/a")
    assert in_home("b/~", PlaceError) == Path("b/~")


def test_home_folder_of_nobody_is_refused() -> None:
    """With the error that whoever reads the path has for it."""
    with pytest.raises(PlaceError) as caught:
        in_home("~nobody-of-this-name/a", PlaceError)
    assert str(caught.value) == "'~nobody-of-this-name/a': nobody of that name has a home folder here"
