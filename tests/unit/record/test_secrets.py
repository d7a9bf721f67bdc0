"""Secrets never enter the log."""

import contextlib
from typing import Any

import pytest
from msgspec import Raw

from turnlog.errors import MetaError, SecretError
from turnlog.model import Text
from turnlog.record.secrets import refuse_secrets, refuse_secrets_in_command, refuse_secrets_in_url

LONG = "abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.mark.parametrize(
    "key",
    [
        "api_key",
        "apiKey",
        "API-KEY",
        "x-api-key",
        "openai_api_key",
        "userApiKeys",
        "x-goog-api-key",
        "Authorization",
        "Proxy-Authorization",
        "cookie",
        "Set-Cookie",
        "password",
        "db_password",
        "secret",
        "client_secret",
        "aws_secret_key",
        "access_token",
        "refreshToken",
        "private_key",
    ],
)
@pytest.mark.parametrize("value", ["x", "", {"openai": "x"}, ["x"], 5, False])
def test_key_of_a_secret_is_refused_whatever_its_value(key: str, value: Any) -> None:
    """A key that names a secret is refused in any spelling; the error names the field."""
    with pytest.raises(SecretError) as caught:
        refuse_secrets({"a": [{key: value}]}, field="inherited")
    assert caught.value.field == f"inherited.a[0].{key}"


# Tokens of every known kind. Not one is real: they are put together here, so that no scanner takes them for one.
TOKENS = [
    f"sk-{LONG}",
    f"sk-proj-{LONG}",
    f"sk-ant-api03-{LONG}",
    "sk-" + "a" * 24,
    "sk-" + "abcdefghijklmnopqrstuvwx",
    "sk-test-1234567890abcdef",
    "sk_" + f"live_{LONG}",
    f"gsk_{LONG}",
    f"xai-{LONG}",
    f"csk-{LONG}",
    f"hf_{LONG}",
    f"AIza{LONG}",
    f"ghp_{LONG}",
    f"gho_{LONG}",
    f"ghs_{LONG}",
    f"ghu_{LONG}",
    f"ghr_{LONG}",
    f"github_pat_11ABCDEFG0_{LONG}",
    f"glpat-{LONG[:20]}",
    "xox" + "b-1234-5678-abcdef",
    "xox" + "p-1234",
    "xox" + "a-2",
    "AK" + "IAIOSFODNN7EXAMPLE",
    "AS" + "IAIOSFODNN7EXAMPLE",
    "ey" + "JhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    "-----BEGIN " + "PRIVATE KEY-----",
    "-----BEGIN " + "RSA PRIVATE KEY-----",
    "-----BEGIN " + "OPENSSH PRIVATE KEY-----",
    "-----BEGIN " + "PGP PRIVATE KEY BLOCK-----",
    f"Bearer {LONG}",
    f"bearer {LONG}",
    f"Basic {LONG}==",
    "https://hooks.slack.com/services/T0000/B0000/" + LONG[:24],
    "123456789:AA" + LONG[:33],
    "postgresql://me:hunter2@localhost/db",
    "https://me:hunter2@example.org/",
    "redis://:hunter2@localhost:6379/0",
]


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize(
    "around", ["{}", "--option={}", "say '{}' aloud", 'a\n"{}"\n', "x={};y", "({})", "a,{},b", "é{}", "${{X:-{}}}"]
)
def test_text_with_a_secret_anywhere_in_it_is_refused(token: str, around: str) -> None:
    """What looks like a key is refused under any name and anywhere in a text, and the message does not show it."""
    with pytest.raises(SecretError) as caught:
        refuse_secrets({"a": {"note": [1, around.format(token)]}}, field="inherited")
    assert caught.value.field == "inherited.a.note[1]"
    assert token not in str(caught.value)
    assert LONG not in str(caught.value)


