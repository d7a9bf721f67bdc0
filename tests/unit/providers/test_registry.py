"""Adapters by name: those of turnlog, and those that other packages bring."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import packages

from turnlog import ContentError, UnknownProviderError
from turnlog.errors import MissingPackageError, PluginError
from turnlog.model import ContextWindow, Message, content_bytes, parse_tools
from turnlog.providers import get, names, registry
from turnlog.providers.interface import Provider
from turnlog.providers.registry import adapter_class

BUILT_IN = sorted(registry.BUILT_IN)

Install = Callable[..., None]

TOOLS = parse_tools('[{"name":"f","description":"x","inputSchema":{"type":"object","properties":{}}}]')


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Give a way to install a package that registers adapters, as pip leaves one behind."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_made", {})

    def run(package: str, source: str, **adapters: str) -> None:
        packages.install(tmp_path, package, source, registry.GROUP, **adapters)
        monkeypatch.delitem(sys.modules, package, raising=False)

    return run


ADAPTER = """
from tests.wires.postcard import Postcard

class Theirs(Postcard):
    name = "theirs"
"""


# Those of turnlog


@pytest.mark.parametrize("name", BUILT_IN)
def test_no_parameter_sets_what_the_request_sets_itself(name: str) -> None:
    """Messages, rules and tools, whatever the wire calls them; whoever prepares a request is told which."""
    adapter = get(name)
    said = [Message(turn=role, role=role, content_json=content_bytes("Hi.")) for role in ("system", "user")]
    asked, empty = (
        json.loads(adapter.prepare_request(ContextWindow(messages=messages, options={}), tools, model="m").body)
        for messages, tools in ((tuple(said), TOOLS), ((), ()))
    )
    decided = {"model", "stream", "tools", *(key for key in asked if asked[key] != empty.get(key))}
    missing = sorted(decided - set(adapter.reserved))
    assert not missing, f"add {', '.join(missing)} to reserved of {type(adapter).__name__}"
    for reserved in adapter.reserved:
        with pytest.raises(ContentError, match=f"params.{reserved}: the request sets it itself: leave it out") as error:
            adapter.prepare_request(ContextWindow(messages=(), options={}), model="m", params={reserved: None})
        assert error.value.field == f"params.{reserved}"


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_adapter_is_found_by_its_name(name: str) -> None:
    """Each of turnlog's adapters is found by the name that it has itself."""
    adapter = get(name)
    assert isinstance(adapter, Provider)
    assert adapter.name == name


def test_adapter_is_made_once() -> None:
    """Everybody shares one adapter, so that the conversations that it keeps are shared."""
    assert get("openai_chat") is get("openai_chat")


def test_short_name_is_the_adapter_behind_it() -> None:
    """`openai` is the adapter of Chat Completions."""
    assert get("openai") is get("openai_chat")
    assert adapter_class("openai") is adapter_class("openai_chat")


def test_names_are_sorted() -> None:
    """All of turnlog's adapters are listed, by name."""
    assert set(BUILT_IN) <= set(names())
    assert names() == sorted(names())


def test_unknown_name_raises_with_those_that_are_known() -> None:
    """A name that nobody has is an error that lists those that are."""
    with pytest.raises(
        UnknownProviderError, match=r"no provider 'antropic' \(one of anthropic, .*openai_chat"
    ) as caught:
        get("antropic")
    assert caught.value.name == "antropic"


_PROGRAM = """
import sys
import turnlog.providers
turnlog.providers.names()
print(sorted({"anthropic", "openai", "google.genai", "cohere", "httpx", "httpx2", "pydantic"} & set(sys.modules)))
for name in %r:
    turnlog.providers.get(name)
print(sorted({"anthropic", "openai", "google.genai", "cohere", "httpx", "httpx2", "pydantic"} & set(sys.modules)))
"""


def test_adapters_need_no_sdk_to_be_made() -> None:
    """Neither the registry nor an adapter imports an SDK before there is a call: preparing costs no import."""
    program = _PROGRAM % BUILT_IN
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n[]\n"


