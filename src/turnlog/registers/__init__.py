"""What has a name in the log: bookmarks, and the registers: pointers, providers and MCP servers.

The last event of a name holds, and all are reached alike: `all()`, `get(name)`, `set(name, …)`, `delete(name)`. What a
provider is called by is no event's to delete: it is refused with `disable(name)`.

Registers say what a run calls, starts and sends keys to. So events that came with an import have no effect until a
person has seen and confirmed them; the confirmation is an event of this log, `log.trust`, that cites them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)  # pyright: ignore[reportUnknownVariableType]
