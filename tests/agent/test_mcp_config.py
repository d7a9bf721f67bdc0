"""Other programs' MCP files as registrations."""

import json
from pathlib import Path
from typing import Any

import pytest

from turnlog import MetaError, SecretError
from turnlog.agent.mcp.config import McpConfig, parse_mcp_config, read_mcp_config
from turnlog.model import ServerMeta

SECRET = "hf3k9s8d7f6g5h4j"
KEY = "ghp_" + "a8Fk29dLqPz71XvBn3mQ"
RANDOM = "a8Fk29dLqPz71XvBn3mQ"


def parsed(content: dict[str, Any] | str) -> McpConfig:
    """Return what a file with this content comes to, in the folder `/work/it`."""
    text = content if isinstance(content, str) else json.dumps(content)
    return parse_mcp_config(text, path="mcp.json", workspace=Path("/work/it"))


def server(fields: dict[str, Any], **more: Any) -> ServerMeta:
    """Return the registration of one server, `s`."""
    [meta] = parsed({"mcpServers": {"s": fields}, **more}).servers
    return meta


def test_a_desktop_file_is_read() -> None:
    """Programs with arguments and variables, an address with headers; the order of the file stays."""
    config = parsed(
        {
            "mcpServers": {
                "files": {"command": "npx", "args": ["-y", "server-filesystem", "/srv/a b"], "cwd": "/srv"},
                "github": {
                    "type": "stdio",
                    "command": "docker",
                    "args": ["run", "-i", "-e", "GITHUB_TOKEN"],
                    "env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}", "API_KEY": "${OTHER_KEY}", "LOG_LEVEL": "debug", "N": 3},
                },
                "web": {
                    "type": "streamable-http",
                    "url": "https://example.org/mcp",
                    "headers": {"X-Api-Key": "${WEB_KEY}", "Authorization": "Bearer ${WEB_TOKEN}"},
                },
            }
        }
    )
    assert config.notes == ()
    assert config.servers == (
        ServerMeta(action="register", name="files", command=("npx", "-y", "server-filesystem", "/srv/a b"), cwd="/srv"),
        ServerMeta(
            action="register",
            name="github",
            command=("docker", "run", "-i", "-e", "GITHUB_TOKEN"),
            env=("GITHUB_TOKEN",),
            env_values={"API_KEY": "${OTHER_KEY}", "LOG_LEVEL": "debug", "N": "3"},
        ),
        ServerMeta(
            action="register",
            name="web",
            url="https://example.org/mcp",
            header_env={"X-Api-Key": "WEB_KEY"},
            header_values={"Authorization": "Bearer ${WEB_TOKEN}"},
        ),
    )


def test_a_file_of_an_editor_is_read(tmp_path: Path) -> None:
    """Inputs are variables; the folder of the project is the one that has `.vscode`."""
    (tmp_path / ".vscode").mkdir()
    file = tmp_path / ".vscode" / "mcp.json"
    file.write_text(
        json.dumps(
            {
                "inputs": [
                    {"type": "promptString", "id": "gitHub-token", "description": "Token", "password": True},
                    {"type": "pickString", "id": "region", "options": ["eu", "us"], "default": "eu"},
                ],
                "servers": {
                    "s": {
                        "command": "${workspaceFolder}/serve",
                        "args": ["--home", "${userHome}", "--region=${input:region}", "${env:WHERE}"],
                        "env": {"TOKEN": "${input:gitHub-token}"},
                        "cwd": "data",
                    }
                },
            }
        )
    )
    config = read_mcp_config(file)
    assert config.servers == (
        ServerMeta(
            action="register",
            name="s",
            command=(f"{tmp_path}/serve", "--home", "${HOME}", "--region=${REGION:-eu}", "${WHERE}"),
            cwd=str(tmp_path / "data"),
            env_values={"TOKEN": "${GIT_HUB_TOKEN}"},
            expands=True,
        ),
    )
    assert config.notes == (
        "input 'region' is the environment variable REGION: set it, or put it into the keyring",
        "input 'gitHub-token' is the environment variable GIT_HUB_TOKEN: set it, or put it into the keyring",
    )


def test_shell_text_keeps_what_is_the_shells() -> None:
    """Only what could be a variable is one."""
    meta = server({"command": "sh", "args": ["-c", "x=${1%.md}; echo $x ${#x} ${HOME}"]})
    assert meta.command[2] == "x=${1%.md}; echo $x ${#x} ${HOME}"
    assert meta.expands


