"""Secrets in command lines, and in shell text within them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from turnlog.record.secret_forms import has_form
from turnlog.record.secret_names import SEPARATORS, are_words, is_literal, is_secret
from turnlog.record.secret_urls import is_secret_url, urls_in

_QUESTIONS = frozenset(
    {"allow", "ask", "check", "disable", "enable", "hide", "no", "prompt", "require", "show", "skip", "verify"}
)
"""First words of options that take no value."""

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


def secret_word(words: Sequence[str], *, shell: bool, depth: int) -> int | None:
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
            if secret_word(_shell_words(word), shell=inline, depth=depth + 1) is not None:
                return index
        before = word
    return None


def _has_secret(word: str, before: str) -> bool:
    """Tell whether an argument has a secret in it, by its form or by a name that stands in it or before it."""
    return (
        has_form(word)
        or any(map(is_secret_url, urls_in(word)))
        or _is_secret_header(word, before)
        or any(is_secret(name, value) and not _CODE.match(value) for name, value in _assignments(word))
        or (";" in word and any(is_literal(found["password"]) for found in _CONNECTION_PASSWORD.finditer(word)))
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
    name = SEPARATORS.sub("", header["name"].lower())
    return name.endswith(_HEADER_NAMES) and is_literal(header["value"]) and not are_words(header["value"])


def _is_option_value(word: str, before: str, *, shell: bool) -> bool:
    """Tell whether an argument is the value of the option before it, and a secret by the option's name."""
    option = _OPTION.fullmatch(before)
    if option is None or word.startswith("-") or option["name"].partition("-")[0].lower() in _QUESTIONS:
        return False
    # In a sentence, such as `use the --token option`, what comes next is a word.
    return is_secret(option["name"], word) and (shell or not are_words(word))


def _is_password_of_user(word: str, before: str) -> bool:
    """Tell whether an argument of curl or wget is a user with a password."""
    if _USER_OPTION.fullmatch(before):
        return ":" in word and is_literal(word.partition(":")[2])
    joined = _USER_VALUE.fullmatch(word)
    return joined is not None and is_literal(joined["password"])


def _is_password_option(word: str, before: str, program: str) -> bool:
    """Tell whether an argument of sshpass, or of a client of MySQL, is a password."""
    if program == "sshpass" and before == "-p":
        return is_literal(word)
    joined = _PASSWORD_OPTION.fullmatch(word)
    return joined is not None and is_literal(joined["password"])


def _shell_words(text: str) -> list[str]:
    """Return the words of shell text; of what is none, what stands between blanks."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:
        return text.split()
