"""Secrets by the names that they have, and what a value says of itself: a secret, where to find one, or words."""

from __future__ import annotations

import re

SEPARATORS = re.compile(r"[^a-z0-9]")
"""What stands between the words of a name in lower case: without it, spellings of a name are one."""

_WORD = re.compile(r"(?:[A-Z]?[a-z]{1,14}|[A-Z]{1,15})[0-9]{0,4}|[0-9]{0,8}|[0-9]{1,4}[A-Za-z]{1,2}")
_BETWEEN_WORDS = re.compile(r"[^A-Za-z0-9]+")


def are_words(text: str) -> bool:
    """Tell whether a text is made of words and short numbers, as names that people give are and tokens are not."""
    return all(map(_WORD.fullmatch, _BETWEEN_WORDS.split(text)))


_NAMES = frozenset(
    {"apikeys", "authorization", "cookie", "setcookie", "sig", "signature", "userapikeys", "xamzsignature"}
)
_ENDINGS = (
    "accesskey",
    "accountkey",
    "apikey",
    "encryptionkey",
    "masterkey",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "proxyauthorization",
    "pwd",
    "secret",
    "secretkey",
    "subscriptionkey",
    "token",
)
_DOUBTFUL = frozenset({"auth", "code", "credential", "credentials", "key", "pass", "pat", "pwd"})
"""Last words of the names of secrets and of other things: only what looks random is one."""

_HARMLESS = {
    "key": {"cache", "default", "foreign", "host", "idempotency", "object", "partition", "primary"}
    | {"pub", "public", "routing", "sort"},
    "pass": {"first", "multi", "one", "per", "second", "single", "two"},
    "token": {"bos", "cls", "continuation", "cursor", "eos", "first", "last", "mask", "max", "min", "n", "next", "num"}
    | {"pad", "page", "per", "sep", "special", "start", "stop", "sync", "unk"},
}
"""By the last word of a name, the words before it that make it the name of something else, such as `max_token`."""

_FOLDERS = frozenset({"cwd", "oldpwd", "pwd"})
"""Names of variables that hold a folder."""

_ANSWERS = frozenset(
    {"0", "1", "auto", "basic", "bearer", "disabled", "enabled", "false", "no", "none", "null", "oauth", "off", "on"}
    | {"optional", "prompt", "required", "true", "undefined", "yes"}
)
_NAME_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_AUTH_SCHEME = re.compile(r"^(?:basic|bearer|digest|token|apikey|api-key|key)(?:[\s=:]+|$)", re.IGNORECASE)
_GIVES_AUTHORITY = re.compile("auth|bearer|header$")
_SCHEME_AND_VALUE = re.compile(r"(?:basic|bearer|token) +[^ ]+ *", re.IGNORECASE)
REFERENCE = re.compile(
    r"\$\{\{[^{}]*\}\}|\$\{[#!]?[A-Za-z_][^{}]*\}?|\$\([^()]*\)?|`[^`]*`?|\$(?:env:)?[A-Za-z_]\w*|%[A-Za-z_]\w*%"
    r"|![A-Za-z_]\w*!|\{\{[^{}]*\}\}|\{[A-Za-z_][\w.:-]*\}|<[^<>]*>"
)
_DEFAULT = re.compile(r"\$\{\w+:?[-=+](?P<default>[^{}$]*)")
_ELSEWHERE = re.compile(
    r"os\.(?:environ|getenv)|getenv\(|process\.env|Deno\.env|ENV\[|System\.getenv"  # code that reads the environment
    r"|[A-Za-z][A-Za-z0-9+.-]*://|(?:env|file|input|keyring|vault):|@[\w./~-]*$"
    r"|[A-Z][A-Z0-9_]*_(?:KEY|PASS|PASSWORD|PAT|SECRET|TOKEN)$"  # the name of a variable
    r"|(?:id|type)=[\w-]+(?:,|$)"  # `docker build --secret id=x,src=y`
)
_PATH = re.compile(
    r"(?:~|\.{1,2})?/|[A-Za-z]:[\\/]|\.{1,2}\\"
    r"|[\w.-]+\.(?:cer|conf|crt|env|ini|json|jwk|key|p12|p8|pem|pfx|pub|toml|txt|ya?ml)$"
)
_BETWEEN_RANDOM = re.compile(r"[^A-Za-z0-9+]+")
_RANDOM_CHARACTERS_MIN = 20
_RANDOM = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9+/=_.~-]{16,}")


def is_secret(name: str, value: str) -> bool:
    """Tell whether a value is a secret by the name that it has, and not only where to find one."""
    words = [word.lower() for word in _NAME_WORDS.findall(name)]
    if not words or (len(words) > 1 and words[-2] in _HARMLESS.get(words[-1], ())):
        return False
    joined = "".join(words)
    if joined in _NAMES or (joined.endswith(_ENDINGS) and joined not in _FOLDERS):
        return is_literal(value)
    if words[-1] == "pass" and len(words) < 3:
        return is_literal(value)
    if _GIVES_AUTHORITY.search(joined) and _SCHEME_AND_VALUE.fullmatch(value):
        return is_literal(value)
    return (
        words[-1] in _DOUBTFUL and _RANDOM.fullmatch(value) is not None and not are_words(value) and is_literal(value)
    )


def is_literal(value: str) -> bool:
    """Tell whether a text is a value itself, and neither where to find one, nor nothing."""
    text = _AUTH_SCHEME.sub("", value.strip().strip("\\\"'"), count=1)
    if not any(map(str.isalnum, text)) or text.lower() in _ANSWERS or _ELSEWHERE.match(text) or _is_path(text):
        return False
    if any(is_literal(found["default"]) for found in _DEFAULT.finditer(text)):
        return True
    rest, references = REFERENCE.subn(" ", text)
    return not references or not are_words(rest)


def _is_path(text: str) -> bool:
    """Tell whether a text is the path of a file, and not base64 that begins like one."""
    return _PATH.match(text) is not None and not any(map(looks_random, _BETWEEN_RANDOM.split(text)))


def looks_random(text: str) -> bool:
    """Tell whether a text of some length has digits and letters in both cases, and is not made of words."""
    return (
        len(text) >= _RANDOM_CHARACTERS_MIN
        and any(map(str.isdigit, text))
        and any(map(str.isupper, text))
        and any(map(str.islower, text))
        and not are_words(text)
    )
