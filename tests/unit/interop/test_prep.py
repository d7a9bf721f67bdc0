"""Context documents: what of files goes into them, and where the files are from."""

from __future__ import annotations

import os
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from turnlog.interop.prep import (
    Blob,
    ContextDocument,
    Origin,
    context_document,
    parse_paths,
    read_origin,
    without_credentials,
)

NOWHERE = Origin(absent="not asked")
IDENTITY = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "A"} | {
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
}


def git(root: Path, *arguments: str) -> str:
    """Run git in a folder and return what it prints, without the line feed at its end."""
    done = subprocess.run(
        ["git", *arguments], cwd=root, env=os.environ | IDENTITY, capture_output=True, text=True, check=True
    )
    return done.stdout.rstrip("\n")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Give a repository with one commit of two files, one of them in a folder, and a remote with a password."""
    root = tmp_path / "work"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch", "main")
    git(root, "remote", "add", "origin", "https://user:secret@example.org/team/things.git?token=secret")
    (root / "a.txt").write_text("a")
    (root / "sub").mkdir()
    (root / "sub" / "b.txt").write_text("b")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "one")
    return root


def files(document: ContextDocument) -> list[tuple[dict[str, str], str | None]]:
    """Return the files of a document: their attributes, and their text."""
    found = ET.fromstring(document.xml).find("files")
    assert found is not None
    return [(file.attrib, file.text) for file in found]


def made(root: Path, *paths: str, **fields: object) -> ContextDocument:
    """Return the document of files that are of nowhere."""
    return context_document(paths, root=root, **({"origin": NOWHERE} | fields))  # type: ignore[arg-type]


# Files


def test_document_is_the_exact_bytes(tmp_path: Path) -> None:
    """Escaped as XML, in the order given, each path once."""
    (tmp_path / "b.py").write_text("if a < b & c > d: print('\"]]>')\n")
    (tmp_path / "a.md").write_text("")
    document = made(tmp_path, "b.py", "a.md", "./b.py", str(tmp_path / "a.md"), instructions="Say <b> & go.")
    assert document.xml.decode() == (
        "<context>\n"
        '<origin absent="not asked"/>\n'
        "<instructions>Say &lt;b&gt; &amp; go.</instructions>\n"
        '<files caveat="texts are escaped as XML: unescape them before use">\n'
        '<file path="b.py" size="32" media_type="text/x-python">'
        "if a &lt; b &amp; c &gt; d: print('\"]]&gt;')\n</file>\n"
        '<file path="a.md" size="0" media_type="text/markdown"></file>\n'
        "</files>\n"
        "</context>\n"
    )
    assert document.notes == ("no origin: not asked",)


def test_text_comes_back_from_the_xml(tmp_path: Path) -> None:
    """With its ends of lines, blanks and characters of any script; a name with any of them, too."""
    text = "\ufeff\r\n a\r\tb\u2028\u00e9\U0001f600 \n\n"
    name = 'a "b"\'\n<&>\u00e9.txt'
    (tmp_path / name).write_bytes(text.encode())
    document = made(tmp_path, name)
    size = str(len(text.encode()))
    assert files(document) == [({"path": name, "size": size, "media_type": "text/plain"}, text)]


def test_characters_that_xml_does_not_have_are_replaced(tmp_path: Path) -> None:
    """And reported: those of files, names and instructions."""
    (tmp_path / "a.log").write_bytes(b"\x1b[1mhi\x1b[0m \xef\xbf\xbe")
    (tmp_path / "b\x01.txt").write_text("b")
    document = made(tmp_path, "a.log", "b\x01.txt", os.fsdecode(b"gone\xff"), instructions="\x07!", origin=Origin())
    assert files(document) == [
        (
            {"path": "a.log", "size": "14", "media_type": "text/plain", "replaced": "3"},
            "\ufffd[1mhi\ufffd[0m \ufffd",
        ),
        ({"path": "b\ufffd.txt", "size": "1", "media_type": "text/plain"}, "b"),
        ({"path": "gone\ufffd", "omitted": "missing"}, None),
    ]
    assert document.notes == (
        "'a.log': 3 characters that XML does not have replaced by U+FFFD",
        "'b\\x01.txt': its name is shown as 'b\ufffd.txt'",
        "'gone\\udcff': missing",
        "instructions: a character that XML does not have replaced by U+FFFD",
    )


@pytest.mark.parametrize("content", [b"\x89PNG\x00", b"caf\xe9", "a".encode("utf-16")])
def test_binary_files_are_named(tmp_path: Path, content: bytes) -> None:
    """What is not UTF-8, or has a NUL in it, is not embedded."""
    (tmp_path / "a.png").write_bytes(content)
    attributes = {"path": "a.png", "size": str(len(content)), "media_type": "image/png", "binary": "true"}
    document = made(tmp_path, "a.png", origin=Origin())
    assert (files(document), document.notes) == ([(attributes, None)], ())


@pytest.mark.parametrize(
    ("name", "content", "media_type"),
    [
        ("a.json", b"{}", "application/json"),
        ("a.html", b"<p>", "text/html"),
        ("a.svg", b"<svg/>", "image/svg+xml"),
        ("a.ts", b"let a", "text/plain"),
        ("Makefile", b"all:", "text/plain"),
        ("a.png", b"text", "text/plain"),
        ("a.tar.gz", b"\x1f\x8b\x00", "application/gzip"),
        ("a.txt", b"\x00", "application/octet-stream"),
        ("data:,a.json", b"[]", "application/json"),
    ],
)
def test_media_type_is_of_the_name_where_the_content_agrees(
    tmp_path: Path, name: str, content: bytes, media_type: str
) -> None:
    """Text is text, whatever its name says."""
    (tmp_path / name).write_bytes(content)
    assert files(made(tmp_path, name))[0][0]["media_type"] == media_type


def test_what_cannot_be_embedded_is_named_with_the_reason(tmp_path: Path) -> None:
    """And reported."""
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / "large").write_text("12345")
    os.mkfifo(root / "pipe")
    (tmp_path / "outside").write_text("secret")
    paths = ["gone", "folder", "large", "pipe", "large/in", "../outside", str(tmp_path / "outside"), "a\0b", "x" * 300]
    document = made(root, *paths, bytes_max=4, origin=Origin())
    reasons = {attributes["path"]: attributes["omitted"] for attributes, _ in files(document)}
    assert reasons == {
        "gone": "missing",
        "folder": "a folder",
        "large": "too large: 5 bytes, more than 4",
        "pipe": "not a regular file",
        "large/in": "missing",
        "../outside": "outside the root folder",
        "outside": "outside the root folder",
        "a\ufffdb": "missing",
        "x" * 300: "unreadable: file name too long",
    }
    assert document.notes[:2] == ("'gone': missing", "'folder': a folder")
    assert len(document.notes) == len(paths)


def test_size_up_to_the_limit_is_embedded(tmp_path: Path) -> None:
    """The limit is inclusive."""
    (tmp_path / "a").write_text("1234")
    assert files(made(tmp_path, "a", bytes_max=4))[0][1] == "1234"


def test_links_are_named_and_not_followed(tmp_path: Path) -> None:
    """They may lead anywhere. Their target is shown where it says nothing of the machine."""
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "key").write_text("secret")
    (root / "relative").symlink_to("../outside/key")
    (root / "absolute").symlink_to(tmp_path / "outside" / "key")
    (root / "folder").symlink_to(tmp_path / "outside")
    document = made(root, "relative", "absolute", "folder/key", "folder")
    assert files(document) == [
        ({"path": "relative", "link": "../outside/key"}, None),
        ({"path": "absolute", "link": "an absolute path"}, None),
        ({"path": "folder/key", "omitted": "outside the root folder"}, None),
        ({"path": "folder", "link": "an absolute path"}, None),
    ]
    assert str(tmp_path).encode() not in document.xml


def test_root_may_be_reached_by_a_link_or_a_detour(tmp_path: Path) -> None:
    """Files below it are below it all the same, and have one name."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").write_text("a")
    (tmp_path / "link").symlink_to(root)
    paths = ("a", "../link/a", str(root / "a"), str(tmp_path / "link" / "a"))
    assert [attributes["path"] for attributes, _ in files(made(tmp_path / "link", *paths))] == ["a"]
    assert files(made(tmp_path / "link" / ".." / "root", *paths[:1]))[0][1] == "a"


