"""Model calls in the log: each request as its exact bytes, each reply as the events that came.

- `facade` records calls and replies, and reads them: `TurnLog.calls`.
- `tools` records that a tool call begins and how it ended, and tells of it: `TurnLog.tool_calls`.
- `reading` follows what turns and calls cite.
- `checking` makes requests again and adds replies up again, and compares.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)  # pyright: ignore[reportUnknownVariableType]
