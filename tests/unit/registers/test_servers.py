"""MCP servers by name."""

import re
from pathlib import Path
from typing import Any

import pytest

from turnlog import MetaError, SecretError, TurnLog, UnknownServerError
from turnlog.model import ServerMeta


def test_server_is_registered_and_deleted(log: TurnLog) -> None:
    """Variables and headers are kept by name, never by value."""
    log.servers.set("fs", ["serve", "--root", "."], env=["TOKEN"], timeout_s=3.0)
    log.servers.set("web", url="https://example.org/mcp", header_env={"Authorization": "TOKEN"})
    fs, web = log.servers.all()
    assert (fs.command, fs.env, fs.timeout_s) == (("serve", "--root", "."), ("TOKEN",), 3.0)
    assert (web.url, web.header_env) == ("https://example.org/mcp", {"Authorization": "TOKEN"})
    log.servers.delete("fs")
    with pytest.raises(UnknownServerError, match=r"no MCP server 'fs' \(one of web\): register it with"):
        log.servers.get("fs")
    with pytest.raises(UnknownServerError):
        log.servers.delete("fs")


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf")])
def test_time_out_is_a_number_of_seconds(log: TurnLog, timeout_s: float) -> None:
    """Above zero, and finite."""
    with pytest.raises(MetaError):
        log.servers.set("a", ["run"], timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"command": "python notes.py"}, "command: expected a list of texts, such as ['python', 'notes_server.py']"),
        ({"command": [Path("/bin/notes")]}, "command[0]: expected str, got PosixPath"),
        ({"command": 3}, "command: expected a list of texts"),
        ({"env": "API_KEY"}, "env: expected a list of texts, such as ['API_KEY'], got str"),
        ({"roots": "/home"}, "roots: expected a list of texts"),
        ({"cwd": Path("/srv")}, "server.cwd: PosixPath is not JSON"),
        ({"cwd": b"/srv"}, "server.cwd: bytes is not JSON"),
        ({"cwd": 3}, "server.cwd: expected 'str', got 'int'"),
        ({"cwd": "\ud800"}, "server.cwd: not valid UTF-8"),
        ({"timeout_s": True}, "server.timeout_s: expected 'float | null', got 'bool'"),
        ({"expands": 3}, "server.expands: expected 'bool', got 'int'"),
        ({"env_values": {"A": 3}}, "server.env_values[...]: expected 'str', got 'int'"),
    ],
)
def test_what_is_of_another_type_is_refused(log: TurnLog, fields: dict[str, Any], says: str) -> None:
    """With what was expected; nothing is recorded, and nothing is made to fit."""
    with pytest.raises(MetaError, match=re.escape(says)):
        log.servers.set("a", **{"command": ["run"], **fields})
    assert (log.servers.all(), [*log.events()]) == ([], [])
    with pytest.raises(MetaError):
        log.servers.set_all([ServerMeta(action="register", name="a", command=("run",), cwd=b"/srv")])  # type: ignore[arg-type]
    assert log.servers.all() == []


@pytest.mark.parametrize("name", ["a___b", "a b", "", "é", "a/b"])
def test_server_name_fits_into_tool_names(log: TurnLog, name: str) -> None:
    """It is the part before the three underscores."""
    with pytest.raises(MetaError):
        log.servers.set(name, ["run"])


def test_value_in_the_place_of_a_variable_is_refused(log: TurnLog) -> None:
    """And the message does not repeat it."""
    with pytest.raises(MetaError) as caught:
        log.servers.set("a", url="http://127.0.0.1/", header_env={"Authorization": "Bearer xyz"})
    assert "xyz" not in str(caught.value)


def test_server_has_either_a_command_or_a_url(log: TurnLog) -> None:
    """Neither and both are refused."""
    with pytest.raises(MetaError):
        log.servers.set("a")
    with pytest.raises(MetaError):
        log.servers.set("a", ["run"], url="http://127.0.0.1/")


