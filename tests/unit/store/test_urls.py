"""Store URLs."""

import re
from pathlib import Path
from typing import Any

import pytest

from turnlog.errors import StoreOpenError
from turnlog.projections import synchronous
from turnlog.store import open_store, parse_url


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("memory://", None),
        ("MEMORY://", None),
        ("sqlite:///log.db", Path("log.db")),
        ("SQLITE:///log.db", Path("log.db")),
        ("sqlite:///a/b.db", Path("a/b.db")),
        ("sqlite:////a/b.db", Path("/a/b.db")),
        ("sqlite:////a b/Grüße.db", Path("/a b/Grüße.db")),
        ("sqlite:////a%20b/%C3%A9%3F%23%25.db", Path("/a b/é?#%.db")),
        ("sqlite:///../x", Path("../x")),
        ("sqlite:///a:b@c", Path("a:b@c")),
        ("sqlite:///~no-such-user-here/a.db", Path("~no-such-user-here/a.db")),
    ],
)
def test_url_gives_the_path(url: str, path: Path | None) -> None:
    """Three slashes start a relative path and four an absolute one; %XX is decoded; memory has none."""
    assert parse_url(url) == path


def test_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that starts with ~ lies in the home folder."""
    monkeypatch.setenv("HOME", "/home/of")
    assert parse_url("sqlite:///~/log.db") == Path("/home/of/log.db")


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        (Path("a/log.db"), "give 'sqlite:///a/log.db'"),
        (None, "None is not a store URL, which is text: give sqlite:///"),
        (b"postgresql://ann:SECRET@host/db", "b'postgresql://host/db' is not a store URL, which is text"),
        (Path("sqlite:ann:SECRET@host/log.db"), "give 'sqlite:///ann:…host/log.db'"),
    ],
)
def test_what_is_no_text_is_refused_with_what_is_meant(given: Any, advice: str) -> None:
    """A path is not taken for a URL, as its characters mean other things."""
    with pytest.raises(StoreOpenError, match=re.escape(advice)) as caught:
        parse_url(given)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("", "sqlite:///"),
        ("log.db", "did you mean 'sqlite:///log.db'"),
        (":memory:", "did you mean 'memory://'"),
        ("sqlite:log.db", "did you mean 'sqlite:///log.db'"),
        ("SQLite:/log.db", "did you mean 'sqlite:///log.db'"),
        ("sqlite:///:memory:", "or 'memory://'"),
        ("/a/log.db", "did you mean 'sqlite:////a/log.db'"),
        ("a%20b?.db#", "did you mean 'sqlite:///a%2520b%3F.db%23'"),
        ("sqlite://log.db", "'sqlite:///log.db'"),
        ("sqlite://a/log.db", "'sqlite:///a/log.db'"),
        ("sqlite://ann:SECRET@a/log.db", "'sqlite:///ann:…a/log.db'"),
        ("sqlite://", "write 'sqlite:///PATH'"),
        ("sqlite:///", "write 'sqlite:///PATH'"),
        ("memory://x", "'memory://'"),
        ("memory:///x", "'memory://'"),
        ("sqlite:///a?mode=ro", "%3F"),
        ("sqlite:///a#b", "%23"),
        ("mysql://host/db", "sqlite:///PATH, postgresql://… or memory://"),
        ("://x", "sqlite:///PATH, postgresql://… or memory://"),
        ("sqlite://[x/a", "sqlite://"),
        ("sqlite:///a\tb.db", "sqlite://"),
        ("sqlite:///a\nb.db", "sqlite://"),
        ("sqlite:///a%00b.db", "a path has no %00"),
        ("sqlite:///%00.db", "a path has no %00"),
        ("sqlite:///a%FFb.db", "sqlite://"),
    ],
)
def test_other_url_is_refused_with_advice(url: str, advice: str) -> None:
    """What is no store URL is refused, and the message shows what to write."""
    with pytest.raises(StoreOpenError) as caught:
        parse_url(url)
    assert advice in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_opening_a_url_gives_its_store(tmp_path: Path) -> None:
    """A SQLite URL opens that file, and makes its folder."""
    path = tmp_path / "a" / "b" / "log.db"
    store = open_store(f"sqlite:///{path}", projections=synchronous())
    store.close()
    assert store.url == f"sqlite:///{path}"
    assert path.read_bytes().startswith(b"SQLite format 3\x00")


def test_absent_store_is_refused_unless_it_may_be_made(tmp_path: Path) -> None:
    """With create=False nothing is made."""
    path = tmp_path / "a" / "log.db"
    with pytest.raises(StoreOpenError, match="there is no store at"):
        open_store(f"sqlite:///{path}", projections=synchronous(), create=False)
    assert not path.parent.exists()
