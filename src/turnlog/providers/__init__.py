"""Providers: one adapter a wire, between context windows and what a provider's API sends and answers.

`get("anthropic")` returns an adapter; `Provider` is the contract that all of them keep, and
`turnlog.testing.ProviderSuite` checks it. Other packages add adapters by the entry point group `turnlog.providers`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)  # pyright: ignore[reportUnknownVariableType]
