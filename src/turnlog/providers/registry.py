"""Adapters by name: those of turnlog, and those that other packages register as entry points."""

from __future__ import annotations

import re
import threading

from turnlog.errors import PluginError, UnknownProviderError
from turnlog.model.names import ADAPTERS
from turnlog.plugins import Plugins
from turnlog.providers.interface import Provider

GROUP = "turnlog.providers"
"""The entry point group: name is the adapter's name, value a `Provider` subclass that is made without arguments."""

BUILT_IN = {
    "anthropic": "turnlog.providers.anthropic:Anthropic",
    "openai_chat": "turnlog.providers.openai_chat:OpenAIChat",
    "openai_responses": "turnlog.providers.openai_responses:OpenAIResponses",
    "gemini": "turnlog.providers.gemini:Gemini",
    "cohere": "turnlog.providers.cohere:Cohere",
    "cerebras": "turnlog.providers.cerebras:Cerebras",
    "bedrock": "turnlog.providers.bedrock:Bedrock",
}
"""The adapters of turnlog: by name where each is, as entry points say it."""

_plugins = Plugins(GROUP, Provider, "provider", BUILT_IN)
_NEEDED = ("provider", "api", "version", "capabilities", "key_variable")
"""What a class must say, beside its name."""

_made: dict[tuple[str, str | None, str | None], Provider] = {}
_mutex = threading.Lock()


def get(name: str) -> Provider:
    """Return the adapter of a name. Each is made once, so that the conversations it keeps are shared.

    Raises:
        UnknownProviderError: there is none.
        MissingPackageError: the package that it needs is not installed.
        PluginError: what another package registers under the name cannot be used.
    """
    return _get(ADAPTERS.get(name, name), None, None)


def get_as(name: str, provider: str, key_variable: str | None = None) -> Provider:
    """Return the adapter of a name for an endpoint of another provider that speaks its wire.

    Args:
        name: the adapter's name.
        provider: the provider, as turns and calls are to record it.
        key_variable: the environment variable that holds the key; by default the provider's name and `_API_KEY`.

    Raises:
        UnknownProviderError: there is no such adapter.
        MissingPackageError: the package that it needs is not installed.
        PluginError: what another package registers under the name cannot be used.
    """
    name = ADAPTERS.get(name, name)
    own = provider == name or ADAPTERS.get(provider) == name or provider == adapter_class(name).provider
    if own:
        return _get(name, None, key_variable)
    return _get(name, provider, key_variable or re.sub("[^A-Z0-9]", "_", provider.upper()) + "_API_KEY")


def _get(name: str, provider: str | None, key_variable: str | None) -> Provider:
    key = (name, provider, key_variable)
    with _mutex:
        if key not in _made:
            made = adapter_class(name)
            with _plugins.blamed(name):
                _made[key] = made() if key == (name, None, None) else made(provider=provider, key_variable=key_variable)
        return _made[key]


def names() -> list[str]:
    """Return the names of all adapters, sorted."""
    return _plugins.names()


def adapter_class(name: str) -> type[Provider]:
    """Return the class of an adapter.

    Raises:
        UnknownProviderError: there is none of this name.
        MissingPackageError: the package that it needs is not installed.
        PluginError: what another package registers under the name cannot be used.
    """
    name = ADAPTERS.get(name, name)
    found = _plugins.find(name)
    if found is None:
        raise UnknownProviderError(f"no provider {name!r} (one of {', '.join(names())})", name=name)
    lacking = [field for field in _NEEDED if not hasattr(found, field)]
    if lacking:
        raise PluginError(f"{_plugins.called(name)} cannot be used: it has no `{lacking[0]}`")
    return found