# Listings


def test_paths_are_those_of_the_lines() -> None:
    """Blanks at their ends are part of them; empty lines are none."""
    assert parse_paths(b"a\n b \n\nc\r\nd") == ["a", " b ", "c\r", "d"]
    assert parse_paths(b"") == []


def test_names_that_git_quotes_are_unquoted() -> None:
    """As core.quotePath writes them."""
    listing = rb'"caf\303\251\t\"\\\n.txt"' + b'\n"\n"a'
    assert parse_paths(listing) == ['caf\u00e9\t"\\\n.txt', '"', '"a']


def test_paths_that_end_with_a_nul_are_as_they_are() -> None:
    """With line feeds and quotes, and bytes that are not UTF-8."""
    assert parse_paths(b'a\nb\0"c"\0\xff\0', nul=True) == ["a\nb", '"c"', "\udcff"]


# Origins


def test_origin_is_that_of_the_repository(repository: Path) -> None:
    """Without the credentials of the remote."""
    commit = git(repository, "rev-parse", "HEAD")
    origin = read_origin(repository)
    assert origin == Origin(
        repository="things",
        remote="https://example.org/team/things.git",
        commit=commit,
        branch="main",
        blobs={
            "a.txt": Blob(hash=git(repository, "hash-object", "a.txt")),
            "sub/b.txt": Blob(hash=git(repository, "hash-object", "sub/b.txt")),
        },
    )
    document = context_document(["a.txt"], root=repository, origin=origin)
    assert (
        b"<origin><repository>things</repository><remote>https://example.org/team/things.git</remote><commit>"
        + commit.encode()
        + b"</commit><branch>main</branch><dirty>false</dirty></origin>\n"
    ) in document.xml
    assert document.notes == ()