def test_secret_that_is_a_key_is_refused_and_not_repeated() -> None:
    """A token that names a value is refused; the error names the record that it is in."""
    with pytest.raises(SecretError) as caught:
        refuse_secrets({"a": [{f"sk-{LONG}": 1}]}, field="inherited")
    assert caught.value.field == "inherited.a[0]"
    assert LONG not in str(caught.value)


def test_first_secret_of_a_record_is_named() -> None:
    """The error names the first one in the order of the record."""
    with pytest.raises(SecretError) as caught:
        refuse_secrets({"a": {"b": ["x", f"sk-{LONG}"]}, "c": f"sk-{LONG}"}, field="f")
    assert caught.value.field == "f.a.b[1]"


def test_secret_is_found_at_any_depth() -> None:
    """A record that is nested deeper than functions can call is searched to its end."""
    deep: Any = f"sk-{LONG}"
    for _ in range(20_000):
        deep = [{"a": deep}]
    with pytest.raises(SecretError):
        refuse_secrets(deep, field="f")


@pytest.mark.parametrize(
    "options",
    [
        {"api_key": None},
        {"max_tokens": 5, "token_limit": 1, "keys": ["a"], "key": "b", "secretary": "c"},
        {"tool_mode": "Basic tools", "note": "Bearer of news", "x": "sk-short", "y": "ask-" + LONG},
        {"servers": ["password-manager", "secret-santa"]},
        {"a": [None, True, 1, 1.5, "text", [], {}]},
        {},
    ],
)
def test_ordinary_options_pass(options: dict[str, Any]) -> None:
    """Options that only resemble secrets are accepted, and a null that unsets one."""
    refuse_secrets(options, field="inherited")


@pytest.mark.parametrize(
    "text",
    [
        "/home/me/sk-learn-tutorial-notebooks",
        "sk-learn-tutorial-notebooks-2023",
        "task-skeleton-generator-for-everyone",
        "desk-" + LONG,
        "disk_ghp_" + LONG,
        "hf_hub_download hf_transfer",
        "ghp_ is how tokens of GitHub begin, gho_ and ghs_ too",
        "xoxo",
        "AKIA",
        "ASIAPACIFICHEADQUARTER",
        "Bearer authentication-required",
        "Basic tools/for/beginners and more",
        "Bearer $ACCESS_TOKEN_OF_MINE",
        "Bearer ${ACCESS_TOKEN_OF_MINE}",
        "Bearer <your-token-goes-here>",
        "eyJ is how a JSON Web Token begins",
        "eyJhbGciOiJIUzI1NiJ9",
        "-----BEGIN CERTIFICATE-----",
        "-----BEGIN " + "PUBLIC KEY-----",
        "https://example.org:8443/a@b",
        "http://localhost:8080/path?time=12:30@noon",
        "https://$USER:$PASSWORD@example.org/",
        "https://user:${PASSWORD}@example.org/",
        "https://{user}:{password}@example.org/",
        "docker://alpine:3@sha256:" + "0a" * 32,
        "sha256:" + "0a1b" * 16,
        "123e4567-e89b-12d3-a456-426614174000",
        "Keep secrets, tokens and passwords to yourself: never print an api_key.",
        "ssh://git@github.com/me/repo.git",
    ],
)
def test_text_that_only_resembles_a_secret_passes(text: str) -> None:
    """Words, names of variables, digests and ids are no secrets."""
    refuse_secrets({"note": [text, f"see {text}", f'"{text}"']}, field="inherited")


# ---------------------------------------------------------------------------------------------------------------- URLs


