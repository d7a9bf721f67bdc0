"""Secrets never enter the log: what looks like one is refused, by the name that it has or by its form.

What says only where a secret is may be recorded: `$TOKEN`, `${TOKEN}`, `%TOKEN%`, `$(pass show x)`, the path of a file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast
from urllib.parse import unquote, unquote_plus, urlsplit

from turnlog.errors import SecretError

_KEYS = frozenset(
    {
        "accesstoken",
        "apikey",
        "apikeys",
        "apisecret",
        "apitoken",
        "authorizationtoken",
        "authorization",
        "authtoken",
        "bearer",
        "bearertoken",
        "clientsecret",
        "cookie",
        "password",
        "privatekey",
        "proxyauthorization",
        "refreshtoken",
        "secret",
        "secretkey",
        "setcookie",
        "userapikey",
        "userapikeys",
        "xapikey",
        "xgoogapikey",
    }
)
_SUFFIXES = ("apikey", "apikeys", "secretkey", "secretaccesskey", "accesstoken", "sessiontoken", "password", "passwd")
_SEPARATORS = re.compile(r"[^a-z0-9]")


def refuse_secrets(value: object, *, field: str) -> None:
    """Raise if a record has a key that names a secret, or a text with a secret anywhere in it, at any depth.

    Raises:
        SecretError: names the field; the value is not repeated.
    """
    pending: list[tuple[object, str]] = [(value, field)]
    while pending:  # a stack and no recursion, so that any depth is read
        inner, place = pending.pop()
        match inner:
            case str():
                if _has_form(inner):
                    raise _secret(place)
            case Mapping():
                pending += reversed(list(_members(cast("Mapping[str, object]", inner), place)))
            case list() | tuple():
                items = cast("Sequence[object]", inner)
                pending += [(items[index], f"{place}[{index}]") for index in reversed(range(len(items)))]
            case _:
                pass


def _members(record: Mapping[str, object], field: str) -> Iterator[tuple[object, str]]:
    for name, value in record.items():
        if _has_form(name):
            raise _secret(field)  # the name is the secret, and is not repeated either
        key = _SEPARATORS.sub("", name.lower())
        if value is not None and (key in _KEYS or key.endswith(_SUFFIXES)):
            raise _secret(f"{field}.{name}")
        yield value, f"{field}.{name}"


def refuse_secrets_in_url(url: str, *, field: str) -> None:
    """Raise if a URL has a secret in it: in its user name or password, its path, its query or its fragment.

    A user name alone is a secret where it goes with HTTP, and none in `ssh://git@example.org` or `postgresql://me@host`.
    Behind the host, a part of 20 characters or more that looks random is one.
    Names of variables in the place of a secret are fine.

    Raises:
        SecretError: names the field; the value is not repeated.
    """
    if _has_form(url) or any(_is_secret_url(each) or _has_random_part(each) for each in _urls(url)):
        raise _secret(field)


def refuse_secrets_in_command(command: Sequence[str], *, field: str) -> None:
    """Raise if a command line has a secret in it.

    Found are, in arguments and in shell text within them: options and assignments that are named like a secret and have
    a value (`--api-key x`, `--token=x`, `API_KEY=x`), HTTP headers, URLs as `refuse_secrets_in_url` does, and texts of
    the form of a known kind of token. Options that name a variable or a file (`--api-key-env NAME`, `--token-file x`)
    are fine, and so are values that do.

    Raises:
        SecretError: names the argument by its index, such as `command[3]`; the value is not repeated.
    """
    index = _secret_word(command, shell=True, depth=0)
    if index is not None:
        raise _secret(f"{field}[{index}]")


def _secret(field: str) -> SecretError:
    return SecretError(
        f"{field}: looks like a secret, and secrets never enter the log: keep it in the environment or the keyring",
        field=field,
    )


# --------------------------------------------------------------------------------------------------- by the form alone


def _begun(mark: str, rest: str, *, hyphen: bool = True) -> str:
    """Return a pattern of what begins with a mark, behind no word nor, where that is so, behind a word and a hyphen.

    The mark comes first and then what must not be before it, so that it is searched for as plain text: many times
    as fast.
    """
    return rf"{mark}(?<!\w{mark})" + (rf"(?<!\w-{mark})" if hyphen else "") + rest


# By what each form has in it: a text without any of these, as most are, is not searched further. `risk-…` and
# `task-sk-…` are words; in `${NAME:-sk-…}` a hyphen stands before a token, and what is surely none stands behind any.
_FORMS = {
    mark: (kind, re.compile(pattern, re.ASCII))
    for mark, (kind, pattern) in {
        "sk-": ("api-key", _begun("sk-", r"(?P<rest>[\w-]{16,})")),  # OpenAI, Anthropic, OpenRouter, DeepSeek, …
        "k_": ("api-key", r"(?<!\w)(?<!\w-)(?:[rs]k_(?:live|test)|gsk)_(?P<rest>\w{16,})"),  # Stripe, Groq
        "xai-": ("xai-key", _begun("xai-", r"(?P<rest>[\w-]{20,})")),
        "csk-": ("cerebras-key", _begun("csk-", r"(?P<rest>[\w-]{20,})")),  # Cerebras
        "pplx-": ("perplexity-key", _begun("pplx-", r"(?P<rest>[\w-]{20,})")),
        "nvapi-": ("nvidia-key", _begun("nvapi-", r"(?P<rest>[\w-]{20,})")),
        "hf_": ("huggingface-token", _begun("hf_", r"(?P<rest>[A-Za-z0-9]{16,})", hyphen=False)),
        "gh": ("github-token", _begun("gh", r"[oprsu]_(?P<rest>[A-Za-z0-9]{16,})", hyphen=False)),
        "github_pat_": ("github-token", _begun("github_pat_", r"(?P<rest>\w{16,})", hyphen=False)),
        "glpat-": ("gitlab-token", _begun("glpat-", r"(?P<rest>[\w-]{16,})")),
        "npm_": ("npm-token", _begun("npm_", r"(?P<rest>[A-Za-z0-9]{30,})", hyphen=False)),
        "pypi-": ("pypi-token", _begun("pypi-", r"(?P<rest>AgEI[\w-]{30,})")),
        "xox": ("slack-token", _begun("xox", r"[abeoprs]-(?=\w)")),  # Slack
        "xapp-": ("slack-token", _begun("xapp-", r"(?P<rest>[\w-]{16,})")),
        "hooks.slack.com": ("slack-webhook", r"hooks\.slack\.com/services/T\w+/B\w+/\w{16,}"),
        "AIza": ("google-key", _begun("AIza", r"[\w-]{30,}", hyphen=False)),  # Google
        "ya29.": ("google-token", _begun(r"ya29\.", r"(?P<rest>[\w-]{20,})")),
        "AKIA": ("aws-key", _begun("AKIA", r"[A-Z0-9]{16}(?!\w)", hyphen=False)),  # AWS
        "ASIA": ("aws-key", _begun("ASIA", r"(?=[A-Z]*[0-9])[A-Z0-9]{16}(?!\w)", hyphen=False)),
        "SG.": ("sendgrid-key", _begun(r"SG\.", r"[\w-]{16,}\.[\w-]{16,}", hyphen=False)),  # SendGrid
        ":AA": ("telegram-token", r"(?<!\d)\d{8,10}:AA[\w-]{33}(?![\w-])"),  # Telegram
        "eyJ": ("json-web-token", _begun("eyJ", r"[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}")),  # JSON Web Token (RFC 7519 §3)
        # PEM (RFC 7468 §10), in any spelling
        "-----": ("private-key", r"-----(?i:BEGIN(?:[A-Z0-9 _]|-(?!-)){0,100}PRIVATE KEY)"),
        "earer ": ("bearer-token", r"(?<!\w)(?<!\w-)[Bb]earer +(?P<rest>[A-Za-z0-9+/=._~-]{16,})"),
        "asic ": ("basic-credentials", r"(?<!\w)(?<!\w-)[Bb]asic +(?P<rest>[A-Za-z0-9+/=._~-]{16,})"),
    }.items()
}
_USER_AND_PASSWORD = re.compile(r"(?<![A-Za-z0-9+.])[A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s/?#@:]*:(?P<rest>[^\s/?#@]+)@")
_IMAGE_SCHEMES = ("docker://", "oci://")
"""Schemes of container images, where `name:tag@digest` stands for no user and no password."""

_NAMED_BEFORE = ("earer ", "asic ")
"""Forms that begin with a word that is no part of the secret."""

_REST = re.compile(r"[\w./+=~-]*[\w/+=-]", re.ASCII)
"""What a token may go on with: a full stop at its end is that of the sentence."""

_REST_CHARACTERS_MAX = 4096

_PEM_LAST = re.compile(r"-----END(?: [A-Z0-9 _]{0,60}-{0,5})?", re.ASCII | re.IGNORECASE)
_PEM_BODY = re.compile(r"[A-Za-z0-9+/=\s\\:,.-]*")
_PEM_CHARACTERS_MAX = 1 << 17

FORM_CHARACTERS_MAX = _PEM_CHARACTERS_MAX + _REST_CHARACTERS_MAX
"""So many characters from where a form begins, nothing is looked at any more."""

_FORM_CHARACTERS_MIN = 6
_WORD = re.compile(r"(?:[A-Z]?[a-z]{1,14}|[A-Z]{1,15})[0-9]{0,4}|[0-9]{0,8}|[0-9]{1,4}[A-Za-z]{1,2}")
_BETWEEN_WORDS = re.compile(r"[^A-Za-z0-9]+")


class Form(NamedTuple):
    """A known kind of secret in a text: from where (inclusive) to where (exclusive), in characters, and the kind."""

    start: int
    end: int
    kind: str


def forms_in(text: str) -> Iterator[Form]:
    """Yield the known kinds of secrets that stand in a text, each whole. Those of different kinds may overlap."""
    ends: dict[str, int] = {}
    for form in _forms(text):
        if form.start >= ends.get(form.kind, 0):  # else it is within one that was found, and nothing is read twice
            end = ends[form.kind] = _whole(text, form)
            yield Form(form.start, end, form.kind)


def masked_forms(text: str) -> str:
    """Return a text with an ellipsis in the place of each known kind of secret that stands in it."""
    shown, at = "", 0
    for form in sorted(forms_in(text)):
        if form.end > at:
            shown += text[at : max(form.start, at)] + "…"
            at = form.end
    return shown + text[at:]


def _has_form(text: str) -> bool:
    """Tell whether a known kind of secret stands anywhere in a text."""
    return next(_forms(text), None) is not None


def _forms(text: str) -> Iterator[Form]:
    """Yield what is known by its form, as far as the form goes: the secret may go on behind it."""
    if len(text) < _FORM_CHARACTERS_MIN:
        return
    for mark, (kind, form) in _FORMS.items():
        if mark in text:
            for found in form.finditer(text):
                # `sk-learn-tutorial-notebooks` and `Bearer authentication-required` are words.
                if "rest" not in form.groupindex or not _are_words(found["rest"]):
                    named = mark in _NAMED_BEFORE
                    yield Form(found.start("rest" if named else 0), found.end(), kind)
    if "://" in text:
        for found in _USER_AND_PASSWORD.finditer(text):
            if _is_literal(found["rest"]) and not found[0].startswith(_IMAGE_SCHEMES):
                yield Form(found.start("rest"), found.end("rest"), "password")


def _whole(text: str, form: Form) -> int:
    """Return where a secret ends: a form is most often found by its beginning."""
    if form.kind == "password":
        return form.end
    if form.kind != "private-key":
        rest = _REST.match(text, form.end, form.end + _REST_CHARACTERS_MAX)
        return form.end if rest is None else rest.end()
    last = _PEM_LAST.search(text, form.end, form.end + _PEM_CHARACTERS_MAX)
    if last is not None:
        return last.end()
    body = _PEM_BODY.match(text, form.end, form.end + _PEM_CHARACTERS_MAX)
    return form.end if body is None else body.end()


def _are_words(text: str) -> bool:
    """Tell whether a text is made of words and short numbers, as names that people give are and tokens are not."""
    return all(map(_WORD.fullmatch, _BETWEEN_WORDS.split(text)))


# ----------------------------------------------------------------------------------------------------- by its own name

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

_QUESTIONS = frozenset(
    {"allow", "ask", "check", "disable", "enable", "hide", "no", "prompt", "require", "show", "skip", "verify"}
)
"""First words of options that take no value."""

_ANSWERS = frozenset(
    {"0", "1", "auto", "basic", "bearer", "disabled", "enabled", "false", "no", "none", "null", "oauth", "off", "on"}
    | {"optional", "prompt", "required", "true", "undefined", "yes"}
)
_NAME_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_AUTH_SCHEME = re.compile(r"^(?:basic|bearer|digest|token|apikey|api-key|key)(?:[\s=:]+|$)", re.IGNORECASE)
_GIVES_AUTHORITY = re.compile("auth|bearer|header$")
_SCHEME_AND_VALUE = re.compile(r"(?:basic|bearer|token) +[^ ]+ *", re.IGNORECASE)
_REFERENCE = re.compile(
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
        return _is_literal(value)
    if words[-1] == "pass" and len(words) < 3:
        return _is_literal(value)
    if _GIVES_AUTHORITY.search(joined) and _SCHEME_AND_VALUE.fullmatch(value):
        return _is_literal(value)
    return (
        words[-1] in _DOUBTFUL and _RANDOM.fullmatch(value) is not None and not _are_words(value) and _is_literal(value)
    )


def _is_literal(value: str) -> bool:
    """Tell whether a text is a value itself, and neither where to find one, nor nothing."""
    text = _AUTH_SCHEME.sub("", value.strip().strip("\\\"'"), count=1)
    if not any(map(str.isalnum, text)) or text.lower() in _ANSWERS or _ELSEWHERE.match(text) or _is_path(text):
        return False
    if any(_is_literal(found["default"]) for found in _DEFAULT.finditer(text)):
        return True
    rest, references = _REFERENCE.subn(" ", text)
    return not references or not _are_words(rest)


def _is_path(text: str) -> bool:
    """Tell whether a text is the path of a file, and not base64 that begins like one."""
    return _PATH.match(text) is not None and not any(map(_looks_random, _BETWEEN_RANDOM.split(text)))


def _looks_random(text: str) -> bool:
    return (
        len(text) >= _RANDOM_CHARACTERS_MIN
        and any(map(str.isdigit, text))
        and any(map(str.isupper, text))
        and any(map(str.islower, text))
        and not _are_words(text)
    )


# ------------------------------------------------------------------------------------------------------------- in URLs

_URL = re.compile(r"(?<![A-Za-z0-9+.])[A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s'\"<>|`\\]+")
_HTTP = ("http", "https", "ws", "wss")


def _urls(text: str) -> list[str]:
    return _URL.findall(text) if "://" in text else []


def _is_secret_url(url: str) -> bool:
    if _has_form(unquote(url)):
        return True
    try:
        parts = urlsplit(url)
    except ValueError:  # the host is malformed, and what stands before it may be a secret
        return "@" in url
    user_and_password, found, _ = parts.netloc.rpartition("@")
    if found and f"{parts.scheme}://" not in _IMAGE_SCHEMES:
        user, _, password = user_and_password.partition(":")
        if any(map(_is_secret_part, (password, user) if parts.scheme in _HTTP else (password,))):
            return True
    return any(
        is_secret(unquote_plus(name), value) and _is_secret_part(value)
        for pairs in (parts.query, parts.fragment)
        for name, _, value in (pair.partition("=") for pair in pairs.split("&"))
    )


def _has_random_part(url: str) -> bool:
    """Tell whether a URL has a part that looks random behind its host, as addresses that are secrets have."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    text = f"{parts.path}/{parts.query}/{parts.fragment}"
    return any(map(_looks_random, re.split("[/&=]", _REFERENCE.sub("/", unquote(text)))))