@pytest.mark.parametrize("url", ["ftp://x", "x", "http://", "http://[::1"])
def test_url_is_an_address(log: TurnLog, url: str) -> None:
    """Of HTTP, with a host."""
    with pytest.raises(MetaError):
        log.servers.set("s", url=url)


SECRET = "hf3k9s8d7f6g5h4j"


@pytest.mark.parametrize(
    ("command", "where"),
    [
        (["run", "--token", "sk-" + "a1" * 15], "command[2]"),
        (["run", "--api-key", SECRET], "command[2]"),
        (["run", f"--password={SECRET}"], "command[1]"),
        (["env", f"API_KEY={SECRET}", "run"], "command[1]"),
        (["sh", "-c", f"TOKEN={SECRET} exec run"], "command[2]"),
        (["sh", "-c", f"export X=1; run --secret '{SECRET}'"], "command[2]"),
        (["bash", "-lc", f"curl -H 'Authorization: Bearer {SECRET}' http://x/"], "command[2]"),
        (["mcp-remote", "https://x/", "--header", f"Authorization: {SECRET}"], "command[3]"),
        (["mcp-remote", f"https://me:{SECRET}@x/"], "command[1]"),
        (["run", f"postgresql://me:{SECRET}@db/x"], "command[1]"),
        (["curl", "-u", f"me:{SECRET}", "http://x/"], "command[2]"),
    ],
    ids=str,
)
def test_secret_in_a_command_line_is_refused(log: TurnLog, command: list[str], where: str) -> None:
    """In an argument, an assignment, shell text or a URL: the message says where it stands, and not what it is."""
    with pytest.raises(SecretError) as caught:
        log.servers.set("s", command)
    assert caught.value.field == where
    assert SECRET not in str(caught.value)
    assert log.stats().events == 0


@pytest.mark.parametrize("url", [f"https://me:{SECRET}@x/mcp", f"https://x/mcp?token={SECRET}"])
def test_secret_in_an_address_is_refused(log: TurnLog, url: str) -> None:
    """As in that of a provider."""
    with pytest.raises(SecretError) as caught:
        log.servers.set("s", url=url)
    assert SECRET not in str(caught.value)
    assert log.stats().events == 0


@pytest.mark.parametrize(
    "command",
    [
        ["run", "--token", "$TOKEN"],
        ["sh", "-c", "run --token ${TOKEN}"],
        ["run", "--token-file", "/run/secrets/token"],
        ["run", "--api-key-env", "API_KEY"],
        ["npx", "-y", "@modelcontextprotocol/server-filesystem@2025.1.14", "/home/me/notes"],
    ],
    ids=str,
)
def test_command_that_says_where_a_secret_is_is_registered(log: TurnLog, command: list[str]) -> None:
    """A variable, a file or a word is no secret."""
    assert log.servers.set("s", command).command == tuple(command)


def test_only_what_is_done_with_a_server_is_public(log: TurnLog, tmp_path: Path) -> None:
    """Its command and its folder may name a person, and can be erased."""
    log.servers.set("anna", ["serve", "/home/anna"], cwd=str(tmp_path), env=["ANNAS_TOKEN"])
    *_, event = log.events()
    assert bytes(event.header.meta) == b'{"action":"register"}'
    assert b"anna" not in event.state.lower()


def program(name: str, *command: str, **fields: Any) -> ServerMeta:
    """Return the registration of a program."""
    return ServerMeta(action="register", name=name, command=command or ("run",), **fields)