def test_files_that_differ_from_the_commit_are_marked(repository: Path) -> None:
    """Changed, staged or not, and new ones; what differs and is not in the document does not count."""
    (repository / "a.txt").write_text("changed")
    (repository / "new.txt").write_text("new")
    (repository / "sub" / "c.txt").write_text("staged")
    git(repository, "add", "sub/c.txt")
    names = ["a.txt", "new.txt", "sub/b.txt", "sub/c.txt"]
    document = context_document(names, root=repository, origin=read_origin(repository))
    assert [attributes["path"] for attributes, _ in files(document) if "differs" in attributes] == [
        "a.txt",
        "new.txt",
        "sub/c.txt",
    ]
    assert b"<dirty>true</dirty>" in document.xml
    alone = context_document(["sub/b.txt"], root=repository, origin=read_origin(repository))
    assert b"<dirty>false</dirty>" in alone.xml


def test_root_may_be_a_folder_of_the_repository(repository: Path) -> None:
    """Paths are relative to it."""
    assert list(read_origin(repository / "sub").blobs or ()) == ["b.txt"]


def test_a_file_that_git_does_not_look_at_differs_all_the_same(repository: Path) -> None:
    """What a document says of a file is said of its bytes."""
    git(repository, "update-index", "--assume-unchanged", "a.txt")
    git(repository, "update-index", "--skip-worktree", "sub/b.txt")
    for name in ("a.txt", "sub/b.txt"):
        (repository / name).write_text("c")
    document = context_document(["a.txt", "sub/b.txt"], root=repository, origin=read_origin(repository))
    assert [attributes["differs"] for attributes, _ in files(document)] == ["true", "true"]
    assert b"<dirty>true</dirty>" in document.xml