def _is_secret_part(text: str) -> bool:
    # `%DATABASE%` is the name of a variable before it is a text with escapes.
    return _is_literal(text) and _is_literal(unquote(text))


# ---------------------------------------------------------------------------------------------------- in command lines

_DEPTH_MAX = 8
"""How deep shell text in shell text is read."""

_OPTION = re.compile(r"--?(?P<name>[A-Za-z][\w.-]*)")
_ASSIGNED = re.compile(
    r"(?<![\w$])(?P<name>[A-Za-z_][\w.-]{0,99})(?:=(?![=>~])|\\?[\"']?\]?\s*[:=]\s*(?=\\?[\"']))", re.ASCII
)
_VALUE = re.compile(
    r"\\?\"(?P<double>[^\"]*)|\\?'(?P<single>[^']*)|(?P<bare>(?:<[^<>]*>|\$\{[^{}]*\}|[^\s;|&),\"']){0,1000})"
)
_CODE = re.compile(
    r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\.(?:\w*_)?(?:api_?key|password|secret|token)$|\($)", re.IGNORECASE
)
_HEADER = re.compile(r"(?:-H|[\w.-]*headers?[= ])?\s*(?P<name>[A-Za-z][\w-]*):\s*(?P<value>.*)", re.DOTALL)
_HEADER_OPTION = re.compile(r"-H|-{1,2}[A-Za-z-]*headers?")
_HEADER_NAMES = ("accesstoken", "apikey", "authorization", "authtoken", "cookie", "privatetoken", "setcookie")
_INLINE = re.compile(r"-[a-z]*c|/[ck]|-{1,2}(?:command|eval|exec|run)|-e", re.IGNORECASE)
_FETCHER = re.compile(r"(?:.*[/\\])?(?:curl|wget)(?:\.exe)?", re.DOTALL)
_WITH_PASSWORD = re.compile(r"(?:.*/)?(?P<name>sshpass|mariadb|mysql(?:admin|dump|import|sh)?)", re.DOTALL)
_BEFORE_PROGRAMS = frozenset({"&&", "||", "|", ";", "exec", "sudo", "time"})
_PASSWORD_OPTION = re.compile(r"-p(?P<password>.+)", re.DOTALL)
_CONNECTION_PASSWORD = re.compile(r"(?:^|;)\s*pwd\s*=\s*(?P<password>[^;]+)", re.IGNORECASE)
_USER_OPTION = re.compile(r"-[uU]|--(?:proxy-)?user")
_USER_VALUE = re.compile(r"(?:-[uU]|--(?:proxy-)?user=)[^:]*:(?P<password>.*)", re.DOTALL)