# Those of others


def _who(name: str) -> str:
    """Return what an adapter of another package is called in errors, as a pattern."""
    return rf"provider '{name}' of package {name}_turnlog 1\.0"


def test_adapter_of_another_package_is_found(install: Install) -> None:
    """A package that is installed brings an adapter by its entry point."""
    install("theirs_turnlog", ADAPTER, theirs="theirs_turnlog:Theirs")
    assert "theirs" in names()
    adapter = get("theirs")
    assert adapter.name == "theirs"
    assert type(adapter).__module__ == "theirs_turnlog"
    assert get("theirs") is adapter


def test_built_in_adapter_cannot_be_taken_over(install: Install) -> None:
    """A package cannot put itself in the place of one of turnlog's adapters."""
    install("greedy_turnlog", ADAPTER, openai_chat="greedy_turnlog:Theirs")
    assert adapter_class("openai_chat").__module__.startswith("turnlog.providers.openai_chat")


@pytest.mark.parametrize(
    "source",
    ["raise ImportError('needs libpost')", "import a_package_that_nobody_has"],
    ids=["says so", "import"],
)
def test_adapter_whose_package_is_missing_says_so(install: Install, source: str) -> None:
    """An adapter that cannot be imported names what is missing."""
    install("broken_turnlog", source, broken="broken_turnlog:Theirs")
    with pytest.raises(
        MissingPackageError, match=r"provider 'broken' of package broken_turnlog 1\.0 cannot be loaded: "
    ) as caught:
        get("broken")
    assert caught.value.provider == "broken"


@pytest.mark.parametrize("value", ["odd_turnlog:Theirs", "odd_turnlog:nothing", "odd_turnlog:text", "odd_turnlog"])
def test_what_is_no_adapter_is_refused(install: Install, value: str) -> None:
    """An entry point that is not a Provider class is no provider."""
    install("odd_turnlog", "text = 'x'\nclass Theirs: pass\n", odd=value)
    with pytest.raises(
        PluginError, match=r"^provider 'odd' of package odd_turnlog 1\.0 cannot be used: .* is no Provider "
    ):
        get("odd")


FAILING = {
    "raises": ("raise ValueError('no licence')", "ValueError: no licence"),
    "exits": ("import sys; sys.exit(0)", "SystemExit: 0"),
    "is no Python": ("def (", "SyntaxError: "),
    "cannot be made": (f"{ADAPTER}    def __init__(self): 1 / 0\n", "ZeroDivisionError: "),
    "wants more": (f"{ADAPTER}    def __init__(self, file): ...\n", "TypeError: "),
    "has another name": (
        ADAPTER.replace('"theirs"', '"other"'),
        "its `name` is 'other', and must be that of the entry",
    ),
    "says too little": (
        ADAPTER.replace("Postcard", "Provider").replace("tests.wires.postcard", "turnlog.providers"),
        "no `",
    ),
}


@pytest.mark.parametrize("fault", FAILING)
def test_adapter_that_fails_is_told_with_its_package(install: Install, fault: str) -> None:
    """Whatever it raises, also where it would end the process; the others are there as before."""
    source, what = FAILING[fault]
    install("theirs_turnlog", source, theirs="theirs_turnlog:Theirs")
    with pytest.raises(PluginError, match=f"^{_who('theirs')} (failed|cannot be used).*{what}"):
        get("theirs")
    assert get("anthropic").name == "anthropic"


def test_name_that_two_packages_have_is_refused(install: Install) -> None:
    """Which of them is meant, nobody knows."""
    for package in ("one_turnlog", "other_turnlog"):
        install(package, ADAPTER, theirs=f"{package}:Theirs")
    by = r"by package one_turnlog 1\.0 and package other_turnlog 1\.0: remove one of them"
    with pytest.raises(PluginError, match=rf"^provider 'theirs' is registered more than once, {by}$"):
        get("theirs")