@pytest.mark.parametrize(
    "url",
    [
        "https://user:pass@example.org/v1",
        "https://user:p%40ss@example.org/v1",
        "https://user@example.org/v1",
        "https://:pass@example.org/v1",
        "https://me:$USER:pass1word@example.org/",
        "http://me:hunter2@[::1]:8080/",
        "wss://me:hunter2@example.org/",
        "postgresql://postgres:postgres@localhost:5432/db",
        "mongodb+srv://me:hunter2@cluster.example.org/",
        "redis://:hunter2@localhost:6379",
        "ssh://git:hunter2@example.org/repo",
        "https://example.org/?api_key=hunter2",
        "https://example.org/?apiKey=hunter2",
        "https://example.org/?a=1&access_token=hunter2&b=2",
        "https://example.org/?token=hunter2",
        "https://example.org/?client%5Fsecret=hunter2",
        "https://example.org/?password=p%61ss",
        "https://example.org/?sig=abc%3D",
        "https://example.org/?X-Amz-Signature=abc",
        f"https://example.org/?key={LONG}",
        f"https://example.org/?code={LONG}==",
        "https://example.org/#access_token=hunter2",
        "https://example.org/#/route?token=hunter2",
        f"https://example.org/sk-{LONG}/mcp",
        f"https://example.org/a/%73k-{LONG}/mcp",
        f"https://example.org/ghp_{LONG}",
        f"https://example.org/?x=sk-{LONG}",
        f"https://example.org/?x=%73k-{LONG}",
        f"https://sk-{LONG}@example.org/",
        "https://hooks.slack.com/services/T0000/B0000/" + LONG[:24],
        f"https://api.telegram.org/bot123456789:AA{LONG[:33]}/getMe",
        "https://example.org/?token=${TOKEN:-hunter2}",
        "https://example.org/?token=${TOKEN:-${OTHER:-hunter2}}",
        "https://example.org/api/s/NDk2ZTQ5YjUtOWE0Zi00ZGRh/mcp",
        "https://example.org/mcp?k=a8Fk29dLqPz71XvBn3mQ",
        "https://example.org/mcp#a8Fk29dLqPz71XvBn3mQ",
        "https://me:hunter2@[malformed/",
    ],
)
def test_url_with_a_secret_is_refused_and_not_repeated(url: str) -> None:
    """A secret is found in every part of a URL, spelled out or with escapes."""
    with pytest.raises(SecretError) as caught:
        refuse_secrets_in_url(url, field="base_url")
    assert caught.value.field == "base_url"
    assert "hunter2" not in str(caught.value)
    assert LONG not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/v1",
        "http://localhost:11434/v1/",
        "http://[::1]:8080/",
        "https://example.org/v1?page=2&limit=10#section-3",
        "https://example.org/?key=name&sort_key=created_at",
        "https://example.org/?max_token=5&page_token=abc&token_limit=3",
        "https://example.org/?token=",
        "https://example.org/?token",
        "https://example.org/?token=$TOKEN",
        "https://example.org/?token=${TOKEN}&x=1",
        "https://example.org/?api_key=%API_KEY%",
        "https://example.org/?api_key=%DATABASE_KEY%",
        "https://example.org/?api_key={API_KEY}",
        "https://example.org/?api_key=%7BAPI_KEY%7D",
        "https://${USER}:${PASSWORD}@example.org/",
        "https://$TOKEN@example.org/",
        "https://example.org/@scope/package@1.2.3",
        "https://example.org/tokens/secret/password",
        "https://example.org/repo/commit/0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
        "https://me.example.org/123e4567-e89b-12d3-a456-426614174000/mcp",
        "https://example.org/?session=123e4567-e89b-12d3-a456-426614174000",
        "ssh://git@github.com/me/repo.git",
        "git+ssh://git@github.com/me/repo.git",
        "postgresql://me@localhost/db?sslmode=require",
        "docker://alpine:3@sha256:" + "0a" * 32,
        "https://example.org/?code=200",
        "https://[malformed/",
        "not a url",
        "",
    ],
)
def test_url_without_a_secret_passes(url: str) -> None:
    """What is found by a URL is no secret, and neither is the name of a variable in it."""
    refuse_secrets_in_url(url, field="base_url")