def test_ends_of_lines_that_git_converts_are_told(repository: Path) -> None:
    """The bytes are not those of the commit; what else differs is no matter of ends of lines."""
    (repository / "a.txt").write_text("one\ntwo\n")
    git(repository, "commit", "--quiet", "--all", "--message", "two")
    (repository / "a.txt").unlink()
    git(repository, "-c", "core.autocrlf=true", "checkout", "--quiet", "a.txt")
    assert (repository / "a.txt").read_bytes() == b"one\r\ntwo\r\n"
    (repository / "sub" / "b.txt").write_bytes(b"b\r\n")
    document = context_document(["a.txt", "sub/b.txt"], root=repository, origin=read_origin(repository))
    assert [attributes["differs"] for attributes, _ in files(document)] == ["line-ends", "true"]
    assert b"<dirty>true</dirty>" in document.xml


def test_a_link_differs_where_it_leads_elsewhere(repository: Path) -> None:
    """Or is a file in the commit, whatever is in that."""
    for name in ("same", "other"):
        (repository / name).symlink_to("a.txt")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "links")
    (repository / "other").unlink()
    (repository / "other").symlink_to("sub")
    (repository / "a.txt").unlink()
    (repository / "a.txt").symlink_to("a")
    document = context_document(["same", "other", "a.txt"], root=repository, origin=read_origin(repository))
    assert [attributes.get("differs") for attributes, _ in files(document)] == [None, "true", "true"]


def test_repository_may_have_sha_256(tmp_path: Path) -> None:
    """Its files are compared by that."""
    git(tmp_path, "init", "--quiet", "--object-format", "sha256")
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    (tmp_path / "b").write_text("c")
    document = context_document(["a", "b"], root=tmp_path, origin=read_origin(tmp_path))
    assert [attributes.get("differs") for attributes, _ in files(document)] == [None, "true"]


def test_a_commit_is_not_what_was_put_in_its_place(repository: Path) -> None:
    """The files are those of the commit whose name the document has."""
    commit = git(repository, "rev-parse", "HEAD")
    (repository / "a.txt").write_text("changed")
    git(repository, "commit", "--quiet", "--all", "--message", "two")
    other = git(repository, "rev-parse", "HEAD")
    git(repository, "reset", "--quiet", "--soft", commit)
    git(repository, "replace", commit, other)
    document = context_document(["a.txt"], root=repository, origin=read_origin(repository))
    assert (read_origin(repository).commit, files(document)[0][0].get("differs")) == (commit, "true")