@pytest.mark.parametrize(
    ("fields", "timeout_s", "start_timeout_s"),
    [
        ({}, None, None),
        ({"timeout": 30}, 30.0, None),
        ({"timeout": 60000}, 60.0, None),
        ({"timeout": 999, "initTimeout": 500}, 999.0, 0.5),
        ({"timeout_s": 1200, "start_timeout_s": 2.5}, 1200.0, 2.5),
    ],
)
def test_time_outs_are_read(fields: dict[str, Any], timeout_s: object, start_timeout_s: object) -> None:
    """A number without a unit is in milliseconds from 1000 on: programs differ."""
    meta = server({"command": "run", **fields})
    assert (meta.timeout_s, meta.start_timeout_s) == (timeout_s, start_timeout_s)


def test_what_is_not_taken_over_is_noted() -> None:
    """Unknown keys, servers that are turned off, other names, time-outs without a unit, texts that nothing replaces."""
    config = parsed(
        {
            "mcpServers": {
                "off": {"command": "run", "disabled": True},
                "off too": {"type": "sse", "url": "x", "enabled": False},
                "@my/ Server": {"command": "run", "envFile": ".env", "icon": "x", "timeout": 60000, "disabled": False},
                "b": {"command": "run", "env": {"A": "$TOKEN", "B": None}},
            },
            "theme": "dark",
        }
    )
    assert [meta.name for meta in config.servers] == ["my_Server", "b"]
    assert config.notes == (
        "not read: theme",
        "'off' is turned off in the file, and left out",
        "'off too' is turned off in the file, and left out",
        "mcpServers.@my/ Server.envFile is not read: set the variables in the environment, and name them in `env`",
        "mcpServers.@my/ Server.icon is not read",
        "'@my/ Server' is called 'my_Server' here: names have letters, digits, - and _ only",
        "mcpServers.@my/ Server.timeout is read as 60 s",
        "mcpServers.b.env.B is null, and left out",
        "mcpServers.b.env.A: $TOKEN is handed on as it stands: only ${NAME} stands for a variable",
    )


@pytest.mark.parametrize(
    ("fields", "place", "variable"),
    [
        ({"command": "run", "env": {"API_TOKEN": SECRET}}, "env.API_TOKEN", "API_TOKEN"),
        ({"command": "run", "env": {"MY_KEY": "hunter2"}}, "env.MY_KEY", "MY_KEY"),
        ({"command": "run", "env": {"API_KEY": f"${{API_KEY:-{SECRET}}}"}}, "env.API_KEY", "API_KEY"),
        ({"command": "run", "env": {"DB": f"postgres://me:{SECRET}@db/x"}}, "env.DB", "DB"),
        ({"command": "run", "env": {"DB": f"Server=db;Password={SECRET}"}}, "env.DB", "DB"),
        ({"command": "run", "args": [f"--token={SECRET}"]}, "args[0]", "MY_S_TOKEN"),
        ({"command": "run", "args": ["-v", "--api-key", "X1"]}, "args[2]", "MY_S_TOKEN"),
        ({"command": "sh", "args": ["-c", "KEY=hunter2 run"]}, "args[1]", "MY_S_TOKEN"),
        ({"command": "sh", "args": ["-c", f"API_TOKEN={SECRET} exec run"]}, "args[1]", "MY_S_TOKEN"),
        ({"command": "run", "args": [f"postgres://me:{SECRET}@db/x"]}, "args[0]", "MY_S_TOKEN"),
        ({"command": "npx", "args": ["mcp-remote", "https://x/", "--header", f"Authorization: Bearer {SECRET}"]},
         "args[3]", "MY_S_TOKEN"),
        ({"command": f"https://me:{SECRET}@x/run"}, "command", "MY_S_TOKEN"),
        ({"url": f"https://x.org/mcp?api_key={SECRET}"}, "url", "MY_S_TOKEN"),
        ({"url": f"https://me:{SECRET}@x.org/mcp"}, "url", "MY_S_TOKEN"),
        ({"url": "https://x.org/", "headers": {"Authorization": f"Bearer {SECRET}"}}, "headers.Authorization",
         "MY_S_TOKEN"),
        ({"url": "https://x.org/", "headers": {"X-Api-Key": "hunter2"}}, "headers.X-Api-Key", "MY_S_TOKEN"),
        ({"url": f"https://x.org/mcp/{RANDOM}/s"}, "url", "MY_S_TOKEN"),
        ({"command": "run", "args": [f"${{Q:-{KEY}}}"]}, "args[0]", "MY_S_TOKEN"),
        ({"command": "run", "args": [f"${{API_KEY:-{RANDOM}}}"]}, "args[0]", "MY_S_TOKEN"),
        ({"command": "run", "env": {"API_TOKEN": "${A:-${B:-hunter2}}"}}, "env.API_TOKEN", "API_TOKEN"),
        ({"command": "run", "env": {"DB": "Server=db;Pwd=hunter2"}}, "env.DB", "DB"),
        ({"command": "run", "env": {"AUTH_HEADER": "Bearer hunter2"}}, "env.AUTH_HEADER", "AUTH_HEADER"),
    ],
    ids=str,
)  # fmt: skip
def test_a_literal_secret_is_refused_with_the_way_to_do_it(fields: dict[str, Any], place: str, variable: str) -> None:
    """And is not repeated."""
    with pytest.raises(SecretError) as caught:
        parsed({"mcpServers": {"my s": fields}})
    assert str(caught.value) == (
        f"mcpServers.my s.{place}: looks like a secret, and secrets never enter the log: write ${{{variable}}} in its"
        f" place, and set {variable} in the environment or with `keyring set turnlog {variable}`"
    )
    assert caught.value.field == f"mcpServers.my s.{place}"


