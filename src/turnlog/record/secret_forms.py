"""Secrets by their form alone: known kinds of tokens, keys and passwords, anywhere in a text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from turnlog.record.secret_names import are_words, is_literal


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
        "ABSK": ("aws-key", _begun("ABSK", r"[A-Za-z0-9+/]{100,}={0,2}", hyphen=False)),  # Bedrock
        "bedrock-api-key-": ("aws-key", _begun("bedrock-api-key-", r"[A-Za-z0-9+/]{26,}={0,2}")),
        "SG.": ("sendgrid-key", _begun(r"SG\.", r"[\w-]{16,}\.[\w-]{16,}", hyphen=False)),  # SendGrid
        ":AA": ("telegram-token", r"(?<!\d)\d{8,10}:AA[\w-]{33}(?![\w-])"),  # Telegram
        # JSON Web Token (RFC 7519 §3). What begins like one is read whole, or it would be read from each `eyJ` in it.
        "eyJ": ("json-web-token", _begun("eyJ", r"[\w-]{8,}+(?P<behind>\.[\w-]{8,}+\.[\w-]{8,}+)?")),
        # PEM (RFC 7468 §10), in any spelling
        "-----": ("private-key", r"-----(?i:BEGIN(?:[A-Z0-9 _]|-(?!-)){0,100}PRIVATE KEY)"),
        "earer ": ("bearer-token", r"(?<!\w)(?<!\w-)[Bb]earer +(?P<rest>[A-Za-z0-9+/=._~-]{16,})"),
        "asic ": ("basic-credentials", r"(?<!\w)(?<!\w-)[Bb]asic +(?P<rest>[A-Za-z0-9+/=._~-]{16,})"),
    }.items()
}
_USER_AND_PASSWORD = re.compile(r"(?<![A-Za-z0-9+.])[A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s/?#@:]*:(?P<rest>[^\s/?#@]+)@")
IMAGE_SCHEMES = ("docker://", "oci://")
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


class Form(NamedTuple):
    """A known kind of secret in a text: from where (inclusive) to where (exclusive), in characters, and the kind."""

    start: int
    end: int
    kind: str


def forms_in(text: str) -> Iterator[Form]:
    """Yield the known kinds of secrets that stand in a text, each whole. Those of different kinds may overlap."""
    ends: dict[str, int] = {}
    pem = _PemEnds(text)
    for form in _forms(text):
        if form.start >= ends.get(form.kind, 0):  # else it is within one that was found, and nothing is read twice
            end = ends[form.kind] = _whole(text, form, pem)
            yield Form(form.start, end, form.kind)


def masked_forms(text: str) -> str:
    """Return a text with an ellipsis in the place of each known kind of secret that stands in it."""
    shown, at = "", 0
    for form in sorted(forms_in(text)):
        if form.end > at:
            shown += text[at : max(form.start, at)] + "…"
            at = form.end
    return shown + text[at:]


def has_form(text: str) -> bool:
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
                is_none = are_words(found["rest"]) if "rest" in form.groupindex else None in found.groups()
                if not is_none:
                    named = mark in _NAMED_BEFORE
                    yield Form(found.start("rest" if named else 0), found.end(), kind)
    if "://" in text:
        for found in _USER_AND_PASSWORD.finditer(text):
            if is_literal(found["rest"]) and not found[0].startswith(IMAGE_SCHEMES):
                yield Form(found.start("rest"), found.end("rest"), "password")


def _whole(text: str, form: Form, pem: _PemEnds) -> int:
    """Return where a secret ends: a form is most often found by its beginning."""
    if form.kind == "password":
        return form.end
    if form.kind != "private-key":
        rest = _REST.match(text, form.end, form.end + _REST_CHARACTERS_MAX)
        return form.end if rest is None else rest.end()
    last = pem.behind(form.end)
    if last is not None:
        return last
    body = _PEM_BODY.match(text, form.end, form.end + _PEM_CHARACTERS_MAX)
    return form.end if body is None else body.end()


class _PemEnds:
    """The last lines of keys in PEM: each is looked for once, however many keys begin before it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._next = -1
        """Where the next one begins: what is before it was looked through. At the end of the text there is no more."""

    def behind(self, start: int) -> int | None:
        """Return where the last line of a key ends; None where none is near enough.

        Args:
            start: behind the beginning of the key, and of those that were asked about before.
        """
        if self._next < start:
            found = _PEM_LAST.search(self._text, start)
            self._next = len(self._text) if found is None else found.start()
        last = _PEM_LAST.match(self._text, self._next, start + _PEM_CHARACTERS_MAX)
        return None if last is None else last.end()