@pytest.mark.parametrize("way", ["clean", "process", "monitor", "ssh", "upload-pack", "helper"])
def test_nothing_runs_that_a_repository_names(repository: Path, tmp_path: Path, way: str) -> None:
    """No filter, no monitor, and nothing to fetch a part of a partial clone by."""
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch '{ran}'\nexit 1\n")
    program.chmod(0o700)
    match way:
        case "clean" | "process":
            (repository / ".git" / "info" / "attributes").write_text("*.txt filter=x\n")
            git(repository, "config", f"filter.x.{way}", str(program))
            os.utime(repository / "a.txt", (0, 0))
        case "monitor":
            git(repository, "config", "core.fsmonitor", str(program))
        case _:
            tree = git(repository, "rev-parse", "HEAD:sub")
            (repository / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
            url = {"ssh": "ssh://example.invalid/x", "upload-pack": str(tmp_path), "helper": f"ext::{program}"}[way]
            settings = {
                "core.repositoryFormatVersion": "1",
                "extensions.partialClone": "origin",
                "remote.origin.promisor": "true",
                "remote.origin.url": url,
                "remote.origin.uploadpack": str(program),
                "core.sshCommand": str(program),
                "protocol.allow": "always",
                **{f"protocol.{name}.allow": "always" for name in ("ssh", "file", "ext")},
            }
            for name, value in settings.items():
                git(repository, "config", name, value)
    document = context_document(["a.txt", "sub/b.txt"], root=repository, origin=read_origin(repository))
    assert not ran.exists()
    assert [attributes.get("differs") for attributes, _ in files(document)] == [None, None]
    unknown = "it is not known whether files differ from the commit: git cannot list what is in it"
    assert document.notes == ((unknown,) if way in ("ssh", "upload-pack", "helper") else ())
    assert (b"<dirty>" in document.xml) is not bool(document.notes)


def test_repository_may_lack_anything(tmp_path: Path) -> None:
    """Commit and remote; a name it always has."""
    root = tmp_path / "fresh"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch", "trunk")
    (root / "a").write_text("a")
    assert read_origin(root) == Origin(repository="fresh", branch="trunk")
    document = context_document(["a"], root=root, origin=read_origin(root))
    assert b"<origin><repository>fresh</repository><branch>trunk</branch></origin>" in document.xml


def test_checkout_of_no_branch_has_none(repository: Path) -> None:
    """The commit says where it is; another remote than origin will do."""
    git(repository, "checkout", "--quiet", "--detach")
    git(repository, "remote", "rename", "origin", "upstream")
    origin = read_origin(repository)
    assert (origin.branch, origin.repository) == (None, "things")


def test_folder_outside_a_repository_has_no_origin(tmp_path: Path) -> None:
    """And says so."""
    assert read_origin(tmp_path) == Origin(absent="not in a git repository")


def test_why_git_refuses_a_repository_is_told(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder has no files, the repository is of another owner, or of a version that git does not know."""
    assert read_origin(repository / ".git").absent == (
        "in a git repository, but in no files of it that are checked out"
    )
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    assert read_origin(repository).absent == (
        "git refuses a repository of another owner: `git config --global --add safe.directory` lets it read it"
    )
    monkeypatch.delenv("GIT_TEST_ASSUME_DIFFERENT_OWNER")
    git(repository, "config", "core.repositoryFormatVersion", "9")
    assert read_origin(repository).absent == "git refuses to read the repository"


def test_origin_is_of_the_folder_whatever_git_is_told(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook of git's has variables that name the repository it is of."""
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    expected = read_origin(repository)
    for name, place in (("GIT_DIR", ".git"), ("GIT_WORK_TREE", "."), ("GIT_OBJECT_DIRECTORY", ".git/objects")):
        monkeypatch.setenv(name, str(other / place))
    assert read_origin(repository) == expected


def test_missing_git_is_no_failure(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The document says that nothing is known."""
    monkeypatch.setenv("PATH", str(repository))
    assert read_origin(repository) == Origin(absent="git is not installed, or does not answer")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://token@example.org/a/b.git", "https://example.org/a/b.git"),
        ("https://user:secret@example.org:8443/a?key=secret#secret", "https://example.org:8443/a"),
        ("ssh://git:secret@example.org:22/a/b", "ssh://git@example.org:22/a/b"),
        ("ssh://git@[::1]:22/a", "ssh://git@[::1]:22/a"),
        ("git@example.org:a/b.git", "git@example.org:a/b.git"),
        ("example.org:/srv/b.git", "example.org:/srv/b.git"),
        ("user:secret@example.org:a", None),
        ("https://example.org:port/a", None),
        ("ext::ssh user:secret@example.org", None),
        ("/home/someone/things.git", "things.git"),
        ("../things/", "things"),
        ("file:///home/someone/things.git", "things.git"),
        ("C:\\Users\\someone\\things", "things"),
        ("/", None),
    ],
)
def test_remotes_are_shown_without_secrets(url: str, shown: str | None) -> None:
    """Nor do they show where things are on this machine."""
    assert without_credentials(url) == shown
