"""Model calls in the log: each request as its exact bytes, each reply as the events that came.

- `facade` records calls and replies, and reads them: `TurnLog.calls`.
- `reading` follows what turns and calls cite.
- `checking` makes requests again and adds replies up again, and compares.
"""

from turnlog.calls.facade import Calls
from turnlog.calls.values import Call, RequestCheck, UnreadableCall

__all__ = ["Call", "Calls", "RequestCheck", "UnreadableCall"]