@pytest.mark.parametrize(
    "fields",
    [
        {"command": "run", "args": ["--token=${TOKEN}", "--api-key", "${API_KEY}", "postgres://me:${PASSWORD}@db/x"]},
        {"command": "sh", "args": ["-c", "API_KEY=${API_KEY} exec run"]},
        {"url": "https://x.org/mcp?api_key=${API_KEY}"},
        {"url": "https://x.org/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
    ],
    ids=str,
)
def test_a_named_secret_is_taken(fields: dict[str, Any]) -> None:
    """In arguments, shell text, addresses and headers."""
    meta = server(fields)
    assert meta.expands or meta.header_values


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"mcpServers": {}, // mine\n}', "it is no JSON (expecting property name enclosed in double quotes, line 1 "
         "column 20): take comments and commas before a closing bracket out"),
        ('{"mcpServers": {"a": {}, "a": {}}}', "it has 'a' twice in one object: rename one of them"),
        ("[]", "the file: expected an object"),
        ("{}", "it has no `mcpServers` or `servers`: expected one of them"),
        ({"mcpServers": {}, "servers": {}}, "it has both mcpServers and servers: expected one of them"),
        ({"mcpServers": []}, "mcpServers: expected an object"),
        ({"mcpServers": {"a": "run"}}, "mcpServers.a: expected an object"),
        ({"servers": {}, "inputs": [{"id": "x", "type": "command"}]},
         "inputs[0]: 'x' is of type 'command', which only an editor can do: write ${NAME} in its place, and set that"
         " variable"),
        ({"servers": {}, "inputs": [{"id": "a-b", "type": "promptString"}, {"id": "a_b", "type": "promptString"}]},
         "inputs[1]: 'a_b' and 'a-b' would both be the variable A_B"),
        ({"servers": {"a b": {"command": "x"}, "a/b": {"command": "x"}}},
         "two servers would be called 'a_b': rename one of them"),
        ('{"mcpServers": {"a": {"command": "x", "timeout": ' + "1" * 5000 + "}}}",
         "a number in it has too many digits"),
    ],
    ids=str,
)  # fmt: skip
def test_a_file_that_cannot_be_read_says_why(content: dict[str, Any] | str, message: str) -> None:
    """Comments, too, are no JSON."""
    with pytest.raises(MetaError) as caught:
        parsed(content)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, ": a server has a `command` or a `url`, and this is neither"),
        ({"command": "x", "url": "http://x/"}, ": a server has a `command` or a `url`, and this is both"),
        ({"type": "sse", "url": "http://x/sse"}, ".type: turnlog does not speak the old transport `sse`: give the"
         ' server\'s address for streamable HTTP with "type": "http", which most have (often it ends with /mcp in place'
         " of /sse), or run a bridge as `command`, such as `npx mcp-remote URL`"),
        ({"type": "ws", "url": "http://x/"}, ".type: 'ws' is not what it can be here: expected 'http'"),
        ({"type": "http", "command": "x"}, ".type: 'http' is not what it can be here: expected 'stdio'"),
        ({"url": "http://x/", "httpUrl": "http://x/"}, ".httpUrl: it has url too: leave one of them out"),
        ({"url": "ftp://x/"}, ".url: 'ftp://x/' is not an address such as https://example.org/v1"),
        ({"url": "http://x/", "env": {"A": "b"}}, ".env: is for a `command`; a `url` takes `headers`"),
        ({"command": "x", "headers": {"A": "b"}}, ".headers: is for a `url`; a program takes `env`"),
        ({"command": ["x"]}, ".command: expected a text"),
        ({"command": "x", "args": "y"}, ".args: expected an array of texts"),
        ({"command": "x", "args": [1]}, ".args[0]: expected a text"),
        ({"command": "x", "env": {"A": []}}, ".env.A: expected a text"),
        ({"command": "x", "disabled": "no"}, ".disabled: expected true or false"),
        ({"command": "x", "timeout": -1}, ".timeout: expected a number above 0, up to 1,000,000,000"),
        ({"command": "x", "timeout": 10**400}, ".timeout: expected a number above 0, up to 1,000,000,000"),
        ({"command": "x", "type": []}, ".type: [] is not what it can be here: expected 'stdio'"),
        ({"command": "x", "cwd": "~nobody-of-this-name/x"},
         ".cwd: '~nobody-of-this-name/x': nobody of that name has a home folder here"),
        ({"url": "http://x/", "headers": {"X-A": "1", "x-a": "2"}},
         ".headers.x-a: it has 'X-A' too, which is the same header: leave one of them out"),
        ({"command": "x", "args": ["${input:y}"]}, ".args[0]: there is no 'y' among the inputs of the file"),
        ({"command": "x", "args": ["${file}"]},
         ".args[0]: ${file} is known to an editor only: write what it is, or ${NAME} for a variable"),
        ({"command": "x\0"}, ".command: it has a NUL character in it"),
    ],
    ids=str,
)  # fmt: skip
def test_a_server_that_cannot_be_registered_says_why(fields: dict[str, Any], message: str) -> None:
    """By its place in the file."""
    with pytest.raises(MetaError) as caught:
        server(fields)
    assert str(caught.value) == f"mcpServers.s{message}"