# ------------------------------------------------------------------------------------------------------- command lines


@pytest.mark.parametrize(
    ("command", "index"),
    [
        # options
        (["run", "--api-key", "hunter2"], 2),
        (["run", "--api-key=hunter2"], 1),
        (["run", "--api_key", "hunter2"], 2),
        (["run", "--apikey=hunter2"], 1),
        (["run", "--openai-api-key", "hunter2"], 2),
        (["run", "-api-key", "hunter2"], 2),
        (["run", "--token", "hunter2"], 2),
        (["run", "--token=hunter2"], 1),
        (["run", "-token=hunter2"], 1),
        (["run", "--access-token", "hunter2"], 2),
        (["run", "--githubToken", "hunter2"], 2),
        (["run", "--password", "hunter2"], 2),
        (["run", "--db-password=hunter2"], 1),
        (["run", "--db.password=hunter2"], 1),
        (["run", "--secret", "hunter2"], 2),
        (["run", "--client-secret", "hunter2"], 2),
        (["run", "--passphrase", "correct horse"], 2),
        (["run", "--pass", "hunter2"], 2),
        (["run", "--cookie", "session=hunter2"], 2),
        (["run", "--verbose", "--token", "12345678"], 3),
        (["run", "--key", LONG], 2),
        (["run", f"--key={LONG}"], 1),
        (["run", "--secret-access-key", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"], 2),
        (["run", "--token", "/9j4AAQSkZJRgABAQAAAQABAAD"], 2),
        (["run", "--token", f"{LONG}$X"], 2),
        (["run", "--token", "${TOKEN:-hunter2}"], 2),
        (["curl", "-u", "me:hunter2", "https://example.org"], 2),
        (["curl", "-ume:hunter2", "https://example.org"], 1),
        (["/usr/bin/curl", "--user=me:hunter2", "https://example.org"], 1),
        # forms
        (["run", f"sk-{LONG}"], 1),
        ([f"sk-{LONG}"], 0),
        (["run", f"--option=sk-ant-api03-{LONG}"], 1),
        (["run", "x", f"--config=a,ghp_{LONG},b"], 2),
        (["run", "-k", f"AIza{LONG}"], 2),
        # assignments
        (["env", "API_KEY=hunter2", "run"], 1),
        (["API_KEY=hunter2", "run"], 0),
        (["docker", "run", "-e", "GITHUB_TOKEN=hunter2", "image"], 3),
        (["docker", "run", "-eGITHUB_TOKEN=hunter2", "image"], 2),
        (["docker", "run", "--env=DB_PASSWORD=hunter2", "image"], 2),
        (["docker", "run", "-e", "DB_PASS=hunter2", "image"], 3),
        (["docker", "run", "-e", "PGPASSWORD=hunter2", "image"], 3),
        (["docker", "run", "-e", f"OPENAI_KEY={LONG}", "image"], 3),
        (["run", "--set", "a=$A,auth.token=hunter2"], 2),
        (["java", "-Dapi.key=hunter2", "-jar", "a.jar"], 1),
        (["run", "AccountName=x;AccountKey=hunter2;"], 1),
        # headers
        (["curl", "-H", "Authorization: Bearer hunter2", "https://example.org"], 2),
        (["curl", "-HAuthorization: Bearer hunter2", "https://example.org"], 1),
        (["curl", "-H", "X-Api-Key: hunter2"], 2),
        (["curl", "-H", "Cookie: session=hunter2"], 2),
        (["npx", "mcp-remote", "https://example.org/sse", "--header", "Authorization:Bearer hunter2"], 4),
        (["run", "--header=Authorization: hunter2"], 1),
        (["run", "--headers", '{"Authorization": "Bearer hunter2"}'], 2),
        (["run", f"Authorization: Bearer {LONG}"], 1),
        (["git", "-c", f"http.extraheader=AUTHORIZATION: basic {LONG}", "fetch"], 2),
        # records
        (["run", "--config", '{"apiKey":"hunter2"}'], 2),
        (["run", "--config", '{"a": {"client_secret" : "hunter2"}}'], 2),
        # shell text
        (["bash", "-c", "export TOKEN=hunter2 ; run"], 2),
        (["bash", "-c", "export TOKEN=hunter2; run"], 2),
        (["bash", "-lc", "API_KEY='hunter2' exec run"], 2),
        (["bash", "-c", 'API_KEY="hunter2" exec run'], 2),
        (["sh", "-c", "run --token hunter2"], 2),
        (["sh", "-c", "cd x && run --api-key 'hunter2' | tee log"], 2),
        (["sh", "-c", 'curl -H "Authorization: Bearer hunter2" https://example.org'], 2),
        (["sh", "-c", "curl -u me:hunter2 https://example.org"], 2),
        (["sh", "-c", "curl 'https://example.org/?a=1&token=hunter2'"], 2),
        (["sh", "-c", "sh -c 'sh -c \"run --token hunter2\"'"], 2),
        (["sudo", "sh", "-c", "TOKEN=$(cat token) SECRET=hunter2 run"], 3),
        (["sh", "-c", f"echo sk-{LONG} | run"], 2),
        (["sh", "-c", "TOKEN=hunter2 run don't"], 2),
        (["cmd", "/c", "set TOKEN=hunter2&& run"], 2),
        (["powershell", "-Command", '$env:TOKEN = "hunter2"; run'], 2),
        (["python", "-c", "import x; x.main(api_key='hunter2')"], 2),
        (["python", "-c", 'import x; x.h["Authorization"] = "hunter2"'], 2),
        (["node", "-e", 'run({apiKey: "hunter2"})'], 2),
        (["concurrently", f"npm start --token {LONG}"], 1),
        (["run", "Server=db;User Id=sa;Pwd=hunter2;"], 1),
        (["env", "DBPWD=hunter2", "run"], 1),
        (["sshpass", "-p", "hunter2", "ssh", "host"], 2),
        (["sshpass", "-phunter2", "ssh", "host"], 1),
        (["sh", "-c", "cd /x && /usr/bin/mysql -u me -phunter2 db"], 2),
        (["sudo", "mysqldump", "-phunter2", "db"], 2),
        (["run", "--token", "${TOKEN:-${OTHER:-hunter2}}"], 2),
        (["run", "AUTH_HEADER=Bearer", "--auth-header", "Bearer hunter2"], 3),
        # URLs
        (["run", "https://user:hunter2@example.org/"], 1),
        (["run", "https://hunter2@example.org/"], 1),
        (["run", "--url=https://user:hunter2@example.org/"], 1),
        (["run", "postgresql://me:hunter2@localhost/db"], 1),
        (["run", "https://example.org/?api_key=hunter2"], 1),
        (["run", "--url", "https://example.org/sse#token=hunter2"], 2),
        (["run", f"https://example.org/%73k-{LONG}"], 1),
        (["run", "jdbc:postgresql://localhost/db?user=me&password=hunter2"], 1),
        (["git", "clone", "https://oauth2:hunter2@gitlab.com/me/repo.git"], 2),
    ],
    ids=lambda value: " ".join(value)[:70] if isinstance(value, list) else "",
)
def test_command_with_a_secret_is_refused_and_not_repeated(command: list[str], index: int) -> None:
    """The argument that holds a secret is named by its index, and its value is not shown."""
    with pytest.raises(SecretError) as caught:
        refuse_secrets_in_command(command, field="command")
    assert caught.value.field == f"command[{index}]"
    assert str(caught.value).startswith(f"command[{index}]: looks like a secret")
    assert "hunter2" not in str(caught.value)
    assert LONG not in str(caught.value)


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["run"],
        ["npx", "-y", "@modelcontextprotocol/server-filesystem@2025.3.28", "/home/me/My Documents", "C:\\Users\\me"],
        ["uvx", "mcp-server-git", "--repository", "/path/to/token/repo"],
        ["uvx", "--from", "git+https://github.com/me/repo@v1.2.3", "run"],
        ["uvx", "--with", "token==1.0", "--with", "secret>=2,<3", "secret-santa==1.2"],
        ["python", "-m", "keyring", "get", "service", "me"],
        ["node", "/opt/password-manager/index.js"],
        # names of variables and of files
        ["run", "--token", "$TOKEN"],
        ["run", "--token", "${TOKEN}"],
        ["run", "--token=${TOKEN}"],
        ["run", "--token=${TOKEN:-}"],
        ["run", "--token=${TOKEN:?set a token first}"],
        ["run", "--token", "${env:GITHUB_TOKEN}"],
        ["run", "--token", "${{ secrets.GITHUB_TOKEN }}"],
        ["run", "--token", "{{ token }}"],
        ["run", "--token", "<your token>"],
        ["run", "--token=<your token>"],
        ["run", "--token", "GITHUB_TOKEN"],
        ["run", "--password", "%DB_PASSWORD%"],
        ["run", "--password", "$(pass show db)"],
        ["run", "--password", "`pass show db`"],
        ["run", "--password", "op://vault/item/password"],
        ["run", "--api-key-env", "OPENAI_API_KEY"],
        ["run", "--token-file", "/run/secrets/token"],
        ["run", "--token-file=token.txt"],
        ["run", "--token", "/run/secrets/github_token"],
        ["run", "--private-key", "~/.ssh/id_ed25519"],
        ["run", "--private-key", "server.pem", "--key", "./key.pem", "--public-key", f"{LONG}"],
        ["run", "--password-stdin", "me"],
        ["run", "--secret-name", "prod/db", "--secret-id", "x", "--key-id", "abc"],
        ["docker", "build", "--secret", "id=mysecret,src=./file", "."],
        ["docker", "run", "-i", "--rm", "-e", "GITHUB_PERSONAL_ACCESS_TOKEN", "ghcr.io/github/github-mcp-server:v1"],
        ["docker", "run", "-e", "TOKEN=$TOKEN", "--env=API_KEY=${API_KEY},OTHER=value1234567", "image"],
        ["docker", "run", "-u", "1000:1000", "-v", "/a:/b:ro", "-p", "8080:80", "vault-secret:latest"],
        ["docker", "run", "image@sha256:" + "0a" * 32],
        ["docker", "run", "-e", "GOOGLE_APPLICATION_CREDENTIALS=/run/secrets/google.json", "image"],
        # options that ask, and values that are none
        ["run", "--no-password", "db"],
        ["run", "--ask-password", "db"],
        ["run", "--password", "--verbose"],
        ["run", "--token", ""],
        ["run", "--token="],
        ["run", "--token"],
        ["run", "--use-token=true", "--cookie", "none", "--auth", "oauth"],
        # words with other meanings
        ["run", "--max-tokens", "4096", "--max-token", "9", "--eos-token", "</s>", "--pad-token=<pad>"],
        ["run", "--tokenizer", "gpt2", "--token-limit", "5", "--token-budget=high", "--page-token", "abc123"],
        ["run", "--sort-key", "created_at", "--primary-key=id", "CACHE_KEY=" + LONG],
        ["run", "--key", "path/to/object-2024.parquet", "--pass", "$PASS"],
        ["run", "--compass", "north", "--two-pass", "fast", "BYPASS=all", "PWD=/home/me"],
        [
            "run",
            "--project",
            "123e4567-e89b-12d3-a456-426614174000",
            "--commit",
            "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
        ],
        [
            "run",
            "sk-learn-tutorial-notebooks",
            "--topic=sk-image-processing-basics",
            "--model",
            "sk-llama-3-8b-instruct",
        ],
        ["git", "-c", "credential.helper=store", "-c", "user.signingkey=0A1B2C3D4E5F6071", "clone", "x"],
        ["gpg", "--default-key", "0A1B2C3D4E5F60718293"],
        ["run", "--allowed-tools", "get_token,set_password,read_secret", "--scopes", "repo,read:token"],
        ["run", "--field", "token:string", "--jq", ".data.token", "--token-prefix", "tok", "--keyring", "mine"],
        [
            "run",
            "--credentials",
            "creds.json",
            "--password-policy",
            "strong",
            "--token-url",
            "https://a.org/oauth/token",
        ],
        ["bash", "-c", "set -a && source .env && env $(grep -v '^#' .env | xargs) node dist/index.js"],
        ["bash", "-c", "TOKEN=${TOKEN:-$(cat ~/.token)} exec run --host ${HOST:-0.0.0.0}"],
        ["npx", "mcp-remote", "https://<HOST>/mcp", "--header", "x-api-key:<YOUR_API_KEY>"],
        ["npx", "mcp-remote", "https://a.org", "--metadata", '{"token_endpoint_auth_method":"none"}'],
        ["kubectl", "get", "secret", "my-secret", "-o", "jsonpath={.data.token}"],
        ["aws", "secretsmanager", "get-secret-value", "--secret-id", "prod/db"],
        ["gh", "auth", "token", "--hostname", "github.com"],
        # shell text
        ["bash", "-c", 'export TOKEN="$GITHUB_TOKEN"; exec run'],
        ["bash", "-c", "TOKEN=$(cat /run/secrets/token) run --token $TOKEN"],
        ["bash", "-c", "TOKEN=`cat /run/secrets/token` exec run"],
        ["bash", "-c", 'TOKEN="$(pass show "my token")" run --token "$TOKEN" --verbose'],
        ["bash", "-c", "run --token $(pass show x) --api-key <(pass show y)"],
        ["bash", "-c", 'if [ -z "$API_KEY" ]; then echo "no API_KEY: set it" >&2; exit 1; fi'],
        ["bash", "-c", '[ "$TOKEN" = "x" ] || [[ $TOKEN == "y" ]] && unset TOKEN API_KEY'],
        ["bash", "-c", "source .env && run --token-file token.txt # the token is not here"],
        ["bash", "-c", 'curl -H "Authorization: Bearer $TOKEN" -u "$USER:$PASSWORD" https://example.org'],
        ["cmd", "/c", "npx", "-y", "server", "--token", "%TOKEN%"],
        ["cmd", "/c", "set TOKEN=%GITHUB_TOKEN%&& run"],
        ["powershell", "-Command", "$env:TOKEN = $env:GITHUB_TOKEN; run"],
        ["python", "-c", "import os, x; x.main(api_key=os.environ['API_KEY'], token=os.getenv('TOKEN'))"],
        ["python", "-c", "import x; x.main(token=x.get_token(), password=args.password, secret=None)"],
        ["node", "-e", "run({apiKey: process.env.API_KEY, token: null})"],
        ["run", "--prompt", "Explain the --token option, and why a password is never printed."],
        ["run", "--prompt", "Authorization: what it means. It's about secrets"],
        # headers
        ["curl", "-H", "Authorization: Bearer $TOKEN", "-H", "Accept: text/html", "-H", "X-Request-Id: 1"],
        ["npx", "mcp-remote", "https://example.org/sse", "--header", "Authorization:${AUTH_HEADER}"],
        ["npx", "mcp-remote", "https://example.org/sse", "--header", "Authorization: Bearer ${TOKEN}"],
        ["run", "--headers", '{"Authorization": "Bearer ${TOKEN}", "X-Api-Key": "$KEY"}'],
        ["run", "--config", '{"token": "${TOKEN}", "max_tokens": 5, "tool": {"token": {"type": "string"}}}'],
        # URLs
        ["run", "https://example.org/sse?page=2", "--url=http://localhost:8080/"],
        ["run", "https://example.org/sse?token=$TOKEN", "https://${USER}:${PASSWORD}@example.org/"],
        ["run", "postgresql://me@localhost/db", "redis://localhost:6379/0"],
        ["run", "https://cdn.example.org/a8Fk29dLqPz71XvBn3mQ/tool.tgz"],
        ["sh", "-c", "PWD=/srv OLDPWD=/ run; echo 'a;pwd=$PWD'"],
        ["sshpass", "-p", "$SSH_PASSWORD", "ssh", "-p", "2222", "host"],
        ["mysql", "-p", "db"],
        ["mysql", "--protocol=tcp", "-p${MYSQL_PASSWORD}"],
        ["npx", "mysql", "-project", "x"],
        ["run", "--auth-header", "Bearer ${TOKEN}"],
        ["git", "clone", "git@github.com:me/repo.git", "ssh://git@github.com/me/repo.git"],
    ],
    ids=lambda command: " ".join(command)[:70],
)
def test_ordinary_command_passes(command: list[str]) -> None:
    """Commands without a secret are accepted, though they speak of tokens, keys and passwords."""
    refuse_secrets_in_command(command, field="command")