def _secret_word(words: Sequence[str], *, shell: bool, depth: int) -> int | None:
    """Return the index of the first word that has a secret in it, or None.

    Args:
        words: the arguments of a command, or the words of a text.
        shell: they are surely words of a command line, and not of a sentence.
        depth: how many texts these are within.
    """
    before = program = ""
    fetches = False
    for index, word in enumerate(words):
        fetches = fetches or _FETCHER.fullmatch(word) is not None
        if not before or before in _BEFORE_PROGRAMS or "=" in before:
            found = _WITH_PASSWORD.fullmatch(word)
            program = "" if found is None else found["name"]
        elif program == "sshpass" and before != "-p" and not word.startswith("-"):
            program = ""  # what follows are options of what it runs
        if (
            _has_secret(word, before)
            or _is_option_value(word, before, shell=shell)
            or (fetches and _is_password_of_user(word, before))
            or (program and _is_password_option(word, before, program))
        ):
            return index
        if depth < _DEPTH_MAX and any(map(str.isspace, word)):
            inline = shell and _INLINE.fullmatch(before) is not None
            if _secret_word(_shell_words(word), shell=inline, depth=depth + 1) is not None:
                return index
        before = word
    return None


def _has_secret(word: str, before: str) -> bool:
    """Tell whether an argument has a secret in it, by its form or by a name that stands in it or before it."""
    return (
        _has_form(word)
        or any(map(_is_secret_url, _urls(word)))
        or _is_secret_header(word, before)
        or any(is_secret(name, value) and not _CODE.match(value) for name, value in _assignments(word))
        or (";" in word and any(_is_literal(found["password"]) for found in _CONNECTION_PASSWORD.finditer(word)))
    )


