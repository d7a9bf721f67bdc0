"""A context document: files of a repository as one XML text, with where they are from.

```xml
<context>
<origin><repository>…</repository><remote>…</remote><commit>…</commit><branch>…</branch><dirty>false</dirty></origin>
<instructions>…</instructions>
<files caveat="…">
<file path="src/a.py" size="12" media_type="text/x-python">…</file>
<file path="logo.png" size="345" media_type="image/png" binary="true"/>
<file path="gone.txt" omitted="missing"/>
</files>
</context>
```

The text of a file is its exact text to whoever parses the XML, but for characters that XML 1.0 does not have (§2.2):
these become U+FFFD. Nothing in the document names a place on the machine that it was made on.

A file has `differs` where its bytes are not those of the commit: `line-ends` where they are but for a carriage return
before each line feed, else `true`. `dirty` says whether one has it. Nothing that a repository names is run: no filter,
no hook, no command that would fetch what is not there.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import escape, quoteattr

from msgspec import Struct

from turnlog.errors import os_reason
from turnlog.interop.folders import leads_out

BYTES_MAX = 1_000_000
"""The size of the largest file that is embedded by default, in bytes."""

CAVEAT = "texts are escaped as XML: unescape them before use"
"""What the document tells its reader."""

REPLACEMENT = "\ufffd"
"""What stands for a character that XML does not have."""

_OUTSIDE = "outside the root folder"
_SHA256_DIGITS = 64
_LINK_MODE = "120000"
_GIT_TIMEOUT_S = 60.0
_GIT_ENVIRONMENT = {
    # What a partial clone does not have is not fetched: a repository says by which program. Older gits do not know
    # the first; the other one leaves no protocol to fetch by, whatever a repository allows.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",
    # A commit is what its name says, not what a repository has put in its place.
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
}
_OTHER_REPOSITORY = {
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
}
"""Variables that say which repository git is to read, in place of the one that a folder is in."""
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_QUOTED = re.compile(rb'\\([0-7]{3}|[abtnvfr"\\])')
_ESCAPES = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}
_SCP_LIKE = re.compile(r"(?:[^@/:]+@)?[^@/:]{2,}:[^@]+")

# The system's tables differ from machine to machine, and Python's from version to version.
_TEXT_TYPES = {
    ".css": "text/css",
    ".csv": "text/csv",
    ".htm": "text/html",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".md": "text/markdown",
    ".mjs": "text/javascript",
    ".py": "text/x-python",
    ".rst": "text/x-rst",
    ".sh": "application/x-sh",
    ".sql": "application/sql",
    ".svg": "image/svg+xml",
    ".toml": "application/toml",
    ".xml": "application/xml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}
_BINARY_TYPES = {
    ".gif": "image/gif",
    ".gz": "application/gzip",
    ".ico": "image/vnd.microsoft.icon",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".mp3": "audio/mpeg",
    ".mp4": "video/mp4",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".tar": "application/x-tar",
    ".webp": "image/webp",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
    ".zip": "application/zip",
    ".zst": "application/zstd",
}


class Blob(Struct, frozen=True, kw_only=True):
    """A file or a link as a commit has it.

    Attributes:
        hash: git's name of its content, in hexadecimal: SHA-1, or SHA-256 where the repository has that.
        is_link: whether it is a link, whose content is its target.
    """

    hash: str
    is_link: bool = False


class Origin(Struct, frozen=True, kw_only=True):
    """Where files are from.

    Attributes:
        absent: why nothing is known of it; None where something is.
        repository: the repository's name.
        remote: the URL of its remote, without credentials.
        commit: the full name of the commit that is checked out.
        branch: the branch that is checked out.
        blobs: the files and links of that commit, by their paths relative to the root; None where they are not known.
    """

    absent: str | None = None
    repository: str | None = None
    remote: str | None = None
    commit: str | None = None
    branch: str | None = None
    blobs: Mapping[str, Blob] | None = None


class ContextDocument(Struct, frozen=True, kw_only=True):
    """A context document.

    Attributes:
        xml: the document, in UTF-8, with a line feed at its end.
        notes: what is not in it as it is on disk, one line each.
    """

    xml: bytes
    notes: tuple[str, ...]


class _File(Struct, frozen=True, kw_only=True):
    """A file as the document has it: with its text, or without."""

    attributes: Mapping[str, str]
    text: str | None = None
    note: str | None = None


def parse_paths(listing: bytes, *, nul: bool = False) -> list[str]:
    r"""Return the paths of a listing: one a line, or each with a NUL behind it.

    Lines in double quotes are taken for what git makes of unusual names (`"caf\303\251"`, git-config,
    core.quotePath). Bytes that are not UTF-8 are kept, as Python keeps them in paths.
    """
    if nul:
        names = listing.split(b"\0")
    else:
        names = [_unquoted(line) for line in listing.split(b"\n")]
    return [os.fsdecode(name) for name in names if name]


def _unquoted(line: bytes) -> bytes:
    if len(line) < 2 or not (line.startswith(b'"') and line.endswith(b'"')):
        return line
    return _QUOTED.sub(lambda found: _escaped(found.group(1)), line[1:-1])


def _escaped(code: bytes) -> bytes:
    return bytes([int(code, 8) & 0xFF]) if len(code) == 3 else _ESCAPES.get(code, code)


# The document


def context_document(
    paths: Iterable[str],
    *,
    root: Path,
    origin: Origin,
    instructions: str | None = None,
    bytes_max: int = BYTES_MAX,
) -> ContextDocument:
    """Return the document of some files, in the order given; a path that is given twice is there once.

    Links are not followed, and folders not entered. Files that cannot be embedded are named, with the reason.

    Args:
        paths: paths relative to the root, or absolute ones below it.
        root: the folder that all files are of.
        origin: where they are from: see `read_origin`.
        instructions: what to do with them.
        bytes_max: the size of the largest file to embed, in bytes.
    """
    names = dict.fromkeys(_name(path, root) for path in paths)
    files = [_read(name, root, origin, bytes_max) for name in names]
    lines = ["<context>", _origin_element(origin, files)]
    notes = [file.note for file in files if file.note]
    if origin.absent is not None:
        notes.insert(0, f"no origin: {origin.absent}")
    elif origin.commit is not None and origin.blobs is None:
        notes.insert(0, "it is not known whether files differ from the commit: git cannot list what is in it")
    if instructions:
        clean, replaced = _clean(instructions)
        lines.append(f"<instructions>{_text(clean)}</instructions>")
        if replaced:
            notes.append(f"instructions: {_replacements(replaced)}")
    lines += [f"<files caveat={quoteattr(CAVEAT)}>", *map(_file_element, files), "</files>", "</context>", ""]
    return ContextDocument(xml="\n".join(lines).encode(), notes=tuple(notes))


def _name(path: str, root: Path) -> str:
    """Return the path relative to the root, without detours. One that is elsewhere stays as it is."""
    place = Path(os.path.normpath(root.absolute() / path))
    bases = (Path(os.path.normpath(root.absolute())), root.resolve())
    found = next((place.relative_to(base) for base in bases if place.is_relative_to(base)), None)
    return os.path.normpath(path) if found is None else str(found)


def _read(name: str, root: Path, origin: Origin, bytes_max: int) -> _File:
    if Path(name).is_absolute():
        return _omitted(Path(name).name, _OUTSIDE)  # where it is, is the machine's affair
    place = root / name
    try:
        status = place.lstat()
        reason = _reason(place, status, root, bytes_max)
        if reason is not None:
            return _omitted(name, reason)
        if stat.S_ISLNK(status.st_mode):
            target = place.readlink()
            shown = "an absolute path" if target.is_absolute() else str(target)
            return _noted({"path": name, "link": shown} | _differs(name, os.fsencode(target), origin, is_link=True))
        content = place.read_bytes()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL in the name
        return _omitted(name, "missing")
    except OSError as error:
        return _omitted(name, f"unreadable: {os_reason(error)}")
    return _embedded(name, content, _differs(name, content, origin))


def _reason(place: Path, status: os.stat_result, root: Path, bytes_max: int) -> str | None:
    """Return why a file cannot be embedded, if it cannot. A link can be named."""
    if leads_out(place.parent, root):
        return _OUTSIDE
    if stat.S_ISLNK(status.st_mode):
        return None
    if stat.S_ISDIR(status.st_mode):
        return "a folder"
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    if status.st_size > bytes_max:
        return f"too large: {status.st_size:,} bytes, more than {bytes_max:,}"
    return None


def _differs(name: str, content: bytes, origin: Origin, *, is_link: bool = False) -> dict[str, str]:
    """Return how a file differs from the commit, as an attribute; none where it does not, or that is not known."""
    if origin.blobs is None:
        return {}
    blob = origin.blobs.get(name)
    if blob is None or blob.is_link != is_link:
        return {"differs": "true"}
    if _blob_hash(content, blob.hash) == blob.hash:
        return {}
    # Git writes files so where it is told to convert the ends of lines, as by `core.autocrlf`.
    is_as_lines = not is_link and _blob_hash(content.replace(b"\r\n", b"\n"), blob.hash) == blob.hash
    return {"differs": "line-ends" if is_as_lines else "true"}


def _blob_hash(content: bytes, like: str) -> str:
    """Return git's name of a content, by the algorithm that another name is of (gitformat-pack, Object IDs)."""
    algorithm = "sha256" if len(like) == _SHA256_DIGITS else "sha1"
    return hashlib.new(algorithm, b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _embedded(name: str, content: bytes, differs: Mapping[str, str]) -> _File:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    attributes = {"path": name, "size": str(len(content)), "media_type": _media_type(name, is_text="\0" not in text)}
    attributes |= differs
    if "\0" in text:
        return _noted(attributes | {"binary": "true"})
    clean, replaced = _clean(text)
    if not replaced:
        return _noted(attributes, text=clean)
    note = f"{name!r}: {_replacements(replaced)}"
    return _noted(attributes | {"replaced": str(replaced)}, text=clean, note=note)


def _omitted(name: str, reason: str) -> _File:
    return _noted({"path": name, "omitted": reason}, note=f"{name!r}: {reason}")


def _noted(attributes: Mapping[str, str], *, text: str | None = None, note: str | None = None) -> _File:
    """Return a file whose name XML can carry, with a note where it was changed for that."""
    name, replaced = _clean(attributes["path"])
    if replaced and note is None:
        note = f"{attributes['path']!r}: its name is shown as {name!r}"
    return _File(attributes=dict(attributes) | {"path": name}, text=text, note=note)


def _media_type(name: str, *, is_text: bool) -> str:
    """Return a media type by the extension of a name, where it is not at odds with the content."""
    types = _TEXT_TYPES if is_text else _BINARY_TYPES
    return types.get(Path(name).suffix.lower(), "text/plain" if is_text else "application/octet-stream")


def _clean(text: str) -> tuple[str, int]:
    """Return text without the characters that XML does not have, and how many they were."""
    return _NOT_XML.subn(REPLACEMENT, text)


def _replacements(count: int) -> str:
    characters = "a character" if count == 1 else f"{count:,} characters"
    return f"{characters} that XML does not have replaced by U+FFFD"


def _text(text: str) -> str:
    """Return text as the content of an element."""
    # Who reads XML takes a carriage return that is not escaped for a line feed (§2.11).
    return escape(text, {"\r": "&#13;"})


def _file_element(file: _File) -> str:
    attributes = "".join(f" {name}={quoteattr(_clean(value)[0])}" for name, value in file.attributes.items())
    return f"<file{attributes}/>" if file.text is None else f"<file{attributes}>{_text(file.text)}</file>"


def _origin_element(origin: Origin, files: Iterable[_File]) -> str:
    if origin.absent is not None:
        return f"<origin absent={quoteattr(origin.absent)}/>"
    fields = {
        "repository": origin.repository,
        "remote": origin.remote,
        "commit": origin.commit,
        "branch": origin.branch,
        "dirty": None if origin.blobs is None else str(any("differs" in file.attributes for file in files)).lower(),
    }
    inside = "".join(f"<{name}>{_text(_clean(value)[0])}</{name}>" for name, value in fields.items() if value)
    return f"<origin>{inside}</origin>"


# The origin


def read_origin(root: Path) -> Origin:
    """Ask git where the files of a folder are from.

    A repository without a commit, a remote or a branch has none. A remote on this machine has only its name.
    """
    try:
        return _origin(root)
    except OSError:
        return Origin(absent="git is not installed, or does not answer")


def _origin(root: Path) -> Origin:
    asked = _git(root, "rev-parse", "--show-toplevel")
    if asked.returncode != 0:
        return Origin(absent=_why_absent(asked.stderr))
    url = _remote_url(root)
    remote = None if url is None else without_credentials(url)
    commit = _line(root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    name = (remote or "").rstrip("/").rpartition("/")[2].rpartition(":")[2].removesuffix(".git")
    return Origin(
        repository=name or Path(_text_line(asked.stdout)).name or None,
        remote=remote,
        commit=commit,
        branch=_line(root, "symbolic-ref", "--quiet", "--short", "HEAD"),
        blobs=None if commit is None else _blobs(root, commit),
    )


def _why_absent(said: bytes) -> str:
    """Return why git names no repository, without the places that it names."""
    if b"not a git repository" in said:
        return "not in a git repository"
    if b"dubious ownership" in said:
        return "git refuses a repository of another owner: `git config --global --add safe.directory` lets it read it"
    if b"must be run in a work tree" in said:
        return "in a git repository, but in no files of it that are checked out"
    return "git refuses to read the repository"


def _remote_url(root: Path) -> str | None:
    remotes = os.fsdecode(_printed(root, "remote") or b"").split()
    if not remotes:
        return None
    name = "origin" if "origin" in remotes else remotes[0]
    return _line(root, "config", "--get", f"remote.{name}.url")


def without_credentials(url: str) -> str | None:
    """Return the URL of a remote without password, token and query; None where its form is not known.

    The user stays where it is no secret: over SSH. Of a path on this machine, its last part stays.
    """
    if "://" in url:
        try:
            parts = urlsplit(url)
            host = parts.hostname or ""
            port = "" if parts.port is None else f":{parts.port}"
        except ValueError:
            return None
        if parts.scheme == "file":
            return _last_part(parts.path)
        host = f"[{host}]" if ":" in host else host
        user = f"{parts.username}@" if parts.username and parts.scheme in ("ssh", "git+ssh", "ssh+git") else ""
        return f"{parts.scheme}://{user}{host}{port}{parts.path}"
    if "::" in url:  # a remote helper, whose address can be anything
        return None
    if _SCP_LIKE.fullmatch(url):
        return url
    return None if "@" in url else _last_part(url)


def _last_part(path: str) -> str | None:
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2] or None


def _blobs(root: Path, commit: str) -> dict[str, Blob] | None:
    """Return the files and links of a commit, by their paths relative to the root; None where git cannot list them."""
    listing = _printed(root, "ls-tree", "-r", "-z", commit)
    if listing is None:
        return None
    blobs: dict[str, Blob] = {}
    for entry in parse_paths(listing, nul=True):
        about, _, path = entry.partition("\t")
        mode, kind, name = about.split(" ")
        if kind == "blob":
            blobs[path] = Blob(hash=name, is_link=mode == _LINK_MODE)
    return blobs


def _line(root: Path, *arguments: str) -> str | None:
    return _text_line(_printed(root, *arguments) or b"") or None


def _text_line(printed: bytes) -> str:
    return os.fsdecode(printed).rstrip("\n")


def _printed(root: Path, *arguments: str) -> bytes | None:
    """Return what git prints; None where it refuses."""
    done = _git(root, *arguments)
    return done.stdout if done.returncode == 0 else None


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run git in the repository that a folder is in.

    None of the commands that are given to it reads the index or the files: these are what filters, monitors and hooks
    of a repository go with.

    Raises:
        OSError: git cannot be run, or does not come to an end.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _OTHER_REPOSITORY}
    try:
        return subprocess.run(
            # Not in that folder: git itself is found from here, should `PATH` name folders relative to it.
            ["git", "-C", str(root), *arguments],
            env=environment | _GIT_ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError("git does not come to an end") from error