@pytest.mark.parametrize(
    "text",
    [
        "a" * 50_000,
        "a-" * 25_000,
        "TOKEN" * 10_000,
        "token " * 7_000,
        "token" + " " * 50_000,
        "a://" * 12_000,
        "a://b:" * 7_000,
        "$(" * 25_000,
        "token=${" * 2_500,
        "token=" * 7_000,
        "token=x," * 7_000,
        'token="x" ' * 7_000,
        "token=<" * 5_000,
        "eyJ" * 15_000,
        "-----BEGIN " * 5_000,
        "/" + "aB" * 25_000,
        "'" * 25_001,
        '"\\' * 12_000,
        "sh -c '" * 5_000,
        "x: " * 15_000,
        "%41" * 15_000,
    ],
    ids=lambda text: text[:12],
)
def test_long_text_is_searched_in_time(text: str) -> None:
    """A long argument that was made to be hard to search does not hold anybody up."""
    for command in ([text], ["run", "--token-file", text], ["sh", "-c", text], [f"--token=${{X}}{' ' * 9}", text]):
        with contextlib.suppress(SecretError):
            refuse_secrets_in_command(command, field="command")
    for refuse in (refuse_secrets, refuse_secrets_in_url):
        with contextlib.suppress(SecretError):
            refuse("https://example.org/" + text, field="f")