def _assignments(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values in text as shells, options, JSON and programs have them."""
    for found in _ASSIGNED.finditer(text):
        value = _VALUE.match(text, found.end())
        if value is not None:
            yield found["name"], value["double"] or value["single"] or value["bare"] or ""


def _is_secret_header(word: str, before: str) -> bool:
    header = _HEADER.fullmatch(word)
    if header is None:
        return False
    if header.start("name") or _HEADER_OPTION.fullmatch(before):
        return is_secret(header["name"], header["value"])
    # Without the option, `secret:latest` is an image, and a sentence may begin with the name of a header.
    name = _SEPARATORS.sub("", header["name"].lower())
    return name.endswith(_HEADER_NAMES) and _is_literal(header["value"]) and not _are_words(header["value"])


def _is_option_value(word: str, before: str, *, shell: bool) -> bool:
    """Tell whether an argument is the value of the option before it, and a secret by the option's name."""
    option = _OPTION.fullmatch(before)
    if option is None or word.startswith("-") or option["name"].partition("-")[0].lower() in _QUESTIONS:
        return False
    # In a sentence, such as `use the --token option`, what comes next is a word.
    return is_secret(option["name"], word) and (shell or not _are_words(word))


def _is_password_of_user(word: str, before: str) -> bool:
    """Tell whether an argument of curl or wget is a user with a password."""
    if _USER_OPTION.fullmatch(before):
        return ":" in word and _is_literal(word.partition(":")[2])
    joined = _USER_VALUE.fullmatch(word)
    return joined is not None and _is_literal(joined["password"])


def _is_password_option(word: str, before: str, program: str) -> bool:
    """Tell whether an argument of sshpass, or of a client of MySQL, is a password."""
    if program == "sshpass" and before == "-p":
        return _is_literal(word)
    joined = _PASSWORD_OPTION.fullmatch(word)
    return joined is not None and _is_literal(joined["password"])


def _shell_words(text: str) -> list[str]:
    """Return the words of shell text; of what is none, what stands between blanks."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:
        return text.split()
