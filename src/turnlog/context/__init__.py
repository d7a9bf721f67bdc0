"""From a turn to its ancestry, and from the ancestry to the context window: a pure function of the log."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)  # pyright: ignore[reportUnknownVariableType]