TOKEN = "sk-ant-api03-" + LONG


@pytest.mark.parametrize(
    "value",
    [
        Raw(f'"{TOKEN}"'.encode()),
        Raw(f'{{"a":[1,{{"b":"{TOKEN}"}}]}}'.encode()),
        Raw(b'{"api_key":"x"}'),
        Raw(b'{"api_\\u006bey":"x"}'),
        Raw(f'{{"a":"{TOKEN}","a":1}}'.encode()),
        Text(text=TOKEN),
    ],
)
def test_a_secret_in_raw_json_and_in_a_struct_is_refused(value: object) -> None:
    """As in the value that they say, also where a reader would not see it."""
    with pytest.raises(SecretError, match=r"^params\.extra"):
        refuse_secrets({"extra": value}, field="params")


def test_raw_json_without_a_secret_is_fine() -> None:
    """However its numbers are spelled."""
    refuse_secrets({"extra": Raw(b'{"n":1e999,"m":1.50,"a":null}')}, field="params")


def test_raw_json_that_is_nested_too_deeply_is_refused() -> None:
    """Nobody could look into it."""
    with pytest.raises(MetaError, match=r"^params: nested too deeply"):
        refuse_secrets(Raw(b"[" * 100_000 + b"]" * 100_000), field="params")