def test_servers_are_registered_together_or_not_at_all(log: TurnLog) -> None:
    """Those that are registered in just this way already are left as they are."""
    log.servers.set("a", ["run"])
    wanted = [program("a"), program("b", env_values={"LEVEL": "1"}), program("c", "run", "${X}", expands=True)]
    assert log.servers.set_all(wanted) == wanted[1:]
    assert log.servers.all() == wanted
    assert log.servers.set_all(wanted) == []
    for flawed in (program("d", url="http://x/"), program("b")):
        with pytest.raises(MetaError):
            log.servers.set_all([program("e"), program("b"), flawed])
    with pytest.raises(SecretError):
        log.servers.set_all([program("e"), program("f", "run", f"--token={SECRET}")])
    assert log.servers.all() == wanted


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"env_values": {"API_TOKEN": SECRET}}, "env_values.API_TOKEN"),
        ({"env_values": {"SOME_KEY": "hunter2"}}, "env_values.SOME_KEY"),
        ({"env_values": {"DB": f"postgres://me:{SECRET}@x/"}}, "env_values.DB"),
        ({"header_values": {"Authorization": f"Bearer {SECRET}"}}, "header_values.Authorization"),
        ({"env_values": {"sk-" + "a1" * 15: "x"}}, "mcp.server[0]"),
        ({"command": ("sh", "-c", "KEY=hunter2 run")}, "command[2]"),
    ],
    ids=str,
)
def test_secret_in_a_value_is_refused(log: TurnLog, fields: dict[str, Any], where: str) -> None:
    """Where it is named, it is not."""
    with pytest.raises(SecretError) as caught:
        log.servers.set_all([ServerMeta(**{"action": "register", "name": "a", "command": ("run",), **fields})])
    assert caught.value.field == where


def test_names_of_secrets_in_values_are_fine(log: TurnLog) -> None:
    """They say where the secret is."""
    values = {"API_TOKEN": "${OTHER_TOKEN}", "DB": "postgres://me:${PASSWORD}@x/", "LEVEL": "debug"}
    meta = log.servers.set("a", ["run"], env_values=values, start_timeout_s=2.0)
    assert (log.servers.get("a"), meta.env_values, meta.start_timeout_s) == (meta, values, 2.0)
    meta = log.servers.set("a", url="${BASE}/mcp", header_values={"Authorization": "Bearer ${X}"}, expands=True)
    assert log.servers.get("a") == meta
    for fields in ({"env_values": {"A=B": "c"}}, {"header_values": {"A B": "c"}}, {"start_timeout_s": 0.0}):
        with pytest.raises(MetaError):
            log.servers.set_all([program("a", **fields)])
    with pytest.raises(MetaError):
        log.servers.set("a", url="${BASE}/mcp")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"command": ["notes\0"]}, r"command\[0\]: a program cannot be given a NUL character"),
        ({"command": ["notes", "a\0b"]}, r"command\[1\]: a program cannot be given a NUL"),
        ({"command": ["notes"], "cwd": "/tmp\0"}, "cwd: a program cannot be given a NUL"),
        ({"command": ["notes"], "env_values": {"A": "b\0"}}, r"env_values\.A: a program cannot be given a NUL"),
        ({"url": "https://x.org", "header_env": {"X Y": "V"}}, "header_env: 'X Y' cannot be the name of a header"),
        ({"url": "https://x.org", "header_env": {"": "V"}}, "header_env: '' cannot be the name of a header"),
        ({"url": "https://x.org", "header_env": {"X\r\nY": "V"}}, "header_env: 'X.*' cannot be the name of a header"),
        ({"url": "https://x.org", "header_values": {"X": "a\r\nY: b"}}, r"header_values\.X: a header is one line"),
        ({"url": "https://x.org", "header_values": {"X": "a\0"}}, r"header_values\.X: a header is one line"),
    ],
)
def test_what_no_program_and_no_server_can_be_given_is_refused(log: TurnLog, fields: dict[str, Any], says: str) -> None:
    """When it is registered, and not by each run that would start it."""
    with pytest.raises(MetaError, match=f"^{says}"):
        log.servers.set("notes", **fields)
    assert log.servers.all() == []


def test_names_of_headers_are_those_of_http(log: TurnLog) -> None:
    """RFC 9110 has more than letters, digits and dashes."""
    meta = log.servers.set("notes", url="https://x.org", header_env={"X.Key": "NOTES"}, header_values={"X!": "a\tb"})
    assert log.servers.get("notes") == meta