def test_a_secret_in_the_place_of_a_name_is_not_repeated(tmp_path: Path) -> None:
    """Where a file is read, in what is said of its names and types."""
    file = tmp_path / "mcp.json"
    found: list[dict[str, Any]] = [
        {"command": "x", KEY: 1},
        {"command": "x", "type": KEY},
        {"command": "x", "env": {KEY: []}},
    ]
    for fields in found:
        file.write_text(json.dumps({"mcpServers": {"s": fields}}))
        try:
            said = " ".join(read_mcp_config(file).notes)
        except (MetaError, SecretError) as error:
            said = str(error)
        assert "…" in said
        assert KEY not in said


def test_some_servers_of_a_file_are_read() -> None:
    """What is wrong with the others does not matter."""
    content = '{"servers": {"a": {"command": "x"}, "b": {"type": "sse", "url": "x"}}}'
    config = parse_mcp_config(content, path="mcp.json", workspace=Path("/"), only=["a"])
    assert config.servers == (ServerMeta(action="register", name="a", command=("x",)),)
    with pytest.raises(MetaError) as caught:
        parse_mcp_config(content, path="mcp.json", workspace=Path("/"), only=["c"])
    assert str(caught.value) == "servers: there is no 'c' (one of 'a', 'b')"


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    """With its path, as is what is wrong in it."""
    with pytest.raises(MetaError) as caught:
        read_mcp_config(tmp_path / "mcp.json")
    assert str(caught.value) == f"'{tmp_path}/mcp.json': no such file or directory"
    (tmp_path / "mcp.json").write_bytes(b"\xff")
    with pytest.raises(MetaError) as caught:
        read_mcp_config(tmp_path / "mcp.json")
    assert str(caught.value) == f"'{tmp_path}/mcp.json': it is not UTF-8 (byte 0)"
